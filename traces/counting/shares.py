"""Divide the reading of traces into shares that are counted independently, on any machine, and joined.

A part of a file does not know which earlier accesses are still in flight at its beginning. An access that ends at
``e`` is in flight for the accesses of its disk until one begins at ``e`` or after (``matching.latency.InFlight``).
So it adds one to the depth of those whose latest time so far is below ``e``. These are the first accesses of the
part. A part therefore keeps its first accesses, and returns the accesses in flight at its end.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cephfit.traces import formats
from cephfit.traces.columns import Accesses
from cephfit.traces.description.recording import Counting, PartialProfile
from cephfit.traces.matching.completion_loop import MAX_HELD
from cephfit.traces.matching.latency import InFlight
from cephfit.traces.readers.block_events.block_layer import Action
from cephfit.traces.readers.reader import PartReader, StreamReader
from cephfit.traces.readers.vscsi_trace import VscsiBinaryReader, record_nbytes
from cephfit.traces.recordings import ReadOptions
from cephfit.traces.stream import STANDARD_INPUT, NeedsWholeFile, PartStream, TraceStream, one_stream

N_HEAD = 1 << 15
"""Number of accesses kept at the beginning of a part. A part that needs more cannot be joined."""


@dataclass(frozen=True, slots=True)
class FlightOfPart:
    """The data that joins a part to the parts before and after it; disks by number.

    Attributes:
        time_ns, op, disk, depth: Of the first accesses of the part, shape (up to N_HEAD,); ``depth``: number of
            accesses of this part in flight.
        disks: Names of the disks.
        ends_ns: Ends of the accesses of each disk that are in flight at the end of the part, ascending.
        deepest: The greatest depth in the part.
    """

    time_ns: NDArray[np.int64]
    op: NDArray[np.uint8]
    disk: NDArray[np.int32]
    depth: NDArray[np.int32]
    disks: tuple[str, ...]
    ends_ns: Mapping[int, NDArray[np.int64]]
    deepest: int


class InFlightOfPart(InFlight):
    """Counts as if nothing was in flight at the beginning of the part, and keeps the data for joining."""

    def __init__(self) -> None:
        super().__init__()
        self._head: list[tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.int32], NDArray[np.int32]]] = []
        self._n_head = 0
        self._deepest = 0

    def count(self, rows: Accesses) -> NDArray[np.int32]:
        depth = super().count(rows)
        n = min(N_HEAD - self._n_head, len(rows))
        if n:
            # Copies, because views would keep the whole block in memory.
            head = rows.cut(0, n)
            self._head.append((head.time_ns.copy(), head.op.copy(), head.disk.copy(), depth[:n].copy()))
            self._n_head += n
        self._deepest = max(self._deepest, int(depth.max(initial=0)))
        return depth

    def flight(self, disks: tuple[str, ...]) -> FlightOfPart | None:
        """Return the data for joining, after the last access of the part; None if it has no latencies.

        Args:
            disks: Names of the disks.
        """
        if not self._head:
            return None
        time_ns, op, disk, depth = (np.concatenate(columns) for columns in zip(*self._head, strict=True))
        return FlightOfPart(time_ns, op, disk, depth, disks, self._ends, self._deepest)


@dataclass(frozen=True, slots=True)
class CountedSoFar:
    """The joined parts of a file from its beginning on.

    Attributes:
        partial: Their counts.
        ends_ns: Ends of the accesses in flight at the end, by disk name, ascending.
    """

    partial: PartialProfile = field(default_factory=PartialProfile)
    ends_ns: Mapping[str, NDArray[np.int64]] = field(default_factory=dict)

    def followed_by(self, part: PartialProfile, flight: FlightOfPart | None) -> "CountedSoFar":
        """Join these parts and the next one.

        Raises:
            NeedsWholeFile: Accesses in flight at the cut stay so beyond the accesses that the part kept; or so
                many would be in flight that some are not counted (``MAX_HELD``).
        """
        if flight is None:
            return CountedSoFar(self.partial.followed_by(part), self.ends_ns)
        numbers = {name: number for number, name in enumerate(flight.disks)}
        ends = {name: flight.ends_ns[number] for name, number in numbers.items() if number in flight.ends_ns}
        known = set(part.names)
        for name, carried in self.ends_ns.items():
            if name not in known:
                ends[name] = carried
                continue
            if not len(carried):
                continue
            if len(carried) + flight.deepest >= MAX_HELD:
                raise NeedsWholeFile
            mine = np.flatnonzero(flight.disk == numbers[name])
            latest_ns = np.maximum.accumulate(flight.time_ns[mine])
            if len(latest_ns) < part.n_of(name) and (not len(latest_ns) or latest_ns[-1] < carried[-1]):
                raise NeedsWholeFile
            more = len(carried) - np.searchsorted(carried, latest_ns, side="right")
            few = mine[: np.count_nonzero(more)]  # later accesses find fewer in flight
            if len(few):
                part = part.with_more_in_flight(name, flight.op[few], flight.depth[few], more[: len(few)])
            # Accesses are in order of issue, so earlier ones may end after some accesses of the part.
            staying = carried[np.searchsorted(carried, part.latest_ns_of(name), side="right") :]
            ends[name] = np.sort(np.concatenate([staying, ends[name]]))
        return CountedSoFar(self.partial.followed_by(part), ends)


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
