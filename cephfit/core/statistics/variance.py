"""Variances of log IOPS: rounds as randomised blocks, moderated over configurations. Pure.

The model is log value = configuration + round + noise.

Rounds are interleaved: each is one pass over all configurations, so that a slow hour affects all values of a round
alike. Configurations are therefore compared within rounds. Values may be missing: a repeat failed, a race dropped
a configuration, or trials have separate rounds. Then least squares of a two-way layout are used. They include what
a third configuration shows about two that share few rounds (Scheffe 1959, The Analysis of Variance, 4.4).

With two or three repeats a cell's own variance says little (one or two degrees of freedom), so it borrows from
the same cell under the other configurations, in the manner of Smyth (2004, "Linear models and empirical Bayes
methods", Stat. Appl. Genet. Mol. Biol. 3:3). docs/evidence.md shows by simulation why each part is here.

What is borrowed must not come from an erratic configuration: one that scatters more than all others by far counts
for itself alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtri, gammaincinv

from cephfit.core.statistics.round_effects import Blocks, Booleans, Floats, RoundInformation, Shifts
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, Cell, LoadedCell


@dataclass(frozen=True, slots=True)
class Table:
    """A sweep's measurements as an array. J configurations, the default first; C cells; R rounds.

    Attributes:
        cells: those in which any of the configurations was measured, in the vocabulary's order.
        logs: of IOPS, shape (J, C, R); 0 where there is no value.
        present: where there is one, shape (J, C, R).
        blocks: of each cell.
    """

    cells: tuple[Cell | LoadedCell, ...]
    logs: Floats
    present: Booleans
    blocks: tuple[Blocks, ...]

    @classmethod
    def of(cls, baselines: Baselines, configurations: Sequence[str]) -> "Table":
        """Return the measurements in the 20 cells under the sweep's own load."""
        cells = tuple(c for c in CELLS if any((name, c) in baselines.cells for name in configurations))
        return cls._of(baselines.cells, configurations, cells)

    @classmethod
    def of_loaded(cls, baselines: Baselines, configurations: Sequence[str]) -> "Table":
        """Return the measurements in all sizes and under all loads (``Baselines.loaded``)."""
        return cls._of(baselines.loaded, configurations, sorted({cell for _, cell in baselines.loaded}))

    @classmethod
    def _of(
        cls, measured: Mapping[Any, Baseline], configurations: Sequence[str], cells: Sequence[Cell | LoadedCell]
    ) -> "Table":
        row = {name: j for j, name in enumerate(configurations)}
        column = {cell: c for c, cell in enumerate(cells)}
        of_rounds: dict[tuple[int, ...], list[tuple[int, int, tuple[float, ...]]]] = {}
        for (name, cell), found in measured.items():
            if name in row and cell in column:
                of_rounds.setdefault(found.rounds, []).append((row[name], column[cell], found.iops))
        place = {r: i for i, r in enumerate(sorted({r for rounds in of_rounds for r in rounds}))}
        iops = np.ones((len(configurations), len(cells), len(place)))
        present = np.zeros(iops.shape, dtype=np.bool_)
        for rounds, those in of_rounds.items():
            of_j, of_c, values = zip(*those, strict=True)
            at = np.ix_(range(len(those)), [place[r] for r in rounds])
            of_those = np.ones((len(those), len(place)))
            of_those[at] = values
            iops[of_j, of_c] = of_those
            present[of_j, of_c] = np.isin(range(len(place)), at[1])
        known: dict[bytes, Blocks] = {}
        for c in range(len(cells)):
            pattern = present[:, c].tobytes()
            if pattern not in known:
                known[pattern] = Blocks.of(present[:, c])
        blocks = tuple(known[present[:, c].tobytes()] for c in range(len(cells)))
        return cls(tuple(cells), np.log(iops), present, blocks)

    def mean_of(self, j: int, c: int) -> Floats:
        """The weights, shape (J, R), whose sum with a cell's log values is their mean under one configuration."""
        weights = np.zeros((self.present.shape[0], self.present.shape[2]))
        weights[j] = self.present[j, c] / max(1, int(self.present[j, c].sum()))
        return weights


