"""The lab as a target: a Ceph cluster on this machine whose OSDs can be recreated with other object stores."""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from cephfit.ceph.admin.daemons import Daemon
from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.cluster_adapters import ClusterAdapters, ReadValues
from cephfit.ceph.delivery.client_conf import ClientAccess
from cephfit.ceph.delivery.option_delivery import DeliveryWay, OptionDelivery
from cephfit.ceph.environment.host_settings import HostSettings, osd_places
from cephfit.ceph.environment.scopes import OSD_STORE, OsdStore, base_scope, store_of, strongest_for
from cephfit.ceph.host_access import Hosts
from cephfit.core.errors import ClusterError, HostError, InputError
from cephfit.core.journal import Journal, TargetLock
from cephfit.core.protocols import CephAdmin, Progress
from cephfit.core.units import about
from cephfit.core.values.configuration import Configuration, Partition
from cephfit.lab.cluster import Lab
from cephfit.lab.daemons.ceph_daemons import osd_name
from cephfit.lab.daemons.osd_layout import filesystem_at, require_store
from cephfit.lab.daemons.processes import owned
from cephfit.lab.devices.image_export import ImageDevices
from cephfit.targets.abilities import TrafficCounter, traffic_of
from cephfit.targets.ceph.ceph_target import CephTarget
from cephfit.targets.ceph.cluster_changes import FREE_UP


def require_disk_capacity(folder: Path, nbytes: int) -> None:
    """Check that the OSDs' sparse files, which grow as they are written, fit on the disk.

    Args:
        folder: with the files.
        nbytes: that will be written, including all copies.

    Raises:
        ClusterError: there is too little free space; states the required and the available size.
    """
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if free < nbytes:
        raise ClusterError(
            f"the volumes need {about(nbytes)} in all copies, the disk of the lab has {about(free)} free",
            where=str(folder),
            remedy=FREE_UP,
        )


_STORE = "osd store"


class LabStores:
    """Implements ``RemakesOsds``: a lab's OSDs hold only data of sweeps, so that they can be recreated.

    Args:
        lab: running.
        admin: queries the OSDs.
        journal: records the original stores of the OSDs.
    """

    def __init__(self, lab: Lab, admin: CephAdmin, journal: Journal) -> None:
        self._lab = lab
        self._admin = admin
        self._journal = journal

    def why_not(self, configuration: Configuration) -> tuple[str, ...]:
        settings = [s for s in configuration.within(Partition.GREATER) if base_scope(s.scope) == OSD_STORE]
        if not settings:
            return ()
        applied = {s for osd in self._lab.osd_ids() for s in strongest_for(settings, self._daemon(osd)).values()}
        reasons = [f"{s} applies to no OSD of this lab" for s in settings if s not in applied]
        try:
            for store in self._wanted(configuration).values():
                require_store(store, self._lab.version)
                for role, place in store.placed().items():
                    if place not in self._lab.spec.limits:
                        reasons.append(
                            f"{role} on {place}: this lab has the classes {', '.join(self._lab.spec.limits)}"
                        )
        except (InputError, HostError) as error:
            reasons.append(error.on_one_line)
        return tuple(dict.fromkeys(reasons))

    def due(self, configuration: Configuration) -> tuple[int, ...]:
        wanted = self._wanted(configuration)
        return tuple(osd for osd, store in wanted.items() if store != self._lab.osd_store(osd))

    def remake(self, configuration: Configuration) -> None:
        self._remake({osd: s for osd, s in self._wanted(configuration).items() if s != self._lab.osd_store(osd)})

    def objectstores(self, configuration: Configuration) -> frozenset[str]:
        return frozenset(store.objectstore for store in self._wanted(configuration).values())

    def read_back(self, configuration: Configuration) -> ReadValues:
        values: dict[str, dict[str, object]] = {}
        mismatches: list[str] = []
        settings = [s for s in configuration.within(Partition.GREATER) if base_scope(s.scope) == OSD_STORE]
        if not settings:
            return values, mismatches
        metadata = {int(entry["id"]): entry for entry in self._admin.command("osd metadata")}
        for osd, wanted in self._wanted(configuration).items():
            runs = metadata.get(osd, {}).get("osd_objectstore", "nothing")
            on = filesystem_at(self._lab.folder / osd_name(osd))
            for key, setting in strongest_for(settings, self._daemon(osd)).items():
                got = {"objectstore": runs, "filesystem": on}.get(key, getattr(self._lab.osd_store(osd), key))
                values.setdefault(str(setting), {})[osd_name(osd)] = got
            if (runs, on) != (wanted.objectstore, wanted.filesystem):
                mismatches.append(f"{osd_name(osd)} runs {runs} on {on or 'no file system'}, not {wanted}")
        return values, mismatches

    def clean_up(self) -> None:
        if self._lab.unmade_osds():
            self._lab.remake_osds({})

    def restore(self) -> None:
        first = {
            int(entry.place.rpartition(".")[2]): OsdStore(**entry.was) for entry in self._journal.entries(_STORE)
        }
        self._remake({osd: store for osd, store in first.items() if store != self._lab.osd_store(osd)})
        for osd in first:
            self._journal.forget(_STORE, osd_name(osd))

    def _remake(self, stores: dict[int, OsdStore]) -> None:
        for osd in stores:
            self._journal.note(_STORE, osd_name(osd), self._lab.osd_store(osd).to_json())
        if stores:
            self._lab.remake_osds(stores)

    def _wanted(self, configuration: Configuration) -> dict[int, OsdStore]:
        """Return the required store of each OSD.

        Raises:
            InputError: settings contradict each other.
        """
        settings = [s for s in configuration.within(Partition.GREATER) if base_scope(s.scope) == OSD_STORE]
        wanted = {}
        for osd in self._lab.osd_ids():
            entry = self._journal.get(_STORE, osd_name(osd))
            first = OsdStore(**entry.was) if entry else self._lab.osd_store(osd)
            chosen = strongest_for(settings, self._daemon(osd))
            wanted[osd] = store_of({key: s.value for key, s in chosen.items()}, first)
        return wanted

    def _daemon(self, osd: int) -> Daemon:
        """Return the OSD as in the CRUSH map, known also while it is down."""
        host, device_class = self._lab.spec.osds[osd]
        return Daemon("osd", str(osd), device_class, {"host": f"host{host}", "root": "default"})


