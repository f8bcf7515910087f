"""The layout of an OSD's disk: BlueStore alone, or a file system with FileStore."""

import errno
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from cephfit.ceph.environment.scopes import FILESTORE, OsdStore, why_no_filestore
from cephfit.core.errors import HostError
from cephfit.lab.daemons.ceph_programs import CephVersion
from cephfit.lab.devices.disks import is_mounted_elsewhere, mounts, unmount_under
from cephfit.lab.machine import require_programs, run

_MKFS: Mapping[str, tuple[str, ...]] = {
    # Options of Ceph's tools for these file systems (osd_mkfs_options_xfs). Everything is initialised at once:
    # otherwise ext4's kernel thread would write during measurements.
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
"""Role of a side disk to its name in the OSD's folder."""
_UNMOUNT_SECONDS = 300.0
"""Time limit: a full page cache is written at the speed of the lab's disk, which may have other users."""
_FS_IOC_SHUTDOWN = 0x8004587D
_NO_LOG_FLUSH = (2).to_bytes(4, "little")
"""Shutdown ioctl of xfs and ext4 (linux/fs.h), and its flag that discards the log."""


def require_store(store: OsdStore, version: Callable[[], CephVersion]) -> None:
    """Check that this machine and this release can create a store.

    Args:
        store: to create.
        version: of the lab's Ceph; called only for FileStore.

    Raises:
        HostError: a program or a file system is missing, or Ceph no longer has this object store.
    """
    if store.objectstore != FILESTORE:
        return
    if why := why_no_filestore(str(version())):
        raise HostError(
            why,
            where="objectstore",
            remedy="use bluestore, or a lab of an older release: `cephfit lab up --release pacific`",
        )
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
        store: to create.
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
    """Mount a disk with a layout, and point the links to the current device names."""
    if store.objectstore == FILESTORE:
        if not os.path.ismount(home):
            options = store.mount_options or _MOUNT[store.filesystem]
            run(["mount", "-t", store.filesystem, "-o", options, str(device), str(home)], seconds=300)
    else:
        _link(home / "block", device)
    for role, side_device in side.items():
        _link(home / _LINKS[role], side_device)


def take_off(home: Path, device: Path) -> bool:
    """Empty the folder and the disk of an OSD that does not run.

    Returns:
        False if another mount namespace has the disk mounted, so that it cannot be reused.

    Raises:
        HostError: a process uses the file system.
    """
    _shut_down(home)
    ours = _unmount(home, device)
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(exist_ok=True)
    if ours:
        run(["blkdiscard", "--force", str(device)])
    return ours


def _shut_down(home: Path) -> None:
    """Prevent the kernel from writing data that will be discarded, if the file system supports it."""
    if os.path.ismount(home):
        descriptor = os.open(home, os.O_RDONLY)
        try:
            with suppress(OSError):  # btrfs cannot
                fcntl.ioctl(descriptor, _FS_IOC_SHUTDOWN, _NO_LOG_FLUSH)
        finally:
            os.close(descriptor)


def _unmount(home: Path, device: Path) -> bool:
    """Unmount until the device is free: unmounts are lazy, and a program left by a kill may mount it again.

    Returns:
        False if another mount namespace has it mounted.
    """
    until = time.monotonic() + _UNMOUNT_SECONDS
    while True:
        unmount_under(home)
        try:
            # For block devices, O_EXCL fails while it is mounted or otherwise in use.
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
    """Flush a FileStore's file system and drop its files from the page cache; other files are not affected."""
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
    """Return the type of the mounted file system; empty if none is mounted."""
    return next((mount.kind for mount in mounts() if mount.point == home), "")


def _link(link: Path, device: Path) -> None:
    if link.is_symlink() and link.readlink() == device:
        return
    link.unlink(missing_ok=True)
    link.symlink_to(device)
