"""The OSDs of a lab: their disks, and creating them with identity and key, disk layout, ``ceph-osd --mkfs``."""

import fcntl
import json
import uuid
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.environment.scopes import FILESTORE, ISCSI, OsdStore
from cephfit.core.cleanup import cleaned_up_by
from cephfit.core.errors import ClusterError, HostError
from cephfit.core.units import GIB, MIB
from cephfit.lab.daemons.ceph_daemons import Daemons, keyring_entry, new_key, osd_name, write_secret
from cephfit.lab.daemons.ceph_programs import CephPrograms, CephVersion
from cephfit.lab.daemons.osd_layout import lay_out, reconnect, require_store, take_off
from cephfit.lab.devices import disks
from cephfit.lab.devices.disk_times import DiskTimes
from cephfit.lab.devices.throttle import Throttle
from cephfit.lab.lab_spec import BACKEND_CLASS, DiskLimits, LabSpec
from cephfit.lab.lab_status import OsdDisk

_SIDE_NBYTES = {"journal": 512 * MIB, "db": GIB, "wal": 512 * MIB}
"""Sizes of side disks, for journals, DBs and WALs; sparse."""


class OsdDisks:
    """The disks of one lab. All state is in the kernel and in the lab's folder.

    Args:
        lab: name, for messages.
        folder: the lab's.
        spec: how many, how large and how fast.
    """

    def __init__(self, lab: str, folder: Path, spec: LabSpec) -> None:
        self._lab = lab
        self._folder = folder
        self._spec = spec
        self._lifted = folder / "full-speed.lock"
        self._times = DiskTimes(folder)

    def _image(self, osd: int) -> Path:
        return self._folder / f"osd.{osd}.img"

    def _loop(self, osd: int) -> Path | None:
        return next(iter(disks.loops_of(self._image(osd))), None)

    def device(self, osd: int) -> Path:
        """Return the block device of an OSD.

        Raises:
            ClusterError: it is not attached.
        """
        return self._attached(self._loop(osd), f"osd.{osd}")

    def backend_device(self, backend: str) -> Path:
        """Return the block device of a back end.

        Raises:
            ClusterError: it is not attached.
        """
        found = next(iter(disks.loops_of(self._backend_image(backend))), None)
        return self._attached(found, f"the back end {backend}")

    def _attached(self, device: Path | None, user: str) -> Path:
        if device is None:
            raise ClusterError(
                f"the disk of {user} is not attached",
                where=f"lab {self._lab}",
                remedy=f"start the lab: cephfit lab start --name {self._lab}",
            )
        return device

    def _backend_image(self, backend: str) -> Path:
        return self._folder / f"backend.{backend}.img"

    def all_attached(self) -> bool:
        return all(self._loop(osd) is not None for osd in range(len(self._spec.osds))) and all(
            disks.loops_of(self._backend_image(backend)) for backend in self._spec.backends
        )

    def make(self) -> None:
        """Create the sparse files, and what makes disks take time."""
        if self._spec.timed_disks:
            self._times.make()
        for osd in range(len(self._spec.osds)):
            disks.make_sparse(self._image(osd), self._spec.osd_nbytes)
        for backend in self._spec.backends:
            disks.make_sparse(self._backend_image(backend), self._spec.osd_nbytes)

    def attach(self, throttle: Throttle) -> dict[int, Path]:
        """Attach all disks, set attributes that loop devices lose, and return the device of each OSD."""
        for backend in self._spec.backends:
            self._attach(self._backend_image(backend), BACKEND_CLASS, throttle)
        return {
            osd: self._attach(self._image(osd), device_class, throttle)
            for osd, (_, device_class) in enumerate(self._spec.osds)
        }

    def renew(self, osd: int, throttle: Throttle) -> None:
        """Replace a disk that another mount namespace holds by an empty one."""
        device = self.device(osd)
        self._clear(device, throttle)
        disks.abandon(device)
        disks.make_sparse(self._image(osd), self._spec.osd_nbytes)
        self._attach(self._image(osd), self._spec.osds[osd][1], throttle)

    def attach_side(
        self, osd: int, store: OsdStore, throttle: Throttle, *, again: bool = False
    ) -> dict[str, Path]:
        """Attach the side disks of a store; return role to device.

        Args:
            osd: its id.
            store: of this OSD.
            throttle: of the lab.
            again: first remove all side disks that the OSD ever had.
        """
        if again:
            for role in _SIDE_NBYTES:
                image = self._side_image(osd, role)
                for device in disks.loops_of(image):
                    self._clear(device, throttle)
                    disks.detach_loop(device)
                image.unlink(missing_ok=True)
        side = {}
        for role, device_class in store.placed().items():
            image = self._side_image(osd, role)
            disks.make_sparse(image, _SIDE_NBYTES[role])
            side[role] = self._attach(image, device_class, throttle)
        return side

    def reconnect(self, osd: int, store: OsdStore, throttle: Throttle) -> None:
        """After a reboot: mount the file system of an OSD, and point its links to the current devices."""
        side = self.attach_side(osd, store, throttle)
        reconnect(self._folder / osd_name(osd), store, self.device(osd), side)

    def _side_image(self, osd: int, role: str) -> Path:
        return self._folder / f"osd.{osd}.{role}.img"

    def _attach(self, image: Path, device_class: str, throttle: Throttle) -> Path:
        device = next(iter(disks.loops_of(image)), None)
        if device is None:
            device = disks.attach_loop(image)
            self._clear(device, throttle)  # limits of an earlier device of this number
        disks.set_rotational(device, device_class == "hdd")
        return device

    def _all_disks(self) -> Iterator[tuple[Path, str, bool]]:
        """Yield every attached disk, its device class, and whether its server itself reads and writes it."""
        for backend in self._spec.backends:
            yield self.backend_device(backend), BACKEND_CLASS, backend == ISCSI
        for osd, (_, device_class) in enumerate(self._spec.osds):
            kind = self._folder / osd_name(osd) / "type"
            is_direct = not kind.exists() or kind.read_text().strip() != FILESTORE
            yield self.device(osd), device_class, is_direct
            for role in _SIDE_NBYTES:
                for device in disks.loops_of(self._side_image(osd, role)):
                    yield device, "hdd" if disks.is_rotational(device) else "ssd", is_direct

    def slow_down(self, throttle: Throttle) -> None:
        """Set the limits: by time where the server of the disk is slowed down, else by the throttle."""
        for device, device_class, is_direct in self._all_disks():
            self._clear(device, throttle)
            limiter: DiskTimes | Throttle = self._times if is_direct and self._spec.timed_disks else throttle
            limiter.set(disks.device_number(device), self._spec.limits[device_class])

    def limits(self, device: Path, throttle: Throttle) -> DiskLimits | None:
        """Return the current limits of a disk, None if there are none."""
        number = disks.device_number(device)
        return self._times.limits(number) or throttle.limits(number)

    def _clear(self, device: Path, throttle: Throttle) -> None:
        throttle.clear(disks.device_number(device))
        self._times.clear(disks.device_number(device))

    @contextmanager
    def full_speed(self, throttle: Throttle) -> Iterator[None]:
        """Lift the limits within the block; one process at a time.

        Raises:
            HostError: another process has lifted them.
        """
        with self._lifted.open("w") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise HostError(
                    "another process has lifted the limits of the disks",
                    where=f"lab {self._lab}",
                    remedy="wait until it is done",
                ) from None
            with cleaned_up_by(partial(self.slow_down, throttle)):
                for device, _, _ in self._all_disks():
                    self._clear(device, throttle)
                yield

    def reassert_limits(self, throttle: Throttle) -> None:
        """Set the limits unless a living process has lifted them: the kernel releases a dead process's lock.

        If the lock's file is missing, the limits were never lifted, or the lab is being removed: a file created in
        its folder now would remain.
        """
        try:
            stream = self._lifted.open("r+")
        except FileNotFoundError:
            return
        with stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return
            self.slow_down(throttle)

    def states(self, throttle: Throttle) -> tuple[OsdDisk, ...]:
        """Return the current state of all disks."""
        return tuple(self._state(osd, throttle) for osd in range(len(self._spec.osds)))

    def _state(self, osd: int, throttle: Throttle) -> OsdDisk:
        host, device_class = self._spec.osds[osd]
        device = self._loop(osd)
        return OsdDisk(
            osd=osd,
            host=f"host{host}",
            device_class=device_class,
            device=str(device) if device else None,
            rotational=disks.is_rotational(device) if device else None,
            limits=self.limits(device, throttle) if device else None,
        )


