"""A workload whose storage is farther away than where it was measured: predictions, and advice with reasons. Pure.

``Advice`` has the configuration, reasons in measured cells, and what would change it. Reasons come from the cells
that move the prediction most, and from what the profile knows about the workload: small writes that it waits for,
flushes, and how many accesses it has outstanding.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cephfit.core.errors import InputError
from cephfit.core.protocols import Predictor
from cephfit.core.units import KIB, MIB, format_nbytes
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import Op
from cephfit.core.values.demand import Demand
from cephfit.core.values.fit import uncertain
from cephfit.core.values.prediction import Prediction, PredictionSet, Verdict
from cephfit.core.values.profile import Profile
from cephfit.core.values.supply import Estimate, Supply, rate_text
from cephfit.mapper.absolute_rates.supply import supply_or_reason
from cephfit.mapper.decisions.contrasts import ranked
from cephfit.mapper.decisions.sensitivity import sensitivity_of
from cephfit.mapper.extrapolation.distance import Distance, DistantBaselines, baselines_at_distance
from cephfit.mapper.models.completed_rates import completed
from cephfit.mapper.models.mixture import DemandMix
from cephfit.mapper.models.model_error import BETWEEN_TARGETS
from cephfit.mapper.models.question import Question, mean_rates


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
        """Return the prediction as JSON values, with the distance."""
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
    mix = DemandMix.of(profile, demands, measured, by_waiting=True, where=near.source)
    here, there = (mean_rates(its.loaded, near.default, mix.cells) for its in (near, far))
    waiting = mix.waiting_under(here, there).tolist()
    longer = tuple(replace(d, waiting_seconds=w) for d, w in zip(demands, waiting, strict=True))
    commits = profile.commits
    if commits is not None and commits.flush_waiting_seconds:  # now a part of that of the writes
        commits = replace(commits, flush_waiting_seconds=0.0)
    return replace(profile, demands=longer, commits=commits)


SMALL_NBYTES = 16 * KIB
"""Writes of up to this size are dominated by their latency."""
SCANNED_MS = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)
"""One-way distances at which another configuration may be the best."""
_REASONS = 3
_POINTS = 0.5
_NOTED_SHARE = 0.05
_EACH = 1.05
"""Fewer writes for each flush than this are one write."""


@dataclass(frozen=True, slots=True)
class Advice:
    """The advice for one workload on one target.

    Attributes:
        target: that was measured.
        predictions: at the network's distance.
        supply: accesses of the mix per second that the best configuration serves; None if unknown.
        reasons: sentences.
        changes: sentences on what would change the advice.
        certainty: one sentence.
    """

    target: str
    predictions: PredictionSet
    supply: Supply | None
    reasons: tuple[str, ...]
    changes: tuple[str, ...]
    certainty: str

    @property
    def best(self) -> str:
        return self.predictions.best

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "profile": self.predictions.profile,
            "best": self.best,
            "supply": None if self.supply is None else self.supply.own_depth.to_json(),
            "reasons": list(self.reasons),
            "changes": list(self.changes),
            "certainty": self.certainty,
            "notes": list(self.predictions.notes),
        }


def advised(
    model_predictor: Predictor, profile: Profile, baselines: Baselines, distance: Distance, *, target: str
) -> Advice:
    """Return the advice for a workload.

    Args:
        model_predictor: with its own error, for statements on a real workload.
        profile: of the workload where the baselines were measured.
        baselines: of one target.
        distance: that is added; without any delay, loss and limit: none.
        target: its name.

    Raises:
        InputError: as ``predicted_at_distance``.
    """
    reasons: list[str] = []
    there, moved = baselines, profile
    if distance == Distance():
        predictions = ranked(model_predictor, profile, baselines)
    else:
        found = predicted_at_distance(model_predictor, profile, baselines, distance)
        predictions, there, moved = found.predictions, found.distant.baselines, found.profile
        reasons.append(found.sentence())
    supplies = supply_or_reason(moved, there).supplies
    return Advice(
        target,
        predictions,
        next((s for s in supplies if s.configuration == predictions.best), None),
        (*reasons, *_of_cells(predictions), *_of_workload(moved, distance)),
        (*_other_distances(model_predictor, profile, baselines, distance, predictions.best),
         *_other_mixes(model_predictor, moved, there, predictions), *_as_good(predictions)),
        _certainty(predictions),
    )  # fmt: skip


def _prediction_of(predictions: PredictionSet, configuration: str) -> Prediction:
    return next(p for p in predictions.predictions if p.configuration == configuration)


def _of_cells(predictions: PredictionSet) -> list[str]:
    best = _prediction_of(predictions, predictions.best)
    moving = [r for r in best.reasons if abs(r.points) >= _POINTS][:_REASONS]
    if best.verdict is Verdict.DEFAULT:
        heaviest = sorted((r for r in best.reasons if r.weight >= _NOTED_SHARE), key=lambda r: -r.weight)[
            :_REASONS
        ]
        return [f"{100 * r.weight:.0f} % of the workload is {r.cell}" for r in heaviest]
    return [
        f"{r.cell} is {100 * r.weight:.0f} % of the workload, and {best.configuration} serves it at "
        f"{r.relative:,.0f} % of the default's rate ({r.points:+,.1f} points)"
        for r in moving
    ]


def _of_workload(profile: Profile, distance: Distance) -> list[str]:
    demands = profile.demands or ()
    total = math.fsum(_weight(d) for d in demands)
    if not total:
        return []
    small = [d for d in demands if d.pattern.op is Op.WRITE and d.nbytes <= SMALL_NBYTES and d.is_sync]
    reasons = []
    if (share := math.fsum(map(_weight, small)) / total) >= _NOTED_SHARE:
        text = (
            f"{100 * share:.0f} % of its waiting is for synchronous writes of up to {format_nbytes(SMALL_NBYTES)}"
        )
        cost = (
            ": each pays the whole round trip"
            if distance.rtt_seconds and distance.acknowledged_seconds is None
            else ""
        )
        reasons.append(text + cost)
    writes = math.fsum(d.accesses for d in demands if d.pattern.op is Op.WRITE)
    if profile.commits is not None and profile.commits.flushes and writes:
        per_flush = writes / profile.commits.flushes
        often = "after each write" if per_flush < _EACH else f"once per {per_flush:.3g} writes"
        reasons.append(f"it flushes {often}")
    if distance.rtt_seconds and (depth := _mean_depth(demands)) is not None:
        reasons.append(
            f"the mean number of its accesses outstanding is {depth:.2g}: that many share each round trip of "
            f"{1e3 * distance.rtt_seconds:g} ms"
        )
    if math.isfinite(distance.windows_nbytes_per_s):
        larger = math.fsum(_weight(d) for d in demands if d.nbytes > distance.window_nbytes) / total
        reasons.append(
            f"TCP windows of {format_nbytes(round(distance.window_nbytes))} let at most "
            f"{distance.windows_nbytes_per_s / MIB:.3g} MiB/s through; accesses above a window are "
            f"{100 * larger:.0f} % of its waiting"
        )
    return reasons


def _weight(demand: Demand) -> float:
    return demand.accesses if demand.waiting_seconds is None else demand.waiting_seconds


def _mean_depth(demands: Sequence[Demand]) -> float | None:
    known = [(d.depth, _weight(d)) for d in demands if d.depth is not None]
    total = math.fsum(weight for _, weight in known)
    return math.fsum(depth * weight for depth, weight in known) / total if total else None


def _other_distances(
    model_predictor: Predictor, profile: Profile, baselines: Baselines, distance: Distance, best: str
) -> list[str]:
    """Return the nearest smaller and the nearest larger distance at which another configuration is the best."""
    if len(baselines.configurations) == 1:
        return []

    def best_at(there: Distance) -> str:
        return predicted_at_distance(model_predictor, profile, baselines, there).predictions.best

    try:
        changes = list(_changes(distance, best, best_at))
    except InputError as error:
        return [f"whether another distance changes the best is unknown: {error.what}"]
    found = [f"at {ms:g} ms each way, {other} would be the best" for ms, other in changes]
    return found or [f"no distance up to {SCANNED_MS[-1]:g} ms each way changes the best configuration"]


def _changes(distance: Distance, now: str, best_at: Callable[[Distance], str]) -> Iterator[tuple[float, str]]:
    """Yield the nearest smaller and the nearest larger distance, ms each way, with another best, and that best.

    Args:
        distance: that is added.
        now: the best there.
        best_at: returns the best at another distance.
    """
    here = 1e3 * distance.one_way_seconds
    for scanned in ([ms for ms in reversed(SCANNED_MS) if ms < here], [ms for ms in SCANNED_MS if ms > here]):
        for ms in scanned:
            if (other := best_at(replace(distance, one_way_seconds=ms / 1e3))) != now:
                yield ms, other
                break


def _other_mixes(
    model_predictor: Predictor, profile: Profile, baselines: Baselines, predictions: PredictionSet
) -> list[str]:
    varied = sensitivity_of(model_predictor, profile, baselines, predictions)
    others = [(variation, its.best) for variation, its in varied.predicted if its.best != predictions.best]
    return [f"{variation}: {best} would be the best" for variation, best in others]


def _as_good(predictions: PredictionSet) -> list[str]:
    if not predictions.as_good:
        return []
    return [
        f"{', '.join(predictions.as_good)} may be as good: `cephfit map --next` names the measurement that decides"
    ]


def _certainty(predictions: PredictionSet) -> str:
    best = _prediction_of(predictions, predictions.best)
    level = f"{100 * predictions.confidence:g} %"
    if len(predictions.predictions) == 1:
        return "only the default was measured, so no configuration was compared with it"
    if best.verdict is Verdict.DEFAULT:
        unseen = (
            f"differences below {predictions.noise_floor:.1f} points cannot be seen with these samples"
            if math.isfinite(predictions.noise_floor)
            else "these samples show no difference, however large: measure more repeats"
        )
        return f"no configuration is distinguishably better than the default; {unseen}"
    gain = f"{best.relative - 100:+,.1f} % ({best.low - 100:+,.1f} to {best.high - 100:+,.1f}, {level})"
    if best.verdict is Verdict.BETTER:
        return f"sure that it is better than the default: {gain}"
    return f"{uncertain('better')}; {gain}"


def ratio_of_targets(
    own: Estimate, reference: Estimate, *, confidence: float, busy_share: float = 1.0
) -> Estimate:
    """Return how many times as fast a workload runs on one target as on another one.

    The two rates are measured separately, so the half log intervals add up as squares, with the error of taking
    them for the workload's speed.

    Args:
        own: accesses of the mix per second that the target serves.
        reference: the same of the other target.
        confidence: of both intervals, and of the result.
        busy_share: of the workload's time with I/O outstanding on the reference; the rest stays as it is.
    """

    def faster(log_ratio: float) -> float:
        time = busy_share * math.exp(-log_ratio) + 1 - busy_share
        return 1 / time if time else math.inf

    ratio = math.log(own.value / reference.value)
    error = BETWEEN_TARGETS.half_width(100.0, confidence, 0.0)
    down = math.hypot(_log(own.value, own.low), _log(reference.high, reference.value), error)
    up = math.hypot(_log(own.high, own.value), _log(reference.value, reference.low), error)
    return Estimate(faster(ratio), 0.0 if math.isinf(down) else faster(ratio - down), faster(ratio + up))


def _log(above: float, below: float) -> float:
    return math.log(above / below) if below else math.inf


def fastest(advices: Sequence[Advice]) -> tuple[Advice, tuple[str, ...]]:
    """Return the advice for the target that serves most of the mix, and other targets that may be as fast.

    Args:
        advices: of one workload, one for each target; targets without a known rate come last.
    """
    known = [(a, a.supply.own_depth) for a in advices if a.supply is not None]
    if not known:
        return advices[0], tuple(a.target for a in advices[1:])
    first, most = max(known, key=lambda one: one[1].value)
    slower = [
        a
        for a, own in known
        if a is not first and ratio_of_targets(own, most, confidence=a.predictions.confidence).high < 1
    ]
    return first, tuple(a.target for a in advices if a is not first and a not in slower)


def of_targets(advices: Sequence[Advice]) -> list[str]:
    """Return what each target serves of the mix, the most first, and why such a figure is a lower bound.

    Args:
        advices: of one workload, one for each target.
    """
    known = sorted(
        ((a.target, a.best, a.supply) for a in advices if a.supply is not None),
        key=lambda one: -one[2].own_depth.value,
    )
    sentences = [
        f"{target} serves {rate_text(supply.own_depth.value)} accesses of its mix per second with {best} "
        f"({_ends(supply.own_depth)})"
        for target, best, supply in known
    ]
    sentences += [f"what {a.target} serves of its mix is not known" for a in advices if a.supply is None]
    if bound := [target for target, _, supply in known if supply.is_bound]:
        sentences.append(
            f"more accesses were outstanding than measured on {', '.join(bound)}, or a load had a rate limit: "
            "these may serve more, and a load with a larger `iodepth` in the sweep decides"
        )
    return sentences


def _ends(found: Estimate) -> str:
    if not found.is_known:
        return "measured once, so without an interval"
    if math.isinf(found.high):
        return f"{rate_text(found.low)} or more"
    return f"{rate_text(found.low)} to {rate_text(found.high)}"


def other_targets(
    model_predictor: Predictor, profile: Profile, measured: Mapping[str, Baselines], distance: Distance, first: str
) -> list[str]:
    """Return the nearest smaller and larger distance at which another target serves most of the mix.

    Args:
        model_predictor: as in ``advised``.
        profile: of the workload where the baselines were measured.
        measured: baselines by target.
        distance: that is added.
        first: the target that serves most there.
    """

    def most_at(there: Distance) -> str:
        rates = {target: _served_at(model_predictor, profile, its, there) for target, its in measured.items()}
        most = max(rates, key=lambda target: rates[target])
        return first if rates[most] <= rates[first] else most

    try:
        changes = list(_changes(distance, first, most_at))
    except InputError as error:
        return [f"whether another target serves more at another distance is unknown: {error.what}"]
    found = [f"at {ms:g} ms each way, {other} would serve more than {first}" for ms, other in changes]
    return found or [f"no distance up to {SCANNED_MS[-1]:g} ms each way puts another target before {first}"]


def _served_at(model_predictor: Predictor, profile: Profile, near: Baselines, distance: Distance) -> float:
    """Return the accesses per second that the best configuration serves at a distance; 0 if unknown."""
    found = predicted_at_distance(model_predictor, profile, near, distance)
    supplies = supply_or_reason(found.profile, found.distant.baselines).supplies
    best = found.predictions.best
    return next((s.own_depth.value for s in supplies if s.configuration == best), 0.0)
