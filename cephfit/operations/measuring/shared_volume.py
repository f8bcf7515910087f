"""Measure one RBD image or Cinder volume that several clients use.

An RBD image is measured without locks, with exclusive-lock and with range locks. A Cinder volume has a
multi-attach type, and guests of an OpenStack cloud use it.
"""

import random
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.volumes import Volume, Volumes
from cephfit.core.cleanup import cleaned_up_by
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.protocols import Progress
from cephfit.core.values.cells import Op
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION, Configuration, Partition, Setting
from cephfit.core.values.sample import new_run_id
from cephfit.measure.engine import SLOWEST_NBYTES_PER_S
from cephfit.measure.fio.fio_remote import MOST_SKEW
from cephfit.measure.sharing_client import LOCK_NAMESPACE, LockWay, SharedLoad
from cephfit.measure.sharing_runs import ClusterAccess, SharingClients, require_whole_per_cent, run_in_guests
from cephfit.operations.measuring.cluster_options import ClusterOptions
from cephfit.operations.measuring.target_choice import cluster_choice, open_target, require_openstack
from cephfit.results.statistics.sharing_cost import ClientFigures, HandOver, SharingRun, hand_over_of

if TYPE_CHECKING:
    from cephfit.targets.ceph.ceph_target import CephTarget
    from cephfit.targets.ceph.change_scopes import ImagesInOtherPools
    from cephfit.targets.openstack_target import SharedVolumeTarget


_FEATURES = {LockWay.NONE: "layering", LockWay.EXCLUSIVE: "layering,exclusive-lock"}
_IMAGE = "cephfit-shared-volume"
TURN_WRITES = 8
"""Writes of a client in its turn, when clients write in turn."""


@dataclass(frozen=True, slots=True)
class SharingPlan:
    """What to measure.

    Attributes:
        ways: how clients exclude each other.
        op: direction of all accesses.
        shared_pcts: sharing degrees, in per cent of the accesses.
        ranges_nbytes: sizes of lock ranges.
        n_clients: that run together.
        access_nbytes: size of an access.
        volume_nbytes: size of the volume.
        repeats: rounds; each measures all combinations, in an order of its own.
        ramp_seconds, run_seconds: of each run.
        n_turns: when two clients write in turn; 0: they do not.
        seed: of orders and offsets.
    """

    ways: tuple[LockWay, ...]
    op: Op
    shared_pcts: tuple[float, ...]
    ranges_nbytes: tuple[int, ...]
    n_clients: int
    access_nbytes: int
    volume_nbytes: int
    repeats: int
    ramp_seconds: float
    run_seconds: float
    n_turns: int
    seed: int

    def __post_init__(self) -> None:
        if LockWay.RANGES in self.ways and not self.ranges_nbytes:
            raise InputError("range locks need a size of range", where="--range", remedy="give one, such as 4M")
        for option, nbytes in (("--size", self.access_nbytes), *(("--range", n) for n in self.ranges_nbytes)):
            if not nbytes:
                raise InputError("a size of 0 bytes is none", where=option, remedy="give a size such as 4K")
        for nbytes in self.ranges_nbytes:
            if max(nbytes, self.access_nbytes) % min(nbytes, self.access_nbytes):
                raise InputError(
                    f"a lock range of {nbytes} bytes and accesses of {self.access_nbytes} do not align",
                    where="--range",
                    remedy="use powers of two",
                )
        self.loads()  # raises for a volume that is too small

    def loads(self) -> tuple[SharedLoad, ...]:
        """Return all combinations."""
        unit = max((self.access_nbytes, *self.ranges_nbytes))
        return tuple(
            SharedLoad(
                way, self.op, self.n_clients, pct, self.access_nbytes, nbytes, self.volume_nbytes, unit_nbytes=unit
            )
            for way in self.ways
            for nbytes in (self.ranges_nbytes if way is LockWay.RANGES else (0,))
            for pct in self.shared_pcts
        )


