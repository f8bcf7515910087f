"""The schedule: the rounds of a sweep, each of which may depend on the results of earlier rounds."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from cephfit.core.values.configuration import DEFAULT_CONFIGURATION, Configuration
from cephfit.core.values.measurement import Step
from cephfit.core.values.sample import STOPPING_DOCUMENT, TRIALS_DOCUMENT
from cephfit.results.store.sample_store import Store
from cephfit.sweep.execution.rounds import Decided, begin, decide, saving_document
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
from cephfit.sweep.sweep_plan import Goal, Plan, Sweep, plan_of


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
