"""Recordings counted: here, one after the other, or in parts side by side; the counts are the same."""

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
    """The counts of each recording, in order.

    Args:
        shares: one for each.
        opened: the open files of each.
        reader: of their format.
        scheduler: as ``scheduling.counted`` takes it; None also reads one file with all cores where it can be cut,
            and several side by side.
        progress: told how many bytes were read.

    Raises:
        InputError: also where standard input is to be read elsewhere.
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
            remedy="write it into a file first, or leave --scheduler out",
        )
    results = scheduling.counted([part for parts in cut for part in parts], scheduler)
    for i, (share, streams, parts) in enumerate(zip(shares, opened, cut, strict=True)):
        so_far, lacks, notes = CountedSoFar(), reader.lacks, reader.notes
        try:
            for result in islice(results, len(parts)):
                so_far = so_far.followed_by(result.partial, result.flight)
                if share.threshold is not None and share.must_describe and so_far.partial.portraits.too_many:
                    raise too_many_disks(min(so_far.partial.names))
                lacks, notes = result.lacks, result.notes
                progress.advance(sum(f.stat().st_size for f in share.files if f.is_file()) / len(parts))
        except (InputError, NeedsWholeFile):
            if len(parts) == 1:
                raise
            # What a part is must be told from the whole file; the place of an error counts from its beginning.
            results.close()
            yield _read_here(share, streams, reader, progress)
            results = scheduling.counted([part for parts in cut[i + 1 :] for part in parts], scheduler)
            continue
        yield Counted(so_far.partial, lacks, notes)


def _fill_the_cores(shares: Sequence[Share]) -> bool:
    """Whether reading recordings side by side keeps all cores busy: none is so large that it would be read alone
    in the end, when reading it here, where some steps of it have threads of their own, is quicker."""
    if n_cores() == 1 or not all(f.is_file() for share in shares for f in share.files):
        return False  # a pipe is read but once
    nbytes = [sum(f.stat().st_size for f in share.files) for share in shares]
    return n_cores() * max(nbytes) <= sum(nbytes)


def _read_here(share: Share, streams: Sequence[TraceStream], reader: StreamReader, progress: Progress) -> Counted:
    if isinstance(reader, BlktraceReader) and share.threshold is None:
        partial = count_in_parts(streams, reader, progress.advance)
        if partial is not None:
            return Counted(partial, reader.lacks, reader.notes)
    counting = counting_of(share)
    shown = 0
    for batch in read_ahead(reader.read_together(streams)):
        counting.add(batch)
        consumed = sum(s.consumed() for s in streams)
        progress.advance(consumed - shown)
        shown = consumed
    return Counted(counting.partial(), reader.lacks, reader.notes)
