"""Requirements on this machine, and running its programs."""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from cephfit.core.errors import HostError, LackingError
from cephfit.core.units import format_nbytes

PACKAGES: Mapping[str, str] = {
    "ceph-mon": "ceph-mon",
    "ceph-mgr": "ceph-mgr",
    "ceph-osd": "ceph-osd",
    "crushtool": "ceph-base",
    "monmaptool": "ceph-base",
    "cc": "gcc libc6-dev",
    "losetup": "mount",
    "fusermount3": "fuse3",
    "nbdfuse": "libnbd-bin",
    "nbdkit": "nbdkit nbdkit-plugin-python python3-swiftclient",
    "qemu-nbd": "qemu-utils",
    "qemu-storage-daemon": "qemu-system-common (and qemu-block-extra)",
    "rbd": "ceph-common",
    "rbd-nbd": "rbd-nbd",
    "fio": "fio",
    "setpriv": "util-linux",
    "blkdiscard": "util-linux",
    "mkfs.ext4": "e2fsprogs",
    "mkfs.xfs": "xfsprogs",
    "mkfs.btrfs": "btrfs-progs",
    "mount": "mount",
    "mmdebstrap": "mmdebstrap",
    "unshare": "util-linux",
    "postgres": "postgresql",
    "pgbench": "postgresql-contrib",
}
"""Program to its Debian package."""

_SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
"""Not on the PATH of every root shell (su without a dash)."""

_KERNEL_LIMITS = Path("/proc/sys/fs")
_AIO_OF_AN_OSD = 2048
"""A running BlueStore OSD has two queues of bdev_aio_max_queue_depth = 1024: BlueStore's and BlueFS's."""
_CEPHS_AIO = 1048576
"""The value that Ceph's packages set in sysctl.d/30-ceph-osd.conf; a container has the value of its host."""


def find_program(name: str) -> str | None:
    """Return the full path of a program, also if PATH lacks the sbin folders; None if it is missing."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{_SBIN}")


def require_programs(*names: str) -> None:
    """Check that programs are installed.

    Raises:
        LackingError: names every missing program and the Debian packages to install.
    """
    missing = [name for name in names if find_program(name) is None]
    if missing:
        packages = " ".join(dict.fromkeys(PACKAGES[name] for name in missing))
        raise LackingError(
            f"{', '.join(missing)}: not found",
            where="programs on this machine",
            remedy=f"install their Debian packages: apt install {packages}",
        )


def require_root(what: str) -> None:
    """Check that this process runs as root.

    Raises:
        LackingError: it does not.
    """
    if os.geteuid() != 0:
        raise LackingError(
            f"{what} needs root (loop devices, mounts, control groups), but this is user id {os.geteuid()}",
            remedy="run it with sudo",
        )


def require_free_disk(folder: Path, nbytes: int) -> None:
    """Check the free space of a disk.

    Args:
        folder: may not exist yet; its nearest existing parent is checked.
        nbytes: required free space.

    Raises:
        HostError: there is less.
    """
    place = next(p for p in (folder, *folder.parents) if p.exists())
    free = shutil.disk_usage(place).free
    if free < nbytes:
        raise HostError(
            f"the disk has {free / 2**30:.1f} GiB free, the lab needs {format_nbytes(nbytes)}",
            where=str(folder),
            remedy="free disk space, or choose a folder on another disk with --folder",
        )


def require_aio(n_osds: int) -> None:
    """Check that the kernel has enough asynchronous I/Os for the OSDs.

    Raises:
        HostError: it has too few; ``ceph-osd --mkfs`` would fail with EAGAIN.
    """
    try:
        taken = int((_KERNEL_LIMITS / "aio-nr").read_text())
        most = int((_KERNEL_LIMITS / "aio-max-nr").read_text())
    except FileNotFoundError:  # /proc is masked: ceph-osd will report it
        return
    wanted = n_osds * _AIO_OF_AN_OSD
    if taken + wanted > most:
        raise HostError(
            f"{n_osds} OSDs need {wanted} asynchronous I/Os, and {max(0, most - taken)} of this machine's {most} "
            "are left",
            where=str(_KERNEL_LIMITS / "aio-max-nr"),
            remedy=f"raise the limit: sysctl fs.aio-max-nr={max(_CEPHS_AIO, taken + wanted)}; or remove an "
            "unused lab",
        )


def run(
    argv: Sequence[str],
    *,
    seconds: float = 60.0,
    stdin: str | None = None,
    environment: Mapping[str, str] | None = None,
    directory: Path | None = None,
) -> str:
    """Run a program and return its standard output.

    Args:
        environment: the complete environment; None for that of this process.
        directory: where the program starts; None for the current directory.

    Raises:
        HostError: it is missing, failed (with its last lines of output) or took longer than ``seconds``.
    """
    program = find_program(argv[0])
    if program is None:
        require_programs(argv[0])
    try:
        done = subprocess.run(
            [program or argv[0], *argv[1:]],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env=environment,
            cwd=directory,
        )
    except subprocess.TimeoutExpired:
        raise HostError(f"gave no answer within {seconds:g} s", where=" ".join(argv)) from None
    if done.returncode != 0:
        words = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
        raise HostError(f"failed with code {done.returncode}: {' / '.join(words[-3:])}", where=" ".join(argv))
    return done.stdout
