"""The loop over vscsiStats' binary records, which all have the same length."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.compiled import compiled_in_place
from cephfit.traces.lines.unaligned import half, long, word

UNKNOWN = -1
UNFIT = ("zero length", "no valid LBN", "no valid time")
_NS_PER_US = 1000


class Record(NamedTuple):
    """Where the fields of a record are, in bytes from its beginning.

    Attributes:
        version: in the upper byte of ``ver``.
        response: negative where there is none.
        lbn_max, time_us_max: values from which on a number is not valid.
    """

    version: int
    nbytes: int
    command: int
    ver: int
    length: int
    lbn: int
    time: int
    response: int
    lbn_max: int
    time_us_max: int


@compiled_in_place
def scan(
    block: NDArray[np.uint8],
    record: Record,
    op_of: NDArray[np.int8],
    time_ns: NDArray[np.int64],
    op: NDArray[np.uint8],
    lbn: NDArray[np.int64],
    nbytes: NDArray[np.int64],
    latency_ns: NDArray[np.int64],
    commands: NDArray[np.int64],
    unfit: NDArray[np.int64],
) -> tuple[int, int]:
    """Read whole records.

    Args:
        block: shape (n,).
        record: of the format's version.
        op_of: int8 (256,): op by SCSI command, negative where it is no access.
        time_ns ... latency_ns: written from row 0 on.
        commands: int64 (256,): records by command, added to.
        unfit: int64 (3,): reads and writes without a length, else a valid LBN, else a valid time; added to.

    Returns:
        rows written, and the first byte that is no record of this version (or the end).
    """
    n, at, timed = 0, 0, record.response >= 0
    size, lbn_max, time_us_max = record.nbytes, record.lbn_max, record.time_us_max
    while at + size <= len(block):
        command = np.uintp(half(block, at + record.command, None))
        if half(block, at + record.ver, None) >> 8 != record.version or command > 255:
            break
        commands[command] += 1
        what = op_of[command]
        length = word(block, at + record.length, None)
        first, when = long(block, at + record.lbn, None), long(block, at + record.time, None)
        # 64 bits without a sign: what reads as negative is too large.
        bad_lbn, bad_time = first < 0 or first >= lbn_max, when < 0 or when >= time_us_max
        row = np.uintp(n)
        time_ns[row], lbn[row], nbytes[row], op[row] = when * _NS_PER_US, first, length, what
        if timed:
            took = long(block, at + record.response, None)
            latency_ns[row] = took * _NS_PER_US if took >= 0 and took < time_us_max else UNKNOWN
        if what >= 0:
            if length == 0 or bad_lbn or bad_time:
                unfit[0 if length == 0 else 1 if bad_lbn else 2] += 1
            else:
                n += 1
        at += size
    return n, at
