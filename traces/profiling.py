"""Read trace files into profiles.

This module finds the format of the files, reads them as recordings or as parts of one trace, and adds up the
counts. It also relates stacked disks (dm over its disk) whose accesses are in different recordings.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.protocols import NullProgress, Progress
from cephfit.core.values.cells import RANDOM_THRESHOLD_LBN
from cephfit.core.values.profile import Profile
from cephfit.traces import formats, opening
from cephfit.traces.counting.counted_recordings import (
    Divided,
    PartSeconds,
    Recorded,
    counted,
    divided_by_clock,
    duration_ns,
    next_seconds,
    note_of_steps,
    notes_of_clock_restarts,
)
from cephfit.traces.counting.disk_aggregate import DiskAggregate
from cephfit.traces.counting.shares import Counted, Share
from cephfit.traces.description.describe import counted_disks, profile_of, with_demands_of_issued
from cephfit.traces.description.disk_description import too_many_disks
from cephfit.traces.description.recording import PartialProfile
from cephfit.traces.readers import vscsi_histogram
from cephfit.traces.readers.block_events.block_layer import Action
from cephfit.traces.readers.fio_iolog import FioIologReader
from cephfit.traces.readers.parquet import ParquetReader
from cephfit.traces.readers.rbd_replay import RbdReplayReader
from cephfit.traces.readers.reader import StreamReader
from cephfit.traces.recordings import (
    ReadOptions,
    across_recordings,
    are_rereadable,
    by_device,
    consecutive_files,
    device_of,
    recordings_of,
    total_nbytes,
)
from cephfit.traces.stream import STANDARD_INPUT, TraceStream, one_stream
from cephfit.traces.trace_metadata import (
    BLOCK_LAYER,
    STACKING,
    UNCOUNTED_EVENTS,
    CountedAction,
    lacks_of,
    metadata_of,
)

_APART = (
    "the files are not consecutive parts of one trace ({}): each was read separately, so latencies and accesses "
    "in flight across their borders are unknown"
)
_WITH_HEADERS = (FioIologReader, RbdReplayReader)
_HEADERS = "each begins with its own header"


def profile_files(
    paths: Sequence[Path],
    *,
    format_name: str | None = None,
    action: Action | None = None,
    name: str | None = None,
    disks: Sequence[str] = (),
    parts: bool = False,
    full: bool | None = False,
    threshold: int = RANDOM_THRESHOLD_LBN,
    options: ReadOptions | None = None,
    scheduler: str | None = None,
    demands: bool = False,
    progress: Progress | None = None,
) -> Profile:
    """Read trace files as one profile.

    Args:
        paths: Files, folders of blktrace files, URLs, or ``-`` for standard input.
        format_name: A name of ``formats.titles``; None: detect the format from the content.
        action: The event of the block layer that counts as an access; None: Q, or C if the trace has only
            completions.
        name: Name of the profile; None: derive it from the first file.
        disks: Count only these disks; empty: all, but never both a disk and the disk below it.
        parts: The files are consecutive parts of one trace, in this order. Otherwise they are simultaneous
            recordings of different disks.
        full: Also describe the behaviour over time and address; this takes many times as long. Traces of too many
            disks are refused as soon as they are found; None: such traces are described without it.
        threshold: LBN beyond which an access is random; a value other than the default implies ``full``.
        options: What the user specifies about the files.
        scheduler: Where the files are read, as in ``counted_recordings.counted_shares``; it does not
            change the profile.
        demands: Also count demands, waiting time, alignment and commits. Each file is then read as a whole, by one
            core and one thread that counts. If no ``action`` is given and the block layer merged or split
            accesses, the files are read again for the demands and commits of what it issued to the disk.
        progress: Receives the number of bytes read.

    Raises:
        InputError: The input is wrong; the error names the file and the position in it.
        HostError: A file is a URL, and the package that opens it is not installed.
    """
    options = options or ReadOptions()
    request = _Request(
        format_name,
        CountedAction.of_request(action),
        name,
        tuple(disks),
        parts,
        full,
        threshold,
        options,
        with_demands=demands,
    )
    shown = progress or NullProgress()
    return _with_issued_demands(_profiles(paths, request, scheduler, shown), paths, request, scheduler, shown)[0]


def profiles_by_disk(
    paths: Sequence[Path],
    *,
    format_name: str | None = None,
    action: Action | None = None,
    disks: Sequence[str] = (),
    parts: bool = False,
    full: bool = False,
    options: ReadOptions | None = None,
    demands: bool = False,
    progress: Progress | None = None,
) -> list[Profile]:
    """Return a profile of each disk that ``profile_files`` would count, sorted by disk name.

    Each profile equals the result of ``profile_files`` for this disk alone. The files are read once.
    """
    options = options or ReadOptions()
    request = _Request(
        format_name,
        CountedAction.of_request(action),
        None,
        tuple(disks),
        parts,
        full,
        RANDOM_THRESHOLD_LBN,
        options,
        each=True,
        with_demands=demands,
    )
    shown = progress or NullProgress()
    return _with_issued_demands(_profiles(paths, request, None, shown), paths, request, None, shown)


@dataclass(frozen=True, slots=True)
class _Request:
    """The arguments of ``profile_files``.

    Attributes:
        each: Return a profile of each disk.
        with_demands: As ``demands``.
        why_apart: Why the parts cannot be read as one file; empty if they can.
        restarted: The files with which the clock restarts, once they are known.
    """

    format_name: str | None
    counted: CountedAction
    name: str | None
    disks: tuple[str, ...]
    parts: bool
    full: bool | None
    threshold: int
    options: ReadOptions
    each: bool = False
    with_demands: bool = False
    why_apart: str = ""
    restarted: tuple[Path, ...] = ()


_MERGED = 0.01
"""Smallest share by which the numbers of queued and of issued accesses differ for both to be counted."""
_FROM_A_PIPE = (
    "demands are those of queued accesses, which the block layer merged or split before the disk: a pipe cannot "
    "be read again for the issued ones; store the trace in a file"
)


def _with_issued_demands(
    found: list[Profile], paths: Sequence[Path], request: _Request, scheduler: str | None, progress: Progress
) -> list[Profile]:
    """Take demands and commits from the accesses that were issued to the disk, if these are not those queued.

    The storage serves what the block layer issues. That is fewer and larger accesses than an application queued,
    if it merges them. A user who names an action has everything of that one.
    """
    description = found[0].description
    # A Parquet file has the counts of all events, but the accesses of one of them.
    if not (request.with_demands and request.counted.is_open and description["action"] == Action.QUEUE.value):
        return found
    events = description["events"]
    n_queued, n_issued = (events.get(action.value, 0) for action in (Action.QUEUE, Action.ISSUE))
    is_as_queued = abs(n_queued - n_issued) <= _MERGED * n_queued
    if is_as_queued or not (n_issued and events.get(Action.COMPLETE.value)):
        return found
    if not are_rereadable(recordings_of(paths)):
        return [_noted(profile, _FROM_A_PIPE) for profile in found]
    again = replace(request, counted=CountedAction.of_request(Action.ISSUE), full=False)
    try:
        issued = {tuple(p.description["disks"]): p for p in _profiles(paths, again, scheduler, progress)}
    except InputError:  # such as a requested disk that only passes its accesses on: nothing is issued to it
        return found
    own = next(iter(issued.values())) if len(found) == 1 and len(issued) == 1 else None
    of_each = [issued.get(tuple(profile.description["disks"]), own) for profile in found]
    return [with_demands_of_issued(*pair) for pair in zip(found, of_each, strict=True)]


def _noted(profile: Profile, note: str) -> Profile:
    return replace(profile, description={**profile.description, "notes": [*profile.description["notes"], note]})


def _profiles(
    paths: Sequence[Path], request: _Request, scheduler: str | None, progress: Progress
) -> list[Profile]:
    recordings = recordings_of(paths)
    if not recordings:
        raise InputError("no trace was given", remedy="name one or more files")
    apart: list[Recorded] = [(r,) for r in recordings]
    if not request.parts or len(recordings) == 1:
        return _read(apart, request, scheduler, progress)
    try:
        return _read(by_device(recordings), request, scheduler, progress)
    except InputError as error:
        if not are_rereadable(recordings):
            raise
        fault = error
    if request.options.format_with(request.format_name) is None:
        formats.require_one_format([f for recording in recordings for f in recording.files])
    try:
        return _read(apart, replace(request, why_apart=fault.what), scheduler, progress)
    except InputError as error:
        # A file that is read separately has a known position of the error. A part may end within a line.
        raise (error if error.what == fault.what else fault) from None


def _read(
    recorded: Sequence[Recorded], request: _Request, scheduler: str | None, progress: Progress
) -> list[Profile]:
    """Return the profiles of simultaneous recordings, or of parts that cannot be read as one file."""
    first = recorded[0][0]
    name = request.name or ("workload" if first.files[0] == STANDARD_INPUT else first.name)
    rows = [consecutive_files(parts) if len(parts) > 1 else [(f,) for f in parts[0].files] for parts in recorded]
    with ExitStack() as stack:
        files = [[[stack.enter_context(TraceStream(f)) for f in row] for row in its] for its in rows]
        all_files = [stream for its in files for row in its for stream in row]
        opened = [[one_stream(row) for row in its] for its in files]
        all_streams = [stream for streams in opened for stream in streams]
        format_name = formats.one_format(all_files, all_streams, request.options.format_with(request.format_name))
        if format_name == formats.HISTOGRAM:
            return vscsi_histogram.profiles_of_histograms(
                all_files, name=name, disks=request.disks, each=request.each, threshold=request.threshold
            )
        request = replace(
            request,
            counted=request.counted.decided(format_name, request.options, rows, opened),
            name=name,
            full=request.threshold != RANDOM_THRESHOLD_LBN or request.full,
        )
        reader = next(r for r in formats.readers(request.counted.action, request.options) if r.name == format_name)
        apart = [(part,) for parts in recorded for part in parts]
        if isinstance(reader, ParquetReader) and len(apart) > len(recorded):
            return _read(apart, request, scheduler, progress)
        if (
            isinstance(reader, _WITH_HEADERS)
            and len(recorded[0]) > 1
            and all(reader.sniff(s.head()) for s in all_files)
        ):
            return _read(apart, replace(request, why_apart=_HEADERS), scheduler, progress)
        clocks_ns = [reader.common_clock_ns(map(reader.clock_ns, streams)) for streams in opened]
        clock_ns = reader.common_clock_ns(clocks_ns)
        prefixed = len(recorded) > 1 and not request.parts
        shares = [
            replace(_share(parts[0].name, its, reader, request, prefixed=prefixed), clock_ns=clock_ns)
            for parts, its in zip(recorded, rows, strict=True)
        ]
        progress.start("reading the trace", total_nbytes([part for (part,) in apart]))
        counts = counted(shares, opened, reader, scheduler, progress)
        found = _from_accesses(recorded, counts, reader, request, clocks_ns)
        if isinstance(found, Divided):
            return _read(found.recorded, replace(request, restarted=found.restarted), scheduler, progress)
        progress.done()
        return found


def _share(
    name: str, rows: Sequence[Sequence[Path]], reader: StreamReader, request: _Request, *, prefixed: bool
) -> Share:
    full = request.full is not False
    described: tuple[str, ...] = ()
    if reader.names_disks:
        described = tuple(d.removeprefix(f"{name}/" if prefixed else "") for d in request.disks)
    elif prefixed and request.disks:
        full = full and name in request.disks
    return Share(
        tuple(tuple(map(_absolute, row)) for row in rows),
        reader.name,
        request.counted.action,
        request.options,
        request.threshold if full else None,
        described,
        # Where a disk may pass its accesses on to another, only the end of the trace shows which disks count.
        each_disk=not request.disks and (request.each or isinstance(reader, STACKING)),
        must_describe=request.full is True,
        with_demands=request.with_demands,
    )


def _from_accesses(
    recorded: Sequence[Recorded],
    counts: Iterator[Counted],
    reader: StreamReader,
    request: _Request,
    clocks_ns: Sequence[int],
) -> list[Profile] | Divided:
    joined = _Joined(recorded, reader, request)
    for parts, gave, clock_ns in zip(recorded, counts, clocks_ns, strict=True):
        joined.add(parts, gave, clock_ns)
    return joined.divided() or joined.profiles()


@dataclass(slots=True)
class _Joined:
    """The counts of all recordings, joined one after the other, and what their profiles say about them."""

    recorded: Sequence[Recorded]
    reader: StreamReader
    request: _Request
    total: PartialProfile = field(default_factory=PartialProfile)
    sources: list[dict[str, Any]] = field(default_factory=list)
    notes: dict[str, None] = field(default_factory=dict)
    lacks: dict[str, None] = field(default_factory=dict)
    losses_known: bool = True
    spans: list[tuple[str, int, int]] = field(default_factory=list)
    seconds: dict[str, PartSeconds] = field(default_factory=dict)
    clocks_ns: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.request.why_apart:
            self.notes[_APART.format(self.request.why_apart)] = None
        self.notes.update(dict.fromkeys(notes_of_clock_restarts(self.request.restarted)))

    def add(self, parts: Recorded, gave: Counted, clock_ns: int) -> None:
        """Add the counts of the next recording, or of the next parts that were read as one file.

        Raises:
            InputError: Disks are to be described, and there are too many of them.
        """
        counts = gave.partial
        # The clock step found at the beginning of a file may be wrong for the rest.
        self.clocks_ns.append(1 if counts.has_gaps_below(clock_ns) else clock_ns)
        self.lacks.update(dict.fromkeys(gave.lacks))
        its = metadata_of(parts, self.reader, events=counts.events, notes=gave.notes, lost=counts.lost)
        for name in UNCOUNTED_EVENTS:
            counts.events.pop(name, None)
        self.notes.update(dict.fromkeys(its.notes))
        self.losses_known &= its.losses_known
        counts = self._placed_in_time(replace(counts, lost=counts.lost + its.lost), device_of(parts[0]))
        self.sources.append(
            {
                "files": [opening.display_name(f) for part in parts for f in part.files],
                "format": self.reader.name,
                "accesses": counts.n_accesses,
                "duration_seconds": counts.duration_ns / 1e9,
            }
            | ({"captured_by": its.captured_by} if its.captured_by else {})
        )
        self.total = self._total_with(counts, parts)
        if self.request.full and self.total.disk_descriptions.too_many:
            raise too_many_disks(min(self.total.names))

    def _placed_in_time(self, counts: PartialProfile, device: str) -> PartialProfile:
        """Return the counts, with the seconds of a later part after those of the earlier ones."""
        if not counts.n_accesses:
            return counts
        if self.request.parts:
            self.seconds[device] = next_seconds(counts.span_ns, self.seconds.get(device))
            counts = replace(counts, seconds=counts.seconds.later_by(self.seconds[device].offset))
        self.spans.append((device, *counts.span_ns))
        return counts

    def _total_with(self, counts: PartialProfile, parts: Recorded) -> PartialProfile:
        request, first = self.request, parts[0].name
        if not self.reader.names_disks:
            counts = counts.renamed(only_disk=self.recorded[0][0].name if request.parts else first)
            if not request.each:
                counts = replace(counts, aggregate=DiskAggregate(frozenset(request.disks)))
            return self.total.followed_by(counts)
        if request.parts or len(self.recorded) == 1:
            return self.total.followed_by(counts)
        return self.total.with_recording(counts, prefix=f"{first}/")

    def divided(self) -> Divided | None:
        """Return the parts divided where the clock restarts, to be read so instead; None: nothing to divide."""
        if self.request.restarted or all(len(parts) == 1 for parts in self.recorded):
            return None
        steps = int(self.total.sum_of(self.total.names).counts.clock_steps_back[0])
        if not steps:
            return None
        clocks_checked = are_rereadable([part for parts in self.recorded for part in parts])
        found = divided_by_clock(self.recorded, self.reader) if clocks_checked else None
        if found is None:
            self.notes[note_of_steps(steps, clocks_checked=clocks_checked)] = None
        return found

    def profiles(self) -> list[Profile]:
        """Return the profile of all disks, or that of each.

        Raises:
            InputError: No access was counted, or a disk does not exist.
        """
        total, request = self.total, self.request
        if isinstance(self.reader, BLOCK_LAYER):
            total = replace(total, stacked=across_recordings(total.names, total.stacked))
        if total.lost:
            self.notes[f"the tracer lost {total.lost} events: all counts are too low"] = None
        request.counted.check(total.events, self.sources[0]["files"][0])
        keep_upper = request.counted.action is Action.QUEUE
        profile = partial(
            profile_of,
            total,
            name=request.name or "",
            action=request.counted.action.value if isinstance(self.reader, BLOCK_LAYER) else "",
            why_action=request.counted.why,
            sources=self.sources,
            duration_ns=duration_ns(self.spans, one_after_the_other=request.parts),
            keep_upper=keep_upper,
            losses_known=self.losses_known,
            lacks=lacks_of(self.reader, tuple(self.lacks), losses_known=self.losses_known, lost=total.lost),
            notes=list(self.notes),
            with_behaviour=request.full,
            with_demands=request.with_demands,
            clock_ns=self.reader.common_clock_ns(self.clocks_ns),
        )
        if request.each:
            where = opening.display_name(self.recorded[0][0].files[0])
            each, _ = counted_disks(total, request.disks, keep_upper=keep_upper, where=where)
            if len(each) > 1:
                return [profile(disks=(disk,)) for disk in each]
        return [profile(disks=request.disks)]


def _absolute(file: Path) -> Path:
    """Return the path under which other processes find the file."""
    return file if file == STANDARD_INPUT or opening.url_of(file) else file.absolute()
