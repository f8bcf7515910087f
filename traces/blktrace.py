"""Raw blktrace files (one for each CPU), ``blkparse -d`` dumps and streams of the kernel's blk tracer."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cephfit.access import AccessBatch
from cephfit.errors import InputError
from cephfit.traces import blktrace_loop
from cephfit.traces import blktrace_record as record
from cephfit.traces.ahead import read_ahead
from cephfit.traces.blktrace_loop import Columns, Found
from cephfit.traces.block_layer import Action, BlockEvents, accesses_of
from cephfit.traces.reader import StreamReader
from cephfit.traces.stream import TraceStream

_BLOCK_NBYTES = 4 << 20
"""Bytes held of all files of one recording together."""
_MAX_PAYLOAD = 1 << 16

_LOSS_NOTE = re.compile(rb"CPU:\d+ \[LOST (?:(\d+) )?EVENTS\]\n")
"""Text that the kernel's trace_pipe has between two records where its ring buffer overflowed."""
_LOSS_NOTE_BEGINS = b"CPU:"
_LOSS_NOTE_NBYTES = 64

UNNUMBERED = "unnumbered"
"""Counts, among the events, records without a sequence number (the kernel's blk tracer gives none): their losses
do not show."""

_WHAT = {Action.QUEUE: record.QUEUE, Action.ISSUE: record.ISSUE}


class BlktraceReader(StreamReader):
    """Records of version 7 and 8, either byte order, with payloads, from one file or one for each CPU."""

    name = "blktrace"
    title = "blktrace's binary records (per-CPU files, `blkparse -d` dumps, the kernel's blk tracer)"
    tells_losses = True
    names_disks = True

    def __init__(self, action: Action = Action.QUEUE) -> None:
        self.action = action

    def sniff(self, head: bytes) -> bool:
        return record.layout_of(head) is not None

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        return self.read_together([stream])

    def read_together(self, streams: Sequence[TraceStream]) -> Iterator[AccessBatch]:
        """All CPUs merged by time.

        The files may have any numbers, gaps between them, and be empty: what CPU a record is from stands in
        the record. Within a file the order of the records stands, even where the clock steps back a little.
        """
        block_nbytes = max(_BLOCK_NBYTES // len(streams), _MAX_PAYLOAD)
        files = [_stretches(stream, block_nbytes, _WHAT[self.action]) for stream in streams]
        events = read_ahead(stretch.events for stretch in merged(files))
        return accesses_of(events)


@dataclass(frozen=True, slots=True)
class Stretch:
    """What counts of consecutive records of one file, and the order in which files are merged.

    Attributes:
        events: accesses and completions.
        key_ns: int64, one for each of them: running maximum of the time in this file.
    """

    events: BlockEvents
    key_ns: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.key_ns)

    def split(self, n: int) -> "tuple[Stretch, Stretch]":
        """The first ``n`` events, with all else that was counted, and the rest."""
        early, late = self.events.split(n)
        return Stretch(early, self.key_ns[:n]), Stretch(late, self.key_ns[n:])


