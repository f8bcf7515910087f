"""Verification: the real workload, run on several configurations in turn."""

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from cephfit.configuration import Configuration
from cephfit.errors import ClusterError, HostError, InputError, LackingError
from cephfit.measurement import CacheCondition
from cephfit.protocols import Applied, Client, Health, Progress, Target, WarmsCaches
from cephfit.results.store import Store
from cephfit.sample import State, WorkloadSample
from cephfit.sweep.abilities import KeepsNotes
from cephfit.sweep.clearing_up import cleared_up_by
from cephfit.sweep.engines.block_device import read_through
from cephfit.sweep.greater.kernel_locks import HostLockedError
from cephfit.sweep.validity.health_watch import health_now, wait_until_healthy
from cephfit.sweep.validity.surveillance import Surveillance
from cephfit.sweep.workload_trial import (
    CONDITIONS,
    Trial,
    conditions_of,
    contents_of,
    refuse_other_conditions,
    same_contents,
)

_MAX_ATTEMPTS = 3
"""How often one command tries an invalid or failed run of the workload, as for the sweep's samples.

Given again, it tries as often again: a person may have mended what was wrong."""
_HEALTHY_SECONDS = 120.0
_PREPARED = "prepared"
_SETTLING = 999_999
"""Repeat of the run that nobody counts, for its random choices."""
_NOT_A_ROUND = 1_000_000
"""Repeat of a run outside a verification: it makes other random choices than any round of one."""


def order_of(configurations: Sequence[Configuration], trial: Trial) -> tuple[tuple[int, Configuration], ...]:
    """(repeat, configuration) in the order of running: each round has every configuration once, shuffled."""
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
) -> list[WorkloadSample]:
    """Run the workload on every configuration, interleaved; each sample is stored when it is over.

    Started again, after a kill or to try again what failed, it goes on: what is ``ok`` in the store is not run
    again.

    Returns:
        All samples of this workload in the store, those of earlier starts too.

    Raises:
        ClusterError: the target is unhealthy for longer than a limit, or cannot take a configuration.
        LackingError: this machine or a host lacks something, such as the workload's programs, or a login.
        HostLockedError: another cephfit changes a host's values.
        InputError: no configuration is named, the store has samples of this workload run otherwise, or the volume
            does not suit the workload.
    """
    configurations = tuple(configurations)
    if not configurations:
        raise InputError("no configuration is to be verified")
    name = trial.workload.name
    stage = _Stage(target, trial, progress, purpose=f"verification of {run_id}", settle=True)
    earlier = [sample for workload, sample in store.workload_samples(run_id) if workload == name]
    refuse_other_conditions(stage.conditions, earlier, where=f"run {run_id}, workload {name}")
    order = order_of(configurations, trial)
    progress.start(f"verify with {name}", len(order))
    with cleared_up_by(progress.done), cleared_up_by(stage.leave):
        for repeat, configuration in order:
            _run_until_ok(stage, repeat, configuration, store=store, run_id=run_id)
            progress.advance(detail=f"{configuration.name}, repeat {repeat + 1}")
    wanted = {c.name for c in configurations}
    return [s for w, s in store.workload_samples(run_id) if w == name and s.configuration in wanted]


def run_once(target: Target, configuration: Configuration, trial: Trial, *, progress: Progress) -> WorkloadSample:
    """Run the workload one time on one configuration, for example to trace it; nothing is stored.

    Raises:
        ClusterError: the target is unhealthy for longer than a limit.
        LackingError: this machine or a host lacks something, such as the workload's programs, or a login.
        HostLockedError: another cephfit changes a host's values.
        InputError: the volume does not suit the workload.
    """
    stage = _Stage(target, trial, progress, purpose="one run", settle=False)
    with cleared_up_by(stage.leave):
        return stage.attempt(_NOT_A_ROUND, 0, configuration)


def _run_until_ok(
    stage: "_Stage", repeat: int, configuration: Configuration, *, store: Store, run_id: str
) -> None:
    name = stage.trial.workload.name
    done = [
        s
        for w, s in store.workload_samples(run_id)
        if (w, s.repeat, s.configuration) == (name, repeat, configuration.name)
    ]
    if any(s.state is State.OK for s in done):
        return
    for attempt in range(len(done), len(done) + _MAX_ATTEMPTS):
        sample = stage.attempt(repeat, attempt, configuration)
        store.add_workload_sample(run_id, name, sample)
        if sample.state is State.OK:
            return
        stage.progress.note(f"{configuration.name}, repeat {repeat + 1}: {sample.state}: {sample.reason}")


