"""Traces of one access per line with separated fields: one reader for all formats, which are declared as data.

Rows may be written as spreadsheets and Windows Performance Analyzer export them: fields in quotation marks,
numbers with thousands separators or hexadecimal (``plain_fields``).
"""

import csv
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.core.units import LBN_NBYTES
from cephfit.traces.columns import (
    LBN_MAX,
    NBYTES_MAX,
    OP_READ,
    OP_WRITE,
    TIME_NS_MAX,
    UNKNOWN_LATENCY,
    AccessBatch,
    Accesses,
    unknown_outstanding,
)
from cephfit.traces.lines import plain_lines
from cephfit.traces.lines.delimited_loop import Fields
from cephfit.traces.lines.plain_lines import Constants, DiskTable, LineParser, PlainLine, parse_stream
from cephfit.traces.matching.latency import InFlight
from cephfit.traces.readers.reader import PartReader, clock_ns_of
from cephfit.traces.stream import HEAD_NBYTES, PartStream, TextBlock, TraceStream, bad_line, impossible_numbers

_WORD = re.compile(rb'"((?:[^"]|"")*)"(?!\S)|(\S+)')
"""Between white space: a field in quotation marks, which may contain white space, or any other word."""
_HEXADECIMAL = re.compile(rb"0[xX][0-9a-fA-F]{1,16}")
_GROUPED = re.compile(rb"[1-9]\d{0,2}(?:,\d{3})+(?P<fraction>\.\d+)?")


def plain_fields(
    line: bytes, separator: bytes | None, counts: Sequence[int], others: Sequence[int]
) -> list[bytes]:
    """Return the fields of a row without quotation marks, thousands separators and hexadecimal numbers.

    Unknown spellings stay, so that the row is rejected. ``1,500`` may be one and a half where a comma is the
    decimal point and the separator is another one. So in a number that may have a fraction, a comma separates
    thousands only if commas also separate fields, if there are several commas, or if a point follows.

    Args:
        line: the row.
        separator: between its fields; None: white space.
        counts: columns of whole numbers.
        others: columns of numbers that may have a fraction.
    """
    fields = _words(line) if separator is None else _separated(line, separator)
    for column in (*counts, *others):
        if -len(fields) <= column < len(fields):
            fields[column] = _number(fields[column], commas_group=column in counts or separator == b",")
    return fields


def _words(line: bytes) -> list[bytes]:
    return [word[2] if word[1] is None else word[1].replace(b'""', b'"').strip() for word in _WORD.finditer(line)]


def _separated(line: bytes, separator: bytes) -> list[bytes]:
    try:
        (words,) = csv.reader([line.decode("latin-1")], delimiter=separator.decode(), skipinitialspace=True)
    except (csv.Error, ValueError):
        return line.split(separator)
    return [word.strip().encode("latin-1") for word in words]


def _number(text: bytes, *, commas_group: bool) -> bytes:
    if _HEXADECIMAL.fullmatch(text):
        return b"%d" % int(text, 16)
    grouped = _GROUPED.fullmatch(text)
    if grouped and (commas_group or grouped["fraction"] or text.count(b",") > 1):
        return text.replace(b",", b"")
    return text


_HEADERS_MAX = 100
_CLOCK_LINES = 1000
_OTHER_OPS = {b"d": "discard", b"discard": "discard", b"trim": "discard", b"f": "flush", b"flush": "flush"}

_Stretch = tuple[Accesses, dict[str, int]]
"""Rows, and counts of skipped lines."""


