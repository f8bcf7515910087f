"""Write fio's I/O logs, versions 2 and 3 (fio's HOWTO, "Trace file format").

This module also converts disk names into words that are valid in fio's files and as file names.
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
"""fio cuts the name of a section after 255 bytes; two of them may then be equal."""


def word_of(disk: str, taken: Collection[str]) -> str:
    """Return the disk's name as a unique word without blanks or slashes.

    Args:
        disk: Its name, which may be the path of a file.
        taken: Words of other disks.
    """
    word = re.sub(r"[^A-Za-z0-9._-]", "_", disk)[:_LENGTH] or "_"
    number, found = 2, word
    while found in taken:
        number, found = number + 1, f"{word}-{number}"
    return found


_OPS = ("read", "write")


@dataclass(frozen=True, slots=True)
class IologWritten:
    """The content of a log.

    Attributes:
        accesses: Number of accesses.
        rounded: Number of accesses with a size rounded up to a multiple of 512 bytes.
        disks: Name in the log to name of the disk.
    """

    accesses: int
    rounded: int
    disks: Mapping[str, str]


def whole_blocks(nbytes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Round sizes up to whole blocks of 512 bytes, because fio uses direct I/O."""
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

    The first access has the time 1 us: fio treats 0 as no time and would lose the gap after it. A time before the
    previous access is written as the time of that access: fio issues in the order of the lines.

    fio writes to the files that a log names. In traces of strace, a disk's name is the path of a real file. So no
    disk keeps its name in the log.

    Args:
        batches: In order of issue, of disks of one level.
        output: The log.
        version: 3 has a time in every line (fio 3.31 or newer); 2 has waits between lines, in whole microseconds.
        file: Name of the only file in the log; None: each disk is named ``disk-`` and a word.
        wrap_nbytes: Offsets beyond this many bytes restart at 0; None: they stay.
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
    """Open a text file for writing.

    Raises:
        InputError: The file cannot be written.
    """
    try:
        return path.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise InputError(
            f"the file cannot be written: {error.strerror}", where=str(path), remedy="choose another place"
        ) from None
