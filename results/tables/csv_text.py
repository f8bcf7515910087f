"""CSV with named columns: write it, and read it with errors that name the line and the column.

``rate_rows`` reads the tables of rates that ``baseline_csv`` describes.

Columns may be separated by commas, semicolons or tabs, as spreadsheets of several countries write them.
"""

import codecs
import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cephfit.core.errors import InputError
from cephfit.core.units import LBN_NBYTES, parse_nbytes, whole_number
from cephfit.core.values.cells import LoadedCell, Pattern
from cephfit.core.values.sample import OWN_LOAD, State

_SEPARATORS = (",", ";", "\t")


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as CSV, with a header line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def read_text(path: Path, *, remedy: str) -> str:
    """Return the content of a CSV file.

    Raises:
        InputError: it cannot be read, or is neither UTF-8 nor, with a byte order mark, UTF-16; with ``remedy``.
    """
    try:
        content = path.read_bytes()
        is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        return content.decode("utf-16" if is_utf16 else "utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(
            "not a CSV file (not UTF-8 text)", where=str(path), remedy=f"save it as UTF-8; {remedy}"
        ) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None


def separator_of(text: str) -> str:
    """Return what separates the columns: of comma, semicolon and tab, the most frequent one of the first line."""
    header = text.lstrip().partition("\n")[0]
    return max(_SEPARATORS, key=header.count)


def names_of(text: str) -> list[str]:
    """Return the names of the first line's columns, in lower case.

    Raises:
        csv.Error: it is not CSV.
    """
    return _lower(next(csv.reader(io.StringIO(text, newline=""), delimiter=separator_of(text)), []))


