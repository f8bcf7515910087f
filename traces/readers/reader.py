"""What readers share whose files can be read in parts side by side.

How fine the clock of a text is: by the digits with which it prints times.

Lines that the tracer did not write: the traced program's own output, where both went to one terminal.

What is said of bytes that are no record of a binary format.

What the readers of all formats share: a file is opened, told by its content, and read as a stream.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from cephfit.core.errors import InputError
from cephfit.core.units import NS_PER_MS
from cephfit.core.values.access import AccessBatch
from cephfit.traces.files.stream import TraceStream, bad_line
from cephfit.traces.matching.latency import InFlight


def clock_ns_of(times: Iterable[bytes], unit_ns: int) -> int:
    """The smallest difference that decimal numbers of ``unit_ns`` tell, in ns: that of the one with most digits
    behind the point. 1 where there are none of them, and where it would be 1 ms or more but not all have equally
    many digits: a writer that leaves zeros out may yet have more of them."""
    n_digits = {len(text.strip().partition(b".")[2]) for text in times}
    step_ns = max(unit_ns // 10 ** max(n_digits), 1) if n_digits else 1
    return 1 if step_ns >= NS_PER_MS and len(n_digits) > 1 else step_ns


RUN_MAX = 100
"""More of them one after the other are taken for another file behind the trace."""


class UnknownLines:
    """Counts runs of them, and tells when it is too much."""

    def __init__(self, stream: TraceStream, expected: str) -> None:
        self._stream = stream
        self._expected = expected
        self._first: tuple[int, bytes] | None = None

    def known(self) -> None:
        """The line is one of the tracer's."""
        self._first = None

    def unknown(self, number: int, line: bytes, *, strict: bool = False, cut_off: bool = False) -> None:
        """Raises: InputError: naming the first line of the run, if it is too long or ``strict``."""
        if self._first is None:
            self._first = number, line
        if strict or number - self._first[0] >= RUN_MAX:
            first, text = self._first
            raise bad_line(self._stream, first, text, self._expected, cut_off=cut_off and first == number)


def not_a_record(program: str, stream: TraceStream, offset: int) -> InputError:
    """The error; ``program`` is whose records were expected at this byte of the stream."""
    return InputError(
        f"there is no {program} record where one must begin",
        where=f"{stream.name}, byte {offset}",
        remedy="the file is damaged or something else was appended; cut it at this byte and profile the rest",
    )


LOSSES_STATED = "statements of what was lost"
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


class PartReader(StreamReader):
    """Reads text of which a part may begin at any line.

    Attributes:
        timed: whether parts tell latencies.
    """

    timed: bool = False

    @abstractmethod
    def read_part(self, stream: TraceStream, in_flight: InFlight) -> Iterator[AccessBatch]:
        """The accesses of a part of a file.

        Args:
            stream: the part.
            in_flight: counts what is in flight, where latencies are known.

        Raises:
            InputError: naming the file and the line, counted from the part's beginning.
            NeedsWholeFile: the file must be read as a whole.
        """
