"""The rate of a run's second half compared with its first: a falling rate was absorbed by a cache. Pure.

A write-back cache, a journal or BlueStore's deferred writes take writes faster than the storage behind them, until
they are full. A run that fills them shows a fall from its first half to its second. A run that ends before they
are full is steady, at the cache's rate: only longer runs show that.

A fall counts where the ratio of the halves is above a limit, and above 1 with a confidence of 97.5 %. The
logarithm of the ratio of two counts n and m has the standard error sqrt(1/n + 1/m) if completions are independent.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cephfit.core.values.cells import Op

MOST_FALL = 1.5
"""Ratio of the first half's rate to the second's above which a sample is marked."""
_Z = 1.96
_LEAST_WINDOWS = 4


@dataclass(frozen=True, slots=True)
class Halves:
    """I/Os that completed in the first and in the second half of the measured time."""

    first: float
    second: float

    @property
    def fell_by(self) -> float:
        """Rate of the first half divided by that of the second, above 0. Half an I/O is added to both."""
        return (self.first + 0.5) / (self.second + 0.5)

    def fell(self, limit: float = MOST_FALL) -> bool:
        """Whether the rate fell by more than a factor, and not by chance."""
        error = math.sqrt(1 / (self.first + 0.5) + 1 / (self.second + 0.5))
        return self.fell_by > limit and math.log(self.fell_by) > _Z * error

    def to_json(self) -> dict[str, Any]:
        """For a sample's evidence."""
        return {
            "ios": [round(self.first, 1), round(self.second, 1)],
            "fell_by": round(self.fell_by, 4),
            "unsteady": self.fell(),
        }


def halves_of_counter(
    times: Sequence[float], values: Sequence[int], *, runtime_ns: int, block_nbytes: int
) -> Halves | None:
    """Return the halves of the last ``runtime_ns`` before a counter's last change; None if it never changed.

    Args:
        times: seconds, rising, shape (n,), n >= 2.
        values: bytes, never falling, shape (n,).
        runtime_ns: measured time.
        block_nbytes: bytes of an I/O.
    """
    moved = [i for i in range(1, len(values)) if values[i] != values[i - 1]]
    if not moved:
        return None
    end = times[moved[-1]]
    edges = (end - runtime_ns / 1e9, end - runtime_ns / 2e9, end)
    start, middle, last = np.interp(edges, times, np.asarray(values, dtype=float))
    return Halves(float(middle - start) / block_nbytes, float(last - middle) / block_nbytes)


def halves_of_log(lines: Iterable[str], op: Op, *, window_seconds: float, ios_per_unit: float) -> Halves | None:
    """Return the halves of a log of fio's rates; None if it has fewer than four windows.

    Args:
        lines: time in ms, mean rate since the window before, direction (0: reads, 1: writes), and more. Windows
            without I/O have no line.
        op: the direction to count.
        window_seconds: length of the windows.
        ios_per_unit: I/Os per second that a rate of 1 means.
    """
    rows = [line.split(",") for line in lines if line.count(",") >= 2]
    found = [(int(row[0]), float(row[1])) for row in rows if int(row[2]) == (0 if op is Op.READ else 1)]
    if not found:
        return None
    # The first window begins one length before its line.
    start, end = found[0][0] - 1000 * window_seconds, found[-1][0]
    if end - start < 1000 * window_seconds * _LEAST_WINDOWS:
        return None
    scale = window_seconds * ios_per_unit
    first = second = 0.0
    for moment, rate in found:
        # A window that contains the middle belongs to both halves in part.
        late = min(1.0, max(0.0, (moment - (start + end) / 2) / (1000 * window_seconds)))
        first += (1 - late) * rate * scale
        second += late * rate * scale
    return Halves(first, second)
