"""How unsteady the measurements of a sweep are: variances of log IOPS, moderated over configurations.

With two or three repeats a cell's own variance says little (one or two degrees of freedom), so it borrows from
the same cell under the other configurations, in the manner of Smyth (2004, "Linear models and empirical Bayes
methods", Stat. Appl. Genet. Mol. Biol. 3:3). docs/method.md shows by simulation why each part is here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cephfit.baseline import Baselines
from cephfit.cells import CELLS, Cell

Floats = NDArray[np.float64]

_PRIOR_DF = 4.0
"""Degrees of freedom that the pooled variance of a cell counts for beside a configuration's own."""
_STEADY_DF = 10.0
"""Degrees of freedom with which a configuration is held to be as steady as the others, before its own are seen."""
_RESOLUTION = 1e-3
"""Standard deviation of log IOPS below which no measurement is believed: fio counts whole I/Os over a time known
to the millisecond, so that repeats equal to the last digit do not mean that there is no noise."""
_MIN_CELLS_FOR_ROUNDS = 4
"""Cells measured in every round that are needed to tell a round's own shift from the noise of single cells."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Variances of the logarithm of one repeat's IOPS. J configurations (the default first), C cells.

    Attributes:
        cells: those that were measured, in the vocabulary's order.
        n: repeats, shape (J, C); 0 where not measured.
        own: variance from the configuration's own repeats, shape (J, C).
        target: what ``own`` is drawn towards: the cell's pooled variance x the configuration's unsteadiness.
        moderated: the mean of both by their degrees of freedom, shape (J, C).
        unsteadiness: variance of each configuration as a multiple of the pooled one, shape (J,).
        applied: variance between times that the same configuration was applied, common to all cells of a round.
        applied_raw: the mean square from which it was estimated, 0 if ``applied`` is 0.
        applied_df: degrees of freedom of that mean square.
        notes: what a reader must know.
        prior_df: degrees of freedom that ``target`` counts for in ``moderated``.
        steady_df: degrees of freedom that hold ``unsteadiness`` at 1.
    """

    cells: tuple[Cell, ...]
    n: NDArray[np.int64]
    own: Floats
    target: Floats
    moderated: Floats
    unsteadiness: Floats
    applied: float
    applied_raw: float
    applied_df: int
    notes: tuple[str, ...] = ()
    prior_df: float = _PRIOR_DF
    steady_df: float = _STEADY_DF

    def variance_of(self, j: int, gradient: Floats, default_gradient: Floats) -> tuple[float, float]:
        """Variance of a log prediction of configuration ``j`` (> 0) and its degrees of freedom.

        Args:
            j: which configuration.
            gradient: derivatives by the configuration's log rates, shape (C,), 0 for cells not used.
            default_gradient: the same for the default's.

        Returns:
            The variance by the delta method, and Satterthwaite's degrees of freedom: 2 V^2 / Var(V), where V is
            a linear form of independent variances, each of which varies by 2 sigma^4 / df.
        """
        df = np.maximum(self.n - 1, 0).astype(np.float64)
        pool_share = df / np.maximum(df.sum(axis=0), 1)
        drawn = self.prior_df / (self.prior_df + df)
        through_pool = np.zeros(len(self.cells))
        coefficient = np.zeros_like(self.own)
        variance = 0.0
        uncertainty = 0.0
        for index, slope in ((j, gradient), (0, default_gradient)):
            weight = np.where(slope != 0, slope**2 / np.maximum(self.n[index], 1), 0.0)
            variance += float(weight @ self.moderated[index])
            through_pool += drawn[index] * weight * self.unsteadiness[index]
            coefficient[index] += (1 - drawn[index]) * weight
            pooled_part = drawn[index] * weight * self.target[index]
            uncertainty += float(pooled_part @ pooled_part) / self.prior_df
            uncertainty += float(pooled_part.sum()) ** 2 / (float(df[index].sum()) + self.steady_df)
            n_rounds = float(np.min(self.n[index], where=slope != 0, initial=np.iinfo(np.int64).max))
            variance += self.applied / n_rounds
        coefficient += through_pool * pool_share
        uncertainty += float(((coefficient * self.moderated) ** 2 / np.maximum(df, 1)).sum())
        if self.applied_df:
            n_rounds = float(np.min(self.n[j], where=gradient != 0, initial=np.iinfo(np.int64).max))
            uncertainty += (2 * self.applied_raw / n_rounds) ** 2 / self.applied_df
        return variance, max(1.0, variance**2 / uncertainty)


