"""Metadata of a recording: what it lacks, which events were lost, and notes on it.

A profile shows them, and a converted trace stores them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cephfit.traces.capturing import capture_record
from cephfit.traces.readers.blkparse.blkparse_format import BlkparseFormatReader
from cephfit.traces.readers.blkparse.blkparse_text import BlkparseTextReader
from cephfit.traces.readers.blktrace.blktrace_reader import BlktraceReader
from cephfit.traces.readers.block_events.block_events_text import BlockEventsTextReader
from cephfit.traces.readers.block_events.block_layer import Action
from cephfit.traces.readers.block_events.qemu_events import QemuEventsReader
from cephfit.traces.readers.reader import LOSSES_STATED, StreamReader
from cephfit.traces.recordings import Recording, omitted_siblings

BLOCK_LAYER = (BlktraceReader, BlkparseTextReader, BlkparseFormatReader, BlockEventsTextReader)
"""Readers of formats in which an access consists of several events, of which one counts."""

STACKING = (*BLOCK_LAYER, QemuEventsReader)
"""Readers of formats that can show at any point that a disk passes its accesses on to another disk."""

UNCOUNTED_EVENTS = (LOSSES_STATED,)
"""Event names with which readers report that the file states its losses. A profile does not count them."""

_COMPLETIONS = "latency and issue: completions are counted (action C), at their times and in their order"
_LOSSES_UNKNOWN = "lost events: whether the tracer lost some"


@dataclass(frozen=True, slots=True)
class TraceMetadata:
    """Metadata of one recording, which may consist of parts.

    Attributes:
        captured_by: how cephfit captured it; empty where another program did.
        lost: events that the capture lost, in addition to those that the files report.
        losses_known: whether the files, or the capture, report the number of lost events, including zero.
        notes: sentences that a reader of the profile must know.
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
    """Return the metadata of a recording after it was read.

    Args:
        parts: its files, one recording for each consecutive part.
        reader: the reader of its format.
        events: as in AccessBatch, of the whole recording.
        notes: the notes that the files contain.
        lost: events that the files report as lost.

    Raises:
        InputError: the record file that a capture wrote next to them is damaged.
    """
    captured = [found for part in parts if (found := capture_record.of_files(part.files))]
    omitted = [note for part in parts for note in omitted_siblings(part)]
    return TraceMetadata(
        captured[0].method if captured else "",
        # Dropped events also leave a gap in the sequence numbers where the kernel numbers first (Linux since
        # 2025).
        max(sum(its.lost for its in captured) - lost, 0),
        len(captured) == len(parts) or bool(events.get(LOSSES_STATED)),
        tuple(filter(None, (reader.note, *notes, *omitted))),
    )


def lacks_of(reader: StreamReader, lacks: Sequence[str], *, losses_known: bool, lost: int) -> tuple[str, ...]:
    """Return what recordings of one format lack.

    ``lacks`` holds what their readers reported. Whether events were lost is added where it is unknown.
    """
    if not isinstance(reader, BLOCK_LAYER):
        return tuple(lacks)
    of_action = (_COMPLETIONS,) if reader.action is Action.COMPLETE else ()
    of_losses = (_LOSSES_UNKNOWN,) if not losses_known and not lost else ()
    return (*lacks, *of_action, *of_losses)
