"""Files to a profile: which format they have, and what they add up to."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from cephfit.cells import RANDOM_THRESHOLD_LBN
from cephfit.errors import InputError
from cephfit.profile import Profile
from cephfit.protocols import Progress
from cephfit.silence import Silence
from cephfit.traces import formats
from cephfit.traces.description.describe import profile_of
from cephfit.traces.description.recording import Counting, PartialProfile
from cephfit.traces.files import remote
from cephfit.traces.files.ahead import read_ahead
from cephfit.traces.files.part_stream import NotOnItsOwn
from cephfit.traces.files.stream import STANDARD_INPUT, TraceStream
from cephfit.traces.parts import scheduling
from cephfit.traces.parts.blktrace_joining import count_in_parts
from cephfit.traces.parts.in_flight_cuts import CountedSoFar
from cephfit.traces.parts.shares import Counted, Share, parts_of
from cephfit.traces.read_options import ReadOptions
from cephfit.traces.readers import vscsi_histogram
from cephfit.traces.readers.blktrace import BlktraceReader
from cephfit.traces.readers.blktrace_following import UNNUMBERED
from cephfit.traces.readers.block_layer import Action
from cephfit.traces.readers.reader import StreamReader
from cephfit.traces.recordings import PER_CPU, Recording, recordings_of, total_nbytes
from cephfit.traces.told import BLOCK_LAYER, lacks_of, told


def profile_files(
    paths: Sequence[Path],
    *,
    format_name: str | None = None,
    action: Action = Action.QUEUE,
    name: str | None = None,
    disks: Sequence[str] = (),
    parts: bool = False,
    full: bool = False,
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
        full: describe the behaviour over time and place, too; it takes many times as long.
        threshold: LBN beyond which an access is random; another one than the default implies ``full``.
        options: what the person says about the files.
        scheduler: where the files are read, as ``scheduling.counted`` takes it; the profile is the same.
        progress: told how many bytes were read.

    Raises:
        InputError: naming the file and the place in it.
        HostError: a file is a URL, and what opens it is not installed.
    """
    progress = progress or Silence()
    options = options or ReadOptions()
    recordings = recordings_of(paths)
    if not recordings:
        raise InputError("no trace was named", remedy="name one or more files")
    name = name or ("workload" if recordings[0].files[0] == STANDARD_INPUT else recordings[0].name)
    with ExitStack() as stack:
        opened = [[stack.enter_context(TraceStream(f)) for f in r.files] for r in recordings]
        format_name = _one_format([s for streams in opened for s in streams], options.format_name or format_name)
        if format_name == formats.HISTOGRAM:
            histograms = [s for streams in opened for s in streams]
            return vscsi_histogram.profile_of_histograms(histograms, name=name, disks=disks)
        full = full or threshold != RANDOM_THRESHOLD_LBN
        reader = next(r for r in formats.readers(action, options) if r.name == format_name)
        beside = len(recordings) > 1 and not parts
        shares = [
            Share(
                tuple(_absolute(f) for f in r.files),
                reader.name,
                action,
                options,
                threshold if full else None,
                tuple(d.removeprefix(f"{r.name}/" if beside else "") for d in disks) if reader.names_disks else (),
            )
            for r in recordings
        ]
        progress.start("reading the trace", total_nbytes(recordings))
        counted = _counted(shares, opened, reader, scheduler, progress)
        found = _from_accesses(recordings, counted, reader, action, name, disks, parts, full)
        progress.done()
        return found


def _one_format(streams: Sequence[TraceStream], asked: str | None) -> str:
    """Raises: InputError: formats differ, none is known, or all files are empty."""
    if asked is not None and asked not in formats.titles():
        raise InputError(
            f"{asked!r} is no trace format", where="--format", remedy=f"known are {', '.join(formats.titles())}"
        )
    with_content = [s for s in streams if s.head()]
    if not with_content:
        raise InputError(
            "the trace is empty",
            where=", ".join(s.name for s in streams),
            remedy="record it while the workload runs",
        )
    if len(with_content) < len(streams):
        empty = next(s for s in streams if not s.head())
        if PER_CPU.fullmatch(empty.path.name) is None:
            raise InputError("the trace is empty", where=empty.name, remedy="leave this file out")
    if asked is not None:
        return asked
    found = [(formats.format_of(s), s) for s in with_content]
    first, stream = found[0]
    for other, its_stream in found[1:]:
        if other != first:
            raise InputError(
                f"files of different formats: {stream.name} is {first}, {its_stream.name} is {other}",
                remedy="profile them one after the other: each gives a profile of its own",
            )
    return first


