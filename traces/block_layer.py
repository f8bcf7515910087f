"""Events of Linux's block layer, of whatever notation, to accesses: one action on each device.

Readers of blktrace's binary records and of blkparse's text share this, so that both give the same profile.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from cephfit.access import AccessBatch
from cephfit.traces.columns import PENDING, Accesses
from cephfit.traces.latency import CompletionMatcher, Completions, InFlight


class Action(StrEnum):
    """Which event counts as the access."""

    QUEUE = "Q"
    """The application's view: as it reached the block layer, before merging."""
    ISSUE = "D"
    """The device's view: as it was sent to the driver, after merging."""


@dataclass(frozen=True, slots=True)
class BlockEvents:
    """The accesses and completions of a stretch of a trace, in order; arrays of shape (n,).

    Attributes:
        is_completion: bool: a completion, else an access of the action that counts.
        time_ns, op, lbn, nbytes: as in AccessBatch.
        device: int64, major << 20 | minor.
        skipped, events, stacked, lost: as in AccessBatch, devices in ``stacked`` by number.
    """

    is_completion: NDArray[np.bool_]
    time_ns: NDArray[np.int64]
    op: NDArray[np.uint8]
    lbn: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    device: NDArray[np.int64]
    skipped: dict[str, int] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    stacked: frozenset[tuple[int, int]] = frozenset()
    lost: int = 0

    def split(self, n: int) -> "tuple[BlockEvents, BlockEvents]":
        """The first ``n`` rows, with all else that was counted, and the rest."""
        return self._rows(slice(0, n), self), self._rows(slice(n, None), None)

    @classmethod
    def joined(cls, parts: Sequence["BlockEvents"], order: NDArray[np.intp]) -> "BlockEvents":
        """The rows of all parts in the given order, and the sum of what was counted beside them."""
        skipped: Counter[str] = Counter()
        events: Counter[str] = Counter()
        for part in parts:
            skipped.update(part.skipped)
            events.update(part.events)
        return cls(
            np.concatenate([p.is_completion for p in parts])[order],
            np.concatenate([p.time_ns for p in parts])[order],
            np.concatenate([p.op for p in parts])[order],
            np.concatenate([p.lbn for p in parts])[order],
            np.concatenate([p.nbytes for p in parts])[order],
            np.concatenate([p.device for p in parts])[order],
            skipped=dict(skipped),
            events=dict(events),
            stacked=frozenset().union(*(p.stacked for p in parts)),
            lost=sum(p.lost for p in parts),
        )

    def _rows(self, rows: slice, counted: "BlockEvents | None") -> "BlockEvents":
        return BlockEvents(
            self.is_completion[rows],
            self.time_ns[rows],
            self.op[rows],
            self.lbn[rows],
            self.nbytes[rows],
            self.device[rows],
            skipped=counted.skipped if counted else {},
            events=counted.events if counted else {},
            stacked=counted.stacked if counted else frozenset(),
            lost=counted.lost if counted else 0,
        )


def device_name(device: int) -> str:
    """``major,minor`` as blkparse writes it."""
    return f"{device >> 20},{device & 0xFFFFF}"


def device_number(text: bytes) -> int:
    """The reverse of ``device_name``. Raises ValueError."""
    major, _, minor = text.partition(b",")
    return int(major) << 20 | int(minor)


def accesses_of(stretches: Iterator[BlockEvents]) -> Iterator[AccessBatch]:
    """Number the disks, match completions and count what is in flight."""
    disks: dict[int, int] = {}
    matcher, in_flight = CompletionMatcher(), InFlight()
    names: tuple[str, ...] = ()
    for events in stretches:
        if not (len(disks) == 1 and (events.device == next(iter(disks))).all()):
            for number in np.unique(events.device[~events.is_completion]).tolist():
                disks.setdefault(number, len(disks))
        if len(disks) != len(names):
            names = tuple(device_name(d) for d in disks)
        rows = matcher.push(*_apart(events, disks))
        stacked = tuple((device_name(a), device_name(b)) for a, b in sorted(events.stacked))
        yield _batch(
            rows, names, matcher, in_flight, events.skipped, events.events, stacked=stacked, lost=events.lost
        )
    rows = matcher.finish()
    if len(rows):
        yield _batch(rows, names, matcher, in_flight, {}, {})


def _apart(events: BlockEvents, disks: dict[int, int]) -> tuple[Accesses, Completions]:
    if len(disks) == 1 and (events.device == next(iter(disks))).all():
        disk = np.zeros(len(events.device), np.int32)
        is_known: NDArray[np.bool_] = np.ones(len(disk), bool)
    else:
        known = np.array(sorted(disks), np.int64)
        index = np.array([disks[int(d)] for d in known] or [0], np.int32)
        place = np.minimum(np.searchsorted(known, events.device), max(len(known) - 1, 0))
        is_known = np.asarray(known[place] == events.device) if len(known) else np.zeros(len(place), bool)
        disk = index[place]
    a = np.flatnonzero(~events.is_completion)
    c = np.flatnonzero(events.is_completion & is_known)
    accesses = Accesses(
        events.time_ns[a],
        events.op[a],
        events.lbn[a],
        events.nbytes[a],
        disk[a],
        np.full(len(a), PENDING, np.int64),
    )
    position = np.cumsum(~events.is_completion, dtype=np.int64)[c]
    return accesses, Completions(
        events.time_ns[c],
        events.lbn[c],
        events.nbytes[c],
        disk[c],
        position,
    )


def _batch(
    rows: Accesses,
    disks: tuple[str, ...],
    matcher: CompletionMatcher,
    in_flight: InFlight,
    skipped: dict[str, int],
    events: dict[str, int],
    *,
    stacked: tuple[tuple[str, str], ...] = (),
    lost: int = 0,
) -> AccessBatch:
    timed = matcher.completions_seen
    return AccessBatch(
        rows.time_ns,
        rows.op,
        rows.lbn,
        rows.nbytes,
        rows.disk,
        disks,
        latency_ns=rows.latency_ns if timed else None,
        outstanding=in_flight.count(rows) if timed else None,
        skipped=skipped,
        events=events,
        stacked=stacked,
        lost=lost,
    )
