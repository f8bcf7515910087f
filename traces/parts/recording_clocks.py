"""Where the clock of a trace in parts begins anew, and how long recordings took."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np

from cephfit.core.errors import InputError
from cephfit.traces.files import remote
from cephfit.traces.files.stream import TraceStream
from cephfit.traces.readers.reader import StreamReader
from cephfit.traces.recordings import Recording, consecutive_files

_OUT_OF_ORDER_NS = 1_000_000_000
"""Of accesses that are not sorted by time; a step back by more is another clock."""
_ANEW_NS = 1_000_000
"""A step back behind the beginning of the file before is another clock from here on: a file is longer than its
accesses are out of order, unless it has but a few."""


_ANEW = (
    "the clock begins anew with {}: it was not read in a row with what is before, so latencies and accesses in "
    "flight across this border are not known, and the time between is not part of the duration"
)
_STEPS = (
    "{} accesses have an earlier time than the one before them: they are not sorted; the clock of no part begins "
    "anew"
)
_STEPS_OF_PIPES = (
    "{} accesses have an earlier time than the one before them: if the clock of a part begins anew, the duration, "
    "the rates and latencies at its border are wrong; of parts that are files and no pipes it would be looked at"
)

Recorded: TypeAlias = tuple[Recording, ...]
"""One recording, by its consecutive parts."""


@dataclass(frozen=True, slots=True)
class Divided:
    """Recordings divided where the clock begins anew: with the files ``anew``."""

    recorded: list[Recorded]
    anew: tuple[Path, ...]


def divided_by_clock(recorded: Sequence[Recorded], reader: StreamReader) -> Divided | None:
    """The recordings as ``by_clock`` divides their parts; None: all clocks go on."""
    of_each = [by_clock(parts, reader) for parts in recorded]
    anew = tuple(its[0].files[0] for parts in of_each for its in parts[1:])
    return Divided([its for parts in of_each for its in parts], anew) if anew else None


def notes_of_new_clocks(anew: Sequence[Path]) -> Iterator[str]:
    """For each file with which the clock begins anew."""
    return (_ANEW.format(remote.display_name(file)) for file in anew)


def note_of_steps(steps: int, *, can_tell: bool) -> str:
    """Where times of parts step back; ``can_tell``: whether the parts' clocks were looked at."""
    return (_STEPS if can_tell else _STEPS_OF_PIPES).format(steps)


def by_clock(parts: Sequence[Recording], reader: StreamReader) -> list[Recorded]:
    """Consecutive parts divided where the clock begins anew: where the first access of a file has a time before
    the end of the file before it (of blktrace's, that of the same CPU). All are read for it.

    A file that begins or ends within a line or record is judged by what can be read of it; where nothing can, it
    goes on with the file before it.
    """
    borders: set[int] = set()
    for row in consecutive_files(parts):
        number_of = {file: i for i, part in enumerate(parts) for file in part.files}
        times = [(number_of[file], its) for file in row if (its := _times(file, reader)) is not None]
        borders.update(i for (_, before), (i, its) in pairwise(times) if _begins_anew(before, its[0]))
    ends = [0, *sorted(borders), len(parts)]
    return [tuple(parts[begin:end]) for begin, end in pairwise(ends)]


def _begins_anew(before: tuple[int, int], first_ns: int) -> bool:
    began, ended = before
    step_ns = ended - first_ns
    return step_ns > _OUT_OF_ORDER_NS or (first_ns <= began and step_ns >= _ANEW_NS)


def _times(file: Path, reader: StreamReader) -> tuple[int, int] | None:
    """Times of the first access and of the latest one, ns; None: no access can be read."""
    first: int | None = None
    latest = 0
    try:
        with TraceStream(file) as stream:
            for batch in reader.read(stream):
                if len(batch.time_ns):
                    first = int(batch.time_ns[0]) if first is None else first
                    latest = max(latest, int(np.max(batch.time_ns)))
    except InputError:
        pass  # what is cut off here goes on in the next file; the parts in a row had no fault
    return None if first is None else (first, max(first, latest))


def duration_ns(spans: Sequence[tuple[str, int, int]], *, one_after_the_other: bool) -> int:
    """From the first to the last access of recordings.

    Args:
        spans: of each what it is of, and when it began and ended.
        one_after_the_other: those of one name were; those of several were beside each other, unless they follow
            each other by the clock.
    """
    if not one_after_the_other or not spans:
        return max((end - begin for _, begin, end in spans), default=0)
    if _is_in_order(spans):
        return spans[-1][2] - spans[0][1]
    names = dict.fromkeys(name for name, _, _ in spans)
    return max(_in_all([span for span in spans if span[0] == name]) for name in names)


def _in_all(spans: Sequence[tuple[str, int, int]]) -> int:
    # Clocks of parts that begin anew tell nothing of what is between them.
    return spans[-1][2] - spans[0][1] if _is_in_order(spans) else sum(end - begin for _, begin, end in spans)


def _is_in_order(spans: Sequence[tuple[str, int, int]]) -> bool:
    return all(after[1] >= before[2] for before, after in pairwise(spans))
