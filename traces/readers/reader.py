"""What the readers of all formats share.

A reader opens a file, recognizes its content, and reads it as a stream. ``Rows`` collects accesses line by
line. This module also determines the resolution of a text's clock, counts lines of other programs, and builds the
errors for damaged records.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np

from cephfit.core.errors import InputError
from cephfit.core.units import NS_PER_MS
from cephfit.traces.columns import (
    LBN_MAX,
    NBYTES_MAX,
    TIME_NS_MAX,
    UNKNOWN_LATENCY,
    AccessBatch,
    Accesses,
    unknown_outstanding,
)
from cephfit.traces.matching.latency import InFlight
from cephfit.traces.stream import TraceStream, bad_line, text_blocks


class TraceReader(Protocol):
    """Reads one trace format. One reader may be used for many files, also concurrently.

    Memory is bounded by a constant, whatever the file's size.
    """

    name: str
    """Short name of the format, as ``--format`` takes it."""

    def sniff(self, head: bytes) -> bool:
        """Whether a file that begins with ``head`` (up to 64 KiB, decompressed) is of this format.

        Raises:
            InputError: the file is of this format, or nearly, but cannot be read; states why.
        """

    def batches(self, source: Path) -> Iterator[AccessBatch]:
        """Yield the accesses of a file, in order of issue as far as the format records it.

        Args:
            source: a file, ``-`` for standard input, or a URL.

        Raises:
            InputError: names the file and, where known, the line, record or byte.
        """


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
    """A ``TraceReader`` that reads streams, so that it also reads compressed files and pipes."""

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
        """Yield accesses as ``TraceReader`` defines. Of a recording in several files, read only this
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


NO_LBN = (1 << 64) - 1
"""What kernels write for an event without a place."""

_NAMES_MAX = 1 << 16
_REASONS_MAX = 256
_HELD = 1 << 16
"""Accesses held back for sorting by issue. An access that outlasts this many others stays out of order."""


@dataclass(slots=True)
class Rows:
    """Accesses of a section of a trace and its counts. ``disks`` keeps growing over all sections.

    Attributes:
        disks: name to number.
        lost: events that the tracer lost, as the text states.
    """

    disks: dict[str, int] = field(default_factory=dict)
    skipped: dict[str, int] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    stacked: set[tuple[str, str]] = field(default_factory=set)
    lost: int = 0
    _rows: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)

    def add(
        self, time_ns: int, op: int, lbn: int, nbytes: int, disk: str, latency_ns: int = UNKNOWN_LATENCY
    ) -> None:
        """Add an access.

        Raises:
            ValueError: a number is impossible for an access.
        """
        if not (0 <= lbn < LBN_MAX and 0 < nbytes < NBYTES_MAX and abs(time_ns) < TIME_NS_MAX):
            raise ValueError("a number is impossible")
        if disk not in self.disks and len(self.disks) >= _NAMES_MAX:
            disk = "others"
        number = self.disks.setdefault(disk, len(self.disks))
        self._rows.append((time_ns, op, lbn, nbytes, number, min(latency_ns, TIME_NS_MAX)))

    def skip(self, reason: str) -> None:
        """Count a record that is not an access."""
        _count(self.skipped, reason)

    def see(self, event: str) -> None:
        """Count an event of another kind."""
        _count(self.events, event)

    def take(self) -> "Rows":
        """Return what was collected since the last call; the disks keep their numbers."""
        taken = Rows(self.disks, self.skipped, self.events, self.stacked, self.lost, self._rows)
        self.skipped, self.events, self.stacked, self.lost, self._rows = {}, {}, set(), 0, []
        return taken

    def accesses(self) -> Accesses:
        return Accesses.of_rows(self._rows)


def _count(counts: dict[str, int], name: str) -> None:
    if name not in counts and len(counts) >= _REASONS_MAX:
        name = "others"
    counts[name] = counts.get(name, 0) + 1


def stretches_of(stream: TraceStream, take: Callable[[Rows, bytes], str]) -> Iterator[Rows]:
    """Yield the rows of a text in which every line is complete by itself, for ``batches_of``.

    Args:
        stream: the text.
        take: adds the content of a line to the rows. It returns what was expected if the line is invalid, else an
            empty string. It raises ValueError for impossible numbers.

    Raises:
        InputError: the error names the file and the line.
    """
    rows = Rows()
    for block in text_blocks(stream):
        for number, line in enumerate(block.lines, block.first):
            try:
                expected = take(rows, line)
            except ValueError:
                raise bad_line(stream, number, line, "numbers that an access can have") from None
            if expected:
                cut_off = block.cut_off and line is block.lines[-1]
                raise bad_line(stream, number, line, expected, cut_off=cut_off)
        yield rows.take()


def batches_of(
    stretches: Iterable[Rows], *, timed: bool = False, in_order: bool = True, has_times: bool = True
) -> Iterator[AccessBatch]:
    """Convert sections to batches.

    Args:
        stretches: the sections, as ``Rows.take`` returns them.
        timed: the rows have latencies, so that accesses in flight can be counted.
        has_times: the rows have times; if false, the number in flight is unknown.
        in_order: the rows come in order of issue. If false, as in a trace of completions, they are sorted.
    """
    in_flight = InFlight() if has_times else None
    held = Accesses.none()
    last: Rows | None = None
    for stretch in stretches:
        rows = stretch.accesses()
        if not in_order:
            rows, held = _first_issued(Accesses.joined([held, rows]), _HELD)
        yield _batch(rows, stretch, in_flight, timed)
        last = stretch
    if len(held) and last is not None:
        yield _batch(held, Rows(last.disks), in_flight, timed)


def _first_issued(rows: Accesses, n_held: int) -> tuple[Accesses, Accesses]:
    """Sort all rows by issue, and cut them before the last ``n_held``."""
    order = np.argsort(rows.time_ns, kind="stable")
    rows = rows.chosen(order)
    n = max(len(rows) - n_held, 0)
    return rows.cut(0, n), rows.cut(n, len(rows))


def _batch(rows: Accesses, stretch: Rows, in_flight: InFlight | None, timed: bool) -> AccessBatch:
    outstanding = None
    if timed:
        outstanding = in_flight.count(rows) if in_flight else unknown_outstanding(len(rows))
    return rows.batch(
        tuple(stretch.disks),
        outstanding=outstanding,
        skipped=stretch.skipped,
        events=stretch.events,
        stacked=tuple(sorted(stretch.stacked)),
        lost=stretch.lost,
    )


def decimal_ns(text: bytes, unit_ns: int) -> int:
    """Convert a decimal number of units to whole ns, exactly.

    Raises:
        ValueError: the text is not such a number.
    """
    whole, _, fraction = text.partition(b".")
    sign = -1 if whole.startswith(b"-") else 1
    if len(whole) > 20 or len(fraction) > 20:
        raise ValueError("too many digits")
    return int(whole or b"0") * unit_ns + sign * (
        int(fraction) * unit_ns // 10 ** len(fraction) if fraction else 0
    )