def _stretches(stream: TraceStream, block_nbytes: int, wanted: int) -> Iterator[Stretch]:
    """Raises: InputError: a record is cut off, or what stands there is no record."""
    layout = record.layout_of(stream.head()[:4], where=stream.name)
    if layout is None:
        if stream.head():
            raise _no_record(stream, 0)
        return
    found = _nothing_found()
    block = np.empty(_MAX_PAYLOAD + layout.nbytes + block_nbytes, np.uint8)
    view = memoryview(block.data)
    end = 0  # of what is in the block and not read as records yet
    while fresh := stream.readinto(view[end : end + block_nbytes]):
        at, end = 0, end + fresh
        while at < end:
            columns = _columns((end - at) // layout.nbytes + 1)
            n, nbytes, state, _ = blktrace_loop.scan(block[at:end], layout, wanted, columns, found)
            at += nbytes
            broken = state == blktrace_loop.BROKEN
            note = _LOSS_NOTE.match(view[at:end]) if broken else None
            yield _stretch(columns, n, found, lost=int(note[1] or 1) if note else 0)
            if note:
                at += note.end()
                continue
            if broken and not (bytes(view[at : at + 4]) == _LOSS_NOTE_BEGINS and end - at < _LOSS_NOTE_NBYTES):
                raise _no_record(stream, stream.offset - (end - at))
            break
        block[: end - at] = block[at:end]
        end -= at
    if end:
        raise InputError(
            f"the trace is cut off within a record ({end} bytes of it are there)",
            where=f"{stream.name}, byte {stream.offset - end}",
            remedy="copy the file again, or cut it at this byte and profile what is there",
        )


def _no_record(stream: TraceStream, offset: int) -> InputError:
    return InputError(
        "there is no blktrace record where one must begin",
        where=f"{stream.name}, byte {offset}",
        remedy="the file is damaged or something else was appended; cut it at this byte and profile the rest",
    )


def _columns(n: int) -> Columns:
    times = np.empty((5, n), np.int64)
    return Columns(np.empty(n, bool), times[0], times[1], np.empty(n, np.uint8), times[2], times[3], times[4])


def _nothing_found() -> Found:
    return Found(
        skipped=np.zeros(len(blktrace_loop.REASONS), np.int64),
        actions=np.zeros(blktrace_loop.N_ACTIONS, np.int64),
        last_sequence=np.zeros(blktrace_loop.MAX_CPUS, np.int64),
        pairs=np.zeros((blktrace_loop.MAX_PAIRS, 2), np.int64),
        numbers=np.zeros(4, np.int64),
    )


def _stretch(columns: Columns, n: int, found: Found, *, lost: int) -> Stretch:
    """The first ``n`` rows; what was counted beside them is taken out of ``found``."""
    n_pairs, n_lost = int(found.numbers[blktrace_loop.N_PAIRS]), int(found.numbers[blktrace_loop.N_LOST])
    seen = {name: int(found.actions[i]) for i, name in record.ACTION_NAMES.items() if found.actions[i]}
    if n_unnumbered := int(found.numbers[blktrace_loop.N_UNNUMBERED]):
        seen[UNNUMBERED] = n_unnumbered
    events = BlockEvents(
        is_completion=columns.is_completion[:n],
        time_ns=columns.time_ns[:n],
        op=columns.op[:n],
        lbn=columns.lbn[:n],
        nbytes=columns.nbytes[:n],
        device=columns.device[:n],
        skipped={r: int(k) for r, k in zip(blktrace_loop.REASONS, found.skipped, strict=True) if k},
        events=seen,
        stacked=frozenset((int(a), int(b)) for a, b in found.pairs[:n_pairs]),
        lost=n_lost + lost,
    )
    found.skipped[:] = 0
    found.actions[:] = 0
    found.numbers[[blktrace_loop.N_LOST, blktrace_loop.N_UNNUMBERED]] = 0
    return Stretch(events, columns.key_ns[:n])


def merged(files: Sequence[Iterator[Stretch]]) -> Iterator[Stretch]:
    """Merge the stretches of several files by time, holding one of each.

    What stands before the earliest end of any file's stretch cannot be overtaken by what is still unread. Events
    of one time are ordered by file, then as they were.
    """
    if len(files) == 1:
        yield from files[0]
        return
    waiting: list[Stretch | None] = [next(f, None) for f in files]
    while any(s is not None for s in waiting):
        for i, stretch in enumerate(waiting):
            if stretch is not None and not len(stretch):
                yield stretch
                waiting[i] = next(files[i], None)
        held = [(i, s) for i, s in enumerate(waiting) if s is not None]
        if not held or not all(len(s) for _, s in held):
            continue
        horizon = min(int(s.key_ns[-1]) for _, s in held)
        cuts = [int(np.searchsorted(s.key_ns, horizon, side="left")) for _, s in held]
        if not any(cuts):
            # Only events of one and the same time stand at the front: take them all.
            cuts = [int(np.searchsorted(s.key_ns, horizon, side="right")) for _, s in held]
        ready: list[Stretch] = []
        for (i, stretch), n in zip(held, cuts, strict=True):
            if n:
                early, waiting[i] = stretch.split(n)
                ready.append(early)
        yield _sorted_by_time(ready)


def _sorted_by_time(stretches: list[Stretch]) -> Stretch:
    key = np.concatenate([s.key_ns for s in stretches])
    order = np.argsort(key, kind="stable")
    return Stretch(BlockEvents.joined([s.events for s in stretches], order), key[order])
