"""Metadata of a recording: what it lacks, which events were lost, and which event counts as an access.

A profile shows them, and a converted trace stores them.

Where the user names no event of the block layer, accesses are counted when they are queued (Q). Only a trace with
completions (C) and neither Q nor D events is counted by its completions. The whole trace decides: it is read until
its first Q or D event, before its accesses are counted. So the choice does not depend on how the trace is divided
into parts. Most traces have such an event in their first 64 KiB, which are looked at first. A pipe can be read
only once, so its first 64 KiB decide; ``CountedAction.check`` refuses a choice that the rest contradicts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from cephfit.core.errors import InputError
from cephfit.traces import formats, opening
from cephfit.traces.capturing import capture
from cephfit.traces.readers.blktrace.blktrace_reader import BlktraceReader, whole_records
from cephfit.traces.readers.block_events.blkparse_text import BlkparseFormatReader, BlkparseTextReader
from cephfit.traces.readers.block_events.block_events_text import BlockEventsTextReader
from cephfit.traces.readers.block_events.block_layer import Action
from cephfit.traces.readers.block_events.qemu_events import QemuEventsReader
from cephfit.traces.readers.reader import LOSSES_STATED, StreamReader
from cephfit.traces.recordings import ReadOptions, Recording, omitted_siblings
from cephfit.traces.stream import HEAD_NBYTES, HeadStream, TraceStream, one_stream

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
    captured = [found for part in parts if (found := capture.of_files(part.files))]
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


_NO_QUEUED = "the trace has no Q events"
_EARLIER = (Action.QUEUE.value, Action.ISSUE.value)
"""Events of an access before its completion."""


@dataclass(frozen=True, slots=True)
class CountedAction:
    """The event that counts as an access.

    Attributes:
        action: The event.
        is_open: The user named none, and the trace is not known yet.
        why: Reason for an event other than Q that the user did not name; else empty.
        by_beginning: Only the beginning of the trace was judged.
    """

    action: Action = Action.QUEUE
    is_open: bool = False
    why: str = ""
    by_beginning: bool = False

    @classmethod
    def of_request(cls, action: Action | None) -> "CountedAction":
        """Return the event that the user named; None: the trace decides."""
        return cls(action or Action.QUEUE, is_open=action is None)

    def decided(
        self,
        format_name: str,
        options: ReadOptions,
        rows: Sequence[Sequence[Sequence[Path]]],
        opened: Sequence[Sequence[TraceStream]],
    ) -> "CountedAction":
        """Return the event that counts, from the content of the trace if the user named none.

        Args:
            format_name, options: As for ``profile_files``.
            rows: Of each recording, the files that are read together: each a file, or consecutive parts of one.
            opened: The unread streams of these files; nothing is consumed.
        """
        if not self.is_open:
            return self
        queued = CountedAction()
        if format_name not in [reader.name for reader in formats.readers() if isinstance(reader, BLOCK_LAYER)]:
            return queued
        by_beginning = not all(f.is_file() or opening.url_of(f) for its in rows for row in its for f in row)
        with ExitStack() as stack:
            try:
                for its, streams in zip(rows, opened, strict=True):
                    events = _beginning_events(streams, format_name, options)
                    if not (by_beginning or _has_earlier(events)):
                        again = [one_stream([stack.enter_context(TraceStream(f)) for f in row]) for row in its]
                        events = _events_of(again, format_name, options)
                    if _has_earlier(events) or not events[Action.COMPLETE.value]:
                        return queued
            except InputError:
                return queued  # counting the accesses finds the same error
        return CountedAction(Action.COMPLETE, why=_NO_QUEUED, by_beginning=by_beginning)

    def check(self, events: Mapping[str, int], where: str) -> None:
        """Check a choice by the beginning of a pipe with the events of the rest.

        Raises:
            InputError: The trace has events that the choice assumes to be missing.
        """
        found = next((name for name in _EARLIER if events.get(name)), None)
        if self.by_beginning and found:
            raise InputError(
                f"the trace begins with completions only, but has {found} events later",
                where=where,
                remedy=f"name the event that counts: --action {found}",
            )

    def note(self) -> str:
        """Return a note on a choice that differs from Q; empty if there is none."""
        return f"action {self.action} is counted: {self.why}" if self.why else ""


def _has_earlier(events: Mapping[str, int]) -> bool:
    return any(events.get(name) for name in _EARLIER)


def _beginning_events(streams: Sequence[TraceStream], format_name: str, options: ReadOptions) -> Counter[str]:
    """Count the events in the first bytes of the streams. Most traces begin with accesses: this takes no time."""
    return _events_of([_beginning_of(stream, format_name) for stream in streams], format_name, options)


def _events_of(streams: Sequence[TraceStream], format_name: str, options: ReadOptions) -> Counter[str]:
    """Count the events until the first Q or D event, or of all streams."""
    reader = next(r for r in formats.readers(Action.QUEUE, options) if r.name == format_name)
    events: Counter[str] = Counter()
    for batch in reader.read_together(streams):
        events.update(batch.events)
        if _has_earlier(events):
            break
    return events


def _beginning_of(stream: TraceStream, format_name: str) -> HeadStream:
    """Return the beginning of a stream: all of a short stream, else up to the end of a line or record."""
    head = stream.head()
    if len(head) < HEAD_NBYTES:
        return HeadStream(stream, head)
    n = whole_records(head) if format_name == BlktraceReader.name else head.rfind(b"\n") + 1
    return HeadStream(stream, head[:n])