def _from_accesses(
    recordings: Sequence[Recording],
    counts: Iterator[Counted],
    reader: StreamReader,
    action: Action,
    name: str,
    disks: Sequence[str],
    parts: bool,
    full: bool,
) -> Profile:
    total = PartialProfile()
    sources: list[dict[str, Any]] = []
    notes: dict[str, None] = {}
    lacks: dict[str, None] = {}
    durations: list[int] = []
    losses_known = True
    for recording, counted in zip(recordings, counts, strict=True):
        partial = counted.partial
        lacks.update(dict.fromkeys(counted.lacks))
        n_unnumbered = partial.events.pop(UNNUMBERED, 0)
        its = told(recording, reader, n_unnumbered=n_unnumbered, notes=counted.notes)
        notes.update(dict.fromkeys(its.notes))
        losses_known &= its.losses_known
        partial = replace(partial, lost=partial.lost + its.lost)
        durations.append(partial.duration_ns)
        sources.append(
            {
                "files": [str(f) for f in recording.files],
                "format": reader.name,
                "accesses": partial.n_accesses,
                "duration_seconds": partial.duration_ns / 1e9,
            }
            | ({"captured_by": its.captured_by} if its.captured_by else {})
        )
        if not reader.names_disks:
            partial = _renamed(partial, recordings[0].name if parts else recording.name)
            total = total.followed_by(partial)
        elif parts or len(recordings) == 1:
            total = total.followed_by(partial)
        else:
            total = total.beside(partial, prefix=f"{recording.name}/")
    if total.lost:
        notes[f"the tracer lost {total.lost} events: all counts are too low"] = None
    return profile_of(
        total,
        name=name,
        action=action.value if isinstance(reader, BLOCK_LAYER) else "",
        sources=sources,
        duration_ns=sum(durations) if parts else max(durations),
        keep_upper=action is Action.QUEUE,
        disks=disks,
        losses_known=losses_known,
        lacks=lacks_of(reader, tuple(lacks), losses_known=losses_known, lost=total.lost),
        notes=list(notes),
        with_behaviour=full,
    )


def _counted(
    shares: Sequence[Share],
    opened: Sequence[Sequence[TraceStream]],
    reader: StreamReader,
    scheduler: str | None,
    progress: Progress,
) -> Iterator[Counted]:
    """The counts of each recording.

    Raises:
        InputError: also where standard input is to be read elsewhere.
    """
    cut = [parts_of(share, reader, streams[0]) for share, streams in zip(shares, opened, strict=True)]
    if scheduler is None and all(len(parts) == 1 for parts in cut):
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
                lacks, notes = result.lacks, result.notes
                progress.advance(sum(f.stat().st_size for f in share.files if f.is_file()) / len(parts))
        except (InputError, NotOnItsOwn):
            if len(parts) == 1:
                raise
            # What a part is must be told from the whole file; the place of an error counts from its beginning.
            results.close()
            yield _read_here(share, streams, reader, progress)
            results = scheduling.counted([part for parts in cut[i + 1 :] for part in parts], scheduler)
            continue
        yield Counted(so_far.partial, lacks, notes)


def _read_here(share: Share, streams: Sequence[TraceStream], reader: StreamReader, progress: Progress) -> Counted:
    if isinstance(reader, BlktraceReader) and share.threshold is None:
        partial = count_in_parts(streams, reader, progress.advance)
        if partial is not None:
            return Counted(partial, reader.lacks, reader.notes)
    counting, shown = Counting(share.threshold, share.described), 0
    for batch in read_ahead(reader.read_together(streams)):
        counting.add(batch)
        consumed = sum(s.consumed() for s in streams)
        progress.advance(consumed - shown)
        shown = consumed
    return Counted(counting.partial(), reader.lacks, reader.notes)


def _absolute(file: Path) -> Path:
    """As other processes find it."""
    return file if file == STANDARD_INPUT or remote.url_of(file) else file.absolute()


def _renamed(partial: PartialProfile, disk: str) -> PartialProfile:
    """The same with its only disk called ``disk``, where the file does not name it."""
    tallies = dict.fromkeys([disk], next(iter(partial.disks.values()))) if partial.disks else {}
    return replace(partial, disks=tallies, portraits=partial.portraits.renamed(only_disk=disk))