PRIOR_DF = 4.0
"""Weight of a cell's pooled variance, in degrees of freedom, relative to a configuration's own variance."""
LARGEST_LOG = 700.0
"""Upper limit of half widths of log ratios; larger ones are infinite: a double overflows at exp(709.8)."""
_STEADY_DF = 10.0
"""Prior degrees of freedom for the assumption that a configuration is as steady as the others."""
_RESOLUTION = 1e-3
"""Lower limit of the standard deviation of log IOPS: fio counts whole I/Os over a time known
to the millisecond, so that repeats equal to the last digit do not mean that there is no noise."""
_ERRATIC_FACTOR = 4.0
"""Variance of an erratic configuration, as a multiple of the typical one, at least: twice the scatter. Below, its
effect on the pool of others is small, and leaving it out would cost degrees of freedom."""
_ERRATIC_ERROR = 1e-3
"""Probability at most of calling any configuration erratic if all are equally steady."""
_OUTLYING_ERROR = 1e-4
"""Probability of calling a place outlying if all of its cell scatter alike."""
_OUTLYING_SHARE, _OUTLYING_CELLS = 0.1, 3
"""A configuration is erratic if at least this share of its cells, and at least so many, are outlying."""
_MIN_CELLS_FOR_ROUNDS = 4
"""Repeated cells that are required to distinguish a round's shift from the noise of single cells."""


@dataclass(frozen=True)
class Spread:
    """Variances of the logarithm of one repeat's IOPS. J configurations (the default first), C cells.

    Attributes:
        n: repeats, shape (J, C); 0 where not measured.
        own: variance from the configuration's own repeats, shape (J, C).
        target: value towards which ``own`` is shrunk: the cell's pooled variance x the configuration's
            unsteadiness.
        moderated: mean of both, weighted by their degrees of freedom, shape (J, C).
        unsteadiness: variance of each configuration as a multiple of the pooled one, shape (J,).
        applied: variance between times that the same configuration was applied, common to all cells of a round.
            Of an erratic configuration, ``alone`` is added to it.
        applied_raw: the mean square from which it was estimated, 0 if ``applied`` is 0.
        applied_df: degrees of freedom of that mean square.
        notes: caveats for the reader.
        prior_df: weight of ``target`` in ``moderated``, in degrees of freedom.
        steady_df: prior degrees of freedom for an ``unsteadiness`` of 1.
        erratic: configurations that are not in the pooled variances, shape (J,); None: all are in them.
        alone: variance between applications of each erratic configuration, 0 for the others, shape (J,); None: 0.
        alone_raw: the mean squares from which it was estimated, shape (J,).
        alone_df: degrees of freedom of these, at least 1, shape (J,).
    """

    n: NDArray[np.int64]
    own: Floats
    target: Floats
    moderated: Floats
    unsteadiness: Floats
    applied: float
    applied_raw: float
    applied_df: int
    notes: tuple[str, ...] = ()
    prior_df: float = PRIOR_DF
    steady_df: float = _STEADY_DF
    erratic: Booleans | None = None
    alone: Floats | None = None
    alone_raw: Floats | None = None
    alone_df: Floats | None = None

    @property
    def pooled(self) -> Floats:
        """Variance of each cell over all configurations that are not erratic, shape (C,)."""
        return np.asarray(self.target[0] / self.unsteadiness[0])

    @cached_property
    def parts(self) -> "SpreadParts":
        """What ``variance_of`` derives from the repeats alone."""
        df = np.maximum(self.n - 1, 0).astype(np.float64)
        erratic = np.zeros(len(df), dtype=np.bool_) if self.erratic is None else self.erratic
        in_pool = _in_pool(self.n > 1, erratic)
        pool_share = df * in_pool / np.maximum((df * in_pool).sum(axis=0), 1)
        unsteadiness_df = np.maximum(df.sum(axis=1) + np.where(erratic, 0.0, self.steady_df), 1)
        return SpreadParts(df, pool_share, self.prior_df / (self.prior_df + df), unsteadiness_df)

    @cached_property
    def _added_uncertainty(self) -> tuple[Floats, Floats]:
        """What variances add to an uncertainty: each place's own one, shape (J, C), and all through the pool.

        The latter is for a weight of 1 on the pool of each cell, shape (C,).
        """
        of_own = self.moderated**2 / np.maximum(self.parts.df, 1)
        return of_own, (self.parts.pool_share**2 * of_own).sum(axis=0)

    def variance_of(self, weights: Floats, rows: NDArray[np.intp] | None = None) -> tuple[float, float]:
        """Variance of a weighted sum of log measurements, and its degrees of freedom.

        Args:
            weights: of all log measurements, shape (J, C, R); 0 where there is none.
            rows: the configurations that ``weights`` has, shape (K,), where it has the shape (K, C, R) because
                all other weights are 0.

        Returns:
            The variance, and Satterthwaite's degrees of freedom: 2 V^2 / Var(V), where V is a linear form of
            independent variances, each of which varies by 2 sigma^4 / df.
        """
        if rows is None:
            rows = np.flatnonzero(weights.any(axis=(1, 2)))
            weights = weights[rows]
        drawn, pool_share = self.parts.drawn[rows], self.parts.pool_share[rows]
        weight = (weights**2).sum(axis=2)
        of_applications = (weights.sum(axis=1) ** 2).sum(axis=1)
        together = float(of_applications.sum())
        variance = float((weight * self.moderated[rows]).sum()) + self.applied * together

        pooled_part = drawn * weight * self.target[rows]
        of_configuration = pooled_part.sum(axis=1) ** 2 / self.parts.unsteadiness_df[rows]
        uncertainty = float((pooled_part**2).sum()) / self.prior_df + float(of_configuration.sum())
        # Every variance counts through the pool of its cell; those of the rows also by themselves.
        through_pool = (drawn * weight * self.unsteadiness[rows, None]).sum(axis=0)
        of_own, of_pool = self._added_uncertainty
        own = (1 - drawn) * weight
        uncertainty += float((of_own[rows] * own * (own + 2 * through_pool * pool_share)).sum())
        uncertainty += float((of_pool * through_pool**2).sum())
        if self.applied_df:
            uncertainty += (self.applied_raw * together) ** 2 / self.applied_df
        if self.alone is not None and self.alone_raw is not None and self.alone_df is not None:
            variance += float((self.alone[rows] * of_applications).sum())
            uncertainty += float(((self.alone_raw[rows] * of_applications) ** 2 / self.alone_df[rows]).sum())
        return variance, max(1.0, variance**2 / uncertainty)


