"""Names of generated configurations: readable, the same on every machine, and short enough for every report."""

import hashlib
import re
from collections.abc import Sequence

from cephfit.configuration import DEFAULT_CONFIGURATION
from cephfit.sweep.design.factor import Factor, Level

MAX_NAME = 40
"""Characters of a configuration's name, as in ``file_settings.NAME``."""


def as_name(text: str) -> str:
    """Letters, digits, - _ and . only; other characters become -."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._") or "x"


def shortened(text: str, *, tail: str = "") -> str:
    """``text`` + ``tail``; where that is too long, the text is cut and gets four characters of a hash."""
    if len(text) + len(tail) <= MAX_NAME:
        return text + tail
    mark = hashlib.sha256((text + tail).encode()).hexdigest()[:4]
    tail = tail if len(tail) <= MAX_NAME // 2 else ""
    return f"{text[: MAX_NAME - len(tail) - 5].rstrip('-._')}.{mark}{tail}"


def level_name(factor: Factor, level: Level) -> str:
    """The name of a configuration that differs from the default in one factor."""
    said = factor.said_of(level)
    if said == factor.name or not said:
        return shortened(as_name(said))
    return shortened(as_name(factor.name), tail=f"-{as_name(level.label)}")


def row_names(
    prefix: str, factors: Sequence[Factor], rows: Sequence[tuple[Level, ...]], *, numbered: bool
) -> list[str]:
    """Names of a design's rows; a row of defaults is the default.

    Args:
        prefix: of numbers.
        factors: of the design.
        rows: the level of each factor.
        numbered: whether rows are told by their number even where their levels would make short names.
    """
    spoken = [".".join(filter(None, (f.said_of(v) for f, v in zip(factors, row, strict=True)))) for row in rows]
    digits = max(2, len(str(len(rows))))
    if numbered or any(len(as_name(text)) > MAX_NAME for text in spoken):
        names = [shortened(prefix, tail=f"-{number:0{digits}d}") for number in range(1, len(rows) + 1)]
    else:
        names = [as_name(text) for text in spoken]
    return [
        DEFAULT_CONFIGURATION if all(level.is_default for level in row) else name
        for name, row in zip(names, rows, strict=True)
    ]


def sentence(factors: Sequence[Factor], row: tuple[Level, ...]) -> str:
    """What a row is, for people: its levels that are not the default."""
    parts = [
        f.name if f.said_of(level) == f.name else f"{f.name} = {level.label}"
        for f, level in zip(factors, row, strict=True)
        if not level.is_default
    ]
    return ", ".join(parts) or "all factors at their default"
