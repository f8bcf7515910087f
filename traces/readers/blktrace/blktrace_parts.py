"""Parts of a blktrace recording: where it may be cut, and each part followed alone.

A cut is at a record, at the same time in all files. Records have no fixed length, and a payload may contain
anything, even records. So a cut found here is probably right. The reader of the preceding part verifies it,
because that part must end with a record.

A part is followed as if nothing preceded it: the accesses that wait for completion at its beginning are unknown.
So it records its state at some checkpoints. The joiner, which continues from the preceding part, finds the
checkpoint from which the state is right (``blktrace_joining``).
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.traces.description.recording import Counting, PartialProfile
from cephfit.traces.matching.latency import WaitingRows
from cephfit.traces.readers.blktrace.blktrace_loop import OVER, Layout, numbers_by_device
from cephfit.traces.readers.blktrace.blktrace_reader import MAX_PAYLOAD, TO_THE_END, Reading, RecordFollower
from cephfit.traces.stream import PartStream

PART_NBYTES = 24 << 20
"""Approximate length of a part. It is long enough that the cost per part is small, and so is the time at the
end in which one core waits for the other."""
NBYTES_OF_FILE = 4 << 20
"""Bytes of each file in a part, for many files. The cost of a cut occurs in every file."""

_SEARCH_NBYTES = (4 << 10, 3 * MAX_PAYLOAD)
"""Bytes that are searched for a record. The second value is for large payloads."""
_RECORDS_IN_A_ROW = 4
"""Consecutive records that distinguish a record from bytes that look like one."""
_NEAR_NBYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a part begins.

    Attributes:
        at: byte of each file.
        time_ns: all records after the cut have this time or a later one, all before it an earlier one. For a
            single file, which keeps its order whatever its times are, it is later than all times.
    """

    at: tuple[int, ...]
    time_ns: int


