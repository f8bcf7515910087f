"""Evaluation: several real workloads on every configuration, in rounds.

It measures what predictions are compared with. A verification applies a configuration for every run of one
workload; an evaluation applies each once per round, and runs all workloads on it. Two more things differ:

- Every run begins from newly prepared data, so that no run sees what earlier ones left.
- At the end of each round the target is reset, so that each round has new volumes: the luck of where a volume's
  objects lie is part of the spread between rounds.
"""

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

from cephfit.ceph.environment.kernel_values import HostLockedError
from cephfit.core.cleanup import cleaned_up_by
from cephfit.core.errors import ClusterError, HostError, InputError, LackingError
from cephfit.core.protocols import Applied, Client, KeepOnly, Progress, Target
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.sample import State, WorkloadSample
from cephfit.measure.surveillance import wait_until_healthy
from cephfit.results.store.sample_store import Store
from cephfit.sweep.trial import CONDITIONS, Trial, conditions_of, measured_times, refuse_other_conditions
from cephfit.sweep.verification import HEALTHY_SECONDS, MAX_ATTEMPTS, NOT_APPLIED, Attempt, order_of, watched_run

Record = Callable[[str, Path], AbstractContextManager[KeepOnly]]
"""Records the accesses to a device during a run; receives the workload's name and the device."""


def evaluate(
    target: Target,
    configurations: Iterable[Configuration],
    trials: Sequence[Trial],
    *,
    store: Store,
    run_id: str,
    progress: Progress,
    record: Record | None = None,
) -> list[WorkloadSample]:
    """Run all workloads on every configuration in each round, and store each sample at its end.

    After a kill or a failure, the next start continues: runs that are ``ok`` in the store are not repeated.

    Args:
        target: where to run; it is reset at the end of each round.
        configurations: to run; the first is the default.
        trials: one for each workload, alike in repeats (rounds), seed, seconds and cache condition. All workloads
            use one volume of the largest size, in turn.
        store: receives the samples.
        run_id: of a run in the store.
        progress: shows every run.
        record: called for the first valid run of each workload on the default; None: nothing is recorded.

    Returns:
        All samples of these workloads in the store, including those of earlier starts.

    Raises:
        ClusterError: the target is unhealthy for longer than a limit.
        LackingError: this machine or a host lacks something that all runs need.
        HostLockedError: another cephfit process changes a host's values.
        InputError: there is no configuration or workload, two workloads have one name, the trials are not alike,
            or the store has samples under other conditions.
    """
    configurations = tuple(configurations)
    names = [trial.workload.name for trial in trials]
    _require_consistent(configurations, trials)
    stage = _Stage(target, max(t.volume_nbytes for t in trials), store, run_id, progress, record)
    for trial in trials:
        stored = [s for name, s in store.workload_samples(run_id) if name == trial.workload.name]
        refuse_other_conditions(
            stage.conditions(trial), stored, where=f"run {run_id}, workload {trial.workload.name}"
        )
    order = order_of(configurations, trials[0])
    progress.start(f"evaluate {len(trials)} workloads", len(order) * len(trials))
    with cleaned_up_by(progress.done), cleaned_up_by(stage.leave):
        for place, (repeat, configuration) in enumerate(order):
            if place and order[place - 1][0] != repeat:
                stage.begin_round(repeat, names)
            stage.run_all(repeat, configuration, _shuffled(trials, repeat, configuration), configurations[0].name)
            if place + 1 == len(order) or order[place + 1][0] != repeat:
                stage.end_round()
    wanted = {c.name for c in configurations}
    return [s for name, s in store.workload_samples(run_id) if name in names and s.configuration in wanted]


def _require_consistent(configurations: Sequence[Configuration], trials: Sequence[Trial]) -> None:
    if not configurations or not trials:
        raise InputError("an evaluation needs at least one configuration and one workload")
    names = [trial.workload.name for trial in trials]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(
            f"two workloads have the same name: {', '.join(twice)}",
            remedy="give each another name: samples are kept by the name",
        )
    if len({(trial.repeats, trial.seed, trial.seconds, trial.cache) for trial in trials}) > 1:
        raise InputError("all workloads of an evaluation have the same rounds, seed, seconds and cache condition")


def _shuffled(trials: Sequence[Trial], repeat: int, configuration: Configuration) -> list[Trial]:
    shuffled = list(trials)
    random.Random(f"{trials[0].seed}/evaluate/{repeat}/{configuration.name}").shuffle(shuffled)
    return shuffled


