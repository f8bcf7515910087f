"""Writes fio's I/O logs, versions 2 and 3 (fio's HOWTO, "Trace file format").

Names of disks as words that may stand in fio's files and be names of files.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.core.units import LBN_NBYTES, NS_PER_US
from cephfit.core.values.access import AccessBatch

_LENGTH = 80
"""fio cuts a section's name after 255 bytes, and two of them might be the same then."""


def word_of(disk: str, taken: Collection[str]) -> str:
    """The disk's name as a word without blanks or slashes that no other disk has.

    Args:
        disk: its name, which may be the path of a file.
        taken: words of other disks.
    """
    word = re.sub(r"[^A-Za-z0-9._-]", "_", disk)[:_LENGTH] or "_"
    number, found = 2, word
    while found in taken:
        number, found = number + 1, f"{word}-{number}"
    return found


_OPS = ("read", "write")


@dataclass(frozen=True, slots=True)
class IologWritten:
    """What stands in the log.

    Attributes:
        accesses: how many.
        rounded: those whose size was no multiple of 512 bytes, and is rounded up to one.
        disks: name in the log to the disk's own.
    """

    accesses: int
    rounded: int
    disks: Mapping[str, str]


def whole_blocks(nbytes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sizes rounded up to whole blocks of 512 bytes: direct I/O, which fio is asked for, takes no others."""
    return -(-nbytes // LBN_NBYTES) * LBN_NBYTES


def write_iolog(
    batches: Iterable[AccessBatch],
    output: TextIO,
    *,
    version: int = 3,
    file: str | None = None,
    wrap_nbytes: int | None = None,
) -> IologWritten:
    """Write accesses as an I/O log that fio replays with ``read_iolog``.

    The first access has the time 1 us: fio takes 0 for no time, and would lose the gap after it. A time before
    that of the access before is written as the same time: fio issues in the order of the lines.

    fio writes to the files that a log names, and a disk's name may be that of a file: of the program that strace
    followed. So no disk has its own name in the log.

    Args:
        batches: in order of issue, of disks of one level.
        output: the log.
        version: 3 has a time in every line (fio 3.31 or newer); 2 has waits between them, in whole microseconds.
        file: name of the only file in the log; None: each disk has a name of its own, ``disk-`` and a word.
        wrap_nbytes: offsets beyond this many bytes begin again at 0; None: they stay.
    """
    output.write(f"fio version {version} iolog\n")
    words: dict[str, str] = {}
    taken: set[str] = set()
    origin_ns: int | None = None
    now_us, written, rounded = 1, 0, 0
    for batch in batches:
        present = {batch.disks[d] for d in set(batch.disk.tolist())}
        for disk in sorted(present - words.keys()):
            word = word_of(disk, taken)
            taken.add(word)
            words[disk] = file or f"disk-{word}"
            stamp = f"{now_us} " if version == 3 else ""
            output.write(f"{stamp}{words[disk]} add\n{stamp}{words[disk]} open\n")
        names = [words.get(name, "") for name in batch.disks]
        sizes = whole_blocks(batch.nbytes)
        rounded += int((sizes != batch.nbytes).sum())
        lines = []
        rows = zip(batch.time_ns.tolist(), batch.op, batch.lbn.tolist(), sizes.tolist(), batch.disk, strict=True)
        for time_ns, op, lbn, nbytes, number in rows:
            origin_ns = time_ns if origin_ns is None else origin_ns
            then_us = max((time_ns - origin_ns) // NS_PER_US + 1, now_us)
            offset = lbn * LBN_NBYTES
            if wrap_nbytes is not None:
                offset = offset % wrap_nbytes if offset % wrap_nbytes + nbytes <= wrap_nbytes else 0
            if version == 3:
                lines.append(f"{then_us} {names[number]} {_OPS[op]} {offset} {nbytes}\n")
            else:
                if then_us > now_us:
                    lines.append(f"{names[number]} wait {then_us - now_us} 0\n")
                lines.append(f"{names[number]} {_OPS[op]} {offset} {nbytes}\n")
            now_us = then_us
        output.writelines(lines)
        written += len(batch)
    for name in sorted(set(words.values())):
        output.write(f"{now_us} {name} close\n" if version == 3 else f"{name} close\n")
    return IologWritten(written, rounded, {word: disk for disk, word in words.items()})


def open_output(path: Path) -> TextIO:
    """Raises: InputError: the file cannot be written."""
    try:
        return path.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(
            f"it cannot be written: {error.strerror}", where=str(path), remedy="choose another place"
        ) from None
