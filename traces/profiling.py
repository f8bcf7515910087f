"""Files to a profile: which format they have, and what they add up to.

Which disk lies on which other one, where they stand in different recordings.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.protocols import NullProgress, Progress
from cephfit.core.values.cells import RANDOM_THRESHOLD_LBN
from cephfit.core.values.profile import Profile
from cephfit.traces import formats
from cephfit.traces.counting.disk_aggregate import Crowd
from cephfit.traces.description.describe import disks_that_count, profile_of
from cephfit.traces.description.disk_description import too_many_disks
from cephfit.traces.description.recording import PartialProfile
from cephfit.traces.files import remote
from cephfit.traces.files.part_stream import one_stream
from cephfit.traces.files.stream import STANDARD_INPUT, TraceStream
from cephfit.traces.parts.counted_recordings import counted
from cephfit.traces.parts.recording_clocks import (
    Divided,
    Recorded,
    divided_by_clock,
    duration_ns,
    note_of_steps,
    notes_of_new_clocks,
)
from cephfit.traces.parts.shares import Counted, Share
from cephfit.traces.read_options import ReadOptions
from cephfit.traces.readers.block_events.block_layer import Action
from cephfit.traces.readers.fio_iolog import FioIologReader
from cephfit.traces.readers.parquet import ParquetReader
from cephfit.traces.readers.rbd_replay import RbdReplayReader
from cephfit.traces.readers.reader import StreamReader
from cephfit.traces.readers.vscsi import vscsi_histogram
from cephfit.traces.recordings import (
    by_device,
    can_be_read_again,
    device_of,
    in_a_row,
    recordings_of,
    total_nbytes,
)
from cephfit.traces.trace_metadata import BLOCK_LAYER, NO_EVENTS, STACKING, lacks_of, told


def across_recordings(disks: Collection[str], stacked: Collection[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """The pairs of ``stacked`` as disks of recordings beside each other, of one machine.

    Where an access goes from dm to the disk below it stands in the recording of the lower one, and names the upper
    one by its device number: its accesses may be in another recording.

    Args:
        disks: all that have accesses, ``RECORDING/MAJOR,MINOR``.
        stacked: (upper, lower) pairs, named by the recording in which they were seen.

    Returns:
        a pair for each disk that has the number of one that its own recording has no accesses of.
    """
    by_number: dict[str, list[str]] = {}
    for disk in disks:
        by_number.setdefault(_number(disk), []).append(disk)

    def meant(disk: str) -> list[str]:
        return [disk] if disk in disks else by_number.get(_number(disk), [])

    return frozenset((a, b) for upper, lower in stacked for a in meant(upper) for b in meant(lower))


def _number(disk: str) -> str:
    return disk.rpartition("/")[2]


_APART = (
    "the files are no trace in a row ({}): each was read by itself, so latencies and accesses in flight across "
    "their borders are not known"
)
_WITH_HEADERS = (FioIologReader, RbdReplayReader)
_HEADERS = "each begins with a header of its own"


def profile_files(
    paths: Sequence[Path],
    *,
    format_name: str | None = None,
    action: Action = Action.QUEUE,
    name: str | None = None,
    disks: Sequence[str] = (),
    parts: bool = False,
    full: bool | None = False,
    threshold: int = RANDOM_THRESHOLD_LBN,
    options: ReadOptions | None = None,
    scheduler: str | None = None,
    progress: Progress | None = None,
) -> Profile:
    """Read trace files as one profile.

    Args:
        paths: files, folders of blktrace files, URLs, or ``-`` for standard input.
        format_name: as ``formats.titles`` names it; None: told by the content.
        action: which event of the block layer counts as an access.
        name: of the profile; None: from the first file.
        disks: count only these; empty: all, but never a disk and the one below it.
        parts: the files are consecutive parts of one trace, in this order; else they are recordings beside
            each other, of different disks.
        full: describe the behaviour over time and place, too; it takes many times as long. Traces of too many
            disks are refused as soon as they are met; None: they are described without it.
        threshold: LBN beyond which an access is random; another one than the default implies ``full``.
        options: what the person says about the files.
        scheduler: where the files are read, as ``scheduling.counted`` takes it; the profile is the same.
        progress: told how many bytes were read.

    Raises:
        InputError: naming the file and the place in it.
        HostError: a file is a URL, and what opens it is not installed.
    """
    asked = _Asked(format_name, action, name, tuple(disks), parts, full, threshold, options or ReadOptions())
    return _profiles(paths, asked, scheduler, progress or NullProgress())[0]


def profiles_by_disk(
    paths: Sequence[Path],
    *,
    format_name: str | None = None,
    action: Action = Action.QUEUE,
    disks: Sequence[str] = (),
    parts: bool = False,
    full: bool = False,
    options: ReadOptions | None = None,
    progress: Progress | None = None,
) -> list[Profile]:
    """A profile of each disk that ``profile_files`` would count, in the order of their names, each the one that it
    gives if only this disk is asked for; the files are read once."""
    options = options or ReadOptions()
    asked = _Asked(format_name, action, None, tuple(disks), parts, full, RANDOM_THRESHOLD_LBN, options, each=True)
    return _profiles(paths, asked, None, progress or NullProgress())


@dataclass(frozen=True, slots=True)
class _Asked:
    """As the arguments of ``profile_files``; ``each``: a profile of each disk; ``why_apart``: what keeps parts
    from being read as one file; ``anew``: the files with which the clock begins anew, once they are known."""

    format_name: str | None
    action: Action
    name: str | None
    disks: tuple[str, ...]
    parts: bool
    full: bool | None
    threshold: int
    options: ReadOptions
    each: bool = False
    why_apart: str = ""
    anew: tuple[Path, ...] = ()


def _profiles(paths: Sequence[Path], asked: _Asked, scheduler: str | None, progress: Progress) -> list[Profile]:
    recordings = recordings_of(paths)
    if not recordings:
        raise InputError("no trace was named", remedy="name one or more files")
    apart: list[Recorded] = [(r,) for r in recordings]
    if not asked.parts or len(recordings) == 1:
        return _read(apart, asked, scheduler, progress)
    try:
        return _read(by_device(recordings), asked, scheduler, progress)
    except InputError as error:
        if not can_be_read_again(recordings):
            raise
        fault = error
    if asked.options.format_with(asked.format_name) is None:
        formats.refuse_different([f for recording in recordings for f in recording.files])
    try:
        return _read(apart, replace(asked, why_apart=fault.what), scheduler, progress)
    except InputError as error:
        # Of a file that is read by itself the place in it is known; that it ends within a line is no fault of it.
        raise (error if error.what == fault.what else fault) from None


def _read(recorded: Sequence[Recorded], asked: _Asked, scheduler: str | None, progress: Progress) -> list[Profile]:
    """The profile of recordings beside each other, or of parts that are no trace in a row."""
    first = recorded[0][0]
    name = asked.name or ("workload" if first.files[0] == STANDARD_INPUT else first.name)
    rows = [in_a_row(parts) if len(parts) > 1 else [(f,) for f in parts[0].files] for parts in recorded]
    with ExitStack() as stack:
        files = [[[stack.enter_context(TraceStream(f)) for f in row] for row in its] for its in rows]
        all_files = [stream for its in files for row in its for stream in row]
        opened = [[one_stream(row) for row in its] for its in files]
        all_streams = [stream for streams in opened for stream in streams]
        format_name = formats.one_format(all_files, all_streams, asked.options.format_with(asked.format_name))
        if format_name == formats.HISTOGRAM:
            return vscsi_histogram.profiles_of_histograms(
                all_files, name=name, disks=asked.disks, each=asked.each, threshold=asked.threshold
            )
        asked = replace(asked, name=name, full=asked.threshold != RANDOM_THRESHOLD_LBN or asked.full)
        reader = next(r for r in formats.readers(asked.action, asked.options) if r.name == format_name)
        apart = [(part,) for parts in recorded for part in parts]
        if isinstance(reader, ParquetReader) and len(apart) > len(recorded):
            return _read(apart, asked, scheduler, progress)
        if (
            isinstance(reader, _WITH_HEADERS)
            and len(recorded[0]) > 1
            and all(reader.sniff(s.head()) for s in all_files)
        ):
            return _read(apart, replace(asked, why_apart=_HEADERS), scheduler, progress)
        clocks_ns = [reader.common_clock_ns(map(reader.clock_ns, streams)) for streams in opened]
        clock_ns = reader.common_clock_ns(clocks_ns)
        beside = len(recorded) > 1 and not asked.parts
        shares = [
            replace(_share(parts[0].name, its, reader, asked, beside=beside), clock_ns=clock_ns)
            for parts, its in zip(recorded, rows, strict=True)
        ]
        progress.start("reading the trace", total_nbytes([part for (part,) in apart]))
        counts = counted(shares, opened, reader, scheduler, progress)
        found = _from_accesses(recorded, counts, reader, asked, clocks_ns)
        if isinstance(found, Divided):
            return _read(found.recorded, replace(asked, anew=found.anew), scheduler, progress)
        progress.done()
        return found


def _share(
    name: str, rows: Sequence[Sequence[Path]], reader: StreamReader, asked: _Asked, *, beside: bool
) -> Share:
    full = asked.full is not False
    described: tuple[str, ...] = ()
    if reader.names_disks:
        described = tuple(d.removeprefix(f"{name}/" if beside else "") for d in asked.disks)
    elif beside and asked.disks:
        full = full and name in asked.disks
    return Share(
        tuple(tuple(map(_absolute, row)) for row in rows),
        reader.name,
        asked.action,
        asked.options,
        asked.threshold if full else None,
        described,
        # Which of its disks count is known at the end only, where one may pass its accesses on to another one.
        each_disk=not asked.disks and (asked.each or isinstance(reader, STACKING)),
        must_describe=asked.full is True,
    )


def _from_accesses(
    recorded: Sequence[Recorded],
    counts: Iterator[Counted],
    reader: StreamReader,
    asked: _Asked,
    clocks_ns: Sequence[int],
) -> list[Profile] | Divided:
    total = PartialProfile()
    sources: list[dict[str, Any]] = []
    notes: dict[str, None] = {}
    lacks: dict[str, None] = {}
    spans: list[tuple[str, int, int]] = []
    if asked.why_apart:
        notes[_APART.format(asked.why_apart)] = None
    notes.update(dict.fromkeys(notes_of_new_clocks(asked.anew)))
    losses_known = True
    clocks_kept: list[int] = []
    for parts, gave, clock_ns in zip(recorded, counts, clocks_ns, strict=True):
        its_counts = gave.partial
        # What a file's beginning told of its clock may be wrong of what follows.
        clocks_kept.append(1 if its_counts.has_gaps_below(clock_ns) else clock_ns)
        lacks.update(dict.fromkeys(gave.lacks))
        its = told(parts, reader, events=its_counts.events, notes=gave.notes, lost=its_counts.lost)
        for name in NO_EVENTS:
            its_counts.events.pop(name, None)
        notes.update(dict.fromkeys(its.notes))
        losses_known &= its.losses_known
        its_counts = replace(its_counts, lost=its_counts.lost + its.lost)
        spans += [(device_of(parts[0]), *its_counts.span_ns)] if its_counts.n_accesses else []
        sources.append(
            {
                "files": [remote.words_of(f) for part in parts for f in part.files],
                "format": reader.name,
                "accesses": its_counts.n_accesses,
                "duration_seconds": its_counts.duration_ns / 1e9,
            }
            | ({"captured_by": its.captured_by} if its.captured_by else {})
        )
        if not reader.names_disks:
            its_counts = _renamed(its_counts, recorded[0][0].name if asked.parts else parts[0].name)
            if not asked.each:
                its_counts = replace(its_counts, crowd=Crowd(frozenset(asked.disks)))
            total = total.followed_by(its_counts)
        elif asked.parts or len(recorded) == 1:
            total = total.followed_by(its_counts)
        else:
            total = total.beside(its_counts, prefix=f"{parts[0].name}/")
        if asked.full and total.portraits.too_many:
            raise too_many_disks(min(total.names))
    if isinstance(reader, BLOCK_LAYER):
        total = replace(total, stacked=across_recordings(total.names, total.stacked))
    if any(len(parts) > 1 for parts in recorded):
        steps = int(total.sum_of(total.names).counts.clock_steps_back[0])
        can_tell = can_be_read_again([part for parts in recorded for part in parts])
        if steps and can_tell and not asked.anew and (divided := divided_by_clock(recorded, reader)) is not None:
            return divided
        if steps and not asked.anew:
            notes[note_of_steps(steps, can_tell=can_tell)] = None
    if total.lost:
        notes[f"the tracer lost {total.lost} events: all counts are too low"] = None
    keep_upper = asked.action is Action.QUEUE
    profile = partial(
        profile_of,
        total,
        name=asked.name or "",
        action=asked.action.value if isinstance(reader, BLOCK_LAYER) else "",
        sources=sources,
        duration_ns=duration_ns(spans, one_after_the_other=asked.parts),
        keep_upper=keep_upper,
        losses_known=losses_known,
        lacks=lacks_of(reader, tuple(lacks), losses_known=losses_known, lost=total.lost),
        notes=list(notes),
        with_behaviour=asked.full,
        clock_ns=reader.common_clock_ns(clocks_kept),
    )
    if asked.each:
        where = remote.words_of(recorded[0][0].files[0])
        each, _ = disks_that_count(total, asked.disks, keep_upper=keep_upper, where=where)
        if len(each) > 1:
            return [profile(disks=(disk,)) for disk in each]
    return [profile(disks=asked.disks)]


def _absolute(file: Path) -> Path:
    """As other processes find it."""
    return file if file == STANDARD_INPUT or remote.url_of(file) else file.absolute()


def _renamed(partial: PartialProfile, disk: str) -> PartialProfile:
    """The same with its only disk called ``disk``, where the file does not name it."""
    tallies = dict.fromkeys([disk], next(iter(partial.disks.values()))) if partial.disks else {}
    return replace(partial, disks=tallies, portraits=partial.portraits.renamed(only_disk=disk))
