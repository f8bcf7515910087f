"""Batches of accesses that a reader collects line by line, in order of issue."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np

from cephfit.core.values.access import AccessBatch
from cephfit.traces.columns import UNKNOWN_LATENCY, Accesses, unknown_outstanding
from cephfit.traces.files.stream import TraceStream, bad_line, text_blocks
from cephfit.traces.matching.latency import InFlight
from cephfit.traces.record_limits import LBN_MAX, NBYTES_MAX, TIME_NS_MAX

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
