"""Count recordings in this thread one after the other, or in parts concurrently; the counts are equal."""

from collections.abc import Iterator, Sequence
from itertools import islice

from cephfit.core.errors import InputError
from cephfit.core.protocols import Progress
from cephfit.traces.description.disk_description import too_many_disks
from cephfit.traces.files.part_stream import NeedsWholeFile
from cephfit.traces.files.read_ahead import n_cores, read_ahead
from cephfit.traces.files.stream import STANDARD_INPUT, TraceStream
from cephfit.traces.parts import scheduling
from cephfit.traces.parts.in_flight_cuts import CountedSoFar
from cephfit.traces.parts.shares import Counted, Share, counting_of, parts_of
from cephfit.traces.readers.blktrace.blktrace_joining import count_in_parts
from cephfit.traces.readers.blktrace.blktrace_reader import BlktraceReader
from cephfit.traces.readers.reader import StreamReader


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
        scheduler: As for ``scheduling.counted``. None also uses all cores: for the parts of one file if it can be
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
    results = scheduling.counted([part for parts in cut for part in parts], scheduler)
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
            results = scheduling.counted([part for parts in cut[i + 1 :] for part in parts], scheduler)
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
