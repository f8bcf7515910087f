"""What a recording tells beside its accesses, for a profile of it and for another file made of it: what it lacks,
which events were lost, and what a reader must know."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cephfit.traces.capturing import capture_record
from cephfit.traces.readers.blkparse.blkparse_format import BlkparseFormatReader
from cephfit.traces.readers.blkparse.blkparse_text import BlkparseTextReader
from cephfit.traces.readers.blktrace.blktrace_reader import BlktraceReader
from cephfit.traces.readers.block_events.block_events_text import BlockEventsTextReader
from cephfit.traces.readers.block_events.qemu_events import QemuEventsReader
from cephfit.traces.readers.reader import LOSSES_STATED, StreamReader
from cephfit.traces.recordings import Recording, omitted_siblings

BLOCK_LAYER = (BlktraceReader, BlkparseTextReader, BlkparseFormatReader, BlockEventsTextReader)
"""Readers of formats in which an access is several events, of which one counts."""

STACKING = (*BLOCK_LAYER, QemuEventsReader)
"""Readers of formats that show in any place that a disk passes its accesses on to another one."""

UNCOUNTED_EVENTS = (LOSSES_STATED,)
"""What readers count among the events to tell of losses, and a profile does not."""

_LOSSES_UNKNOWN = "lost events: whether the tracer lost some"


@dataclass(frozen=True, slots=True)
class TraceMetadata:
    """Of one recording, which may be in parts.

    Attributes:
        captured_by: how cephfit captured it; empty where others did.
        lost: events that the capture lost, beyond those that the files tell.
        losses_known: whether the files, or the capture, say how many events were lost, be it none.
        notes: sentences that a reader must know.
    """

    captured_by: str
    lost: int
    losses_known: bool
    notes: tuple[str, ...]


def metadata_of(
    parts: Sequence[Recording],
    reader: StreamReader,
    *,
    events: Mapping[str, int],
    notes: Sequence[str],
    lost: int,
) -> TraceMetadata:
    """What is told of a recording after it was read.

    Args:
        parts: its files, by the parts of it that follow each other.
        reader: of its format.
        events: as in AccessBatch, of the whole recording.
        notes: that the files hold.
        lost: events that the files tell to be lost.

    Raises:
        InputError: the file that a capture wrote beside them is damaged.
    """
    captured = [found for part in parts if (found := capture_record.of_files(part.files))]
    left_out = [note for part in parts for note in omitted_siblings(part)]
    return TraceMetadata(
        captured[0].method if captured else "",
        # What is dropped leaves a gap in the numbers, too, where the kernel numbers first (Linux since 2025).
        max(sum(its.lost for its in captured) - lost, 0),
        len(captured) == len(parts) or bool(events.get(LOSSES_STATED)),
        tuple(filter(None, (reader.note, *notes, *left_out))),
    )


def lacks_of(reader: StreamReader, said: Sequence[str], *, losses_known: bool, lost: int) -> tuple[str, ...]:
    """What recordings of one format lack: what was ``said`` of them, and whether events were lost."""
    if isinstance(reader, BLOCK_LAYER) and not losses_known and not lost:
        return (*said, _LOSSES_UNKNOWN)
    return tuple(said)