_JOURNAL_MIB = 512
"""Size of FileStore's journal if it is a file; Ceph's default of 5 GiB would fill the folder of a lab."""


class OsdMaker:
    """Creates the OSDs of one lab; does not start them.

    Args:
        folder: of the lab.
        conf: its ceph.conf.
        disks: attached.
        throttle: of the lab.
        admin: the monitor answers.
        programs: of the lab's release.
    """

    def __init__(
        self,
        folder: Path,
        conf: Path,
        disks: OsdDisks,
        throttle: Throttle,
        admin: RadosAdmin,
        programs: CephPrograms,
    ) -> None:
        self._folder = folder
        self._conf = conf
        self._disks = disks
        self._throttle = throttle
        self._admin = admin
        self._programs = programs

    def version(self) -> CephVersion:
        """Return the version of the lab's Ceph."""
        return self._programs.version()

    def register(self, osd: int, *, again: bool = False) -> tuple[str, str]:
        """Register the OSD with the monitor; return its UUID and key.

        Args:
            osd: the id; that of a new OSD must be the next free one.
            again: the id was in use; the previous OSD can no longer connect.

        Raises:
            ClusterError: the monitor assigns another id.
        """
        given: dict[str, object] = {}
        if again:
            self._admin.command("osd destroy-actual", id=osd, yes_i_really_mean_it=True)
            given["id"] = osd
        osd_uuid, key = str(uuid.uuid4()), new_key()
        payload = json.dumps({"cephx_secret": key}).encode()
        answer = json.loads(self._admin.exchange("osd new", payload, uuid=osd_uuid, format="json", **given))
        if answer["osdid"] != osd:
            raise ClusterError(f"the monitor gave id {answer['osdid']} to osd.{osd}", where="mon")
        return osd_uuid, key

    def make(self, osd: int, store: OsdStore, osd_uuid: str, key: str) -> None:
        """Lay out the OSD's empty disk, and create its object store.

        Raises:
            HostError: a program failed.
        """
        home = self._folder / osd_name(osd)
        side = self._disks.attach_side(osd, store, self._throttle, again=True)
        lay_out(home, store, self._disks.device(osd), side)
        write_secret(home / "keyring", keyring_entry(osd_name(osd), key, {}))
        argv = ["ceph-osd", "-c", str(self._conf), "-i", str(osd), "--mkfs", "--osd-uuid", osd_uuid]
        argv += ["--osd-objectstore", store.objectstore]
        if store.objectstore == FILESTORE:
            argv += ["--osd-journal-size", "0" if "journal" in side else str(_JOURNAL_MIB)]
        self._programs.run(argv, seconds=300)

    def take_off(self, osd: int) -> None:
        """Empty the disk of an OSD that does not run."""
        if not take_off(self._folder / osd_name(osd), self._disks.device(osd)):
            self._disks.renew(osd, self._throttle)


