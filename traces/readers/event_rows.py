"""Rows of block events that compiled loops write, and what becomes of them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.access import AccessBatch
from cephfit.traces.files.stream import TraceStream
from cephfit.traces.lines.fast_lines import LineParser, read_by_turns
from cephfit.traces.matching.latency import InFlight
from cephfit.traces.readers.block_layer import Action, BlockEvents, accesses_of, accesses_of_part
from cephfit.traces.readers.part_reader import PartReader


class Rows(NamedTuple):
    """Accesses and what becomes of them in order, columns as in ``BlockEvents``: more room than needed."""

    kind: NDArray[np.uint8]
    time_ns: NDArray[np.int64]
    op: NDArray[np.uint8]
    lbn: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    device: NDArray[np.int64]


def room_for(n: int) -> Rows:
    """Rows that hold anything."""
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
    """The first ``n`` rows, and what was counted beside them."""
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
    """The lines of one stream; ``action`` is the one that counts."""

    def __init__(self, stream: TraceStream, action: Action) -> None:
        self._stream = stream
        self._action = action


class EventTextReader(PartReader):
    """A text with one event of the block layer on each line; ``lines`` reads these."""

    names_disks = True
    lines: ClassVar[type[EventLines]]

    def __init__(self, action: Action = Action.QUEUE) -> None:
        self.action = action

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        return accesses_of(self._events(stream))

    def read_part(self, stream: TraceStream, in_flight: InFlight) -> Iterator[AccessBatch]:
        return accesses_of_part(self._events(stream))

    def _events(self, stream: TraceStream) -> Iterator[BlockEvents]:
        return map(_one_after_the_other, read_by_turns(stream, self.lines(stream, self.action)))


def _one_after_the_other(parts: Sequence[BlockEvents]) -> BlockEvents:
    """Consecutive stretches as one."""
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
