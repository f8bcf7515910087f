"""Values that are tables: as a pandas data frame, in a terminal by rich, in a notebook as HTML."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Literal, TypeVar, overload

from cephfit.core.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas
    from rich.console import Console, ConsoleOptions, RenderableType

_Item = TypeVar("_Item")

_SHOWN_ROWS = 40
"""Rows shown in a terminal or notebook; the data frame has all rows."""
_NAME = 16
"""Shortest width, in characters, to which a text column is folded in a narrow terminal."""


_PRINTED_WIDTH = 120
"""Characters of a line that ``print`` shows."""


@dataclass(frozen=True, slots=True)
class Table:
    """The title, columns, rows and notes of a value.

    Attributes:
        title: one line.
        columns: names, with the unit where one is needed (``iops``, ``error_pct``).
        rows: one value per column; None where a value is unknown.
        notes: caveats for the reader, shown below the rows.
        shown: the columns that fit a terminal; empty: all. The data frame has all columns.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[object, ...], ...]
    notes: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()

    def as_shown(self) -> Table:
        """Return the table with only its ``shown`` columns."""
        if not self.shown:
            return self
        places = [self.columns.index(name) for name in self.shown]
        rows = tuple(tuple(row[place] for place in places) for row in self.rows)
        return Table(self.title, self.shown, rows, self.notes)


class Tabular:
    """Base of values that can be shown as one table."""

    __slots__ = ()

    @abstractmethod
    def _table(self) -> Table:
        """Return the table: all rows, unrounded."""

    def to_frame(self) -> pandas.DataFrame:
        """All rows as a pandas data frame, unrounded. Unknown values are missing values.

        The title is ``frame.attrs["title"]``, the notes are ``frame.attrs["notes"]``.

        Raises:
            HostError: pandas is not installed.
        """
        try:
            import pandas
        except ImportError:
            raise HostError(
                "the Python package pandas is not installed",
                where="to_frame()",
                remedy="pip install 'cephfit[pandas]'",
            ) from None
        table = self._table()
        frame = pandas.DataFrame.from_records(list(table.rows), columns=list(table.columns))
        frame.attrs = {"title": table.title, "notes": list(table.notes)}
        return frame

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        """What rich shows in a terminal."""
        from rich import box
        from rich.table import Table as RichTable
        from rich.text import Text

        table = self._table().as_shown()
        yield Text(table.title, style="bold")
        if table.rows:
            shown = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_edge=False)
            numeric = _numeric(table)
            for index, column in enumerate(table.columns):
                # A name that is wider than its values goes over several lines.
                width = max(map(len, column.split("_")))
                if index not in numeric:
                    width = max(width, *(min(_NAME, len(_text(row[index]))) for row in table.rows))
                side: Literal["left", "right"] = "right" if index in numeric else "left"
                shown.add_column(Text(column.replace("_", "\n")), justify=side, min_width=width, overflow="fold")
            for row in table.rows[:_SHOWN_ROWS]:
                shown.add_row(*(Text(_text(value)) for value in row))
            yield shown
        for line in (*_more(table), *table.notes):
            yield Text(line)

    def __str__(self) -> str:
        """What ``print`` shows: the same as in a terminal, without colours."""
        from io import StringIO

        from rich.console import Console

        text = StringIO()
        Console(file=text, width=_PRINTED_WIDTH, color_system=None).print(self)
        return text.getvalue().rstrip("\n")

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        table = self._table().as_shown()
        numeric = _numeric(table)
        head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
        body = "".join(
            "<tr>"
            + "".join(
                f'<td style="text-align: {"right" if index in numeric else "left"}">{escape(_text(value))}</td>'
                for index, value in enumerate(row)
            )
            + "</tr>"
            for row in table.rows[:_SHOWN_ROWS]
        )
        rows = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if table.rows else ""
        notes = "".join(f"<p>{escape(line)}</p>" for line in (*_more(table), *table.notes))
        return f"<p><b>{escape(table.title)}</b></p>{rows}{notes}"


class TabularSequence(Tabular, Sequence[_Item]):
    """Base of immutable sequences that are shown as one table."""

    def __init__(self, items: Sequence[_Item]) -> None:
        self._items = tuple(items)

    @overload
    def __getitem__(self, index: int) -> _Item: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[_Item]: ...
    def __getitem__(self, index: int | slice) -> _Item | Sequence[_Item]:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self)}>"


def _more(table: Table) -> tuple[str, ...]:
    left = len(table.rows) - _SHOWN_ROWS
    return (f"{left} more rows; .to_frame() has all of them",) if left > 0 else ()


def _numeric(table: Table) -> frozenset[int]:
    """Columns of numbers, which are aligned right."""
    columns = (tuple(row[index] for row in table.rows) for index in range(len(table.columns)))
    return frozenset(index for index, values in enumerate(columns) if all(map(_is_number, values)))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | None) and not isinstance(value, bool)


def _text(value: object) -> str:
    """Format a value for display: floats with four significant digits, or as whole numbers from 1000."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
