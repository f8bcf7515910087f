"""Verification: run the real workload on several configurations in turn."""

import math
import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from cephfit.ceph.environment.kernel_values import HostLockedError
from cephfit.core.cleanup import cleaned_up_by
from cephfit.core.errors import ClusterError, HostError, InputError, LackingError
from cephfit.core.protocols import Applied, Client, CountsOperations, Health, Progress, Target, WarmsCaches
from cephfit.core.units import NS_PER_S
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION, Configuration
from cephfit.core.values.measurement import CacheCondition
from cephfit.core.values.sample import CPU_BUSY, DEVICE_IO, State, WorkloadSample
from cephfit.measure.block_device import read_through
from cephfit.measure.surveillance import Surveillance, health_now, wait_until_healthy
from cephfit.measure.workload_counters import WorkloadCounters
from cephfit.results.store.sample_store import Store
from cephfit.sweep.concurrent_clients import Result, run_together
from cephfit.sweep.trial import (
    CLIENTS,
    CONDITIONS,
    TOGETHER,
    Trial,
    conditions_of,
    contents_of,
    longest_ns,
    measured_times,
    n_operations_of,
    refuse_other_conditions,
    same_contents,
    together_share,
)
from cephfit.targets.abilities import KeepsNotes

MAX_ATTEMPTS = 3
"""Attempts of one command for an invalid or failed run of the workload, as for the sweep's samples.

The next command has the same number of attempts: a person may have repaired the cause."""
HEALTHY_SECONDS = 120.0
NOT_APPLIED = "the configuration could not be applied"
_PREPARED = "prepared"
_SETTLING = 999_999
"""Repeat number of the settling run, whose result does not count, for its random choices."""
_COUNTING = 999_998
"""Repeat number of the run whose operations are counted, likewise."""
_NOT_A_ROUND = 1_000_000
"""Repeat number of a run outside a verification: its random choices differ from those of every round."""


def order_of(configurations: Sequence[Configuration], trial: Trial) -> tuple[tuple[int, Configuration], ...]:
    """Return (repeat, configuration) in the order of running; rounds have every configuration once, shuffled."""
    order: list[tuple[int, Configuration]] = []
    for repeat in range(trial.repeats):
        round_ = list(configurations)
        random.Random(f"{trial.seed}/verify/{repeat}").shuffle(round_)
        order += [(repeat, configuration) for configuration in round_]
    return tuple(order)


def verify(
    target: Target,
    configurations: Iterable[Configuration],
    trial: Trial,
    *,
    store: Store,
    run_id: str,
    progress: Progress,
    equal_work: bool = False,
) -> list[WorkloadSample]:
    """Run the workload on every configuration, interleaved, and store each sample at its end.

    After a kill or a failure, the next start continues: runs that are ``ok`` in the store are not repeated.

    Args:
        target: to run on.
        configurations: to run.
        trial: the workload and how it is run.
        store: for the samples.
        run_id: of the sweep that is verified.
        progress: receives the steps.
        equal_work: each run does as many operations as the default does in the trial's seconds; they are counted
            in one run of it before the first one.

    Returns:
        All samples of this workload in the store, including those of earlier starts.

    Raises:
        ClusterError: the target is unhealthy for longer than a limit, or does not accept a configuration.
        LackingError: this machine or a host lacks something, such as the workload's programs, or a login.
        HostLockedError: another cephfit process changes a host's values.
        InputError: no configuration is named, the store has samples of this workload under other conditions, or
            the volume does not suit the workload.
    """
    configurations = tuple(configurations)
    if not configurations:
        raise InputError("there is no configuration to verify")
    name = trial.name
    stage = _Stage(target, trial, progress, purpose=f"verification of {run_id}", settle=True)
    earlier = [sample for workload, sample in store.workload_samples(run_id) if workload == name]
    if equal_work:
        _require_countable(trial)
        stage.do_operations(n_operations_of(earlier))
    refuse_other_conditions(stage.conditions, earlier, where=f"run {run_id}, workload {name}")
    order = order_of(configurations, trial)
    progress.start(f"verify with {name}", len(order))
    with cleaned_up_by(progress.done), cleaned_up_by(stage.leave):
        if equal_work and not stage.trial.n_operations:
            default = next((c for c in configurations if c.name == DEFAULT_CONFIGURATION), configurations[0])
            stage.do_operations(stage.count_operations(default))
        for repeat, configuration in order:
            _run_until_ok(stage, repeat, configuration, store=store, run_id=run_id)
            progress.advance(detail=f"{configuration.name}, repeat {repeat + 1}")
    names = {c.name for c in configurations}
    return [s for w, s in store.workload_samples(run_id) if w == name and s.configuration in names]


