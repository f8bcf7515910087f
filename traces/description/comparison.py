"""How two workloads differ: per size bin, op and randomness, and histogram by histogram, as defined distances.

Cells have no order that means anything between reads and writes or random and sequential, so their distance is the
total variation: half the sum of the absolute differences of the shares. It is the share of accesses that would
have to be of another cell for the workloads to be the same: 0 equal, 1 nothing in common. Histograms do have an
order, so they also get the Kolmogorov-Smirnov distance, the largest difference of the cumulated shares.

Where one of the workloads has accesses of an op of which none could be judged random or not, both are compared by
the op and size alone: what is not known is no difference.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cephfit.cells import SIZE_BINS, Op
from cephfit.profile import Profile


@dataclass(frozen=True, slots=True)
class HistogramDistance:
    """Distances of one histogram of one kind (all, read, write), 0 to 1."""

    name: str
    kind: str
    total_variation: float
    kolmogorov_smirnov: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two workloads beside each other.

    Attributes:
        shares: of each cell in A and in B, 0 to 1, in the order of ``cells.CELLS``; of a size bin's accesses of an
            op instead where the op is ``unjudged``.
        total_variation: over these.
        unjudged: ops of which one workload has accesses, but none that was judged random or not.
        random: share of random accesses by op in A and in B; None where none was judged.
        rates: IOPS and bytes per second in A and in B where both are known.
        histograms: of those that both have in the same limits.
    """

    shares: Mapping[str, tuple[float, float]]
    total_variation: float
    unjudged: tuple[Op, ...]
    random: Mapping[str, tuple[float | None, float | None]]
    rates: Mapping[str, tuple[float, float]]
    histograms: tuple[HistogramDistance, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "total_variation": self.total_variation,
            "cells": {cell: {"a": a, "b": b, "difference": b - a} for cell, (a, b) in self.shares.items()},
            "unjudged": [op.value for op in self.unjudged],
            "random": {op: {"a": a, "b": b} for op, (a, b) in self.random.items()},
            "rates": {name: {"a": a, "b": b} for name, (a, b) in self.rates.items()},
            "histograms": [
                {
                    "name": h.name,
                    "kind": h.kind,
                    "total_variation": h.total_variation,
                    "kolmogorov_smirnov": h.kolmogorov_smirnov,
                }
                for h in self.histograms
            ],
        }


def compared(a: Profile, b: Profile) -> Comparison:
    """Compare two profiles with at least one access each."""
    unjudged = tuple(
        op for op in Op if any(p.random_share(op) is None and any(p.accesses[op].values()) for p in (a, b))
    )
    of_a, of_b = _shares(a, unjudged), _shares(b, unjudged)
    shares = {name: (of_a[name], of_b[name]) for name in of_a}
    rates = {
        name: (float(a.description[name]), float(b.description[name]))
        for name in ("iops", "bytes_per_second")
        if a.description.get(name) and b.description.get(name)
    }
    return Comparison(
        shares,
        total_variation(list(of_a.values()), list(of_b.values())),
        unjudged,
        {op.value: (a.random_share(op), b.random_share(op)) for op in Op},
        rates,
        tuple(_histogram_distances(a.description.get("histograms", {}), b.description.get("histograms", {}))),
    )


def _shares(profile: Profile, unjudged: Sequence[Op]) -> dict[str, float]:
    """Of each cell, or of each size bin where an op's randomness is not known."""
    counts = {str(cell): n for cell, n in profile.cell_counts().items() if cell.pattern.op not in unjudged}
    for op in unjudged:
        counts |= {
            f"{size.name}-{op.value}-or-rand{op.value}": profile.accesses[op][size.name] for size in SIZE_BINS
        }
    return {name: n / profile.n_accesses for name, n in counts.items()}


def total_variation(a: Sequence[float], b: Sequence[float]) -> float:
    """Half the sum of absolute differences of two distributions that sum up to 1 each."""
    return float(np.abs(np.asarray(a) - np.asarray(b)).sum() / 2)


def kolmogorov_smirnov(a: Sequence[float], b: Sequence[float]) -> float:
    """The largest difference of the cumulated shares of two distributions over the same ordered bins."""
    return float(np.abs(np.cumsum(a) - np.cumsum(b)).max())


def _histogram_distances(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[HistogramDistance]:
    found = []
    for name in a:
        for kind in a[name]:
            other = b.get(name, {}).get(kind)
            mine = a[name][kind]
            if (
                other is None
                or other["limits"] != mine["limits"]
                or not sum(mine["counts"])
                or not sum(other["counts"])
            ):
                continue
            x, y = (np.array(h["counts"], float) / sum(h["counts"]) for h in (mine, other))
            found.append(
                HistogramDistance(
                    name, kind, total_variation(x.tolist(), y.tolist()), kolmogorov_smirnov(x.tolist(), y.tolist())
                )
            )
    return found
