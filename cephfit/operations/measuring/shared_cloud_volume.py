"""Measure one Cinder volume of a multi-attach type that several guests of an OpenStack cloud use."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from cephfit.core.errors import ClusterError, InputError
from cephfit.core.protocols import Progress
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION, Configuration
from cephfit.core.values.sample import new_run_id
from cephfit.measure.fio.fio_remote import MOST_SKEW
from cephfit.measure.shared_volume.access_plan import LockWay, SharedLoad
from cephfit.measure.shared_volume.guest_fio import require_whole_per_cent, run_in_guests
from cephfit.operations.measuring.cluster_options import ClusterOptions
from cephfit.operations.measuring.shared_volume import SharingPlan, SharingResults, measured_rounds
from cephfit.operations.measuring.target_choice import require_openstack

if TYPE_CHECKING:
    from cephfit.targets.openstack.openstack_target import SharedVolumeTarget

_WHY_NOT = {
    LockWay.EXCLUSIVE: "Cinder removes the feature exclusive-lock from the images of multi-attach volumes",
    LockWay.RANGES: "range locks are librados locks, and guests have neither librados nor access to the cluster",
}
_MISSING = (
    f"exclusive-lock and its hand-over were not measured: {_WHY_NOT[LockWay.EXCLUSIVE]}",
    f"ranges were not measured: {_WHY_NOT[LockWay.RANGES]}",
    "OCFS2 and GFS2 were not measured: cephfit has no set-up of their lock managers in guests",
)

_MOST_ATTEMPTS = 3
"""For a run whose guests end together."""


def is_cloud(target_text: str) -> bool:
    """Return whether the clients of a target are guests of a cloud."""
    return target_text.partition(":")[0] == "openstack"


def measure_in_guests(
    target_text: str, plan: SharingPlan, *, pool: str, cluster: ClusterOptions, progress: Progress
) -> SharingResults:
    """Create guests and their volume, measure, and delete everything that was created.

    Args:
        target_text: ``openstack:CLOUD,flavor=NAME,network=NAME,volume_type=NAME,...``.
        plan: what to measure; its only way is ``none``.
        pool: must be empty: the volume type chooses it.
        cluster: must be empty: no cluster is accessed.
        progress: shows the runs.

    Raises:
        InputError: the plan or the target cannot be measured in guests.
        ClusterError: the cloud or a guest failed.
    """
    _require_measurable(plan, pool, cluster)
    skews: list[float] = []
    with _guests(target_text, progress) as target:
        applied = target.apply(
            Configuration(DEFAULT_CONFIGURATION), n_clients=plan.n_clients, volume_nbytes=plan.volume_nbytes
        )
        if not applied.ok:
            raise ClusterError("; ".join(applied.mismatches), where=target.name)
        runs = measured_rounds(plan, partial(_run, target, plan, skews), progress)
    return SharingResults(runs, missing=(*_skewed(skews, plan.run_seconds), *_MISSING))


def _require_measurable(plan: SharingPlan, pool: str, cluster: ClusterOptions) -> None:
    for way in plan.ways:
        if way in _WHY_NOT:
            raise InputError(
                f"{way} cannot be measured in guests: {_WHY_NOT[way]}",
                where="--way",
                remedy="use --way none, or measure it on the cluster: --target lab or ceph",
            )
    for load in plan.loads():
        require_whole_per_cent(load)
    if pool or cluster.given():
        raise InputError(
            "the volume type of the target chooses the pool, and the cluster itself is not accessed",
            where="--pool" if pool else ", ".join(cluster.given()),
            remedy="omit it",
        )


@contextmanager
def _guests(target_text: str, progress: Progress) -> "Iterator[SharedVolumeTarget]":
    """Open the cloud, and delete what was created in it at the end."""
    require_openstack(f"--target {target_text}")
    from cephfit.cloud.cloud_choice import parse_choice
    from cephfit.targets.openstack.openstack_target import SharedVolumeTarget

    choice = parse_choice(target_text)
    if choice.ceph or choice.lab:
        raise InputError(
            "ceph= and lab= name a cluster to configure, and nothing is configured here",
            where=f"--target {target_text}",
            remedy="omit it",
        )
    target = SharedVolumeTarget(choice, progress=progress)
    try:
        target.begin(new_run_id("shared-volume", time.time_ns()))
        try:
            yield target
        finally:
            target.reset()
    finally:
        target.close()


def _run(
    target: "SharedVolumeTarget", plan: SharingPlan, skews: list[float], load: SharedLoad, seed: int
) -> tuple[dict[str, Any], ...]:
    """Run a load in all guests, again if they did not end together; append how far apart they ended."""
    for _ in range(_MOST_ATTEMPTS):
        run = run_in_guests(
            load, target.clients(), ramp_seconds=plan.ramp_seconds, run_seconds=plan.run_seconds, seed=seed
        )
        if not _is_skewed(run.skew_seconds, plan.run_seconds):
            break
    skews.append(run.skew_seconds)
    return run.outcomes()


def _is_skewed(skew_seconds: float, run_seconds: float) -> bool:
    return skew_seconds > MOST_SKEW * run_seconds


def _skewed(skews: list[float], run_seconds: float) -> tuple[str, ...]:
    """Return a sentence on runs whose guests did not end together; none if all did."""
    n_apart = sum(_is_skewed(skew, run_seconds) for skew in skews)
    if not n_apart:
        return ()
    return (
        f"in {n_apart} of {len(skews)} runs the guests ended up to {max(skews):.2f} s apart, of {run_seconds:g} s "
        f"measured, also at the last of {_MOST_ATTEMPTS} attempts: the figures are doubtful, use longer --seconds",
    )
