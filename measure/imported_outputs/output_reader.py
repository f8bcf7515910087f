"""What a file of benchmark output contains, and the protocol of its readers. Readers are pure: text to values."""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from cephfit.core.errors import InputError
from cephfit.core.units import parse_nbytes
from cephfit.core.values.cells import Pattern
from cephfit.core.values.sample import Metrics


@dataclass(frozen=True, slots=True)
class FileHints:
    """Facts that an output itself may lack; from a mapping, or from the names of the file and its folders.

    Attributes:
        pattern: None if unknown.
        nbytes: block size; 0 if unknown.
        iodepth: per client; 0 if unknown.
    """

    pattern: Pattern | None = None
    nbytes: int = 0
    iodepth: int = 0


@dataclass(frozen=True, slots=True)
class ImportedResult:
    """The figures of one kind of access in one run of a benchmark on one client.

    Attributes:
        place: within the file, such as ``job 2 (randread)`` or ``line 14``.
        job: the job's name; empty if it has none.
        pattern: fio's.
        nbytes: block size.
        iodepth: I/Os that the client keeps in flight: those of all of its processes.
        metrics: the figures.
        client: name of the host that ran it; empty if the output does not state it.
        read_pct: share of reads in a mix, in per cent; None: no mix.
        rate_iops: limit of the client, I/Os per second; None: none.
        align_nbytes: as ``LoadedCell``.
        sync: as ``LoadedCell``.
        finished_ns: wall clock, ns since the epoch; 0 if the output does not state it.
        configuration: name, if the output states it; else empty.
        repeat: if the output states it; else None.
        rate_only: the output states a rate and nothing else; the other metrics follow from it.
        n_clients: clients whose sum the figures are.
    """

    place: str
    job: str
    pattern: Pattern
    nbytes: int
    iodepth: int
    metrics: Metrics
    client: str = ""
    read_pct: int | None = None
    rate_iops: int | None = None
    align_nbytes: int = 0
    sync: str = ""
    finished_ns: int = 0
    configuration: str = ""
    repeat: int | None = None
    rate_only: bool = False
    n_clients: int = 1


@dataclass(frozen=True, slots=True)
class NotUnderstood:
    """A part of a file that gives no figures.

    Attributes:
        place: within the file; empty for the whole file.
        reason: why.
    """

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class OutputContent:
    """Everything that a file contains: each job is in one of the two."""

    results: tuple[ImportedResult, ...]
    not_understood: tuple[NotUnderstood, ...] = ()


class OutputReader(Protocol):
    """Reads one family of formats.

    Attributes:
        name: on the command line.
        title: for readers.
    """

    name: str
    title: str

    def sniff(self, text: str) -> bool:
        """Return whether the text is of this format; never raises."""

    def read(self, text: str, hints: FileHints) -> OutputContent:
        """Return what the text contains; what cannot be used is in ``not_understood``. Never raises."""


class UnusableError(Exception):
    """A part of an output has no usable figures; the text states why."""


_DAMAGED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What parsing raises for figures and options that no benchmark writes: other types, huge numbers."""


def gathered(
    parts: Iterable[tuple[str, Callable[[str], Iterable[ImportedResult]]]],
    stating: tuple[type[Exception], ...] = (UnusableError,),
) -> OutputContent:
    """Read the parts of a file; one that cannot be used is in ``not_understood``, and the others count.

    Args:
        parts: (place, function that returns the results of the part at a place).
        stating: exceptions whose text is the reason.
    """
    results: list[ImportedResult] = []
    lost: list[NotUnderstood] = []
    for place, read in parts:
        try:
            results += list(read(place))
        except stating as error:
            lost.append(NotUnderstood(place, str(error)))
        except _DAMAGED as error:
            lost.append(NotUnderstood(place, f"damaged or truncated: {str(error)[:200]}"))
    return OutputContent(tuple(results), tuple(lost))


_PATTERNS = {
    "read": (Pattern.READ,),
    "write": (Pattern.WRITE,),
    "randread": (Pattern.RANDREAD,),
    "randwrite": (Pattern.RANDWRITE,),
    "rw": (Pattern.READ, Pattern.WRITE),
    "readwrite": (Pattern.READ, Pattern.WRITE),
    "randrw": (Pattern.RANDREAD, Pattern.RANDWRITE),
}


def patterns_of(rw: str) -> tuple[Pattern, ...]:
    """Return the patterns of fio's option ``rw``; two for a mix.

    Raises:
        UnusableError: it is not one of them, such as ``trim``.
    """
    word = rw.partition(":")[0].lower()
    if word not in _PATTERNS:
        raise UnusableError(f"rw={rw} is not a pattern of reads or writes")
    return _PATTERNS[word]


_SPLIT = re.compile(r"[,/:-]")


def block_nbytes(text: str) -> int:
    """Return the block size of fio's option ``bs``, if it is one size.

    Raises:
        UnusableError: it is a range, differs between reads and writes, or is no size.
    """
    sizes = set()
    for word in filter(None, _SPLIT.split(text)):
        try:
            sizes.add(parse_nbytes(word))
        except InputError:
            raise UnusableError(f"bs={text} is not a block size") from None
    if len(sizes) != 1 or not min(sizes):
        raise UnusableError(f"the blocks have several sizes ({text}), so there is no rate of one size")
    return sizes.pop()


def checked(make: Callable[[], Metrics]) -> Metrics:
    """Return the metrics that ``make`` builds.

    Raises:
        UnusableError: they are impossible.
    """
    try:
        return make()
    except ValueError as error:
        raise UnusableError(str(error)) from None


SYNCHRONOUS_ENGINES = ("sync", "psync", "vsync", "pvsync", "pvsync2", "mmap")
"""Engines of fio that have one I/O in flight, whatever ``iodepth`` says."""


def summed(parts: Sequence[Metrics]) -> Metrics:
    """Return the metrics of processes that ran together: rates are summed, latencies averaged over I/Os.

    Percentiles of several processes cannot be combined, and are left out.
    """
    if len(parts) == 1:
        return parts[0]
    n_ios = sum(part.n_ios for part in parts)
    return checked(
        lambda: Metrics(
            iops=math.fsum(part.iops for part in parts),
            nbytes_per_s=math.fsum(part.nbytes_per_s for part in parts),
            n_ios=n_ios,
            runtime_ns=max(part.runtime_ns for part in parts),
            latency_mean_ns=math.fsum(part.latency_mean_ns * part.n_ios for part in parts) / n_ios,
        )
    )
