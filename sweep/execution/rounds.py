"""The rounds of a sweep: which cells need more repeats, which runs follow, how many runs early stopping saves.

Decisions are taken between rounds. A decision after n rounds depends only on the sweep, the goal and the samples
of these n rounds, whatever else the store holds. So a sweep that continues after a kill takes the same decisions.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import stdtrit

from cephfit.core.statistics.sample_columns import SampleColumns
from cephfit.core.statistics.variance import LARGEST_LOG, PRIOR_DF
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import Cell
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION, Configuration
from cephfit.core.values.measurement import Step
from cephfit.core.values.sample import STOPPING_DOCUMENT, TRIALS_DOCUMENT, Metrics, Sample, SampleKey, State
from cephfit.results.statistics.sample_baselines import baselines_of
from cephfit.results.statistics.summary_statistics import pooled_spread
from cephfit.results.store.sample_store import Store
from cephfit.sweep.execution.racing import Contest, Look
from cephfit.sweep.factorial_design import Search
from cephfit.sweep.optimiser import (
    Trial,
    batch_rounds,
    proposals,
    trial_at,
    trials_from_json,
    trials_to_json,
    values_of,
    with_trials,
)
from cephfit.sweep.sweep_plan import Goal, Plan, RaceFor, Sweep, cell_profile, even_profile, plan_of


def half_widths(baselines: Baselines, confidence: float) -> Mapping[tuple[str, Cell], float]:
    """Return the half width of each mean's interval as a fraction of the mean: 0.05 is 5 % either way.

    Cells with a single repeat are omitted. The variance of log IOPS of a cell is pooled over all configurations
    that have repeats of it. A configuration's own variance, of n - 1 degrees of freedom, is shrunk towards the
    pooled one with weight 4. The larger of pooled and shrunk variance counts, so that the steadiness of others
    does not make an unsteady configuration look precise. With t the quantile of min(pooled df, 4 + n - 1) degrees
    of freedom, the half width is exp(t * s / sqrt(n)) - 1.
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
"""One cell of one configuration: its name, and the cell."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Why the measurement of a cell of a configuration ended.

    Attributes:
        after: number of rounds in which the cell was measured.
        reason: one sentence.
    """

    after: int
    reason: str


