"""Count recordings in this thread one after the other, or in parts concurrently; the counts are equal."""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import CancelledError, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import partial
from itertools import islice
from multiprocessing import get_context
from typing import Any

from cephfit.core.errors import HostError, InputError
from cephfit.core.optional_modules import optional_module
from cephfit.core.protocols import Progress
from cephfit.traces.description.disk_description import too_many_disks
from cephfit.traces.files.part_stream import NeedsWholeFile
from cephfit.traces.files.read_ahead import n_cores, read_ahead
from cephfit.traces.files.stream import STANDARD_INPUT, TraceStream
from cephfit.traces.parts.in_flight_cuts import CountedSoFar
from cephfit.traces.parts.shares import Counted, Share, count, counting_of, parts_of
from cephfit.traces.readers.blktrace.blktrace_joining import count_in_parts
from cephfit.traces.readers.blktrace.blktrace_reader import BlktraceReader
from cephfit.traces.readers.reader import StreamReader

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