def rows_of(
    text: str,
    *,
    required: Sequence[str],
    optional: Sequence[str],
    where: str,
    remedy: str,
    may_be_empty: Callable[[Mapping[str, str]], bool] = lambda _: False,
) -> Iterator[tuple[int, Mapping[str, str]]]:
    """Yield (line, fields by column) of every row that is not empty.

    Args:
        text: of the file; the first line names the columns, in any order and case.
        required: columns with a value in every row.
        optional: columns that may be missing, or empty; other columns are ignored.
        where: name of the file, for errors.
        remedy: for errors of the columns.
        may_be_empty: whether a row may lack values of required columns.

    Raises:
        InputError: it is not CSV, a required column is missing or empty, a column occurs twice, or a row has a
            value in no column.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, delimiter=separator_of(text))
    try:
        header = next(reader, [])
        columns = _columns(header, required, optional, where, remedy)
        while True:
            line = reader.line_num + 1
            cells = next(reader, None)
            if cells is None:
                return
            if not any(cell.strip() for cell in cells):
                continue
            if any(cell.strip() for cell in cells[len(header) :]):
                raise InputError(
                    f"this row has {len(cells)} fields, and the first line names {len(header)} columns",
                    where=f"{where}:{line}",
                    remedy="write numbers without separators of thousands: 1000, not 1,000",
                )
            fields = {name: cells[at].strip() if at < len(cells) else "" for name, at in columns.items()}
            for name in required:
                if not fields[name] and not may_be_empty(fields):
                    raise InputError("this field is empty", where=f"{where}:{line}, column {name}", remedy=remedy)
            yield line, fields
    except csv.Error as error:
        raise InputError(f"not CSV: {error}", where=f"{where}:{reader.line_num}", remedy=remedy) from None


def _lower(header: Sequence[str]) -> list[str]:
    return [name.strip().lower() for name in header]


def _columns(
    header: Sequence[str], required: Sequence[str], optional: Sequence[str], where: str, remedy: str
) -> dict[str, int]:
    names = _lower(header)
    for name in required:
        if name not in names:
            raise InputError(f"there is no column {name!r}", where=f"{where}:1", remedy=remedy)
    known = (*required, *optional)
    for name in known:
        if names.count(name) > 1:
            raise InputError(f"there are two columns {name!r}", where=f"{where}:1", remedy=remedy)
    return {name: names.index(name) for name in known if name in names}


COLUMNS = ("configuration", "size", "pattern", "client", "run", "iops")
LOAD_COLUMN = "load"
LOAD_COLUMNS = ("iodepth", "clients", "sync", "align")
JUDGEMENT_COLUMNS = ("state", "attempt")
"""Columns of `cephfit runs export`, which has the samples that are not valid, too."""
OWN_SIZE = "own"
"""In the column ``align``: the block size."""
COLUMNS_REMEDY = f"the first line names the columns {','.join(COLUMNS)}"


@dataclass(frozen=True, slots=True)
class Way:
    """How a row was measured, as the file states it; ``n_clients`` is 0 if it does not."""

    load: str
    iodepth: int
    n_clients: int
    sync: str
    align_nbytes: int

    def under(self, nbytes: int, pattern: Pattern) -> LoadedCell:
        return LoadedCell.measured(
            nbytes, pattern, iodepth=self.iodepth, align_nbytes=self.align_nbytes, sync=self.sync
        )


@dataclass(frozen=True, slots=True)
class RateRow:
    """One row of the file.

    Attributes:
        place: what the clients and repeats of a baseline have in common: configuration, size, pattern and way.
        under: the cell that was measured.
        has_iodepth: it states its depth.
    """

    line: int
    place: tuple[str, int, Pattern, Way]
    under: LoadedCell
    client: str
    repeat: int
    iops: float
    has_iodepth: bool

    @property
    def configuration(self) -> str:
        return self.place[0]

    @property
    def nbytes(self) -> int:
        return self.place[1]

    @property
    def pattern(self) -> Pattern:
        return self.place[2]

    @property
    def way(self) -> Way:
        return self.place[3]


@dataclass(frozen=True, slots=True)
class StatedRate:
    """One row of a file as it is; the fields are those of its columns.

    Attributes:
        line: counts from 1.
        under: size, pattern, depth, alignment and commits.
        n_clients: whose sum it is; 0 if the file does not say.
    """

    line: int
    configuration: str
    under: LoadedCell
    client: str
    repeat: int
    iops: float
    n_clients: int


def stated_rates(text: str, *, where: str) -> Iterator[StatedRate]:
    """Yield the rows of a CSV file as they are, of all loads.

    Raises:
        InputError: a row that is not a rate, with line and column.
    """
    for row in rate_rows(text, where):
        yield StatedRate(
            row.line, row.configuration, row.under, row.client, row.repeat, row.iops, row.way.n_clients
        )


def rate_rows(text: str, where: str) -> Iterator[RateRow]:
    """Yield every row that is not empty and is of a valid sample."""
    further = (LOAD_COLUMN, *LOAD_COLUMNS, *JUDGEMENT_COLUMNS)
    rows = list(
        rows_of(
            text,
            required=COLUMNS,
            optional=further,
            where=where,
            remedy=COLUMNS_REMEDY,
            may_be_empty=lambda fields: not _is_valid(fields),
        )
    )
    if rows and JUDGEMENT_COLUMNS[0] in rows[0][1]:
        rows = _first_valid_attempts(rows)
    known: dict[tuple[str | None, ...], tuple[int, Pattern, Way, LoadedCell]] = {}
    for line, fields in rows:
        words = tuple(map(fields.get, _WORDS_OF_CELLS))
        if words not in known:  # the rows of a file have few different ones
            known[words] = _cell_of(fields, line, where)
        nbytes, pattern, way, under = known[words]
        place, at = (fields["configuration"], nbytes, pattern, way), f"{where}:{line}, column"
        run, iops = _run(fields["run"], f"{at} run"), _iops(fields["iops"], f"{at} iops")
        yield RateRow(line, place, under, fields["client"], run, iops, bool(fields.get("iodepth")))


_WORDS_OF_CELLS = ("size", "pattern", LOAD_COLUMN, *LOAD_COLUMNS)


def _is_valid(fields: Mapping[str, str]) -> bool:
    return fields.get(JUDGEMENT_COLUMNS[0], "").lower() in ("", State.OK.value)


def _first_valid_attempts(rows: Iterable[tuple[int, Mapping[str, str]]]) -> list[tuple[int, Mapping[str, str]]]:
    """Return, of each repeat, the rows of the first attempt in which all clients had a valid sample."""
    repeats: dict[tuple[str, ...], dict[str, list[tuple[int, Mapping[str, str]]]]] = {}
    for line, fields in rows:
        repeat = tuple(fields.get(name, "") for name in (*COLUMNS[:3], "run", LOAD_COLUMN))
        repeats.setdefault(repeat, {}).setdefault(fields.get("attempt", ""), []).append((line, fields))
    valid = (
        next((one for one in attempts.values() if all(_is_valid(f) for _, f in one)), [])
        for attempts in repeats.values()
    )
    return sorted((row for one in valid for row in one), key=lambda row: row[0])


def _cell_of(fields: Mapping[str, str], line: int, where: str) -> tuple[int, Pattern, Way, LoadedCell]:
    place = f"{where}:{line}, column"
    pattern = fields["pattern"].lower()
    if pattern not in list(Pattern):
        raise InputError(
            f"{fields['pattern']!r} is not a pattern",
            where=f"{place} pattern",
            remedy=f"the patterns are fio's {', '.join(Pattern)}",
        )
    way = Way(
        fields.get(LOAD_COLUMN, OWN_LOAD),
        _count(fields.get("iodepth") or "1", f"{place} iodepth", "it is the number of I/Os in flight per client"),
        _count(fields["clients"], f"{place} clients", "it is the number of clients that ran together")
        if fields.get("clients")
        else 0,
        _sync(fields.get("sync", ""), f"{place} sync"),
        _align(fields.get("align", ""), f"{place} align"),
    )
    nbytes = _blocks(fields["size"], f"{place} size", "sizes are multiples of 512 bytes, such as 4K, 24K or 65536")
    return nbytes, Pattern(pattern), way, way.under(nbytes, Pattern(pattern))


_SYNC = re.compile(r"fsync|dsync|every [1-9]\d{0,5}", re.ASCII)
_LEAST_IOPS, _MOST_IOPS = 1e-9, 1e12
"""Other rates are errors: one access in 30 years, or a thousand per nanosecond."""
_COUNT = re.compile(r"0*[1-9]\d{0,5}", re.ASCII)


def _sync(text: str, where: str) -> str:
    sync = " ".join(text.lower().split())
    if sync and not _SYNC.fullmatch(sync):
        raise InputError(
            f"{text!r} is not a way to commit writes",
            where=where,
            remedy="write fsync, dsync or every N (a flush after N writes); leave it empty without commits",
        )
    return sync


def _align(text: str, where: str) -> int:
    if text.lower() in ("", OWN_SIZE):
        return 0
    return _blocks(text, where, f"write a multiple of 512 bytes, such as 4K; {OWN_SIZE} is the block size")


def _blocks(text: str, where: str, remedy: str) -> int:
    nbytes = parse_nbytes(text, where=where)
    if nbytes == 0 or nbytes % LBN_NBYTES:
        raise InputError(f"{text!r} is not a multiple of {LBN_NBYTES} bytes", where=where, remedy=remedy)
    return nbytes


def _count(text: str, where: str, remedy: str) -> int:
    if not _COUNT.fullmatch(text):
        raise InputError(f"{text[:20]!r} is not a number from 1 to 999999", where=where, remedy=remedy)
    return int(text)


def _run(text: str, where: str) -> int:
    run = whole_number(text)
    if run is None:
        raise InputError(f"{text[:20]!r} is not a run number", where=where, remedy="runs count 0, 1, 2 ...")
    return run


def _iops(text: str, where: str) -> float:
    try:
        iops = float(text)
    except ValueError:
        iops = math.nan
    if not _LEAST_IOPS <= iops <= _MOST_IOPS:
        raise InputError(
            f"{text[:30]!r} is not a rate",
            where=where,
            remedy="I/Os per second are a positive number with a decimal point, like 1812.5",
        )
    return iops
