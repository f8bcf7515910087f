"""Events of Linux's block layer in any notation, converted to accesses: one action on each device counts.

The readers of blktrace's binary records, of blkparse's text and of tracepoints share this code, so that all give
the same profile.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.columns import (
    DEVICE_MAX,
    FLUSH_LBN,
    FUA,
    OP_BITS,
    OP_READ,
    OP_WRITE,
    PREFLUSH,
    SYNC,
    AccessBatch,
    Accesses,
    Flushes,
)
from cephfit.traces.lines.plain_lines import LineParser, parse_stream
from cephfit.traces.matching.completion_loop import COMPLETED, ISSUED, REQUEUED
from cephfit.traces.matching.latency import CompletionMatcher, InFlight, Ready
from cephfit.traces.readers.reader import NO_LBN, PartReader
from cephfit.traces.stream import NeedsWholeFile, TraceStream

_NO_LATENCIES, _NO_DEPTHS = np.empty(0, np.int64), np.empty(0, np.int32)


class Action(StrEnum):
    """Which event counts as the access."""

    QUEUE = "Q"
    """The application's view: accesses as they reached the block layer, before merging."""
    ISSUE = "D"
    """The device's view: accesses as they were sent to the driver, after merging."""
    COMPLETE = "C"
    """Completions, for a trace that has no other events. Times are those of completion; latencies are unknown."""

    @property
    def kinds(self) -> dict[str, int]:
        """Return the kinds of events that count, by blkparse's letters. Only an issued access can be requeued."""
        return {"C": COMPLETED, self.value: ISSUED} | ({"R": REQUEUED} if self is Action.ISSUE else {})


@dataclass(frozen=True, slots=True)
class BlockEvents:
    """Accesses and completions of a section of a trace, in order; arrays of shape (n,).

    Attributes:
        kind: uint8: an access of the counted action, a completion, or a requeued access
            (``completion_loop.ISSUED`` etc.).
        time_ns, lbn, nbytes: as in AccessBatch. Flushes without data are rows of no bytes.
        op: as in AccessBatch, with its flags above ``OP_BITS`` where the format has them.
        device: int64, major << 20 | minor.
        skipped, events, stacked, lost: as in AccessBatch, with device numbers in ``stacked``.
    """

    kind: NDArray[np.uint8]
    time_ns: NDArray[np.int64]
    op: NDArray[np.uint8]
    lbn: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    device: NDArray[np.int64]
    skipped: dict[str, int] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    stacked: frozenset[tuple[int, int]] = frozenset()
    lost: int = 0

    @classmethod
    def of_rows(
        cls,
        rows: Sequence[tuple[int, int, int, int, int, int]],
        *,
        skipped: dict[str, int],
        events: dict[str, int],
        stacked: frozenset[tuple[int, int]] = frozenset(),
        lost: int = 0,
    ) -> "BlockEvents":
        """Build columns from rows, each (kind, time_ns, op, lbn, nbytes, device), with counts."""
        kind, time_ns, op, lbn, nbytes, device = np.array(rows, np.int64).reshape(-1, 6).T.copy()
        return cls(
            kind.astype(np.uint8),
            time_ns,
            op.astype(np.uint8),
            lbn,
            nbytes,
            device,
            skipped=skipped,
            events=events,
            stacked=stacked,
            lost=lost,
        )


def device_name(device: int) -> str:
    """Return ``major,minor``, as blkparse writes it."""
    return f"{device >> 20},{device & 0xFFFFF}"


def device_number(text: bytes) -> int:
    """Reverse ``device_name``.

    Raises:
        ValueError: no device has this number.
    """
    major, _, minor = text.partition(b",")
    number = int(major) << 20 | int(minor)
    if not 0 <= number < DEVICE_MAX:
        raise ValueError("no device has this number")
    return number


_ZONE_OPS = {
    b"ZRA": "zone reset all",
    b"ZR": "zone reset",
    b"ZF": "zone finish",
    b"ZO": "zone open",
    b"ZC": "zone close",
}


def no_data_reason(kind: bytes) -> str:
    """Return the name of an op without data, from its letters (``blk_fill_rwbs`` in Linux), whatever its length.

    Empty for all other ops, including an append to a zone (``ZA``).
    """
    if b"D" in kind:
        return "discard"
    if b"WZ" in kind:
        return "write zeroes"
    return next((reason for letters, reason in _ZONE_OPS.items() if letters in kind), "")


def is_write(kind: bytes) -> bool:
    """Return whether the letters of an op with data are those of a write."""
    return b"W" in kind or b"ZA" in kind


