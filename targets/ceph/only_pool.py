"""Changes within one pool of an existing cluster: images in it, and nothing else."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from cephfit.ceph.cluster_adapters import ReadValues
from cephfit.ceph.pools.declared_pools import DeclaredPools
from cephfit.ceph.pools.osd_capacity import OsdCapacity, fits_note, memory_targets
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
from cephfit.targets.ceph.cluster_changes import ChangeResult

_IMAGE = "image"


class OnlyPool:
    """Implements ``ClusterChanges`` without the config store, restarts, and creation or changes of pools.

    It allows settings of images, options of clients (in the clients' own ceph.conf, which overrides the config
    store) and settings of the clients' disks.

    Args:
        pool: an existing pool that may be used.
        admin: sends commands.
        journal: of the target; every image is in it before it is created.
        volumes: creates and deletes images.
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
            f"only pool {self._pool} may be changed, so no pools are created, changed or deleted",
            where="--only-pool",
            remedy="remove this option",
        )

    def clear_up(self) -> None:
        """Do nothing: this target leaves nothing that affects the cluster's health."""

    def delete_pools(self) -> None:
        """Do nothing: this target creates no pool."""

    def apply_configuration(self, configuration: Configuration) -> ChangeResult:
        self._require_pool()
        return ChangeResult(self._pool)

    def before_creating(self, volume: Volume) -> None:
        if self._journal.get(_IMAGE, str(volume)) is None and self._volumes.exists(volume):
            raise InputError(
                "an image of this name exists, and cephfit did not create it according to the journal",
                where=f"image {volume}",
                remedy="rename or delete it",
            )
        self._journal.note(_IMAGE, str(volume), None)

    def has_made(self, image: str) -> bool:
        """Return whether cephfit created an image of the pool."""
        return self._journal.get(_IMAGE, f"{self._pool}/{image}") is not None

    def free_nbytes(self, pool: str) -> int | None:
        for entry in self._admin.command("df")["pools"]:
            if entry["name"] == pool:
                return int(entry["stats"]["max_avail"]) or None
        return None

    def raw_ratio(self, pool: str) -> float:
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
        osds = OsdCapacity(self._admin).rule(int(rule))
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
                remedy=f"create it: ceph osd pool create {self._pool}; rbd pool init {self._pool}",
            )

    def _against(self, setting: Setting) -> str:
        place = (setting.partition, setting.scope.partition("/")[0])
        if place in ((Partition.POOL, "image"), (Partition.CEPH, "client"), (Partition.GREATER, "client_disk")):
            return ""
        needs = {
            Partition.POOL: "its own pool",
            Partition.CEPH: "the cluster's config store",
            Partition.GREATER: "the hosts of OSDs",
        }[setting.partition]
        return f"{setting.key} needs {needs}, and only pool {self._pool} may be changed"
