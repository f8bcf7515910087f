"""OpenStack together with the Ceph below it: the cluster is configured, and measured from virtual machines."""

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cephfit.configuration import Configuration, Partition, Setting
from cephfit.errors import ClusterError
from cephfit.measurement import PlannedSweep
from cephfit.protocols import Applied, Health, Progress
from cephfit.sweep.abilities import HasCatalogue, HasWitness, TellsDisturbances, WarnsOfSettings
from cephfit.sweep.admin.rados_admin import RadosAdmin
from cephfit.sweep.cloud.choice import CloudChoice
from cephfit.sweep.cloud.pool_room import CinderPool
from cephfit.sweep.cloud.stacks import Node
from cephfit.sweep.greater.scopes import CLIENT_DISK, OSD_STORE, base_scope
from cephfit.sweep.pools.pool_names import POOL_PREFIX
from cephfit.sweep.preview import Preview, Undoing
from cephfit.sweep.settings import catalogue as options
from cephfit.sweep.targets.ceph import CephTarget
from cephfit.sweep.targets.openstack import OpenStackTarget
from cephfit.sweep.targets.openstack_images import CinderImages, image_of, require_room_to_fill
from cephfit.sweep.telemetry.witness import ClusterWitness
from cephfit.sweep.validity.disturbances import MapWatch, Mark
from cephfit.sweep.validity.strangers import StrangersInPool, StrangersInPools


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
            replace(pool, free_nbytes=self._ceph.room.in_pool(pool.ceph_pool)) if pool.fsid == fsid else pool
            for pool in found
        ]

    def _before_filling(self, nodes: Sequence[Node], nbytes: int) -> None:
        """See that the pools have room, also where nobody could tell before which ones they would be."""
        if not self._choice.overcommit:
            images, room = self._cinder_images, self._ceph.room
            require_room_to_fill(nodes, nbytes, cloud=self._cloud, images=images, room=room)


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
