"""What was measured of one kind of access at one load: rate, mean latency and percentiles."""

from collections.abc import Mapping
from dataclasses import dataclass

from cephfit.core.values.cells import LoadedCell


@dataclass(frozen=True, slots=True)
class LevelFigures:
    """One repeat of one kind of access at one load, all clients together.

    Attributes:
        iops: I/Os per second, > 0.
        mean_ns: mean completion latency over all I/Os, > 0.
        quantiles_ns: latency at each percentile of ``MeasuredLevels.percentiles``, > 0.
    """

    iops: float
    mean_ns: float
    quantiles_ns: tuple[float, ...]


Place = tuple[str, LoadedCell, int]
"""Configuration, kind of access (its ``iodepth`` is 1), and I/Os in flight over all clients."""


@dataclass(frozen=True, slots=True)
class MeasuredLevels:
    """The figures of a run by load.

    Attributes:
        percentiles: that every sample has, ascending; empty if there is none.
        figures: by place, and there by repeat.
    """

    percentiles: tuple[float, ...]
    figures: Mapping[Place, Mapping[int, LevelFigures]]

    @property
    def configurations(self) -> tuple[str, ...]:
        """Names in the order of first appearance."""
        return tuple(dict.fromkeys(name for name, _, _ in self.figures))
