"""Raw blktrace files (one for each CPU), ``blkparse -d`` dumps and streams of the kernel's blk tracer.

``RecordFollower`` holds the state of a recording: its disks, waiting accesses, and counts.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np

from cephfit.traces.columns import AccessBatch
from cephfit.traces.files.stream import TraceStream, has_second_core
from cephfit.traces.matching.latency import CompletionMatcher, Ready
from cephfit.traces.readers.blktrace import blktrace_bytes as record
from cephfit.traces.readers.blktrace import blktrace_loop, blktrace_notes
from cephfit.traces.readers.blktrace.blktrace_bytes import Reading, layout_of
from cephfit.traces.readers.blktrace.blktrace_loop import Layout
from cephfit.traces.readers.block_events.block_layer import Action, PendingCounts
from cephfit.traces.readers.reader import StreamReader

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
        self.found = blktrace_notes.nothing_found()

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
        """Return the remaining accesses after the last record."""
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
        seen = {name: int(found.actions[i]) for i, name in record.ACTION_NAMES.items() if found.actions[i]}
        skipped = {r: int(k) for r, k in zip(blktrace_notes.REASONS, found.skipped, strict=True) if k}
        self._pending.add(skipped, seen, ((int(a), int(b)) for a, b in found.pairs[:n_pairs]), n_lost)
        found.skipped[:] = 0
        found.actions[:] = 0
        found.numbers[:] = 0


_WHAT = {Action.QUEUE: record.QUEUE, Action.ISSUE: record.ISSUE, Action.COMPLETE: record.COMPLETE}


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
        return record.layout_of_record(head) is not None

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