@dataclass(frozen=True, slots=True)
class SpreadParts:
    """Degrees of freedom of a spread, and the shares that follow from them.

    Attributes:
        df: of each place's own variance, shape (J, C).
        pool_share: each place's part of its cell's pooled variance, shape (J, C).
        drawn: part of ``target`` in the moderated variance, shape (J, C).
        unsteadiness_df: degrees of freedom of each configuration's unsteadiness, shape (J,).
    """

    df: Floats
    pool_share: Floats
    drawn: Floats
    unsteadiness_df: Floats


def spread_of(table: Table, *, prior_df: float = PRIOR_DF, with_shifts: bool = True) -> Spread | None:
    """Estimate the variances of a sweep's measurements; None if nothing was measured twice.

    Args:
        table: what was measured.
        with_shifts: eliminate the shift common to all cells of a round, and estimate that of one application of a
            configuration; else both stay in the variance of every cell.
        prior_df: weight of a cell's pooled variance, in degrees of freedom, relative to a configuration's own.
    """
    n = table.present.sum(axis=2)
    df = np.maximum(n - 1, 0)
    if not df.any():
        return None
    means = table.logs.sum(axis=2) / np.maximum(n, 1)
    residuals = np.where(table.present, table.logs - means[..., None], 0.0)
    erratic, pooled = _erratic_and_pooled(residuals, table.present)

    notes: list[str] = []
    applied = applied_raw = 0.0
    applied_df = 0
    alone = alone_raw = np.zeros(len(n))
    alone_df = np.ones(len(n))
    repeated = df.sum(axis=0) > 0
    if with_shifts and np.count_nonzero(repeated) >= _MIN_CELLS_FOR_ROUNDS:
        residuals, shifts, erratic, pooled = _without_rounds(residuals, table.present, erratic, pooled)
        applied, applied_raw, applied_df = shifts.applied(pooled)
        alone, alone_raw, alone_df = _alone(residuals, table.present, 1 / pooled, erratic)
    elif with_shifts:
        notes.append(
            f"fewer than {_MIN_CELLS_FOR_ROUNDS} cells were measured more than once: a shift common to all cells "
            "of a round could not be distinguished from noise"
        )
    once = [str(cell) for cell, measured in zip(table.cells, repeated, strict=True) if not measured]
    if once:
        notes.append(
            f"measured only once under every configuration: {', '.join(once)}; their spread is assumed to be that "
            "of the most unsteady cell"
        )

    squares = (residuals**2).sum(axis=2)
    own = squares / np.maximum(df, 1)
    own_df = df.sum(axis=1).astype(np.float64)
    excess = (squares / pooled).sum(axis=1)
    prior = np.where(erratic, 0.0, _STEADY_DF)  # an erratic configuration was shown not to be like the others
    unsteadiness = (excess + prior) / np.maximum(own_df + prior, 1)
    target = pooled * unsteadiness[:, None]
    moderated = (prior_df * target + df * own) / (prior_df + df)
    return Spread(
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
        erratic=erratic,
        alone=alone,
        alone_raw=alone_raw,
        alone_df=alone_df,
    )