class _Stage:
    """The target with one configuration applied, and the workload whose data are on its volume."""

    def __init__(
        self,
        target: Target,
        volume_nbytes: int,
        store: Store,
        run_id: str,
        progress: Progress,
        record: Record | None,
    ) -> None:
        self._target = target
        self._volume_nbytes = volume_nbytes
        self._store = store
        self._run_id = run_id
        self._progress = progress
        self._record = record
        self._applied: Applied | None = None
        self._last: Trial | None = None
        self._is_used: bool | None = None
        """Whether the target has volumes of a round; None: those that an earlier start may have left."""

    def conditions(self, trial: Trial) -> dict[str, Any]:
        """Return the conditions of a sample; a verification, which keeps its data, has others."""
        return {
            **conditions_of(self._target, trial),
            "volume_nbytes": self._volume_nbytes,
            "prepared": "before each run",
        }

    def leave(self) -> None:
        """End what the last workload left on the volume."""
        if self._last is not None:
            for client in self._target.clients():
                self._last.workload.cleanup(client)
            self._last = None

    def begin_round(self, repeat: int, workloads: Collection[str]) -> None:
        """Remove the volumes of the round before, if an earlier start was killed before it did."""
        stored = self._store.workload_samples(self._run_id)
        has_begun = any(s.repeat == repeat and name in workloads for name, s in stored)
        if self._is_used is None and not has_begun:
            self._target.reset()
            self._is_used = False

    def end_round(self) -> None:
        self.leave()
        self._applied = None
        if self._is_used:  # nothing was measured in a round that an earlier start completed
            self._target.reset()
            self._is_used = False

    def run_all(self, repeat: int, configuration: Configuration, trials: Sequence[Trial], default: str) -> None:
        """Run the workloads that have no valid sample in this round."""
        self.leave()
        self._applied = None
        is_recorded = repeat == 0 and configuration.name == default
        stored = [
            (name, s.state)
            for name, s in self._store.workload_samples(self._run_id)
            if (s.repeat, s.configuration) == (repeat, configuration.name)
        ]
        for trial in trials:
            name = trial.workload.name
            if (name, State.OK) not in stored:
                n_earlier = sum(of == name for of, _ in stored)
                self._run_until_ok(trial, repeat, n_earlier, configuration, is_recorded=is_recorded)
            self._progress.advance(detail=f"{configuration.name}, {name}, round {repeat + 1}")

    def _run_until_ok(
        self, trial: Trial, repeat: int, n_earlier: int, configuration: Configuration, *, is_recorded: bool
    ) -> None:
        name = trial.workload.name
        for attempt in range(n_earlier, n_earlier + MAX_ATTEMPTS):
            sample = self._attempt(trial, repeat, attempt, configuration, is_recorded=is_recorded)
            self._store.add_workload_sample(self._run_id, name, sample)
            if sample.state is State.OK:
                return
            self._progress.note(
                f"{configuration.name}, {name}, round {repeat + 1}: {sample.state}: {sample.reason}"
            )
            self._applied = None  # apply again: the cause may be in what was applied

    def _attempt(
        self, trial: Trial, repeat: int, attempt: int, configuration: Configuration, *, is_recorded: bool
    ) -> WorkloadSample:
        run = Attempt(trial, configuration.name, repeat, attempt, {CONDITIONS: self.conditions(trial)})

        self._await_health()
        try:
            self.leave()
            client = self._client_on(configuration)
            run.evidence["applied"] = asdict(self._applied) if self._applied else None
            if client is None:
                why = "; ".join(self._applied.mismatches) if self._applied else ""
                return run.failed(why or NOT_APPLIED)
            self._last = trial
            trial.workload.prepare(client)
            self._await_health()
            with self._recording(trial, client, is_recorded=is_recorded) as keep_only:
                sample = watched_run(self._target, run, client)
            if keep_only is not None and (times := measured_times([sample.evidence["output"]])):
                keep_only(*times[0])
            return sample
        except (LackingError, HostLockedError):  # affects all runs until a person intervenes
            raise
        except (ClusterError, HostError) as error:
            return run.failed(str(error))

    def _client_on(self, configuration: Configuration) -> Client | None:
        """Return the client with its volume, None where a setting did not take effect."""
        if self._applied is None:
            self._is_used = True
            self._applied = self._target.apply(
                configuration, n_clients=1, volume_nbytes=self._volume_nbytes, fill=False
            )
        return self._target.clients()[0] if self._applied.ok else None

    def _recording(
        self, trial: Trial, client: Client, *, is_recorded: bool
    ) -> AbstractContextManager[KeepOnly | None]:
        if not is_recorded or self._record is None or client.device is None:
            return nullcontext()
        return self._record(trial.workload.name, client.device)

    def _await_health(self) -> None:
        wait_until_healthy(self._target, limit_seconds=HEALTHY_SECONDS, note=self._progress.note)
