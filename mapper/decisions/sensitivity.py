"""The sensitivity of a prediction: does the best change with what could as well have been taken or measured? Pure.

Three kinds of variations are predicted like the workload itself:

- **Thresholds** of randomness other than the profile's. A profile has the share of random accesses of each op at
  other thresholds, not that of each size or demand. So the change is spread evenly: of every kind of random
  accesses the same share becomes sequential, or the other way round, with its waiting time.
- **Phases** of the workload, each alone. A phase has counts by cell. The workload's demands are scaled by them: an
  access of a cell keeps its waiting time, depth and alignment. Idle time is divided by duration.
- **Kinds of accesses** that were measured, each left out, as if the sweep lacked it: neighbours stand in for it.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.protocols import Predictor
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import RANDOM_THRESHOLD_LBN, SIZE_BINS, Cell, LoadedCell, Op, Pattern
from cephfit.core.values.demand import Demand
from cephfit.core.values.prediction import PredictionSet
from cephfit.core.values.profile import Profile

_LEAST_CHANGE = 0.005
"""Smallest change of a share of random accesses that is predicted."""


class Varied(StrEnum):
    """What a variation changes."""

    THRESHOLD = "threshold"
    PHASE = "phase"
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class Variation:
    """A prediction under other assumptions.

    Attributes:
        varied: what was changed.
        name: threshold in LBN, number of the phase from 1 with its share of the accesses, or kind of accesses.
        predictions: None where none is possible.
        why: reason of that.
    """

    varied: Varied
    name: str
    predictions: PredictionSet | None
    why: str = ""

    def __str__(self) -> str:
        return f"{self.varied} {self.name}" if self.varied is not Varied.LEFT_OUT else f"{self.name} {self.varied}"


@dataclass(frozen=True, slots=True)
class Sensitivity:
    """A prediction, and its variations.

    Attributes:
        base: the prediction.
        variations: of it.
        notes: variations that the profile does not allow.
    """

    base: PredictionSet
    variations: tuple[Variation, ...]
    notes: tuple[str, ...] = ()

    @property
    def predicted(self) -> tuple[tuple[Variation, PredictionSet], ...]:
        """The variations with a prediction."""
        return tuple((v, v.predictions) for v in self.variations if v.predictions is not None)

    def answer(self) -> str:
        """Return in one sentence whether the best stays, and with what it does not."""
        best, found = self.base.best, self.predicted
        if not found:
            return f"Whether {best} stays the best under other assumptions is unknown: there is no variation"
        others: dict[str, list[str]] = {}
        for variation, predictions in found:
            if predictions.best != best:
                others.setdefault(predictions.best, []).append(str(variation))
        stays = sum(predictions.best == best for _, predictions in found)
        parts = [f"The best stays {best} in {stays} of {len(found)} variations"]
        for name, where in others.items():
            alike = f" (as good as {best})" if name in self.base.as_good else ""
            parts.append(f"{name}{alike} with {', '.join(where)}")
        return "; ".join(parts)

    def to_json(self) -> dict[str, Any]:
        """Return the variations as JSON values; null where there is no prediction."""
        return {
            "answer": self.answer(),
            "variations": [
                {
                    "varied": v.varied.value,
                    "name": v.name,
                    "best": None if v.predictions is None else v.predictions.best,
                    "worst": None if v.predictions is None else v.predictions.worst,
                    "relative": None
                    if v.predictions is None
                    else {p.configuration: p.relative for p in v.predictions.predictions},
                    "why_not": v.why or None,
                }
                for v in self.variations
            ],
            "notes": list(self.notes),
        }


def moved_most(base: PredictionSet, varied: PredictionSet) -> tuple[str, float, float]:
    """Return the configuration whose prediction changes most by factor, and its two predictions."""
    both = {p.configuration: p.relative for p in base.predictions}
    rows = [
        (p.configuration, both[p.configuration], p.relative) for p in varied.predictions if p.configuration in both
    ]
    return max(rows, key=lambda row: abs(math.log(row[2] / row[1])))


def sensitivity_of(
    model_predictor: Predictor, profile: Profile, baselines: Baselines, base: PredictionSet
) -> Sensitivity:
    """Predict all variations of a workload.

    Args:
        model_predictor: that made ``base``.
        profile: of the workload.
        baselines: of the configurations.
        base: the prediction.
    """
    notes = []
    thresholds, phases = list(at_other_thresholds(profile)), list(of_phases(profile))
    if not profile.description.get("random_by_threshold"):
        notes.append("the profile has no shares of random accesses at other thresholds")
    elif not thresholds:
        notes.append("no other threshold changes the share of random accesses")
    if len(phases) < 2:
        only = "the workload has a single phase"
        known = "behaviour" in profile.description
        notes.append(only if known else "the profile has no phases: add them with `--describe full`")
        phases = []
    found = [_variation(model_predictor, Varied.THRESHOLD, n, p, baselines) for n, p in thresholds]
    found += [_variation(model_predictor, Varied.PHASE, n, p, baselines) for n, p in phases]
    found += [
        _variation(model_predictor, Varied.LEFT_OUT, n, profile, b) for n, b in leaving_out(profile, baselines)
    ]
    return Sensitivity(base, tuple(found), tuple(notes))


def _variation(
    model_predictor: Predictor, varied: Varied, name: str, profile: Profile, baselines: Baselines
) -> Variation:
    try:
        return Variation(varied, name, model_predictor.predict(profile, baselines))
    except InputError as error:
        return Variation(varied, name, None, error.what)


def at_other_thresholds(profile: Profile) -> Iterator[tuple[str, Profile]]:
    """Yield the profile at the thresholds of its description that change a share of random accesses."""
    table: Mapping[str, Mapping[str, float]] = profile.description.get("random_by_threshold") or {}
    own = profile.description.get("random_threshold_lbn", RANDOM_THRESHOLD_LBN)
    before = {op: float(table.get(op.value, {}).get(str(own), profile.random[op])) for op in Op}
    last = before
    for threshold in sorted({int(t) for row in table.values() for t in row}):
        shares = {op: float(table.get(op.value, {}).get(str(threshold), before[op])) for op in Op}
        if threshold == own:
            last = before
        elif all(any(abs(shares[op] - other[op]) >= _LEAST_CHANGE for op in Op) for other in (before, last)):
            last = shares
            yield f"{threshold} LBN", _moved(profile, {op: _moves(before[op], shares[op]) for op in Op})


@dataclass(frozen=True, slots=True)
class _Moves:
    """The share of random accesses that becomes sequential, and the reverse; one of them is 0."""

    to_sequential: float
    to_random: float

    def share(self, random: float) -> float:
        return random * (1 - self.to_sequential) + (1 - random) * self.to_random


def _moves(before: float, after: float) -> _Moves:
    if after < before:
        return _Moves(1 - after / before, 0.0)
    return _Moves(0.0, (after - before) / (1 - before) if before < 1 else 0.0)


def _moved(profile: Profile, moves: Mapping[Op, _Moves]) -> Profile:
    by_bin = profile.random_by_bin
    demands = None
    if profile.demands is not None:
        demands = tuple(part for d in profile.demands for part in _divided(d, moves[d.pattern.op]))
    return replace(
        profile,
        random={op: moves[op].share(profile.random[op]) for op in Op},
        random_by_bin=None
        if by_bin is None
        else {op: {name: moves[op].share(share) for name, share in by_bin[op].items()} for op in Op},
        demands=demands,
    )


def _divided(demand: Demand, moves: _Moves) -> Iterator[Demand]:
    """Yield the part of a demand that keeps its pattern, and the part that changes it."""
    is_random = demand.pattern.is_random
    share = moves.to_sequential if is_random else moves.to_random
    other = Pattern.of(demand.pattern.op, is_random=not is_random)
    for part, pattern in ((1 - share, demand.pattern), (share, other)):
        if part * demand.accesses > 0:
            yield replace(_scaled(demand, part), pattern=pattern)


def _scaled(demand: Demand, factor: float) -> Demand:
    waiting = demand.waiting_seconds
    return replace(
        demand,
        accesses=demand.accesses * factor,
        waiting_seconds=None if waiting is None else waiting * factor,
    )


def of_phases(profile: Profile) -> Iterator[tuple[str, Profile]]:
    """Yield each phase of the profile's description alone; nothing for a profile of several disks."""
    phases = profile.description.get("behaviour", {}).get("phases", [])
    whole, duration = profile.cell_counts(), math.fsum(phase["seconds"] for phase in phases)
    for number, phase in enumerate(phases, start=1):
        counted = Profile(
            profile.name,
            {op: {b.name: int(phase["accesses"][op.value].get(b.name, 0)) for b in SIZE_BINS} for op in Op},
            {op: float(phase["random"][op.value]) for op in Op},
            {op: dict(phase["random_by_bin"][op.value]) for op in Op},
            alignment=profile.alignment,
        )
        if counted.n_accesses:
            share = phase["seconds"] / duration if duration else 0.0
            name = f"{number} ({100 * phase['share_of_accesses']:.0f} % of the accesses)"
            yield name, _with_demands_of(profile, counted, whole, share)


