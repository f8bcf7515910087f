"""A real Ceph cluster on this machine, completely in one folder and on 127.0.0.1; its OSDs can be recreated."""

import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from cephfit.ceph.environment.scopes import FILESTORE, OsdStore
from cephfit.core.errors import CephfitError, HostError, InputError
from cephfit.core.protocols import NullProgress, Progress
from cephfit.lab import lab_lifecycle, registry
from cephfit.lab.daemons.bootstrap import make_first_pool
from cephfit.lab.daemons.ceph_daemons import MGR, MON, osd_name
from cephfit.lab.daemons.ceph_programs import CephVersion, ensure_root
from cephfit.lab.daemons.osd_creation import OsdMaker, recreate
from cephfit.lab.daemons.osd_layout import drop_page_cache
from cephfit.lab.devices.throttle import Throttle, find_throttle
from cephfit.lab.lab_lifecycle import make_lab, open_cloud, remove_lab
from cephfit.lab.lab_server import LabServer
from cephfit.lab.lab_spec import LabSpec
from cephfit.lab.lab_status import BackendState, LabStatus, ask_health
from cephfit.lab.machine import require_aio, require_root
from cephfit.lab.network.client_network import ClientNetwork
from cephfit.lab.parts import LabParts
from cephfit.lab.registry import Record

if TYPE_CHECKING:
    from cephfit.lab.openstack.openstack_lab import LabCloud


def remake(parts: LabParts, stores: Mapping[int, OsdStore]) -> None:
    """Recreate OSDs, also those that a killed process left incomplete; return when all PGs are active+clean.

    The journal lists the OSDs before the first one is changed.

    Args:
        parts: of the lab; no other process changes it.
        stores: by OSD.

    Raises:
        ClusterError: there is another pool than that of the lab, or it has objects.
        HostError: this machine cannot create such a store.
    """
    record = parts.journal.read_again()
    due = tuple(sorted({*stores, *record.unmade}))
    if not due:
        return
    parts.journal.change(stores={**record.stores, **stores}, unmade=due)
    throttle = find_throttle(parts.folder)
    with parts.full_speed_if_free(), parts.connection() as admin:
        before = {o["osd"]: o["up_from"] for o in admin.command("osd dump")["osds"]}
        finish(parts, throttle)
        parts.place(throttle)
        parts.await_whole(admin, {osd: before[osd] for osd in due})


def finish(parts: LabParts, throttle: Throttle) -> None:
    """Recreate the OSDs that the journal lists, if any. The monitor must answer, and disks must be attached.

    Raises as ``remake``.
    """
    record = parts.record
    if not record.unmade:
        return
    with parts.connection() as admin:
        maker = OsdMaker(parts.folder, parts.conf, parts.disks, throttle, admin, parts.programs)
        stores = {osd: record.store(osd) for osd in record.unmade}
        recreate(maker, admin, parts.daemons, stores, keep=[record.spec.pool])
        make_first_pool(admin, record.spec)
    parts.journal.change(unmade=())


