"""Rounds as blocks: which comparisons they allow, and what log values say about their effects. Pure.

In ``RoundInformation``, every place has a mean of its own. A place is a configuration in a cell. With weights w of
K places, the information matrix of R rounds is

    L = diag(d) - P' diag(w / n) P,

where P, of shape (K, R), is 1 where a place has a value, n counts the values of each place, and d = P' w. L is
singular: a constant added to all rounds of connected places is part of their means.

A run may have thousands of rounds, and eigenvectors of L take the third power of their number. The rank of what is
subtracted is at most K. So L is not computed. With A = diag(d)^-1/2 P' diag(w / n)^1/2, of shape (R, K), and its
thin singular value decomposition A = U diag(s) V',

    L = diag(d)^1/2 (I - A A') diag(d)^1/2,    (I - A A')^+ = I + U diag(g) U',

where g = s^2 / (1 - s^2), and -1 where s = 1. The time is proportional to R for a given K, and to K for a given R.

G = diag(d)^-1/2 (I - A A')^+ diag(d)^-1/2 is a generalised inverse of L. It is not the pseudo-inverse, but gives
the same quadratic forms and traces with vectors and matrices in the range of L (Harville 1997, Matrix Algebra From
a Statistician's Perspective, 9.4). Sums of residuals, and information on parts of the places, are in that range.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Booleans = NDArray[np.bool_]

_SINGULAR = 1e-9
"""Eigenvalues of I - A A', which are 0 to 1, are 0 below this."""


@dataclass(frozen=True, slots=True)
class RoundInformation:
    """The information of K places on R rounds, for one or for several groups of places ("...").

    Attributes:
        held: 1 where a place has a value, else 0; shape (..., K, R).
        weights: of the places, shape (..., K).
        of_rounds: summed weights of the values of each round, shape (..., R).
        inverse_of_rounds: 1 over them; 0 where a round has no value.
        vectors: diag(d)^-1/2 U, shape (..., R, I) with I = min(K, R), or 1 if no value is missing.
        gains: g, shape (..., I).
    """

    held: Floats
    weights: Floats
    of_rounds: Floats
    inverse_of_rounds: Floats
    vectors: Floats
    gains: Floats

    @classmethod
    def of(cls, present: NDArray[np.bool_], weights: Floats) -> "RoundInformation":
        """Return the information.

        Args:
            present: where a place has a value, shape (..., K, R).
            weights: of the places, shape (..., K) or (K,), at least 0.
        """
        held = present.astype(np.float64)
        weights = np.broadcast_to(weights, held.shape[:-1])
        of_rounds = (held * weights[..., None]).sum(axis=-2)
        inverse = np.divide(1.0, of_rounds, out=np.zeros_like(of_rounds), where=of_rounds > 0)
        scale = np.sqrt(inverse)[..., None]
        n_rounds = held.shape[-1]
        if n_rounds and np.isin(np.count_nonzero(present, axis=-1), (0, n_rounds)).all():
            # Nothing is missing: the only singular value is 1, and its vector is the same in all rounds.
            return cls(held, weights, of_rounds, inverse, scale / n_rounds**0.5, -1.0 * (of_rounds[..., :1] > 0))
        shares = np.sqrt(_shares(held, weights))[..., None]
        u, s, _ = np.linalg.svd(scale * np.swapaxes(held * shares, -1, -2), full_matrices=False)
        kept = 1 - s**2
        gains = np.divide(s**2, kept, out=np.full_like(kept, -1.0), where=kept > _SINGULAR)
        return cls(held, weights, of_rounds, inverse, scale * u, gains)

    @property
    def rank(self) -> NDArray[np.int64]:
        """Of the matrix of each group, shape (...): rounds with values, minus connected sets of rounds."""
        n_rounds = np.count_nonzero(self.of_rounds > 0, axis=-1)
        return np.asarray(n_rounds - np.count_nonzero(self.gains == -1.0, axis=-1))

    @property
    def trace(self) -> Floats:
        """Of the matrix of each group, shape (...)."""
        measured = self.held.any(axis=-1)
        return np.asarray(self.of_rounds.sum(axis=-1) - (self.weights * measured).sum(axis=-1))

    def solve(self, sums: Floats) -> Floats:
        """Return the pseudo-inverse times weighted sums of residuals of each round, shape (R,); one group only."""
        effects = sums * self.inverse_of_rounds + self.vectors @ (self.gains * (sums @ self.vectors))
        # Effects are known up to a constant in each connected set of rounds: the smallest squares are chosen.
        constants, _ = np.linalg.qr(self.vectors[:, self.gains == -1.0])
        return np.asarray(effects - constants @ (constants.T @ effects))

    def explained(self, sums: Floats) -> Floats:
        """Return the weighted sum of squares that rounds explain, shape (...): the quadratic form of the inverse.

        Args:
            sums: weighted sums of the residuals of each round, shape (..., R).
        """
        along = np.einsum("...ri,...r->...i", self.vectors, sums)
        return np.asarray((sums**2 * self.inverse_of_rounds).sum(axis=-1) + (self.gains * along**2).sum(axis=-1))

    def trace_with(self, weights: Floats) -> Floats:
        """Return the trace of the inverse times the information of the same places at other weights, shape (...).

        Args:
            weights: shape (..., K) or (K,), at least 0.
        """
        of_rounds = np.einsum("...kr,...k->...r", self.held, np.broadcast_to(weights, self.weights.shape))
        shares = _shares(self.held, weights)
        found = (of_rounds * self.inverse_of_rounds).sum(axis=-1)
        found -= (shares * np.einsum("...kr,...r->...k", self.held, self.inverse_of_rounds)).sum(axis=-1)
        along = np.einsum("...ri,...r->...i", self.vectors**2, of_rounds)
        along -= (shares[..., None] * (self.held @ self.vectors) ** 2).sum(axis=-2)
        return np.asarray(found + (self.gains * along).sum(axis=-1))

    def trace_with_squares(self, parts: "RoundInformation") -> float:
        """Return the trace of the inverse times the sum of the squared matrices of ``parts``; one group only.

        Args:
            parts: groups of places of the same rounds, all of which are among those of this one.
        """
        found = float((parts.squares_of_rows() * self.inverse_of_rounds).sum())
        shares = _shares(parts.held, parts.weights)[..., None]
        through = np.swapaxes(parts.held, -1, -2) @ (shares * (parts.held @ self.vectors))
        products = parts.of_rounds[..., None] * self.vectors - through
        return found + float((self.gains * products**2).sum())

    def squares_of_rows(self) -> Floats:
        """Return the sum of the squares of each row of the matrix, shape (..., R)."""
        shared = _shares(self.held, self.weights)[..., None] * self.held
        n_places, n_rounds = self.held.shape[-2:]
        if n_places >= n_rounds:
            matrix = np.eye(n_rounds) * self.of_rounds[..., None] - np.swapaxes(self.held, -1, -2) @ shared
            return np.asarray((matrix**2).sum(axis=-1))
        common = self.held @ np.swapaxes(self.held, -1, -2)  # number of rounds that two places share
        crossed = (shared * (common @ shared)).sum(axis=-2)
        return np.asarray(self.of_rounds**2 - 2 * self.of_rounds * shared.sum(axis=-2) + crossed)


