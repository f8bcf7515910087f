"""Which cells make a workload faster or slower on another target: the change of its time by cell. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cephfit.core.values.cells import CELLS, Cell
from cephfit.core.values.profile import Profile
from cephfit.results.statistics.comparison import Change, Row, Served, TargetFigures


@dataclass(frozen=True, slots=True)
class CellPart:
    """One cell's part in the change of a workload's time.

    Attributes:
        cell: of the workload.
        share: part of the workload's time on the first target, 0 to 1.
        effect: change of the cell's time, as a part of the workload's whole time on the first target. The effects
            of all cells add up to T₂ / T₁ - 1, so a negative one shortens the workload.
        figures: of the other target in this cell.
    """

    cell: Cell
    share: float
    effect: float
    figures: TargetFigures

    @property
    def moved(self) -> bool:
        """Whether the cell's rate is distinguishably better or worse."""
        return self.figures.change in (Change.BETTER, Change.WORSE)


def cell_parts(profile: Profile, served: Served, rows: Sequence[Row], target: int) -> tuple[CellPart, ...]:
    """Divide the change of a workload's time between the first target and another one among its cells.

    n_c accesses in cell c at the rate r_c take n_c / r_c seconds, and the workload takes T = Σ n_c / r_c. So the
    part of cell c on the first target is n_c / r_c / T, and its effect is (n_c / r'_c - n_c / r_c) / T with the
    other target's rate r'_c.

    Args:
        profile: of the workload.
        served: the workload under one configuration.
        rows: cells of the same comparison; those of other configurations are ignored.
        target: number of the other target, counted from 0.

    Returns:
        The cells by size of their effect, largest first; empty where one of the two has no rate.
    """
    rates = served.rates[0], served.rates[target]
    if rates[0] is None or rates[1] is None:
        return ()
    omitted = {*rates[0].omitted, *rates[1].omitted}
    in_cells = {row.cell: row for row in rows if row.configuration == served.configuration}
    counts = {c: n for c, n in profile.cell_counts().items() if n > 0 and c not in omitted}
    seconds = {cell: _seconds(cell, n, in_cells, target) for cell, n in counts.items()}
    whole = sum(first for first, _ in seconds.values())
    parts = [
        CellPart(cell, first / whole, (other - first) / whole, in_cells[cell].by_target[target])
        for cell, (first, other) in seconds.items()
    ]
    return tuple(sorted(parts, key=lambda part: (-abs(part.effect), CELLS.index(part.cell))))


def _seconds(cell: Cell, n: float, in_cells: Mapping[Cell, Row], target: int) -> tuple[float, float]:
    first, other = (in_cells[cell].by_target[number].rate for number in (0, target))
    assert first is not None and other is not None, "a workload has a rate only if all its cells have"
    return n / first.mean, n / other.mean
