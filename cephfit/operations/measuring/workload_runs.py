"""Runs of workloads on a measured sweep: which run, on which target, and the trial of a clone.

`cephfit verify`, `probe` and `evaluate` share them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from cephfit.core.errors import InputError, StoreError
from cephfit.core.values.sample import CLUSTER, is_another_cluster

if TYPE_CHECKING:
    from cephfit.core.protocols import Progress, Target
    from cephfit.core.values.measurement import CacheCondition
    from cephfit.core.values.profile import Profile
    from cephfit.core.values.sample import Run
    from cephfit.operations.measuring.cluster_options import ClusterOptions
    from cephfit.results.store.sample_store import Store
    from cephfit.sweep.sweep_plan import Sweep
    from cephfit.sweep.verification import Trial


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
    from cephfit.sweep.verification import Trial
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
