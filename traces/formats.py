"""The trace formats, and how a file's content shows its format."""

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from cephfit.core.errors import InputError
from cephfit.traces import opening
from cephfit.traces.readers import vscsi_histogram
from cephfit.traces.readers.blktrace.blktrace_reader import BlktraceReader
from cephfit.traces.readers.block_events.blkparse_text import BlkparseFormatReader, BlkparseTextReader
from cephfit.traces.readers.block_events.block_events_text import BlockEventsTextReader
from cephfit.traces.readers.block_events.block_layer import Action
from cephfit.traces.readers.block_events.qemu_events import QemuEventsReader
from cephfit.traces.readers.block_events.snoop_tools import BiosnoopReader, IosnoopReader
from cephfit.traces.readers.delimited import delimited_formats
from cephfit.traces.readers.delimited.delimited_formats import DisksimValidateReader
from cephfit.traces.readers.delimited.delimited_reader import DelimitedReader
from cephfit.traces.readers.delimited.named_columns import NamedColumnsReader, layout_of
from cephfit.traces.readers.fio_iolog import FioIologReader
from cephfit.traces.readers.oracle_general import OracleGeneralReader
from cephfit.traces.readers.parquet import ParquetReader
from cephfit.traces.readers.rbd_replay import RbdReplayReader
from cephfit.traces.readers.reader import StreamReader, TraceReader
from cephfit.traces.readers.strace import StraceReader
from cephfit.traces.readers.vscsi_trace import VscsiBinaryReader, VscsiCsvReader
from cephfit.traces.readers.xperf import XperfReader
from cephfit.traces.recordings import ReadOptions, per_cpu
from cephfit.traces.stream import TraceStream

HISTOGRAM = vscsi_histogram.NAME
"""The one format that has histograms instead of accesses."""


def readers(
    action: Action = Action.QUEUE,
    options: ReadOptions = ReadOptions(),  # noqa: B008 - it is frozen
) -> tuple[StreamReader, ...]:
    """Return one reader for each format with accesses, in the order of detection: the surest signs first.

    Raises:
        InputError: an option is wrong.
    """
    return (
        BlktraceReader(action),
        BlkparseTextReader(action),
        VscsiCsvReader(),
        FioIologReader(),
        RbdReplayReader(),
        *(DelimitedReader(layout) for layout in delimited_formats.FORMATS),
        DisksimValidateReader(),
        BiosnoopReader(),
        IosnoopReader(),
        BlockEventsTextReader(action),
        XperfReader(),
        QemuEventsReader(),
        StraceReader(),
        ParquetReader(),
        VscsiBinaryReader(),
        OracleGeneralReader(options.assume_op),
        NamedColumnsReader(layout_of(options.columns, options.assume_op) if options.columns else None),
        BlkparseFormatReader(options.blkparse_format, action),
    )


def titles() -> Mapping[str, str]:
    """Map the name of each format to its description."""
    named = {reader.name: reader.title for reader in readers()}
    return {**named, HISTOGRAM: vscsi_histogram.TITLE}


def format_of(stream: TraceStream) -> str:
    """Detect the format of a file from its content.

    Raises:
        InputError: no format matches. The error describes the content.
    """
    head = stream.head()
    if vscsi_histogram.sniff(head):
        return HISTOGRAM
    reader: TraceReader
    for reader in readers():
        try:
            if reader.sniff(head):
                return reader.name
        except InputError as error:
            raise InputError(error.what, where=stream.name, remedy=error.remedy) from None
    raise InputError(
        f"unknown trace format: the file {looks_like(head)}",
        where=stream.name,
        remedy=_not_a_trace(head)
        or f"supported are {', '.join(titles())}; --format FORMAT selects one of them, and --columns reads others",
    )


