"""Count recordings one after the other or in parts, with the restarts of their clock and their duration."""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from cephfit.core.errors import HostError, InputError
from cephfit.core.optional_modules import optional_module
from cephfit.core.protocols import Progress
from cephfit.core.units import NS_PER_S
from cephfit.traces import opening
from cephfit.traces.counting.second_counts import MINUTE
from cephfit.traces.counting.shares import Counted, CountedSoFar, Share, count, counting_of, parts_of
from cephfit.traces.description.disk_description import too_many_disks
from cephfit.traces.readers.blktrace.blktrace_joining import count_in_parts
from cephfit.traces.readers.blktrace.blktrace_reader import BlktraceReader
from cephfit.traces.readers.reader import StreamReader
from cephfit.traces.recordings import Recording, consecutive_files
from cephfit.traces.stream import STANDARD_INPUT, NeedsWholeFile, TraceStream, n_cores, read_ahead

_AHEAD = 2
"""Maximum number of shares per core that are counted in advance: their counts take memory."""

PROCESSES = "processes"
"""Name of the scheduler with one process per core."""


def counted_shares(shares: Sequence[Share], scheduler: str | None) -> Generator[Counted, None, None]:
    """Yield the counts of the shares, in their order.

    Args:
        shares: The shares to count.
        scheduler: None: threads of this process, one per core (the compiled loops release Python's lock);
            ``processes``; or the address of a Dask scheduler (``tcp://HOST:8786``) with workers that find the
            files under the same paths.

    Raises:
        InputError: From a share; or no scheduler answers at the address.
        HostError: Dask is not installed; or a process or worker was lost with its share.
    """
    if scheduler is None or (len(shares) == 1 and scheduler == PROCESSES):
        return _by_threads(shares)
    return _by_processes(shares) if scheduler == PROCESSES else _by_dask(shares, scheduler)


def _by_threads(shares: Sequence[Share]) -> Generator[Counted, None, None]:
    if len(shares) == 1 or n_cores() == 1:
        yield from map(count, shares)
        return
    count_concurrently = partial(count, concurrent=True)
    with ThreadPoolExecutor(n_cores()) as pool:
        try:
            waiting = deque(pool.submit(count_concurrently, share) for share in shares[: _AHEAD * n_cores()])
            for share in [*shares[_AHEAD * n_cores() :], *[None] * len(waiting)]:
                yield waiting.popleft().result()
                if share is not None:
                    waiting.append(pool.submit(count_concurrently, share))
        finally:
            pool.shutdown(cancel_futures=True)


def _by_processes(shares: Sequence[Share]) -> Generator[Counted, None, None]:
    # Not forked: a fork copies the locks of threads, but not the threads.
    with ProcessPoolExecutor(min(n_cores(), len(shares)), mp_context=get_context("spawn")) as pool:
        try:
            yield from pool.map(count, shares)
        except BrokenProcessPool:
            raise HostError(
                "a process that counted a part of the trace ended early",
                where=f"--scheduler {PROCESSES}",
                remedy="check whether memory was exhausted (`dmesg`); without --scheduler, threads of one process "
                "read the trace",
            ) from None
        finally:
            pool.shutdown(cancel_futures=True)


def _by_dask(shares: Sequence[Share], address: str) -> Generator[Counted, None, None]:
    optional_module("distributed", where="--scheduler")
    from distributed import Client, KilledWorker

    try:
        client: Any = Client(address, timeout=10, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(
            f"no Dask scheduler answers at this address: {error}",
            where=f"--scheduler {address}",
            remedy="start one with `dask scheduler`, and `dask worker ADDRESS` where the traces can be read",
        ) from None
    with client:
        futures = client.map(count, list(shares), pure=False)
        try:
            for future in futures:
                yield future.result()
        except (KilledWorker, CancelledError, ModuleNotFoundError, OSError) as error:
            # An unreadable file is an InputError of its share; these are errors of the cluster.
            raise HostError(
                f"the Dask cluster lost a part of the work: {type(error).__name__}: {_first_line(error)}",
                where=f"--scheduler {address}",
                remedy="check the logs of its scheduler and workers (memory exhausted? cephfit not installed?), "
                "then profile the trace again",
            ) from None
        finally:
            with suppress(CancelledError, OSError):
                client.cancel(futures)


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or "no reason given").splitlines()[0]


