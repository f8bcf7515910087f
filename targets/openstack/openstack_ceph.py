"""OpenStack together with the Ceph below it: the cluster is configured, and measured from virtual machines.

The images of Cinder's volumes on the Ceph cluster below a cloud: where they lie, and the room to fill them.
"""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from openstack.connection import Connection

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.environment.scopes import CLIENT_DISK, OSD_STORE, base_scope
from cephfit.ceph.options import option_catalogue as options
from cephfit.ceph.pools.pool_plan import POOL_PREFIX
from cephfit.cloud.capacity.pool_capacity import CinderPool
from cephfit.cloud.cloud_choice import CloudChoice
from cephfit.cloud.stacks import Node
from cephfit.cloud.volumes import cinder_volumes
from cephfit.core.errors import ClusterError
from cephfit.core.optional_modules import optional_module
from cephfit.core.protocols import Applied, Health, Progress
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.core.values.measurement import PlannedSweep
from cephfit.core.values.preview import Preview, Undoing
from cephfit.measure.telemetry.telemetry_collector import ClusterWitness
from cephfit.measure.validity.disturbances import MapWatch, Mark
from cephfit.measure.validity.foreign_io import StrangersInPool, StrangersInPools
from cephfit.targets.abilities import HasCatalogue, HasWitness, TellsDisturbances, WarnsOfSettings
from cephfit.targets.ceph.ceph_target import CephTarget
from cephfit.targets.openstack.openstack_target import OpenStackTarget

_IMAGE = "volume-{}"
"""What Cinder's driver calls the image of a volume."""
_ID_OBJECT = f"rbd_id.{_IMAGE}"
"""The object by which librbd finds an image by its name."""


class HasFreeCapacity(Protocol):
    """Knows how much a cluster's pools can still take."""

    def require(self, pool: str, nbytes: int) -> None:
        """Raises:
        ClusterError: so much does not fit.
        """


def image_of(volume: str) -> str:
    """The name of the image of a volume, by the volume's identifier."""
    return _IMAGE.format(volume)


class CinderImages:
    """Looks at images, and changes nothing.

    Args:
        cluster: the librados connection to it.
        name: of the cluster, for messages.
    """

    def __init__(self, cluster: Any, name: str) -> None:
        self._rados, self._rbd = optional_module("rados"), optional_module("rbd")
        self._cluster = cluster
        self._name = name

    def pools_of(self, nodes: Iterable[Node]) -> Mapping[str, int]:
        """The pools in which guests' volumes lie, and how many in each.

        Raises:
            ClusterError: this cluster has none of them: the cloud's volumes lie on another one.
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
        """Of an image's first bytes, those that take room in its pool already, by whole objects, before copies."""
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
            return 0  # then all of it counts as not written yet
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
    """See that the pools of guests' volumes have room for what is about to be written to each.

    What was written before, under whatever options, is overwritten in place. What a killed filling wrote no note
    tells, so images are asked where the room would be too little for all of it.

    Args:
        nodes: the guests.
        nbytes: that each volume will hold.
        cloud: keeps notes with the volumes of what they hold.
        images: of the volumes.
        room: of the cluster's pools.

    Raises:
        ClusterError: it does not fit.
    """
    homes: dict[str, dict[str, int]] = {}
    for node in nodes:
        more = cinder_volumes.unwritten(cloud, node.volume, nbytes)
        for pool in images.pools_of([node]) if more else ():
            homes.setdefault(pool, {})[node.volume] = more
    for pool, wanted in homes.items():
        try:
            capacity.require(pool, sum(wanted.values()))
        except ClusterError:
            left = sum(min(more, nbytes - images.used(pool, v, nbytes)) for v, more in wanted.items())
            if left == sum(wanted.values()):
                raise
            if left:
                capacity.require(pool, left)