_HEALTHY_SECONDS = 60.0
"""A lab's PGs are placed a few seconds after any change; more time indicates a fault."""


class LabTarget(CephTarget):
    """A ``CephTarget`` on a lab: OSDs are restarted concurrently, and disks have limits.

    Args:
        lab: running.
        for_change: take the lab's lock; required by all methods except ``facts``, ``health`` and ``unsupported``.
        progress: shows long operations.
        librbd: the clients are images that fio opens itself (``ioengine=rbd``) instead of block devices.
        way: how options are delivered to daemons; None: by the config store.

    Raises:
        ClusterError: the cluster does not answer, or another process changes this lab.
    """

    def __init__(
        self,
        lab: Lab,
        *,
        for_change: bool = True,
        progress: Progress | None = None,
        librbd: bool = False,
        way: DeliveryWay | None = None,
    ) -> None:
        name = f"lab:{lab.name}"
        folder = lab.folder / "target"
        folder.mkdir(exist_ok=True)
        self._lab = lab
        self._lock = TargetLock(folder / "lock", name) if for_change else None
        with ExitStack() as opened:
            opened.callback(self._unlock)
            if for_change:
                lab.reassert_limits()  # a process killed while filling volumes may have left the limits lifted
                if lab.unmade_osds():  # another one may have been killed while it recreated OSDs
                    lab.remake_osds({})
            admin = RadosAdmin(lab.conf)
            opened.callback(admin.close)
            journal = Journal(folder / "journal.jsonl", read_only=not for_change)
            super().__init__(
                name,
                admin=admin,
                images=admin,
                access=ClientAccess("admin", str(lab.keyring)),
                folder=folder,
                journal=journal,
                adapters=_cluster_adapters(name, lab, admin, journal, librbd=librbd, way=way),
                for_change=for_change,
                progress=progress,
            )
            opened.pop_all()

    def facts(self) -> Mapping[str, Any]:
        return {**super().facts(), "lab": {"name": self._lab.name, "spec": self._lab.spec.to_json()}}

    def traffic_counter(self) -> TrafficCounter:
        """As of any cluster; of the network only that of the clients, where the lab has one."""
        of_cluster, path = super().traffic_counter(), self._lab.client_network
        pid = None if path is None else path.pid
        if pid is None:
            return of_cluster
        clients = Path(f"/proc/{pid}/net/dev")
        return lambda: replace(of_cluster(), wire_nbytes=traffic_of(None, clients, both_ways=True).wire_nbytes)

    def close(self) -> None:
        super().close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _cluster_adapters(
    name: str, lab: Lab, admin: RadosAdmin, journal: Journal, *, librbd: bool, way: DeliveryWay | None
) -> ClusterAdapters:
    hosts = Hosts(all_local=True)
    stores = LabStores(lab, admin, journal)
    path = None if librbd else lab.client_network  # fio, which opens images by itself, is not in that network
    return ClusterAdapters(
        greater=HostSettings(
            hosts,
            journal,
            osds=lambda: osd_places(admin),
            # The clients' disks are loop devices, as those of the OSDs.
            client_disk_like=None if librbd else lambda: lab.osd_disk(0),
            stores=stores,
            client_path=path,
            interfaces=("lo",),
            target=name,
        ),
        hosts=hosts,
        stores=stores,
        drop_page_caches=lab.drop_page_caches,
        restarts=_LabRestarts(lab),
        devices=ImageDevices(path),
        librbd=librbd,
        full_speed=lab.full_speed,
        require_capacity=partial(require_disk_capacity, lab.folder),
        pool_defaults={"crush_rule": "hdd", "pg_num": lab.spec.pg_num},
        patience_seconds=_HEALTHY_SECONDS,
        remedy=f"see `cephfit lab status --name {lab.name}`, and the logs in the lab's folder",
        delivery=OptionDelivery(way, str(lab.conf)),
        is_own_process=lambda process: owned(process, lab.folder),
    )


class _LabRestarts:
    """Implements ``RestartsOsds``: all at once, because a lab has no other users."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def why_not(self, osds: Sequence[int]) -> str:
        return ""

    def restart(self, osds: Sequence[int], done: Callable[[int], None]) -> None:
        self._lab.restart_osds(osds)
        for osd in osds:
            done(osd)