def spread_of(
    baselines: Baselines, configurations: Sequence[str], *, prior_df: float = _PRIOR_DF
) -> Spread | None:
    """The spread of a sweep's measurements under ``configurations``; None if nothing was measured twice.

    Args:
        baselines: the sweep.
        configurations: names, the default first.
        prior_df: degrees of freedom that a cell's pooled variance counts for beside a configuration's own.
    """
    cells = tuple(c for c in CELLS if any((name, c) in baselines.cells for name in configurations))
    residuals, n = _residuals(baselines, configurations, cells)
    df = np.maximum(n - 1, 0)
    if not df.any():
        return None
    squares = (residuals**2).sum(axis=2)
    pooled = _pooled(squares, df)

    notes: list[str] = []
    applied = applied_raw = 0.0
    applied_df = 0
    full = int(n.max())
    whole = np.flatnonzero((n == full).all(axis=0))
    if len(whole) >= _MIN_CELLS_FOR_ROUNDS:
        table, applied, applied_raw, applied_df = _without_rounds(residuals[:, whole], pooled[whole])
        squares[:, whole] = (table**2).sum(axis=2)
        pooled = _pooled(squares, df)
    elif full > 1:
        notes.append(
            f"fewer than {_MIN_CELLS_FOR_ROUNDS} cells have all {full} repeats under every configuration: a shift "
            "common to all cells of a round could not be told from noise"
        )
    once = [str(cell) for cell, measured in zip(cells, df.sum(axis=0), strict=True) if not measured]
    if once:
        notes.append(
            f"measured only once under every configuration: {', '.join(once)}; their spread is taken to be that "
            "of the most unsteady cell"
        )

    own = squares / np.maximum(df, 1)
    own_df = df.sum(axis=1).astype(np.float64)
    excess = (squares / pooled).sum(axis=1)
    unsteadiness = (excess + _STEADY_DF) / (own_df + _STEADY_DF)
    target = pooled * unsteadiness[:, None]
    moderated = (prior_df * target + df * own) / (prior_df + df)
    return Spread(
        cells,
        n,
        own,
        target,
        moderated,
        unsteadiness,
        applied,
        applied_raw,
        applied_df,
        tuple(notes),
        prior_df=prior_df,
    )


def _residuals(
    baselines: Baselines, configurations: Sequence[str], cells: Sequence[Cell]
) -> tuple[Floats, NDArray[np.int64]]:
    """Log IOPS less their mean over repeats, shape (J, C, most repeats), 0 where there is none; and n."""
    iops = [
        [found.iops if (found := baselines.cells.get((name, cell))) else () for cell in cells]
        for name in configurations
    ]
    n = np.array([[len(values) for values in row] for row in iops], dtype=np.int64)
    most = int(n.max())
    # Rates of 1 stand where there is no repeat: their logarithm is 0, and so adds nothing to a sum.
    logs = np.log(np.array([[[*values, *[1.0] * (most - len(values))] for values in row] for row in iops]))
    means = logs.sum(axis=2) / np.maximum(n, 1)
    return np.where(np.arange(most) < n[..., None], logs - means[..., None], 0.0), n


def _pooled(squares: Floats, df: NDArray[np.int64]) -> Floats:
    """Variance per cell over all configurations, shape (C,); the largest of them where a cell has none."""
    total_df = df.sum(axis=0)
    pooled = squares.sum(axis=0) / np.maximum(total_df, 1)
    floored = np.maximum(pooled, _RESOLUTION**2)
    filled: Floats = np.where(total_df > 0, floored, floored[total_df > 0].max())
    return filled


def _without_rounds(residuals: Floats, pooled: Floats) -> tuple[Floats, float, float, int]:
    """Take out what all configurations of a round share, and estimate what all cells of one application share.

    Rounds are interleaved, so a round's shift (a slower hour) is in every configuration alike and cancels in
    every comparison. What belongs to one configuration in one round (a restart with another layout of caches)
    does not cancel, and does not average out over cells either.

    Args:
        residuals: log IOPS less their mean over repeats, shape (J, C, repeats).
        pooled: variance per cell, shape (C,).

    Returns:
        The residuals without the rounds' shifts; the variance common to the cells of one application; the mean
        square it comes from (0 when the variance is 0) and that one's degrees of freedom.
    """
    n_configurations, n_cells, n_repeats = residuals.shape
    precision = 1 / pooled
    weights = precision / precision.sum()
    shifts = np.einsum("c,jcr->jr", weights, residuals)
    df = n_configurations * (n_repeats - 1)
    # Two configurations share half of every shift of their own: there, a round's shift cannot be taken out.
    if n_configurations > 2:
        rounds = shifts.mean(axis=0)
        spent = n_configurations * n_cells / (n_configurations * n_cells - 1)
        residuals = (residuals - rounds) * spent**0.5
        shifts = shifts - rounds
        df -= n_repeats - 1
    variance = np.maximum((residuals**2).sum(axis=(0, 2)) / (n_configurations * (n_repeats - 1)), _RESOLUTION**2)
    mean_square = float((shifts**2).sum()) / df
    applied = max(0.0, mean_square - float(weights**2 @ variance))
    return residuals, applied, mean_square if applied else 0.0, df