def counted(
    shares: Sequence[Share],
    opened: Sequence[Sequence[TraceStream]],
    reader: StreamReader,
    scheduler: str | None,
    progress: Progress,
) -> Iterator[Counted]:
    """Yield the counts of each recording, in order.

    Args:
        shares: One for each recording.
        opened: The open files of each recording.
        reader: The reader of their format.
        scheduler: As for ``counted_shares``. None also uses all cores: for the parts of one file if it can be
            divided, and for several recordings concurrently.
        progress: Receives the number of bytes read.

    Raises:
        InputError: The input is wrong, or other processes would have to read standard input.
    """
    cut = [parts_of(share, reader, streams[0]) for share, streams in zip(shares, opened, strict=True)]
    if scheduler is None and all(len(parts) == 1 for parts in cut) and not _fill_the_cores(shares):
        for share, streams in zip(shares, opened, strict=True):
            yield _read_here(share, streams, reader, progress)
        return
    if scheduler is not None and any(STANDARD_INPUT in share.files for share in shares):
        raise InputError(
            "standard input cannot be read by other processes",
            where=f"--scheduler {scheduler}",
            remedy="write it into a file first, or omit --scheduler",
        )
    results = counted_shares([part for parts in cut for part in parts], scheduler)
    for i, (share, streams, parts) in enumerate(zip(shares, opened, cut, strict=True)):
        so_far, lacks, notes = CountedSoFar(), reader.lacks, reader.notes
        try:
            for result in islice(results, len(parts)):
                so_far = so_far.followed_by(result.partial, result.flight)
                if (
                    share.threshold is not None
                    and share.must_describe
                    and so_far.partial.disk_descriptions.too_many
                ):
                    raise too_many_disks(min(so_far.partial.names))
                lacks, notes = result.lacks, result.notes
                progress.advance(sum(f.stat().st_size for f in share.files if f.is_file()) / len(parts))
        except (InputError, NeedsWholeFile):
            if len(parts) == 1:
                raise
            # Read the whole file: only it shows what the part is, and error positions count from its beginning.
            results.close()
            yield _read_here(share, streams, reader, progress)
            results = counted_shares([part for parts in cut[i + 1 :] for part in parts], scheduler)
            continue
        yield Counted(so_far.partial, lacks, notes)


def _fill_the_cores(shares: Sequence[Share]) -> bool:
    """Return whether reading recordings concurrently keeps all cores busy.

    It does not if one recording is so large that it would be read alone in the end. Reading it in this thread is
    then faster, because some of its steps use their own threads.
    """
    if n_cores() == 1 or not all(f.is_file() for share in shares for f in share.files):
        return False  # a pipe can be read only once
    nbytes = [sum(f.stat().st_size for f in share.files) for share in shares]
    return n_cores() * max(nbytes) <= sum(nbytes)


def _read_here(share: Share, streams: Sequence[TraceStream], reader: StreamReader, progress: Progress) -> Counted:
    if isinstance(reader, BlktraceReader) and share.threshold is None and not share.with_demands:
        partial = count_in_parts(streams, reader, progress.advance)
        if partial is not None:
            return Counted(partial, reader.lacks, reader.notes)
    reader.with_flushes = share.with_demands
    counting = counting_of(share)
    shown = 0
    for batch in read_ahead(reader.read_together(streams)):
        counting.add(batch)
        consumed = sum(s.consumed() for s in streams)
        progress.advance(consumed - shown)
        shown = consumed
    return Counted(counting.partial(), reader.lacks, reader.notes)


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
    return (_RESTARTED.format(opening.display_name(file)) for file in restarted)


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