def cuts_of(files: Sequence[Path], layout: Layout) -> Iterator[Cut]:
    """Yield the cuts of files that one recorder wrote, in order; none if they are short."""
    nbytes = [file.stat().st_size for file in files]
    n_parts = sum(nbytes) // max(PART_NBYTES, NBYTES_OF_FILE * len(files) if len(files) > 1 else 0)
    longest = nbytes.index(max(nbytes))
    opened = [file.open("rb") for file in files]
    before = (0,) * len(files)
    try:
        for k in range(1, n_parts):
            found = _record_from(opened[longest], nbytes[longest] * k // n_parts, layout)
            if found is None or found[0] <= before[longest]:
                continue
            if len(files) == 1:
                before = (found[0],)
                yield Cut(before, OVER)
            else:
                places = [
                    _first_at(f, layout, found[1], a, n) for f, a, n in zip(opened, before, nbytes, strict=True)
                ]
                at = tuple(place for place in places if place is not None)
                if len(at) == len(files) and at != before:
                    before = at
                    yield Cut(at, found[1])
    finally:
        for file in opened:
            file.close()


def _record_from(file: BinaryIO, at: int, layout: Layout) -> tuple[int, int] | None:
    """Return where the first record after a byte begins, and its time."""
    for nbytes in _SEARCH_NBYTES:
        file.seek(at)
        block = file.read(nbytes)
        magic = layout.magic.to_bytes(4, _order(layout))
        found = block.find(magic)
        while found >= 0:
            if _begins_records(block, found, magic, layout, at_end=len(block) < nbytes):
                return at + found, _number(block, found + 8, 8, layout)
            found = block.find(magic, found + 1)
    return None


def _begins_records(block: bytes, at: int, magic: bytes, layout: Layout, *, at_end: bool) -> bool:
    n = 0
    while at + layout.nbytes <= len(block):
        if block[at : at + 4] != magic:
            return False
        at += layout.nbytes + _number(block, at + layout.pdu_len, 2, layout)
        n += 1
    return n >= _RECORDS_IN_A_ROW or (at_end and n > 0 and at == len(block))


def _first_at(file: BinaryIO, layout: Layout, time_ns: int, low: int, nbytes: int) -> int | None:
    """Return where the first record at or after a time begins, or the end of the file. Times nearly ascend.

    ``low`` is the position of a record before it, or of the record itself.
    """
    high = nbytes
    while high - low > _NEAR_NBYTES:
        middle = (low + high) // 2
        found = _record_from(file, middle, layout)
        if found is None or found[0] >= high or found[1] >= time_ns:
            high = middle
        else:
            low = found[0]
    file.seek(low)
    block = file.read(high - low + _SEARCH_NBYTES[-1])
    at, magic = 0, layout.magic.to_bytes(4, _order(layout))
    while at + layout.nbytes <= len(block):
        if block[at : at + 4] != magic:
            return None
        if _number(block, at + 8, 8, layout) >= time_ns:
            return low + at
        at += layout.nbytes + _number(block, at + layout.pdu_len, 2, layout)
    return nbytes if low + at == nbytes else None


def _order(layout: Layout) -> Literal["big", "little"]:
    return "big" if layout.big_endian else "little"


def _number(block: bytes, at: int, nbytes: int, layout: Layout) -> int:
    return int.from_bytes(block[at : at + nbytes], _order(layout))


FIRST_BLOCKS = (256 << 10,)
"""Bytes of the first blocks of a part, each of which ends with a checkpoint. One is enough for some thousand
accesses in flight. Each further one costs every part the time to join counts."""
MAX_DISKS = 32
"""Counts take about 80 KB for each disk, for several sections of several parts. With more disks, files are read
whole."""


_of_thread = threading.local()


def _memory_of_thread(nbytes: int) -> NDArray[np.uint8]:
    """Return the memory that all parts in this thread reuse. The kernel would clear new memory for each part."""
    memory: NDArray[np.uint8] | None = getattr(_of_thread, "memory", None)
    if memory is None or len(memory) < nbytes:
        memory = _of_thread.memory = np.empty(nbytes, np.uint8)
    return memory


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a recording.

    Attributes:
        files: all files of the recording.
        layout, counted_action: as ``RecordFollower`` takes them.
        begins, ends: bytes of each file; an end of None is the end of the file.
        until_ns: all records must be earlier than this.
    """

    files: tuple[Path, ...]
    layout: Layout
    counted_action: int
    begins: tuple[int, ...]
    ends: tuple[int | None, ...]
    until_ns: int

    @property
    def is_last(self) -> bool:
        return self.ends[0] is None

    @property
    def nbytes(self) -> int:
        """Return the bytes of all files together."""
        ends = [f.stat().st_size if b is None else b for f, b in zip(self.files, self.ends, strict=True)]
        return sum(ends) - sum(self.begins)

    def opened(self, stack: ExitStack, pool: Executor | None = None) -> Reading:
        """Open the part. Its blocks are the same each time; one part at a time is open in each thread.
        ``stack`` closes it."""
        streams = [PartStream(f, a, b) for f, a, b in zip(self.files, self.begins, self.ends, strict=True)]
        for stream in streams:
            stack.callback(stream.close)
        return Reading(streams, pool, begins=self.begins, first_blocks=FIRST_BLOCKS, memory=_memory_of_thread)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A position in a part, and the state there.

    Attributes:
        at: byte of each file.
        waiting: the accesses that wait for completion.
        cpus: the CPUs of the records before, ascending, for each device.
    """

    at: tuple[int, ...]
    waiting: WaitingRows
    cpus: Mapping[int, NDArray[np.int64]]

    @classmethod
    def of(cls, following: RecordFollower, reading: Reading) -> "Checkpoint":
        """Record the state of ``following``, which was just settled."""
        return cls(
            tuple(reading.offset(file) for file in range(len(reading.files.at))),
            WaitingRows.of(following.matcher, following.devices),
            {d: np.flatnonzero(last) for d, _, last in numbers_by_device(following.found)},
        )

    def same_as(self, other: "Checkpoint") -> bool:
        """Return whether later results are the same. The CPUs may differ where another part preceded."""
        return self.at == other.at and self.waiting.same_as(other.waiting)


@dataclass(frozen=True, slots=True)
class FollowedPart:
    """A part that was followed as if nothing preceded it.

    Attributes:
        following: its state at the end.
        checkpoints: one after each of the first blocks.
        counted: counts up to the first checkpoint, between consecutive checkpoints, and up to the end.
    """

    following: RecordFollower
    checkpoints: tuple[Checkpoint, ...]
    counted: tuple[PartialProfile, ...]


def parts_of(files: Sequence[Path], layout: Layout, counted_action: int) -> Iterator[Part]:
    """Yield the parts of files that one recorder wrote, in order."""
    begins: tuple[int, ...] = (0,) * len(files)
    for cut in cuts_of(files, layout):
        yield Part(tuple(files), layout, counted_action, begins, cut.at, cut.time_ns)
        begins = cut.at
    yield Part(tuple(files), layout, counted_action, begins, (None,) * len(files), OVER)


def follow_alone(part: Part) -> FollowedPart | None:
    """Follow a part alone; None if that is not possible.

    Reasons: it begins or ends within a record, is damaged, has too many disks, or its end is not a cut in time; or
    no completion occurs for so long that none is likely.
    """
    following, counting = RecordFollower(part.layout, part.counted_action), Counting(None)
    checkpoints: list[Checkpoint] = []
    counted: list[PartialProfile] = []
    with ExitStack() as stack:
        try:
            reading = part.opened(stack)
            for n_blocks in range(1, len(FIRST_BLOCKS) + 1):
                count_on(following, reading, counting, n_blocks)
                if reading.files.is_over.all():
                    break
                counting.add(following.settled())
                counted.append(counting.partial())
                checkpoints.append(Checkpoint.of(following, reading))
                if len(following.devices) > MAX_DISKS:
                    return None
                counting = Counting(None)
            if not following.matcher.completions_seen:
                return None
            count_on(following, reading, counting)
        except (InputError, OSError):
            return None  # the reader of the preceding part reports the error with its position
    if int(reading.files.latest_ns.max()) >= part.until_ns:
        return None
    return FollowedPart(following, tuple(checkpoints), (*counted, counting.partial()))


def count_on(following: RecordFollower, reading: Reading, counting: Counting, n_blocks: int = TO_THE_END) -> None:
    """Count accesses that are completed or abandoned, as far as ``RecordFollower.follow`` reads."""
    for batch in following.follow(reading, n_blocks):
        counting.add(batch)
