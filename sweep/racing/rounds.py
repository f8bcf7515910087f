"""Which cells of which configurations need more repeats, and what stopping early saves.

How well the mean of a cell's repeats is known, from few of them.

When repeats are enough: which cells of which configurations are measured no more, decided between rounds.

A decision after n rounds depends on the sweep, the goal and the samples of these n rounds alone, whatever else is
in the store already: a sweep that was killed decides again as it did.

What stopping early saves: expected of a plan, and done by a run.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import stdtrit

from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import Cell
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
from cephfit.core.values.sample import OWN_LOAD, Metrics, Sample, SampleKey, State
from cephfit.core.variance import LARGEST_LOG, PRIOR_DF
from cephfit.results.statistics.sample_baselines import baselines_of
from cephfit.results.statistics.summary_statistics import pooled_spread
from cephfit.sweep.goal import Goal, cell_profile, even_profile
from cephfit.sweep.racing.contest import Contest, Look
from cephfit.sweep.racing.stopping import RaceFor
from cephfit.sweep.sweep_plan import Plan, Sweep, plan_of


def half_widths(baselines: Baselines, confidence: float) -> Mapping[tuple[str, Cell], float]:
    """Half the interval of each mean, as a part of it: 0.05 is 5 % either way. Repeats once measured are left out.

    The variance of log IOPS of a cell is pooled over all configurations that have repeats of it; a configuration's
    own, of n - 1 degrees of freedom, is drawn towards it with the weight of 4, and the larger of the two is taken,
    so that one that is unsteady is not called precise for the calm of the others. With t the quantile of
    min(pooled df, 4 + n - 1) degrees of freedom, the half width is exp(t * s / sqrt(n)) - 1.
    """
    logs = {place: np.log(np.array(b.iops)) for place, b in baselines.cells.items() if len(b.iops) > 1}
    widths = {}
    for cell in dict.fromkeys(cell for _, cell in logs):
        groups = {name: values for (name, other), values in logs.items() if other == cell}
        df = sum(len(values) - 1 for values in groups.values())
        pooled = sum(float(((v - v.mean()) ** 2).sum()) for v in groups.values()) / df
        for name, values in groups.items():
            n = len(values)
            own = float(values.var(ddof=1))
            variance = max(pooled, (PRIOR_DF * pooled + (n - 1) * own) / (PRIOR_DF + n - 1))
            quantile = float(stdtrit(min(df, PRIOR_DF + n - 1), (1 + confidence) / 2))
            widths[name, cell] = math.expm1(min(quantile * math.sqrt(variance / n), LARGEST_LOG))
    return widths


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


_IMAGINED = 20
"""Sweeps that are imagined for an expectation."""
_SOME_IOPS = 100.0
"""Rate of the imagined default; it cancels."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """How figures scatter, as standard deviations of their logarithms (about parts of them).

    Attributes:
        repeats: from repeat to repeat of one cell.
        configurations: from configuration to configuration, common to all cells.
        cells: of one configuration's effect, from cell to cell.
        source: where this comes from, for people.
    """

    repeats: float
    configurations: float
    cells: float
    source: str


ASSUMED_SCATTER = Scatter(
    0.05, 0.15, 0.15, "assumed: repeats scatter by 5 %, configurations by 15 %, their effects over cells by 15 %"
)


def saved_runs(plan: Plan, stops: Mapping[Place, int]) -> int:
    """Runs of the full plan that are not made."""
    return sum(
        step.repeat >= stops.get((step.configuration, cell), step.repeat + 1)
        for step in plan.steps
        for cell in step.cells
    )


def scatter_of(samples: Sequence[Sample], source: str) -> Scatter | None:
    """The scatter of an earlier run; None where it has no repeats or nothing to compare."""
    baselines = baselines_of(samples, source=source)
    spread = pooled_spread(b.iops for b in baselines.cells.values())
    others = [name for name in baselines.configurations if name != DEFAULT_CONFIGURATION]
    shared = [c for n, c in baselines.cells if n == DEFAULT_CONFIGURATION]
    effects = [
        [np.log(np.mean(baselines.cells[n, c].iops) / np.mean(baselines.cells[DEFAULT_CONFIGURATION, c].iops))
         for c in shared]
        for n in others
        if all((n, c) in baselines.cells for c in shared)
    ]  # fmt: skip
    if spread is None or len(effects) < 2 or not shared:
        return None
    table = np.array(effects)
    within = table - table.mean(axis=1, keepdims=True)
    return Scatter(
        spread.log_deviation,
        float(np.sqrt((table.mean(axis=1) ** 2).mean())),
        float(np.sqrt((within**2).mean())),
        f"from {source}: repeats scatter by {100 * spread.log_deviation:.1f} %",
    )


def expected_saving(sweep: Sweep, goal: Goal, scatter: Scatter = ASSUMED_SCATTER) -> tuple[float, float, float]:
    """The part of the plan's runs that stopping early is expected to save: least, median and most of 20.

    Sweeps of this plan are drawn from a made-up truth of this scatter and decided on as a real one would be. A
    goal without a profile is taken to move as many bytes in every cell.
    """
    stopping = sweep.stopping
    if stopping is None:
        return 0.0, 0.0, 0.0
    if stopping.race is RaceFor.PROFILE and goal.profile is None:
        goal = Goal(goal.predictor, goal.model, even_profile(sweep.measurement))
    plan = plan_of(sweep)
    parts = sorted(_imagined(sweep, plan, goal, scatter, seed) for seed in range(_IMAGINED))
    return parts[0], parts[_IMAGINED // 2], parts[-1]


def _imagined(sweep: Sweep, plan: Plan, goal: Goal, scatter: Scatter, seed: int) -> float:
    samples = imagined_samples(sweep, scatter, seed)
    decided = begin(sweep, goal)
    assert sweep.stopping is not None, "the caller's condition"
    for measured in range(sweep.stopping.minimum, sweep.measurement.repeats):
        decided = decide(decided, sweep, samples, goal, measured=measured)
    return saved_runs(plan, {place: stop.after for place, stop in decided.stopped.items()}) / plan.n_runs


def imagined_samples(sweep: Sweep, scatter: Scatter, seed: int) -> list[Sample]:
    """All samples of the full plan, drawn from a made-up truth."""
    dice = np.random.default_rng([seed, sweep.measurement.seed])
    cells, repeats = sweep.measurement.cells, sweep.measurement.repeats
    samples = []
    for configuration in sweep.configurations:
        is_default = configuration.name == DEFAULT_CONFIGURATION
        whole = 0.0 if is_default else dice.normal(0, scatter.configurations)
        own = np.zeros(len(cells)) if is_default else dice.normal(0, scatter.cells, len(cells))
        noise = dice.normal(0, scatter.repeats, (len(cells), repeats))
        for i, cell in enumerate(cells):
            for repeat in range(repeats):
                iops = _SOME_IOPS * float(np.exp(whole + own[i] + noise[i, repeat]))
                samples.append(_sample(configuration.name, cell, repeat, iops))
    return samples


def _sample(name: str, cell: Cell, repeat: int, iops: float) -> Sample:
    metrics = Metrics(iops, iops * cell.size.benchmark_nbytes, 1, 1, 1.0)
    return Sample(SampleKey(name, cell, "c0", repeat), State.OK, metrics, 0, 0)


def saving_document(plan: Plan, stops: Mapping[Place, int]) -> dict[str, Any]:
    """What was not run, for people and programs."""
    saved = saved_runs(plan, stops)
    return {"runs_of_full_plan": plan.n_runs, "runs_saved": saved, "part_saved": saved / max(1, plan.n_runs)}
