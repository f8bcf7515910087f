"""The loop of a sweep: apply, measure, judge, store; and continue after any interruption.

The store alone decides what is done. A fio run enters the store in one transaction, after its end. So the program
can be killed at any moment: the next start finds what is stored and measures the rest.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cephfit.ceph.admin.answers import RefusedError
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Progress, Target
from cephfit.core.units import format_seconds
from cephfit.core.values.cells import Cell
from cephfit.core.values.measurement import ASSUMED_TIMES, CacheCondition, Step, StepTimes
from cephfit.core.values.sample import Run, Sample, SampleKey, State
from cephfit.measure.engine import CellRun, Engine, KnowsItsLimits, PreparesCells
from cephfit.measure.steady_runs import run_until_steady
from cephfit.measure.surveillance import (
    Circumstances,
    Surveillance,
    judge,
    telemetry_of,
    wait_until_healthy,
)
from cephfit.measure.telemetry.bottleneck import cpu_of_clients
from cephfit.measure.telemetry.telemetry_collector import TelemetryCollector
from cephfit.results.store.measuring_process import measured_by_this_process
from cephfit.results.store.sample_store import Store
from cephfit.sweep.execution.preflight import (
    begun,
    engine_of,
    facts_of,
    fitted_to,
    limits_by,
    unsupported_by,
    without_effect_by,
)
from cephfit.sweep.execution.rounds import full_plan, rounds_of
from cephfit.sweep.execution.run_progress import TOOK_EFFECT, RunProgress
from cephfit.sweep.sweep_plan import GOAL, Goal, Sweep, check_goal, io_seed, needs_goal, run_seconds
from cephfit.targets.abilities import BelongsToRun, ScalesClients

HEALTH_LIMIT_SECONDS = 300.0
"""How long the runner waits for a healthy target: a lost OSD is out, or up again, by then."""


def run_sweep(
    sweep: Sweep,
    target: Target,
    store: Store,
    progress: Progress,
    *,
    resume: Run | None,
    engine: Engine | None = None,
    times: StepTimes = ASSUMED_TIMES,
    health_limit_seconds: float = HEALTH_LIMIT_SECONDS,
    goal: Goal | None = None,
) -> Run:
    """Measure a sweep to its end.

    Args:
        sweep: the sweep to measure.
        target: the target to measure on. It stays in the last configuration; the caller calls ``reset``.
        store: receives the samples.
        progress: the progress display.
        resume: an unfinished run of this sweep on this target to continue; None begins a new one.
        engine: what measures; None takes the target's own engine, or the one that the sweep file names.
        times: durations of the steps, for the progress display.
        health_limit_seconds: how long to wait for an unhealthy target.
        goal: the goal of a race or a search, where the sweep file has one.

    Returns:
        The finished run.

    Raises:
        ClusterError: the target is unhealthy for too long, or refuses. Measured samples are in the store.
        HostError: this machine lacks something, such as fio or disk space. Measured samples are in the store.
        StoreError: the store does not accept samples. Earlier samples are in it.
        InputError: no release of Ceph has an option, or ``resume`` is of another sweep, target or cluster.
    """
    check_goal(sweep, goal)
    fitted = fitted_to(target, sweep)
    sweep, omitted, unsupported = fitted.sweep, fitted.omitted, fitted.unsupported
    engine = engine or engine_of(target, sweep.measurement)
    facts = facts_of(target, engine)
    if goal is not None and needs_goal(sweep):
        facts[GOAL] = goal.to_json()
    if omitted:
        facts["left_out"] = {name: list(reasons) for name, reasons in omitted.items()}
        for name, reasons in omitted.items():
            progress.note(f"configuration {name} is measured without: {'; '.join(reasons)}")
    if idle := without_effect_by(target, sweep):
        facts["without_effect"] = {name: list(sentences) for name, sentences in idle.items()}
        for name, sentences in idle.items():
            progress.note(f"configuration {name}: {'; '.join(sentences)}")
    if limited := limits_by(target, sweep):
        facts["limits"] = {name: list(sentences) for name, sentences in limited.items()}
        for sentence in dict.fromkeys(s for sentences in limited.values() for s in sentences):
            progress.note(sentence)
    for sentence in facts.get("mclock", {}).get("warnings", ()):
        progress.note(sentence)
    run = begun(sweep, target, store, progress, facts, resume=resume)
    with measured_by_this_process(store, run.run_id):
        if isinstance(target, BelongsToRun):
            target.begin(run.run_id)
        if isinstance(target, ScalesClients):
            m = sweep.measurement
            supported = [c for c in sweep.configurations if c.name not in unsupported]
            target.require_clients(supported, n_clients=m.most_clients, volume_nbytes=m.volume_nbytes)
        telemetry = telemetry_of(target)
        loop = _Loop(
            sweep, target, store, progress, run, engine, times, health_limit_seconds, unsupported, telemetry
        )
        loop.run_plan(goal)
        store.finish_run(run.run_id)
    return store.run(run.run_id)


@dataclass(frozen=True, slots=True)
class _Loop:
    """One start of one run, until its end or an interruption."""

    sweep: Sweep
    target: Target
    store: Store
    progress: Progress
    run: Run
    engine: Engine
    times: StepTimes
    health_limit_seconds: float
    unsupported: Mapping[str, tuple[str, ...]]
    telemetry: TelemetryCollector | None

    def run_plan(self, goal: Goal | None) -> None:
        """Measure what is left of the plan."""
        plan = full_plan(self.sweep)
        run_progress = RunProgress(self.sweep, self.store.every_sample(self.run.run_id))
        per_run = run_seconds(self.sweep.measurement, self.times)
        n_applied = len({(step.repeat, step.configuration) for step in plan.steps})
        self.progress.start(
            f"sweep {self.sweep.name}", plan.n_runs * per_run + n_applied * self.times.apply_seconds
        )
        try:
            for round_ in rounds_of(self.sweep, self.store, self.run.run_id, goal):
                for note in round_.notes:
                    self.progress.note(note)
                self.progress.advance(round_.n_stopped * per_run)
                extended = self._with_found_configurations(round_.sweep)
                extended._take(round_.steps, run_progress, per_run)
        finally:
            self.progress.done()

    def _with_found_configurations(self, sweep: Sweep) -> "_Loop":
        """Return a loop that knows the configurations that the optimiser has added."""
        new = [c for c in sweep.configurations if c not in self.sweep.configurations]
        if not new:
            return self
        judged = unsupported_by(self.target, replace(sweep, configurations=tuple(new)))
        return replace(self, sweep=sweep, unsupported={**self.unsupported, **judged})

    def _take(self, steps: Sequence[Step], run_progress: RunProgress, per_run: float) -> None:
        """Measure what is left of these steps, in order."""
        to_apply = {(step.repeat, step.configuration) for step in steps}
        in_place = None  # the (round, configuration) that is applied now: all its loads share one application
        for step in steps:
            left = [
                c for c in step.cells if not run_progress.is_settled(step.configuration, c, step.repeat, step.load)
            ]
            self.progress.advance((len(step.cells) - len(left)) * per_run)
            place = (step.repeat, step.configuration)
            if left:
                self._begin_round(step, run_progress)
                took = self._take_step(step, left, run_progress, per_run, in_place=in_place == place)
                in_place = place if took else None
            if place in to_apply:
                to_apply.remove(place)
                self.progress.advance(self.times.apply_seconds)

    def _begin_round(self, step: Step, run_progress: RunProgress) -> None:
        """Remove the volumes of the round before, where each round has new ones and this one has not begun."""
        is_first = step.repeat == 0 or run_progress.has_begun(step.repeat)
        if self.sweep.measurement.new_volumes and not is_first:
            self.progress.advance(0, f"round {step.repeat + 1}: new volumes")
            self.target.reset()

    def _take_step(
        self, step: Step, left: list[Cell], run_progress: RunProgress, per_run: float, *, in_place: bool
    ) -> bool:
        """Apply a configuration, unless it is in place, and measure what is left.

        Returns:
            Whether the configuration is in place afterwards.
        """
        rounds = "" if self.sweep.search is not None else f"/{self.sweep.measurement.repeats}"
        title = f"round {step.repeat + 1}{rounds}, {step.configuration}"
        title += f" under {step.load}" if step.load else ""
        if step.configuration in self.unsupported:
            reason = "; ".join(self.unsupported[step.configuration])
            if step.repeat == 0:
                self.progress.note(f"{step.configuration} is skipped: {reason}")
            self._without_result(step, left, State.SKIPPED, reason, run_progress)
            self.progress.advance(len(left) * per_run)
            return False
        left = self._skip_what_the_engine_cannot(step, left, run_progress, per_run)
        if left and not (in_place and len(self.target.clients()) >= self._n_clients(step)):
            self.progress.advance(0, f"{title}: applying")
            if not self._apply(step, left, run_progress):
                self.progress.advance(len(left) * per_run)
                return False
        for number, cell in enumerate(left, start=len(step.cells) - len(left) + 1):
            self.progress.advance(0, f"{title}: {cell} ({number}/{len(step.cells)})")
            self._measure(step, cell, run_progress)
            self.progress.advance(per_run)
        return in_place or bool(left)

    def _skip_what_the_engine_cannot(
        self, step: Step, left: list[Cell], run_progress: RunProgress, per_run: float
    ) -> list[Cell]:
        """Return the cells that the engine can measure; store the others as skipped, with the reason."""
        if not isinstance(self.engine, KnowsItsLimits):
            return left
        reasons = {cell: self.engine.cannot(cell, self.sweep.measurement.under(step.load)) for cell in left}
        for cell, reason in reasons.items():
            if reason:
                self._without_result(step, [cell], State.SKIPPED, reason, run_progress)
                self.progress.advance(per_run)
        return [cell for cell in left if not reasons[cell]]

    def _apply(self, step: Step, left: list[Cell], run_progress: RunProgress) -> bool:
        """Apply a configuration; store its cells as failed where a setting did not take effect."""
        self._wait()
        applied = self.target.apply(
            self.sweep.configuration(step.configuration),
            n_clients=self._n_clients(step),
            volume_nbytes=self.sweep.measurement.volume_nbytes,
        )
        self.store.add_applied(self.run.run_id, applied, repeat=step.repeat, at_ns=time.time_ns())
        if not applied.ok:
            reason = f"the configuration did not take effect: {'; '.join(applied.mismatches)}"
            self.progress.note(f"{step.configuration}, round {step.repeat + 1}: {reason}")
            self._without_result(step, left, State.FAILED, reason, run_progress)
        return applied.ok

    def _n_clients(self, step: Step) -> int:
        """Return how many clients a step needs: as many as the largest load, unless the target adds clients."""
        if isinstance(self.target, ScalesClients):
            return self.sweep.measurement.under(step.load).n_clients
        return self.sweep.measurement.most_clients

    def _measure(self, step: Step, cell: Cell, run_progress: RunProgress) -> None:
        """Measure one cell; repeat it while it is not ok and attempts are left."""
        measurement = self.sweep.measurement.under(step.load)
        clients = self.target.clients()[: measurement.n_clients]
        while not run_progress.is_settled(step.configuration, cell, step.repeat, step.load):
            run = CellRun(
                configuration=step.configuration,
                cell=cell,
                repeat=step.repeat,
                attempt=run_progress.next_attempt(step.configuration, cell, step.repeat, step.load),
                measurement=measurement,
                clients=clients,
                seeds={c.name: io_seed(measurement.seed, cell, step.repeat, c.name) for c in clients},
                load=step.load,
            )
            self._make_ready(run)
            wall, monotonic = time.time_ns(), time.monotonic_ns()
            with Surveillance(self.target, self.telemetry) as watch:
                measured = run_until_steady(self.engine, run)
                outcome = measured.outcome
            ends = time.time_ns(), time.monotonic_ns()
            # A rate-limited client may spin while it waits, so its CPU use is not a bottleneck.
            cpu = {} if measurement.is_limited else cpu_of_clients(outcome.clients)
            used = watch.used(io_seconds=measured.io_seconds, clients=clients, cpu=cpu)
            around = Circumstances(wall, ends[0], (monotonic, ends[1]), watch.reasons, watch.n_health_checks, used)
            samples = judge(run, outcome, around)
            self.store.add_samples(self.run.run_id, samples, fio_json=outcome.fio_json)
            run_progress.add(samples)
            for sample in samples:
                if sample.state is not State.OK:
                    self.progress.note(
                        f"{step.configuration} {cell}, round {step.repeat + 1}, attempt {run.attempt + 1} of "
                        f"{measurement.max_attempts}: {sample.state} on {sample.key.client}: {sample.reason}"
                    )
                    break

    def _make_ready(self, run: CellRun) -> None:
        """Wait until the target is healthy, and bring the caches into the stated condition."""
        # Before the caches are dropped: deferred writes are part of the run before.
        time.sleep(run.measurement.settle_seconds)
        deadline = time.monotonic() + self.health_limit_seconds
        noted = False
        while True:
            self._wait()
            try:
                if isinstance(self.engine, PreparesCells):
                    self.engine.prepare(run)
                if self.sweep.measurement.cache is CacheCondition.COLD:
                    self.target.drop_caches()
                else:
                    self.engine.warm(run)
                return
            except ClusterError as error:
                # Clients notice a daemon that has just died before the cluster reports it.
                if (isinstance(error, RefusedError) and error.is_lasting) or time.monotonic() >= deadline:
                    raise
                if not noted:
                    what, limit = str(error).partition("\n")[0], format_seconds(self.health_limit_seconds)
                    self.progress.note(f"{what}; trying again for up to {limit}")
                    noted = True
                time.sleep(1.0)

    def _wait(self) -> None:
        wait_until_healthy(self.target, limit_seconds=self.health_limit_seconds, note=self.progress.note)

    def _without_result(
        self, step: Step, cells: list[Cell], state: State, reason: str, run_progress: RunProgress
    ) -> None:
        """Store samples of cells that were not measured, in one transaction per cell."""
        now = time.time_ns()
        for cell in cells:
            attempt = run_progress.next_attempt(step.configuration, cell, step.repeat, step.load)
            samples = [
                Sample(
                    key=SampleKey(step.configuration, cell, f"c{i}", step.repeat, attempt, step.load),
                    state=state,
                    metrics=None,
                    started_ns=now,
                    finished_ns=now,
                    reason=reason,
                    evidence={TOOK_EFFECT: False},
                )
                for i in range(self.sweep.measurement.under(step.load).n_clients)
            ]
            self.store.add_samples(self.run.run_id, samples, fio_json=None)
            run_progress.add(samples)