def _with_demands_of(profile: Profile, phase: Profile, whole: Mapping[Cell, float], duration: float) -> Profile:
    if profile.demands is None:
        return phase
    counts, demands = phase.cell_counts(), []
    for demand in profile.demands:
        cell = LoadedCell(math.ceil(demand.nbytes), demand.pattern).bin_cell
        factor = counts[cell] / whole[cell] if whole[cell] else 0.0
        if factor * demand.accesses > 0:
            demands.append(_scaled(demand, factor))
    if not demands:
        return phase
    commits = profile.commits
    writes = sum(profile.accesses[Op.WRITE].values())
    if commits is not None and writes:
        share = sum(phase.accesses[Op.WRITE].values()) / writes
        waiting = commits.flush_waiting_seconds
        commits = replace(
            commits,
            flushes=round(commits.flushes * share),
            flush_waiting_seconds=None if waiting is None else waiting * share,
            fua_writes=None if commits.fua_writes is None else round(commits.fua_writes * share),
            sync_writes=None if commits.sync_writes is None else round(commits.sync_writes * share),
        )
    idle = None if profile.idle_seconds is None else profile.idle_seconds * duration
    return replace(phase, demands=tuple(demands), idle_seconds=idle, commits=commits)


def leaving_out(profile: Profile, baselines: Baselines) -> Iterator[tuple[str, Baselines]]:
    """Yield the baselines without each kind of accesses whose op and kind of offsets the workload has."""
    patterns = {cell.pattern for cell, n in profile.cell_counts().items() if n > 0}
    patterns |= {demand.pattern for demand in profile.demands or ()}
    loaded = sorted(cell for name, cell in baselines.loaded if name == baselines.default)
    own = sorted(
        (cell for name, cell in baselines.cells if name == baselines.default),
        key=lambda cell: (cell.pattern.value, cell.size.benchmark_nbytes),
    )
    if loaded:
        for kind in loaded:
            if kind.pattern in patterns:
                plain = LoadedCell(kind.bin_cell.size.benchmark_nbytes, kind.pattern)
                yield str(kind), _without(baselines, kind, kind.bin_cell if kind == plain else None)
        return
    counts = profile.cell_counts()
    for cell in own:
        if counts[cell] > 0:
            yield str(cell), _without(baselines, None, cell)


def _without(baselines: Baselines, kind: LoadedCell | None, cell: Cell | None) -> Baselines:
    return replace(
        baselines,
        loaded={key: b for key, b in baselines.loaded.items() if key[1] != kind},
        cells={key: b for key, b in baselines.cells.items() if key[1] != cell},
    )
