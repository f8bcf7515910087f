"""A real Ceph cluster on this machine, all of it in one folder and on 127.0.0.1."""

import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from cephfit.errors import CephfitError, ClusterError, HostError
from cephfit.lab import bootstrap, disks, registry, remains
from cephfit.lab.daemons import MGR, MON, Daemons, DaemonState, osd_name
from cephfit.lab.machine import require_aio, require_free_disk, require_programs, require_root
from cephfit.lab.openstack import layout as openstack_layout
from cephfit.lab.openstack.packages import require_packages
from cephfit.lab.osd_disks import OsdDisks
from cephfit.lab.osd_layout import drop_page_cache
from cephfit.lab.osd_making import OsdMaker, make_anew
from cephfit.lab.readiness import wait_whole
from cephfit.lab.registry import Record
from cephfit.lab.spec import LabSpec
from cephfit.lab.status import LabStatus
from cephfit.lab.throttle import Throttle, find_throttle
from cephfit.protocols import Progress
from cephfit.silence import Silence
from cephfit.sweep.admin.rados_admin import RadosAdmin
from cephfit.sweep.greater.osd_store import FILESTORE, OsdStore
from cephfit.sweep.target_lock import TargetLock

if TYPE_CHECKING:
    from cephfit.lab.openstack.cloud import LabCloud

_PROGRAMS = ("ceph-mon", "ceph-mgr", "ceph-osd", "crushtool", "monmaptool", "losetup")