@dataclass(frozen=True, slots=True)
class DelimitedFormat:
    """The columns of a format and their units; negative columns count from the right.

    Attributes:
        name, title: as in a reader.
        row: matches a whole line of the format, which also detects it.
        separator: between fields; None: white space.
        time, op, offset, length: columns.
        time_unit_ns: ns of one unit of time; a time may have a fraction.
        time_origin: whole units that are subtracted, so that the ns since then fit into 63 bits.
        offset_unit, length_unit: bytes of one unit.
        reads, writes: values of the op column, in lower case; an empty op counts as skipped.
        disk: columns that together name the disk; empty: a file is one disk.
        latency: column, or None.
        latency_unit_ns: ns of one unit of latency; None: that of time.
        action: column, and the only word in it (lower case) whose rows count; None: all rows count.
        others: words of the op column for records that are neither reads nor writes, and the reasons by which they
            count as skipped; empty: derived from the word. None: any word is, except for reads and writes.
        header: matches lines that may precede the rows (and recur where files were concatenated).
        note: what the reader of a profile must know.
        lacks: what a profile needs and the format does not contain.
        plain: the lines that a compiled loop may read; None: all lines are matched with ``row``, at a fiftieth of
            the speed.
        further: lines may have more fields than ``plain``; they are ignored.
        loose: rows may be written as ``plain_fields`` describes; they are read slowly.
        added: fields appended to every line because it lacks them; ``constants`` are the same for the loop.
    """

    name: str
    title: str
    row: re.Pattern[bytes]
    separator: bytes | None
    time: int
    op: int
    offset: int
    length: int
    time_unit_ns: int
    offset_unit: int
    length_unit: int
    reads: frozenset[bytes]
    writes: frozenset[bytes]
    time_origin: int = 0
    disk: tuple[int, ...] = ()
    latency: int | None = None
    latency_unit_ns: int | None = None
    action: tuple[int, bytes] | None = None
    others: Mapping[bytes, str] | None = None
    header: re.Pattern[bytes] = re.compile(rb"^\s*(#.*)?$")
    note: str = ""
    lacks: tuple[str, ...] = ()
    plain: PlainLine | None = None
    further: bool = False
    loose: bool = False
    added: tuple[bytes, ...] = ()
    constants: Constants = Constants()  # noqa: RUF009 - it is frozen

    def knows(self, op: bytes) -> bool:
        """Return whether the word is a read, a write, or a record that the format allows and a profile skips."""
        return self.others is None or op in self.reads or op in self.writes or op in self.others

    def fields(self, n_fields: int) -> Fields | None:
        """Return the structure of lines with ``n_fields`` fields for the loop; None: it reads no such lines."""
        if self.plain is None or self.action is not None or n_fields < len(self.plain.fields):
            return None
        return plain_lines.fields_of(
            self.plain.of_length(n_fields) if self.further else self.plain,
            separator=self.separator,
            columns=(self.time, self.op, self.offset, self.length, self.latency),
            disk=self.disk,
            time_unit_ns=self.time_unit_ns,
            time_origin=self.time_origin,
            offset_unit=self.offset_unit,
            length_unit=self.length_unit,
            latency_unit_ns=self.latency_unit_ns,
        )


class DelimitedReader(PartReader):
    """Reads any format that a ``DelimitedFormat`` declares."""

    clock_is_guessed = True

    def __init__(self, layout: DelimitedFormat) -> None:
        self.layout = layout
        self.name = layout.name
        self.title = layout.title
        self.note = layout.note
        self.lacks = layout.lacks
        self.names_disks = bool(layout.disk)
        self.timed = layout.latency is not None

    def sniff(self, head: bytes) -> bool:
        lines = head.splitlines()
        if len(lines) > 1 and not head.endswith(b"\n"):
            del lines[-1]  # cut off by the end of the head
        first = next((line for line in lines if not self.layout.header.match(line)), b"")
        return self.layout.row.match(first) is not None

    def clock_ns(self, stream: TraceStream) -> int:
        if self.layout.constants.time_ns is not None:
            return 1
        lines = map(_Lines(self.layout, stream).whole, stream.head().splitlines()[:_CLOCK_LINES])
        rows = (line.split(self.layout.separator) for line in lines if self.layout.row.match(line))
        return clock_ns_of((row[self.layout.time] for row in rows), self.layout.time_unit_ns)

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        return self.read_part(stream, InFlight())

    def read_part(self, stream: TraceStream, in_flight: InFlight) -> Iterator[AccessBatch]:
        lines = _Lines(self.layout, stream)
        for stretches in parse_stream(stream, lines):
            rows = stretches[0][0] if len(stretches) == 1 else Accesses.joined([r for r, _ in stretches])
            skipped: Counter[str] = Counter()
            for _, counts in stretches:
                skipped.update(counts)
            names = tuple(n.decode("utf-8", "replace") for n in lines.disks) or (PurePath(stream.name).name,)
            outstanding = None
            if self.timed:
                has_times = self.layout.constants.time_ns is None
                outstanding = in_flight.count(rows) if has_times else unknown_outstanding(len(rows))
            yield rows.batch(names, outstanding=outstanding, skipped=skipped)


