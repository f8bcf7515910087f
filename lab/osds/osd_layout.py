"""What lies on an OSD's disk: nothing but BlueStore, or a file system with FileStore on it."""

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from cephfit.ceph.environment.osd_store import FILESTORE, OsdStore
from cephfit.core.errors import HostError
from cephfit.lab.devices.mounts import is_mounted_elsewhere, mounts, unmount_under
from cephfit.lab.machine import require_programs, run

_MKFS: Mapping[str, tuple[str, ...]] = {
    # What Ceph's own tools gave these file systems (osd_mkfs_options_xfs). All is written at once: what ext4
    # leaves for later, its kernel thread would write while something is measured.
    "xfs": ("mkfs.xfs", "-q", "-f", "-i", "size=2048"),
    "btrfs": ("mkfs.btrfs", "-q", "-f"),
    "ext4": ("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0"),
}
_MOUNT: Mapping[str, str] = {
    # osd_mount_options_xfs, _btrfs, _ext4 of the releases that had them (ceph-disk).
    "xfs": "rw,noatime,inode64",
    "btrfs": "rw,noatime,user_subvol_rm_allowed",
    "ext4": "rw,noatime",
}
_LINKS = {"journal": "journal", "db": "block.db", "wal": "block.wal"}
"""Role of a disk of its own to its name in the OSD's folder."""
_UNMOUNT_SECONDS = 300.0
"""A full page cache is written out at the speed of the disk below the lab, which may be busy otherwise."""
_FS_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = (2).to_bytes(4, "little")
"""ioctl of linux/fs.h that xfs and ext4 have, and its hardest flag."""


def require_store(store: OsdStore) -> None:
    """See that this machine can make a store.

    Raises:
        HostError: a program or a file system is missing.
    """
    if store.objectstore != FILESTORE:
        return
    require_programs(_MKFS[store.filesystem][0])
    known = {line.split()[-1] for line in Path("/proc/filesystems").read_text().splitlines()}
    if store.filesystem not in known:
        raise HostError(
            f"this kernel does not know {store.filesystem}",
            where="/proc/filesystems",
            remedy=f"load the module (modprobe {store.filesystem}), or use another file system",
        )


def lay_out(home: Path, store: OsdStore, device: Path, side: Mapping[str, Path]) -> None:
    """Prepare an empty disk for ``ceph-osd --mkfs``.

    Args:
        home: the OSD's folder; its file system is mounted there.
        store: wanted.
        device: the disk.
        side: disks of ``store.placed()`` by role.

    Raises:
        HostError: mkfs or mount failed.
    """
    home.mkdir(exist_ok=True)
    if store.objectstore == FILESTORE:
        run([*_MKFS[store.filesystem], *store.mkfs_options.split(), str(device)], seconds=300)
    reconnect(home, store, device, side)


def reconnect(home: Path, store: OsdStore, device: Path, side: Mapping[str, Path]) -> None:
    """Mount a disk that was laid out before, and point the links to the devices as they are called now."""
    if store.objectstore == FILESTORE:
        if not os.path.ismount(home):
            options = store.mount_options or _MOUNT[store.filesystem]
            run(["mount", "-t", store.filesystem, "-o", options, str(device), str(home)], seconds=300)
    else:
        _link(home / "block", device)
    for role, beside in side.items():
        _link(home / _LINKS[role], beside)


def take_off(home: Path, device: Path) -> bool:
    """Leave an empty folder and an empty disk, whatever they held; the OSD does not run.

    Returns:
        False if another mount namespace has the disk mounted, so that it can be had no more.

    Raises:
        HostError: somebody holds the file system busy.
    """
    _shut_down(home)
    ours = _unmount(home, device)
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(exist_ok=True)
    if ours:
        run(["blkdiscard", "--force", str(device)])
    return ours


def _shut_down(home: Path) -> None:
    """Keep the kernel from writing out what will be thrown away, where the file system can be told so."""
    if os.path.ismount(home):
        descriptor = os.open(home, os.O_RDONLY)
        try:
            with suppress(OSError):  # btrfs cannot
                fcntl.ioctl(descriptor, _FS_IOC_SHUTDOWN, _NO_LOG_FLUSH)
        finally:
            os.close(descriptor)


def _unmount(home: Path, device: Path) -> bool:
    """Unmount until nobody has the device: unmounts are lazy, and a program left by a kill may mount it again.

    Returns:
        False if another mount namespace keeps it.
    """
    until = time.monotonic() + _UNMOUNT_SECONDS
    while True:
        unmount_under(home)
        try:
            # For block devices O_EXCL means: nobody has it mounted or otherwise in use.
            os.close(os.open(device, os.O_RDWR | os.O_EXCL))
            return True
        except OSError as error:
            if error.errno != errno.EBUSY or time.monotonic() > until:
                raise HostError(
                    f"still in use after it was unmounted: {error.strerror}",
                    where=str(device),
                    remedy=f"see what has it open (fuser -v {device}), end that, and try again",
                ) from None
        if is_mounted_elsewhere(device):
            return False
        time.sleep(0.1)


def drop_page_cache(home: Path) -> None:
    """Write out a FileStore's file system and drop its files from the page cache; nobody else's are touched."""
    run(["sync", "--file-system", str(home)], seconds=300)
    for folder, _, names in os.walk(home / "current"):
        for name in names:
            try:
                descriptor = os.open(Path(folder) / name, os.O_RDONLY | os.O_NOFOLLOW)
            except OSError:  # gone meanwhile
                continue
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def filesystem_at(home: Path) -> str:
    """Type of the file system mounted there; empty if none is."""
    return next((mount.kind for mount in mounts() if mount.point == home), "")


def _link(link: Path, device: Path) -> None:
    if link.is_symlink() and link.readlink() == device:
        return
    link.unlink(missing_ok=True)
    link.symlink_to(device)