def _without_rounds(
    residuals: Floats, present: Booleans, erratic: Booleans, pooled: Floats
) -> tuple[Floats, Shifts, Booleans, Floats]:
    """Eliminate the shifts of rounds, and judge again which configurations are erratic.

    Returns:
        The residuals without rounds, the shifts, the erratic configurations, and the pooled variances.
    """
    shifts = Shifts.of(residuals, present, 1 / pooled, erratic)
    within = shifts.without_rounds(residuals)
    # A configuration may be erratic only once rounds, which all share, are eliminated.
    found, pooled = _erratic_and_pooled(within, present)
    if (found != erratic).any():
        erratic = found
        shifts = Shifts.of(residuals, present, 1 / pooled, erratic)
        within = shifts.without_rounds(residuals)
        df = np.maximum(present.sum(axis=2) - 1, 0)
        pooled = _pooled((within**2).sum(axis=2), df, erratic)
    return within, shifts, erratic, pooled


def _in_pool(repeated: Booleans, erratic: Booleans) -> Booleans:
    """Which places count in their cell's pooled variance, shape (J, C): erratic ones only where no other is.

    Args:
        repeated: places that were measured more than once, shape (J, C).
        erratic: configurations, shape (J,).
    """
    steady = repeated & ~erratic[:, None]
    return np.asarray(np.where(steady.any(axis=0), steady, repeated))


def _pooled(squares: Floats, df: NDArray[np.int64], erratic: Booleans) -> Floats:
    """Variance per cell over all configurations that are not erratic, shape (C,).

    The largest of them where a cell has none.
    """
    counts = _in_pool(df > 0, erratic)
    total_df = (df * counts).sum(axis=0)
    pooled = (squares * counts).sum(axis=0) / np.maximum(total_df, 1)
    floored = np.maximum(pooled, _RESOLUTION**2)
    filled: Floats = np.where(total_df > 0, floored, floored[total_df > 0].max())
    return filled


