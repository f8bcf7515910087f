"""Find where the clock of a trace in parts restarts, and compute the duration of recordings."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np

from cephfit.core.errors import InputError
from cephfit.core.units import NS_PER_S
from cephfit.traces.counting.second_counts import MINUTE
from cephfit.traces.files import remote
from cephfit.traces.files.stream import TraceStream
from cephfit.traces.readers.reader import StreamReader
from cephfit.traces.recordings import Recording, consecutive_files

_OUT_OF_ORDER_NS = 1_000_000_000
"""The largest step back of accesses that are not sorted by time; a larger step is a restart of the clock."""
_RESTART_NS = 1_000_000
"""A step back of at least this, to a time before the beginning of the previous file, is a restart of the clock. A
file is longer than its accesses are out of order, unless it has only a few."""


_RESTARTED = (
    "the clock restarts with {}: the parts before and after were read separately, so latencies and accesses in "
    "flight across this border are unknown, and the time between is not part of the duration"
)
_STEPS = (
    "{} accesses have an earlier time than the previous one: they are not sorted; the clock restarts in no part"
)
_STEPS_OF_PIPES = (
    "{} accesses have an earlier time than the previous one: if the clock of a part restarts, the duration, the "
    "rates and the latencies at its border are wrong; give files instead of pipes to check this"
)

Recorded: TypeAlias = tuple[Recording, ...]
"""The consecutive parts of one recording."""


@dataclass(frozen=True, slots=True)
class Divided:
    """Recordings divided where the clock restarts, which is with the files ``restarted``."""

    recorded: list[Recorded]
    restarted: tuple[Path, ...]


def divided_by_clock(recorded: Sequence[Recorded], reader: StreamReader) -> Divided | None:
    """Return the recordings as ``by_clock`` divides their parts; None if no clock restarts."""
    of_each = [by_clock(parts, reader) for parts in recorded]
    restarted = tuple(its[0].files[0] for parts in of_each for its in parts[1:])
    return Divided([its for parts in of_each for its in parts], restarted) if restarted else None


def notes_of_clock_restarts(restarted: Sequence[Path]) -> Iterator[str]:
    """Return a note for each file with which the clock restarts."""
    return (_RESTARTED.format(remote.display_name(file)) for file in restarted)


def note_of_steps(steps: int, *, clocks_checked: bool) -> str:
    """Return the note for times that step back.

    Args:
        steps: Number of steps back.
        clocks_checked: Whether the clocks of the parts were checked.
    """
    return (_STEPS if clocks_checked else _STEPS_OF_PIPES).format(steps)


def by_clock(parts: Sequence[Recording], reader: StreamReader) -> list[Recorded]:
    """Divide consecutive parts where the clock restarts.

    The clock restarts where the first access of a file has a time before the end of the previous file (for
    blktrace, the previous file of the same CPU). All files are read for this.

    A file that begins or ends within a line or record is judged by its readable accesses. A file without any
    continues the previous file.
    """
    borders: set[int] = set()
    for row in consecutive_files(parts):
        number_of = {file: i for i, part in enumerate(parts) for file in part.files}
        times = [(number_of[file], its) for file in row if (its := _times(file, reader)) is not None]
        borders.update(i for (_, before), (i, its) in pairwise(times) if _restarts(before, its[0]))
    ends = [0, *sorted(borders), len(parts)]
    return [tuple(parts[begin:end]) for begin, end in pairwise(ends)]


def _restarts(before: tuple[int, int], first_ns: int) -> bool:
    began, ended = before
    step_ns = ended - first_ns
    return step_ns > _OUT_OF_ORDER_NS or (first_ns <= began and step_ns >= _RESTART_NS)


def _times(file: Path, reader: StreamReader) -> tuple[int, int] | None:
    """Return the times of the first and the latest access in ns; None if no access can be read."""
    first: int | None = None
    latest = 0
    try:
        with TraceStream(file) as stream:
            for batch in reader.read(stream):
                if len(batch.time_ns):
                    first = int(batch.time_ns[0]) if first is None else first
                    latest = max(latest, int(np.max(batch.time_ns)))
    except InputError:
        pass  # the next file continues what is cut off here; reading the parts in sequence found no error
    return None if first is None else (first, max(first, latest))


def duration_ns(spans: Sequence[tuple[str, int, int]], *, one_after_the_other: bool) -> int:
    """Return the time from the first to the last access of recordings.

    Args:
        spans: Name, begin and end of each recording.
        one_after_the_other: Recordings of one name are consecutive. Those of several names are simultaneous,
            unless they follow each other by the clock.
    """
    if not one_after_the_other or not spans:
        return max((end - begin for _, begin, end in spans), default=0)
    if _is_in_order(spans):
        return spans[-1][2] - spans[0][1]
    names = dict.fromkeys(name for name, _, _ in spans)
    return max(_in_all([span for span in spans if span[0] == name]) for name in names)


@dataclass(frozen=True, slots=True)
class PartSeconds:
    """Where the seconds of a part are counted.

    Attributes:
        offset: seconds that are added to its clock.
        last: its last second, with the offset.
    """

    offset: int
    last: int


def next_seconds(span_ns: tuple[int, int], before: PartSeconds | None) -> PartSeconds:
    """Return where the seconds of the next part of a recording are counted: after those before it.

    If the clock restarts, the time between is unknown. A minute then lies between the parts, so that no window of
    a minute has accesses of both.
    """
    first, last = (ns // NS_PER_S for ns in span_ns)
    offset = before.offset if before else 0
    if before and first + offset < before.last:
        offset = before.last + MINUTE - first
    return PartSeconds(offset, last + offset)


def _in_all(spans: Sequence[tuple[str, int, int]]) -> int:
    # If the clock restarts, the time between the parts is unknown.
    return spans[-1][2] - spans[0][1] if _is_in_order(spans) else sum(end - begin for _, begin, end in spans)


def _is_in_order(spans: Sequence[tuple[str, int, int]]) -> bool:
    return all(after[1] >= before[2] for before, after in pairwise(spans))
