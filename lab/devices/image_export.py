"""RBD images as block devices of this machine, so that file systems, workloads and fio access them alike.

There are three paths: the kernel's rbd client, librbd behind the kernel's nbd client (rbd-nbd), and librbd behind
FUSE and a loop device where the kernel has neither rbd nor nbd.

``rbd device list`` shows all mappings of the machine without their cluster, and two clusters may have pools and
images of the same names. So a device counts as an image's only if its mapping is of this cluster. It is changed
only if it is the device that was printed and recorded when the image was attached. This follows rbd(8) and
rbd-nbd(8) of Ceph 16; no kernel with these modules was available, so it is tested with a simulated ``rbd``.

Meaning of a direct write to the device. A virtual machine with ``cache=none`` opens its disk without the host's
page cache, and QEMU then disables librbd's cache; a guest's flush reaches the OSDs. Here it is the same: the lab's
config store has ``rbd_cache = false`` for clients, loop device and export work without a page cache, and a direct
write has reached the OSDs when it returns. QEMU sets ``rbd_cache`` itself after reading the conf: on without
``cache.direct``, off with it. Therefore the value from the client's conf and the config store is queried first,
and ``cache.direct`` is set to keep it: with ``rbd_cache = true`` the device behaves as in a virtual machine with
``cache=writeback``. All other client options reach librbd unchanged. They are read when a device is attached:
after a change, detach and attach again.
"""

import hashlib
import json
import re
import shutil
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
from cephfit.lab.daemons import processes
from cephfit.lab.devices.disks import device_nbytes
from cephfit.lab.devices.fuse_devices import NODE, QemuExport
from cephfit.lab.machine import find_program, require_root, run
from cephfit.lab.network.client_network import ClientNetwork


@dataclass(frozen=True, slots=True)
class ImageAddress:
    """The address of an image.

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
    """One export path. An instance belongs to one image; all state is on disk and in the kernel.

    Args:
        home: folder of this image only, created and removed by the caller.
        address: the image.

    Attributes:
        inside: words before a program that opens the image; they run it in a network of its own.
    """

    name: ClassVar[str]
    reads_client_options: ClassVar[bool]
    """Whether librbd is in the path, so that client options such as ``rbd_cache`` take effect."""

    def __init__(self, home: Path, address: ImageAddress) -> None:
        self._home = home
        self._address = address
        self.inside: tuple[str, ...] = ()

    @classmethod
    @abstractmethod
    def usable(cls) -> bool:
        """Return whether this machine's kernel allows it."""

    @abstractmethod
    def device(self) -> Path | None:
        """Return the block device if the image is attached and all parts of its export are alive; else None."""

    @abstractmethod
    def attach(self) -> Path:
        """Attach the image, which must not be attached.

        Raises:
            HostError: this machine lacks something.
            ClusterError: the image cannot be opened.
        """

    @abstractmethod
    def detach(self) -> None:
        """Detach all parts of the export, also if it is incomplete or missing."""


class FuseExport(ExportPath):
    """librbd in qemu-storage-daemon, as a block device by ``QemuExport``.

    The queue depth reaches librbd: 4K random writes at depth 8 on the lab have 66 IOPS here and 61 with fio's rbd
    engine.
    """

    name = "fuse"
    reads_client_options = True

    def __init__(self, home: Path, address: ImageAddress) -> None:
        super().__init__(home, address)
        self._export = QemuExport(home)

    @classmethod
    def usable(cls) -> bool:
        return True  # the last path: ``attach`` reports what is missing

    def device(self) -> Path | None:
        return self._export.device()

    def _rbd_cache(self) -> bool:
        """Return the value in the client's conf and the config store, before QEMU overrides it."""
        admin = RadosAdmin(self._address.conf, client_id=self._address.client_id)
        try:
            return str(admin.cluster.conf_get("rbd_cache")) == "true"
        finally:
            admin.close()

    def attach(self) -> Path:
        address = self._address
        node = {
            "driver": "rbd",
            "node-name": NODE,
            "pool": address.pool,
            "image": address.image,
            "conf": str(address.conf),
            "user": address.client_id,
            "discard": "unmap",
            "cache": {"direct": not self._rbd_cache(), "no-flush": False},
        }
        remedy = (
            "if the driver 'rbd' is unknown, install qemu-block-extra; otherwise check that the image and its "
            "pool exist and the cluster is healthy"
        )
        return self._export.attach([node], what="the image", where=str(address), remedy=remedy, enter=self.inside)

    def detach(self) -> None:
        self._export.detach()


_DEVICE = "device"
_RBD_BUS = Path("/sys/bus/rbd/devices")


def mappings_of(listing: str, address: ImageAddress) -> list[Mapping[str, Any]]:
    """Return the mappings with the names of an image from ``rbd device list --format json``, of any cluster."""
    names = (address.pool, address.image)
    return [m for m in json.loads(listing or "[]") if (m["pool"], m.get("image", m.get("name"))) == names]


class _MappedExport(ExportPath):
    """Base of the two paths that use ``rbd device``."""

    _device_type: str

    def _rbd(self, *arguments: str) -> str:
        address = self._address
        return run(["rbd", "--conf", str(address.conf), "--id", address.client_id, "device", *arguments])

    @abstractmethod
    def _is_of_this_cluster(self, mapping: Mapping[str, Any]) -> bool:
        """Return whether a mapping with this image's names is of the cluster of ``conf``."""

    def _mapped(self) -> list[Path]:
        """Return the devices of this image of this cluster."""
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
            # Also a mapping that was interrupted before it was recorded.
            mapped = self._mapped()
        except CephfitError:
            return  # without the rbd program nothing can be mapped
        for device in mapped:
            self._rbd("unmap", "--device-type", self._device_type, "--options", "force", str(device))