class _Stage:
    """The target with the workload on it: which configuration is applied, and what is prepared and mounted.

    A database changes with every run on it. What is compared must have been through the same runs, so volumes
    that were prepared for another purpose, or run on for it, are prepared anew. The first run on new data is like
    no later one (on the lab, pgbench's was 20 % slower on hard disks): with ``settle`` nobody counts it.
    """

    def __init__(self, target: Target, trial: Trial, progress: Progress, *, purpose: str, settle: bool) -> None:
        self.trial = trial
        self.progress = progress
        self._settle = settle
        self._contents = contents_of(trial.workload, purpose)
        self.conditions = conditions_of(target, trial)
        self._target = target
        self._applied: Applied | None = None
        self._prepared_here: set[str] = set()

    def leave(self) -> None:
        """Unmount the volume of the configuration applied last."""
        if self._applied is not None:
            for client in self._target.clients():
                self.trial.workload.cleanup(client)
            self._applied = None

    def attempt(self, repeat: int, attempt: int, configuration: Configuration) -> WorkloadSample:
        workload, started_ns = self.trial.workload, time.time_ns()
        evidence: dict[str, Any] = {CONDITIONS: self.conditions}

        def sample(state: State, value: float | None, reason: str = "") -> WorkloadSample:
            return WorkloadSample(
                configuration=configuration.name,
                repeat=repeat,
                attempt=attempt,
                state=state,
                metric=workload.metric,
                value=value,
                started_ns=started_ns,
                finished_ns=time.time_ns(),
                reason=reason,
                evidence=evidence,
            )

        self._await_health()
        try:
            self.leave()
        except LackingError:
            raise
        except (ClusterError, HostError) as error:
            return sample(State.FAILED, None, str(error))
        try:
            applied, client = self._bring_into(configuration)
        except (LackingError, HostLockedError):  # for all runs, until a person does something
            raise
        except HostError as error:
            return sample(State.FAILED, None, str(error))
        if client is None:
            return sample(
                State.FAILED, None, "; ".join(applied.mismatches) or "the configuration could not be applied"
            )
        evidence["applied"] = asdict(applied)
        try:
            self._prepare(client)
            self._await_health()
            self._condition_caches(client)
            before = health_now(self._target)
            with Surveillance(self._target, None) as watch:
                value, evidence["output"] = workload.run(
                    client, self.trial.seconds, seed=self._workload_seed(repeat, attempt)
                )
        except LackingError:  # it is lacking for all runs
            raise
        except (ClusterError, HostError) as error:
            return sample(State.FAILED, None, str(error))
        after = health_now(self._target)
        evidence["health"] = {"before": _as_json(before), "after": _as_json(after)}
        if watch.reasons:
            return sample(State.INVALID, value, "; ".join(watch.reasons))
        return sample(State.OK, value)

    def _bring_into(self, configuration: Configuration) -> tuple[Applied, Client | None]:
        """What became of the target, and the client with its volume; None where a setting did not take effect."""
        applied = self._target.apply(
            configuration, n_clients=1, volume_nbytes=self.trial.volume_nbytes, fill=False
        )
        self._applied = applied
        return applied, self._target.clients()[0] if applied.ok else None

    def _prepare(self, client: Client) -> None:
        """Put the workload's data on the volume, unless a preparation of it came to its end before."""
        contents, configuration = self._contents, self._applied.configuration if self._applied else ""
        if isinstance(self._target, KeepsNotes):
            if same_contents(self._target.note_on(client, _PREPARED), contents):
                return
            self._target.set_note(client, _PREPARED, None)
        elif configuration in self._prepared_here:
            return
        self.progress.note(f"preparing {self.trial.workload.name} on configuration {configuration}")
        self.trial.workload.prepare(client)
        if self._settle:
            self.trial.workload.run(client, self.trial.seconds, seed=self._workload_seed(_SETTLING, 0))
        self.trial.workload.cleanup(client)  # all of it on the disk before the note says so
        self._prepared_here.add(configuration)
        if isinstance(self._target, KeepsNotes):
            self._target.set_note(client, _PREPARED, contents)

    def _condition_caches(self, client: Client) -> None:
        if self.trial.cache is CacheCondition.COLD:
            self._target.drop_caches()
        elif isinstance(self.trial.workload, WarmsCaches):
            self.trial.workload.warm(client)
        elif client.device is None:
            raise LackingError("no device here to be read once for warm caches", where=f"client {client.name}")
        else:
            read_through(client.device)

    def _workload_seed(self, repeat: int, attempt: int) -> int:
        return random.Random(f"{self.trial.seed}/{self.trial.workload.name}/{repeat}/{attempt}").randrange(1 << 30)

    def _await_health(self) -> None:
        wait_until_healthy(self._target, limit_seconds=_HEALTHY_SECONDS, note=self.progress.note)


def _as_json(health: Health) -> Mapping[str, Any]:
    return {"ok": health.ok, "reasons": list(health.reasons), "observed": dict(health.observed)}
