"""Raw blktrace files (one for each CPU), ``blkparse -d`` dumps and streams of the kernel's blk tracer.

The binary records have version 7 or 8, in either byte order. Layout: ``struct blk_io_trace`` and ``struct
blk_io_trace2`` of the kernel's include/uapi/linux/blktrace_api.h. ``pdu_len`` bytes of payload follow a record, so
records have no fixed length. ``RecordFollower`` holds the state of a recording: its disks, waiting accesses, and
counts.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.traces.columns import AccessBatch
from cephfit.traces.matching.latency import CompletionMatcher, Ready
from cephfit.traces.readers.blktrace import blktrace_loop
from cephfit.traces.readers.blktrace.blktrace_loop import Files, Layout
from cephfit.traces.readers.block_events.block_layer import Action, PendingCounts
from cephfit.traces.readers.reader import StreamReader, not_a_record
from cephfit.traces.stream import TraceStream, has_second_core

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


def layout_of_record(head: bytes, *, where: str = "") -> Layout | None:
    """Return the layout that the first word of a file shows; None if it is not a blktrace

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
    layout, at = layout_of_record(head), 0
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


BLOCK_NBYTES = 2 << 20
"""Bytes buffered for all files of one recording together."""
MAX_PAYLOAD = 1 << 16

_LOSS_NOTE = re.compile(rb"CPU:\d+ \[LOST (?:(\d+) )?EVENTS\]\n")
"""Text of the kernel's trace_pipe between two records, where its ring buffer overflowed."""
_LOSS_NOTE_BEGINS = b"CPU:"
_LOSS_NOTE_NBYTES = 64


def layout_of(streams: Sequence[TraceStream]) -> Layout | None:
    """Return the layout of the records, which is the same in all files; None if all files are empty.

    Raises:
        InputError: a file has another layout, or none.
    """
    known: dict[str, Layout] = {}
    for stream in streams:
        layout = layout_of_record(stream.head()[:4], where=stream.name)
        if layout is not None:
            known[stream.name] = layout
        elif stream.head():
            raise not_a_record("blktrace", stream, 0)
    (first, layout), *others = known.items() or [("", None)]
    for name, other in others:
        if other != layout:
            raise InputError(
                f"its records have another version or byte order than those of {first}",
                where=name,
                remedy="these are not the files of one recording: profile them one at a time",
            )
    return layout


def _new_memory(nbytes: int) -> NDArray[np.uint8]:
    return np.empty(nbytes, np.uint8)


