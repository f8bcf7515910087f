"""Where blktrace's files may be cut into parts to be followed side by side: at a record, in all files at a time.

Records have no fixed stride, and a payload may hold anything, even records: a place found here is likely right,
and whoever follows the part before it sees whether it was, because then the part ends with a record.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from cephfit.traces.readers.blktrace_loop import OVER, Layout
from cephfit.traces.readers.blktrace_reading import MAX_PAYLOAD

PART_NBYTES = 24 << 20
"""Files are cut into parts of about this length: what is done for each part is little beside it, and so is what is
lost at the end, where one core waits for the other."""
NBYTES_OF_FILE = 4 << 20
"""Of many files, a part has so much of each: what is done for a cut is done in every file."""

_LOOKS = (4 << 10, 3 * MAX_PAYLOAD)
"""Bytes that are searched for a record; more only where large payloads stand."""
_RECORDS_IN_A_ROW = 4
"""So many tell a record from bytes that look like one."""
_NEAR_NBYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a part begins.

    Attributes:
        at: byte of each file.
        time_ns: no record behind the cut is before this, all before it must be; of one file, whose order stands
            whatever its times are, later than all times.
    """

    at: tuple[int, ...]
    time_ns: int


def cuts_of(files: Sequence[Path], layout: Layout) -> Iterator[Cut]:
    """The cuts of files that one recorder wrote, in order; none where they are short."""
    nbytes = [file.stat().st_size for file in files]
    n_parts = sum(nbytes) // max(PART_NBYTES, NBYTES_OF_FILE * len(files) if len(files) > 1 else 0)
    longest = nbytes.index(max(nbytes))
    opened = [file.open("rb") for file in files]
    before = (0,) * len(files)
    try:
        for k in range(1, n_parts):
            found = _record_from(opened[longest], nbytes[longest] * k // n_parts, layout)
            if found is None or found[0] <= before[longest]:
                continue
            if len(files) == 1:
                before = (found[0],)
                yield Cut(before, OVER)
            else:
                places = [
                    _first_at(f, layout, found[1], a, n) for f, a, n in zip(opened, before, nbytes, strict=True)
                ]
                at = tuple(place for place in places if place is not None)
                if len(at) == len(files) and at != before:
                    before = at
                    yield Cut(at, found[1])
    finally:
        for file in opened:
            file.close()


def _record_from(file: BinaryIO, at: int, layout: Layout) -> tuple[int, int] | None:
    """Where the first record from a byte on begins, and its time."""
    for nbytes in _LOOKS:
        file.seek(at)
        block = file.read(nbytes)
        magic = layout.magic.to_bytes(4, _order(layout))
        found = block.find(magic)
        while found >= 0:
            if _begins_records(block, found, magic, layout, at_end=len(block) < nbytes):
                return at + found, _number(block, found + 8, 8, layout)
            found = block.find(magic, found + 1)
    return None


def _begins_records(block: bytes, at: int, magic: bytes, layout: Layout, *, at_end: bool) -> bool:
    n = 0
    while at + layout.nbytes <= len(block):
        if block[at : at + 4] != magic:
            return False
        at += layout.nbytes + _number(block, at + layout.pdu_len, 2, layout)
        n += 1
    return n >= _RECORDS_IN_A_ROW or (at_end and n > 0 and at == len(block))


def _first_at(file: BinaryIO, layout: Layout, time_ns: int, low: int, nbytes: int) -> int | None:
    """Where the first record of this time or after begins, or the file's end; times nearly ascend.

    ``low``: a record before it, or itself.
    """
    high = nbytes
    while high - low > _NEAR_NBYTES:
        middle = (low + high) // 2
        found = _record_from(file, middle, layout)
        if found is None or found[0] >= high or found[1] >= time_ns:
            high = middle
        else:
            low = found[0]
    file.seek(low)
    block = file.read(high - low + _LOOKS[-1])
    at, magic = 0, layout.magic.to_bytes(4, _order(layout))
    while at + layout.nbytes <= len(block):
        if block[at : at + 4] != magic:
            return None
        if _number(block, at + 8, 8, layout) >= time_ns:
            return low + at
        at += layout.nbytes + _number(block, at + layout.pdu_len, 2, layout)
    return nbytes if low + at == nbytes else None


def _order(layout: Layout) -> Literal["big", "little"]:
    return "big" if layout.big_endian else "little"


def _number(block: bytes, at: int, nbytes: int, layout: Layout) -> int:
    return int.from_bytes(block[at : at + nbytes], _order(layout))
