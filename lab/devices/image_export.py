"""RBD images as block devices of this machine.

What every way from an RBD image to a block device has in common.

An RBD image as a block device where the kernel has neither rbd nor nbd: FUSE and a loop device.

An RBD image as a block device by the kernel: its own rbd client, or librbd behind nbd.

``rbd device list`` tells what the whole machine has mapped, without the cluster: two clusters may have pools and
images of the same names. So a device counts as an image's only if its mapping is of this cluster, and is worked on
only if it is the one that was printed, and written down, when the image was attached.

Written after rbd(8) and rbd-nbd(8) of Ceph 16; the kernel at hand had neither module, so this is tested with an
``rbd`` that answers as it does.

An RBD image as a block device of this machine, so that a file system, a workload and fio reach it alike.

What a direct write to the device means. A virtual machine with ``cache=none`` opens its disk past the host's page
cache, and QEMU then switches librbd's own cache off; a guest's flush reaches the OSDs. So it is here: the lab's
config store has ``rbd_cache = false`` for clients, the loop device and the export work without a page cache, and a
direct write has reached the OSDs when it returns. QEMU sets ``rbd_cache`` itself after it has read the conf: on
unless ``cache.direct``, off with it. Therefore the value that the client's conf and the config store give is asked
first and ``cache.direct`` is chosen to keep it: with ``rbd_cache = true``, the device is what a virtual machine
with ``cache=writeback`` has. All other client options reach librbd untouched. They are read when a device is
attached: after a change, detach and attach again.

Volumes of any Ceph cluster as block devices of this machine, for targets.
"""

import hashlib
import json
import re
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.ceph.volumes import Volume
from cephfit.core.errors import CephfitError, ClusterError, HostError
from cephfit.lab import processes
from cephfit.lab.devices.disks import attach_loop, detach_loop, device_nbytes, device_number, loops_of
from cephfit.lab.devices.mounts import unmount_under
from cephfit.lab.devices.throttle import clear_forgotten_limit
from cephfit.lab.machine import find_program, require_programs, require_root, run


@dataclass(frozen=True, slots=True)
class ImageAddress:
    """How to reach an image.

    Attributes:
        pool: name.
        image: name.
        conf: ceph.conf of the client.
        client_id: such as ``admin``.
        nbytes: size.
    """

    pool: str
    image: str
    conf: Path
    client_id: str
    nbytes: int

    def __str__(self) -> str:
        return f"{self.pool}/{self.image}"


class ExportPath(ABC):
    """One way. An instance stands for one image; all state is on disk and in the kernel.

    Args:
        home: folder of this image's own; whoever calls makes and removes it.
        address: the image.
    """

    name: ClassVar[str]
    reads_client_options: ClassVar[bool]
    """Whether librbd is in the path, so that client options such as ``rbd_cache`` take effect."""

    def __init__(self, home: Path, address: ImageAddress) -> None:
        self._home = home
        self._address = address

    @classmethod
    @abstractmethod
    def usable(cls) -> bool:
        """Whether this machine's kernel allows it."""

    @abstractmethod
    def device(self) -> Path | None:
        """The block device if the image is attached and everything behind it lives; None otherwise."""

    @abstractmethod
    def attach(self) -> Path:
        """Attach; nothing of this image is attached before.

        Raises:
            HostError: this machine lacks something.
            ClusterError: the image cannot be opened.
        """

    @abstractmethod
    def detach(self) -> None:
        """Detach whatever there is, whole or in pieces; also if there is nothing."""


_APPEAR_SECONDS = 10.0


def _json_argument(**values: object) -> str:
    return json.dumps({key.replace("_", "-"): value for key, value in values.items()})


