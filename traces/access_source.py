"""Read one recording as a stream of accesses, for conversion and replay."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.core.protocols import NullProgress, Progress
from cephfit.traces import formats, opening
from cephfit.traces.columns import AccessBatch
from cephfit.traces.description.recording import disks_of_one_level
from cephfit.traces.readers.block_events.block_layer import Action
from cephfit.traces.readers.parquet import ParquetReader
from cephfit.traces.readers.reader import StreamReader
from cephfit.traces.recordings import ReadOptions, Recording, recordings_of, total_nbytes
from cephfit.traces.stream import STANDARD_INPUT, TraceStream
from cephfit.traces.trace_metadata import STACKING, UNCOUNTED_EVENTS, CountedAction, lacks_of, metadata_of

_DISKS_NAMED = 64


def omitted_disks(
    paths: Sequence[Path],
    *,
    format_name: str | None = None,
    action: Action | None = None,
    options: ReadOptions = ReadOptions(),  # noqa: B008 - it is frozen
    progress: Progress | None = None,
) -> Mapping[str, Any]:
    """Return the disks that a profile omits because their accesses are those of another disk (dm and its disk).

    Only the whole recording shows them. If its format can show them, the recording is read once for this purpose.
    Standard input and pipes can be read only once and give an empty result; ``AccessSource`` refuses two levels
    there. Memory holds one count per disk.

    Returns:
        Disk name to ``{"accesses": n, "why": sentence}``.

    Raises:
        InputError: There are several recordings, or only histograms, or the reader found an error.
    """
    progress = progress or NullProgress()
    recording = _only_recording(paths)
    if not all(f != STANDARD_INPUT and (f.is_file() or opening.url_of(f)) for f in recording.files):
        return {}
    with ExitStack() as stack:
        streams = [stack.enter_context(TraceStream(f)) for f in recording.files]
        reader, counted = _reader_of(recording, streams, format_name, action, options)
        if not isinstance(reader, (*STACKING, ParquetReader)) or not reader.names_disks:
            return {}
        counts: Counter[str] = Counter()
        levels: set[tuple[str, str]] = set()
        shown = 0
        progress.start("finding stacked disks", total_nbytes([recording]))
        for batch in reader.read_together(streams):
            numbers, n_accesses = np.unique(batch.disk, return_counts=True)
            counts.update({batch.disks[d]: int(n) for d, n in zip(numbers, n_accesses, strict=True)})
            levels.update(batch.stacked)
            consumed = sum(s.consumed() for s in streams)
            progress.advance(consumed - shown)
            shown = consumed
        progress.done()
    _, others = disks_of_one_level(counts, levels, keep_upper=counted.action is Action.QUEUE)
    return {disk: {"accesses": counts[disk], "why": why} for disk, why in sorted(others.items())}


class AccessSource:
    """The accesses of one recording (a file, or blktrace's files of one device), batch by batch.

    Attributes:
        lacks: What the trace does not contain. This and the following are known after reading.
        notes: Sentences that a reader must know.
        losses_known: Whether the trace would show lost events.
        clock_ns: The resolution of its times.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        *,
        format_name: str | None = None,
        action: Action | None = None,
        disk: str | None = None,
        without: Collection[str] = (),
        options: ReadOptions = ReadOptions(),  # noqa: B008 - it is frozen
    ) -> None:
        """Define what to read. Iteration opens the files.

        Args:
            paths: As for ``profile_files``.
            format_name: Name of the format; None: detect it from the content.
            action: The event of the block layer that counts as an access; None: Q, or C if the trace has only
                completions.
            disk: Read only this disk.
            without: Omit these disks; see ``omitted_disks``.
            options: What the user specifies about the files.
        """
        self.lacks: tuple[str, ...] = ()
        self.notes: tuple[str, ...] = ()
        self.losses_known = False
        self.clock_ns = 1
        self._paths = paths
        self._format_name = format_name
        self._action = action
        self._disk = disk
        self._without = without
        self._options = options

    def __iter__(self) -> Iterator[AccessBatch]:
        """Yield the accesses.

        Raises:
            InputError: There are several recordings, or only histograms; the disk does not exist; a disk and the
                disk below it both have accesses; or the reader found an error.
        """
        recording = _only_recording(self._paths)
        with ExitStack() as stack:
            streams = [stack.enter_context(TraceStream(f)) for f in recording.files]
            reader, counted = _reader_of(recording, streams, self._format_name, self._action, self._options)
            self.clock_ns = reader.common_clock_ns(reader.clock_ns(stream) for stream in streams)
            seen: set[str] = set()
            levels: set[tuple[str, str]] = set()
            names: tuple[str, ...] = ()
            lost = 0
            about: Counter[str] = Counter()
            for batch in reader.read_together(streams):
                counted.check(batch.events, streams[0].name)
                names = batch.disks if reader.names_disks else (recording.name,) * len(batch.disks)
                batch = self._selected(replace(batch, disks=names))
                seen.update(batch.disks[d] for d in np.unique(batch.disk))
                levels.update(batch.stacked)
                _refuse_two_levels(seen, levels, streams[0].name)
                lost += batch.lost
                about.update({name: batch.events[name] for name in UNCOUNTED_EVENTS if name in batch.events})
                yield replace(batch, events={k: n for k, n in batch.events.items() if k not in UNCOUNTED_EVENTS})
            if not seen:
                raise self._no_access_error(names, streams[0].name)
            its = metadata_of([recording], reader, events=about, notes=reader.notes, lost=lost)
            lost += its.lost
            self.losses_known = its.losses_known
            self.lacks = lacks_of(reader, reader.lacks, losses_known=its.losses_known, lost=lost)
            self.notes = tuple(filter(None, (counted.note(), *its.notes)))
            if its.lost:
                yield replace(_of(batch, np.zeros(len(batch.disks), bool)), skipped={}, events={}, lost=its.lost)

    def _selected(self, batch: AccessBatch) -> AccessBatch:
        if self._disk is not None:
            return _of(batch, np.array([name == self._disk for name in batch.disks], bool))
        if self._without:
            return _of(batch, np.array([name not in self._without for name in batch.disks], bool))
        return batch

    def _no_access_error(self, names: Sequence[str], where: str) -> InputError:
        if self._disk is None:
            return InputError("the trace has no accesses", where=where, remedy="record it during the workload")
        return InputError(
            f"the trace has no access of disk {self._disk!r}",
            where=where,
            remedy=f"its disks are {', '.join(names[:_DISKS_NAMED])}",
        )


