"""The spread of absolute figures: the effect of a round changes them, although it cancels in ratios. Pure."""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from cephfit.core.statistics.round_effects import Floats, RoundInformation
from cephfit.core.statistics.variance import LARGEST_LOG, Spread, Table, spread_of


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
        explained, per_variance = float(information.explained(pull)), float(information.trace)
        df = per_variance**2 / float(information.squares_of_rows().sum())
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
            return replace(absolute, spread=for_one_cell(absolute.spread), round_variance=0.0)
        information, pull = _of_rounds(table, absolute.spread.moderated)
        rank = int(information.rank)
        if df.sum() < 3 * rank:  # too few: rounds stay in the residuals, and the intervals are conservative
            return replace(absolute, spread=for_one_cell(absolute.spread))
        shifts = np.where(table.present, information.solve(pull), 0.0)
        residuals = _residuals(shifts, table) - _residuals(table.logs, table)
        # Scaled up for the degrees of freedom that the rounds take.
        steady = replace(table, logs=residuals * math.sqrt(df.sum() / (df.sum() - rank)))
        spread = spread_of(steady, with_shifts=False)
        return replace(absolute, spread=absolute.spread if spread is None else spread)

    def parts_of(self, weights: Floats, rows: NDArray[np.intp] | None = None) -> tuple[float, float, float]:
        """Return the variance of a weighted sum of log measurements without rounds, its degrees of freedom, and
        the variance that rounds add, which has ``round_df``.

        Args:
            weights, rows: as for ``Spread.variance_of``.
        """
        variance, df = self.spread.variance_of(weights, rows)
        return variance, df, float((weights.sum(axis=(0, 1)) ** 2).sum()) * self.round_variance

    def factor_of(self, weights: Floats, confidence: float, rows: NDArray[np.intp] | None = None) -> float:
        """Return the ratio of an interval's end to the figure whose logarithm is a sum of log measurements.

        Each part has its own quantile, as in ``summary_statistics.level_interval``.

        Args:
            weights, rows: as for ``Spread.variance_of``.
            confidence: of the interval, 0 to 1.
        """
        variance, df, of_rounds = self.parts_of(weights, rows)
        level = 0.5 + confidence / 2
        half = math.hypot(
            float(stdtrit(df, level)) * math.sqrt(variance),
            float(stdtrit(self.round_df, level)) * math.sqrt(of_rounds),
        )
        return math.exp(min(half, LARGEST_LOG))


def _of_rounds(table: Table, variance: Floats) -> tuple[RoundInformation, Floats]:
    """Return the information on the effects of rounds, and the weighted sums of residuals of each, shape (R,).

    Each place's own mean, over the rounds that it has, is removed.

    Args:
        variance: of one measurement in each place, shape (J, C).
    """
    information = RoundInformation.of(table.present.reshape(-1, table.present.shape[2]), 1 / variance.ravel())
    pull = (_residuals(table.logs, table) / variance[..., None]).sum(axis=(0, 1))
    return information, pull


def _residuals(values: Floats, table: Table) -> Floats:
    """Return values of shape (J, C, R) minus the mean of their place; 0 where there is none."""
    held = np.where(table.present, values, 0.0)
    n = np.maximum(table.present.sum(axis=2), 1)
    return np.where(table.present, held - (held.sum(axis=2) / n)[..., None], 0.0)


def for_one_cell(spread: Spread) -> Spread:
    """Remove the effect of an application on all cells: for one cell it is part of the cell's own scatter."""
    return replace(spread, applied=0.0, applied_raw=0.0, applied_df=0, alone=None)
