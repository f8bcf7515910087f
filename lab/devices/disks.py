"""Loop devices over sparse files: the lab's disks."""

import os
import time
from contextlib import suppress
from pathlib import Path

from cephfit.core.errors import HostError
from cephfit.lab.machine import run
from cephfit.lab.processes import mentions

_SYS_BLOCK = Path("/sys/block")
_QUEUE = {"scheduler": "none", "nr_requests": "128", "read_ahead_kb": "128"}
"""Of a loop device that was just made (Linux 5 and 6)."""


def require_loop() -> None:
    """Raises:
    HostError: the kernel has no loop devices.
    """
    if not Path("/dev/loop-control").exists():
        raise HostError(
            "this kernel has no loop devices (/dev/loop-control)",
            where="kernel",
            remedy="load the module (modprobe loop), or use a machine or virtual machine whose kernel has it",
        )


def make_sparse(file: Path, nbytes: int) -> None:
    """Make ``file`` exactly ``nbytes`` long; nothing is written."""
    with file.open("ab") as stream:
        os.truncate(stream.fileno(), nbytes)


def _backing_file(name: str) -> str | None:
    """Full path of what is behind a loop device, None if nothing is. A deleted file keeps its old path."""
    try:
        text = (_SYS_BLOCK / name / "loop" / "backing_file").read_text().rstrip("\n")
    except OSError:
        return None
    return text.removesuffix(" (deleted)")


def _is_abandoned(name: str) -> bool:
    """Whether a device's file is deleted and the device goes at its last close; see ``abandon``."""
    loop = _SYS_BLOCK / name / "loop"
    try:
        deleted = (loop / "backing_file").read_text().rstrip("\n").endswith(" (deleted)")
        return deleted and (loop / "autoclear").read_text().strip() == "1"
    except OSError:
        return False


def loops_of(place: Path) -> dict[Path, Path]:
    """The attached loop devices whose file is ``place`` or lies below it: device to file."""
    found = {}
    for entry in _SYS_BLOCK.glob("loop*"):
        backing = None if _is_abandoned(entry.name) else _backing_file(entry.name)
        if backing is not None and mentions([backing], place):
            found[Path("/dev") / entry.name] = Path(backing)
    return found


def is_attached(device: Path) -> bool:
    """Whether a loop device has a file behind it."""
    return _backing_file(device.name) is not None


def attach_loop(file: Path) -> Path:
    """A loop device with direct I/O over ``file``, the one it has already if there is one.

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
    """Give the queue the kernel's values: a loop device keeps what it was set to for another file."""
    queue = _SYS_BLOCK / device.name / "queue"
    for key, value in _QUEUE.items():
        with suppress(OSError):  # not every kernel has each
            if f"[{value}]" not in (now := (queue / key).read_text()) and now.strip() != value:
                (queue / key).write_text(value)


def detach_loop(device: Path, *, seconds: float = 10.0) -> None:
    """Take the file away from a loop device; back when it is gone.

    Raises:
        HostError: something holds the device open for longer than ``seconds``.
    """
    until = time.monotonic() + seconds
    file = _backing_file(device.name)
    if file is None:
        return
    run(["losetup", "--detach", str(device)])
    # With users, the kernel lets go at the last close. The next file that is seen is another lab's, which took the
    # number at once.
    while _backing_file(device.name) == file:
        if time.monotonic() > until:
            raise HostError(
                f"still in use after {seconds:g} s",
                where=str(device),
                remedy=f"see what has it open (fuser -v {device}), end that, and try again",
            )
        time.sleep(0.05)


def abandon(device: Path) -> None:
    """Leave a device to whoever has it mounted in another mount namespace; its file is deleted.

    The kernel detaches it when that namespace ends, and frees the file's room then.
    """
    file = Path(_backing_file(device.name) or "/nonexistent")
    run(["losetup", "--detach", str(device)])
    file.unlink(missing_ok=True)


def device_number(device: Path) -> str:
    """``major:minor`` of a block device."""
    number = device.stat().st_rdev
    return f"{os.major(number)}:{os.minor(number)}"


def device_nbytes(device: Path) -> int:
    """Size of a block device; the kernel counts in 512-byte sectors whatever the device's own are."""
    return int((_SYS_BLOCK / device.name / "size").read_text()) * 512


def set_rotational(device: Path, rotational: bool) -> None:
    """What the kernel says of the disk; BlueStore chooses its ``*_hdd`` or ``*_ssd`` defaults by it.

    Loop devices forget it when they are detached.
    """
    (_SYS_BLOCK / device.name / "queue" / "rotational").write_text(str(int(rotational)))


def is_rotational(device: Path) -> bool:
    """Whether the kernel takes a block device for a spinning disk."""
    return (_SYS_BLOCK / device.name / "queue" / "rotational").read_text().strip() == "1"