@dataclass(frozen=True, slots=True)
class SharingResults:
    """What was measured.

    Attributes:
        runs: of all rounds, in the order of the plan.
        hand_overs: of clients that write in turn, by way.
        missing: sentences on what could not be measured here.
    """

    runs: tuple[SharingRun, ...]
    hand_overs: tuple[HandOver, ...] = ()
    missing: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SharedVolumePlace:
    """Where volumes are shared.

    Attributes:
        access: to the pool.
        full_speed: context manager that lifts a lab's disk limits.
        created: records what is created in the pool, and deletes it.
    """

    access: ClusterAccess
    full_speed: Any
    created: "ImagesInOtherPools"


@contextmanager
def shared_volume_place(
    target_text: str, pool: str, *, cluster: ClusterOptions, apply: bool, progress: Progress
) -> Iterator[SharedVolumePlace]:
    """Lock a target and yield the place in its pool.

    Args:
        target_text: a lab or an existing cluster.
        pool: name; empty for the first pool of a lab.

    Raises:
        InputError: another kind of target, or no pool is given.
        ClusterError: the target is in use, or does not answer.
    """
    kind, _, which = target_text.partition(":")
    if kind == "lab":
        from cephfit.lab.cluster import Lab

        lab = Lab.open(folder=Path(which)) if which.startswith("/") else Lab.open(which or "default")
        access = ClusterAccess(lab.conf, "admin", lab.keyring, pool or lab.spec.pool)
        full_speed: Any = lab.full_speed()
    elif kind == "ceph":
        if not pool:
            raise InputError("which pool may have the volume", where=target_text, remedy="name it with --pool")
        choice = cluster_choice(which, cluster.for_target(target_text))
        access = ClusterAccess(choice.conf, choice.client_id, choice.keyring, pool)
        full_speed = nullcontext()
    else:
        raise InputError(
            f"a volume cannot be shared on {target_text!r}",
            where="--target",
            remedy="use lab:NAME, ceph:NAME or openstack:CLOUD,...",
        )
    target = open_target(
        target_text, for_change=True, progress=progress, ioengine="rbd", cluster=cluster, leave=apply
    )
    try:
        yield SharedVolumePlace(access, full_speed, cast("CephTarget", target).in_other_pools)
    finally:
        target.close()


def measure_shared_volume(place: SharedVolumePlace, plan: SharingPlan, progress: Progress) -> SharingResults:
    """Create the volume, measure, and delete everything that was created.

    Args:
        place: its pool.
        plan: what to measure.
        progress: shows the runs.

    Raises:
        InputError: the pool does not exist, or has an image of the same name.
        ClusterError: a client or the cluster failed.
    """
    access, created = place.access, place.created
    admin = RadosAdmin(access.conf, client_id=access.client_id, keyring=access.keyring)
    try:
        images = _images(plan, access.pool)
        volumes = Volumes(admin)
        _require_pool(admin, access.pool)
        delete = partial(created.delete, LOCK_NAMESPACE, *(volume.image for volume in images.values()))
        with cleaned_up_by(delete):
            delete()  # what a killed run has left
            created.before_using(access.pool, LOCK_NAMESPACE)
            for way, volume in images.items():
                features = Setting(Partition.POOL, "image", "features", _FEATURES[way])
                created.before_creating(volume)
                volumes.ensure(Configuration("shared", (features,)), volume)
            with SharingClients(access, plan.n_clients) as clients:
                with place.full_speed:
                    for volume in images.values():
                        progress.note(f"filling {volume}")
                        clients.fill(volume.image, seconds=volume.nbytes / SLOWEST_NBYTES_PER_S)
                runs = measured_rounds(plan, partial(_run_opened, clients, plan, images), progress)
                hand_overs = _hand_overs(clients, plan, images, progress)
    finally:
        admin.close()
    return SharingResults(runs, hand_overs, missing_file_systems())


def _images(plan: SharingPlan, pool: str) -> dict[LockWay, Volume]:
    """Return the images by their way; range locks use the image without an exclusive lock."""
    ways = dict.fromkeys(LockWay.NONE if way is LockWay.RANGES else way for way in plan.ways)
    return {way: Volume(pool, f"{_IMAGE}.{way.value}", plan.volume_nbytes) for way in ways}


