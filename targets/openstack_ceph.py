"""OpenStack together with its Ceph cluster: the cluster is configured, and measured from virtual machines."""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from openstack.connection import Connection

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.environment.scopes import CLIENT_DISK, CLIENT_NETWORK, OSD_STORE, base_scope
from cephfit.ceph.options import option_catalogue as options
from cephfit.ceph.pools.pool_plan import POOL_PREFIX
from cephfit.cloud.cloud_choice import CloudChoice
from cephfit.cloud.free_capacity import CinderPool
from cephfit.cloud.stacks import Node
from cephfit.cloud.volumes import cinder_volumes
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.errors import ClusterError
from cephfit.core.optional_modules import optional_module
from cephfit.core.protocols import Applied, Health, Progress
from cephfit.core.values.configuration import Configuration, Partition, Preview, Setting, Undoing
from cephfit.core.values.measurement import PlannedSweep
from cephfit.measure.disturbances import ForeignIoInPool, ForeignIoInPools, MapWatch, Mark
from cephfit.measure.telemetry.telemetry_collector import ClusterTelemetryCollector
from cephfit.targets.abilities import HasCatalogue, HasTelemetry, ReportsDisturbances, WarnsOfSettings
from cephfit.targets.ceph.ceph_target import CephTarget
from cephfit.targets.openstack_target import OpenStackTarget

_IMAGE = "volume-{}"
"""Name of a volume's image, as Cinder's RBD driver sets it."""
_ID_OBJECT = f"rbd_id.{_IMAGE}"
"""Name of the object by which librbd finds an image."""


class HasFreeCapacity(Protocol):
    """Knows the free capacity of a cluster's pools."""

    def require(self, pool: str, nbytes: int) -> None:
        """Check that a pool can take this number of bytes.

        Raises:
            ClusterError: the pool's free capacity is too small.
        """


def image_of(volume: str) -> str:
    """Return the name of a volume's image, by the volume's identifier."""
    return _IMAGE.format(volume)


class CinderImages:
    """The images of Cinder's volumes on a Ceph cluster, read-only.

    Args:
        cluster: the librados connection to the cluster.
        name: of the cluster, for messages.
    """

    def __init__(self, cluster: Any, name: str) -> None:
        self._rados, self._rbd = optional_module("rados"), optional_module("rbd")
        self._cluster = cluster
        self._name = name

    def pools_of(self, nodes: Iterable[Node]) -> Mapping[str, int]:
        """Return the pools of the guests' volumes, with the number of volumes in each.

        Raises:
            ClusterError: a volume is not on this cluster, so the cloud's volumes are on another one.
        """
        found: dict[str, int] = {}
        for node in nodes:
            homes = [pool for pool in self._cluster.list_pools() if self._holds(pool, node.volume)]
            if not homes:
                raise ClusterError(
                    f"volume {node.volume} of client {node.name} is not on this cluster",
                    where=self._name,
                    remedy="name the Ceph cluster on which the cloud's Cinder keeps its volumes",
                )
            found.update({home: found.get(home, 0) + 1 for home in homes})
        return found

    def used(self, pool: str, volume: str, nbytes: int) -> int:
        """Return how many of an image's first bytes are allocated, in whole objects, without replication."""
        found = 0

        def add(_offset: int, length: int, is_there: bool) -> None:
            nonlocal found
            found += length if is_there else 0

        try:
            with (
                self._cluster.open_ioctx(pool) as pool_of,
                self._rbd.Image(pool_of, image_of(volume), read_only=True) as image,
            ):
                image.diff_iterate(0, min(nbytes, image.size()), None, add, whole_object=True)
        except (self._rbd.Error, self._rados.Error):
            return 0  # the whole image then counts as not written
        return min(found, nbytes)

    def _holds(self, pool: str, volume: str) -> bool:
        try:
            with self._cluster.open_ioctx(pool) as pool_of:
                pool_of.stat(_ID_OBJECT.format(volume))
        except self._rados.ObjectNotFound:
            return False
        return True