class FuseExport(ExportPath):
    """librbd in qemu-storage-daemon, its FUSE export as a file, a loop device with direct I/O over the file.

    The daemon takes further requests up while earlier ones wait, so that a queue depth reaches librbd: with 4K
    random writes at depth 8 on the lab, 66 IOPS this way and 61 through fio's own rbd engine.
    """

    name = "fuse"
    reads_client_options = True

    @classmethod
    def usable(cls) -> bool:
        return True  # what is missing is said by attach, as there is no way after this one

    def _pid(self) -> int | None:
        return processes.from_pid_file(self._home / "pid", self._home)

    def device(self) -> Path | None:
        if self._pid() is None:
            return None
        return next(iter(loops_of(self._home / "disk")), None)

    def _rbd_cache(self) -> bool:
        """What the client's conf and the config store say, before QEMU says something else."""
        admin = RadosAdmin(self._address.conf, client_id=self._address.client_id)
        try:
            return str(admin.cluster.conf_get("rbd_cache")) == "true"
        finally:
            admin.close()

    def attach(self) -> Path:
        require_programs("qemu-storage-daemon", "losetup", "fusermount3")
        if not Path("/dev/fuse").exists():
            raise HostError(
                "this kernel cannot make a block device of an RBD image: it has neither rbd nor nbd nor FUSE",
                where="kernel",
                remedy="load one of the modules: modprobe rbd, nbd or fuse",
            )
        address, point = self._address, self._home / "disk"
        point.touch()
        blockdev = _json_argument(
            driver="rbd",
            node_name="image",
            pool=address.pool,
            image=address.image,
            conf=str(address.conf),
            user=address.client_id,
            discard="unmap",
            cache={"direct": not self._rbd_cache(), "no-flush": False},
        )
        export = _json_argument(
            type="fuse", id="export", node_name="image", mountpoint=str(point), writable=True, growable=False
        )
        argv = ["qemu-storage-daemon", "--daemonize", "--pidfile", str(self._home / "pid")]
        try:
            run([*argv, "--blockdev", blockdev, "--export", export])
        except HostError as error:
            raise ClusterError(
                f"the image cannot be attached: {error.what}",
                where=str(address),
                remedy="if the driver 'rbd' is unknown, install qemu-block-extra; otherwise look whether the "
                "image and its pool exist and the cluster is healthy",
            ) from None
        self._await_size(point)
        device = attach_loop(point)
        clear_forgotten_limit(device_number(device))
        return device

    def _await_size(self, point: Path) -> None:
        until = time.monotonic() + _APPEAR_SECONDS
        while point.stat().st_size == 0:  # the empty file below the mount
            if time.monotonic() > until or self._pid() is None:
                raise ClusterError("the export did not appear", where=str(self._address))
            time.sleep(0.02)

    def detach(self) -> None:
        point = self._home / "disk"
        if self._pid() is not None:
            # While the daemon serves, what the loop device still has to flush gets there.
            for device in loops_of(point):
                detach_loop(device)
        processes.stop(processes.of_folder(self._home))
        # Without it, open requests fail at once, and a device that nobody could let go of is free.
        for device in loops_of(point):
            detach_loop(device)
        unmount_under(point)


_DEVICE = "device"
_RBD_BUS = Path("/sys/bus/rbd/devices")


def mappings_of(listing: str, address: ImageAddress) -> list[Mapping[str, Any]]:
    """What has the names of an image in what ``rbd device list --format json`` prints; of any cluster."""
    wanted = (address.pool, address.image)
    return [m for m in json.loads(listing or "[]") if (m["pool"], m.get("image", m.get("name"))) == wanted]