class _Lines(LineParser[_Stretch]):
    """Parser of the lines of one stream.

    Attributes:
        disks: name to number.
    """

    def __init__(self, layout: DelimitedFormat, stream: TraceStream) -> None:
        self.disks: dict[bytes, int] = {}
        self._layout = layout
        self._fields: dict[int, Fields | None] = {}
        self._stream = stream
        self._known = DiskTable()
        self._headers: set[bytes] = set()
        # At a cut there are no headers: only the whole file shows whether a line is one.
        self._started = isinstance(stream, PartStream) and stream.begin > 0

    def plain(self, text: NDArray[np.uint8], at: int, stop: int) -> tuple[int, int, _Stretch]:
        n_fields = self._n_fields(text, at, stop)
        if n_fields not in self._fields:
            self._fields[n_fields] = self._layout.fields(n_fields)
        fields = self._fields[n_fields]
        if fields is None:
            return 0, at, (Accesses.none(), {})
        n, end, rows = plain_lines.parse(fields, self._known, text, at, stop, self._layout.constants)
        return n, end, (rows, {})

    def _n_fields(self, text: NDArray[np.uint8], at: int, stop: int) -> int:
        """Return how many fields the lines have: if the number may vary, that of the first line."""
        if not self._layout.further:
            return len(self._layout.plain.fields) if self._layout.plain else 0
        line = text[at : min(at + HEAD_NBYTES, stop)].tobytes().partition(b"\n")[0]
        return len(line.split(self._layout.separator))

    def accept(self, n_lines: int, result: _Stretch) -> None:
        self._started |= n_lines > 0

    def any_line(self, block: TextBlock) -> _Stretch:
        """Return the accesses of lines, and counts of skipped lines."""
        layout, stream = self._layout, self._stream
        latency_unit_ns = layout.latency_unit_ns or layout.time_unit_ns
        rows: list[tuple[int, int, int, int, int, int]] = []
        skipped: dict[str, int] = {}
        for number, line in enumerate(block.lines, block.first):
            cut_off = block.cut_off and line is block.lines[-1]
            whole = self.whole(line)
            fields: list[bytes] = []
            if layout.loose and (b'"' in line or not layout.row.match(whole)):
                fields = self._plain_fields(line)
                whole = _joined(fields, layout.separator)
            if not layout.row.match(whole):
                if not line.strip() or line in self._headers:
                    continue
                if not self._started and layout.header.match(line):
                    if len(self._headers) < _HEADERS_MAX:
                        self._headers.add(line)
                    continue
                raise bad_line(stream, number, line, f"a row of {layout.title}", cut_off=cut_off)
            self._started = True
            fields = fields or whole.split(layout.separator)
            try:
                if reason := _other_action(fields, layout):
                    skipped[reason] = skipped.get(reason, 0) + 1
                    continue
                op = fields[layout.op].strip().lower()
                nbytes = int(fields[layout.length]) * layout.length_unit
                lbn = int(fields[layout.offset]) * layout.offset_unit // LBN_NBYTES
                time_ns = (
                    _scaled(fields[layout.time], layout.time_unit_ns) - layout.time_origin * layout.time_unit_ns
                )
                latency_ns = 0 if layout.latency is None else _scaled(fields[layout.latency], latency_unit_ns)
            except (ValueError, IndexError):
                raise bad_line(stream, number, line, f"a row of {layout.title}", cut_off=cut_off) from None
            if not layout.knows(op):
                raise _unknown_op(stream, number, op)
            reason = _skip_reason(op, nbytes, layout)
            if reason:
                skipped[reason] = skipped.get(reason, 0) + 1
                continue
            if not lbn < LBN_MAX or nbytes >= NBYTES_MAX or not abs(time_ns) < TIME_NS_MAX:
                raise impossible_numbers(stream, number, line)
            # No device responds in zero time: a zero means that the latency is unknown.
            latency_ns = min(latency_ns, TIME_NS_MAX) or UNKNOWN_LATENCY
            index = self._disk([fields[i].strip() for i in layout.disk]) if layout.disk else 0
            rows.append((time_ns, OP_READ if op in layout.reads else OP_WRITE, lbn, nbytes, index, latency_ns))
        return Accesses.of_rows(rows), skipped

    def whole(self, line: bytes) -> bytes:
        """Return a line with the added fields."""
        if not (self._layout.added and line.strip()):
            return line
        n = len(self._layout.plain.fields) if self._layout.plain else 0
        fields = line.rstrip().split(self._layout.separator, n)[:n]
        return (self._layout.separator or b" ").join([*fields, *self._layout.added])

    def _plain_fields(self, line: bytes) -> list[bytes]:
        """Return the fields of a line as ``plain_fields`` does, with the added fields."""
        layout = self._layout
        decimals = [layout.time] if layout.latency is None else [layout.time, layout.latency]
        fields = plain_fields(line, layout.separator, (layout.offset, layout.length), decimals)
        if not (layout.added and line.strip()):
            return fields
        n = len(layout.plain.fields) if layout.plain else 0
        return [*fields[:n], *layout.added]

    def _disk(self, fields: list[bytes]) -> int:
        name = b"/".join(fields)
        number = self.disks.setdefault(name, len(self.disks))
        self._known.add(fields, number)
        return number


