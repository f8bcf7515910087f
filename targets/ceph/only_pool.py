"""A configuration within one pool of somebody else's cluster: images in it, and nothing besides."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from cephfit.ceph.cluster_adapters import ReadValues
from cephfit.ceph.pools.declared_pools import DeclaredPools
from cephfit.ceph.pools.osd_capacity import Beneath, fits_note, memory_targets
from cephfit.ceph.pools.pool_readback import dumped_pool
from cephfit.ceph.volumes import Volume, Volumes
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.errors import InputError
from cephfit.core.journal import Entry, Journal
from cephfit.core.protocols import CephAdmin
from cephfit.core.units import format_nbytes
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.core.values.measurement import RADOS_BENCH, CacheCondition, PlannedSweep
from cephfit.core.values.preview import HEALTHY, Difference, Preview, Undoing
from cephfit.measure.ceph_bench.rados_bench import refuse_among_images
from cephfit.targets.ceph.cluster_changes import Made

_IMAGE = "image"


class OnlyPool:
    """Implements ``ClusterChanges``: no option in the config store, no restart, no pool made or set.

    What remains are settings of images, options of clients (they stand in the clients' own ceph.conf, which beats
    the config store) and of the clients' disks.

    Args:
        pool: that is there and may be used.
        admin: sends commands.
        journal: of the target; every image is in it before it is made.
        volumes: makes and deletes images.
    """

    def __init__(self, pool: str, admin: CephAdmin, journal: Journal, volumes: Volumes) -> None:
        self._pool = pool
        self._admin = admin
        self._journal = journal
        self._volumes = volumes

    def why_not(self, configuration: Configuration) -> tuple[str, ...]:
        return tuple(why for s in configuration.settings if (why := self._against(s)))

    def declared_pools(self, journal: Journal) -> DeclaredPools:
        raise InputError(
            f"only pool {self._pool} may be touched, so no pools are made, changed or deleted",
            where="--only-pool",
            remedy="leave it out",
        )

    def clear_up(self) -> None:
        """Nothing stands in the way of the cluster's health."""

    def give_up_pools(self) -> None:
        """Nothing: no pool is ours."""

    def bring_about(self, configuration: Configuration) -> Made:
        self._require_pool()
        return Made(self._pool)

    def about_to_make(self, volume: Volume) -> None:
        if self._journal.get(_IMAGE, str(volume)) is None and self._volumes.exists(volume):
            raise InputError(
                "an image of this name is there, and the journal does not say that cephfit made it",
                where=f"image {volume}",
                remedy="rename or delete it",
            )
        self._journal.note(_IMAGE, str(volume), None)

    def has_made(self, image: str) -> bool:
        """Whether an image of the pool is of cephfit's making."""
        return self._journal.get(_IMAGE, f"{self._pool}/{image}") is not None

    def room_in(self, pool: str) -> int | None:
        for entry in self._admin.command("df")["pools"]:
            if entry["name"] == pool:
                return int(entry["stats"]["max_avail"]) or None
        return None

    def copies_in(self, pool: str) -> float:
        return int(self._admin.command("osd pool get", pool=pool, var="size")["size"])

    def read_back(self, configuration: Configuration) -> Iterable[ReadValues]:
        return ()

    def for_clients(self, configuration: Configuration) -> Configuration:
        return configuration

    def keep(self, osd_map: Callable[[], Mapping[str, Any]]) -> tuple[str, ...]:
        return ()

    def preview(self, sweep: PlannedSweep, configurations: Sequence[Configuration]) -> Preview:
        if sweep.measurement.engine == RADOS_BENCH:
            refuse_among_images(self._pool)
        self._require_pool()
        nbytes = len(configurations) * sweep.measurement.most_clients * sweep.measurement.volume_nbytes
        differences = tuple(
            Difference(c.name, "clients" if s.partition is Partition.CEPH else "images", s.key, "", str(s.value))
            for c in configurations
            for s in c.settings
            if s.partition is not Partition.GREATER
        )
        note = f"{format_nbytes(nbytes)} are written into pool {self._pool}, as images that are deleted at the end"
        notes = filter(None, (note, self._fits_note(sweep)))
        return Preview(HEALTHY, differences, {}, 0, 0.0, (), notes=tuple(notes))

    def _fits_note(self, sweep: PlannedSweep) -> str:
        if sweep.measurement.cache is not CacheCondition.WARM:
            return ""
        rule = dumped_pool(self._admin, self._pool)["crush_rule"]
        osds = Beneath(self._admin).rule(int(rule))
        return fits_note(sweep.measurement, memory_targets(self._admin, osds).values(), pool=self._pool)

    def undoings(self) -> Sequence[Undoing]:
        return [Undoing(f"image {e.place}", "there", "deleted") for e in self._journal.entries(_IMAGE)]

    def take_back(self, *, pools: bool) -> None:
        tried = ErrorCollector()
        for entry in reversed(self._journal.entries(_IMAGE)) if pools else ():
            tried.make(partial(self._remove, entry))
        tried.end()

    def _remove(self, entry: Entry) -> None:
        pool, _, image = entry.place.partition("/")
        self._volumes.remove(Volume(pool, image, 0))
        self._journal.forget(_IMAGE, entry.place)

    def _require_pool(self) -> None:
        if self._pool not in (p["poolname"] for p in self._admin.command("osd lspools")):
            raise InputError(
                f"this cluster has no pool {self._pool}",
                where="--only-pool",
                remedy=f"make it: ceph osd pool create {self._pool}; rbd pool init {self._pool}",
            )

    def _against(self, setting: Setting) -> str:
        place = (setting.partition, setting.scope.partition("/")[0])
        if place in ((Partition.POOL, "image"), (Partition.CEPH, "client"), (Partition.GREATER, "client_disk")):
            return ""
        needs = {
            Partition.POOL: "a pool of its own",
            Partition.CEPH: "the cluster's config store",
            Partition.GREATER: "the hosts of OSDs",
        }[setting.partition]
        return f"{setting.key} needs {needs}, and only pool {self._pool} may be touched"