class Reading:
    """The unread bytes of several files. While one block of a file is used, the next one is read.

    Attributes:
        files: the bytes as the loop takes them.
    """

    def __init__(
        self,
        streams: Sequence[TraceStream],
        pool: Executor | None,
        *,
        begins: Sequence[int] = (),
        first_blocks: Sequence[int] = (),
        memory: Callable[[int], NDArray[np.uint8]] = _new_memory,
    ) -> None:
        """Begin to read all files.

        Args:
            streams: those of all CPUs.
            pool: reads ahead; None: each block is read when it is needed.
            begins: where in its file each stream begins; empty: at the beginning.
            first_blocks: bytes of the first blocks of each file, if they are to be smaller than the others.
            memory: returns the given number of bytes for the blocks. They are reserved while this object is used.
        """
        n = len(streams)
        self._streams, self._pool = streams, pool
        self._first_blocks = first_blocks
        self._block_nbytes = max(BLOCK_NBYTES // n, MAX_PAYLOAD)
        # Bytes before a block are reserved for the rest of the previous one: a record with its payload.
        self._rest_nbytes = MAX_PAYLOAD + max(d.itemsize for d in DTYPES.values())
        self._offsets = list(begins) or [0] * n
        self._n_turns = 2 if pool else 1
        self._n_begun, self._n_used = [0] * n, [0] * n
        self.files = Files(
            memory(self._n_turns * n * (self._rest_nbytes + self._block_nbytes)),
            np.zeros(n, np.int64),
            np.zeros(n, np.int64),
            np.zeros(n, np.int64),
            np.zeros(n, np.bool_),
        )
        self._view = memoryview(self.files.block.data)
        self._fresh = [self._begin(file) for file in range(n)]

    def n_used(self, file: int) -> int:
        """Return how many blocks of a file the loop has received."""
        return self._n_used[file]

    def _unread(self, file: int) -> memoryview:
        return self._view[int(self.files.at[file]) : int(self.files.end[file])]

    def offset(self, file: int) -> int:
        """Return the offset of the first unread byte in the file."""
        return self._offsets[file] - len(self._unread(file))

    def _place(self, file: int, block: int) -> int:
        """Return the position of a block in the memory: the blocks of a file alternate between positions."""
        turn = self._n_turns * file + block % self._n_turns
        return turn * (self._rest_nbytes + self._block_nbytes) + self._rest_nbytes

    def _begin(self, file: int) -> Callable[[], int]:
        """Begin to read the next block of a file. The returned function waits and returns the number of bytes."""
        block = self._n_begun[file]
        self._n_begun[file] += 1
        nbytes = self._first_blocks[block] if block < len(self._first_blocks) else self._block_nbytes
        place = self._place(file, block)
        read = partial(self._streams[file].readinto, self._view[place : place + min(nbytes, self._block_nbytes)])
        return self._pool.submit(read).result if self._pool else read

    def device_at(self, file: int, layout: Layout) -> int:
        """Return the device of the next"""
        number = bytes(self._unread(file)[layout.device : layout.device + 4])
        return int.from_bytes(number, "big" if layout.big_endian else "little")

    def read_on(self, file: int) -> None:
        """Read the next bytes of a file after all its whole records were used.

        Raises:
            InputError: there are none, and the file does not end with a whole
        """
        rest, place = bytes(self._unread(file)), self._place(file, self._n_used[file])
        fresh = self._fresh[file]()
        self._n_used[file] += 1
        self._view[place - len(rest) : place] = rest
        self.files.at[file], self.files.end[file] = place - len(rest), place + fresh
        self._offsets[file] += fresh
        if fresh:
            self._fresh[file] = self._begin(file)
            return
        if rest:
            raise InputError(
                f"the trace is cut off within a record ({len(rest)} bytes of it are present)",
                where=f"{self._streams[file].name}, byte {self.offset(file)}",
                remedy="copy the file again, or cut it at this byte and profile the rest",
            )
        self.files.is_over[file] = True

    def skip_loss_note(self, file: int) -> int:
        """Skip the kernel's note on lost events in the place of a record; return how many were lost.

        Raises:
            InputError: there is no such note.
        """
        unread = self._unread(file)
        if note := _LOSS_NOTE.match(unread):
            self.files.at[file] += note.end()
            return int(note[1] or 1)
        if bytes(unread[:4]) != _LOSS_NOTE_BEGINS or len(unread) >= _LOSS_NOTE_NBYTES:
            raise not_a_record("blktrace", self._streams[file], self.offset(file))
        self.read_on(file)
        return 0


TO_THE_END = 1 << 60
"""More blocks than any file has."""


class RecordFollower:
    """Follows records from the current position of a reading, or of several readings of one recording in order.

    Attributes:
        matcher: the accesses that wait.
        devices: number of each disk.
        found: the counts of the loop; losses and events in it belong to the next batch.
    """

    def __init__(self, layout: Layout, counted_action: int, *, with_flushes: bool = False) -> None:
        """Begin a recording; ``counted_action`` counts as an access, ``with_flushes`` as in the loop."""
        self._layout, self._counted_action, self._with_flushes = layout, counted_action, with_flushes
        self._pending = PendingCounts()
        self._numbers = np.empty(0, np.int64)
        self.matcher = CompletionMatcher()
        self.devices: list[int] = []
        self.found = blktrace_loop.nothing_found()

    def follow(self, reading: Reading, n_blocks: int = TO_THE_END) -> Iterator[AccessBatch]:
        """Yield accesses that are completed or abandoned, in order of issue.

        Stops when all files have ended, or when ``n_blocks`` of one of them are used.

        Raises:
            InputError: a record is cut off or invalid.
        """
        files, matcher = reading.files, self.matcher
        while not files.is_over.all():
            matcher.reserve(1, len(self.devices))
            why, file = blktrace_loop.follow_records(
                files, self._layout, self._counted_action, self._numbers, self.found, matcher.numbers,
                matcher.rows, matcher.table, matcher.ended_on, self._with_flushes,
            )  # fmt: skip
            if why == blktrace_loop.NEW_DISK:
                self.devices.append(reading.device_at(file, self._layout))
                self._numbers = np.array(self.devices, np.int64)
            elif why == blktrace_loop.BROKEN:
                self._pending.add({}, {}, (), reading.skip_loss_note(file))
            elif why == blktrace_loop.FULL:
                matcher.rebuild_table()
            elif why == blktrace_loop.NO_FREE_ROW:
                continue
            elif reading.n_used(file) == n_blocks:
                break
            else:
                reading.read_on(file)
            if ready := matcher.ready():
                yield self._batch(ready)

    def settled(self) -> AccessBatch:
        """Return all accesses that no longer wait, however few, with the counts so far."""
        return self._batch(self.matcher.settled())

    def finished(self) -> AccessBatch:
        """Return the remaining accesses after the last"""
        return self._batch(self.matcher.finish())

    def _batch(self, ready: Ready) -> AccessBatch:
        self._note()
        return self._pending.batch(
            ready,
            self.devices,
            self.matcher.completions_seen,
            with_flags=True,
            with_flushes=self._with_flushes,
        )

    def _note(self) -> None:
        """Move the counts of the loop to the next batch."""
        found = self.found
        n_pairs, n_lost = found.numbers.tolist()
        seen = {name: int(found.actions[i]) for i, name in ACTION_NAMES.items() if found.actions[i]}
        skipped = {r: int(k) for r, k in zip(blktrace_loop.REASONS, found.skipped, strict=True) if k}
        self._pending.add(skipped, seen, ((int(a), int(b)) for a, b in found.pairs[:n_pairs]), n_lost)
        found.skipped[:] = 0
        found.actions[:] = 0
        found.numbers[:] = 0


_WHAT = {Action.QUEUE: QUEUE, Action.ISSUE: ISSUE, Action.COMPLETE: COMPLETE}


class BlktraceReader(StreamReader):
    """Reads records of versions 7 and 8, of either byte order, with payloads, from one file or one for each
    CPU."""

    name = "blktrace"
    title = "blktrace's binary records (per-CPU files, `blkparse -d` dumps, the kernel's blk tracer)"
    names_disks = True

    def __init__(self, action: Action = Action.QUEUE) -> None:
        self.action = action

    @property
    def counted_action(self) -> int:
        """Return the action that counts as an access, as a record encodes it."""
        return _WHAT[self.action]

    def sniff(self, head: bytes) -> bool:
        return layout_of_record(head) is not None

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        return self.read_together([stream])

    def read_together(self, streams: Sequence[TraceStream]) -> Iterator[AccessBatch]:
        """Yield the accesses of all CPUs, merged by time.

        The files may have any numbers, with gaps, and may be empty: each record contains its CPU. Records of a
        file keep their order, even where its clock steps back a little.

        Raises:
            InputError: a record is cut off or invalid.
        """
        layout = layout_of(streams)
        if layout is None:
            return
        following = RecordFollower(layout, self.counted_action, with_flushes=self.with_flushes)
        with ThreadPoolExecutor(1) if has_second_core() else nullcontext() as pool:
            yield from following.follow(Reading(streams, pool))
        yield following.finished()
