"""CSV with named columns: write it, and read it with errors that name the line and the column."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from cephfit.core.errors import InputError


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
        InputError: it cannot be read, or is not UTF-8 text; with ``remedy``.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise InputError("not a CSV file (not UTF-8 text)", where=str(path), remedy=remedy) from None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None


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
        InputError: it is not CSV, a required column is missing or empty, or a column occurs twice.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = _columns(next(reader, []), required, optional, where, remedy)
        while True:
            line = reader.line_num + 1
            cells = next(reader, None)
            if cells is None:
                return
            if not any(cell.strip() for cell in cells):
                continue
            fields = {name: cells[at].strip() if at < len(cells) else "" for name, at in columns.items()}
            for name in required:
                if not fields[name] and not may_be_empty(fields):
                    raise InputError("this field is empty", where=f"{where}:{line}, column {name}", remedy=remedy)
            yield line, fields
    except csv.Error as error:
        raise InputError(f"not CSV: {error}", where=f"{where}:{reader.line_num}", remedy=remedy) from None


def _columns(
    header: Sequence[str], required: Sequence[str], optional: Sequence[str], where: str, remedy: str
) -> dict[str, int]:
    names = [name.strip().lower() for name in header]
    for name in required:
        if name not in names:
            raise InputError(f"there is no column {name!r}", where=f"{where}:1", remedy=remedy)
    known = (*required, *optional)
    for name in known:
        if names.count(name) > 1:
            raise InputError(f"there are two columns {name!r}", where=f"{where}:1", remedy=remedy)
    return {name: names.index(name) for name in known if name in names}