@dataclass(frozen=True, slots=True)
class Decided:
    """The decisions so far.

    Attributes:
        looks: number of interim analyses so far.
        stopped: cells whose measurement ended.
        contests: the races by cell; the key None has the race for the goal's profile.
    """

    looks: int = 0
    stopped: Mapping[Place, Stop] = field(default_factory=dict)
    contests: Mapping[Cell | None, Contest] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the document for the store: stopped cells with reasons, and the results of the races."""
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
    """Return the round after which each stopped cell ended, from a document of ``Decided.to_json``."""
    return {
        (row["configuration"], Cell.parse(cell, where="decisions in the store")): int(row["after"])
        for row in (document or {}).get("stopped", ())
        for cell in row["cells"]
    }


def begin(sweep: Sweep, goal: Goal | None) -> Decided:
    """Return the state before the first look."""
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
    """Return the decisions after ``measured`` rounds; samples of later rounds do not count."""
    stopping = sweep.stopping
    assert stopping is not None, "only sweeps with terms for stopping are decided on"
    if stopping.within is None and all(contest.over for contest in before.contests.values()):
        return replace(before, looks=before.looks + 1)
    columns = SampleColumns.of(samples)
    earlier = columns.take(np.flatnonzero(columns.repeat < measured))
    baselines = baselines_of(earlier, source=f"{measured} rounds")
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
                stopped[place] = Stop(measured, f"its mean is known to within {known}; the limit is {asked}")
    return Decided(before.looks + 1, stopped, contests)


def _of(baselines: Baselines, names: Sequence[str], cells: Sequence[Cell]) -> Baselines:
    """Return the baselines of some configurations in some cells."""
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
    """Add the cells that a race no longer needs to ``stopped``."""
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
    """Return why a configuration needs no more repeats while the race continues."""
    picks = [f"it is the {side.word}" for side in contest.sides if side.pick == name]
    return "; ".join([*picks, *contest.reasons.get(name, ())]) or "the ends that it could win are decided"


_N_SIMULATIONS = 20
"""Number of simulated sweeps behind an expectation."""
_SOME_IOPS = 100.0
"""Rate of the simulated default; it cancels."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """How figures scatter, as standard deviations of their logarithms (roughly, relative deviations).

    Attributes:
        repeats: between the repeats of one cell.
        configurations: between configurations, common to all cells.
        cells: between cells, of one configuration's effect.
        source: origin of these figures, for people.
    """

    repeats: float
    configurations: float
    cells: float
    source: str


ASSUMED_SCATTER = Scatter(
    0.05, 0.15, 0.15, "assumed: repeats scatter by 5 %, configurations by 15 %, their effects over cells by 15 %"
)


def saved_runs(plan: Plan, stops: Mapping[Place, int]) -> int:
    """Return the number of runs of the full plan that early stopping saves."""
    return sum(
        step.repeat >= stops.get((step.configuration, cell), step.repeat + 1)
        for step in plan.steps
        for cell in step.cells
    )


def scatter_of(samples: Sequence[Sample], source: str) -> Scatter | None:
    """Return the scatter of an earlier run; None where it has no repeats or nothing to compare."""
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
    """Return the fraction of the plan's runs that early stopping may save: minimum, median, maximum.

    They are those of 20 simulations. Each draws the samples of this plan with this scatter and decides as a real
    sweep does. For a goal without a profile, the workload moves the same number of bytes in every cell.
    """
    stopping = sweep.stopping
    if stopping is None:
        return 0.0, 0.0, 0.0
    if stopping.race is RaceFor.PROFILE and goal.profile is None:
        goal = Goal(goal.predictor, goal.model, even_profile(sweep.measurement))
    plan = plan_of(sweep)
    parts = sorted(_simulated_saving(sweep, plan, goal, scatter, seed) for seed in range(_N_SIMULATIONS))
    return parts[0], parts[_N_SIMULATIONS // 2], parts[-1]


def _simulated_saving(sweep: Sweep, plan: Plan, goal: Goal, scatter: Scatter, seed: int) -> float:
    samples = SampleColumns.of(simulated_samples(sweep, scatter, seed))
    decided = begin(sweep, goal)
    assert sweep.stopping is not None, "the caller's condition"
    for measured in range(sweep.stopping.minimum, sweep.measurement.repeats):
        decided = decide(decided, sweep, samples, goal, measured=measured)
    return saved_runs(plan, {place: stop.after for place, stop in decided.stopped.items()}) / plan.n_runs


def simulated_samples(sweep: Sweep, scatter: Scatter, seed: int) -> list[Sample]:
    """Return all samples of the full plan, drawn from simulated true rates."""
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
    """Return the number of saved runs, for people and programs."""
    saved = saved_runs(plan, stops)
    return {"runs_of_full_plan": plan.n_runs, "runs_saved": saved, "part_saved": saved / max(1, plan.n_runs)}


@dataclass(frozen=True, slots=True)
class Round:
    """Runs without a decision between them.

    Attributes:
        sweep: with all configurations that are known so far.
        steps: in order.
        n_stopped: runs of the full plan that are not needed.
        notes: decisions before this round, for people.
    """

    sweep: Sweep
    steps: tuple[Step, ...]
    n_stopped: int = 0
    notes: tuple[str, ...] = ()


def rounds_of(sweep: Sweep, store: Store, run_id: str, goal: Goal | None) -> Iterator[Round]:
    """Yield the rounds of a run from the first one on, including those that are measured already.

    The caller asks for the next round when every run of the previous one is in the store. After a kill, the next
    start yields the same rounds: a round depends only on the samples of earlier rounds, and proposals are stored
    before they are measured.
    """
    if sweep.search is not None:
        yield from _batches(sweep, sweep.search, store, run_id, goal)
    elif sweep.stopping is not None:
        yield from _while_needed(sweep, store, run_id, goal)
    else:
        yield Round(sweep, plan_of(sweep).steps)


def full_plan(sweep: Sweep) -> Plan:
    """Return all runs that a sweep may need; only the number of an optimiser's trials is known in advance."""
    if sweep.search is None:
        return plan_of(sweep)
    search, steps, default = sweep.search, list[Step](), sweep.configuration(DEFAULT_CONFIGURATION)
    names = [Configuration(f"{search.design.name}-{i:03d}") for i in range(1, search.trials + 1)]
    for batch in range(math.ceil(search.trials / search.batch)):
        first = sweep.configurations if batch == 0 else (default,)
        now = names[batch * search.batch : (batch + 1) * search.batch]
        begins = batch_rounds(sweep, batch).start
        steps += [
            replace(step, repeat=begins + step.repeat)
            for step in plan_of(replace(sweep, configurations=(*first, *now))).steps
        ]
    return Plan(tuple(steps))


