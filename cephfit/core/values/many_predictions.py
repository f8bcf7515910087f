"""Predictions for many workloads at once, as arrays: for reports on a whole fleet."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cephfit.core.tabular import Table, Tabular


@dataclass(frozen=True, slots=True, eq=False)
class ManyPredictions(Tabular):
    """The performance of K configurations for N workloads, relative to the default.

    Attributes:
        profiles: names of the workloads, N of them.
        configurations: names, K of them, the default first.
        relative: default = 100, more is better; shape (N, K), float64. NaN where a configuration lacks a rate that
            the workload needs.
        low: lower ends of the intervals, shape (N, K).
        high: upper ends of the intervals, shape (N, K).
        best_of: index of the best configuration of each workload, shape (N,): the highest that the measurements
            distinguish from the default as better, else 0, the default.
        models: name of the model that answers for each workload, N of them.
        baselines: source of the rates.
        confidence: level of the intervals, joint over the configurations of each workload.
        notes: caveats for the reader.
    """

    profiles: tuple[str, ...]
    configurations: tuple[str, ...]
    relative: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    best_of: NDArray[np.intp]
    models: tuple[str, ...]
    baselines: str
    confidence: float
    notes: tuple[str, ...] = ()

    @property
    def best(self) -> tuple[str, ...]:
        """The name of the best configuration of each workload."""
        return tuple(self.configurations[k] for k in self.best_of.tolist())

    def _table(self) -> Table:
        rows = tuple(
            (
                *(self.profiles[i], self.models[i], self.configurations[k]),
                *(float(ends[i, k]) for ends in (self.relative, self.low, self.high)),
            )
            for i, k in enumerate(self.best_of.tolist())
        )
        return Table(
            f"{len(self.profiles)} workloads, {len(self.configurations)} configurations, default = 100: the best "
            "for each workload",
            ("profile", "model", "best", "relative", "low", "high"),
            rows,
            self.notes,
        )