def _only_recording(paths: Sequence[Path]) -> Recording:
    recordings = recordings_of(paths)
    if len(recordings) != 1:
        raise InputError(
            f"there are {len(recordings)} recordings, one is needed",
            where=", ".join(map(opening.display_name, paths)),
            remedy="give one trace file, or the files of one blktrace recording",
        )
    return recordings[0]


def _reader_of(
    recording: Recording,
    streams: Sequence[TraceStream],
    format_name: str | None,
    action: Action | None,
    options: ReadOptions,
) -> tuple[StreamReader, CountedAction]:
    format_name = options.format_with(format_name)
    if format_name is None:
        format_name = formats.format_of(next((s for s in streams if s.head()), streams[0]))
    counted = CountedAction.of_request(action).decided(
        format_name, options, [[(file,) for file in recording.files]], [streams]
    )
    reader = next((r for r in formats.readers(counted.action, options) if r.name == format_name), None)
    if reader is None:
        raise InputError(
            f"{format_name} contains no single accesses", where=streams[0].name, remedy="give a trace of accesses"
        )
    return reader, counted


def _refuse_two_levels(seen: set[str], levels: set[tuple[str, str]], where: str) -> None:
    """Refuse a disk and the disk below it, for recordings that ``omitted_disks`` could not read first."""
    for upper, lower in sorted(levels):
        if upper != lower and upper in seen and lower in seen:
            raise InputError(
                f"disk {upper} passes its accesses on to {lower}: each access would appear twice",
                where=where,
                remedy=f"choose one of the two: --disk {upper} or --disk {lower}",
            )


def _of(batch: AccessBatch, selected: NDArray[np.bool_]) -> AccessBatch:
    """Return the accesses of the selected disks.

    Args:
        batch: Holds the accesses.
        selected: Shape (disks,).
    """
    mine = np.flatnonzero(selected[batch.disk])
    return replace(
        batch,
        time_ns=batch.time_ns[mine],
        op=batch.op[mine],
        lbn=batch.lbn[mine],
        nbytes=batch.nbytes[mine],
        disk=(np.cumsum(selected, dtype=np.int32) - np.int32(1))[batch.disk[mine]],
        disks=tuple(name for name, is_selected in zip(batch.disks, selected, strict=True) if is_selected),
        latency_ns=None if batch.latency_ns is None else batch.latency_ns[mine],
        outstanding=None if batch.outstanding is None else batch.outstanding[mine],
        stacked=(),
        flags=None if batch.flags is None else batch.flags[mine],
        flushes=None,
    )
