"""Variances of repeated measurements: rounds as randomised blocks, moderated over configurations. Pure.

Measurements in rounds as randomised blocks: log value = configuration + round + noise. Pure.

Rounds are interleaved: each is one pass over all configurations, so that a slow hour hits all values of a round
alike. Configurations are therefore compared within rounds. With values missing (a repeat that failed, a race that
dropped somebody, trials that have rounds of their own) the least squares of a two-way layout do that, and bring in
whatever a third configuration tells about two that share few rounds (Scheffe 1959, The Analysis of Variance, 4.4).

How unsteady the measurements of a sweep are: variances of log IOPS, moderated over configurations.

With two or three repeats a cell's own variance says little (one or two degrees of freedom), so it borrows from
the same cell under the other configurations, in the manner of Smyth (2004, "Linear models and empirical Bayes
methods", Stat. Appl. Genet. Mol. Biol. 3:3). docs/evidence.md shows by simulation why each part is here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import CELLS, Cell

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Blocks:
    """Which of J configurations have a value in which of R rounds, and what can be compared by that.

    Attributes:
        present: shape (J, R).
        information: of the configurations once the rounds are taken out, shape (J, J); singular.
        inverse: its pseudo-inverse: the covariance of the configurations' effects for a noise variance of 1.
    """

    present: Booleans
    information: Floats
    inverse: Floats

    @classmethod
    def of(cls, present: Booleans) -> "Blocks":
        held = present.astype(np.float64)
        information = np.diag(held.sum(axis=1)) - (held / np.maximum(held.sum(axis=0), 1)) @ held.T
        return cls(present, information, np.linalg.pinv(information, rcond=1e-9, hermitian=True))

    @property
    def whole(self) -> bool:
        """Whether all configurations that have values have them in the same rounds."""
        held = self.present[self.present.any(axis=1)]
        return bool(held[:, held.any(axis=0)].all())

    @property
    def df(self) -> int:
        """Degrees of freedom that are left for the noise."""
        rank = round(float(np.trace(self.inverse @ self.information)))
        return int(self.present.sum()) - int(self.present.any(axis=0).sum()) - rank

    def contrast(self, one: int, other: int) -> Floats | None:
        """The weights, shape (J, R), whose sum with the log values is the log of ``one`` over ``other``.

        The sum of their squares is the variance of that for a noise variance of 1. Where nothing is missing they
        are 1 / R for the one and -1 / R for the other. None where no chain of common rounds connects the two.
        """
        wanted = np.zeros(len(self.present))
        wanted[one] += 1
        wanted[other] -= 1
        solved = self.inverse @ wanted
        if np.abs(self.information @ solved - wanted).max() > 1e-6:
            return None
        return self._within(solved[:, None])

    def residuals(self, logs: Floats) -> Floats:
        """What configurations and rounds do not explain of log values, shape (J, R); 0 where there is none."""
        within = self._within(logs)
        effects = self.inverse @ within.sum(axis=1)
        return within - self._within(effects[:, None])

    def _within(self, values: Floats) -> Floats:
        """Values, shape (J, R) or (J, 1), less the mean of their round; 0 where there is none."""
        sums = np.where(self.present, values, 0.0).sum(axis=0)
        return np.where(self.present, values - sums / np.maximum(self.present.sum(axis=0), 1), 0.0)


@dataclass(frozen=True, slots=True)
class Table:
    """A sweep's measurements as an array. J configurations, the default first; C cells; R rounds.

    Attributes:
        cells: those in which any of the configurations was measured, in the vocabulary's order.
        logs: of IOPS, shape (J, C, R); 0 where there is no value.
        present: where there is one, shape (J, C, R).
        blocks: of each cell.
    """

    cells: tuple[Cell, ...]
    logs: Floats
    present: Booleans
    blocks: tuple[Blocks, ...]

    @classmethod
    def of(cls, baselines: Baselines, configurations: Sequence[str]) -> "Table":
        cells = tuple(c for c in CELLS if any((name, c) in baselines.cells for name in configurations))
        found = {
            (j, c): baseline
            for j, name in enumerate(configurations)
            for c, cell in enumerate(cells)
            if (baseline := baselines.cells.get((name, cell)))
        }
        rounds = {r: i for i, r in enumerate(sorted({r for b in found.values() for r in b.rounds}))}
        iops = np.ones((len(configurations), len(cells), len(rounds)))
        present = np.zeros(iops.shape, dtype=np.bool_)
        for (j, c), baseline in found.items():
            at = [rounds[r] for r in baseline.rounds]
            iops[j, c, at] = baseline.iops
            present[j, c, at] = True
        known: dict[bytes, Blocks] = {}
        for c in range(len(cells)):
            pattern = present[:, c].tobytes()
            if pattern not in known:
                known[pattern] = Blocks.of(present[:, c])
        blocks = tuple(known[present[:, c].tobytes()] for c in range(len(cells)))
        return cls(cells, np.log(iops), present, blocks)

    def mean_of(self, j: int, c: int) -> Floats:
        """The weights, shape (J, R), whose sum with a cell's log values is their mean under one configuration."""
        weights = np.zeros((self.present.shape[0], self.present.shape[2]))
        weights[j] = self.present[j, c] / max(1, int(self.present[j, c].sum()))
        return weights


