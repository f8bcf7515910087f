"""Cells that were not measured and have a negligible part of a workload: what omitting them can change. Pure.

Predictions and the rate of the default, which is their 100, omit the same cells.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import Cell, Pattern
from cephfit.core.values.prediction_model import model_called

LIMIT = 1e-3
"""Largest part of the accesses, and of the default's time, that may be in omitted cells."""
_FACTOR = 10
"""A configuration is assumed to be at most this many times faster or slower than the default in such a cell. The
largest single effects in Meyer (2017) and in sweeps of the lab are sixfold."""


@dataclass(frozen=True, slots=True)
class OmittedCells:
    """The cells that a prediction omits.

    Attributes:
        counts: accesses per remaining cell.
        note: sentence on the omitted cells; empty if there are none.
        weight: upper limit of the omitted part in the model's measure, relative to the remaining part.
        adds_time: whether that measure is time.
        cells: the omitted cells.
    """

    counts: Mapping[Cell, float]
    note: str = ""
    weight: float = 0.0
    adds_time: bool = True
    cells: tuple[Cell, ...] = ()

    def widened(self, low: float, high: float) -> tuple[float, float]:
        """Widen an interval of relative performance, default = 100, so that it covers the omitted cells."""
        if not self.weight:
            return low, high
        return (
            min(low, self._with(low, 1 / _FACTOR)) if low > 0 else low,
            max(high, self._with(high, _FACTOR)) if math.isfinite(high) else high,
        )

    def _with(self, relative: float, ratio: float) -> float:
        """The relative performance if that in the omitted cells is ``ratio``."""
        if self.adds_time:
            return (1 + self.weight) / (1 / relative + self.weight / (100 * ratio))
        return (relative + self.weight * 100 * ratio) / (1 + self.weight)


def omitted_cells(counts: Mapping[Cell, float], baselines: Baselines, model: str) -> OmittedCells:
    """Return the cells without a baseline of the default if they are at most ``LIMIT`` of the workload, else none.

    The time of an access in such a cell is unknown. It is assumed not to exceed the time of the same bytes in
    smaller accesses, nor that of a larger access; and a sequential access takes at most the time of a random one.

    Args:
        counts: accesses per cell that the workload uses.
        baselines: of the sweep.
        model: name; models that add time weight cells by time, others by accesses.
    """
    kept = {cell: n for cell, n in counts.items() if (baselines.default, cell) in baselines.cells}
    gone = {cell: n for cell, n in counts.items() if cell not in kept}
    part = math.fsum(gone.values()) / math.fsum(counts.values())
    everything = OmittedCells(counts)
    if not gone or not kept or part > LIMIT:
        return everything
    adds_time = model_called(model).adds_time
    weight = part / (1 - part)
    if adds_time:
        seconds = {cell: _seconds(cell, baselines) for cell in counts}
        weight = math.fsum(n * seconds[c] for c, n in gone.items()) / math.fsum(
            n * seconds[c] for c, n in kept.items()
        )
    if weight > LIMIT:
        return everything
    why = dict.fromkeys(baselines.missing.get((baselines.default, c), "it was not measured") for c in gone)
    of_time = f" and at most {100 * weight:.2g} % of the default's time" if adds_time else ""
    note = (
        f"omitted: {', '.join(map(str, gone))} ({'; '.join(why)}), with {100 * part:.2g} % of the accesses"
        f"{of_time}; the intervals cover configurations that are up to {_FACTOR} times faster or "
        "slower there than the default"
    )
    return OmittedCells(kept, note, weight, adds_time, tuple(gone))


def _seconds(cell: Cell, baselines: Baselines) -> float:
    """The time of an access under the default: as measured, else an upper limit; infinite if unknown."""
    own = baselines.cells.get((baselines.default, cell))
    if own is not None:
        return len(own.iops) / math.fsum(own.iops)
    bounds = [math.inf]
    for (name, other), baseline in baselines.cells.items():
        no_faster = other.pattern in (cell.pattern, Pattern.of(cell.pattern.op, is_random=True))
        if name == baselines.default and no_faster:
            pieces = max(1.0, cell.size.benchmark_nbytes / other.size.benchmark_nbytes)
            bounds.append(pieces * len(baseline.iops) / math.fsum(baseline.iops))
    return min(bounds)