def recreate(
    maker: OsdMaker, admin: RadosAdmin, daemons: Daemons, stores: Mapping[int, OsdStore], keep: Collection[str]
) -> None:
    """Recreate existing OSDs; their data and all pools are lost. May be called again after a kill.

    Args:
        maker: of the lab.
        admin: of the lab.
        daemons: the OSDs run afterwards; they may not have come up yet when this returns.
        stores: by OSD.
        keep: pools that may be lost if they have no objects; any other pool is an error.

    Raises:
        ClusterError: a pool would be lost.
        HostError: this machine cannot create such a store.
    """
    for store in stores.values():
        require_store(store, maker.version)
    for pool in admin.command("df")["pools"]:
        if pool["name"] not in keep or pool["stats"]["objects"]:
            raise ClusterError(
                f"the OSDs would be recreated, and pool {pool['name']} would be lost",
                where=f"pool {pool['name']}",
                remedy="delete the pool, or use a separate lab",
            )
    for pool in keep:
        if pool in {entry["poolname"] for entry in admin.command("osd lspools")}:
            admin.command("osd pool delete", pool=pool, pool2=pool, yes_i_really_really_mean_it=True)
    daemons.stop_all([osd_name(osd) for osd in stores])
    ids = [str(osd) for osd in stores]
    # Out first: Pacific's monitor counts a destroyed OSD that is in once per CRUSH root, and aborts.
    admin.command("osd out", ids=ids)
    admin.command("osd down", ids=ids)
    identities = {osd: maker.register(osd, again=True) for osd in stores}

    def make(osd: int) -> None:
        daemons.kill_strays(osd_name(osd))
        maker.take_off(osd)
        maker.make(osd, stores[osd], *identities[osd])
        daemons.start(osd_name(osd))

    with ThreadPoolExecutor(max_workers=len(stores)) as pool_of_threads:
        list(pool_of_threads.map(make, stores))
    admin.command("osd in", ids=ids)
