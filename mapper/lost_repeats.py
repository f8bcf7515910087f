"""Repeats that gave no figure: what is ranked is only what was left."""

from collections import Counter
from collections.abc import Sequence

from cephfit.baseline import Baselines
from cephfit.cells import Cell

_REASONS = 2


def lost_repeats(baselines: Baselines, configurations: Sequence[str], cells: Sequence[Cell]) -> list[str]:
    """A note on each configuration of which some repeats gave no figure in cells that the workload uses."""
    notes = []
    for name in configurations:
        lost = Counter(reason for cell in cells for reason in baselines.lost.get((name, cell), ()))
        if lost:
            gave = sum(len(baselines.of(name, cell).iops) for cell in cells)
            why = "; ".join(f"{n} x {reason}" for reason, n in lost.most_common(_REASONS))
            more = "; and others" if len(lost) > _REASONS else ""
            notes.append(
                f"{name}: {gave} of {gave + lost.total()} repeats in the workload's cells gave a figure, and only "
                f"these count ({why}{more})"
            )
    return notes
