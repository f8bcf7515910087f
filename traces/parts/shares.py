"""Divide the reading of traces into shares that are counted independently, on any machine, and joined."""

from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from cephfit.traces import formats
from cephfit.traces.description.recording import Counting, PartialProfile
from cephfit.traces.files.part_stream import PartStream, one_stream
from cephfit.traces.files.stream import STANDARD_INPUT, TraceStream
from cephfit.traces.parts.in_flight_cuts import FlightOfPart, InFlightOfPart
from cephfit.traces.read_options import ReadOptions
from cephfit.traces.readers.block_events.block_layer import Action
from cephfit.traces.readers.reader import PartReader, StreamReader
from cephfit.traces.readers.vscsi.vscsi_binary import VscsiBinaryReader, record_nbytes

PART_NBYTES = 16 << 20
"""Files are divided into parts of about this length. Then little time is lost at the end, when one core waits for
another, and the work per part is small."""

_LONGER = 4
"""The parts of large files are up to this many times longer, because each part must learn the names of all
disks."""
_MANY_PARTS = 64


@dataclass(frozen=True, slots=True)
class Share:
    """Files that are read together, or a part of one file.

    Attributes:
        rows: Absolute paths or URLs of files that are read together: each a file, or consecutive parts of one.
        format_name, action, options: As in ``profile_files``.
        threshold: LBN beyond which an access is random, for a full description; None: no full description.
        described: Disks of the full description; empty: all.
        each_disk: As for ``Counting``.
        must_describe: As for ``Counting``.
        begin, end: Bytes of the only file; end None: the end of the file.
        clock_ns: The resolution of the times of all files.
        with_demands: As for ``Counting``.
    """

    rows: tuple[tuple[Path, ...], ...]
    format_name: str
    action: Action
    options: ReadOptions
    threshold: int | None
    described: tuple[str, ...] = ()
    each_disk: bool = True
    must_describe: bool = True
    begin: int = 0
    end: int | None = None
    clock_ns: int = 1
    with_demands: bool = False

    @property
    def files(self) -> tuple[Path, ...]:
        """The files of all rows."""
        return tuple(chain.from_iterable(self.rows))


@dataclass(frozen=True, slots=True)
class Counted:
    """The counts of a share.

    Attributes:
        partial: The counts.
        lacks, notes: Of the reader, after reading.
        flight: Of a part of a file: the data that joins it to its neighbours.
    """

    partial: PartialProfile
    lacks: tuple[str, ...]
    notes: tuple[str, ...]
    flight: FlightOfPart | None = None


def counting_of(share: Share) -> Counting:
    """Return the counting object for a share."""
    return Counting(
        share.threshold,
        share.described,
        each_disk=share.each_disk,
        must_describe=share.must_describe,
        clock_ns=share.clock_ns,
        with_demands=share.with_demands,
    )


def count(share: Share, *, concurrent: bool = False) -> Counted:
    """Count one share; also runs in another process or on another machine.

    Args:
        share: The share to count.
        concurrent: Other shares are counted in this process at the same time.

    Raises:
        InputError: The input is wrong; the error names the file and the position, in a part from its beginning.
        NeedsWholeFile: The share is a part that cannot be read alone.
    """
    reader = next(r for r in formats.readers(share.action, share.options) if r.name == share.format_name)
    reader.with_flushes = share.with_demands
    if share.begin or share.end is not None:
        streams: list[TraceStream] = [PartStream(share.files[0], share.begin, share.end)]
    else:
        streams = [one_stream([TraceStream(f) for f in row]) for row in share.rows]
        for stream in streams:
            stream.is_read_in_parallel |= concurrent
    counting = counting_of(share)
    in_flight = InFlightOfPart()
    disks: tuple[str, ...] = ()
    try:
        if isinstance(reader, PartReader) and isinstance(streams[0], PartStream):
            batches = reader.read_part(streams[0], in_flight)
        else:
            batches = reader.read_together(streams)
        for batch in batches:
            counting.add(batch)
            disks = batch.disks
    finally:
        for stream in streams:
            stream.close()
    return Counted(counting.partial(), reader.lacks, reader.notes, in_flight.flight(disks))


def parts_of(share: Share, reader: StreamReader, stream: TraceStream) -> list[Share]:
    """Divide a share into parts with equal total counts; one part if the format or the file cannot be divided.

    A full description with latencies would lose the accesses in flight at a cut, and demands the previous access
    too, so such files stay whole.
    """
    if share.with_demands:
        return [share]
    if len(share.files) != 1 or share.files[0] == STANDARD_INPUT or not stream.is_plain_file():
        return [share]
    if isinstance(reader, VscsiBinaryReader):
        step = record_nbytes(stream.head(), without_latency=share.threshold is not None)
    elif isinstance(reader, PartReader) and (share.threshold is None or not reader.timed):
        step = 1
    else:
        return [share]
    if not step:
        return [share]
    cuts = _cuts(share.files[0], step)
    ends = [*cuts[1:], None]
    return [replace(share, begin=a, end=b) for a, b in zip(cuts, ends, strict=True)] if len(cuts) > 1 else [share]


def _cuts(path: Path, step: int) -> list[int]:
    """Return where parts begin: at records of ``step`` bytes, or at lines if it is 1."""
    cuts, nbytes = [0], path.stat().st_size
    with path.open("rb") as file:
        length = min(max(PART_NBYTES, nbytes // _MANY_PARTS), _LONGER * PART_NBYTES)
        for at in range(length, nbytes - length // 2, length):
            at = at // step * step
            if step == 1:
                file.seek(at)
                file.readline()
                at = file.tell()
            if cuts[-1] < at < nbytes:
                cuts.append(at)
    return cuts