def _require_pool(admin: RadosAdmin, pool: str) -> None:
    if not admin.cluster.pool_exists(pool):
        raise InputError(
            f"the cluster has no pool {pool!r}", where="--pool", remedy="`ceph osd pool ls` lists them"
        )


RunLoad = Callable[[SharedLoad, int], Sequence[dict[str, Any]]]
"""Lets all clients run a load with a seed; returns what ``sharing_client.run_load`` returns, for each client."""


def measured_rounds(plan: SharingPlan, run: RunLoad, progress: Progress) -> tuple[SharingRun, ...]:
    """Measure all combinations in each round, in an order of its own; return them in the order of the plan."""
    loads = plan.loads()
    rng = random.Random(plan.seed)
    runs: dict[tuple[int, int], SharingRun] = {}
    progress.start("sharing a volume", total=len(loads) * plan.repeats)
    for repeat in range(plan.repeats):
        for number in rng.sample(range(len(loads)), len(loads)):
            load = loads[number]
            runs[repeat, number] = SharingRun(
                load.way.value,
                load.range_nbytes,
                load.shared_pct,
                repeat,
                plan.run_seconds,
                tuple(map(_figures, run(load, plan.seed + repeat))),
            )
            progress.advance(1, f"{load.way}, {load.shared_pct:g} % shared")
    progress.done()
    return tuple(runs[key] for key in sorted(runs))


def _run_opened(
    clients: SharingClients, plan: SharingPlan, images: dict[LockWay, Volume], load: SharedLoad, seed: int
) -> list[dict[str, Any]]:
    with _opened(clients, images, load.way):
        return clients.run(load, ramp_seconds=plan.ramp_seconds, run_seconds=plan.run_seconds, seed=seed)


def _hand_overs(
    clients: SharingClients, plan: SharingPlan, images: dict[LockWay, Volume], progress: Progress
) -> tuple[HandOver, ...]:
    """Let two clients write in turn to each image."""
    found = []
    for way in images if plan.n_turns else ():
        progress.note(f"two clients write in turn, {way}")
        with _opened(clients, images, way):
            turns = [
                clients.burst(turn % 2, TURN_WRITES, nbytes=plan.access_nbytes, seed=plan.seed + turn)
                for turn in range(plan.n_turns + 2)
            ]
        found.append(hand_over_of(way.value, turns[2:]))  # in their first turns clients connect to the OSDs
    return tuple(found)


@contextmanager
def _opened(clients: SharingClients, images: dict[LockWay, Volume], way: LockWay) -> Iterator[None]:
    clients.open(images[LockWay.NONE if way is LockWay.RANGES else way].image)
    yield
    clients.close()


def _figures(outcome: dict[str, Any]) -> ClientFigures:
    spent = outcome["seconds"]
    return ClientFigures(
        n=int(outcome["n"]),
        lock_seconds=float(spent["lock"]),
        access_seconds=float(spent["access"]),
        unlock_seconds=float(spent["unlock"]),
        n_busy=int(outcome["n_busy"]),
        times_ms=tuple(outcome["times_ms"]),
    )


_FILE_SYSTEMS = {"ocfs2": "OCFS2", "gfs2": "GFS2"}


def missing_file_systems(known: str | None = None) -> tuple[str, ...]:
    """Return a sentence for each cluster file system on why it is not measured.

    Args:
        known: content of /proc/filesystems; None: of this machine.
    """
    text = Path("/proc/filesystems").read_text() if known is None else known
    names = {line.split()[-1] for line in text.splitlines() if line.strip()}
    return tuple(
        f"{title} was not measured: cephfit has no set-up of its lock manager"
        if name in names or (known is None and _is_module(name))
        else f"{title} was not measured: this kernel has no file system {name} and no module of this name"
        for name, title in _FILE_SYSTEMS.items()
    )


def _is_module(name: str) -> bool:
    from cephfit.lab.machine import find_program

    modprobe = find_program("modprobe")
    if modprobe is None:
        return False
    return (
        subprocess.run([modprobe, "--dry-run", "--quiet", name], capture_output=True, check=False).returncode == 0
    )


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
    from cephfit.targets.openstack_target import SharedVolumeTarget

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
