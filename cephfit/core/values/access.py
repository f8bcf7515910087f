"""Accesses as NumPy columns: yielded by trace readers, consumed by all later steps."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

OP_READ = 0
OP_WRITE = 1

UNKNOWN = -1
"""Marks a latency, time or depth that the source does not record."""


SYNC, FUA, PREFLUSH = 1, 2, 4
"""Bits of ``AccessBatch.flags``: the application waits for the access (Linux's REQ_SYNC); it is written with
forced unit access; the device's cache is flushed before it."""


@dataclass(frozen=True, slots=True)
class Flushes:
    """Requests to flush the cache of a device, in order of issue; arrays of shape (n,).

    Attributes:
        at: int64, number of accesses of the batch that were issued before.
        time_ns, latency_ns, disk: As in AccessBatch.
    """

    at: NDArray[np.int64]
    time_ns: NDArray[np.int64]
    latency_ns: NDArray[np.int64]
    disk: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class AccessBatch:
    """Consecutive accesses, one row each, in the order in which they were issued.

    A batch holds reads and writes only: discards, flushes, zero-length and passthrough commands are
    counted by the reader (``skipped``) and never reach a bin. All arrays have shape (n,).

    Attributes:
        time_ns: int64, time of issue in ns since an arbitrary origin of the trace.
        op: uint8, OP_READ or OP_WRITE.
        lbn: int64, first 512-byte block.
        nbytes: int64, > 0.
        disk: int32, index into ``disks``.
        disks: names of the disks; a reader appends names and never renumbers.
        latency_ns: int64 or None; UNKNOWN where a single access has none.
        outstanding: int32 or None: accesses of the disk in flight when this one was issued; UNKNOWN where a
            single access has none, or the accesses have latencies but no times.
        skipped: number of records without an access in this part of the file, by reason.
        events: number of other records in this part of the file, by name, such as events of other actions.
        stacked: (upper, lower) names of disks where the upper one forwards its accesses to the lower one, as far
            as the trace shows it; counting both would count an access twice.
        lost: events that the tracer is known to have lost in this part.
        flags: uint8 or None: SYNC, FUA and PREFLUSH; None if the format does not contain them.
        flushes: the flushes without data; None if the reader only counts them (in ``skipped``), as it does unless
            it is asked for them.
    """

    time_ns: NDArray[np.int64]
    op: NDArray[np.uint8]
    lbn: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    disk: NDArray[np.int32]
    disks: tuple[str, ...]
    latency_ns: NDArray[np.int64] | None = None
    outstanding: NDArray[np.int32] | None = None
    skipped: dict[str, int] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    stacked: tuple[tuple[str, str], ...] = ()
    lost: int = 0
    flags: NDArray[np.uint8] | None = None
    flushes: Flushes | None = None

    def __len__(self) -> int:
        return len(self.time_ns)
