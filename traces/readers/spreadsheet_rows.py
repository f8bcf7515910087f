"""Rows as spreadsheets and Windows Performance Analyzer export them: fields in quotation marks, numbers with
separated thousands or hexadecimal."""

import csv
import re
from collections.abc import Sequence

_WORD = re.compile(rb'"((?:[^"]|"")*)"(?!\S)|(\S+)')
"""Between white space: a field in quotation marks, which may hold white space, or anything else."""
_HEXADECIMAL = re.compile(rb"0[xX][0-9a-fA-F]{1,16}")
_GROUPED = re.compile(rb"[1-9]\d{0,2}(?:,\d{3})+(?P<fraction>\.\d+)?")


def plain_fields(
    line: bytes, separator: bytes | None, counts: Sequence[int], others: Sequence[int]
) -> list[bytes]:
    """The row's fields without all that; what is not understood stays, so that the row is refused.

    ``1,500`` may be one and a half where a comma is the decimal point, and then the separator is another one. So
    in a number that may have a fraction, a comma separates thousands only where commas separate fields, too, where
    there are several, or where a point follows.

    Args:
        line: the row.
        separator: between its fields; None: white space.
        counts: columns of whole numbers.
        others: columns of numbers that may have a fraction.
    """
    fields = _words(line) if separator is None else _separated(line, separator)
    for column in (*counts, *others):
        if -len(fields) <= column < len(fields):
            fields[column] = _number(fields[column], surely=column in counts or separator == b",")
    return fields


def _words(line: bytes) -> list[bytes]:
    return [word[2] if word[1] is None else word[1].replace(b'""', b'"').strip() for word in _WORD.finditer(line)]


def _separated(line: bytes, separator: bytes) -> list[bytes]:
    try:
        (words,) = csv.reader([line.decode("latin-1")], delimiter=separator.decode(), skipinitialspace=True)
    except (csv.Error, ValueError):
        return line.split(separator)
    return [word.strip().encode("latin-1") for word in words]


def _number(text: bytes, *, surely: bool) -> bytes:
    if _HEXADECIMAL.fullmatch(text):
        return b"%d" % int(text, 16)
    grouped = _GROUPED.fullmatch(text)
    if grouped and (surely or grouped["fraction"] or text.count(b",") > 1):
        return text.replace(b",", b"")
    return text