def _erratic_and_pooled(residuals: Floats, present: Booleans) -> tuple[Booleans, Floats]:
    """Find configurations that scatter far more than the typical one; pool the variances of the others.

    The squares of a configuration, each over its cell's pooled variance, are split into what shifts of all cells
    of a round explain, and the rest: cells that an application shifts together say no more than one. Each part's
    mean square is compared with the median over configurations, which the erratic ones do not move as long as they
    are fewer than half. The median of a mean of d squares is below their expectation, by the factor
    median(chi2_d) / d. A configuration whose squares are large in some of its cells only is hidden in these means,
    because it is itself a part of the pools there: it is found by the number of its outlying cells. The most
    erratic ones are left out of the pool, then the next are judged. With fewer than three configurations, none is
    typical.

    Args:
        residuals: log values less the mean of their place, shape (J, C, R); 0 where there is none.
        present: where there is a value, shape (J, C, R).

    Returns:
        The erratic configurations, shape (J,), and the pooled variances of the others, shape (C,).
    """
    squares = (residuals**2).sum(axis=2)
    df = np.maximum(present.sum(axis=2) - 1, 0)
    own_df = df.sum(axis=1)
    n = int(np.count_nonzero(own_df))
    erratic = np.zeros(len(df), dtype=np.bool_)
    pooled = _pooled(squares, df, erratic)
    for _ in range((n - 1) // 2):
        information = RoundInformation.of(present, 1 / pooled)
        of_shifts = information.explained(np.einsum("c,jcr->jr", 1 / pooled, residuals))
        least = float((_RESOLUTION**2 / pooled).mean())
        shifts_df = information.rank.astype(np.float64)
        excess = np.maximum(
            _over_limit(of_shifts, shifts_df, n, least),
            _over_limit((squares / pooled).sum(axis=1) - of_shifts, own_df - shifts_df, n, least),
        )
        # Outside the pool even a steady configuration seems to scatter more: who is left out is not judged again.
        excess[erratic] = 0.0
        # A dominant one also hides which cells are steady: those far below it are judged without it.
        worst = (excess > 1) & (excess >= excess.max() / 10)
        worst |= _is_often_outlying(squares, df, erratic)
        if not worst.any() or np.count_nonzero(erratic | worst) > (n - 1) // 2:
            break
        erratic = erratic | worst
        pooled = _pooled(squares, df, erratic)
    return erratic, pooled


def _is_often_outlying(squares: Floats, df: NDArray[np.int64], erratic: Booleans) -> Booleans:
    """Find configurations that scatter far more than all others together in many of their cells, shape (J,).

    Args:
        squares: sums of squares of each place, shape (J, C).
        df: degrees of freedom of each, shape (J, C).
        erratic: configurations that are known to be, shape (J,); they are not judged.
    """
    held = df * ~erratic[:, None]
    counted = squares * (held > 0)
    others_df = held.sum(axis=0) - held
    others = np.maximum((counted.sum(axis=0) - counted) / np.maximum(others_df, 1), _RESOLUTION**2)
    is_judged = (held > 0) & (others_df > 0)
    limit = fdtri(np.maximum(held, 1), np.maximum(others_df, 1), 1 - _OUTLYING_ERROR)
    n_outlying = (is_judged & (counted / np.maximum(held, 1) > limit * others)).sum(axis=1)
    return np.asarray(n_outlying >= np.maximum(_OUTLYING_CELLS, _OUTLYING_SHARE * is_judged.sum(axis=1)))


def _over_limit(squares: Floats, df: Floats, n: int, least: float) -> Floats:
    """Mean squares of configurations over the limit for erratic ones, shape (J,); 0 without degrees of freedom.

    Args:
        squares: sums of squares, shape (J,).
        df: degrees of freedom of each, shape (J,).
        n: configurations that were measured more than once.
        least: mean square at least of a typical configuration: that of the instrument's resolution.
    """
    known = df > 0
    if np.count_nonzero(known) < 3:
        return np.zeros(len(df))
    held = np.maximum(df, 1)
    mean = squares / held
    typical = float(np.median((mean * held / (2 * gammaincinv(held / 2, 0.5)))[known]))
    limit = np.maximum(fdtri(held, np.maximum(df.sum() - df, 1), 1 - _ERRATIC_ERROR / (2 * n)), _ERRATIC_FACTOR)
    return np.where(known, mean / (limit * max(typical, least)), 0.0)


def _alone(
    residuals: Floats, present: Booleans, precision: Floats, erratic: Booleans
) -> tuple[Floats, Floats, Floats]:
    """Estimate the variance that the cells of one application share, for each erratic configuration by itself.

    As ``Shifts.applied``, from the few degrees of freedom of one configuration.

    Args:
        residuals: less the shifts of rounds, shape (J, C, R).
        present: shape (J, C, R).
        precision: weight of each cell, shape (C,).
        erratic: shape (J,).

    Returns:
        The variances, the mean squares from which they come, and the degrees of freedom of these, each of shape
        (J,); 0, 0 and 1 for configurations that are not erratic.
    """
    variance, raw, degrees = np.zeros(len(present)), np.zeros(len(present)), np.ones(len(present))
    squares = (residuals**2).sum(axis=2) / np.maximum(present.sum(axis=2) - 1, 1)
    for j in np.flatnonzero(erratic):
        own = RoundInformation.of(present[j], precision)
        explained = float(own.explained(precision @ residuals[j]))
        by_noise = float(own.trace_with(precision**2 * squares[j]))
        per_variance = float(own.trace)
        if own.rank and explained > by_noise:
            variance[j], raw[j] = (explained - by_noise) / per_variance, explained / per_variance
            degrees[j] = own.rank
    return variance, raw, degrees
