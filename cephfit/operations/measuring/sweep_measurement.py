"""Measure on one target: a sweep with its goal, or workloads on a sweep that was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cephfit.core.errors import InputError, StoreError
from cephfit.core.values.sample import CLUSTER, TARGETS_DOCUMENT, is_another_cluster
from cephfit.operations.measuring.cluster_options import ClusterOptions, is_existing_cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from cephfit.core.protocols import Predictor, Progress, Target
    from cephfit.core.values.measurement import CacheCondition
    from cephfit.core.values.profile import Profile
    from cephfit.core.values.sample import Run
    from cephfit.operations.measuring.cluster_options import ClusterOptions
    from cephfit.results.store.sample_store import Store
    from cephfit.sweep.sweep_plan import Goal, Sweep
    from cephfit.sweep.trial import Trial


_Concluded = TypeVar("_Concluded")


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of a measurement. It is sent to other processes: plain values only.

    Attributes:
        file: path of a sweep file, or name of a bundled one.
        store: path or URL of the results store.
        cluster: connection options of an existing cluster.
        apply: permission to change an existing cluster.
        new: begin a new run even if one is unfinished.
        keep: leave the last configuration and the volumes on the target.
        health_limit: how long to wait for an unhealthy target, in seconds.
        profile_file: of the workload for which configurations race.
        model: that predicts the workload.
        targets: all targets of the command, in its order, if there are several.
    """

    file: str
    store: str
    cluster: ClusterOptions
    apply: bool
    new: bool
    keep: bool
    health_limit: float
    profile_file: Path | None
    model: str | None
    targets: tuple[str, ...] = ()


class UndoingInterruptedError(KeyboardInterrupt):
    """An interrupt while the changes of a finished run are undone: the same command would begin another run."""


def measured(
    request: Request, target_text: str, progress: Progress, conclude: Callable[[Store, Run], _Concluded]
) -> _Concluded:
    """Measure a sweep on one target.

    Args:
        request: what to measure.
        target_text: name of the target.
        progress: shows the progress.
        conclude: called with the store, which is still open, and the finished run.

    Returns:
        What ``conclude`` returns.

    Raises:
        CephfitError: see ``run_sweep`` in ``sweep/execution/runner.py``. All completed samples are stored.
        UndoingInterruptedError: the run is finished, and some changes are left.
    """
    from cephfit.operations.measuring.target_choice import open_target
    from cephfit.results.store.sample_store import Store
    from cephfit.sweep.declaration.sweep_file import find_sweep, read_sweep
    from cephfit.sweep.execution.preflight import engine_of, require_healthy
    from cephfit.sweep.execution.run_progress import times_on
    from cephfit.sweep.execution.runner import run_sweep

    sweep = read_sweep(find_sweep(request.file))
    with ExitStack() as stack:
        # The target first: if it does not exist, no empty store is left.
        target = open_target(
            target_text,
            for_change=True,
            progress=progress,
            ioengine=sweep.measurement.ioengine,
            cluster=request.cluster,
            leave=request.apply,
        )
        stack.callback(target.close)
        if is_existing_cluster(target_text):
            require_healthy(target)
        engine = engine_of(target, sweep.measurement)
        results = stack.enter_context(Store.open(request.store, create=True))
        resume = None
        if not request.new:
            resume = results.unfinished_run(sweep_digest=sweep.digest, target=target.name)
        if resume is not None:
            progress.note(f"continuing run {resume.run_id}")
        finished = run_sweep(
            sweep,
            target,
            results,
            progress,
            resume=resume,
            engine=engine,
            times=times_on(target, results),
            health_limit_seconds=request.health_limit,
            goal=goal_of(request.profile_file, request.model, resume=resume),
        )
        if request.targets:
            order = {"number": request.targets.index(target_text), "targets": list(request.targets)}
            results.put_document(finished.run_id, TARGETS_DOCUMENT, order)
        if not request.keep:
            try:
                target.reset()
            except KeyboardInterrupt:
                raise UndoingInterruptedError from None
        return conclude(results, finished)


def goal_of(profile_file: Path | None, model: str | None, *, resume: Run | None = None) -> Goal:
    """Return the goal that the arguments give; a continued run supplies what they leave open.

    Args:
        profile_file: of the workload; None: the profile with which the run began.
        model: that predicts the workload; None: the run's, else the first of ``mapper.MODELS``.
        resume: the run that is continued.

    Raises:
        InputError: the file cannot be read or is no profile.
    """
    from cephfit.core.profile_files import read_profile
    from cephfit.core.values.profile import Profile
    from cephfit.mapper import MODELS, predictor
    from cephfit.sweep.sweep_plan import GOAL, Goal

    begun: Mapping[str, Any] = (resume.facts.get(GOAL) if resume is not None else None) or {}
    name = model or str(begun.get("model", MODELS[0]))
    profile = None if profile_file is None else read_profile(profile_file)
    if profile is None and begun.get("profile") is not None:
        profile = Profile.from_json(begun["profile"], where="the run's profile")

    def predict_with(confidence: float) -> Predictor:
        return predictor(name, confidence=confidence)

    return Goal(predict_with, name, profile)