class _MappedExport(ExportPath):
    """What ``rbd device`` can do for both kinds."""

    _device_type: str

    def _rbd(self, *arguments: str) -> str:
        address = self._address
        return run(["rbd", "--conf", str(address.conf), "--id", address.client_id, "device", *arguments])

    @abstractmethod
    def _is_of_this_cluster(self, mapping: Mapping[str, Any]) -> bool:
        """Whether a mapping of this image's names is of the cluster that ``conf`` leads to."""

    def _mapped(self) -> list[Path]:
        """The devices of this image of this cluster."""
        listing = self._rbd("list", "--device-type", self._device_type, "--format", "json")
        return [Path(m["device"]) for m in mappings_of(listing, self._address) if self._is_of_this_cluster(m)]

    def device(self) -> Path | None:
        try:
            attached = Path((self._home / _DEVICE).read_text())
        except OSError:
            return None
        return attached if attached in self._mapped() else None

    def attach(self) -> Path:
        try:
            printed = self._rbd("map", "--device-type", self._device_type, str(self._address))
        except HostError as error:
            raise ClusterError(f"the image cannot be attached: {error.what}", where=str(self._address)) from None
        device = Path(printed.strip().splitlines()[-1])
        (self._home / _DEVICE).write_text(str(device))
        return device

    def detach(self) -> None:
        try:
            # Also one whose making was cut short before it was written down.
            mapped = self._mapped()
        except CephfitError:
            return  # no rbd program: nothing can be mapped through it any more
        for device in mapped:
            self._rbd("unmap", "--device-type", self._device_type, "--options", "force", str(device))


class KrbdExport(_MappedExport):
    """The kernel's rbd client. librbd and its options play no part."""

    name = "krbd"
    reads_client_options = False
    _device_type = "krbd"

    @classmethod
    def usable(cls) -> bool:
        return Path("/sys/bus/rbd").exists() and find_program("rbd") is not None

    def _is_of_this_cluster(self, mapping: Mapping[str, Any]) -> bool:
        """By the cluster's identifier, which the kernel keeps with the mapping, and the client's conf has."""
        with suppress(OSError):
            mapped = (_RBD_BUS / str(mapping["id"]) / "cluster_fsid").read_text().strip()
            said = re.search(r"^\s*fsid\s*=\s*(\S+)", self._address.conf.read_text(errors="replace"), re.MULTILINE)
            return said is not None and said[1] == mapped
        return False


class NbdExport(_MappedExport):
    """librbd in rbd-nbd behind the kernel's nbd client."""

    name = "rbd-nbd"
    reads_client_options = True
    _device_type = "nbd"

    @classmethod
    def usable(cls) -> bool:
        return Path("/dev/nbd0").exists() and find_program("rbd-nbd") is not None

    def _is_of_this_cluster(self, mapping: Mapping[str, Any]) -> bool:
        """By the conf that its rbd-nbd, whose process id the list gives, was started with."""
        return processes.mentions(processes.command_line(int(mapping["id"])), self._address.conf)


_PATHS: Mapping[str, type[ExportPath]] = {path.name: path for path in (KrbdExport, NbdExport, FuseExport)}
"""Best first."""

_RECORD = "attached.json"


@dataclass(frozen=True, slots=True)
class _Record:
    """What was attached, on disk before it is, so that ``detach`` works from another process.

    Attributes:
        path: which way.
        pool: of the image.
        image: name.
        conf: of the client.
        conf_sha256: its content, as client options are read only when attaching.
        client_id: such as ``admin``.
        nbytes: size of the image.
    """

    path: str
    pool: str
    image: str
    conf: str
    conf_sha256: str
    client_id: str
    nbytes: int

    @property
    def address(self) -> ImageAddress:
        return ImageAddress(self.pool, self.image, Path(self.conf), self.client_id, self.nbytes)


def export_path(*, librbd: bool = False) -> str:
    """The way that this machine's kernel allows: ``krbd``, ``rbd-nbd`` or ``fuse``.

    Args:
        librbd: only the ways that have librbd in them, as a virtual machine has: client options take effect, and
            images of all features can be attached.
    """
    ways = (path for path in _PATHS.values() if path.reads_client_options or not librbd)
    return next(path.name for path in ways if path.usable())


def _home(folder: Path, pool: str, image: str) -> Path:
    return folder.resolve() / "exports" / f"{quote(pool, safe='')}@{quote(image, safe='')}"


