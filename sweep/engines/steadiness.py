"""Whether the rate was steady over the measured time, from a counter that was sampled during it. Pure.

The terms are those of SNIA's test specification for solid state storage (PTS, "steady state"): the slope of a
straight line through the rates moves by no more than 10 % of their mean over the window, and no rate is further
than 20 % from it. The specification looks at five rounds of a minute; here the window is cut into ten parts.
"""

import bisect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

N_PARTS = 10
MOST_DRIFT = 0.10
MOST_EXCURSION = 0.20
LEAST_CHANGES_PER_PART = 5.0
"""With fewer steps of the counter in a part, the parts differ by where the steps fall, not by the rate."""


@dataclass(frozen=True, slots=True)
class Steadiness:
    """How a rate moved over the measured time, relative to its mean.

    Attributes:
        drift: change of the straight line through the parts' rates from the window's start to its end.
        excursion: largest distance of a part's rate from the mean.
    """

    drift: float
    excursion: float

    @property
    def is_steady(self) -> bool:
        return abs(self.drift) <= MOST_DRIFT and self.excursion <= MOST_EXCURSION

    def to_json(self) -> dict[str, Any]:
        return {"steady": self.is_steady, "drift": round(self.drift, 4), "excursion": round(self.excursion, 4)}


def steadiness_of(times: Sequence[float], values: Sequence[int], *, runtime_ns: int) -> Steadiness | None:
    """How steady the counter rose over the last ``runtime_ns`` before its last change.

    Args:
        times: seconds, rising, shape (n,), n >= 2.
        values: the counter, never falling, shape (n,).
        runtime_ns: length of the window.

    Returns:
        None where the counter moved in too few steps to tell, as with few large blocks.
    """
    moved = [i for i in range(1, len(values)) if values[i] != values[i - 1]]
    if not moved:
        return None
    end = times[moved[-1]]
    start = end - runtime_ns / 1e9
    if len(moved) - bisect.bisect_right([times[i] for i in moved], start) < N_PARTS * LEAST_CHANGES_PER_PART:
        return None
    edges = np.interp(np.linspace(start, end, N_PARTS + 1), times, np.asarray(values, dtype=float))
    rates = np.diff(edges)
    mean = float(rates.mean())
    slope = float(np.polyfit(np.arange(N_PARTS), rates, 1)[0])
    return Steadiness(drift=slope * N_PARTS / mean, excursion=float(np.abs(rates / mean - 1).max()))
