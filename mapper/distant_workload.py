"""Predictions for a workload whose storage is farther away than where it was measured. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cephfit.core.protocols import Predictor
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.prediction import PredictionSet
from cephfit.core.values.profile import Profile
from cephfit.core.variance import Floats
from cephfit.mapper.access_weights import AccessWeights
from cephfit.mapper.completed_rates import completed
from cephfit.mapper.contrasts import ranked
from cephfit.mapper.distance import Distance, DistantBaselines, baselines_at_distance
from cephfit.mapper.mix_predictor import Question, mean_rates


@dataclass(frozen=True, slots=True)
class DistantPrediction:
    """A prediction at a distance.

    Attributes:
        predictions: relative to the default at that distance = 100.
        distant: the rates there.
        profile: of the workload there: it waits longer.
        default_relative: performance of the default there, where its performance here = 100.
    """

    predictions: PredictionSet
    distant: DistantBaselines
    profile: Profile
    default_relative: float

    def of_here(self, configuration: str) -> float:
        """Return the performance of a configuration there, where the default here = 100; NaN if not predicted."""
        relative = {p.configuration: p.relative for p in self.predictions.predictions}
        return self.default_relative * relative.get(configuration, float("nan")) / 100

    def sentence(self) -> str:
        """Return what the distance costs, in words."""
        default = self.distant.baselines.default
        text = f"{self.distant.distance.text()}: {default} is at {self.default_relative:.3g} % of its speed here"
        if self.predictions.best == default:
            return text
        best = self.predictions.best
        return f"{text}; {best} is at {self.of_here(best):.3g} % of the speed of {default} here"

    def to_json(self) -> dict[str, Any]:
        """The prediction as JSON values, with the distance."""
        its = self.distant.distance
        return {
            **self.predictions.to_json(),
            "distance": {
                "added_one_way_ms": 1e3 * its.one_way_seconds,
                "rtt_per_access": its.rtt_per_access,
                "rtt_per_flush": its.rtt_per_flush,
                "bandwidth_mbit": None if np.isinf(its.nbytes_per_s) else its.nbytes_per_s * 8 / 1e6,
                "loss_pct": 100 * its.loss,
                "connections": its.connections,
                "tcp_window_nbytes": None if np.isinf(its.window_nbytes) else its.window_nbytes,
                "acknowledged_ms": None if its.acknowledged_seconds is None else 1e3 * its.acknowledged_seconds,
                "default_relative_to_here": self.default_relative,
            },
        }


def predicted_at_distance(
    model_predictor: Predictor, profile: Profile, near: Baselines, distance: Distance
) -> DistantPrediction:
    """Rank the configurations for a workload at a distance from baselines measured here.

    Args:
        model_predictor: with or without its own error.
        profile: of the workload here.
        near: rates here.
        distance: that is added.

    Raises:
        InputError: as ``baselines_at_distance`` and ``Predictor.predict``.
    """
    distant = baselines_at_distance(near, distance)
    moved = _waiting_longer(profile, near, distant.baselines)
    predictions = ranked(model_predictor, moved, distant.baselines)
    predictions = replace(predictions, notes=(*distant.notes, *predictions.notes))
    question = Question.of(model_predictor.name, profile, near)
    here, there = (
        mean_rates(_measured(question, baselines), near.default, question.mix.cells)
        for baselines in (near, distant.baselines)
    )
    default_relative = question.mix.added(here, there).relative
    return DistantPrediction(predictions, distant, moved, default_relative)


def _measured(question: Question, baselines: Baselines) -> Any:
    return completed(baselines).baselines.loaded if question.by_load else baselines.cells


def _waiting_longer(profile: Profile, near: Baselines, far: Baselines) -> Profile:
    """Return the profile with the waiting times of the default at the distance."""
    demands = profile.demands
    if not demands or not near.loaded or any(d.waiting_seconds is None for d in demands):
        return profile
    near, far = completed(near).baselines, completed(far).baselines
    measured = sorted(cell for name, cell in near.loaded if name == near.default)
    access = AccessWeights.of(demands, measured, profile.commits, where=near.source)
    here, there = (_seconds(access, its) for its in (near, far))
    growth = (there / here).tolist()
    longer = tuple(
        replace(d, waiting_seconds=d.waiting_seconds * g)
        for d, g in zip(demands, growth, strict=True)
        if d.waiting_seconds is not None
    )
    commits = profile.commits
    if commits is not None and commits.flush_waiting_seconds:
        grown = commits.flush_waiting_seconds * _growth_of_writes(profile, growth)
        commits = replace(commits, flush_waiting_seconds=grown)
    return replace(profile, demands=longer, commits=commits)


def _seconds(access: AccessWeights, baselines: Baselines) -> Floats:
    """Return the default's time per access of each demand."""
    rates = mean_rates(baselines.loaded, baselines.default, access.cells)
    return np.asarray(access.weights @ (1 / rates))


def _growth_of_writes(profile: Profile, growth: Sequence[float]) -> float:
    """Return the mean growth of the writes that flushes may follow, weighted by their number; 1 without writes."""
    writes = [
        (d.accesses, g)
        for d, g in zip(profile.demands or (), growth, strict=True)
        if d.pattern.op.value == "write" and d.is_sync is not False
    ]
    total = sum(n for n, _ in writes)
    return sum(n * g for n, g in writes) / total if total else 1.0