def _require_countable(trial: Trial) -> None:
    if trial.n_clients > 1 or not isinstance(trial.workload, CountsOperations):
        what = f"{trial.n_clients} clients" if trial.n_clients > 1 else f"the workload {trial.workload.name}"
        raise InputError(
            f"a number of operations cannot be set for {what}",
            where="--equal-work",
            remedy="use it for pgbench on one volume of this machine; a program of your own decides itself how "
            "much it does in a run (docs/workloads.md)",
        )


def run_once(target: Target, configuration: Configuration, trial: Trial, *, progress: Progress) -> WorkloadSample:
    """Run the workload once on one configuration, for example to trace it; store nothing.

    Raises:
        ClusterError: the target is unhealthy for longer than a limit.
        LackingError: this machine or a host lacks something, such as the workload's programs, or a login.
        HostLockedError: another cephfit process changes a host's values.
        InputError: the volume does not suit the workload.
    """
    stage = _Stage(target, trial, progress, purpose="one run", settle=False)
    with cleaned_up_by(stage.leave):
        return stage.attempt(_NOT_A_ROUND, 0, configuration)


def _run_until_ok(
    stage: "_Stage", repeat: int, configuration: Configuration, *, store: Store, run_id: str
) -> None:
    name = stage.trial.name
    done = [
        s
        for w, s in store.workload_samples(run_id)
        if (w, s.repeat, s.configuration) == (name, repeat, configuration.name)
    ]
    if any(s.state is State.OK for s in done):
        return
    for attempt in range(len(done), len(done) + MAX_ATTEMPTS):
        sample = stage.attempt(repeat, attempt, configuration)
        store.add_workload_sample(run_id, name, sample)
        if sample.state is State.OK:
            return
        stage.progress.note(f"{configuration.name}, repeat {repeat + 1}: {sample.state}: {sample.reason}")


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run of a workload that has begun, for its sample.

    Attributes:
        trial: the workload and how it is run.
        configuration: its name.
        repeat, number: of the sample; they choose the workload's random choices.
        evidence: of the sample; filled while the run goes on.
        started_ns: when it began.
    """

    trial: Trial
    configuration: str
    repeat: int
    number: int
    evidence: dict[str, Any]
    started_ns: int = field(default_factory=time.time_ns)

    def failed(self, reason: str) -> WorkloadSample:
        """Return the sample of a run without a value."""
        return self._ended(State.FAILED, None, reason)

    def ended(self, value: float, reasons: Sequence[str]) -> WorkloadSample:
        """Return the sample of a run with a value, which is invalid if there are reasons."""
        return self._ended(State.INVALID if reasons else State.OK, value, "; ".join(reasons))

    def _ended(self, state: State, value: float | None, reason: str) -> WorkloadSample:
        return WorkloadSample(
            configuration=self.configuration,
            repeat=self.repeat,
            attempt=self.number,
            state=state,
            metric=self.trial.workload.metric,
            value=value,
            started_ns=self.started_ns,
            finished_ns=time.time_ns(),
            reason=reason,
            evidence=self.evidence,
        )


class _Stage:
    """The target with the workload on it: which configuration is applied, and what is prepared and mounted.

    A database changes with every run on it. Volumes are comparable only after the same runs, so a volume that was
    prepared or used for another purpose is prepared again. The first run on new data differs from all later ones
    (in the lab, pgbench's was 20 % slower on hard disks). With ``settle`` an extra first run precedes the measured
    ones, and its result does not count.
    """

    def __init__(self, target: Target, trial: Trial, progress: Progress, *, purpose: str, settle: bool) -> None:
        self.trial = self._timed = trial
        self.progress = progress
        self._settle = settle
        self._contents = contents_of(trial.workload, purpose)
        self.conditions = conditions_of(target, trial)
        self._target = target
        self._applied: Applied | None = None
        self._prepared_here: set[tuple[str, str]] = set()

    def do_operations(self, n_operations: int | None) -> None:
        """From now on, end runs after so many operations; None: they are yet to be counted."""
        self.trial = replace(self.trial, n_operations=n_operations or 0)
        self.conditions = conditions_of(self._target, self.trial)

    def count_operations(self, configuration: Configuration) -> int:
        """Run the workload on a configuration for its seconds; return how many operations it did.

        Raises:
            ClusterError: there is no valid result.
        """
        self.progress.note(f"counting the operations of {self._timed.workload.name} on {configuration.name}")
        sample = self.attempt(_COUNTING, 0, configuration, trial=self._timed)
        if sample.state is not State.OK or sample.value is None:
            raise ClusterError(
                f"the operations on {configuration.name} were not counted: {sample.reason}",
                where=self._target.name,
                remedy="run the same command again",
            )
        return max(1, round(sample.value * self._timed.seconds))

    def leave(self) -> None:
        """Unmount the volume of the last applied configuration."""
        if self._applied is not None:
            for client in self._target.clients():
                self.trial.workload.cleanup(client)
            self._applied = None

    def attempt(
        self, repeat: int, attempt: int, configuration: Configuration, trial: Trial | None = None
    ) -> WorkloadSample:
        run = Attempt(trial or self.trial, configuration.name, repeat, attempt, {CONDITIONS: self.conditions})

        self._await_health()
        try:
            self.leave()
        except LackingError:
            raise
        except (ClusterError, HostError) as error:
            return run.failed(str(error))
        try:
            applied, clients = self._bring_into(configuration)
        except (LackingError, HostLockedError):  # affects all runs until a person intervenes
            raise
        except HostError as error:
            return run.failed(str(error))
        if not clients:
            return run.failed("; ".join(applied.mismatches) or NOT_APPLIED)
        run.evidence["applied"] = asdict(applied)
        try:
            self._prepare(clients)
            self._await_health()
            return watched_run(self._target, run, *clients)
        except LackingError:  # affects all runs
            raise
        except (ClusterError, HostError) as error:
            return run.failed(str(error))

    def _bring_into(self, configuration: Configuration) -> tuple[Applied, Sequence[Client]]:
        """Apply a configuration; return the result, and the clients: none where a setting did not take effect.

        Raises:
            InputError: the target gives fewer clients.
        """
        n_clients = self.trial.n_clients
        applied = self._target.apply(
            configuration, n_clients=n_clients, volume_nbytes=self.trial.volume_nbytes, fill=False
        )
        self._applied = applied
        if not applied.ok:
            return applied, ()
        clients = self._target.clients()[:n_clients]
        if len(clients) < n_clients:
            raise InputError(
                f"the target gives {len(clients)} clients, not {n_clients}",
                where=self._target.name,
                remedy="use fewer with --clients",
            )
        return applied, clients

    def _prepare(self, clients: Sequence[Client]) -> None:
        """Write the workload's data to each volume, unless an earlier preparation was completed."""
        configuration = self._applied.configuration if self._applied else ""
        new = [client for client in clients if not self._is_prepared(client, configuration)]
        for client in new:
            if isinstance(self._target, KeepsNotes):
                self._target.set_note(client, _PREPARED, None)
            of_client = f", client {client.name}" if len(clients) > 1 else ""
            self.progress.note(f"preparing {self.trial.workload.name} on configuration {configuration}{of_client}")
            self.trial.workload.prepare(client)
        if new and self._settle:
            results_of(self._timed, new, _SETTLING, 0)
        for client in new:
            self.trial.workload.cleanup(client)  # all data must be on the disk before the note states it
            self._prepared_here.add((configuration, client.name))
            if isinstance(self._target, KeepsNotes):
                self._target.set_note(client, _PREPARED, self._contents)

    def _is_prepared(self, client: Client, configuration: str) -> bool:
        if isinstance(self._target, KeepsNotes):
            return same_contents(self._target.note_on(client, _PREPARED), self._contents)
        return (configuration, client.name) in self._prepared_here

    def _await_health(self) -> None:
        wait_until_healthy(self._target, limit_seconds=HEALTHY_SECONDS, note=self.progress.note)


def watched_run(target: Target, run: Attempt, *clients: Client) -> WorkloadSample:
    """Bring the caches into their condition and run the workload while the target is watched.

    Args:
        target: healthy, with the configuration applied.
        run: its evidence receives the output and the target's health.
        clients: with the workload's data. Several run at once; the value is then their sum.

    Raises:
        ClusterError: the run failed.
        HostError: this machine or a host failed.
        LackingError: it lacks something.
    """
    trial = run.trial
    if trial.cache is CacheCondition.COLD:
        target.drop_caches()
    else:
        for client in clients:
            _warm(trial, client)
    before = health_now(target)
    with Surveillance(target, None) as watch, WorkloadCounters(clients) as counters:
        results = results_of(trial, clients, run.repeat, run.number)
    outputs = [output for _, output in results.values()]
    run.evidence.update(_counted(counters, outputs))
    if len(clients) == 1:
        (run.evidence["output"],) = outputs
    else:
        run.evidence[CLIENTS] = {name: {"value": v, "output": output} for name, (v, output) in results.items()}
        run.evidence[TOGETHER] = together_share(outputs)
    run.evidence["health"] = {"before": _as_json(before), "after": _as_json(health_now(target))}
    return run.ended(math.fsum(value for value, _ in results.values()), watch.reasons)


def _counted(counters: WorkloadCounters, outputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what was counted in the measured time, from the first client's begin to the last one's end."""
    times = measured_times(outputs)
    if not times:
        return {}
    begin, end = min(begin for begin, _ in times), max(end for _, end in times)
    found: dict[str, Any] = {}
    if (moved := counters.device_io(begin, end)) is not None:
        done = [output["operations"] for output in outputs if output.get("operations")]
        found[DEVICE_IO] = {
            **moved,
            "seconds": longest_ns(times) / NS_PER_S,
            "operations": math.fsum(done) if len(done) == len(outputs) else None,
        }
    if (busy := counters.cpu_busy(begin, end)) is not None:
        found[CPU_BUSY] = round(busy, 3)
    return found


def results_of(trial: Trial, clients: Sequence[Client], repeat: int, attempt: int) -> dict[str, Result]:
    """Run the workload on its clients, at once if there are several; return the results by client."""
    first, *others = seeds = [workload_seed(trial, repeat, attempt, client=i) for i in range(len(clients))]
    if not others:
        return {clients[0].name: trial.run_on(clients[0], seed=first)}
    return run_together(trial.workload, clients, trial.seconds, seeds=seeds, lockstep=trial.lockstep)


def _warm(trial: Trial, client: Client) -> None:
    if isinstance(trial.workload, WarmsCaches):
        trial.workload.warm(client)
    elif client.device is None:
        raise LackingError("no local device to read for warm caches", where=f"client {client.name}")
    else:
        read_through(client.device)


def workload_seed(trial: Trial, repeat: int, attempt: int, *, client: int = 0) -> int:
    """Return the seed of a run on a client: equal on all configurations of a round."""
    words = [trial.seed, trial.workload.name, repeat, attempt, *([client] if client else [])]
    return random.Random("/".join(map(str, words))).randrange(1 << 30)


def _as_json(health: Health) -> Mapping[str, Any]:
    return {"ok": health.ok, "reasons": list(health.reasons), "observed": dict(health.observed)}
