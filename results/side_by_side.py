"""The same configurations in the same cells on several targets, held against the first of them. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from cephfit.baseline import Baseline, Baselines
from cephfit.cells import CELLS, Cell
from cephfit.results import statistics
from cephfit.results.heat import cell_spread
from cephfit.results.scaling import Level
from cephfit.results.statistics import CONFIDENCE


@dataclass(frozen=True, slots=True)
class There:
    """What one target gave in one cell.

    Attributes:
        rate: I/Os per second of all clients together; None where there is no baseline.
        n_repeats: behind it.
        ratio: rate against the first target's; None for the first itself, or where one of the two is missing.
        missing: why there is no baseline.
    """

    rate: Level | None
    n_repeats: int
    ratio: Level | None
    missing: str = ""

    @property
    def differs(self) -> bool | None:
        """Whether the interval of the ratio leaves out 1; None where nobody can tell."""
        if self.ratio is None or self.ratio.interval is None:
            return None
        return 1.0 not in self.ratio.interval


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration in one cell on every target, in the targets' order."""

    configuration: str
    cell: Cell
    there: tuple[There, ...]


def rows_of(targets: Sequence[Baselines], *, confidence: float = CONFIDENCE) -> tuple[Row, ...]:
    """Every configuration and cell that any target has been measured or tried in.

    Args:
        targets: of one load each; the others are held against the first.
        confidence: of each interval by itself.
    """
    places = {place for target in targets for place in (*target.cells, *target.missing)}
    names = dict.fromkeys(name for target in targets for name in target.configurations)
    names |= dict.fromkeys(name for name, _ in places)
    return tuple(
        Row(name, cell, tuple(_there(targets, number, name, cell, confidence) for number in range(len(targets))))
        for name in names
        for cell in CELLS
        if (name, cell) in places
    )


def _there(targets: Sequence[Baselines], number: int, name: str, cell: Cell, confidence: float) -> There:
    target, first = targets[number], targets[0]
    baseline = target.cells.get((name, cell))
    if baseline is None:
        return There(None, 0, None, target.missing.get((name, cell), "not measured there"))
    rate = Level(
        statistics.mean(baseline.iops),
        statistics.level_interval(baseline.iops, cell_spread(target, cell), confidence=confidence),
    )
    reference = first.cells.get((name, cell))
    if number == 0 or reference is None:
        return There(rate, len(baseline.iops), None)
    return There(rate, len(baseline.iops), _ratio(target, first, baseline, reference, confidence))


def _ratio(
    target: Baselines, first: Baselines, baseline: Baseline, reference: Baseline, confidence: float
) -> Level:
    cell = baseline.cell
    return Level(
        statistics.ratio(baseline.iops, reference.iops),
        statistics.welch_ratio_interval(
            baseline.iops,
            reference.iops,
            cell_spread(target, cell),
            cell_spread(first, cell),
            confidence=confidence,
        ),
    )