_OTHER_FILES = (
    ((b'"schema_version"', b'"random_threshold_lbn"'), "this is a profile already: give it to `cephfit map`"),
    ((b'"fio version"',), "this is a result of fio, not a trace: `cephfit import` reads it"),
    ((b"ceph_rbd_",), "this is a scrape of counters, not a trace: `cephfit survey` reads two or more of them"),
    ((b"configuration", b"pattern", b"iops"), "these are measured rates: give them to `cephfit map --baselines`"),
    ((b"SQLite format 3",), "a store of results is given to `cephfit map --baselines`"),
    ((b"rkB/s", b"wkB/s"), "iostat prints means, not accesses: record a trace with `cephfit trace capture`"),
)
"""What other files contain, and what to do with them."""


def _not_a_trace(head: bytes) -> str:
    """Return what to do with a file of another kind; empty if the kind is unknown."""
    return next((advice for marks, advice in _OTHER_FILES if all(mark in head for mark in marks)), "")


def require_one_format(files: Sequence[Path]) -> None:
    """Check that files which are not consecutive parts of a trace have one format.

    A file that continues within a line or record may show no format; it is not checked.

    Raises:
        InputError: formats differ.
    """
    with ExitStack() as stack:
        streams = [stack.enter_context(TraceStream(file)) for file in files]
        showing = [stream for stream in streams if _shows_one(stream)]
        if showing:
            one_format(showing, showing, None)


def _shows_one(stream: TraceStream) -> bool:
    try:
        format_of(stream)
    except InputError:
        return False
    return True


def one_format(files: Sequence[TraceStream], streams: Sequence[TraceStream], asked: str | None) -> str:
    """Return the format of all files of a trace.

    Args:
        files: all files.
        streams: the streams to read. Each is one of the files, or several consecutive files.
        asked: the requested format; None: detect it from the content.

    Raises:
        InputError: formats differ, no format matches, or a file is empty.
    """
    if asked is not None and asked not in titles():
        raise InputError(
            f"{asked!r} is not a trace format", where="--format", remedy=f"supported are {', '.join(titles())}"
        )
    if not any(file.head() for file in files):
        raise InputError(
            "the trace is empty",
            where=", ".join(file.name for file in files),
            remedy="record it while the workload runs",
        )
    for empty in [file for file in files if not file.head()]:
        if per_cpu(empty.path) is None:
            raise InputError("the trace is empty", where=empty.name, remedy="omit this file")
    if asked is not None:
        return asked
    found = [(format_of(s), s) for s in streams if s.head()]
    first, stream = found[0]
    for other, its_stream in found[1:]:
        if other != first:
            raise InputError(
                f"files of different formats: {stream.name} is {first}, {its_stream.name} is {other}",
                remedy="profile them one at a time, each into a separate profile",
            )
    return first


_NUMBER = re.compile(rb"\d{1,20}")
_LINES_SEEN = 20


def _is_latin(sample: bytes) -> bool:
    """Return whether bytes may be text in one of the ISO 8859 encodings."""
    return all(byte in b"\t\r\n" or 32 <= byte < 127 or byte >= 160 for byte in sample)


def looks_like(head: bytes) -> str:
    """Describe the content of a file whose format is unknown."""
    if not head:
        return "is empty"
    if opening.is_text(head[: opening.SAMPLE_NBYTES], "utf-8") or _is_latin(head[: opening.SAMPLE_NBYTES]):
        first = head.lstrip().splitlines()[:1] or [b""]
        if all(_NUMBER.fullmatch(line.strip()) for line in head.split(b"\n")[:_LINES_SEEN] if line.strip()):
            return (
                "has one number per line; if these are 512-byte block numbers, give --columns "
                "offset:lbn,op=read,length=4096 (or op=write, or the accesses' size in bytes)"
            )
        return f"looks like text that begins with {first[0][:60].decode('utf-8', 'replace')!r}"
    for magic, what in (
        (b"\x04\x22\x4d\x18", "is compressed with lz4: decompress it first"),
        (b"PK\x03\x04", "is a zip archive: unpack it first"),
        (b"\x7fELF", "is a program"),
        (b"SQLite format", "is an SQLite database"),
    ):
        if head.startswith(magic):
            return what
    return f"looks like binary data that begins with {head[:16].hex(' ')}"
