"""Tables that are wider than the terminal: their longest columns of text go over several lines."""

import textwrap
from collections.abc import Collection, Sequence

_LEAST = 14
"""Characters; a column of text narrower than that cannot be read."""
_LONGEST_WORD = 36
"""Characters; the names of most options of Ceph stay whole."""


def fold(
    headers: Sequence[str], rows: Sequence[Sequence[str]], *, width: int, gap: int, right: Collection[int]
) -> list[list[list[str]]]:
    """Each cell as its lines, so that a line of the table fits into ``width`` where that can be.

    Columns of figures (``right``) keep their width. A table that does not fit even so is left as it is: it would
    be broken twice.
    """
    table = [list(headers), *map(list, rows)]
    n = len(headers)
    widths = [max(len(row[i]) for row in table) for i in range(n)]
    words = [max((len(w) for row in table for w in row[i].split()), default=0) for i in range(n)]
    least = [
        widths[i] if i in right else min(widths[i], max(len(headers[i]), min(words[i], _LONGEST_WORD), _LEAST))
        for i in range(n)
    ]
    over = sum(widths) + gap * (n - 1) - width
    while over > 0:
        widest = max(range(n), key=lambda i: (widths[i] - least[i] > 0, widths[i]))
        if widths[widest] <= least[widest]:
            return [[[cell] for cell in row] for row in table]
        widths[widest] -= 1
        over -= 1
    return [[_lines(cell, widths[i]) for i, cell in enumerate(row)] for row in table]


def _lines(text: str, width: int) -> list[str]:
    """A cell's lines; what it begins with stays the indentation of all."""
    indent = text[: len(text) - len(text.lstrip())]
    return (
        textwrap.wrap(text, width, subsequent_indent=indent, break_on_hyphens=False)
        if len(text) > width
        else [text]
    )
