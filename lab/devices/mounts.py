"""The kernel's table of mounts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from cephfit.lab.machine import run


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
    """Whether another mount namespace, created while a block device was mounted here, has it mounted.

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
