"""What the readers of all formats share.

A reader opens a file, recognizes its content, and reads it as a stream. This module also determines the resolution
of a text's clock, counts lines of other programs, and builds the errors for damaged records.
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
    """Return the resolution of decimal times in ns: that of the number with the most digits after the point.

    Returns 1 if there are no times. Also returns 1 if the result would be 1 ms or more and the numbers of digits
    differ: a writer that omits trailing zeros may have a finer clock.

    Args:
        times: the times as text.
        unit_ns: the unit of the times, in ns.
    """
    n_digits = {len(text.strip().partition(b".")[2]) for text in times}
    step_ns = max(unit_ns // 10 ** max(n_digits), 1) if n_digits else 1
    return 1 if step_ns >= NS_PER_MS and len(n_digits) > 1 else step_ns


RUN_MAX = 100
"""More consecutive unknown lines mean that another file follows the trace."""


class UnknownLines:
    """Counts runs of lines that the tracer did not write, such as the output of the traced program on the same
    terminal."""

    def __init__(self, stream: TraceStream, expected: str) -> None:
        self._stream = stream
        self._expected = expected
        self._first: tuple[int, bytes] | None = None

    def known(self) -> None:
        """Record that the tracer wrote this line."""
        self._first = None

    def unknown(self, number: int, line: bytes, *, strict: bool = False, cut_off: bool = False) -> None:
        """Record that another program wrote this line.

        Raises:
            InputError: the run is too long, or ``strict``. The error names the first line of the run.
        """
        if self._first is None:
            self._first = number, line
        if strict or number - self._first[0] >= RUN_MAX:
            first, text = self._first
            raise bad_line(self._stream, first, text, self._expected, cut_off=cut_off and first == number)


def not_a_record(program: str, stream: TraceStream, offset: int) -> InputError:
    """Return the error for a byte of the stream at which no record of ``program`` begins."""
    return InputError(
        f"no {program} record begins at the expected position",
        where=f"{stream.name}, byte {offset}",
        remedy="the file is damaged, or other data follows the trace; cut it at this byte and profile the rest",
    )


LOSSES_STATED = "statements of what was lost"
"""Counted as an event where the file states how many events were lost, including zero. Without it, or where the
format cannot show losses, zero lost events means unknown."""


class StreamReader(ABC):
    """A ``protocols.TraceReader`` that reads streams, so that it also reads compressed files and pipes."""

    name: str
    """Short name of the format, for ``--format``."""
    title: str
    """Description of the format in one line."""
    names_disks: bool = False
    """Whether the file names the disk of each access; otherwise a file is one disk."""
    clock_is_guessed: bool = False
    """Whether the resolution of the clock is inferred from printed digits; otherwise the format or the file
    defines it."""
    note: str = ""
    """What the reader of a profile must know about this format."""
    notes: tuple[str, ...] = ()
    """Notes that the files contain, available after reading."""
    with_flushes: bool = False
    """Whether batches contain flushes, where the format has them; set before reading."""
    lacks: tuple[str, ...] = ()
    """What a profile needs and the files lack. Where it depends on the file, it is available after reading."""

    @abstractmethod
    def sniff(self, head: bytes) -> bool:
        """Return whether a file that begins with ``head`` (up to 64 KiB, decompressed) is of this format."""

    def clock_ns(self, stream: TraceStream) -> int:
        """Return the resolution of the file's clock in ns, judged by the unread beginning; 1: no limit.

        Nothing is consumed from the stream. Figures that follow from times are shown in no finer steps.
        """
        return 1

    def common_clock_ns(self, clocks_ns: Iterable[int]) -> int:
        """Return the common resolution of files that have these.

        If the resolution is inferred, it is the finest one: an idle disk's file may print few digits by chance.
        Otherwise it is the coarsest.
        """
        return min(clocks_ns) if self.clock_is_guessed else max(clocks_ns)

    @abstractmethod
    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        """Yield the accesses of an open stream, in order of issue.

        Raises:
            InputError: the error names the file and the line or byte offset.
        """

    def read_together(self, streams: Sequence[TraceStream]) -> Iterator[AccessBatch]:
        """Yield the accesses of files that one recorder wrote at the same time (blktrace: one for each CPU).

        A format with single files gets exactly one stream.
        """
        (stream,) = streams
        return self.read(stream)

    def batches(self, source: Path) -> Iterator[AccessBatch]:
        """Yield accesses as ``protocols.TraceReader`` defines. Of a recording in several files, read only this
        one."""
        with TraceStream(source) as stream:
            yield from self.read(stream)


class PartReader(StreamReader):
    """A reader of text of which a part may begin at any line, so that parts can be read in parallel.

    Attributes:
        timed: whether parts contain latencies.
    """

    timed: bool = False

    @abstractmethod
    def read_part(self, stream: TraceStream, in_flight: InFlight) -> Iterator[AccessBatch]:
        """Yield the accesses of a part of a file.

        Args:
            stream: the part.
            in_flight: counts the accesses in flight, where latencies are known.

        Raises:
            InputError: the error names the file and the line, counted from the beginning of the part.
            NeedsWholeFile: the file must be read as a whole.
        """