class Lab:
    """A one-machine Ceph: one monitor, one manager, an OSD of each device class on each CRUSH host.

    It is found again from its folder alone; an object of this class holds no process and no connection.

    Args:
        folder: the lab's.
        record: its journal.
    """

    def __init__(self, folder: Path, record: Record) -> None:
        self.folder = folder
        self.conf = folder / "ceph.conf"
        self.keyring = folder / "keyring"
        self._record = record
        self._daemons = Daemons(folder, self.conf)
        self._disks = OsdDisks(record.name, folder, record.spec)

    @property
    def name(self) -> str:
        return self._record.name

    @property
    def spec(self) -> LabSpec:
        return self._record.spec

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
        """Make a lab from nothing; back when all PGs are active+clean and the disks have their limits.

        If it fails or is interrupted, what it made is removed again.

        Args:
            openstack: with an OpenStack beside the Ceph (``cephfit.lab.openstack``).

        Raises:
            HostError: this machine lacks something.
            InputError: the name or the folder is taken.
            ClusterError: Ceph did not come up.
        """
        spec, progress = spec or LabSpec(), progress or Silence()
        require_root("a lab")
        require_programs(*_PROGRAMS)
        if openstack:
            require_packages()
        disks.require_loop()
        require_aio(len(spec.osds))
        throttle = find_throttle(name)
        more_nbytes = openstack_layout.FREE_NBYTES if openstack else 0
        require_free_disk(folder or registry.labs_root() / name, spec.free_nbytes + more_nbytes)
        place = registry.claim(name, folder)
        try:
            with registry.working_on(place):
                n_more = len(openstack_layout.PORT_NAMES) if openstack else 0
                with registry.port_choice(1 + n_more) as (port, *more):
                    record = Record(
                        name, str(uuid.uuid4()), port, ready=False, devices={}, spec=spec, more_ports=tuple(more)
                    )
                    record.write(place)
                lab = cls(place, record)
                n_steps = bootstrap.N_STEPS + 1 + (openstack_layout.N_STEPS if openstack else 0)
                progress.start(f"lab {name}", n_steps)
                lab._make(throttle, progress)
                progress.done()
                return lab
        except BaseException:
            remains.remove_all(place, throttle)
            registry.release(name)
            raise

    def _make(self, throttle: Throttle, progress: Progress) -> None:
        self._disks.make()
        self._attach_disks(throttle)
        progress.advance(detail="disks")
        bootstrap.bootstrap(
            name=self.name,
            folder=self.folder,
            conf=self.conf,
            fsid=self.fsid,
            mon_port=self._record.mon_port,
            spec=self.spec,
            disks=self._disks,
            throttle=throttle,
            daemons=self._daemons,
            progress=progress,
        )
        self._slow_down(throttle)
        with self._connection() as admin:
            wait_whole(admin, self.osd_ids(), alive=self._require_alive)
        progress.advance(detail="all PGs active+clean")
        if self._record.more_ports:
            self._make_openstack(progress)
        self._record = replace(self._record, ready=True)
        self._record.write(self.folder)

    def _make_openstack(self, progress: Progress) -> None:
        from cephfit.lab.openstack.cloud import CephAccess, LabCloud  # needs the extra `openstack`

        cloud = LabCloud.lay_out(self.name, self.folder, self._record.more_ports, tuple(self.spec.limits))
        cloud.make(CephAccess(self.conf, self.fsid, self._record.mon_port), progress)
        with self._connection() as admin:
            wait_whole(admin, self.osd_ids(), alive=self._require_alive)

    @property
    def cloud(self) -> "LabCloud | None":
        """The OpenStack beside it; None if there is none."""
        if not self._record.more_ports:
            return None
        from cephfit.lab.openstack.cloud import LabCloud

        return LabCloud.open(self.folder)

    @classmethod
    def open(cls, name: str = "default", *, folder: Path | None = None) -> "Lab":
        """A lab that was made before, also by another process.

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
        """Take a lab down by name, in whatever state it is: half made, half dead, or its folder half deleted.

        Raises:
            InputError: there is none of this name.
            HostError: another process is working on it, or holds one of its devices open.
            ClusterError: a sweep or a workload is running on it.
        """
        require_root("a lab")
        place = folder.resolve() if folder else registry.folder_of(name)
        if place is None:
            place = registry.labs_root().resolve() / name
            if not remains.anything_left(place):
                raise registry.no_such_lab(name)
        record = Record.read(place)
        if record is not None:
            name = record.name
        elif folder is not None and not remains.anything_left(place):
            raise registry.no_such_lab(name)
        try:
            throttle = find_throttle(name)
        except HostError:
            throttle = None
        with ExitStack() as stack:
            if place.is_dir():
                stack.enter_context(registry.working_on(place))
            if (place / "target").is_dir():
                stack.callback(TargetLock(place / "target" / "lock", f"lab:{name}").release)
            if throttle is not None and record is not None:
                remains.clear_forgotten([Path(device) for device in record.devices.values()], throttle)
            remains.remove_all(place, throttle)
            registry.release(name)

    def down(self) -> None:
        """Remove the lab and all that belongs to it. Safe to call twice."""
        if self.folder.exists() or remains.anything_left(self.folder):
            Lab.remove(self.name, folder=self.folder)

    # What it is made of.

    def osd_ids(self) -> tuple[int, ...]:
        return tuple(range(len(self.spec.osds)))

    def device_class(self, osd: int) -> str:
        return self.spec.osds[osd][1]

    def osd_disk(self, osd: int) -> Path:
        """The block device of an OSD.

        Raises:
            ClusterError: it is not attached.
        """
        return self._disks.device(osd)

    # Starting and stopping.

    def start(self) -> None:
        """Start what does not run, for example after a reboot; limits and flags are set again.

        Raises:
            ClusterError: it does not become whole.
        """
        require_root("a lab")
        with registry.working_on(self.folder):
            throttle = find_throttle(self.name)
            self._attach_disks(throttle)
            with self._full_speed_if_free():
                self._daemons.start(MON)
                self._finish_osds(throttle)
                self._daemons.start_all([MGR, *map(osd_name, self.osd_ids())])
                with self._connection() as admin:
                    wait_whole(admin, self.osd_ids(), alive=self._require_alive)
            if (cloud := self.cloud) is not None:
                cloud.start()

    def stop(self) -> None:
        """Stop all daemons; the disks stay attached and slow."""
        require_root("a lab")
        with registry.working_on(self.folder):
            if (cloud := self.cloud) is not None:
                cloud.stop()
            self._daemons.stop_all(map(osd_name, self.osd_ids()))
            self._daemons.stop_all([MGR])
            self._daemons.stop_all([MON])

    def restart_osds(self, osds: Sequence[int] | None = None) -> None:
        """Restart OSDs (all of them by default), so that they read their configuration anew.

        Back when they came up again, every PG has reported since and is active+clean.

        Raises:
            ClusterError: one does not start, or the cluster does not become whole.
        """
        require_root("a lab")
        osds = self.osd_ids() if osds is None else tuple(osds)
        with self._connection() as admin:
            ever = {o["osd"]: o["up_from"] for o in admin.command("osd dump")["osds"]}
            before = {osd: ever[osd] for osd in osds}
            names = [osd_name(osd) for osd in osds]
            with self._full_speed_if_free():
                self._daemons.stop_all(names)
                self._daemons.start_all(names)
                self._place(find_throttle(self.name))
                wait_whole(admin, self.osd_ids(), before=before, alive=self._require_alive)

    def osd_store(self, osd: int) -> OsdStore:
        """What an OSD keeps its objects in."""
        return self._record.store(osd)

    def remake_osds(self, stores: Mapping[int, OsdStore]) -> None:
        """Make OSDs anew with the stores given; back when all PGs are active+clean. A new lab is faster no more.

        All they hold is lost, and the lab's own pool is made anew; there may be no other one. A kill in the
        middle is made good by the next ``remake_osds`` or ``start``.

        Raises:
            ClusterError: there is another pool, or objects in the lab's own.
            HostError: this machine cannot make such a store.
        """
        require_root("a lab")
        with registry.working_on(self.folder):
            self._record = Record.read(self.folder) or self._record
            unmade = sorted({*stores, *self._record.unmade})
            if not unmade:
                return
            self._record = replace(self._record, stores={**self._record.stores, **stores}, unmade=tuple(unmade))
            self._record.write(self.folder)
            throttle = find_throttle(self.name)
            with self._full_speed_if_free(), self._connection() as admin:
                before = {o["osd"]: o["up_from"] for o in admin.command("osd dump")["osds"]}
                self._finish_osds(throttle)
                self._place(throttle)
                remade = {osd: before[osd] for osd in unmade}
                wait_whole(admin, self.osd_ids(), before=remade, alive=self._require_alive)

    def unmade_osds(self) -> tuple[int, ...]:
        """OSDs that a killed process was making anew."""
        record = Record.read(self.folder)
        return record.unmade if record else ()

    def _finish_osds(self, throttle: Throttle) -> None:
        """Make the OSDs anew that the journal says are to be."""
        if not self._record.unmade:
            return
        with self._connection() as admin:
            maker = OsdMaker(self.folder, self.conf, self._disks, throttle, admin)
            stores = {osd: self._record.store(osd) for osd in self._record.unmade}
            make_anew(maker, admin, self._daemons, stores, keep=[self.spec.pool])
            bootstrap.make_first_pool(admin, self.spec)
        self._record = replace(self._record, unmade=())
        self._record.write(self.folder)

    def drop_page_caches(self) -> None:
        """Write out and drop what the kernel holds of FileStore's files; of nobody else's."""
        for osd in self.osd_ids():
            if self.osd_store(osd).objectstore == FILESTORE:
                drop_page_cache(self.folder / osd_name(osd))

    def _require_alive(self) -> None:
        dead = [n for n in (MON, MGR, *map(osd_name, self.osd_ids())) if self._daemons.pid(n) is None]
        if dead:
            raise ClusterError(
                f"{', '.join(dead)} died",
                where=f"lab {self.name}",
                remedy=f"`cephfit lab start --name {self.name}` starts it; the logs are in {self.folder}/log",
            )

    @contextmanager
    def _connection(self) -> Iterator[RadosAdmin]:
        admin = RadosAdmin(self.conf)
        try:
            yield admin
        finally:
            admin.close()

    # Disks and their limits.

    def _attach_disks(self, throttle: Throttle) -> None:
        devices = self._disks.attach(throttle)
        self._record = replace(self._record, devices={osd: str(device) for osd, device in devices.items()})
        self._record.write(self.folder)
        for osd in devices:
            if self._record.ready and osd not in self._record.unmade:
                self._disks.reconnect(osd, self.osd_store(osd), throttle)

    def _place(self, throttle: Throttle) -> None:
        throttle.place(pid for osd in self.osd_ids() if (pid := self._daemons.pid(osd_name(osd))) is not None)

    def _slow_down(self, throttle: Throttle) -> None:
        self._disks.slow_down(throttle)
        self._place(throttle)

    def full_speed(self) -> AbstractContextManager[None]:
        """Without limits on the disks inside the block, for filling volumes.

        Only one process at a time. If it dies inside, ``reassert_limits`` (which ``status`` and ``start`` call)
        sets the limits again.

        Raises:
            HostError: another process is at it.
        """
        return self._disks.full_speed(find_throttle(self.name))

    @contextmanager
    def _full_speed_if_free(self) -> Iterator[None]:
        """``full_speed`` unless somebody, perhaps the caller, has lifted the limits already."""
        with ExitStack() as stack:
            with suppress(HostError):
                stack.enter_context(self.full_speed())
            yield

    def reassert_limits(self) -> None:
        """Set the limits again, unless a living process has lifted them."""
        throttle = find_throttle(self.name)
        self._disks.reassert_limits(throttle)
        self._place(throttle)

    # Asking.

    def status(self) -> LabStatus:
        """The lab as it is now. Limits that a dead process left lifted are set again first.

        Raises:
            HostError: not root.
        """
        require_root("a lab")
        started = time.monotonic()
        names = (MON, MGR, *map(osd_name, self.osd_ids()))
        daemons = tuple(self._daemons.state(name) for name in names)
        if self._record.ready and self._disks.all_attached():
            self.reassert_limits()
        health, checks, pgs = self._ask_health(daemons[0])
        cloud = self.cloud
        return LabStatus(
            name=self.name,
            folder=str(self.folder),
            conf=str(self.conf),
            fsid=self.fsid,
            monitor=f"127.0.0.1:{self._record.mon_port}",
            ready=self._record.ready,
            health=health,
            checks=checks,
            pgs=pgs,
            daemons=daemons,
            osd_disks=self._disks.states(find_throttle(self.name)),
            openstack=cloud.status() if cloud else None,
            seconds=time.monotonic() - started,
        )

    def _ask_health(self, monitor: DaemonState) -> tuple[str, tuple[str, ...], dict[str, int]]:
        if not monitor.alive:
            return "the monitor does not run", (), {}
        try:
            with self._connection() as admin:
                status = admin.command("status")
        except CephfitError as error:
            return error.what, (), {}
        pgs = {entry["state_name"]: entry["count"] for entry in status["pgmap"].get("pgs_by_state", [])}
        return status["health"]["status"], tuple(status["health"]["checks"]), pgs
