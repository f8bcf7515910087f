"""Cells that carry next to nothing of a workload and were not measured: left out, and what that can change. Pure.

One limit for all: what a prediction does without, the rate that its 100 stands for does without, too.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import Cell, Pattern
from cephfit.core.values.prediction_model import model_called

LIMIT = 1e-3
"""Part of the accesses, and of the default's time, that may lie in cells that were not measured."""
_FACTOR = 10
"""How many times faster or slower than the default a configuration is supposed to be in such a cell at most. The
largest single effects that Meyer (2017) and the lab's sweeps found are sixfold."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What a prediction does without.

    Attributes:
        counts: accesses per cell that is left.
        note: what was left out; empty if nothing was.
        weight: of what was left out in the model's measure, at most, as a part of what is left.
        adds_time: whether that measure is time.
        cells: that were left out.
    """

    counts: Mapping[Cell, float]
    note: str = ""
    weight: float = 0.0
    adds_time: bool = True
    cells: tuple[Cell, ...] = ()

    def widened(self, low: float, high: float) -> tuple[float, float]:
        """An interval of relative performance, default = 100, that also holds what was left out."""
        if not self.weight:
            return low, high
        return (
            min(low, self._with(low, 1 / _FACTOR)) if low > 0 else low,
            max(high, self._with(high, _FACTOR)) if math.isfinite(high) else high,
        )

    def _with(self, relative: float, ratio: float) -> float:
        """The relative performance if that in the cells left out were ``ratio``."""
        if self.adds_time:
            return (1 + self.weight) / (1 / relative + self.weight / (100 * ratio))
        return (relative + self.weight * 100 * ratio) / (1 + self.weight)


def left_out_of(counts: Mapping[Cell, float], baselines: Baselines, model: str) -> LeftOut:
    """What the default has no baseline for, where that is at most ``LIMIT`` of the workload; nothing otherwise.

    What an access takes in a cell that was not measured is not known. It is supposed to take no longer than the
    same bytes in smaller accesses, nor than a larger access; and a sequential one no longer than a random one.

    Args:
        counts: accesses per cell that the workload uses.
        baselines: of the sweep.
        model: name; those that add time weigh cells by the time they take, others by their accesses.
    """
    kept = {cell: n for cell, n in counts.items() if (baselines.default, cell) in baselines.cells}
    gone = {cell: n for cell, n in counts.items() if cell not in kept}
    part = math.fsum(gone.values()) / math.fsum(counts.values())
    everything = LeftOut(counts)
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
        f"left out: {', '.join(map(str, gone))} ({'; '.join(why)}), with {100 * part:.2g} % of the accesses"
        f"{of_time}; the intervals hold whatever a configuration does there, up to {_FACTOR} times faster or "
        "slower than the default"
    )
    return LeftOut(kept, note, weight, adds_time, tuple(gone))


def _seconds(cell: Cell, baselines: Baselines) -> float:
    """The time of an access under the default: as measured, else at most; infinite where nothing tells."""
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
