"""How two workloads differ: per size bin, op and randomness, and histogram by histogram, as defined distances.

Cells have no order that means anything between reads and writes or random and sequential, so their distance is the
total variation: half the sum of the absolute differences of the shares. It is the share of accesses that would
have to be of another cell for the workloads to be the same: 0 equal, 1 nothing in common. Histograms do have an
order, so they also get the Kolmogorov-Smirnov distance, the largest difference of the cumulated shares.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cephfit.cells import CELLS, Cell
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
        shares: of each cell in A and in B, 0 to 1, in the order of CELLS.
        total_variation: over the cells.
        random: share of random accesses by op in A and in B; None where there is no such access.
        rates: IOPS and bytes per second in A and in B where both are known.
        histograms: of those that both have in the same limits.
    """

    shares: Mapping[Cell, tuple[float, float]]
    total_variation: float
    random: Mapping[str, tuple[float | None, float | None]]
    rates: Mapping[str, tuple[float, float]]
    histograms: tuple[HistogramDistance, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "total_variation": self.total_variation,
            "cells": {str(cell): {"a": a, "b": b, "difference": b - a} for cell, (a, b) in self.shares.items()},
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
    counts = a.cell_counts(), b.cell_counts()
    shares = {cell: (counts[0][cell] / a.n_accesses, counts[1][cell] / b.n_accesses) for cell in CELLS}
    rates = {
        name: (float(a.description[name]), float(b.description[name]))
        for name in ("iops", "bytes_per_second")
        if a.description.get(name) and b.description.get(name)
    }
    return Comparison(
        shares,
        total_variation([x for x, _ in shares.values()], [y for _, y in shares.values()]),
        {
            op.value: (
                a.random[op] if sum(a.accesses[op].values()) else None,
                b.random[op] if sum(b.accesses[op].values()) else None,
            )
            for op in a.random
        },
        rates,
        tuple(_histogram_distances(a.description.get("histograms", {}), b.description.get("histograms", {}))),
    )


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
