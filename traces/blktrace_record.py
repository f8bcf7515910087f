"""The binary records of blktrace, versions 7 and 8, of either byte order.

Layout: ``struct blk_io_trace`` and ``struct blk_io_trace2`` of the kernel's include/uapi/linux/blktrace_api.h.
A record is followed by ``pdu_len`` bytes of payload, so records have no fixed stride.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cephfit.errors import InputError

MAGIC = 0x65617400
"""The first word of every record, the version in its lowest byte."""

_V7_FIELDS = [
    ("magic", "u4"), ("sequence", "u4"), ("time", "u8"), ("sector", "u8"), ("bytes", "u4"), ("action", "u4"),
    ("pid", "u4"), ("device", "u4"), ("cpu", "u4"), ("error", "u2"), ("pdu_len", "u2"),
]  # fmt: skip
_V8_FIELDS = [
    ("magic", "u4"), ("sequence", "u4"), ("time", "u8"), ("sector", "u8"), ("bytes", "u4"), ("pid", "u4"),
    ("action", "u8"), ("device", "u4"), ("cpu", "u4"), ("error", "u2"), ("pdu_len", "u2"), ("pad", "V12"),
]  # fmt: skip

QUEUE = 1
ISSUE = 7
COMPLETE = 8
REMAP = 15

ACTION_NAMES = {
    1: "Q", 2: "M", 3: "F", 4: "G", 5: "S", 6: "R", 7: "D", 8: "C", 9: "P", 10: "U", 11: "UT", 12: "I",
    13: "X", 14: "B", 15: "A", 16: "abort", 17: "m", 18: "zone plug", 19: "zone unplug",
}  # fmt: skip
"""What a record says, in blkparse's letters."""

CGROUP_TAG = 1 << 8
"""Bit of the action: the payload begins with the 8-byte id of a control group."""

WRITE = 1 << 1
FLUSH = 1 << 2
PASSTHROUGH = 1 << 9
NOTIFY = 1 << 10
DISCARD = 1 << 13


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """How the records of one file are laid out.

    Attributes:
        version: 7 or 8.
        order: ``<`` or ``>``: that of the machine that wrote it.
        dtype: one record without its payload.
    """

    version: int
    order: str
    dtype: np.dtype[np.void]

    @property
    def nbytes(self) -> int:
        return self.dtype.itemsize

    @property
    def magic(self) -> int:
        return MAGIC | self.version


def layout_of(head: bytes) -> RecordLayout | None:
    """The layout told by the first word of a file, or None where it is no blktrace record.

    Raises:
        InputError: records of a version that is not known.
    """
    for order, first in (("<", head[3:0:-1]), (">", head[:3])):
        if len(head) >= 4 and first == b"\x65\x61\x74":
            version = head[0] if order == "<" else head[3]
            fields = {7: _V7_FIELDS, 8: _V8_FIELDS}.get(version)
            if fields is None:
                raise InputError(
                    f"blktrace records of version {version}; versions 7 and 8 are known",
                    remedy="record it again with `cephfit trace capture` or blktrace 1.x",
                )
            dtype = np.dtype([(name, f"{order}{kind}" if kind[0] == "u" else kind) for name, kind in fields])
            return RecordLayout(version, order, dtype)
    return None


def find_records(block: bytes, layout: RecordLayout) -> tuple[NDArray[np.int64], int, bool]:
    """Where the records of a block begin.

    The block begins with a record. Where no record has a payload, records have a fixed stride; otherwise every
    place that holds the magic number is a candidate and the chain of lengths says which are records: the magic
    may stand in a payload, too.

    Returns:
        offsets: of all complete records (payload included), ascending.
        end: the first byte after them.
        broken: the bytes at ``end`` are no record, and more bytes would not make them one.
    """
    size = layout.nbytes
    n_whole = len(block) // size
    rows = np.frombuffer(block, layout.dtype, count=n_whole)
    if n_whole and not rows["pdu_len"].any() and (rows["magic"] == layout.magic).all():
        return np.arange(n_whole, dtype=np.int64) * size, n_whole * size, _is_broken(block, n_whole * size, layout)
    candidates = _magic_places(block, layout)
    candidates = candidates[candidates <= len(block) - size]
    lengths = size + _unsigned_16(block, candidates + layout.dtype.fields["pdu_len"][1], layout.order)  # type: ignore[index]
    nexts = candidates + lengths
    offsets, end = _chain(candidates, nexts, len(block))
    return offsets, end, _is_broken(block, end, layout)


def _chain(candidates: NDArray[np.int64], nexts: NDArray[np.int64], nbytes: int) -> tuple[NDArray[np.int64], int]:
    """Follow the records from byte 0, whole stretches at a time where each candidate ends at the next one."""
    kept: list[NDArray[np.int64]] = []
    breaks = np.flatnonzero(nexts[:-1] != candidates[1:])
    place, i = 0, 0
    while i < len(candidates) and candidates[i] == place:
        at = int(np.searchsorted(breaks, i))
        last = int(breaks[at]) if at < len(breaks) else len(candidates) - 1
        if nexts[last] > nbytes:
            kept.append(candidates[i:last])
            place = int(candidates[last])
            break
        kept.append(candidates[i : last + 1])
        place = int(nexts[last])
        i = int(np.searchsorted(candidates, place))
    return (np.concatenate(kept) if kept else np.empty(0, np.int64)), place


def _magic_places(block: bytes, layout: RecordLayout) -> NDArray[np.int64]:
    found = []
    for shift in range(4):
        words = np.frombuffer(block, f"{layout.order}u4", count=(len(block) - shift) // 4, offset=shift)
        found.append(np.flatnonzero(words == layout.magic) * 4 + shift)
    return np.sort(np.concatenate(found)).astype(np.int64)


def _unsigned_16(block: bytes, places: NDArray[np.int64], order: str) -> NDArray[np.int64]:
    octets = np.frombuffer(block, np.uint8)
    first, second = octets[places].astype(np.int64), octets[places + 1].astype(np.int64)
    return first | second << 8 if order == "<" else first << 8 | second


def _is_broken(block: bytes, end: int, layout: RecordLayout) -> bool:
    word = block[end : end + 4]
    return len(word) == 4 and int.from_bytes(word, "little" if layout.order == "<" else "big") != layout.magic


def rows_at(block: bytes, offsets: NDArray[np.int64], layout: RecordLayout) -> NDArray[np.void]:
    """The records at ``offsets``, shape (n,), as a structured array."""
    size = layout.nbytes
    n = len(offsets)
    if n and offsets[-1] == offsets[0] + (n - 1) * size:
        return np.frombuffer(block, layout.dtype, count=n, offset=int(offsets[0]))
    octets = np.lib.stride_tricks.sliding_window_view(np.frombuffer(block, np.uint8), size) if n else None
    if octets is None:
        return np.empty(0, layout.dtype)
    return np.ascontiguousarray(octets[offsets]).view(layout.dtype)[:, 0]
