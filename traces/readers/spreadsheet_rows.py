"""Rows as spreadsheets and Windows Performance Analyzer export them: fields in quotation marks, numbers with
separated thousands or hexadecimal."""

import csv
import re
from collections.abc import Sequence

_HEXADECIMAL = re.compile(rb"0[xX][0-9a-fA-F]{1,16}")
_GROUPED = re.compile(rb"[1-9]\d{0,2}(?:,\d{3})+(?P<fraction>\.\d+)?")


def plain_fields(line: bytes, separator: bytes, counts: Sequence[int], others: Sequence[int]) -> list[bytes]:
    """The row's fields without all that; what is not understood stays, so that the row is refused.

    ``1,500`` may be one and a half where a comma is the decimal point, and then the separator is another one. So
    in a number that may have a fraction, a comma separates thousands only where commas separate fields, too, where
    there are several, or where a point follows.

    Args:
        line: the row.
        separator: between its fields.
        counts: columns of whole numbers.
        others: columns of numbers that may have a fraction.
    """
    try:
        (words,) = csv.reader([line.decode("latin-1")], delimiter=separator.decode(), skipinitialspace=True)
    except (csv.Error, ValueError):
        return line.split(separator)
    fields = [word.strip().encode("latin-1") for word in words]
    for column in (*counts, *others):
        if -len(fields) <= column < len(fields):
            fields[column] = _number(fields[column], surely=column in counts or separator == b",")
    return fields


def _number(text: bytes, *, surely: bool) -> bytes:
    if _HEXADECIMAL.fullmatch(text):
        return b"%d" % int(text, 16)
    grouped = _GROUPED.fullmatch(text)
    if grouped and (surely or grouped["fraction"] or text.count(b",") > 1):
        return text.replace(b",", b"")
    return text
