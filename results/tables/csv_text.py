"""CSV with named columns: write it, and read it with errors that name the line and the column.

Columns may be separated by commas, semicolons or tabs, as spreadsheets of several countries write them.
"""

import codecs
import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from cephfit.core.errors import InputError

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
