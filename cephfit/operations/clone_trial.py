"""The trial that runs a clone of a workload on a target."""

from contextlib import nullcontext

from cephfit.core.errors import InputError
from cephfit.core.protocols import Target
from cephfit.core.values.measurement import CacheCondition
from cephfit.core.values.profile import Profile
from cephfit.lab.lab_target import LabTarget
from cephfit.lab.workloads.fio_clone import FioClone
from cephfit.mapper.access_weights import counted_demands
from cephfit.sweep.verification import Trial
from cephfit.targets.abilities import RunsGuestJobs
from cephfit.targets.simulated import SimulatedTarget
from cephfit.targets.simulated_workload import LEAST_NBYTES, SimulatedClone
from cephfit.traces.replay.clone_job import clone_of


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
