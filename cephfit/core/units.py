"""Units: parse and format sizes and durations. Sizes are powers of two: 4K = 4096 bytes."""

import re

from cephfit.core.errors import InputError

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30
NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
NS_PER_US = 1_000
LBN_NBYTES = 512
"""Bytes of one logical block, the unit of every LBN and seek distance (vscsiStats, blktrace)."""

_FACTORS = {"": 1, "K": KIB, "M": MIB, "G": GIB, "T": 1 << 40}
_SIZE = re.compile(r"^\s*(\d{1,18}(?:\.\d{1,18})?)\s*([KMGT]?)(?:i?B)?\s*$", re.IGNORECASE)


def parse_nbytes(text: str | int, *, where: str = "") -> int:
    """Read a size such as ``4096``, ``4K``, ``512M`` or ``1.5GiB`` as bytes.

    Raises:
        InputError: the text is not a size, or not a whole number of bytes.
    """
    match = _SIZE.match(str(text))
    if match is None:
        raise InputError(
            f"{str(text)[:50]!r} is not a size", where=where, remedy="write it like 4096, 32K, 512M or 10G"
        )
    nbytes = float(match[1]) * _FACTORS[match[2].upper()]
    if nbytes != int(nbytes):
        raise InputError(f"{text!r} is not a whole number of bytes", where=where)
    return int(nbytes)


_WHOLE = re.compile(r"\d{1,18}", re.ASCII)
"""Numbers that a store can have: SQLite's integers have 64 bits."""


def whole_number(text: str) -> int | None:
    """Return a whole number of at most 18 digits, 0 or more; None for any other text."""
    return int(text) if _WHOLE.fullmatch(text) else None


def format_nbytes(nbytes: int) -> str:
    """Format bytes in the shortest form that parses to the same value: 4096 is ``4K``, 4097 is ``4097``."""
    for suffix in ("T", "G", "M", "K"):
        if nbytes and nbytes % _FACTORS[suffix] == 0:
            return f"{nbytes // _FACTORS[suffix]}{suffix}"
    return str(nbytes)


def format_seconds(seconds: float) -> str:
    """Format a duration: ``0.4 s``, ``52 s``, ``3 min 20 s``, ``2 h 5 min``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes % 60 else f"{minutes // 60} h"


_MARGIN = 1.1
"""Required capacity per byte of data: metadata, the write-ahead log, and OSDs that do not fill evenly."""


def format_percent(share: float) -> str:
    """Format a share as percent with two digits, never with an exponent: ``0.39 %``, ``30 %``, ``100 %``."""
    percent = 100 * share
    return f"{percent:,.0f} %" if percent >= 9.95 else f"{percent:.2g} %"


def with_margin(nbytes: int) -> int:
    """Return the free capacity in bytes that writing ``nbytes`` requires."""
    return int(nbytes * _MARGIN)


def about(nbytes: int) -> str:
    """Format a size in whole MiB."""
    return format_nbytes(max(MIB, nbytes - nbytes % MIB))
