"""A user-defined delimited file, with named columns and units: ``time:us,op,offset:kib,length``."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

from cephfit.core.errors import InputError
from cephfit.core.units import LBN_NBYTES, NS_PER_MS, NS_PER_S, NS_PER_US
from cephfit.core.values.cells import Op
from cephfit.traces.columns import NBYTES_MAX, OP_READ, OP_WRITE, AccessBatch
from cephfit.traces.lines.plain_lines import (
    DECIMAL_OR_NOTHING,
    DECIMAL_OR_WHOLE,
    DIGITS,
    OP,
    OP_NBYTES,
    UNQUOTED,
    Constants,
    PlainLine,
)
from cephfit.traces.matching.latency import InFlight
from cephfit.traces.readers.delimited.delimited_reader import DelimitedFormat, DelimitedReader
from cephfit.traces.readers.reader import PartReader
from cephfit.traces.stream import TraceStream

NAME = "columns"

TIME_UNITS = {"ns": 1, "us": NS_PER_US, "ms": NS_PER_MS, "s": NS_PER_S, "filetime": 100}
"""ns of one unit; filetime is that of Windows: 100 ns since 1601."""
PLACE_UNITS = {"bytes": 1, "lbn": LBN_NBYTES, "sectors": LBN_NBYTES, "kib": 1 << 10, "mib": 1 << 20, "pages": 4096}
SEPARATORS = {"comma": b",", "semicolon": b";", "tab": b"\t", "pipe": b"|", "space": None}

SYNTAX = """\
names in the order of the file's columns, separated by commas: time:UNIT (ns, us, ms, s, filetime),
op[:READ/WRITE[/SKIP]] (the words for reads, writes and rows to skip, with | between several; default: read,
write, and blkparse's letters; other words are errors), action:WORD (count only rows with this word), offset:UNIT
and length:UNIT (bytes, lbn, sectors, kib, mib, pages of 4096), disk (several are joined), latency:UNIT (default:
the unit of time), - for a column to ignore; op=read, op=write or length=4096 if the file lacks the column;
sep=comma, semicolon, tab, pipe or space"""
"""The description of the syntax in the help."""

_FILETIME_2000 = 125_911_584_000_000_000


def _letters(*parts: str) -> frozenset[bytes]:
    """Return all combinations of one letter, or none where a blank stands, of each part, as bytes."""
    return frozenset("".join(word).replace(" ", "").encode() for word in product(*parts))


# The letters of ``blk_fill_rwbs`` in Linux: F before W is a flush, F after it forced unit access.
_READS = frozenset({b"read", b"rd"}) | _letters("r", " f", " a", " s", " m")
_WRITES = frozenset({b"write", b"wr", b"ww"}) | _letters(" f", "w", " f", " a", " s", " m")
_OTHERS = (
    dict.fromkeys([b"discard", b"trim", b"unmap", *_letters("d", " e", " f", " a", " s", " m")], "discard")
    | dict.fromkeys([b"flush", *_letters("f", " fn", " f", " s", " m")], "flush")
    | dict.fromkeys(_letters("n", " s", " m"), "")
)


@dataclass(frozen=True, slots=True)
class NamedColumns:
    """A user's description of a file.

    Attributes:
        layout: of the rows.
        lacks: what the file does not contain.
    """

    layout: DelimitedFormat
    lacks: tuple[str, ...]


def layout_of(columns: str, assume_op: Op | None = None) -> NamedColumns:
    """Parse a description of columns, see ``SYNTAX``.

    Raises:
        InputError: the description is wrong; the error names the word.
    """
    words = [word.strip() for word in columns.split(",") if word.strip()]
    given = {name: value for name, _, value in (word.partition("=") for word in words if "=" in word)}
    separator = SEPARATORS[_one_of(given.pop("sep", "comma"), SEPARATORS, "sep=")]
    named = _columns([word for word in words if "=" not in word])
    if assume_op is not None and "op" not in named.place:
        given.setdefault("op", assume_op.value)
    place, unit, n = dict(named.place), dict(named.unit), named.n
    lacks: list[str] = []
    added: list[str] = []
    for name, value in given.items():
        if name in place or name not in ("op", "length"):
            fault = "the file also has this column" if name in place else "only op and length can be constant"
            raise _wrong(f"{name}={value}: {fault}")
        place[name] = n + len(added)
        added.append(_constant(name, value))
        lacks.append(f"{name}: every access counts as {value}, as --columns or --assume-op specifies")
    if "time" not in place:
        place["time"], unit["time"] = n + len(added), "ns"
        added.append("0")
        lacks.append("time: no rates, no inter-arrival, none outstanding")
    missing = [name for name in ("op", "offset", "length") if name not in place]
    if missing:
        raise _wrong(f"the column {missing[0]} is missing")
    layout = _layout(place, unit, list(named.disks), n + len(added), separator)
    return NamedColumns(
        replace(
            layout,
            plain=_plain(layout, n),
            further=True,
            loose=True,
            added=tuple(word.encode() for word in added),
            constants=Constants(
                time_ns=None if place["time"] < n else 0,
                op=None if place["op"] < n else OP_WRITE if given["op"].lower() == "write" else OP_READ,
                nbytes=None if place["length"] < n else int(given["length"]),
            ),
            action=named.action,
        ),
        tuple(lacks),
    )


@dataclass(frozen=True, slots=True)
class _Columns:
    """The columns of a line.

    Attributes:
        n: their number, with unused ones.
        place: of each named column, from 0.
        unit: of each named column, in lower case; may be empty.
        disks: places of the columns that name the disk together.
        action: place, and the action to count.
    """

    n: int
    place: Mapping[str, int]
    unit: Mapping[str, str]
    disks: tuple[int, ...]
    action: tuple[int, bytes] | None


def _columns(words: Sequence[str]) -> _Columns:
    """Parse the words for columns, in their order.

    Raises:
        InputError: a word is not a column name, or given twice.
    """
    place: dict[str, int] = {}
    unit: dict[str, str] = {}
    disks: list[int] = []
    action: tuple[int, bytes] | None = None
    for i, word in enumerate(words):
        name, _, what = word.partition(":")
        if name == "disk":
            disks.append(i)
        elif name in ("-", "_"):
            continue
        elif name == "action" and action is None:
            if not what:
                raise _wrong("action: must name the action to count, for example action:Q")
            action = i, what.lower().encode()
        elif name not in ("time", "op", "offset", "length", "latency") or name in place:
            raise _wrong(f"{word!r} is {'given twice' if name in place else 'not a column name'}")
        else:
            place[name], unit[name] = i, what.lower()
    return _Columns(len(words), place, unit, tuple(disks), action)


def _plain(layout: DelimitedFormat, n: int) -> PlainLine:
    """Return the lines that a compiled loop may read: all with the ``n`` columns.

    Quoted fields are excluded. They may contain text that looks like the following columns, and only
    ``plain_fields`` reads them.
    """
    fields = [UNQUOTED] * n
    for column, field in (
        (layout.time, DECIMAL_OR_WHOLE),
        (layout.op, OP),
        (layout.offset, DIGITS),
        (layout.length, DIGITS),
        (layout.latency, DECIMAL_OR_NOTHING if layout.separator else DECIMAL_OR_WHOLE),
    ):
        if column is not None and column < n:
            fields[column] = field
    return PlainLine(tuple(fields), _spellings(layout.reads), _spellings(layout.writes), padded=True)


def _spellings(words: frozenset[bytes]) -> tuple[bytes, ...]:
    """Return the spellings of words: in lower case, in upper case, or capitalized. Other mixtures are not
    plain."""
    short = [word for word in sorted(words) if len(word) <= OP_NBYTES]
    return tuple(dict.fromkeys(w for word in short for w in (word, word.upper(), word.capitalize())))


def _constant(name: str, value: str) -> str:
    if name == "op" and value.lower() not in ("read", "write"):
        raise _wrong(f"op={value}: must be read or write")
    if name == "length" and not (value.isdecimal() and 0 < int(value[:12]) < NBYTES_MAX):
        raise _wrong(f"length={value}: must be a number of bytes")
    return value.lower()


def _layout(
    place: dict[str, int], unit: dict[str, str], disks: list[int], n: int, separator: bytes | None
) -> DelimitedFormat:
    time_unit = _one_of(unit.get("time") or "s", TIME_UNITS, "time:")
    latency_unit = _one_of(unit.get("latency") or time_unit, TIME_UNITS, "latency:")
    reads, writes, others = _op_words(unit["op"]) if unit.get("op") else (_READS, _WRITES, _OTHERS)
    return DelimitedFormat(
        name=NAME,
        title="a delimited file with the columns that --columns names",
        row=re.compile(_row_pattern(place, n, separator)),
        separator=separator,
        time=place["time"],
        op=place["op"],
        offset=place["offset"],
        length=place["length"],
        time_unit_ns=TIME_UNITS[time_unit],
        time_origin=_FILETIME_2000 if time_unit == "filetime" else 0,
        offset_unit=PLACE_UNITS[_one_of(unit.get("offset") or "bytes", PLACE_UNITS, "offset:")],
        length_unit=PLACE_UNITS[_one_of(unit.get("length") or "bytes", PLACE_UNITS, "length:")],
        reads=reads,
        writes=writes,
        disk=tuple(disks),
        latency=place.get("latency"),
        latency_unit_ns=TIME_UNITS[latency_unit],
        others=others,
        header=re.compile(rb'^\s*$|^\s*#|^\s*"?[A-Za-z_\x80-\xff]'),
    )


def _op_words(text: str) -> tuple[frozenset[bytes], frozenset[bytes], Mapping[bytes, str]]:
    """Return the words for reads, for writes and for rows to skip, as ``READ/WRITE/SKIP`` names them.

    Raises:
        InputError: one of the first two is missing, or a word has two meanings.
    """
    kinds = [frozenset(word.encode() for word in kind.split("|") if word) for kind in text.split("/")]
    if (
        len(kinds) not in (2, 3)
        or not (kinds[0] and kinds[1])
        or len(frozenset().union(*kinds)) < sum(map(len, kinds))
    ):
        raise _wrong(
            f"op:{text}: must be the words for a read and a write (and for rows to skip), for example op:0/1"
        )
    return kinds[0], kinds[1], dict.fromkeys(kinds[2], "") if len(kinds) == 3 else {}


def _row_pattern(place: dict[str, int], n: int, separator: bytes | None) -> bytes:
    """Return a pattern of rows: numbers where numbers must be. Further columns at the end are ignored."""
    other = rb"\S+" if separator is None else b"[^" + re.escape(separator) + b"]*"
    kinds = {"time": rb"\d+(?:\.\d+)?", "latency": rb"(?:\d+(?:\.\d+)? *)?", "offset": rb"\d+", "length": rb"\d+"}
    if separator is None:
        kinds["latency"] = rb"\d+(?:\.\d+)?"
    fields = [other] * n
    for name, i in place.items():
        if name in kinds:
            fields[i] = (
                rb" *" + kinds[name] + (rb"" if name == "latency" else rb" *") if separator else kinds[name]
            )
    join = rb"\s+" if separator is None else re.escape(separator)
    tail = rb"(?:\s.*)?$" if separator is None else rb"\s*(?:" + re.escape(separator) + rb".*)?$"
    return rb"^" + (rb"\s*" if separator is None else b"") + join.join(fields) + tail


def _one_of(word: str, known: object, where: str) -> str:
    assert isinstance(known, dict)
    if word.lower() not in known:
        raise _wrong(f"{where}{word}: must be one of {', '.join(known)}")
    return word.lower()


def _wrong(what: str) -> InputError:
    return InputError(what, where="--columns", remedy=SYNTAX.replace("\n", " "))


class NamedColumnsReader(PartReader):
    """Reads files that ``--columns`` describes. The format is never detected from content."""

    name = NAME
    title = "a delimited file with the columns that --columns names"
    clock_is_guessed = True

    def __init__(self, columns: NamedColumns | None = None) -> None:
        self.columns = columns
        self.lacks = columns.lacks if columns else ()
        self.names_disks = bool(columns and columns.layout.disk)
        self.timed = columns is not None and columns.layout.latency is not None

    def sniff(self, head: bytes) -> bool:
        return False

    def clock_ns(self, stream: TraceStream) -> int:
        return DelimitedReader(self.columns.layout).clock_ns(stream) if self.columns else 1

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        return self.read_part(stream, InFlight())

    def read_part(self, stream: TraceStream, in_flight: InFlight) -> Iterator[AccessBatch]:
        if self.columns is None:
            raise InputError("the columns are unknown", where=stream.name, remedy=SYNTAX.replace("\n", " "))
        reader = DelimitedReader(self.columns.layout)
        n = 0
        for batch in reader.read_part(stream, in_flight):
            n += len(batch) + sum(batch.skipped.values())
            yield batch
        if not n:
            raise InputError(
                "no line has the columns that --columns names",
                where=stream.name,
                remedy="compare --columns with the file",
            )