PRIOR_DF = 4.0
"""Degrees of freedom that the pooled variance of a cell counts for beside a configuration's own."""
LARGEST_LOG = 700.0
"""Half widths of log ratios are cut here, or taken as infinite above it: a double overflows at exp(709.8)."""
_STEADY_DF = 10.0
"""Degrees of freedom with which a configuration is held to be as steady as the others, before its own are seen."""
_RESOLUTION = 1e-3
"""Standard deviation of log IOPS below which no measurement is believed: fio counts whole I/Os over a time known
to the millisecond, so that repeats equal to the last digit do not mean that there is no noise."""
_MIN_CELLS_FOR_ROUNDS = 4
"""Cells measured more than once that are needed to tell a round's own shift from the noise of single cells."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Variances of the logarithm of one repeat's IOPS. J configurations (the default first), C cells.

    Attributes:
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

    def variance_of(self, weights: Floats) -> tuple[float, float]:
        """Variance of a weighted sum of log measurements, and its degrees of freedom.

        Args:
            weights: of all log measurements, shape (J, C, R); 0 where there is none.

        Returns:
            The variance, and Satterthwaite's degrees of freedom: 2 V^2 / Var(V), where V is a linear form of
            independent variances, each of which varies by 2 sigma^4 / df.
        """
        df = np.maximum(self.n - 1, 0).astype(np.float64)
        pool_share = df / np.maximum(df.sum(axis=0), 1)
        drawn = self.prior_df / (self.prior_df + df)
        weight = (weights**2).sum(axis=2)
        together = float((weights.sum(axis=1) ** 2).sum())
        variance = float((weight * self.moderated).sum()) + self.applied * together

        pooled_part = drawn * weight * self.target
        of_configuration = pooled_part.sum(axis=1) ** 2 / (df.sum(axis=1) + self.steady_df)
        uncertainty = float((pooled_part**2).sum()) / self.prior_df + float(of_configuration.sum())
        through_pool = (drawn * weight * self.unsteadiness[:, None]).sum(axis=0)
        coefficient = (1 - drawn) * weight + through_pool * pool_share
        uncertainty += float(((coefficient * self.moderated) ** 2 / np.maximum(df, 1)).sum())
        if self.applied_df:
            uncertainty += (self.applied_raw * together) ** 2 / self.applied_df
        return variance, max(1.0, variance**2 / uncertainty)


def spread_of(table: Table, *, prior_df: float = PRIOR_DF, with_shifts: bool = True) -> Spread | None:
    """The spread of a sweep's measurements; None if nothing was measured twice.

    Args:
        table: what was measured.
        with_shifts: whether what all cells of a round share is taken out, and what all cells of an application
            share is told; without, both stay in the variance of every cell.
        prior_df: degrees of freedom that a cell's pooled variance counts for beside a configuration's own.
    """
    n = table.present.sum(axis=2)
    df = np.maximum(n - 1, 0)
    if not df.any():
        return None
    means = table.logs.sum(axis=2) / np.maximum(n, 1)
    residuals = np.where(table.present, table.logs - means[..., None], 0.0)
    pooled = _pooled((residuals**2).sum(axis=2), df)

    notes: list[str] = []
    applied = applied_raw = 0.0
    applied_df = 0
    repeated = df.sum(axis=0) > 0
    if with_shifts and np.count_nonzero(repeated) >= _MIN_CELLS_FOR_ROUNDS:
        shifts = _Shifts.of(residuals, table.present, 1 / pooled)
        residuals = shifts.without_rounds(residuals)
        pooled = _pooled((residuals**2).sum(axis=2), df)
        applied, applied_raw, applied_df = shifts.applied(pooled)
    elif with_shifts:
        notes.append(
            f"fewer than {_MIN_CELLS_FOR_ROUNDS} cells were measured more than once: a shift common to all cells "
            "of a round could not be distinguished from noise"
        )
    once = [str(cell) for cell, measured in zip(table.cells, repeated, strict=True) if not measured]
    if once:
        notes.append(
            f"measured only once under every configuration: {', '.join(once)}; their spread is taken to be that "
            "of the most unsteady cell"
        )

    squares = (residuals**2).sum(axis=2)
    own = squares / np.maximum(df, 1)
    own_df = df.sum(axis=1).astype(np.float64)
    excess = (squares / pooled).sum(axis=1)
    unsteadiness = (excess + _STEADY_DF) / (own_df + _STEADY_DF)
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
    )


def _pooled(squares: Floats, df: NDArray[np.int64]) -> Floats:
    """Variance per cell over all configurations, shape (C,); the largest of them where a cell has none."""
    total_df = df.sum(axis=0)
    pooled = squares.sum(axis=0) / np.maximum(total_df, 1)
    floored = np.maximum(pooled, _RESOLUTION**2)
    filled: Floats = np.where(total_df > 0, floored, floored[total_df > 0].max())
    return filled


@dataclass(frozen=True, slots=True)
class _Shifts:
    """What all cells share: of a round, and of one configuration in one round.

    Rounds are interleaved, so a round's shift (a slower hour) is in every configuration alike and cancels in every
    comparison. What belongs to one configuration in one round (a restart with another layout of caches) does not
    cancel, and does not average out over cells either.

    The model is residual = round + application + noise, each cell weighted by its precision. Every (configuration,
    cell) has a mean of its own, of the rounds that it has: with some missing, the means of two cells are not those
    of the same rounds, and the information matrices below know that. Where nothing is missing all this comes down
    to the weighted mean of each application over its cells, less that of its round.

    Attributes:
        present: shape (J, C, R).
        precision: of each cell, shape (C,).
        own: information on the applications of each configuration, shape (J, R, R).
        pull: the weighted sum of residuals of each application, shape (J, R).
        common: pseudo-inverse of the information on rounds, shape (R, R); all 0 where rounds are left in.
        common_df: its rank.
    """

    present: Booleans
    precision: Floats
    own: Floats
    pull: Floats
    common: Floats
    common_df: int

    @classmethod
    def of(cls, residuals: Floats, present: Booleans, precision: Floats) -> "_Shifts":
        own = _information(present, precision)
        pull = np.einsum("c,jcr->jr", precision, residuals)
        rounds = own.sum(axis=0)
        common, rank = _inverse(rounds)
        df = int(np.maximum(present.sum(axis=2) - 1, 0).sum())
        # Two configurations share half of every shift of their own: there, a round's shift cannot be taken out.
        if len(present) < 3 or df < 2 * rank:
            common, rank = np.zeros_like(rounds), 0
        return cls(present, precision, own, pull, common, rank)

    def without_rounds(self, residuals: Floats) -> Floats:
        """The residuals less what is common to a round, and as large again as they were for what that took."""
        rounds = np.where(self.present, self.common @ self.pull.sum(axis=0), 0.0)
        n = self.present.sum(axis=2)
        rounds -= np.where(self.present, (rounds.sum(axis=2) / np.maximum(n, 1))[..., None], 0.0)
        df = int(np.maximum(n - 1, 0).sum())
        return np.asarray((residuals - rounds) * (df / (df - self.common_df)) ** 0.5)

    def applied(self, variance: Floats) -> tuple[float, float, int]:
        """The variance that the cells of one application have in common.

        By the method of moments (Henderson's third): the sum of squares that applications explain beyond rounds,
        less what it would be by the cells' own noise, over what a variance of 1 would add to it.

        Args:
            variance: of the noise of each cell, shape (C,).

        Returns:
            The variance; the mean square it comes from (0 when the variance is 0) and its degrees of freedom.
        """
        noise = _information(self.present, self.precision**2 * variance)
        total = self.pull.sum(axis=0)
        explained = -float(total @ self.common @ total)
        by_noise = -float(np.trace(self.common @ noise.sum(axis=0)))
        per_variance = float(np.trace(self.own, axis1=1, axis2=2).sum())
        per_variance -= float(np.trace(self.common @ (self.own @ self.own).sum(axis=0)))
        df = -self.common_df
        for j, information in enumerate(self.own):
            at = np.flatnonzero(np.diag(information))
            inverse, rank = _inverse(information[np.ix_(at, at)])
            explained += float(self.pull[j, at] @ inverse @ self.pull[j, at])
            by_noise += float(np.trace(inverse @ noise[j][np.ix_(at, at)]))
            df += rank
        if df < 1 or explained <= by_noise:
            return 0.0, 0.0, max(0, df)
        return (explained - by_noise) / per_variance, explained / per_variance, df


def _information(present: Booleans, weights: Floats) -> Floats:
    """Of each configuration on its rounds, shape (J, R, R), once every cell's own mean is taken out."""
    held = present * weights[:, None]
    shares = held / np.maximum(present.sum(axis=2), 1)[..., None]
    crossed = np.swapaxes(shares, 1, 2) @ present.astype(np.float64)
    diagonal = np.eye(present.shape[2]) * held.sum(axis=1)[:, None, :]
    return np.asarray(diagonal - crossed)


def _inverse(information: Floats) -> tuple[Floats, int]:
    """The pseudo-inverse and the rank."""
    inverse: Floats = np.asarray(np.linalg.pinv(information, rcond=1e-9, hermitian=True), dtype=np.float64)
    return inverse, round(float(np.trace(inverse @ information)))
