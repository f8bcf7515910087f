"""The lab's disks: loop devices over sparse files, and the kernel's table of what is mounted where."""

import errno
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cephfit.core.errors import HostError
from cephfit.lab.daemons.processes import mentions
from cephfit.lab.machine import run

_SYS_BLOCK = Path("/sys/block")
_QUEUE = {"scheduler": "none", "nr_requests": "128", "read_ahead_kb": "128"}
"""Queue values of a new loop device (Linux 5 and 6)."""


def require_loop() -> None:
    """Check that the kernel has loop devices.

    Raises:
        HostError: it has none.
    """
    if not Path("/dev/loop-control").exists():
        raise HostError(
            "this kernel has no loop devices (/dev/loop-control)",
            where="kernel",
            remedy="load the module (modprobe loop), or use a machine or virtual machine whose kernel has it",
        )


def make_sparse(file: Path, nbytes: int) -> None:
    """Create a sparse file of ``nbytes``."""
    with file.open("ab") as stream:
        os.truncate(stream.fileno(), nbytes)


def backing_file(device: Path) -> Path | None:
    """Return a loop device's backing file, None if it is not attached. A deleted file keeps its path."""
    try:
        text = (_SYS_BLOCK / device.name / "loop" / "backing_file").read_text().rstrip("\n")
    except OSError:
        return None
    return Path(text.removesuffix(" (deleted)"))


def _is_abandoned(name: str) -> bool:
    """Return whether a device's file is deleted and the device detaches at its last close; see ``abandon``."""
    loop = _SYS_BLOCK / name / "loop"
    try:
        deleted = (loop / "backing_file").read_text().rstrip("\n").endswith(" (deleted)")
        return deleted and (loop / "autoclear").read_text().strip() == "1"
    except OSError:
        return False


def loops_of(place: Path) -> dict[Path, Path]:
    """Return the attached loop devices with a file at or below ``place``: device to file."""
    found = {}
    for entry in _SYS_BLOCK.glob("loop*"):
        backing = None if _is_abandoned(entry.name) else backing_file(entry)
        if backing is not None and mentions([str(backing)], place):
            found[Path("/dev") / entry.name] = backing
    return found


def attach_loop(file: Path) -> Path:
    """Attach a loop device with direct I/O to ``file``, or return the existing one.

    Raises:
        HostError: no loop device is free, or the file system below cannot do direct I/O.
    """
    for device, backing in loops_of(file).items():
        if backing == file:
            return device
    device = Path(run(["losetup", "--find", "--show", "--direct-io=on", str(file)]).strip())
    if (_SYS_BLOCK / device.name / "loop" / "dio").read_text().strip() != "1":
        detach_loop(device)
        raise HostError(
            "the file system cannot do direct I/O under a loop device",
            where=str(file),
            remedy="choose a folder on ext4, xfs or btrfs with --folder",
        )
    _forget_queue(device)
    return device


def _forget_queue(device: Path) -> None:
    """Reset the queue to the kernel's values: a loop device keeps values set for an earlier file."""
    queue = _SYS_BLOCK / device.name / "queue"
    for key, value in _QUEUE.items():
        with suppress(OSError):  # not every kernel has all of them
            if f"[{value}]" not in (now := (queue / key).read_text()) and now.strip() != value:
                (queue / key).write_text(value)


def detach_loop(device: Path, *, seconds: float = 10.0) -> None:
    """Detach a loop device from its file; return when it is detached.

    Raises:
        HostError: something holds the device open for longer than ``seconds``.
    """
    until = time.monotonic() + seconds
    file = backing_file(device)
    if file is None:
        return
    run(["losetup", "--detach", str(device)])
    # A device in use is detached at its last close. Another file seen afterwards belongs to another lab, which
    # reused the number immediately.
    while backing_file(device) == file:
        if time.monotonic() > until:
            raise HostError(
                f"still in use after {seconds:g} s",
                where=str(device),
                remedy=f"see what has it open (fuser -v {device}), end that, and try again",
            )
        time.sleep(0.05)


def abandon(device: Path) -> None:
    """Leave a device that is mounted in another mount namespace; its file is deleted.

    The kernel detaches it when that namespace ends, and then frees the file's space.
    """
    file = backing_file(device) or Path("/nonexistent")
    run(["losetup", "--detach", str(device)])
    try:
        file.unlink(missing_ok=True)
    except OSError as error:
        if error.errno != errno.EBUSY:  # an image's export is a mount point, and goes when its server ends
            raise


def device_number(device: Path) -> str:
    """``major:minor`` of a block device."""
    number = device.stat().st_rdev
    return f"{os.major(number)}:{os.minor(number)}"


def device_nbytes(device: Path) -> int:
    """Size of a block device; the kernel counts 512-byte sectors for all devices."""
    return int((_SYS_BLOCK / device.name / "size").read_text()) * 512


def set_rotational(device: Path, rotational: bool) -> None:
    """Mark a disk as spinning or not; BlueStore chooses its ``*_hdd`` or ``*_ssd`` defaults by it.

    Loop devices lose the mark when they are detached.
    """
    (_SYS_BLOCK / device.name / "queue" / "rotational").write_text(str(int(rotational)))


def is_rotational(device: Path) -> bool:
    """Return whether the kernel treats a block device as a spinning disk."""
    return (_SYS_BLOCK / device.name / "queue" / "rotational").read_text().strip() == "1"


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of /proc/self/mountinfo (proc(5)).

    Attributes:
        device: ``major:minor``.
        point: where it is mounted.
        kind: file system type.
        options: of the superblock, for control groups the controllers.
    """

    device: str
    point: Path
    kind: str
    options: tuple[str, ...]


def _unescape(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)


def mounts(process: int | str = "self") -> Iterator[Mount]:
    """Yield all mounts, in mount order.

    Args:
        process: whose mount namespace is read.
    """
    for line in Path(f"/proc/{process}/mountinfo").read_text().splitlines():
        before, _, after = line.partition(" - ")
        fields, kind_source_options = before.split(), after.split(" ")
        yield Mount(
            device=fields[2],
            point=Path(_unescape(fields[4])),
            kind=kind_source_options[0],
            options=tuple(kind_source_options[-1].split(",")),
        )


def is_mounted_elsewhere(device: Path) -> bool:
    """Return whether another mount namespace, created while a block device was mounted here, has it mounted.

    Such a mount cannot be undone from here; it ends with the namespace's last process.
    """
    ours = Path("/proc/self/ns/mnt").readlink()
    seen = {ours}
    for process in Path("/proc").iterdir():
        try:
            if not process.name.isdigit() or (theirs := (process / "ns" / "mnt").readlink()) in seen:
                continue
            seen.add(theirs)
            lines = (process / "mountinfo").read_text().splitlines()
        except OSError:  # gone meanwhile
            continue
        if any(line.partition(" - ")[2].split(" ")[1:2] == [str(device)] for line in lines):
            return True
    return False


def unmount_under(folder: Path) -> None:
    """Lazily unmount everything at or below ``folder``, the innermost first.

    Lazily, because the process behind a FUSE mount may be dead and the mount's users may hang.
    """
    for mount in reversed(list(mounts())):
        if mount.point == folder or folder in mount.point.parents:
            run(["umount", "--lazy", "--no-canonicalize", str(mount.point)])


def unmount_device(device: str) -> None:
    """Lazily unmount all mounts of a block device.

    Args:
        device: ``major:minor``.
    """
    for mount in reversed(list(mounts())):
        if mount.device == device:
            run(["umount", "--lazy", "--no-canonicalize", str(mount.point)])
