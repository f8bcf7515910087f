"""Raw blktrace files (one for each CPU), ``blkparse -d`` dumps and streams of the kernel's blk tracer."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

from cephfit.access import AccessBatch
from cephfit.traces.files.ahead import has_second_core
from cephfit.traces.files.stream import TraceStream
from cephfit.traces.readers import blktrace_record as record
from cephfit.traces.readers.blktrace_following import Following
from cephfit.traces.readers.blktrace_reading import Reading, layout_of
from cephfit.traces.readers.block_layer import Action
from cephfit.traces.readers.reader import StreamReader

_WHAT = {Action.QUEUE: record.QUEUE, Action.ISSUE: record.ISSUE}


class BlktraceReader(StreamReader):
    """Records of version 7 and 8, either byte order, with payloads, from one file or one for each CPU."""

    name = "blktrace"
    title = "blktrace's binary records (per-CPU files, `blkparse -d` dumps, the kernel's blk tracer)"
    names_disks = True

    def __init__(self, action: Action = Action.QUEUE) -> None:
        self.action = action

    @property
    def wanted(self) -> int:
        """The action that counts as an access, as records say it."""
        return _WHAT[self.action]

    def sniff(self, head: bytes) -> bool:
        return record.layout_of(head) is not None

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        return self.read_together([stream])

    def read_together(self, streams: Sequence[TraceStream]) -> Iterator[AccessBatch]:
        """All CPUs merged by time.

        The files may have any numbers, gaps between them, and be empty: what CPU a record is from stands in
        the record. Within a file the order of the records stands, even where the clock steps back a little.

        Raises:
            InputError: a record is cut off, or what stands there is no record.
        """
        layout = layout_of(streams)
        if layout is None:
            return
        following = Following(layout, self.wanted)
        with ThreadPoolExecutor(1) if has_second_core() else nullcontext() as pool:
            yield from following.follow(Reading(streams, pool))
        yield following.finished()
