"""Raw blktrace files (one for each CPU), ``blkparse -d`` dumps and streams of the kernel's blk tracer."""

import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial

import numpy as np

from cephfit.access import AccessBatch
from cephfit.errors import InputError
from cephfit.traces.files.ahead import has_second_core
from cephfit.traces.files.stream import TraceStream
from cephfit.traces.matching.latency import CompletionMatcher
from cephfit.traces.readers import blktrace_loop
from cephfit.traces.readers import blktrace_record as record
from cephfit.traces.readers.blktrace_loop import Files, Found, Layout
from cephfit.traces.readers.block_layer import Action, Noted
from cephfit.traces.readers.reader import StreamReader

_BLOCK_NBYTES = 2 << 20
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
        return _batches(streams, _WHAT[self.action])


def _batches(streams: Sequence[TraceStream], wanted: int) -> Iterator[AccessBatch]:
    """Raises: InputError: a record is cut off, or what stands there is no record."""
    layout = _layout(streams)
    if layout is None:
        return
    with ThreadPoolExecutor(1) if has_second_core() else nullcontext() as pool:
        yield from _followed(_Reading(streams, pool), layout, wanted)


def _followed(reading: "_Reading", layout: Layout, wanted: int) -> Iterator[AccessBatch]:
    files, found = reading.files, _nothing_found()
    devices: list[int] = []
    numbers = np.empty(0, np.int64)
    matcher, noted = CompletionMatcher(), Noted()
    while not files.is_over.all():
        matcher.make_room(1, len(devices))
        why, file = blktrace_loop.follow_records(
            files, layout, wanted, numbers, found, matcher.numbers, matcher.rows, matcher.table, matcher.ended_on
        )
        if why == blktrace_loop.NEW_DISK:
            devices.append(reading.device_at(file, layout))
            numbers = np.array(devices, np.int64)
        elif why == blktrace_loop.BROKEN:
            noted.add({}, {}, (), reading.skip_loss_note(file))
        elif why == blktrace_loop.FULL:
            matcher.remake_table()
        elif why == blktrace_loop.NO_ROOM:
            continue
        else:
            reading.read_on(file)
        if ready := matcher.ready():
            _note(found, noted)
            yield noted.batch(ready, devices, matcher.completions_seen)
    _note(found, noted)
    yield noted.batch(matcher.finish(), devices, matcher.completions_seen)


def _layout(streams: Sequence[TraceStream]) -> Layout | None:
    """The layout of the records, the same in all files; None where all are empty."""
    known: dict[str, Layout] = {}
    for stream in streams:
        layout = record.layout_of(stream.head()[:4], where=stream.name)
        if layout is not None:
            known[stream.name] = layout
        elif stream.head():
            raise _no_record(stream, 0)
    (first, layout), *others = known.items() or [("", None)]
    for name, other in others:
        if other != layout:
            raise InputError(
                f"its records have another version or byte order than those of {first}",
                where=name,
                remedy="these are not the files of one recording: profile them one after the other",
            )
    return layout


