"""Choose the event of the block layer that counts as an access, where the user names none.

Accesses are counted when they are queued (Q). Only a trace with completions (C) and neither Q nor D events is
counted by its completions. The whole trace decides: it is read until its first Q or D event, before its accesses
are counted. So the choice does not depend on how the trace is divided into parts. Most traces have such an event
in their first 64 KiB, which are looked at first. A pipe can be read only once, so its first 64 KiB decide;
``CountedAction.check`` refuses a choice that the rest contradicts.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from cephfit.core.errors import InputError
from cephfit.traces import formats
from cephfit.traces.files import remote
from cephfit.traces.files.part_stream import HeadStream, one_stream
from cephfit.traces.files.stream import HEAD_NBYTES, TraceStream
from cephfit.traces.read_options import ReadOptions
from cephfit.traces.readers.blktrace.blktrace_reader import BlktraceReader
from cephfit.traces.readers.blktrace.blktrace_record import whole_records
from cephfit.traces.readers.block_events.block_layer import Action
from cephfit.traces.trace_metadata import BLOCK_LAYER

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
        by_beginning = not all(f.is_file() or remote.url_of(f) for its in rows for row in its for f in row)
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
