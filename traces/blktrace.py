"""Raw blktrace files (one for each CPU), ``blkparse -d`` dumps and streams of the kernel's blk tracer."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cephfit.access import AccessBatch
from cephfit.errors import InputError
from cephfit.traces import blktrace_record as record
from cephfit.traces.block_layer import Action, BlockEvents, accesses_of
from cephfit.traces.reader import StreamReader
from cephfit.traces.stream import TraceStream

_BLOCK_NBYTES = 8 << 20
"""Bytes held of all files of one recording together."""
_MAX_PAYLOAD = 1 << 16
_SECTORS_MAX = 1 << 54
"""No disk has more 512-byte sectors than fit into 63 bits of bytes; the kernel writes -1 for "no sector"."""

_LOSS_NOTE = re.compile(rb"CPU:\d+ \[LOST (?:(\d+) )?EVENTS\]\n")
"""Text that the kernel's trace_pipe has between two records where its ring buffer overflowed."""
_LOSS_NOTE_BEGINS = b"CPU:"
_LOSS_NOTE_NBYTES = 64

_TIME_MAX = 1 << 62

_WHAT_MASK = 0xFFFF & ~record.CGROUP_TAG | record.NOTIFY << 16
"""What a record says, with the bit that makes it a notification: those have numbers of their own."""
_WHAT_NOTIFY = 0xFFFF

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
        gaps = SequenceGaps()
        block_nbytes = max(_BLOCK_NBYTES // len(streams), _MAX_PAYLOAD)
        blocks = merged([_record_blocks(stream, block_nbytes) for stream in streams])
        return accesses_of(_events(block, self.action, gaps) for block in blocks)


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Consecutive records of one file.

    Attributes:
        rows: structured array (n,).
        key_ns: int64 (n,): running maximum of the time in this file: the order in which files are merged.
        stacked: (upper, lower) devices of the remaps among them.
        lost: events that a note after the records says were lost.
    """

    rows: NDArray[np.void]
    key_ns: NDArray[np.int64]
    stacked: frozenset[tuple[int, int]] = frozenset()
    lost: int = 0

    def split(self, n: int) -> "tuple[RecordBlock, RecordBlock]":
        """The first ``n`` records, with what is said about the block, and the rest."""
        return (
            RecordBlock(self.rows[:n], self.key_ns[:n], self.stacked, self.lost),
            RecordBlock(self.rows[n:], self.key_ns[n:]),
        )


class SequenceGaps:
    """Counts the events that are missing between consecutive numbers of a CPU (blktrace numbers them from 1).

    The kernel's blk tracer leaves the number out, so zeros say nothing.
    """

    def __init__(self) -> None:
        self._last: dict[int, int] = {}

    def count(self, rows: NDArray[np.void]) -> int:
        lost = 0
        cpus = rows["cpu"]
        alone = len(rows) and (cpus == cpus[0]).all()
        for cpu in [int(cpus[0])] if alone else np.unique(cpus).tolist():
            numbers = rows["sequence"][slice(None) if alone else cpus == cpu].astype(np.int64)
            numbers = numbers[numbers > 0]
            if not len(numbers):
                continue
            last = self._last.get(cpu)
            steps = np.diff(numbers, prepend=numbers[0] - 1 if last is None else last)
            # A step back is another recording or a per-device numbering, not a loss.
            lost += int((steps[steps > 1] - 1).sum())
            self._last[cpu] = int(numbers[-1])
        return lost


def _record_blocks(stream: TraceStream, block_nbytes: int) -> Iterator[RecordBlock]:
    """Raises: InputError: a record is cut off, or what stands there is no record."""
    layout = record.layout_of(stream.head()[:4])
    if layout is None:
        if stream.head():
            raise _no_record(stream, 0)
        return
    rest, clock = b"", 0
    while fresh := stream.read(block_nbytes):
        rest = rest + fresh if rest else fresh
        while rest:
            offsets, end, broken = record.find_records(rest, layout)
            note = _LOSS_NOTE.match(rest, end) if broken else None
            if len(offsets) or note:
                rows = record.rows_at(rest, offsets, layout)
                key = np.maximum.accumulate(np.maximum(_times(rows), clock))
                clock = int(key[-1]) if len(key) else clock
                lost = int(note[1] or 1) if note else 0
                yield RecordBlock(rows, key, _remaps(rest, offsets, rows, layout), lost)
            if note:
                rest = rest[note.end() :]
                continue
            rest = rest[end:]
            if broken and not (rest.startswith(_LOSS_NOTE_BEGINS) and len(rest) < _LOSS_NOTE_NBYTES):
                raise _no_record(stream, stream.offset - len(rest))
            break
    if rest:
        raise InputError(
            f"the trace is cut off within a record ({len(rest)} bytes of it are there)",
            where=f"{stream.name}, byte {stream.offset - len(rest)}",
            remedy="copy the file again, or cut it at this byte and profile what is there",
        )


def _times(rows: NDArray[np.void]) -> NDArray[np.int64]:
    times: NDArray[np.int64] = np.minimum(rows["time"], np.uint64(_TIME_MAX)).astype(np.int64)
    return times


def _no_record(stream: TraceStream, offset: int) -> InputError:
    return InputError(
        "there is no blktrace record where one must begin",
        where=f"{stream.name}, byte {offset}",
        remedy="the file is damaged or something else was appended; cut it at this byte and profile the rest",
    )


def _remaps(
    block: bytes, offsets: NDArray[np.int64], rows: NDArray[np.void], layout: record.RecordLayout
) -> frozenset[tuple[int, int]]:
    """(from, to) of the remaps: the payload begins with the device that the access came from."""
    is_remap = (rows["action"] & 0xFF) == record.REMAP
    tag_nbytes = np.where((rows["action"] & record.CGROUP_TAG) != 0, 8, 0)
    remaps = np.flatnonzero(is_remap & (rows["pdu_len"] >= tag_nbytes + 8))
    octets = np.frombuffer(block, np.uint8)
    at = offsets[remaps] + layout.nbytes + tag_nbytes[remaps]
    came_from = np.zeros(len(remaps), np.int64)
    for i in range(4):  # always big-endian: struct blk_io_trace_remap holds __be32
        came_from = came_from << 8 | octets[at + i]
    pairs = np.unique(came_from << 32 | rows["device"][remaps].astype(np.int64))
    return frozenset((int(pair) >> 32, int(pair) & 0xFFFFFFFF) for pair in pairs)


def merged(files: Sequence[Iterator[RecordBlock]]) -> Iterator[RecordBlock]:
    """Merge blocks of several files by time, holding one block of each.

    What stands before the earliest end of any file's block cannot be overtaken by what is still unread. Records
    of one time are ordered by file, then as they were.
    """
    if len(files) == 1:
        yield from files[0]
        return
    waiting: list[RecordBlock | None] = [next(f, None) for f in files]
    while True:
        for i, block in enumerate(waiting):
            if block is not None and not len(block.rows):
                if block.lost:
                    yield block
                waiting[i] = next(files[i], None)
        alive = [i for i, block in enumerate(waiting) if block is not None]
        blocks = [b for b in waiting if b is not None]
        if not blocks:
            return
        if not all(len(b.rows) for b in blocks):
            continue
        horizon = min(int(b.key_ns[-1]) for b in blocks)
        cuts = [int(np.searchsorted(b.key_ns, horizon, side="left")) for b in blocks]
        if not any(cuts):
            # Only records of one and the same time stand at the front: take them all.
            cuts = [int(np.searchsorted(b.key_ns, horizon, side="right")) for b in blocks]
        ready: list[RecordBlock] = []
        for i, block, n in zip(alive, blocks, cuts, strict=True):
            if n:
                early, waiting[i] = block.split(n)
                ready.append(early)
        yield _sorted_by_time(ready)


def _sorted_by_time(blocks: list[RecordBlock]) -> RecordBlock:
    if len({b.rows.dtype for b in blocks}) > 1:
        raise InputError(
            "the files of one recording have different record versions or byte orders",
            remedy="profile them one after the other",
        )
    key = np.concatenate([b.key_ns for b in blocks])
    order = np.argsort(key, kind="stable")
    return RecordBlock(
        np.concatenate([b.rows for b in blocks])[order],
        key[order],
        frozenset().union(*(b.stacked for b in blocks)),
        sum(b.lost for b in blocks),
    )


def _events(block: RecordBlock, action: Action, gaps: SequenceGaps) -> BlockEvents:
    raw_action = block.rows["action"].astype(np.int64)
    what = raw_action & _WHAT_MASK
    counts = np.bincount(np.minimum(what, _WHAT_NOTIFY), minlength=1)
    events = {name: int(counts[i]) for i, name in record.ACTION_NAMES.items() if i < len(counts) and counts[i]}

    wanted = np.flatnonzero((what == _WHAT[action]) | (what == record.COMPLETE))
    rows = block.rows[wanted]
    category = raw_action[wanted] >> 16
    complete = what[wanted] == record.COMPLETE
    nbytes = rows["bytes"].astype(np.int64)
    reasons = {
        "passthrough": (category & record.PASSTHROUGH) != 0,
        "discard": (category & record.DISCARD) != 0,
        "flush": (nbytes == 0) & ((category & record.FLUSH) != 0),
        "zero length": nbytes == 0,
        "no valid sector": rows["sector"] >= _SECTORS_MAX,
    }
    skipped: dict[str, int] = {}
    fit = np.ones(len(rows), bool)
    for reason, holds in reasons.items():
        n = int(np.count_nonzero(holds & fit & ~complete))
        if n:
            skipped[reason] = n
        fit &= ~holds
    if not fit.all():
        rows, category, complete, nbytes = rows[fit], category[fit], complete[fit], nbytes[fit]
    return BlockEvents(
        is_completion=complete,
        time_ns=_times(rows),
        op=((category & record.WRITE) != 0).astype(np.uint8),
        lbn=rows["sector"].astype(np.int64),
        nbytes=nbytes,
        device=rows["device"].astype(np.int64),
        skipped=skipped,
        events=events,
        stacked=block.stacked,
        lost=block.lost + gaps.count(block.rows),
    )