def _while_needed(sweep: Sweep, store: Store, run_id: str, goal: Goal | None) -> Iterator[Round]:
    """Yield rounds with the cells that are not decided yet."""
    assert sweep.stopping is not None, "the caller's condition"
    plan = plan_of(sweep)
    decided = begin(sweep, goal)
    recorded = int((store.document(run_id, STOPPING_DOCUMENT) or {}).get("looks", 0))
    for repeat in range(sweep.measurement.repeats):
        notes: tuple[str, ...] = ()
        if repeat >= sweep.stopping.minimum:
            before = decided
            decided = decide(before, sweep, store.samples(run_id), goal, measured=repeat)
            if decided.looks > recorded:
                stops = {place: stop.after for place, stop in decided.stopped.items()}
                store.put_document(
                    run_id, STOPPING_DOCUMENT, {**decided.to_json(), **saving_document(plan, stops)}
                )
                notes = tuple(_news(before, decided, repeat))
        full = [step for step in plan.steps if step.repeat == repeat]
        left = [
            replace(step, cells=tuple(c for c in step.cells if (step.configuration, c) not in decided.stopped))
            for step in full
        ]
        n_stopped = sum(len(a.cells) - len(b.cells) for a, b in zip(full, left, strict=True))
        yield Round(sweep, tuple(step for step in left if step.cells), n_stopped, notes)


def _news(before: Decided, now: Decided, repeat: int) -> Iterator[str]:
    """Yield the new decisions, one sentence for each reason."""
    reasons: dict[str, dict[str, None]] = {}
    for place, stop in now.stopped.items():
        if place not in before.stopped:
            reasons.setdefault(stop.reason, {})[place[0]] = None
    for reason, names in reasons.items():
        yield f"after {repeat} rounds, no longer measured: {', '.join(names)}: {reason}"


def _batches(sweep: Sweep, search: Search, store: Store, run_id: str, goal: Goal | None) -> Iterator[Round]:
    """Yield batches of trials, each together with the default."""
    trials = trials_from_json(store.document(run_id, TRIALS_DOCUMENT))
    batch = 0
    while True:
        if not any(t.batch == batch for t in trials):
            more = _proposed(sweep, search, store, run_id, goal, trials, batch)
            if not more:
                return
            trials = (*trials, *more)
            store.put_document(run_id, TRIALS_DOCUMENT, trials_to_json(trials))
        now = [t for t in trials if t.batch == batch]
        first = sweep.configurations if batch == 0 else [sweep.configuration(DEFAULT_CONFIGURATION)]
        steps = plan_of(
            replace(
                sweep,
                configurations=(*first, *(t.configuration for t in now)),
                measurement=replace(sweep.measurement, seed=sweep.measurement.seed + batch),
            )
        ).steps
        begins = batch_rounds(sweep, batch).start
        notes = tuple(f"{t.configuration.name}: {t.configuration.why}" for t in now)
        yield Round(
            with_trials(sweep, trials),
            tuple(replace(step, repeat=begins + step.repeat) for step in steps),
            notes=notes,
        )
        batch += 1


def _proposed(
    sweep: Sweep,
    search: Search,
    store: Store,
    run_id: str,
    goal: Goal | None,
    trials: tuple[Trial, ...],
    batch: int,
) -> list[Trial]:
    left = min(search.batch, search.trials - len(trials))
    if left <= 0:
        return []
    values = values_of(sweep, trials, store.samples(run_id), goal)
    points = proposals(search, [(t.point, value) for t, value in zip(trials, values, strict=True)], left)
    return [
        trial_at(search, point, number=number, batch=batch)
        for number, point in enumerate(points, start=len(trials) + 1)
    ]