def run_of(store: Store, sweep: Sweep, run_id: str | None) -> Run:
    """Return the run with this id, or the newest one of a sweep.

    Raises:
        InputError: the run has other configurations than the sweep.
        StoreError: there is no such run.
    """
    from cephfit.sweep.declaration.sweep_file import parse_sweep

    if run_id is not None:
        run = store.run(run_id)
        measured = parse_sweep(run.sweep_text, file=f"run {run_id}", stored=True).configurations
        if {c.name: c.settings for c in measured} != {c.name: c.settings for c in sweep.configurations}:
            raise InputError(
                f"the configurations of sweep {sweep.name} differ from those that run {run_id} measured",
                where=store.name,
                remedy="give the original sweep file, or a run of this sweep file with --run",
            )
        return run
    for run in store.runs():
        if run.sweep_digest == sweep.digest:
            return run
    raise StoreError(
        f"no run has measured sweep {sweep.name} as this file declares it",
        where=store.name,
        remedy="measure it first with `cephfit sweep run`, or name a run with --run",
    )


@contextmanager
def target_of(
    run: Run,
    target_text: str,
    *,
    store: Store,
    cluster: ClusterOptions,
    apply: bool,
    keep: bool,
    progress: Progress,
) -> Iterator[Target]:
    """Open the target on which workloads run, for a run of a sweep; reset it at the end unless ``keep``.

    The store records meanwhile that this process measures the run. A note states if the run was measured on
    another cluster.

    Raises:
        CephfitError: as ``open_target``.
    """
    from cephfit.operations.measuring.target_choice import open_target
    from cephfit.results.store.measuring_process import measured_by_this_process
    from cephfit.targets.abilities import BelongsToRun

    target = open_target(target_text, for_change=True, progress=progress, cluster=cluster, leave=apply)
    try:
        if target.name != run.target or is_another_cluster(run.facts, target.facts()):
            progress.note(f"the prediction is for another cluster: {run.target}, fsid {run.facts.get(CLUSTER)}")
        if isinstance(target, BelongsToRun):
            target.begin(run.run_id)
        with measured_by_this_process(store, run.run_id):
            yield target
        if not keep:
            target.reset()
    finally:
        target.close()


def clone_trial(
    target: Target,
    profile: Profile,
    *,
    nbytes: int | None,
    repeats: int,
    seconds: float,
    seed: int,
    cache: CacheCondition,
) -> Trial:
    """Return the trial of a clone: fio on a client's volume, or the simulated workload on a simulated target.

    Args:
        target: on which it will run.
        profile: of the workload.
        nbytes: size of the used part of the volume; None: the footprint of the workload.
        repeats: runs per configuration.
        seconds: of each run.
        seed: of the order of runs, and of the clone's random choices.
        cache: the condition of the cluster's caches before each run.

    Raises:
        InputError: the clients of the target are guests, or the profile has no accesses.
    """
    from cephfit.lab.lab_target import LabTarget
    from cephfit.lab.workloads.fio_clone import FioClone
    from cephfit.mapper.models.access_weights import counted_demands
    from cephfit.sweep.trial import Trial
    from cephfit.targets.abilities import RunsGuestJobs
    from cephfit.targets.simulated import SimulatedTarget
    from cephfit.targets.simulated_workload import LEAST_NBYTES, SimulatedClone
    from cephfit.traces.replay.clone_job import clone_of

    if isinstance(target, SimulatedTarget):
        simulated = SimulatedClone(target, profile)
        return Trial(simulated, LEAST_NBYTES, repeats=repeats, seconds=seconds, seed=seed, cache=cache)
    if isinstance(target, RunsGuestJobs):
        raise InputError(
            "a clone runs on a device of this machine, not in guests",
            where=f"--target {target.name}",
            remedy="probe on the cluster below the cloud: --target ceph",
        )
    clone = clone_of(profile, profile.demands or counted_demands(profile), nbytes=nbytes)
    workload = FioClone(clone, unmeasured=target.full_speed if isinstance(target, LabTarget) else nullcontext)
    return Trial(workload, workload.volume_nbytes, repeats=repeats, seconds=seconds, seed=seed, cache=cache)
