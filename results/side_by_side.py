"""The same configurations in the same cells on several targets, held against the first of them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cephfit.baseline import Baseline, Baselines
from cephfit.cells import CELLS, Cell
from cephfit.results import statistics
from cephfit.results.cell_intervals import own_spreads
from cephfit.results.scaling import Level
from cephfit.results.statistics import CONFIDENCE, Spread


@dataclass(frozen=True, slots=True)
class There:
    """What one target gave in one cell.

    Attributes:
        rate: I/Os per second of all clients together, over all repeats; None where there is no baseline.
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
    # Once for each target: it draws on all of its configurations.
    sides = [_Side(target, own_spreads(target)) for target in targets]
    names = dict.fromkeys(name for target in targets for name in target.configurations)
    names |= dict.fromkeys(name for name, _ in places)
    return tuple(
        Row(name, cell, tuple(_there(side, sides[0], name, cell, confidence) for side in sides))
        for name in names
        for cell in CELLS
        if (name, cell) in places
    )


@dataclass(frozen=True, slots=True)
class _Side:
    """A target's baselines, and how the repeats of each scatter."""

    baselines: Baselines
    spreads: Mapping[tuple[str, Cell], Spread]


def _there(side: _Side, first: _Side, name: str, cell: Cell, confidence: float) -> There:
    baseline = side.baselines.cells.get((name, cell))
    if baseline is None:
        return There(None, 0, None, side.baselines.missing.get((name, cell), "not measured there"))
    rate = Level(
        statistics.mean(baseline.iops),
        statistics.level_interval(baseline.iops, side.spreads.get((name, cell)), confidence=confidence),
    )
    reference = first.baselines.cells.get((name, cell))
    if side is first or reference is None:
        return There(rate, len(baseline.iops), None)
    return There(rate, len(baseline.iops), _ratio(side, first, baseline, reference, confidence))


def _ratio(side: _Side, first: _Side, baseline: Baseline, reference: Baseline, confidence: float) -> Level:
    place = baseline.configuration, baseline.cell
    return Level(
        statistics.ratio(baseline.iops, reference.iops),
        statistics.welch_ratio_interval(
            baseline.iops,
            reference.iops,
            side.spreads.get(place),
            first.spreads.get(place),
            confidence=confidence,
        ),
    )