class _Reading:
    """The unread bytes of several files side by side, each with the next block being read while one is used.

    Attributes:
        files: as the loop takes them.
    """

    def __init__(self, streams: Sequence[TraceStream], pool: Executor | None) -> None:
        """``pool``: reads ahead; None: each block is read when it is wanted."""
        n = len(streams)
        self._streams, self._pool = streams, pool
        self._block_nbytes = max(_BLOCK_NBYTES // n, _MAX_PAYLOAD)
        # Before a block there is room for what is left of the one before: a record with its payload.
        self._rest_nbytes = _MAX_PAYLOAD + max(d.itemsize for d in record.DTYPES.values())
        self._offsets = [0] * n
        self._turns = [0] * n
        self.files = Files(
            np.empty(2 * n * (self._rest_nbytes + self._block_nbytes), np.uint8),
            np.zeros(n, np.int64),
            np.zeros(n, np.int64),
            np.zeros(n, np.int64),
            np.zeros(n, np.bool_),
        )
        self._view = memoryview(self.files.block.data)
        self._fresh = [self._begin(file) for file in range(n)]

    def _unread(self, file: int) -> memoryview:
        return self._view[int(self.files.at[file]) : int(self.files.end[file])]

    def _offset(self, file: int) -> int:
        """Where in the file the first unread byte is."""
        return self._offsets[file] - len(self._unread(file))

    def _place(self, file: int) -> int:
        """Where the file's next block belongs: its two places take turns."""
        return (2 * file + self._turns[file]) * (self._rest_nbytes + self._block_nbytes) + self._rest_nbytes

    def _begin(self, file: int) -> Callable[[], int]:
        """Begin to read the next block of a file; what comes back says how many bytes there were."""
        place = self._place(file)
        read = partial(self._streams[file].readinto, self._view[place : place + self._block_nbytes])
        return self._pool.submit(read).result if self._pool else read

    def device_at(self, file: int, layout: Layout) -> int:
        """The device of the next record."""
        number = bytes(self._unread(file)[layout.device : layout.device + 4])
        return int.from_bytes(number, "big" if layout.big_endian else "little")

    def read_on(self, file: int) -> None:
        """Read the next bytes of a file of which all whole records were used.

        Raises:
            InputError: there are none, and it does not end with a record.
        """
        rest, place = bytes(self._unread(file)), self._place(file)
        fresh = self._fresh[file]()
        self._view[place - len(rest) : place] = rest
        self.files.at[file], self.files.end[file] = place - len(rest), place + fresh
        self._offsets[file] += fresh
        if self._pool:
            self._turns[file] ^= 1
        if fresh:
            self._fresh[file] = self._begin(file)
            return
        if rest:
            raise InputError(
                f"the trace is cut off within a record ({len(rest)} bytes of it are there)",
                where=f"{self._streams[file].name}, byte {self._offset(file)}",
                remedy="copy the file again, or cut it at this byte and profile what is there",
            )
        self.files.is_over[file] = True

    def skip_loss_note(self, file: int) -> int:
        """The events that were lost according to the kernel's note that stands where a record should.

        Raises:
            InputError: there is no such note.
        """
        unread = self._unread(file)
        if note := _LOSS_NOTE.match(unread):
            self.files.at[file] += note.end()
            return int(note[1] or 1)
        if bytes(unread[:4]) != _LOSS_NOTE_BEGINS or len(unread) >= _LOSS_NOTE_NBYTES:
            raise _no_record(self._streams[file], self._offset(file))
        self.read_on(file)
        return 0


def _no_record(stream: TraceStream, offset: int) -> InputError:
    return InputError(
        "there is no blktrace record where one must begin",
        where=f"{stream.name}, byte {offset}",
        remedy="the file is damaged or something else was appended; cut it at this byte and profile the rest",
    )


def _nothing_found() -> Found:
    return Found(
        skipped=np.zeros(len(blktrace_loop.REASONS), np.int64),
        actions=np.zeros(blktrace_loop.N_ACTIONS, np.int64),
        last_sequence=np.zeros(blktrace_loop.MAX_CPUS, np.int64),
        pairs=np.zeros((blktrace_loop.MAX_PAIRS, 2), np.int64),
        numbers=np.zeros(3, np.int64),
    )


def _note(found: Found, noted: Noted) -> None:
    """Move what was counted beside the accesses."""
    n_pairs, n_lost, n_unnumbered = found.numbers.tolist()
    seen = {name: int(found.actions[i]) for i, name in record.ACTION_NAMES.items() if found.actions[i]}
    if n_unnumbered:
        seen[UNNUMBERED] = n_unnumbered
    skipped = {r: int(k) for r, k in zip(blktrace_loop.REASONS, found.skipped, strict=True) if k}
    noted.add(skipped, seen, ((int(a), int(b)) for a, b in found.pairs[:n_pairs]), n_lost)
    found.skipped[:] = 0
    found.actions[:] = 0
    found.numbers[:] = 0