def _read_record(home: Path) -> _Record | None:
    try:
        return _Record(**json.loads((home / _RECORD).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def attach(
    image: str,
    *,
    pool: str,
    conf: Path,
    client_id: str = "admin",
    folder: Path,
    nbytes: int,
    path: str | None = None,
) -> Path:
    """Attach an image and return its block device; the one it has already if nothing has changed since.

    Args:
        conf: ceph.conf of the client; librbd takes its options from there and from the config store. Not so
            krbd, which has no librbd: ask for ``path="rbd-nbd"`` or ``"fuse"`` where client options matter.
        folder: the lab's, or any folder of the caller's; what is needed lies under ``exports`` in it.
        nbytes: size of the image; the device must have it exactly.
        path: ``krbd``, ``rbd-nbd`` or ``fuse``; by default the first that this kernel has.

    Raises:
        HostError: this machine lacks something.
        ClusterError: the image cannot be opened, or has another size.
    """
    require_root("attaching an image")
    way = _PATHS[path or export_path()]
    digest = hashlib.sha256(conf.read_bytes()).hexdigest()
    record = _Record(way.name, pool, image, str(conf), digest, client_id, nbytes)
    home = _home(folder, pool, image)
    export = way(home, record.address)
    if _read_record(home) == record:
        device = export.device()
        if device is not None and device_nbytes(device) == nbytes:
            return device
    detach(image, pool=pool, folder=folder)
    home.mkdir(parents=True)
    (home / _RECORD).write_text(json.dumps(asdict(record), indent=1))
    try:
        device = export.attach()
        if device_nbytes(device) != nbytes:
            found = device_nbytes(device)
            raise ClusterError(f"the image has {found} bytes, not {nbytes}", where=f"{pool}/{image}")
    except BaseException:
        detach(image, pool=pool, folder=folder)
        raise
    return device


def device_of(image: str, *, pool: str, folder: Path) -> Path | None:
    """The block device of an attached image if everything behind it lives; None otherwise."""
    home = _home(folder, pool, image)
    record = _read_record(home)
    return None if record is None else _PATHS[record.path](home, record.address).device()


def detach(image: str, *, pool: str, folder: Path) -> None:
    """Detach an image, also after any part of its export was killed. Safe to call twice.

    Raises:
        HostError: somebody holds the device open.
    """
    home = _home(folder, pool, image)
    record = _read_record(home)
    if record is None:  # its writing was cut short: before anything was attached
        way, address = FuseExport.name, ImageAddress(pool, image, Path(), "admin", 0)
    else:
        way, address = record.path, record.address
    _PATHS[way](home, address).detach()
    shutil.rmtree(home, ignore_errors=True)


def attached(folder: Path) -> list[tuple[str, str]]:
    """(pool, image) of everything that was attached from this folder and not detached since."""
    records = [_read_record(file.parent) for file in sorted((folder / "exports").glob(f"*/{_RECORD}"))]
    return [(record.pool, record.image) for record in records if record is not None]


def detach_all(folder: Path) -> None:
    """Detach everything that was attached from this folder."""
    for pool, image in attached(folder):
        detach(image, pool=pool, folder=folder)


class ImageDevices:
    """Implements ``ExportsDevices`` by whatever this machine's kernel has."""

    def attach(self, volume: Volume, *, conf: Path, client_id: str, folder: Path) -> Path:
        return attach(
            volume.image,
            pool=volume.pool,
            conf=conf,
            client_id=client_id,
            folder=folder,
            nbytes=volume.nbytes,
            # All configurations are measured through one path, and it must be one that each of them can use.
            path=export_path(librbd=True),
        )

    def device_of(self, volume: Volume, *, folder: Path) -> Path | None:
        return device_of(volume.image, pool=volume.pool, folder=folder)

    def detach_all(self, folder: Path) -> None:
        detach_all(folder)