def _shares(held: Floats, weights: Floats) -> Floats:
    """Return the weight of each place over its number of values, shape (..., K); 0 without a value."""
    n = held.sum(axis=-1)
    return np.asarray(np.where(n > 0, weights / np.maximum(n, 1), 0.0))


@dataclass(frozen=True, slots=True)
class Blocks:
    """Which of J configurations have a value in which of R rounds, and which comparisons that allows.

    Attributes:
        present: shape (J, R).
        information: matrix of the configurations after eliminating the rounds, shape (J, J); singular.
        inverse: its pseudo-inverse: the covariance of the configurations' effects for a noise variance of 1.
        whole: whether all configurations that have values have them in the same rounds.
    """

    present: Booleans
    information: Floats
    inverse: Floats
    whole: bool

    @classmethod
    def of(cls, present: Booleans) -> "Blocks":
        """Return the blocks; those of the same values are computed once, because a design compares many pairs."""
        return _blocks_of(present.tobytes(), present.shape)

    @property
    def df(self) -> int:
        """Residual degrees of freedom."""
        rank = round(float(np.trace(self.inverse @ self.information)))
        return int(self.present.sum()) - int(self.present.any(axis=0).sum()) - rank

    def contrast(self, one: int, other: int) -> Floats | None:
        """Return the weights, shape (J, R), whose sum with the log values is the log of ``one`` over ``other``.

        The sum of their squares is the variance of that for a noise variance of 1. Where nothing is missing they
        are 1 / R for the one and -1 / R for the other. None where no chain of common rounds connects the two.
        """
        if self.whole and self.present[[one, other]].any(axis=1).all():
            held = self.present[one]
            weights = np.zeros(self.present.shape)
            weights[one] += held / held.sum()
            weights[other] -= held / held.sum()
            return weights
        unit = np.zeros(len(self.present))
        unit[one] += 1
        unit[other] -= 1
        solved = self.inverse @ unit
        if np.abs(self.information @ solved - unit).max() > 1e-6:
            return None
        return self._within(solved[:, None])

    def residuals(self, logs: Floats) -> Floats:
        """Residuals of log values after configurations and rounds, shape (J, R); 0 where a value is missing."""
        within = self._within(logs)
        return within - self._within(self.effects(logs)[:, None])

    def effects(self, logs: Floats) -> Floats:
        """Effects of the configurations on log values, up to a constant, shape (J,).

        The difference of two is their ``contrast``; it means nothing where that is None.
        """
        return np.asarray(self.inverse @ self._within(logs).sum(axis=1))

    def _within(self, values: Floats) -> Floats:
        """Values, shape (J, R) or (J, 1), less the mean of their round; 0 where one is missing."""
        sums = np.where(self.present, values, 0.0).sum(axis=0)
        return np.where(self.present, values - sums / np.maximum(self.present.sum(axis=0), 1), 0.0)


