"""The single measurement that would reduce the probability of a wrong choice most: its expected value. Pure.

The choice is the configuration with the highest prediction. It is wrong if another one is really better by more
than a margin. Logs of true performance are normal around the predictions, with the covariance of
``JointPrediction.total``: scatter of the measurements, and the model's own error. A further measurement turns this
covariance T into T'. Seen from now, it moves the predictions by a normal amount with the covariance T - T'. The
probability of a wrong choice after it is the mean over these moves (expected value of sample information: Raiffa
and Schlaifer 1961, Applied Statistical Decision Theory, chapter 5).

Candidates are one more round of one cell under the default, the highest prediction and a rival; a cell that a rival
lacks; and a probe, which reduces the model's error too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import qmc

from cephfit.core.values.cells import Cell, LoadedCell
from cephfit.core.values.workload_clone import CLONE_ERROR
from cephfit.core.variance import Floats
from cephfit.mapper.joint_prediction import JointPrediction

MARGIN = 0.01
"""A choice is wrong if another configuration is better by more than this part: smaller differences do not matter."""
MOST_RIVALS = 5
"""Configurations that are compared with the highest prediction, the most likely ones first."""
LEAST_CHANCE = 0.001
"""A configuration that is less likely the best is no rival."""
LEAST_REDUCTION = 0.005
"""Smaller reductions of the probability of a wrong choice are no reason to measure."""
_LOG2_DRAWS = 13
_PROBE_REPEATS = 3


class Kind(StrEnum):
    """What a measurement is."""

    REPEAT = "repeat"
    """One more round of a cell that was measured."""
    CELL = "missing cell"
    """A cell that a configuration lacks."""
    PROBE = "probe"
    """Runs of a clone of the workload (``cephfit probe``)."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One possible measurement.

    Attributes:
        kind: what it is.
        configurations: on which it is made, the default first.
        cell: which cell; None for a probe.
        wrong: expected probability of a wrong choice after it, 0 to 1.
        loss: expected loss by the choice after it, as a part of the best performance.
    """

    kind: Kind
    configurations: tuple[str, ...]
    cell: Cell | LoadedCell | None
    wrong: float
    loss: float


@dataclass(frozen=True, slots=True)
class NextMeasurement:
    """What to measure next.

    Attributes:
        choice: the configuration with the highest prediction.
        rivals: those that may be the best instead, with the probability of each; the most likely one first.
        wrong: probability now that the choice is wrong.
        loss: expected loss by the choice now, as a part of the best performance.
        candidates: measurements, the most useful first.
    """

    choice: str
    rivals: tuple[tuple[str, float], ...]
    wrong: float
    loss: float
    candidates: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate | None:
        """The measurement to make; None if none is expected to change the answer."""
        found = self.candidates[0] if self.candidates else None
        return found if found is not None and self.wrong - found.wrong >= LEAST_REDUCTION else None


def next_measurement(
    joint: JointPrediction, *, with_probe: bool = True, clone_error: float = CLONE_ERROR, margin: float = MARGIN
) -> NextMeasurement:
    """Return the measurement that is expected to reduce the probability of a wrong choice most.

    Args:
        joint: predictions of a workload, with the model's error in ``joint.error``.
        with_probe: whether a clone can be run.
        clone_error: standard deviation of the log of the clone's relative performance over the workload's.
        margin: differences that do not matter, as a part of the performance.
    """
    logs, total = joint.logs(), joint.total()
    order = _contenders(logs, total)
    logs, total = logs[order], total[np.ix_(order, order)]
    now = wrong_choice(logs, total, np.zeros_like(total), margin)
    names = [joint.places[k].name for k in order]
    found = [_after(joint, order, logs, total, *asked, margin) for asked in _asked(joint, order)]
    if with_probe and len(order) > 1:
        found.append(_probed(joint, order, logs, total, clone_error, margin))
    found.sort(key=lambda c: (c.wrong, c.loss, str(c.cell), c.configurations))
    chances = best_chances(logs, total)
    rivals = sorted(zip(names[1:], chances[1:].tolist(), strict=True), key=lambda pair: -pair[1])
    return NextMeasurement(names[0], tuple(rivals), *now, tuple(found))


def best_chances(logs: Floats, total: Floats) -> Floats:
    """Return the probability of each configuration that it is really the best, shape (K,)."""
    n = len(logs)
    truth = logs + _normal(n)[:, n:] @ _root(total).T
    return np.asarray(np.bincount(truth.argmax(axis=1), minlength=n) / len(truth), dtype=np.float64)


def wrong_choice(logs: Floats, total: Floats, change: Floats, margin: float = MARGIN) -> tuple[float, float]:
    """Return the expected probability that the choice is wrong after a measurement, and the expected loss.

    Both are means over draws from a Sobol sequence, the same ones for every measurement.

    Args:
        logs: predictions, K of them.
        total: covariance of the true logs around them now, shape (K, K).
        change: covariance of the moves of the predictions by the measurement, shape (K, K); 0: nothing is measured.
        margin: differences that do not matter, as a part of the performance.
    """
    n = len(logs)
    draws = _normal(n)
    predicted = logs + draws[:, :n] @ _root(change).T
    truth = predicted + draws[:, n:] @ _root(total - change).T
    chosen = np.take_along_axis(truth, predicted.argmax(axis=1)[:, None], axis=1)[:, 0]
    behind = truth.max(axis=1) - chosen
    return float((behind > math.log1p(margin)).mean()), float(-np.expm1(-behind).mean())


@lru_cache(maxsize=8)
def _normal(n: int) -> Floats:
    """Return draws of 2 n independent standard normals, shape (draws, 2 n)."""
    uniform = qmc.Sobol(2 * n, seed=2017).random_base2(_LOG2_DRAWS)
    return np.asarray(ndtri(np.clip(uniform, 1e-12, 1 - 1e-12)), dtype=np.float64)


def _root(covariance: Floats) -> Floats:
    """Return a matrix whose product with its transpose is the covariance; negative eigenvalues count as 0."""
    values, vectors = np.linalg.eigh((covariance + covariance.T) / 2)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)), dtype=np.float64)


def _contenders(logs: Floats, total: Floats) -> list[int]:
    """Return the highest prediction and its rivals: the configurations that may be the best, the likeliest first.

    A rival's chance is judged against the highest prediction alone, which is exact for two.
    """
    first = int(logs.argmax())
    variance = np.maximum(np.diag(total) + total[first, first] - 2 * total[first], 0.0)
    distance = (logs[first] - logs) / np.sqrt(np.where(variance > 0, variance, np.inf))
    far = float(-ndtri(LEAST_CHANCE))
    rivals = [k for k in np.argsort(distance).tolist() if k != first and variance[k] > 0 and distance[k] < far]
    return [first, *rivals[:MOST_RIVALS]]


def _asked(joint: JointPrediction, order: Sequence[int]) -> list[tuple[Kind, int, tuple[int, ...]]]:
    """Return the possible rounds: kind, index of the cell, and the configurations as indices of ``places``."""
    found = []
    for k in order[1:]:
        together = tuple(sorted({0, order[0], k}))
        lacking = {i for j in together for i in joint.places[j].lacking}
        found += [(Kind.CELL, i, together) for i in lacking]
        found += [(Kind.REPEAT, i, together) for i in joint.measured_cells() if i not in lacking]
    return found


def _after(
    joint: JointPrediction,
    order: Sequence[int],
    logs: Floats,
    total: Floats,
    kind: Kind,
    cell: int,
    together: tuple[int, ...],
    margin: float,
) -> Candidate:
    """Return one more round of a cell as a candidate."""
    after = joint.total_after(cell, together)[np.ix_(order, order)]
    wrong, loss = wrong_choice(logs, total, _reduction(total, after), margin)
    return Candidate(kind, tuple(joint.places[k].name for k in together), joint.cells[cell], wrong, loss)


def _probed(
    joint: JointPrediction, order: Sequence[int], logs: Floats, total: Floats, clone_error: float, margin: float
) -> Candidate:
    """Return runs of a clone on the choice and its rivals, relative to the default, as a candidate."""
    from cephfit.core.values.workload_clone import MOST_CANDIDATES

    probed = [i for i, k in enumerate(order) if k != 0][: MOST_CANDIDATES - 1]
    scatter = 2 * float(np.median(joint.spread.moderated)) / _PROBE_REPEATS
    observed = total[:, probed]
    noise = (clone_error**2 + scatter) * np.eye(len(probed))
    change = observed @ np.linalg.solve(total[np.ix_(probed, probed)] + noise, observed.T)
    wrong, loss = wrong_choice(logs, total, change, margin)
    names = (joint.places[0].name, *(joint.places[order[i]].name for i in probed))
    return Candidate(Kind.PROBE, names, None, wrong, loss)


def _reduction(before: Floats, after: Floats) -> NDArray[np.float64]:
    """Return the part of a covariance that a measurement removes, without negative eigenvalues.

    These appear where the estimate is not the most precise one, and the measurement makes it less precise.
    """
    root = _root(before - after)
    return np.asarray(root @ root.T, dtype=np.float64)
