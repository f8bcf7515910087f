"""What the readers of all formats share: a file is opened, told by its content, and read as a stream."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cephfit.access import AccessBatch
from cephfit.traces.files.stream import TraceStream

LOSSES_TOLD = "statements of what was lost"
"""Counted among the events: the file says how many events were lost, be it none. Without it, and where the format
cannot show losses, a count of none means that nobody knows."""


class StreamReader(ABC):
    """A ``protocols.TraceReader`` that reads streams, so that compressed files and pipes work everywhere."""

    name: str
    """Short name of the format, as ``--format`` takes it."""
    title: str
    """One line for people: what the format is."""
    names_disks: bool = False
    """Whether the file says which disk an access is on; else a file is one disk."""
    clock_is_guessed: bool = False
    """Whether the clock is told by the digits that a file happens to print; else it is what the format or the file
    says."""
    note: str = ""
    """What a reader of a profile from this format must know."""
    notes: tuple[str, ...] = ()
    """What the files themselves say that one must know of them, known after reading."""
    lacks: tuple[str, ...] = ()
    """What a profile would need and the files do not say; where it depends on the file, known after reading."""

    @abstractmethod
    def sniff(self, head: bytes) -> bool:
        """Whether a file that begins with ``head`` (up to 64 KiB, decompressed) is of this format."""

    def clock_ns(self, stream: TraceStream) -> int:
        """The smallest difference of two times that the file tells, by what stands at its beginning; nothing is
        read off the stream. What follows from times is told in no finer steps. 1: the format sets no limit."""
        return 1

    def common_clock_ns(self, clocks_ns: Iterable[int]) -> int:
        """That of files together, each of which has one of these: a file that prints few digits by chance (an idle
        disk's) has the clock of the others, a file that is said to have a coarse one has it."""
        return min(clocks_ns) if self.clock_is_guessed else max(clocks_ns)

    @abstractmethod
    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        """The accesses of an open stream, in order of issue.

        Raises:
            InputError: naming the file and the line or byte offset.
        """

    def read_together(self, streams: Sequence[TraceStream]) -> Iterator[AccessBatch]:
        """The accesses of files that one recorder wrote side by side (blktrace: one for each CPU).

        Formats that are always one file get exactly one.
        """
        (stream,) = streams
        return self.read(stream)

    def batches(self, source: Path) -> Iterator[AccessBatch]:
        """As ``protocols.TraceReader`` says; of a recording in several files, only what this one holds."""
        with TraceStream(source) as stream:
            yield from self.read(stream)
