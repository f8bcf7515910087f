"""Intervals of single cells, with variances moderated over configurations as in predictions.

A scatter that is only pooled over configurations finds false differences in noisy configurations and hides the
effects of stable ones; docs/method.md has figures.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import Cell
from cephfit.core.variance import LARGEST_LOG, Floats, Spread, Table, spread_of
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
        return cls(baselines, names, table, spread and _of_one_cell(spread))

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


@dataclass(frozen=True, slots=True)
class Absolute:
    """The spread of absolute figures, which the effect of a round changes, although it cancels in ratios.

    A round shifts all of its measurements alike. The shift is therefore estimated separately. It has the degrees
    of freedom of the rounds, not those of all measurements.

    Attributes:
        table: the measurements.
        spread: of the residuals without the rounds; it includes the rounds where the table is too small.
        round_variance: of the log of the common shift of a round, with the remaining noise of its mean.
        round_df: degrees of freedom of that; the number of rounds minus one, if all places have the same rounds.
    """

    table: Table
    spread: Spread
    round_variance: float
    round_df: float

    @classmethod
    def of(cls, table: Table) -> "Absolute | None":
        """Return the spread of a table; None if nothing was measured twice."""
        spread = spread_of(table)
        if spread is None:
            return None
        information, pull = _of_rounds(table, spread.moderated)
        explained = float(pull @ np.linalg.pinv(information, rcond=1e-9, hermitian=True) @ pull)
        per_variance = float(np.trace(information))
        df = per_variance**2 / float((information**2).sum())
        # Rounding makes the variance of equal figures slightly negative.
        return cls(table, spread, max(0.0, explained / per_variance), max(1.0, df))

    @classmethod
    def of_one_cell(cls, table: Table) -> "Absolute | None":
        """Return the spread for figures of single places, also where there are few of them.

        The effect of one application on all cells is then part of each cell's own scatter.
        """
        absolute = cls.of(table)
        if absolute is None:
            return None
        df = np.maximum(table.present.sum(axis=2) - 1, 0)
        if np.count_nonzero(df) == 1:  # only the place's own scatter exists, and it contains its rounds
            return replace(absolute, spread=_of_one_cell(absolute.spread), round_variance=0.0)
        information, pull = _of_rounds(table, absolute.spread.moderated)
        inverse = np.linalg.pinv(information, rcond=1e-9, hermitian=True)
        rank = round(float(np.trace(inverse @ information)))
        if df.sum() < 3 * rank:  # too few: rounds stay in the residuals, and the intervals are conservative
            return replace(absolute, spread=_of_one_cell(absolute.spread))
        shifts = np.where(table.present, inverse @ pull, 0.0)
        residuals = _residuals(shifts, table) - _residuals(table.logs, table)
        # Scaled up for the degrees of freedom that the rounds take.
        steady = replace(table, logs=residuals * math.sqrt(df.sum() / (df.sum() - rank)))
        spread = spread_of(steady, with_shifts=False)
        return replace(absolute, spread=absolute.spread if spread is None else spread)

    def spread_as_of(self, weights: Floats, n: int) -> summary_statistics.Spread:
        """Return the scatter of ``n`` values whose mean has the variance of a weighted sum of log measurements.

        Args:
            weights: shape (J, C, R).
        """
        variance, df = self.spread.variance_of(weights)
        of_rounds = float((weights.sum(axis=(0, 1)) ** 2).sum()) * self.round_variance
        return summary_statistics.Spread(math.sqrt(variance * n), df, math.sqrt(of_rounds * n), self.round_df)


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
        found[name, cell] = absolute.spread_as_of(weights, int(table.present[j, c].sum()))
    return found


def _of_rounds(table: Table, variance: Floats) -> tuple[Floats, Floats]:
    """Return the information on the effects of rounds, shape (R, R), and the weighted sums of residuals, (R,).

    Each place's own mean, over the rounds that it has, is removed.

    Args:
        variance: of one measurement in each place, shape (J, C).
    """
    held = table.present / variance[..., None]
    n = np.maximum(table.present.sum(axis=2), 1)[..., None]
    crossed = np.einsum("jcr,jcs->rs", held / n, table.present.astype(np.float64))
    pull = (_residuals(table.logs, table) / variance[..., None]).sum(axis=(0, 1))
    return np.diag(held.sum(axis=(0, 1))) - crossed, pull


def _residuals(values: Floats, table: Table) -> Floats:
    """Return values of shape (J, C, R) minus the mean of their place; 0 where there is none."""
    held = np.where(table.present, values, 0.0)
    n = np.maximum(table.present.sum(axis=2), 1)
    return np.where(table.present, held - (held.sum(axis=2) / n)[..., None], 0.0)


def _of_one_cell(spread: Spread) -> Spread:
    """Remove the effect of an application on all cells: for one cell it is part of the cell's own scatter."""
    return replace(spread, applied=0.0, applied_raw=0.0, applied_df=0, alone=None)


def _in_cell(table: Table, cell: Cell, weights: Floats) -> Floats:
    """Embed the weights of one cell's log measurements, shape (J, R), in those of all, shape (J, C, R)."""
    every = np.zeros(table.logs.shape)
    every[:, table.cells.index(cell)] = weights
    return every