@lru_cache(maxsize=256)
def _blocks_of(values: bytes, shape: tuple[int, ...]) -> Blocks:
    present = np.frombuffer(values, dtype=np.bool_).reshape(shape)
    held = present.astype(np.float64)
    counts = held.sum(axis=1)
    if counts.all() and (present == present[0]).all():
        # Nothing is missing: the matrices of such blocks are known.
        centred = np.eye(len(held)) - 1 / len(held)
        return Blocks(present, counts[0] * centred, centred / counts[0], whole=True)
    information = np.diag(held.sum(axis=1)) - (held / np.maximum(held.sum(axis=0), 1)) @ held.T
    inverse = np.linalg.pinv(information, rcond=1e-9, hermitian=True)
    measured = present[present.any(axis=1)]
    return Blocks(present, information, inverse, whole=bool(measured[:, measured.any(axis=0)].all()))


@dataclass(frozen=True, slots=True)
class Shifts:
    """Shifts that all cells share: of a round, and of one configuration in one round.

    Rounds are interleaved, so a round's shift (a slower hour) is equal in every configuration and cancels in every
    comparison. A shift of one configuration in one round (a restart with another layout of caches) neither cancels
    nor averages out over cells.

    The model is residual = round + application + noise, each cell weighted by its precision. Every (configuration,
    cell) has a separate mean over its rounds. If values are missing, the means of two cells are over different
    rounds; ``RoundInformation`` accounts for that. If nothing is missing, the estimate is the weighted
    mean of each application over its cells, less the mean of its round.

    Erratic configurations show nothing of either: they are left out of the estimates.

    Attributes:
        present: shape (J, C, R).
        steady: the same without erratic configurations, shape (J, C, R).
        precision: of each cell, shape (C,).
        own: information on the applications of each configuration; 0 for erratic ones.
        pull: the weighted sum of residuals of each application, shape (J, R).
        common: information on rounds of all places together; None where rounds are left in.
    """

    present: Booleans
    steady: Booleans
    precision: Floats
    own: RoundInformation
    pull: Floats
    common: RoundInformation | None

    @classmethod
    def of(cls, residuals: Floats, present: Booleans, precision: Floats, erratic: Booleans) -> "Shifts":
        steady = present & ~erratic[:, None, None]
        own = RoundInformation.of(steady, precision)
        pull = np.einsum("c,jcr->jr", precision, np.where(steady, residuals, 0.0))
        common = RoundInformation.of(steady.reshape(-1, steady.shape[2]), np.tile(precision, len(steady)))
        df = int(np.maximum(steady.sum(axis=2) - 1, 0).sum())
        # With two configurations, half of each individual shift is common: a round's shift cannot be eliminated.
        is_known = np.count_nonzero(~erratic) >= 3 and df >= 2 * common.rank
        return cls(present, steady, precision, own, pull, common if is_known else None)

    @property
    def common_df(self) -> int:
        """Degrees of freedom of the shifts of rounds; 0 where rounds are left in."""
        return int(self.common.rank) if self.common else 0

    def without_rounds(self, residuals: Floats) -> Floats:
        """The residuals less the shift of their round, rescaled for the degrees of freedom that this removed."""
        if self.common is None:
            return residuals
        rounds = np.where(self.present, self.common.solve(self.pull.sum(axis=0)), 0.0)
        n = self.present.sum(axis=2)
        rounds -= np.where(self.present, (rounds.sum(axis=2) / np.maximum(n, 1))[..., None], 0.0)
        df = int(np.maximum(self.steady.sum(axis=2) - 1, 0).sum())
        return np.asarray((residuals - rounds) * (df / (df - self.common_df)) ** 0.5)

    def applied(self, variance: Floats) -> tuple[float, float, int]:
        """Estimate the variance that the cells of one application share.

        By the method of moments (Henderson's third): the sum of squares that applications explain beyond rounds,
        less what it would be by the cells' own noise, over what a variance of 1 would add to it.

        Args:
            variance: of the noise of each cell, shape (C,).

        Returns:
            The variance; the mean square it comes from (0 when the variance is 0) and its degrees of freedom.
        """
        noise = self.precision**2 * variance
        explained = float(self.own.explained(self.pull).sum())
        by_noise = float(self.own.trace_with(noise).sum())
        per_variance = float(self.own.trace.sum())
        if self.common is not None:
            explained -= float(self.common.explained(self.pull.sum(axis=0)))
            by_noise -= float(self.common.trace_with(np.tile(noise, len(self.pull))))
            per_variance -= self.common.trace_with_squares(self.own)
        df = int(self.own.rank.sum()) - self.common_df
        if df < 1 or explained <= by_noise:
            return 0.0, 0.0, max(0, df)
        return (explained - by_noise) / per_variance, explained / per_variance, df
