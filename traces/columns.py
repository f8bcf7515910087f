"""Accesses as columns: batches as readers yield them, arrays that are cut and joined, limits of their numbers.

A record with numbers beyond the limits is damaged, or of another format. Every reader applies the same limits,
both its compiled loop and its code for any line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

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


LBN_MAX = 1 << 54
"""LBN, in 512-byte blocks. A disk with 2^54 of them has 2^63 bytes, more than an offset of a file or device can
express. Kernels write 2^64 - 1 for an event without a place."""

NBYTES_MAX = 1 << 40
"""Bytes of one access: 1 TiB, 256 times what the kernel's block layer can request (32 bits of bytes)."""

TIME_NS_MAX = 1 << 62
"""146 years. The difference of two such times still fits into 63 bits."""

TIME_US_MAX = 1 << 52
"""142 years. In nanoseconds it is below ``TIME_NS_MAX``."""

TIME_S_MAX = 1 << 32
"""136 years. In nanoseconds, with any fraction, it is below ``TIME_NS_MAX``."""

MAJOR_MAX = MINOR_MAX = 1 << 20
"""Parts of a device number. Linux uses 12 bits for major numbers and 20 for minor numbers."""

DEVICE_MAX = MAJOR_MAX * MINOR_MAX
"""Both parts in one number (``block_layer.device_number``)."""


NO_COUNTS: Mapping[str, int] = MappingProxyType({})
UNKNOWN_LATENCY = -1
PENDING = -2
"""Latency of an access whose completion may still follow."""
TAKEN_BACK = -3
"""Latency of an access that does not count: it was requeued and issued again."""

OP_BITS = 1
"""Bits of an op; the bits above them hold the flags of ``AccessBatch`` in the rows of a matcher."""
FLUSH_LBN = 2 * LBN_MAX
"""First block of a flush in the rows of a matcher: no access has it. One more if it counts as a write: Linux sends
its own flush to the device, which does not, for one or several of an application, which do."""


@dataclass(frozen=True, slots=True)
class Accesses:
    """Rows of accesses, all arrays of shape (n,): the columns of an AccessBatch without its metadata.

    Attributes:
        time_ns: int64.
        op: uint8.
        lbn: int64.
        nbytes: int64, > 0.
        disk: int32.
        latency_ns: int64; UNKNOWN_LATENCY, PENDING or TAKEN_BACK where there is no latency.

    A matcher's rows pack more into ``op``, see ``OP_BITS``, and may be flushes, which have no bytes.
    """

    time_ns: NDArray[np.int64]
    op: NDArray[np.uint8]
    lbn: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    disk: NDArray[np.int32]
    latency_ns: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.time_ns)

    def cut(self, start: int, stop: int) -> "Accesses":
        part = slice(start, stop)
        return Accesses(
            self.time_ns[part],
            self.op[part],
            self.lbn[part],
            self.nbytes[part],
            self.disk[part],
            self.latency_ns[part],
        )

    def chosen(self, rows: NDArray[np.bool_] | NDArray[np.int64]) -> "Accesses":
        """Return the marked rows (bool), or the rows with these numbers in the given order."""
        return Accesses(
            self.time_ns[rows],
            self.op[rows],
            self.lbn[rows],
            self.nbytes[rows],
            self.disk[rows],
            self.latency_ns[rows],
        )

    def with_capacity(self, n: int) -> "Accesses":
        """Return a copy with ``n`` more rows of undefined content."""
        first = len(self)

        def longer(column: NDArray[Any]) -> NDArray[Any]:
            copy = np.empty(first + n, column.dtype)
            copy[:first] = column
            return copy

        return Accesses(
            longer(self.time_ns),
            longer(self.op),
            longer(self.lbn),
            longer(self.nbytes),
            longer(self.disk),
            longer(self.latency_ns),
        )

    def batch(
        self,
        disks: tuple[str, ...],
        *,
        outstanding: NDArray[np.int32] | None = None,
        skipped: Mapping[str, int] = NO_COUNTS,
        events: Mapping[str, int] = NO_COUNTS,
        stacked: tuple[tuple[str, str], ...] = (),
        lost: int = 0,
        flags: NDArray[np.uint8] | None = None,
        flushes: Flushes | None = None,
    ) -> AccessBatch:
        """Return the rows as readers yield them. Without ``outstanding`` there are no latencies either."""
        return AccessBatch(
            self.time_ns,
            self.op,
            self.lbn,
            self.nbytes,
            self.disk,
            disks,
            latency_ns=None if outstanding is None else self.latency_ns,
            outstanding=outstanding,
            skipped=dict(skipped),
            events=dict(events),
            stacked=stacked,
            lost=lost,
            flags=flags,
            flushes=flushes,
        )

    @classmethod
    def joined(cls, parts: Sequence["Accesses"]) -> "Accesses":
        return cls(
            np.concatenate([p.time_ns for p in parts]),
            np.concatenate([p.op for p in parts]),
            np.concatenate([p.lbn for p in parts]),
            np.concatenate([p.nbytes for p in parts]),
            np.concatenate([p.disk for p in parts]),
            np.concatenate([p.latency_ns for p in parts]),
        )

    @classmethod
    def of_rows(cls, rows: Sequence[tuple[int, int, int, int, int, int]]) -> "Accesses":
        """Build columns from rows, each (time_ns, op, lbn, nbytes, disk, latency_ns)."""
        time_ns, op, lbn, nbytes, disk, latency_ns = np.array(rows, np.int64).reshape(-1, 6).T.copy()
        return cls(time_ns, op.astype(np.uint8), lbn, nbytes, disk.astype(np.int32), latency_ns)

    @classmethod
    def none(cls) -> "Accesses":
        empty = np.empty(0, np.int64)
        return cls(empty, empty.astype(np.uint8), empty, empty, empty.astype(np.int32), empty)


def unknown_outstanding(n: int) -> NDArray[np.int32]:
    """Return the outstanding accesses at ``n`` accesses that have latencies, but no times."""
    return np.full(n, UNKNOWN_LATENCY, np.int32)


def n_blocks(nbytes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return how many 512-byte blocks accesses of ``nbytes`` touch."""
    return (nbytes + 511) >> 9
