"""When repeats are enough: which cells of which configurations are measured no more, decided between rounds.

A decision after n rounds depends on the sweep, the goal and the samples of these n rounds alone, whatever else is
in the store already: a sweep that was killed decides again as it did.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cephfit.baseline import Baselines
from cephfit.cells import Cell
from cephfit.configuration import DEFAULT_CONFIGURATION
from cephfit.results.baselines import baselines_of
from cephfit.sample import OWN_LOAD, Sample
from cephfit.sweep.goal import Goal, cell_profile
from cephfit.sweep.model import Sweep
from cephfit.sweep.racing.contest import Contest, Look
from cephfit.sweep.racing.precision import half_widths
from cephfit.sweep.stopping import RaceFor

Place = tuple[str, Cell]
"""A cell of a configuration."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a cell of a configuration is measured no more.

    Attributes:
        after: rounds that it was measured in.
        reason: one sentence.
    """

    after: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decided:
    """What has been decided so far.

    Attributes:
        looks: decisions that were made; 0 before the first.
        stopped: cells that are measured no more.
        contests: the races, by cell; under None the one for the goal's profile.
    """

    looks: int = 0
    stopped: Mapping[Place, Stop] = field(default_factory=dict)
    contests: Mapping[Cell | None, Contest] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For the store: what was stopped and why, and the answers of the races."""
        grouped: dict[tuple[str, int, str], list[str]] = {}
        for (name, cell), stop in self.stopped.items():
            grouped.setdefault((name, stop.after, stop.reason), []).append(str(cell))
        return {
            "looks": self.looks,
            "stopped": [
                {"configuration": name, "after": after, "reason": reason, "cells": cells}
                for (name, after, reason), cells in grouped.items()
            ],
            "races": [
                {
                    "for": contest.profile.name,
                    **{side.word: side.pick for side in contest.sides},
                    "open": [name for side in contest.sides if side.pick is None for name in side.candidates],
                }
                for contest in self.contests.values()
            ],
        }


def stops_of(document: Mapping[str, Any] | None) -> dict[Place, int]:
    """Rounds after which cells were measured no more, from what ``Decided.to_json`` wrote."""
    return {
        (row["configuration"], Cell.parse(cell, where="decisions in the store")): int(row["after"])
        for row in (document or {}).get("stopped", ())
        for cell in row["cells"]
    }


def decisions(sweep: Sweep, samples: Iterable[Sample], goal: Goal | None, *, rounds: int) -> Iterator[Decided]:
    """Everything decided after each of the first ``rounds`` rounds, in order, as long as something is left.

    Raises:
        InputError: the goal's profile cannot be predicted for.
    """
    stopping = sweep.stopping
    if stopping is None:
        return
    kept = [s for s in samples if s.key.load == OWN_LOAD]
    decided = begin(sweep, goal)
    for measured in range(stopping.minimum, min(rounds, sweep.measurement.repeats - 1) + 1):
        decided = decide(decided, sweep, kept, goal, measured=measured)
        yield decided


def begin(sweep: Sweep, goal: Goal | None) -> Decided:
    """Before the first look."""
    stopping = sweep.stopping
    names = [c.name for c in sweep.configurations]
    if stopping is None or stopping.race is None or goal is None:
        return Decided()
    if stopping.race is RaceFor.PROFILE and goal.profile is not None:
        return Decided(contests={None: Contest.begin(goal.profile, names, stopping.decide)})
    cells = sweep.measurement.cells
    return Decided(contests={c: Contest.begin(cell_profile(c), names, stopping.decide) for c in cells})


def decide(
    before: Decided, sweep: Sweep, samples: Sequence[Sample], goal: Goal | None, *, measured: int
) -> Decided:
    """What is decided after ``measured`` rounds; samples of later rounds are not looked at."""
    stopping = sweep.stopping
    assert stopping is not None, "only sweeps with terms for stopping are decided on"
    if stopping.within is None and all(contest.over for contest in before.contests.values()):
        return replace(before, looks=before.looks + 1)
    baselines = baselines_of((s for s in samples if s.key.repeat < measured), source=f"{measured} rounds")
    look = Look(measured, sweep.measurement.repeats, stopping)
    contests = dict(before.contests)
    stopped = dict(before.stopped)
    for cell, contest in before.contests.items():
        if goal is None or contest.over:
            continue
        counted = goal.used_cells() if cell is None else (cell,)
        contests[cell] = contest.narrowed(_of(baselines, contest.live(baselines.default), counted), goal, look)
        _stop(stopped, contests[cell], sweep, measured, (cell,) if cell is not None else None, goal)
    if stopping.within is not None:
        for place, half in half_widths(baselines, look.confidence).items():
            if half <= stopping.within and place not in stopped:
                known, asked = f"{100 * half:.1f} %", f"{100 * stopping.within:g} %"
                stopped[place] = Stop(measured, f"its mean is known to {known} either way, {asked} were asked for")
    return Decided(before.looks + 1, stopped, contests)


def _of(baselines: Baselines, names: Sequence[str], cells: Sequence[Cell]) -> Baselines:
    """The baselines of some configurations in some cells only."""
    kept = {p: b for p, b in baselines.cells.items() if p[0] in names and p[1] in cells}
    missing = {p: why for p, why in baselines.missing.items() if p[0] in names and p[1] in cells}
    return replace(baselines, cells=kept, missing=missing)


def _stop(
    stopped: dict[Place, Stop],
    contest: Contest,
    sweep: Sweep,
    measured: int,
    cells: Sequence[Cell] | None,
    goal: Goal,
) -> None:
    """Note what a race has no more use for."""
    live = contest.live(DEFAULT_CONFIGURATION)
    answer = ", ".join(f"the {side.word} is {side.pick}" for side in contest.sides)
    counted = goal.used_cells() if cells is None else cells
    for configuration in sweep.configurations:
        name = configuration.name
        for cell in sweep.measurement.cells if cells is None else cells:
            if (name, cell) in stopped:
                continue
            if cell not in counted:
                stopped[name, cell] = Stop(measured, "the workload does not use this cell")
            elif name not in live:
                stopped[name, cell] = Stop(measured, f"decided: {answer}" if contest.over else _why(contest, name))


def _why(contest: Contest, name: str) -> str:
    """Why one is measured no more while the race goes on."""
    picks = [f"it is the {side.word}" for side in contest.sides if side.pick == name]
    return "; ".join([*picks, *contest.reasons.get(name, ())]) or "the ends it could be at are decided"
