"""The information on rounds by the plain formulas, with matrices of rounds: reference of ``RoundInformation``."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from cephfit.core.statistics import absolute_spread, round_effects, variance
from cephfit.core.statistics.round_effects import Blocks
from cephfit.core.statistics.variance import Table
from cephfit.core.values.cells import CELLS

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class PlainInformation:
    """The same as ``RoundInformation``, with matrices of shape (..., R, R) and their pseudo-inverses."""

    matrix: Floats
    present: NDArray[np.bool_]

    @classmethod
    def of(cls, present: NDArray[np.bool_], weights: Floats) -> "PlainInformation":
        held = present * np.broadcast_to(weights, present.shape[:-1])[..., None]
        shares = held / np.maximum(present.sum(axis=-1), 1)[..., None]
        crossed = np.swapaxes(shares, -1, -2) @ present.astype(np.float64)
        return cls(np.eye(present.shape[-1]) * held.sum(axis=-2)[..., None] - crossed, present)

    @property
    def inverse(self) -> Floats:
        return np.asarray(np.linalg.pinv(self.matrix, rcond=1e-9, hermitian=True))

    @property
    def rank(self) -> NDArray[np.int64]:
        return np.rint(np.trace(self.inverse @ self.matrix, axis1=-2, axis2=-1)).astype(np.int64)

    @property
    def trace(self) -> Floats:
        return np.asarray(np.trace(self.matrix, axis1=-2, axis2=-1))

    def solve(self, sums: Floats) -> Floats:
        return np.asarray(self.inverse @ sums)

    def explained(self, sums: Floats) -> Floats:
        return np.asarray(np.einsum("...r,...rs,...s->...", sums, self.inverse, sums))

    def trace_with(self, weights: Floats) -> Floats:
        other = PlainInformation.of(self.present, weights).matrix
        return np.asarray(np.trace(self.inverse @ other, axis1=-2, axis2=-1))

    def trace_with_squares(self, parts: "PlainInformation") -> float:
        return float(np.trace(self.inverse @ (parts.matrix @ parts.matrix).sum(axis=0)))

    def squares_of_rows(self) -> Floats:
        return np.asarray((self.matrix**2).sum(axis=-1))


@contextmanager
def with_plain_formulas() -> Iterator[None]:
    """Estimate variances by the plain formulas while the block runs."""
    with (
        patch.object(round_effects, "RoundInformation", PlainInformation),
        patch.object(variance, "RoundInformation", PlainInformation),
        patch.object(absolute_spread, "RoundInformation", PlainInformation),
    ):
        yield


def random_table(seed: int, missing: float, n_rounds: int, *, n_cells: int = 8, erratic: bool = False) -> Table:
    """Six configurations, with shifts of rounds and of applications.

    Args:
        missing: share of the values that are missing, at random.
        erratic: the last configuration scatters far more than the others.
    """
    rng = np.random.default_rng(seed)
    shape = 6, n_cells, n_rounds
    logs = rng.normal(0, 0.03, shape) + rng.normal(0, 0.05, (6, 1, n_rounds)) + rng.normal(0, 0.1, n_rounds)
    if erratic:
        logs[5] += rng.normal(0, 1.5, (n_cells, n_rounds)) + rng.normal(0, 1.5, n_rounds)
    present = rng.random(shape) >= missing
    blocks = tuple(Blocks.of(present[:, c]) for c in range(n_cells))
    return Table(CELLS[:n_cells], np.where(present, logs, 0.0), present, blocks)
