"""The binary records of blktrace, versions 7 and 8, of either byte order.

Layout: ``struct blk_io_trace`` and ``struct blk_io_trace2`` of the kernel's include/uapi/linux/blktrace_api.h.
``pdu_len`` bytes of payload follow a record, so records have no fixed length.
"""

from typing import Literal

import numpy as np

from cephfit.core.errors import InputError
from cephfit.traces.readers.blktrace.blktrace_loop import Layout

MAGIC = 0x65617400
"""The first word of every record, with the version in its lowest byte."""

MAGIC_BYTES = b"\x65\x61\x74"

_V7_FIELDS = [
    ("magic", "u4"), ("sequence", "u4"), ("time", "u8"), ("sector", "u8"), ("bytes", "u4"), ("action", "u4"),
    ("pid", "u4"), ("device", "u4"), ("cpu", "u4"), ("error", "u2"), ("pdu_len", "u2"),
]  # fmt: skip
_V8_FIELDS = [
    ("magic", "u4"), ("sequence", "u4"), ("time", "u8"), ("sector", "u8"), ("bytes", "u4"), ("pid", "u4"),
    ("action", "u8"), ("device", "u4"), ("cpu", "u4"), ("error", "u2"), ("pdu_len", "u2"), ("pad", "V12"),
]  # fmt: skip

DTYPES = {7: np.dtype(_V7_FIELDS), 8: np.dtype(_V8_FIELDS)}
"""A record without its payload, by version."""

QUEUE = 1
ISSUE = 7
COMPLETE = 8

ACTION_NAMES = {
    1: "Q", 2: "M", 3: "F", 4: "G", 5: "S", 6: "R", 7: "D", 8: "C", 9: "P", 10: "U", 11: "UT", 12: "I",
    13: "X", 14: "B", 15: "A", 16: "abort", 17: "m", 18: "zone plug", 19: "zone unplug",
}  # fmt: skip
"""Actions of records, in blkparse's letters."""


def layout_of(head: bytes, *, where: str = "") -> Layout | None:
    """Return the layout that the first word of a file shows; None if it is not a blktrace record.

    Args:
        head: the first bytes.
        where: the location for errors.

    Raises:
        InputError: the version of the records is unknown.
    """
    for order, first in (("<", head[3:0:-1]), (">", head[:3])):
        if len(head) >= 4 and first == MAGIC_BYTES:
            version = head[0] if order == "<" else head[3]
            dtype = DTYPES.get(version)
            if dtype is None or dtype.fields is None:
                raise InputError(
                    f"blktrace records of version {version}; versions 7 and 8 are supported",
                    where=where,
                    remedy="record it again with `cephfit trace capture` or blktrace 1.x",
                )
            at = {name: offset for name, (_, offset, *_) in dtype.fields.items()}
            return Layout(
                big_endian=True if order == ">" else None,
                magic=MAGIC | version,
                nbytes=dtype.itemsize,
                action=at["action"],
                action_nbytes=dtype["action"].itemsize,
                device=at["device"],
                cpu=at["cpu"],
                pdu_len=at["pdu_len"],
            )
    return None


def whole_records(head: bytes) -> int:
    """Return the number of bytes of the whole records, with their payloads, at the beginning of a file."""
    layout, at = layout_of(head), 0
    if layout is None:
        return 0
    order: Literal["big", "little"] = "big" if layout.big_endian else "little"
    while at + layout.nbytes <= len(head):
        payload = at + layout.pdu_len
        end = at + layout.nbytes + int.from_bytes(head[payload : payload + 2], order)
        if end > len(head):
            break
        at = end
    return at
