"""The single measurement that would reduce the probability of a wrong choice most: its expected value. Pure.

The choice is the configuration with the highest prediction. It is wrong if another one is really better by more
than a margin. Logs of true performance are normal around the predictions, with the covariance of
``JointPrediction.total``: scatter of the measurements, and the model's own error. A further measurement turns this
covariance T into T'. Seen from now, it moves the predictions by a normal amount with the covariance T - T'. The
probability of a wrong choice after it is the mean over these moves (expected value of sample information: Raiffa
and Schlaifer 1961, Applied Statistical Decision Theory, chapter 5).

Candidates are one more round of one cell under the default, the highest prediction and a rival; a cell that one of
them lacks; and a probe, which reduces the model's error too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

import numpy as np
from scipy.special import ndtri
from scipy.stats import qmc

from cephfit.core.statistics.round_effects import Floats
from cephfit.core.values.cells import Cell, LoadedCell
from cephfit.core.values.demand import CLONE_ERROR, MOST_CANDIDATES
from cephfit.mapper.models.joint_prediction import JointPrediction

MARGIN = 0.01
"""A choice is wrong if another configuration is better by more than this part."""
MOST_RIVALS = 5
"""Configurations that are compared with the highest prediction, the most likely ones first."""
LEAST_CHANCE = 0.001
"""A configuration that is less likely the best is no rival."""
LEAST_REDUCTION = 0.005
"""Smaller reductions of the probability of a wrong choice are no reason to measure."""
_LOG2_DRAWS = 13
_PRECISION = 0.005
"""Smaller differences between probabilities from this number of draws are not certain."""
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
        scatter_wrong: ``wrong`` if the model had no error.
    """

    kind: Kind
    configurations: tuple[str, ...]
    cell: Cell | LoadedCell | None
    wrong: float
    loss: float
    scatter_wrong: float


@dataclass(frozen=True, slots=True)
class NextMeasurement:
    """What to measure next.

    Attributes:
        choice: the configuration with the highest prediction.
        rivals: those that may be the best instead, with the probability of each; the most likely one first.
        wrong: probability now that the choice is wrong.
        loss: expected loss by the choice now, as a part of the best performance.
        scatter_wrong: ``wrong`` if the model had no error.
        candidates: measurements, the most useful first. Where they are equally useful within the precision of the
            draws, the order is that of ``scatter_wrong``.
    """

    choice: str
    rivals: tuple[tuple[str, float], ...]
    wrong: float
    loss: float
    scatter_wrong: float
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
    beliefs = _Posterior.of(joint, _contenders(logs, total), margin)
    found = [beliefs.after_round(*asked) for asked in _asked(joint, beliefs.order)]
    if with_probe and len(beliefs.order) > 1:
        found.append(beliefs.after_probe(clone_error))
    found.sort(key=lambda c: (round(c.wrong / _PRECISION), c.scatter_wrong, c.loss, str(c.cell), c.configurations))
    names = [joint.places[k].name for k in beliefs.order]
    chances = best_chances(beliefs.logs, beliefs.total)
    rivals = sorted(zip(names[1:], chances[1:].tolist(), strict=True), key=lambda pair: -pair[1])
    nothing = np.zeros_like(beliefs.total)
    return NextMeasurement(names[0], tuple(rivals), *beliefs.outcome(nothing, nothing), tuple(found))


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
        change: covariance of the moves of the predictions by the measurement, shape (K, K); 0: no measurement.
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


@dataclass(frozen=True, slots=True)
class _Posterior:
    """What is known of the true logs of K configurations.

    Attributes:
        joint: the predictions.
        order: of the configurations, as indices of ``joint.places``; the highest prediction first.
        logs: predictions, shape (K,).
        total: covariance of the true logs around them, shape (K, K).
        scatter: the same without the model's error.
        margin: differences that do not matter, as a part of the performance.
    """

    joint: JointPrediction
    order: list[int]
    logs: Floats
    total: Floats
    scatter: Floats
    margin: float

    @classmethod
    def of(cls, joint: JointPrediction, order: list[int], margin: float) -> "_Posterior":
        total = joint.total()[np.ix_(order, order)]
        scatter = total - np.diag(joint.model_variances()[order])
        return cls(joint, order, joint.logs()[order], total, scatter, margin)

    def outcome(self, change: Floats, scatter_change: Floats) -> tuple[float, float, float]:
        """Return ``wrong``, ``loss`` and ``scatter_wrong`` for the moves of the predictions by a measurement."""
        wrong, loss = wrong_choice(self.logs, self.total, change, self.margin)
        return wrong, loss, wrong_choice(self.logs, self.scatter, scatter_change, self.margin)[0]

    def after_round(self, kind: Kind, cell: int, together: tuple[int, ...]) -> Candidate:
        """Return one more round of a cell as a candidate."""
        after = self.joint.total_after(cell, together)[np.ix_(self.order, self.order)]
        change = _reduction(self.total, after)
        names = tuple(self.joint.places[k].name for k in together)
        return Candidate(kind, names, self.joint.cells[cell], *self.outcome(change, change))

    def after_probe(self, clone_error: float) -> Candidate:
        """Return runs of a clone on the choice and its rivals, relative to the default, as a candidate."""
        probed = [i for i, k in enumerate(self.order) if k != 0][: MOST_CANDIDATES - 1]
        own = 2 * float(np.median(self.joint.spread.moderated)) / _PROBE_REPEATS
        noise = (clone_error**2 + own) * np.eye(len(probed))

        def change(covariance: Floats) -> Floats:
            observed = covariance[:, probed]
            inside = covariance[np.ix_(probed, probed)] + noise
            return np.asarray(observed @ np.linalg.solve(inside, observed.T), dtype=np.float64)

        names = (self.joint.places[0].name, *(self.joint.places[self.order[i]].name for i in probed))
        return Candidate(Kind.PROBE, names, None, *self.outcome(change(self.total), change(self.scatter)))


def _reduction(before: Floats, after: Floats) -> Floats:
    """Return the part of a covariance that a measurement removes, without negative eigenvalues.

    These appear where the estimate is not the most precise one, and the measurement makes it less precise.
    """
    root = _root(before - after)
    return np.asarray(root @ root.T, dtype=np.float64)
