"""Decimal numbers in text, eight digits in one step, inside compiled loops."""

import numpy as np

from cephfit.traces.compiled import inlined
from cephfit.traces.lines.byte_masks import eight_bytes

BEFORE_NBYTES = 24
"""Bytes before the end of a number that may be loaded with it."""

MOST_DIGITS = 18

_ZEROS = np.uint64(0x3030303030303030)
_ABOVE_NINE = np.uint64(0x7676767676767676)
_TOP_BITS = np.uint64(0x8080808080808080)
_PAIRS, _FOURS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
_TENS, _HUNDREDS, _THOUSANDS = np.uint64(10 << 8 | 1), np.uint64(100 << 16 | 1), np.uint64(10000 << 32 | 1)
_8, _16, _32 = np.uint64(8), np.uint64(16), np.uint64(32)


@inlined
def of_word(word: np.uint64, n: int) -> tuple[int, np.uint64]:
    """The value of the ``n`` digits at a word's end, 0 to 8, and 0 if all of them are digits.

    What stands before them is shifted out, so that zeros stand there; then neighbours are added up, ten times the
    first one and once the second: digits to pairs, pairs to fours, fours to eight.
    """
    others = np.uint64(64 - 8 * n)
    word = ((word ^ _ZEROS) >> others) << others if n > 0 else np.uint64(0)
    wrong = (word | (word + _ABOVE_NINE)) & _TOP_BITS
    word = ((word * _TENS) >> _8) & _PAIRS
    word = ((word * _HUNDREDS) >> _16) & _FOURS
    return np.int64((word * _THOUSANDS) >> _32), wrong  # type: ignore[return-value]


@inlined
def number(begin: int, end: int) -> tuple[int, bool]:
    """The number that stands there, and whether it is one: 1 to 18 digits."""
    n = end - begin
    good = n >= 1 and n <= MOST_DIGITS
    value, wrong = of_word(eight_bytes(end - 8), max(min(n, 8), 0))
    if n > 8:
        more, wrong_too = of_word(eight_bytes(end - 16), min(n - 8, 8))
        value += more * 100_000_000
        wrong |= wrong_too
        if n > 16:
            more, wrong_too = of_word(eight_bytes(end - 24), min(n - 16, 8))
            value += more * 10_000_000_000_000_000
            wrong |= wrong_too
    return value, good and wrong == np.uint64(0)