class Lab:
    """A one-machine Ceph: one monitor, one manager, an OSD of each device class on each CRUSH host.

    Its state is in its folder; an object of this class holds no process and no connection.

    Args:
        folder: the lab's.
        record: its journal.
    """

    def __init__(self, folder: Path, record: Record) -> None:
        self.folder = folder
        self.conf = folder / "ceph.conf"
        self.keyring = folder / "keyring"
        self._parts = LabParts(folder, record)

    @property
    def _record(self) -> Record:
        return self._parts.record

    @property
    def name(self) -> str:
        return self._record.name

    @property
    def spec(self) -> LabSpec:
        return self._record.spec

    def version(self) -> CephVersion:
        """Return the version of its Ceph."""
        return self._parts.programs.version()

    @property
    def fsid(self) -> str:
        return self._record.fsid

    @classmethod
    def up(
        cls,
        name: str = "default",
        *,
        folder: Path | None = None,
        spec: LabSpec | None = None,
        openstack: bool = False,
        progress: Progress | None = None,
    ) -> "Lab":
        """Create a lab; return when all PGs are active+clean and the disks have their limits.

        After a failure or an interrupt, all created parts are removed.

        Args:
            openstack: also create an OpenStack (``cephfit.lab.openstack``).

        Raises:
            HostError: this machine or this release lacks something.
            InputError: the name or the folder is in use.
            ClusterError: Ceph did not come up.
        """
        require_root("a lab")
        return cls(
            *make_lab(name, folder, spec or LabSpec(), openstack=openstack, progress=progress or NullProgress())
        )

    @property
    def cloud(self) -> "LabCloud | None":
        """The lab's OpenStack; None if it has none."""
        return open_cloud(self.folder, self._record)

    @classmethod
    def open(cls, name: str = "default", *, folder: Path | None = None) -> "Lab":
        """Open an existing lab.

        Raises:
            InputError: there is none of this name.
        """
        place = folder.resolve() if folder else registry.folder_of(name)
        record = Record.read(place) if place else None
        if place is None or record is None:
            raise registry.no_such_lab(name)
        return cls(place, record)

    @staticmethod
    def remove(name: str = "default", *, folder: Path | None = None) -> None:
        """Remove a lab by name in any state, also one that is incomplete or whose folder is partly deleted.

        Raises:
            InputError: there is none of this name.
            HostError: another process is changing it, or holds one of its devices open.
            ClusterError: a sweep or a workload is running on it.
        """
        require_root("a lab")
        remove_lab(name, folder)

    def down(self) -> None:
        """Remove the lab and all its parts. Safe to call twice."""
        if self.folder.exists() or lab_lifecycle.anything_left(self.folder):
            Lab.remove(self.name, folder=self.folder)

    # Its parts.

    @property
    def client_network(self) -> ClientNetwork | None:
        """The network of its clients; None if they share that of this machine."""
        return self._parts.client_network

    def backend(self, protocol: str) -> LabServer:
        """Return the server of a back end.

        Raises:
            InputError: the lab has none of this protocol.
        """
        server = next((s for s in self._parts.backends.servers if s.protocol == protocol), None)
        if server is None:
            raise InputError(
                f"the lab {self.name} has no back end {protocol}",
                where=f"--target {protocol}:lab:{self.name}",
                remedy=f"create a lab that has one: cephfit lab up --name NAME --with {protocol}",
            )
        return server

    def osd_ids(self) -> tuple[int, ...]:
        return self._parts.osd_ids()

    def device_class(self, osd: int) -> str:
        return self.spec.osds[osd][1]

    def osd_disk(self, osd: int) -> Path:
        """Return the block device of an OSD.

        Raises:
            ClusterError: it is not attached.
        """
        return self._parts.disks.device(osd)

    # Starting and stopping.

    def start(self, progress: Progress | None = None) -> None:
        """Start all daemons that do not run, for example after a reboot; set limits and flags again.

        Args:
            progress: shows that a deleted root of the release is made again.

        Raises:
            ClusterError: its PGs do not become active+clean.
            HostError: this machine lacks something.
        """
        require_root("a lab")
        ensure_root(self.spec.release, progress or NullProgress())
        with registry.working_on(self.folder):
            parts, throttle = self._parts, find_throttle(self.folder)
            require_aio(sum(parts.daemons.pid(osd_name(osd)) is None for osd in self.osd_ids()))
            parts.attach_disks(throttle)
            with parts.full_speed_if_free():
                parts.daemons.start(MON)
                finish(parts, throttle)
                parts.daemons.start_all([MGR, *map(osd_name, self.osd_ids())])
                with parts.connection() as admin:
                    parts.await_whole(admin)
                parts.backends.start()
            parts.place(throttle)
            if parts.client_network is not None:
                parts.client_network.start()
            if (cloud := self.cloud) is not None:
                cloud.start()

    def stop(self) -> None:
        """Stop all daemons; the disks stay attached and have their limits."""
        require_root("a lab")
        with registry.working_on(self.folder):
            if (cloud := self.cloud) is not None:
                cloud.stop()
            self._parts.backends.stop()
            daemons = self._parts.daemons
            daemons.stop_all(map(osd_name, self.osd_ids()))
            daemons.stop_all([MGR])
            daemons.stop_all([MON])
            if self.client_network is not None:
                self.client_network.stop()

    def restart_osds(self, osds: Sequence[int] | None = None) -> None:
        """Restart OSDs (by default all), so that they read their configuration again.

        Return when they are up, and every PG has reported since and is active+clean.

        Raises:
            ClusterError: an OSD does not start, or PGs do not become active+clean.
        """
        require_root("a lab")
        parts = self._parts
        osds = self.osd_ids() if osds is None else tuple(osds)
        with parts.connection() as admin:
            ever = {o["osd"]: o["up_from"] for o in admin.command("osd dump")["osds"]}
            before = {osd: ever[osd] for osd in osds}
            names = [osd_name(osd) for osd in osds]
            with parts.full_speed_if_free():
                parts.daemons.stop_all(names)
                parts.daemons.start_all(names)
                parts.place(find_throttle(self.folder))
                parts.await_whole(admin, before)

    def osd_store(self, osd: int) -> OsdStore:
        """Return the object store of an OSD; another process may have recreated it since this lab was opened."""
        return self._parts.journal.read_again().store(osd)

    def remake_osds(self, stores: Mapping[int, OsdStore]) -> None:
        """Recreate OSDs with the given stores; return when all PGs are active+clean. A new lab is not faster.

        All their data is lost, and the lab's pool is recreated; no other pool may exist. After a kill, the next
        ``remake_osds`` or ``start`` completes the work.

        Raises:
            ClusterError: there is another pool, or the lab's pool has objects.
            HostError: this machine cannot create such a store.
        """
        require_root("a lab")
        with registry.working_on(self.folder):
            remake(self._parts, stores)

    def unmade_osds(self) -> tuple[int, ...]:
        """OSDs that a killed process was recreating."""
        record = Record.read(self.folder)
        return record.unmade if record else ()

    def drop_page_caches(self) -> None:
        """Flush FileStore's files and drop them from the page cache; other files are not affected."""
        for osd in self.osd_ids():
            if self.osd_store(osd).objectstore == FILESTORE:
                drop_page_cache(self.folder / osd_name(osd))

    # Limits of the disks.

    def full_speed(self) -> AbstractContextManager[None]:
        """Lift the limits of the disks within the block, for filling volumes.

        Only one process can do this at a time. If it dies within, ``reassert_limits`` (which ``status`` and
        ``start`` call) sets the limits again.

        Raises:
            HostError: another process has lifted them.
        """
        return self._parts.full_speed()

    def reassert_limits(self) -> None:
        """Set the limits again, unless a living process has lifted them."""
        throttle = find_throttle(self.folder)
        self._parts.disks.reassert_limits(throttle)
        self._parts.place(throttle)

    # Asking.

    def status(self) -> LabStatus:
        """Return the current status. Limits that a dead process left lifted are set again first.

        Raises:
            HostError: not root, or the lab changed during the query.
            InputError: it was removed meanwhile.
        """
        require_root("a lab")
        try:
            return self._status()
        except (CephfitError, OSError) as error:
            if Record.read(self.folder) is None:
                raise registry.no_such_lab(self.name) from None
            if isinstance(error, CephfitError):
                raise
            raise HostError(
                f"a part of it disappeared during the query: {error}",
                where=f"lab {self.name}",
                remedy="it may be starting, stopping or being removed at this moment; try again when that is done",
            ) from None

    def _status(self) -> LabStatus:
        started = time.monotonic()
        parts = self._parts
        names = (*parts.daemon_names(), *parts.backends.daemon_names())
        daemons = tuple(parts.daemons.state(name) for name in names)
        if self._record.ready and parts.disks.all_attached():
            self.reassert_limits()
        health, checks, pgs = ask_health(self.conf, daemons[0])
        cloud = self.cloud
        return LabStatus(
            name=self.name,
            folder=str(self.folder),
            conf=str(self.conf),
            fsid=self.fsid,
            monitor=f"127.0.0.1:{self._record.mon_port}",
            ready=self._record.ready,
            release=str(self.version()),
            health=health,
            checks=checks,
            pgs=pgs,
            daemons=daemons,
            backends=self._backend_states(),
            osd_disks=parts.disks.states(find_throttle(self.folder)),
            openstack=cloud.status() if cloud else None,
            seconds=time.monotonic() - started,
        )

    def _backend_states(self) -> tuple[BackendState, ...]:
        servers = {server.protocol: server for server in self._parts.backends.servers}
        throttle = find_throttle(self.folder)
        states = []
        for name in self.spec.backends:
            device = self._parts.disks.backend_device(name)
            target = f"{name}:lab:{self.name}" if name in servers else f"{name}:{device}"
            limits = self._parts.disks.limits(device, throttle)
            states.append(BackendState(name, target, str(device), limits))
        return tuple(states)
