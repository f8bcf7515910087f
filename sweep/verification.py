"""Verification: the real workload, run on several configurations in turn."""

import random
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

from cephfit.configuration import Configuration
from cephfit.errors import CephfitError, HostError, InputError
from cephfit.protocols import Applied, Client, Health, Progress, Target, Workload
from cephfit.results.store import Store
from cephfit.sample import State, WorkloadSample
from cephfit.sweep.engines.block_device import read_through
from cephfit.sweep.identity import CLUSTER
from cephfit.sweep.model import CacheCondition
from cephfit.sweep.validity.health_watch import health_now, wait_until_healthy
from cephfit.sweep.validity.surveillance import Surveillance

_MAX_ATTEMPTS = 3
"""How often an invalid or failed run of the workload is tried in all; as for the sweep's samples."""
_HEALTHY_SECONDS = 120.0
_PREPARED = "prepared"
_SETTLING = 999_999
"""Repeat of the run that nobody counts, for its random choices."""
_NOT_A_ROUND = 1_000_000
"""Repeat of a run outside a verification: it makes other random choices than any round of one."""


@runtime_checkable
class KeepsNotes(Protocol):
    """What a Target can do besides: keep a note with a client's volume for as long as the volume lives."""

    def note_on(self, client: Client, key: str) -> str | None:
        """The note, None if there is none."""

    def set_note(self, client: Client, key: str, text: str | None) -> None:
        """Keep a note, or take it away."""


@runtime_checkable
class WarmsCaches(Protocol):
    """What a Workload can do besides, where the volume is no device here: read it once itself before a run."""

    def warm(self, client: Client) -> None:
        """Before the next run the volume is read once through."""


@dataclass(frozen=True, slots=True)
class Trial:
    """The workload of a verification and how it is run.

    Attributes:
        workload: what is run.
        description: the workload with all options that shape its data; a volume prepared under another
            description is prepared again.
        volume_nbytes: size of its volume.
        repeats: runs per configuration.
        seconds: of each run.
        seed: of the order of configurations within each round, and of the workload's random choices.
        cache: what the caches of the cluster are before each run: dropped, or warm from one reading of the volume.
    """

    workload: Workload
    description: str
    volume_nbytes: int
    repeats: int
    seconds: float
    seed: int
    cache: CacheCondition = CacheCondition.COLD


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

    Started again after a kill it goes on: what is ``ok`` in the store is not run again.

    Returns:
        All samples of this workload in the store, those of earlier starts too.

    Raises:
        ClusterError: the target is unhealthy for longer than a limit, or cannot take a configuration.
        InputError: no configuration is named, or the store has samples of this workload run otherwise.
    """
    configurations = tuple(configurations)
    if not configurations:
        raise InputError("no configuration is to be verified")
    name = trial.workload.name
    stage = _Stage(target, trial, progress, purpose=f"verification of {run_id}", settle=True)
    _refuse_another_trial(stage.conditions, trial, store, run_id)
    order = order_of(configurations, trial)
    progress.start(f"verify with {name}", len(order))
    try:
        for repeat, configuration in order:
            _run_until_ok(stage, repeat, configuration, store=store, run_id=run_id)
            progress.advance(detail=f"{configuration.name}, repeat {repeat + 1}")
    finally:
        stage.leave()
        progress.done()
    wanted = {c.name for c in configurations}
    return [s for w, s in store.workload_samples(run_id) if w == name and s.configuration in wanted]


def run_once(target: Target, configuration: Configuration, trial: Trial, *, progress: Progress) -> WorkloadSample:
    """Run the workload one time on one configuration, for example to trace it; nothing is stored.

    Raises:
        ClusterError: the target is unhealthy for longer than a limit.
    """
    stage = _Stage(target, trial, progress, purpose="one run", settle=False)
    try:
        return stage.attempt(_NOT_A_ROUND, 0, configuration)
    finally:
        stage.leave()


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
    for attempt in range(len(done), _MAX_ATTEMPTS):
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
        self._contents = f"{trial.description} for {purpose}"
        self.conditions = _conditions(target, trial)
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
        evidence: dict[str, Any] = {"trial": self.conditions}

        def sample(state: State, value: float | None, reason: str = "") -> WorkloadSample:
            return WorkloadSample(
                configuration.name, repeat, attempt, state, workload.metric, value, started_ns, time.time_ns(),
                reason, evidence,
            )  # fmt: skip

        self._await_health()
        client = self._client_under(configuration)
        if self._applied is None or not self._applied.ok:
            sentences = self._applied.mismatches if self._applied else ()
            return sample(State.FAILED, None, "; ".join(sentences) or "the configuration could not be applied")
        evidence["applied"] = asdict(self._applied)
        try:
            self._prepare(client)
            self._await_health()
            self._condition_caches(client)
            before = health_now(self._target)
            with Surveillance(self._target, None) as watch:
                value, evidence["output"] = workload.run(
                    client, self.trial.seconds, seed=self._workload_seed(repeat, attempt)
                )
        except CephfitError as error:
            return sample(State.FAILED, None, str(error))
        after = health_now(self._target)
        evidence["health"] = {"before": _as_json(before), "after": _as_json(after)}
        if watch.reasons:
            return sample(State.INVALID, value, "; ".join(watch.reasons))
        return sample(State.OK, value)

    def _client_under(self, configuration: Configuration) -> Client:
        self.leave()
        self._applied = self._target.apply(
            configuration, n_clients=1, volume_nbytes=self.trial.volume_nbytes, fill=False
        )
        if not self._applied.ok:
            return Client("none", {}, 0)
        return self._target.clients()[0]

    def _prepare(self, client: Client) -> None:
        """Put the workload's data on the volume, unless a preparation of it came to its end before."""
        contents, configuration = self._contents, self._applied.configuration if self._applied else ""
        if isinstance(self._target, KeepsNotes):
            if self._target.note_on(client, _PREPARED) == contents:
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
            raise HostError("no device here to be read once for warm caches", where=f"client {client.name}")
        else:
            read_through(client.device)

    def _workload_seed(self, repeat: int, attempt: int) -> int:
        return random.Random(f"{self.trial.seed}/{self.trial.workload.name}/{repeat}/{attempt}").randrange(1 << 30)

    def _await_health(self) -> None:
        wait_until_healthy(self._target, limit_seconds=_HEALTHY_SECONDS, note=self.progress.note)


def _conditions(target: Target, trial: Trial) -> dict[str, Any]:
    """What must be alike for two runs to be compared: the workload and the cluster that it ran on."""
    return {
        "workload": trial.description,
        "seconds": trial.seconds,
        "volume_nbytes": trial.volume_nbytes,
        "target": target.name,
        "cluster": target.facts().get(CLUSTER),
        # Left out where it is as it always was: runs from before there was a choice go on.
        **({"cache": trial.cache.value} if trial.cache is not CacheCondition.COLD else {}),
    }


def _refuse_another_trial(conditions: Mapping[str, Any], trial: Trial, store: Store, run_id: str) -> None:
    for workload, sample in store.workload_samples(run_id):
        earlier = sample.evidence.get("trial")
        if workload == trial.workload.name and earlier != conditions:
            raise InputError(
                f"this run has been verified with {workload} under other options or on another cluster: {earlier}",
                where=f"run {run_id}",
                remedy="give the same options (repeats may grow), or verify another run of the sweep",
            )


def _as_json(health: Health) -> Mapping[str, Any]:
    return {"ok": health.ok, "reasons": list(health.reasons), "observed": dict(health.observed)}