def _joined(fields: list[bytes], separator: bytes | None) -> bytes:
    """Join fields to a line. A separator within a field is replaced by another character."""
    if separator is None:
        return b" ".join(b"_".join(field.split()) or b"_" for field in fields)
    return separator.join(field.replace(separator, b" ") for field in fields)


def _skip_reason(op: bytes, nbytes: int, layout: DelimitedFormat) -> str:
    if op not in layout.reads and op not in layout.writes:
        named = (layout.others or {}).get(op) or _OTHER_OPS.get(op)
        return named or (f"op {op.decode('utf-8', 'replace')}" if op else "no op")
    if nbytes > 0:
        return ""
    return "flush" if op.startswith(b"fw") else "zero length"  # the kernel's letters, such as FWS


def _other_action(fields: list[bytes], layout: DelimitedFormat) -> str:
    """Return why a row does not count although it may be a read or write; empty if it counts."""
    if layout.action is None:
        return ""
    column, counted = layout.action
    action = fields[column].strip()
    return "" if action.lower() == counted else f"action {action[:40].decode('utf-8', 'replace') or '(empty)'}"


def _unknown_op(stream: TraceStream, number: int, op: bytes) -> InputError:
    word = op[:40].decode("utf-8", "replace")
    return InputError(
        f"{word!r} in the column op is neither a read nor a write" if op else "the column op is empty",
        where=f"{stream.name}, line {number}",
        remedy="name the words for reads, for writes and for rows to skip in --columns, each with | between "
        f"several: op:READ/WRITE/SKIP, for example op:r|rs/w|ws/{word or 'none'}",
    )


def _scaled(text: bytes, unit: int) -> int:
    """Convert a decimal number of units of time to ns, exactly; an empty text is 0.

    Large seconds with 9 digits of fraction do not fit into a float.
    """
    whole, _, fraction = text.strip().partition(b".")
    return int(whole or b"0") * unit + (int(fraction) * unit // 10 ** len(fraction) if fraction else 0)
