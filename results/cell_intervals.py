"""How sure a single cell's figures are: variances moderated over configurations, as predictions have them.

A scatter pooled over configurations alone calls a noisy configuration different and hides a calm one's effects;
docs/method.md has figures.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from cephfit.baseline import Baselines
from cephfit.blocks import Floats, Table
from cephfit.cells import Cell
from cephfit.results import statistics
from cephfit.results.statistics import Interval
from cephfit.spread import LARGEST_LOG, Spread, spread_of


@dataclass(frozen=True, slots=True)
class AgainstDefault:
    """Every configuration against the default in each cell by itself, within the rounds that they share.

    Attributes:
        baselines: what was measured.
        names: of the configurations, the default first.
        table: the measurements, in the same order.
        spread: how unsteady it is; None where nothing was measured twice.
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
        # What an application does to all cells is in each cell's own scatter: for one cell it is not added again.
        return cls(baselines, names, table, spread and replace(spread, applied=0.0, applied_raw=0.0, applied_df=0))

    def ratio(self, name: str, cell: Cell) -> float | None:
        """The configuration's rate over the default's; None where one of the two has none.

        That of their means where all configurations were measured in the same rounds; else the one within rounds,
        or of the means again where no rounds connect the two.
        """
        own, default = (self.baselines.cells.get((n, cell)) for n in (name, self.baselines.default))
        if own is None or default is None:
            return None
        contrast = self._contrast(name, cell)
        if contrast is None or self.table.blocks[self.table.cells.index(cell)].whole:
            return statistics.ratio(own.iops, default.iops)
        return math.exp(float((contrast * self.table.logs[:, self.table.cells.index(cell)]).sum()))

    def interval(self, name: str, cell: Cell, confidence: float) -> Interval | None:
        """Of the ratio, by itself; None for the default, and where ratio, scatter or common rounds are lacking."""
        ratio = None if name == self.baselines.default else self.ratio(name, cell)
        contrast = None if ratio is None else self._contrast(name, cell)
        if ratio is None or contrast is None or self.spread is None:
            return None
        variance, df = self.spread.variance_of(_in_cell(self.table, cell, contrast))
        quantile = float(stdtrit(df, 0.5 + confidence / 2))
        factor = math.exp(min(quantile * math.sqrt(variance), LARGEST_LOG))
        return Interval(ratio / factor, ratio * factor, confidence, "moderated")

    def _contrast(self, name: str, cell: Cell) -> Floats | None:
        blocks = self.table.blocks[self.table.cells.index(cell)]
        return blocks.contrast(self.names.index(name), 0)


def own_spreads(baselines: Baselines) -> Mapping[tuple[str, Cell], statistics.Spread]:
    """The scatter of a configuration's repeats in a cell, for its rate by itself; none where nothing was repeated.

    What a round does to all of its measurements is left in: it moves the rate, whatever it does to ratios.
    """
    names = baselines.configurations
    table = Table.of(baselines, names)
    spread = spread_of(table, with_shifts=False)
    if spread is None:
        return {}
    found = {}
    for name, cell in baselines.cells:
        j, c = names.index(name), table.cells.index(cell)
        variance, df = spread.variance_of(_in_cell(table, cell, table.mean_of(j, c)))
        found[name, cell] = statistics.Spread(math.sqrt(variance * spread.n[j, c]), df)
    return found


def _in_cell(table: Table, cell: Cell, weights: Floats) -> Floats:
    """Weights of one cell's log measurements, shape (J, R), among those of all, shape (J, C, R)."""
    every = np.zeros(table.logs.shape)
    every[:, table.cells.index(cell)] = weights
    return every
