"""Intervals of single cells, with variances moderated over configurations as in predictions.

A scatter that is only pooled over configurations finds false differences in noisy configurations and hides the
effects of stable ones; docs/evidence.md has figures.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from cephfit.core.statistics.absolute_spread import Absolute, for_one_cell
from cephfit.core.statistics.round_effects import Floats
from cephfit.core.statistics.variance import LARGEST_LOG, Spread, Table, spread_of
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import Cell
from cephfit.results.statistics import summary_statistics
from cephfit.results.statistics.summary_statistics import Interval


@dataclass(frozen=True, slots=True)
class AgainstDefault:
    """The ratio of every configuration to the default in each cell, within the rounds that both have.

    Attributes:
        baselines: the measured baselines.
        names: configurations, the default first.
        table: the measurements, in the same order.
        spread: of the measurements; None where nothing was measured twice.
    """

    baselines: Baselines
    names: tuple[str, ...]
    table: Table
    spread: Spread | None

    @classmethod
    def of(cls, baselines: Baselines) -> "AgainstDefault":
        names = baselines.configurations
        table = Table.of(baselines, names)
        spread = spread_of(table)
        return cls(baselines, names, table, spread and for_one_cell(spread))

    def ratio(self, name: str, cell: Cell) -> float | None:
        """Return the configuration's rate over the default's; None where one of the two has none.

        It is the ratio of the means where all configurations were measured in the same rounds, or where no rounds
        connect the two; else the ratio within rounds.
        """
        own, default = (self.baselines.cells.get((n, cell)) for n in (name, self.baselines.default))
        if own is None or default is None:
            return None
        contrast = self._contrast(name, cell)
        if contrast is None or self.table.blocks[self.table.cells.index(cell)].whole:
            return summary_statistics.ratio(own.iops, default.iops)
        return math.exp(float((contrast * self.table.logs[:, self.table.cells.index(cell)]).sum()))

    def interval(self, name: str, cell: Cell, confidence: float) -> Interval | None:
        """Return the interval of the ratio; None for the default, or without ratio, scatter or common rounds."""
        ratio = None if name == self.baselines.default else self.ratio(name, cell)
        contrast = None if ratio is None else self._contrast(name, cell)
        if ratio is None or contrast is None or self.spread is None:
            return None
        variance, df = self.spread.variance_of(_in_cell(self.table, cell, contrast))
        quantile = float(stdtrit(df, 0.5 + confidence / 2))
        factor = math.exp(min(quantile * math.sqrt(variance), LARGEST_LOG))
        return Interval(ratio / factor, ratio * factor, confidence, "moderated")

    def weights(self, name: str, cell: Cell) -> Floats:
        """Return the weights of a cell's log measurements, shape (J, R), in the log of the configuration's rate.

        The rate is the default's mean times ``ratio``; its own mean where that is the same, or without a ratio.
        """
        j, c = self.names.index(name), self.table.cells.index(cell)
        contrast = self._contrast(name, cell)
        if contrast is None or self.table.blocks[c].whole:
            return self.table.mean_of(j, c)
        return self.table.mean_of(0, c) + contrast

    def _contrast(self, name: str, cell: Cell) -> Floats | None:
        blocks = self.table.blocks[self.table.cells.index(cell)]
        return blocks.contrast(self.names.index(name), 0)


def spread_as_of(absolute: Absolute, weights: Floats, n: int) -> summary_statistics.Spread:
    """Return the scatter of ``n`` values whose mean has the variance of a weighted sum of log measurements.

    Args:
        weights: shape (J, C, R).
    """
    variance, df, of_rounds = absolute.parts_of(weights)
    return summary_statistics.Spread(math.sqrt(variance * n), df, math.sqrt(of_rounds * n), absolute.round_df)


def own_spreads(baselines: Baselines) -> Mapping[tuple[str, Cell], summary_statistics.Spread]:
    """Return the scatter of the absolute rate by (configuration, cell); empty where nothing was repeated."""
    names = baselines.configurations
    absolute = Absolute.of_one_cell(Table.of(baselines, names))
    if absolute is None:
        return {}
    table = absolute.table
    found = {}
    for name, cell in baselines.cells:
        j, c = names.index(name), table.cells.index(cell)
        weights = _in_cell(table, cell, table.mean_of(j, c))
        found[name, cell] = spread_as_of(absolute, weights, int(table.present[j, c].sum()))
    return found


def _in_cell(table: Table, cell: Cell, weights: Floats) -> Floats:
    """Embed the weights of one cell's log measurements, shape (J, R), in those of all, shape (J, C, R)."""
    every = np.zeros(table.logs.shape)
    every[:, table.cells.index(cell)] = weights
    return every
