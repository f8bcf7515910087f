"""What log values say about the effects of their rounds, once every place has a mean of its own. Pure.

A place is a configuration in a cell. With weights w of K places, the information matrix of R rounds is

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

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

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
        vectors: diag(d)^-1/2 U, shape (..., R, I) with I = min(K, R).
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
