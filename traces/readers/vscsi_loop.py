"""The loop over vscsiStats' binary records, which all have the same length."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple, TypeAlias

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


Scanner: TypeAlias = Callable[
    [
        NDArray[np.uint8], NDArray[np.int8], NDArray[np.int64], NDArray[np.uint8], NDArray[np.int64],
        NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64],
    ],
    tuple[int, int],
]  # fmt: skip


@cache
def scanner(record: Record) -> Scanner:
    """The loop for one version: where its fields are is known when it is compiled, which takes a third off it."""
    version, size, timed = record.version, record.nbytes, record.response >= 0
    command_at, version_at, length_at, lbn_at, time_at, response_at = record[2:8]
    lbn_max, time_us_max = np.uint64(record.lbn_max), np.uint64(record.time_us_max)

    @compiled_in_place
    def scan(
        block: NDArray[np.uint8], op_of: NDArray[np.int8], time_ns: NDArray[np.int64], op: NDArray[np.uint8],
        lbn: NDArray[np.int64], nbytes: NDArray[np.int64], latency_ns: NDArray[np.int64],
        commands: NDArray[np.int64], unfit: NDArray[np.int64],
    ) -> tuple[int, int]:  # fmt: skip
        """Read whole records.

        Args:
            block: shape (n,).
            op_of: int8 (256,): op by SCSI command, negative where it is no access.
            time_ns ... latency_ns: written from row 0 on; latency only where records have it.
            commands: int64 (256,): records that are no access by command, added to.
            unfit: int64 (3,): reads and writes without a length, else a valid LBN, else a valid time; added to.

        Returns:
            rows written, and the first byte that is no record of this version (or the end).
        """
        n, at, last = 0, 0, len(block) - size
        while at <= last:
            command = half(block, at + command_at, None)
            if half(block, at + version_at, None) >> 8 != version or command > 255:
                break
            what = op_of[np.uintp(command)]
            length = word(block, at + length_at, None)
            first, when = long(block, at + lbn_at, None), long(block, at + time_at, None)
            row = np.uintp(n)
            time_ns[row], lbn[row], nbytes[row], op[row] = when * _NS_PER_US, first, length, what
            if timed:
                took = long(block, at + response_at, None)
                latency_ns[row] = took * _NS_PER_US if np.uint64(took) < time_us_max else UNKNOWN
            # The numbers have 64 bits without a sign, so one comparison each tells what is not valid.
            bad_lbn, bad_time = np.uint64(first) >= lbn_max, np.uint64(when) >= time_us_max
            if what < 0:
                commands[np.uintp(command)] += 1
            elif length == 0 or bad_lbn or bad_time:
                unfit[0 if length == 0 else 1 if bad_lbn else 2] += 1
            else:
                n += 1
            at += size
        return n, at

    return scan