class KrbdExport(_MappedExport):
    """The kernel's rbd client. librbd and its options are not used."""

    name = "krbd"
    reads_client_options = False
    _device_type = "krbd"

    @classmethod
    def usable(cls) -> bool:
        return Path("/sys/bus/rbd").exists() and find_program("rbd") is not None

    def _is_of_this_cluster(self, mapping: Mapping[str, Any]) -> bool:
        """Compare the cluster's identifier in the kernel's mapping with that in the client's conf."""
        with suppress(OSError):
            mapped = (_RBD_BUS / str(mapping["id"]) / "cluster_fsid").read_text().strip()
            fsid = re.search(r"^\s*fsid\s*=\s*(\S+)", self._address.conf.read_text(errors="replace"), re.MULTILINE)
            return fsid is not None and fsid[1] == mapped
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
        """Compare the conf with which its rbd-nbd was started; the list has the process id."""
        return processes.mentions(processes.command_line(int(mapping["id"])), self._address.conf)


_PATHS: Mapping[str, type[ExportPath]] = {path.name: path for path in (KrbdExport, NbdExport, FuseExport)}
"""Best first."""

_RECORD = "attached.json"


@dataclass(frozen=True, slots=True)
class _Record:
    """The record of an export, written before attaching, so that another process can detach it.

    Attributes:
        path: export path.
        pool: of the image.
        image: name.
        conf: of the client.
        conf_sha256: digest of its content, because client options are read only when attaching.
        client_id: such as ``admin``.
        nbytes: size of the image.
        network: identity of the clients' network; empty for that of this machine.
    """

    path: str
    pool: str
    image: str
    conf: str
    conf_sha256: str
    client_id: str
    nbytes: int
    network: str = ""

    @property
    def address(self) -> ImageAddress:
        return ImageAddress(self.pool, self.image, Path(self.conf), self.client_id, self.nbytes)


def export_path(*, librbd: bool = False) -> str:
    """Return the export path that this machine's kernel supports: ``krbd``, ``rbd-nbd`` or ``fuse``.

    Args:
        librbd: only paths with librbd, as in a virtual machine: client options take effect, and images with all
            features can be attached.
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
    network: ClientNetwork | None = None,
) -> Path:
    """Attach an image and return its block device; return the existing one if nothing has changed.

    Args:
        conf: ceph.conf of the client; librbd takes its options from there and from the config store. krbd
            does not: use ``path="rbd-nbd"`` or ``"fuse"`` if client options matter.
        folder: of the lab, or any folder of the caller; state is in its subfolder ``exports``.
        nbytes: size of the image; the device must have exactly this size.
        path: ``krbd``, ``rbd-nbd`` or ``fuse``; by default the first that this kernel has.
        network: that the client is in, with ``fuse`` only; None: that of this machine.

    Raises:
        HostError: this machine lacks something.
        ClusterError: the image cannot be opened, or has another size.
    """
    require_root("attaching an image")
    way = _PATHS[path or export_path()]
    digest = hashlib.sha256(conf.read_bytes()).hexdigest()
    identity = "" if network is None else network.identity()
    record = _Record(way.name, pool, image, str(conf), digest, client_id, nbytes, identity)
    home = _home(folder, pool, image)
    export = way(home, record.address)
    export.inside = () if network is None else network.inside()
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
    """Return the block device of an attached image if all parts of its export are alive; else None."""
    home = _home(folder, pool, image)
    record = _read_record(home)
    return None if record is None else _PATHS[record.path](home, record.address).device()


def detach(image: str, *, pool: str, folder: Path) -> None:
    """Detach an image, also after any part of its export was killed. Safe to call twice.

    Raises:
        HostError: a process holds the device open.
    """
    home = _home(folder, pool, image)
    record = _read_record(home)
    if record is None:  # writing it was interrupted, before anything was attached
        way, address = FuseExport.name, ImageAddress(pool, image, Path(), "admin", 0)
    else:
        way, address = record.path, record.address
    _PATHS[way](home, address).detach()
    shutil.rmtree(home, ignore_errors=True)


def attached(folder: Path) -> list[tuple[str, str]]:
    """Return (pool, image) of all images attached from this folder."""
    records = [_read_record(file.parent) for file in sorted((folder / "exports").glob(f"*/{_RECORD}"))]
    return [(record.pool, record.image) for record in records if record is not None]


def detach_all(folder: Path) -> None:
    """Detach all images attached from this folder."""
    for pool, image in attached(folder):
        detach(image, pool=pool, folder=folder)


class ImageDevices:
    """Implements ``ExportsDevices`` with the export path that this machine's kernel supports.

    Args:
        network: that the clients are in; None: that of this machine. Only a program that runs in it can be there,
            so that the path is ``fuse``.
    """

    def __init__(self, network: ClientNetwork | None = None) -> None:
        self._network = network

    def attach(self, volume: Volume, *, conf: Path, client_id: str, folder: Path) -> Path:
        return attach(
            volume.image,
            pool=volume.pool,
            conf=conf,
            client_id=client_id,
            folder=folder,
            nbytes=volume.nbytes,
            # All configurations are measured through the same path, which must support each of them.
            path=export_path(librbd=True) if self._network is None else FuseExport.name,
            network=self._network,
        )

    def device_of(self, volume: Volume, *, folder: Path) -> Path | None:
        return device_of(volume.image, pool=volume.pool, folder=folder)

    def detach_all(self, folder: Path) -> None:
        detach_all(folder)
