"""Measurements in rounds as randomised blocks: log value = configuration + round + noise. Pure.

Rounds are interleaved: each is one pass over all configurations, so that a slow hour hits all values of a round
alike. Configurations are therefore compared within rounds. With values missing (a repeat that failed, a race that
dropped somebody, trials that have rounds of their own) the least squares of a two-way layout do that, and bring in
whatever a third configuration tells about two that share few rounds (Scheffe 1959, The Analysis of Variance, 4.4).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cephfit.baseline import Baselines
from cephfit.cells import CELLS, Cell

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