def packed_op(kind: bytes) -> int:
    """Return the op of an event with data from its letters, with the flags of AccessBatch above ``OP_BITS``.

    ``F`` before ``W`` is a flush before the write, ``F`` after it forced unit access (``blk_fill_rwbs``).
    """
    if not is_write(kind):
        return OP_READ
    before, _, after = kind.partition(b"W")
    flags = SYNC * (b"S" in kind) | FUA * (b"F" in after) | PREFLUSH * (b"F" in before)
    return OP_WRITE | flags << OP_BITS


def flush_row(kind: int, time_ns: int, letters: bytes, device: int) -> tuple[int, int, int, int, int, int]:
    """Return the row of ``BlockEvents`` of a flush without data."""
    return kind, time_ns, OP_READ, FLUSH_LBN + is_write(letters), 0, device


def skip_reason(kind: bytes, nbytes: int, sector: int = 0) -> str:
    """Return why an event with a place is not a read or write; empty if it is one."""
    if reason := no_data_reason(kind):
        return reason
    if not nbytes:
        return "flush" if kind.startswith(b"F") else "zero length"
    if sector == NO_LBN:
        return "no valid sector"
    return "" if b"R" in kind or is_write(kind) else f"op {kind.decode('ascii', 'replace')}"


def accesses_of(
    stretches: Iterator[BlockEvents], *, with_flags: bool, with_flushes: bool
) -> Iterator[AccessBatch]:
    """Number the disks, match completions and count accesses in flight.

    Args:
        stretches: the events, in order.
        with_flags: ops have flags, as for ``PendingCounts.batch``.
        with_flushes: batches contain the flushes.
    """
    disks: dict[int, int] = {}
    matcher, pending = CompletionMatcher(), PendingCounts()
    for events in stretches:
        if not with_flushes:
            events = _of_accesses(events)
        disk = _disk_numbers(events, disks)
        pending.add(events.skipped, events.events, events.stacked, events.lost)
        matcher.push(events.kind, events.time_ns, events.op, events.lbn, events.nbytes, disk)
        if ready := matcher.ready():
            yield pending.batch(
                ready,
                list(disks),
                matcher.completions_seen,
                with_flags=with_flags,
                with_flushes=with_flushes,
            )
    yield pending.batch(
        matcher.finish(),
        list(disks),
        matcher.completions_seen,
        with_flags=with_flags,
        with_flushes=with_flushes,
    )


def _of_accesses(events: BlockEvents) -> BlockEvents:
    """Return the events without flushes."""
    kept = events.nbytes > 0
    if kept.all():
        return events
    return replace(
        events,
        kind=events.kind[kept],
        time_ns=events.time_ns[kept],
        op=events.op[kept],
        lbn=events.lbn[kept],
        nbytes=events.nbytes[kept],
        device=events.device[kept],
    )


def accesses_of_part(stretches: Iterator[BlockEvents], *, with_flags: bool) -> Iterator[AccessBatch]:
    """Convert a part of a trace in which accesses neither complete nor are requeued.

    Raises:
        NeedsWholeFile: one does; it may belong to an access before the part.
    """
    disks: dict[int, int] = {}
    for events in map(_of_accesses, stretches):
        if events.kind.any():
            raise NeedsWholeFile
        accesses = Accesses(
            events.time_ns, events.op, events.lbn, events.nbytes, _disk_numbers(events, disks), _NO_LATENCIES
        )
        pending = PendingCounts()
        pending.add(events.skipped, events.events, events.stacked, events.lost)
        yield pending.batch(Ready(accesses, _NO_DEPTHS), list(disks), timed=False, with_flags=with_flags)


