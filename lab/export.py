"""An RBD image as a block device of this machine, so that a file system, a workload and fio reach it alike.

What a direct write to the device means. A virtual machine with ``cache=none`` opens its disk past the host's page
cache, and QEMU then switches librbd's own cache off; a guest's flush reaches the OSDs. So it is here: the lab's
config store has ``rbd_cache = false`` for clients, the loop device and the export work without a page cache, and a
direct write has reached the OSDs when it returns. QEMU sets ``rbd_cache`` itself after it has read the conf: on
unless ``cache.direct``, off with it. Therefore the value that the client's conf and the config store give is asked
first and ``cache.direct`` is chosen to keep it: with ``rbd_cache = true``, the device is what a virtual machine
with ``cache=writeback`` has. All other client options reach librbd untouched. They are read when a device is
attached: after a change, detach and attach again.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import quote

from cephfit.errors import ClusterError
from cephfit.lab.disks import device_nbytes
from cephfit.lab.export_fuse import FuseExport
from cephfit.lab.export_kernel import KrbdExport, NbdExport
from cephfit.lab.export_path import ExportPath, ImageAddress
from cephfit.lab.machine import require_root

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
