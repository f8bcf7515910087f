"""Writes fio's I/O logs, versions 2 and 3 (fio's HOWTO, "Trace file format")."""

from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

from cephfit.access import AccessBatch
from cephfit.errors import InputError
from cephfit.units import LBN_NBYTES, NS_PER_US

_OPS = ("read", "write")


def write_iolog(
    batches: Iterable[AccessBatch],
    output: TextIO,
    *,
    version: int = 3,
    file: str | None = None,
    wrap_nbytes: int | None = None,
) -> int:
    """Write accesses as an I/O log that fio replays with ``read_iolog``.

    The first access has the time 1 us: fio takes 0 for no time, and would lose the gap after it. A time before
    that of the access before is written as the same time: fio issues in the order of the lines.

    Args:
        batches: in order of issue, of disks of one level.
        output: the log.
        version: 3 has a time in every line (fio 3.31 or newer); 2 has waits between them, in whole microseconds.
        file: name of the only file in the log; None: every disk under its own name, blanks as ``_``.
        wrap_nbytes: offsets beyond this many bytes begin again at 0; None: they stay.

    Returns:
        accesses written.
    """
    output.write(f"fio version {version} iolog\n")
    known: set[str] = set()
    words = _Words()
    origin_ns: int | None = None
    now_us, written = 1, 0
    for batch in batches:
        names = [file or words.of(name) for name in batch.disks]
        present = {batch.disks[d] for d in set(batch.disk.tolist())}
        for name in sorted({file or words.of(disk) for disk in present} - known):
            known.add(name)
            stamp = f"{now_us} " if version == 3 else ""
            output.write(f"{stamp}{name} add\n{stamp}{name} open\n")
        lines = []
        rows = zip(
            batch.time_ns.tolist(), batch.op, batch.lbn.tolist(), batch.nbytes.tolist(), batch.disk, strict=True
        )
        for time_ns, op, lbn, nbytes, disk in rows:
            origin_ns = time_ns if origin_ns is None else origin_ns
            then_us = max((time_ns - origin_ns) // NS_PER_US + 1, now_us)
            offset = lbn * LBN_NBYTES
            if wrap_nbytes is not None:
                offset = offset % wrap_nbytes if offset % wrap_nbytes + nbytes <= wrap_nbytes else 0
            if version == 3:
                lines.append(f"{then_us} {names[disk]} {_OPS[op]} {offset} {nbytes}\n")
            else:
                if then_us > now_us:
                    lines.append(f"{names[disk]} wait {then_us - now_us} 0\n")
                lines.append(f"{names[disk]} {_OPS[op]} {offset} {nbytes}\n")
            now_us = then_us
        output.writelines(lines)
        written += len(batch)
    for name in sorted(known):
        output.write(f"{now_us} {name} close\n" if version == 3 else f"{name} close\n")
    return written


class _Words:
    """Names of disks without blanks, which end a word in the log; no two disks get the same one."""

    def __init__(self) -> None:
        self._of: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, disk: str) -> str:
        """The same for a disk each time."""
        if disk not in self._of:
            number, word = 2, "_".join(disk.split()) or "disk"
            found = word
            while found in self._taken:
                number, found = number + 1, f"{word}_{number}"
            self._of[disk] = found
            self._taken.add(found)
        return self._of[disk]


def open_output(path: Path) -> TextIO:
    """Raises: InputError: the file cannot be written."""
    try:
        return path.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(
            f"it cannot be written: {error.strerror}", where=str(path), remedy="choose another place"
        ) from None