def require_capacity_to_fill(
    nodes: Sequence[Node], nbytes: int, *, cloud: Connection, images: CinderImages, capacity: HasFreeCapacity
) -> None:
    """Check that the pools of guests' volumes have capacity for the data that is about to be written.

    Data from earlier fillings is overwritten in place, under any options. No note records what a killed filling
    wrote. So the images are examined where the capacity would be too small for all data.

    Args:
        nodes: the guests.
        nbytes: final size of each volume's data.
        cloud: keeps notes about the data with the volumes.
        images: of the volumes.
        capacity: of the cluster's pools.

    Raises:
        ClusterError: the data does not fit.
    """
    homes: dict[str, dict[str, int]] = {}
    for node in nodes:
        more = cinder_volumes.unwritten(cloud, node.volume, nbytes)
        for pool in images.pools_of([node]) if more else ():
            homes.setdefault(pool, {})[node.volume] = more
    for pool, unwritten in homes.items():
        try:
            capacity.require(pool, sum(unwritten.values()))
        except ClusterError:
            left = sum(min(more, nbytes - images.used(pool, v, nbytes)) for v, more in unwritten.items())
            if left == sum(unwritten.values()):
                raise
            if left:
                capacity.require(pool, left)


class OpenStackWithCeph(OpenStackTarget, HasCatalogue, WarnsOfSettings, HasTelemetry, ReportsDisturbances):
    """An ``OpenStackTarget`` that also applies settings to the cloud's Ceph cluster.

    A ``CephTarget`` applies, reads back, journals and undoes options of daemons and settings of OSD hosts. Volumes
    are Cinder's, so configurations choose pools as volume types, and clients use the options of the compute hosts.
    A volume that was written under other options of Ceph is written again.

    Args:
        choice: see OpenStackTarget.
        open_ceph: opens the cloud's cluster after the cloud has answered. It returns a target and a connection;
            this target closes both.
        for_change: see OpenStackTarget.
        progress: shows long steps.
    """

    def __init__(
        self,
        choice: CloudChoice,
        open_ceph: Callable[[], tuple[CephTarget, RadosAdmin]],
        *,
        for_change: bool = True,
        progress: Progress | None = None,
    ) -> None:
        super().__init__(choice, for_change=for_change, progress=progress)
        try:
            self._ceph, self._admin = open_ceph()
        except BaseException:
            super().close()
            raise
        self.name = f"{self.name}+{self._ceph.name}"
        self._cinder_images = CinderImages(self._admin.cluster, self._ceph.name)
        self._volume_pools: frozenset[str] = frozenset()
        self._images: frozenset[str] = frozenset()
        self._map_watch = MapWatch(
            self._admin,
            lambda pool: pool in self._volume_pools or pool.startswith(POOL_PREFIX),
            foreign_io=ForeignIoInPools(lambda: self._volume_pools, self._foreign_io_in),
        )

    def facts(self) -> Mapping[str, Any]:
        ours, ceph = super().facts(), self._ceph.facts()
        return {**ceph, **ours, "versions": {**ceph.get("versions", {}), **ours.get("versions", {})}}

    def catalogue(self) -> options.Catalogue:
        """Return the options of the cluster."""
        return self._ceph.catalogue()

    def unsupported(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        configurations = tuple(configurations)
        reasons: dict[str, list[str]] = {}
        for judged in (
            self._ceph.unsupported([cluster_part(c) for c in configurations]),
            super().unsupported([cloud_part(c) for c in configurations]),
        ):
            for name, why in judged.items():
                reasons.setdefault(name, []).extend(why)
        for configuration in configurations:
            if against := [one for s in configuration.settings if (one := why_not_below_a_cloud(s))]:
                reasons.setdefault(configuration.name, []).extend(against)
        return {name: tuple(dict.fromkeys(why)) for name, why in reasons.items()}

    def without_effect(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """See ``WarnsOfSettings``."""
        return self._ceph.without_effect([cluster_part(c) for c in configurations])

    def preview(self, sweep: PlannedSweep) -> Preview:
        """See ``Previews``: the changes on the cluster and in the cloud."""
        skipped = self.unsupported(sweep.configurations)
        kept = [c for c in sweep.configurations if c.name not in skipped]
        # All volumes are Cinder's, so the Ceph target creates none.
        measurement = replace(sweep.measurement, volume_nbytes=0)
        below = sweep.changed_to(tuple(map(cluster_part, kept)), measurement)
        cluster = self._ceph.preview(below)
        return replace(
            cluster,
            differences=(*self._forecast.differences(kept), *cluster.differences),
            notes=(*self._forecast.notes(sweep, kept, self._pools()), *cluster.notes),
        )

    def undoings(self) -> Sequence[Undoing]:
        """Return what ``reset`` would undo now."""
        return [*super().undoings(), *self._ceph.undoings()]

    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        started = time.monotonic()
        if against := self.unsupported([configuration]).get(configuration.name):
            return Applied(configuration.name, False, tuple(against), {})
        below = cluster_part(configuration)
        # The Ceph target has no clients: the clients are guests with Cinder's volumes.
        ceph = self._ceph.apply(below, n_clients=0, volume_nbytes=volume_nbytes, fill=False)
        if not ceph.ok:
            return ceph
        self._written_under = written_under(below)
        ours = super().apply(
            cloud_part(configuration), n_clients=n_clients, volume_nbytes=volume_nbytes, fill=fill
        )
        self._volume_pools |= self._cinder_images.pools_of(self._nodes).keys()
        self._images |= {image_of(node.volume) for node in self._nodes}
        return Applied(
            configuration.name,
            ours.ok,
            ours.mismatches,
            {**ceph.read_back, **ours.read_back},
            ceph.restarted,
            time.monotonic() - started,
        )

    def health(self) -> Health:
        self._map_watch.poll()  # this method is called repeatedly while a sample is taken
        guests, ceph = super().health(), self._ceph.health()
        reasons = (*guests.reasons, *ceph.reasons)
        return Health(guests.ok and ceph.ok, reasons, {**ceph.observed, **guests.observed})

    def telemetry(self) -> ClusterTelemetryCollector:
        """See ``HasTelemetry``."""
        return self._ceph.telemetry()

    def mark(self) -> Mark:
        """See ``ReportsDisturbances``."""
        return self._map_watch.mark()

    def disturbances_since(self, mark: Mark) -> tuple[str, ...]:
        """See ``ReportsDisturbances``. Other volumes in the same pools are distinguished by image."""
        return self._map_watch.disturbances_since(mark)

    def reset(self) -> None:
        tried = ErrorCollector()
        tried.make(super().reset)
        tried.make(self._ceph.reset)  # also if a stack could not be deleted
        tried.end()

    def close(self) -> None:
        try:
            self._ceph.close()
        finally:
            self._admin.close()
            super().close()

    def _foreign_io_in(self, pool: str) -> ForeignIoInPool:
        return ForeignIoInPool(self._admin, pool, lambda image: image in self._images, note=self._progress.note)

    def _pools(self) -> Sequence[CinderPool] | None:
        """Return Cinder's pools with the cluster's own figures, because Cinder updates them only once a minute."""
        found = super()._pools()
        if found is None:
            return None
        fsid = self._admin.cluster.get_fsid()
        return [
            replace(pool, free_nbytes=self._ceph.capacity.in_pool(pool.ceph_pool)) if pool.fsid == fsid else pool
            for pool in found
        ]

    def _before_filling(self, nodes: Sequence[Node], nbytes: int) -> None:
        """Check the capacity of the pools, which may be known only now."""
        if not self._choice.overcommit:
            images, capacity = self._cinder_images, self._ceph.capacity
            require_capacity_to_fill(nodes, nbytes, cloud=self._cloud, images=images, capacity=capacity)


def cluster_part(configuration: Configuration) -> Configuration:
    """Return a configuration's settings of the cluster: options of Ceph, and hosts around it."""
    return replace(
        configuration, settings=tuple(s for s in configuration.settings if s.partition is not Partition.POOL)
    )


def cloud_part(configuration: Configuration) -> Configuration:
    """Return a configuration's settings of pools, which a cloud's users choose as volume types."""
    return replace(configuration, settings=tuple(configuration.within(Partition.POOL)))


def written_under(configuration: Configuration) -> str:
    """Return a digest of the options under which a volume is written; empty for the unchanged cluster."""
    text = "\n".join(str(setting) for setting in sorted(configuration.settings))
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""


def why_not_below_a_cloud(setting: Setting) -> str:
    """Return why a setting of the cluster cannot be measured from guests; empty if it can."""
    scope = base_scope(setting.scope)
    if (setting.partition, scope) == (Partition.CEPH, "client"):
        return (
            f"{setting} is for clients, and guests' volumes are opened by the compute hosts, with the options of "
            "their ceph.conf"
        )
    if (setting.partition, scope) == (Partition.GREATER, CLIENT_DISK):
        return f"{setting} is for disks of this machine, and the clients' disks are those of the guests"
    if (setting.partition, scope) == (Partition.GREATER, CLIENT_NETWORK):
        return f"{setting} is for clients on this machine, and the clients are guests"
    if (setting.partition, scope) == (Partition.GREATER, OSD_STORE):
        return f"{setting} recreates OSDs, and the cloud's volumes are on them"
    return ""