class OpenStackWithCeph(OpenStackTarget, HasCatalogue, WarnsOfSettings, HasWitness, TellsDisturbances):
    """An ``OpenStackTarget`` whose configurations may also set what a ``CephTarget`` sets on a cluster as a whole.

    Options of daemons and the hosts of OSDs are the Ceph target's: applied, read back, journalled and undone by
    it. Volumes are Cinder's, so pools are chosen as volume types, and options of clients are those of the compute
    hosts. A volume that was written under other options of Ceph is written again.

    Args:
        choice: see OpenStackTarget.
        open_ceph: opens the cluster below the cloud, once the cloud has answered: as a target, and a connection
            besides. This target closes both.
        for_change: see OpenStackTarget.
        progress: hears what takes long.
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
            strangers=StrangersInPools(lambda: self._volume_pools, self._strangers_in),
        )

    def facts(self) -> Mapping[str, Any]:
        ours, ceph = super().facts(), self._ceph.facts()
        return {**ceph, **ours, "versions": {**ceph.get("versions", {}), **ours.get("versions", {})}}

    def catalogue(self) -> options.Catalogue:
        """The options of the cluster."""
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
            if said := [one for s in configuration.settings if (one := why_not_below_a_cloud(s))]:
                reasons.setdefault(configuration.name, []).extend(said)
        return {name: tuple(dict.fromkeys(why)) for name, why in reasons.items()}

    def without_effect(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """See ``WarnsOfSettings``."""
        return self._ceph.without_effect([cluster_part(c) for c in configurations])

    def preview(self, sweep: PlannedSweep) -> Preview:
        """See ``Previews``: what changes on the cluster, and in the cloud, where all volumes are Cinder's."""
        skipped = self.unsupported(sweep.configurations)
        kept = [c for c in sweep.configurations if c.name not in skipped]
        # No volumes of ours on the cluster itself.
        measurement = replace(sweep.measurement, volume_nbytes=0)
        below = replace(sweep, configurations=tuple(map(cluster_part, kept)), measurement=measurement)
        cluster = self._ceph.preview(below)
        return replace(
            cluster,
            differences=(*self._forecast.differences(kept), *cluster.differences),
            notes=(*self._forecast.notes(sweep, kept, self._pools()), *cluster.notes),
        )

    def undoings(self) -> Sequence[Undoing]:
        """What ``reset`` would take back now."""
        return [*super().undoings(), *self._ceph.undoings()]

    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        started = time.monotonic()
        if against := self.unsupported([configuration]).get(configuration.name):
            return Applied(configuration.name, False, tuple(against), {})
        below = cluster_part(configuration)
        # No clients of the cluster's own: those are guests, and their volumes are Cinder's.
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
        self._map_watch.keep_looking()  # this is what is asked all the while a sample is taken
        guests, ceph = super().health(), self._ceph.health()
        reasons = (*guests.reasons, *ceph.reasons)
        return Health(guests.ok and ceph.ok, reasons, {**ceph.observed, **guests.observed})

    def witness(self) -> ClusterWitness:
        """See ``HasWitness``."""
        return self._ceph.witness()

    def mark(self) -> Mark:
        """See ``TellsDisturbances``."""
        return self._map_watch.mark()

    def disturbances_since(self, mark: Mark) -> tuple[str, ...]:
        """See ``TellsDisturbances``. Others' volumes in the pools of ours are told apart by image."""
        return self._map_watch.disturbances_since(mark)

    def reset(self) -> None:
        try:
            super().reset()
        except ClusterError:  # that a stack stays is no reason to leave the cluster as it was measured
            self._ceph.reset()
            raise
        self._ceph.reset()

    def close(self) -> None:
        try:
            self._ceph.close()
        finally:
            self._admin.close()
            super().close()

    def _strangers_in(self, pool: str) -> StrangersInPool:
        return StrangersInPool(self._admin, pool, lambda image: image in self._images, note=self._progress.note)

    def _pools(self) -> Sequence[CinderPool] | None:
        """Of those on this cluster it says itself what room there is: Cinder asks it once in a minute only."""
        found = super()._pools()
        if found is None:
            return None
        fsid = self._admin.cluster.get_fsid()
        return [
            replace(pool, free_nbytes=self._ceph.capacity.in_pool(pool.ceph_pool)) if pool.fsid == fsid else pool
            for pool in found
        ]

    def _before_filling(self, nodes: Sequence[Node], nbytes: int) -> None:
        """See that the pools have room, also where nobody could tell before which ones they would be."""
        if not self._choice.overcommit:
            images, capacity = self._cinder_images, self._ceph.capacity
            require_capacity_to_fill(nodes, nbytes, cloud=self._cloud, images=images, capacity=capacity)


def cluster_part(configuration: Configuration) -> Configuration:
    """What a configuration says of the cluster: options of Ceph, and the hosts around it."""
    return replace(
        configuration, settings=tuple(s for s in configuration.settings if s.partition is not Partition.POOL)
    )


def cloud_part(configuration: Configuration) -> Configuration:
    """What a configuration says of pools, which a cloud's users choose as volume types."""
    return replace(configuration, settings=tuple(configuration.within(Partition.POOL)))


def written_under(configuration: Configuration) -> str:
    """What a volume's note says of the options that it was written under; empty for the cluster as it is."""
    text = "\n".join(str(setting) for setting in sorted(configuration.settings))
    return hashlib.sha256(text.encode()).hexdigest()[:16] if text else ""


def why_not_below_a_cloud(setting: Setting) -> str:
    """Why a setting that the cluster itself could have cannot be measured from guests; empty if it can."""
    scope = base_scope(setting.scope)
    if (setting.partition, scope) == (Partition.CEPH, "client"):
        return (
            f"{setting} is for clients, and guests' volumes are opened by the compute hosts, with the options of "
            "their ceph.conf"
        )
    if (setting.partition, scope) == (Partition.GREATER, CLIENT_DISK):
        return f"{setting} is for disks of this machine, and the clients' disks are those of the guests"
    if (setting.partition, scope) == (Partition.GREATER, OSD_STORE):
        return f"{setting} recreates OSDs, and the cloud's volumes are on them"
    return ""