class PendingCounts:
    """Counts of other records, accumulated between two batches of accesses."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._skipped: Counter[str] = Counter()
        self._events: Counter[str] = Counter()
        self._stacked: frozenset[tuple[int, int]] = frozenset()
        self._lost = 0

    def add(
        self,
        skipped: Mapping[str, int],
        events: Mapping[str, int],
        stacked: Iterable[tuple[int, int]],
        lost: int,
    ) -> None:
        """Add counts, each as in BlockEvents."""
        self._skipped.update(skipped)
        self._events.update(events)
        self._stacked = self._stacked.union(stacked)
        self._lost += lost

    def batch(
        self,
        ready: Ready,
        devices: Sequence[int],
        timed: bool,
        *,
        with_flags: bool = False,
        with_flushes: bool = False,
    ) -> AccessBatch:
        """Build a batch of accesses with the counts since the last batch.

        Args:
            ready: the accesses.
            devices: number of each disk.
            timed: the trace has shown completions so far.
            with_flags: the ops have the flags above ``OP_BITS``.
            with_flushes: some of the accesses may be flushes, as those of ``columns.FLUSH_LBN``.
        """
        accesses, outstanding, flushes = ready.accesses, ready.outstanding, None
        if with_flushes:
            accesses, outstanding, flushes = _without_flushes(accesses, outstanding)
        flags: NDArray[np.uint8] | None = None
        if with_flags:
            flags = accesses.op >> np.uint8(OP_BITS)
            accesses = replace(accesses, op=accesses.op & np.uint8((1 << OP_BITS) - 1))
        batch = accesses.batch(
            tuple(device_name(d) for d in devices),
            outstanding=outstanding if timed else None,
            flags=flags,
            flushes=flushes,
            skipped=self._skipped,
            events=self._events,
            stacked=tuple((device_name(a), device_name(b)) for a, b in sorted(self._stacked)),
            lost=self._lost,
        )
        self._forget()
        return batch


def _without_flushes(
    accesses: Accesses, outstanding: NDArray[np.int32]
) -> tuple[Accesses, NDArray[np.int32], Flushes]:
    """Return the accesses with their numbers outstanding, and the flushes."""
    is_flush = accesses.nbytes == 0
    rows = np.flatnonzero(is_flush)
    found = accesses.chosen(rows)
    flushes = Flushes(rows - np.arange(len(rows)), found.time_ns, found.latency_ns, found.disk)
    return (
        (accesses.chosen(~is_flush), outstanding[~is_flush], flushes)
        if len(rows)
        else (accesses, outstanding, flushes)
    )


def _disk_numbers(events: BlockEvents, disks: dict[int, int]) -> NDArray[np.int32]:
    """Return the disk number of each event, int32 (n,). New disks get the next numbers.

    An event other than an access has -1 if its disk has no accesses.
    """
    if len(disks) == 1 and (events.device == next(iter(disks))).all():
        return np.zeros(len(events.device), np.int32)
    for number in np.unique(events.device[events.kind == ISSUED]).tolist():
        disks.setdefault(number, len(disks))
    if not disks:
        return np.full(len(events.device), -1, np.int32)
    known = np.array(sorted(disks), np.int64)
    index = np.array([disks[int(d)] for d in known], np.int32)
    place = np.minimum(np.searchsorted(known, events.device), len(known) - 1)
    return np.where(known[place] == events.device, index[place], -1).astype(np.int32)


class Rows(NamedTuple):
    """Allocated rows of accesses and completions in order, columns as in ``BlockEvents``."""

    kind: NDArray[np.uint8]
    time_ns: NDArray[np.int64]
    op: NDArray[np.uint8]
    lbn: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    device: NDArray[np.int64]


def empty_rows(n: int) -> Rows:
    """Allocate rows with undefined content."""
    numbers = np.empty((4, n), np.int64)
    return Rows(np.empty(n, np.uint8), numbers[0], np.empty(n, np.uint8), numbers[1], numbers[2], numbers[3])


def events_of(
    rows: Rows,
    n: int,
    *,
    skipped: dict[str, int] | None = None,
    events: dict[str, int],
    stacked: frozenset[tuple[int, int]] = frozenset(),
) -> BlockEvents:
    """Return the first ``n`` rows with counts."""
    return BlockEvents(
        rows.kind[:n],
        rows.time_ns[:n],
        rows.op[:n],
        rows.lbn[:n],
        rows.nbytes[:n],
        rows.device[:n],
        skipped=skipped or {},
        events=events,
        stacked=stacked,
    )


class EventLines(LineParser[BlockEvents]):
    """Parser of the lines of one stream; ``action`` is the one that counts."""

    def __init__(self, stream: TraceStream, action: Action) -> None:
        self._stream = stream
        self._action = action


class EventTextReader(PartReader):
    """Reads text with one event of the block layer on each line; ``lines`` is the parser."""

    names_disks = True
    lines: ClassVar[type[EventLines]]

    def __init__(self, action: Action = Action.QUEUE) -> None:
        self.action = action

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        return accesses_of(self._events(stream), with_flags=True, with_flushes=self.with_flushes)

    def read_part(self, stream: TraceStream, in_flight: InFlight) -> Iterator[AccessBatch]:
        return accesses_of_part(self._events(stream), with_flags=True)

    def _events(self, stream: TraceStream) -> Iterator[BlockEvents]:
        return map(_joined, parse_stream(stream, self.lines(stream, self.action)))


def _joined(parts: Sequence[BlockEvents]) -> BlockEvents:
    """Join consecutive sections."""
    if len(parts) == 1:
        return parts[0]
    skipped: Counter[str] = Counter()
    events: Counter[str] = Counter()
    for part in parts:
        skipped.update(part.skipped)
        events.update(part.events)
    return BlockEvents(
        np.concatenate([p.kind for p in parts]),
        np.concatenate([p.time_ns for p in parts]),
        np.concatenate([p.op for p in parts]),
        np.concatenate([p.lbn for p in parts]),
        np.concatenate([p.nbytes for p in parts]),
        np.concatenate([p.device for p in parts]),
        skipped=dict(skipped),
        events=dict(events),
        stacked=frozenset().union(*(p.stacked for p in parts)),
        lost=sum(p.lost for p in parts),
    )
