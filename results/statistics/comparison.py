"""The same configurations on several targets, compared with the first: in cells and for workloads. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import CELLS, Cell
from cephfit.core.values.profile import Profile
from cephfit.results.statistics import summary_statistics
from cephfit.results.statistics.scaling import Level
from cephfit.results.statistics.summary_statistics import CONFIDENCE, Spread, holm_adjusted, own_spreads
from cephfit.results.statistics.workload_rate import WorkloadRate, why_no_rate, workload_rates


class Change(StrEnum):
    """The verdict on a target's rate, compared with the first target's."""

    WORSE = "worse"
    BETTER = "better"
    NONE = "not distinguishable"
    UNKNOWN = "not comparable"


@dataclass(frozen=True, slots=True)
class TargetFigures:
    """The figures of one target in one cell, or for one workload.

    Attributes:
        rate: I/Os per second of all clients together, over all repeats; None without a baseline.
        n_repeats: number of repeats.
        ratio: rate against the first target's; None for the first itself, or where one of the two is missing.
        missing: reason why there is no baseline; empty if there is one.
        p_value: of "no difference beyond the tolerance", by itself; None without an interval of the ratio.
        adjusted_p: the same, adjusted for the number of comparisons; None if that was not done.
    """

    rate: Level | None
    n_repeats: int
    ratio: Level | None
    missing: str = ""
    p_value: float | None = None
    adjusted_p: float | None = None

    @property
    def differs(self) -> bool | None:
        """Whether the interval of the ratio excludes 1; None without an interval."""
        if self.ratio is None or self.ratio.interval is None:
            return None
        return 1.0 not in self.ratio.interval

    @property
    def change(self) -> Change:
        """The verdict after adjustment for the number of comparisons."""
        if self.ratio is None or self.adjusted_p is None:
            return Change.UNKNOWN
        if self.adjusted_p >= 1 - CONFIDENCE:
            return Change.NONE
        return Change.WORSE if self.ratio.mean < 1 else Change.BETTER


@dataclass(frozen=True, slots=True)
class Row:
    """One configuration in one cell on every target, in the targets' order."""

    configuration: str
    cell: Cell
    by_target: tuple[TargetFigures, ...]


def rows_of(
    targets: Sequence[Baselines], *, confidence: float = CONFIDENCE, tolerance: float = 0.0
) -> tuple[Row, ...]:
    """Return every configuration and cell that was measured or tried on any target.

    Args:
        targets: of one load each; the others are compared with the first.
        confidence: level of each interval by itself.
        tolerance: difference that the p values allow (``welch_ratio_p_value``).
    """
    places = {place for target in targets for place in (*target.cells, *target.missing)}
    # Once for each target, because it uses all of its configurations.
    measured = [_TargetBaselines(target, own_spreads(target)) for target in targets]
    levels = _Levels(confidence, tolerance)
    names = dict.fromkeys(name for target in targets for name in target.configurations)
    names |= dict.fromkeys(name for name, _ in places)
    return tuple(
        Row(name, cell, tuple(_figures_on(target, measured[0], name, cell, levels) for target in measured))
        for name in names
        for cell in CELLS
        if (name, cell) in places
    )


@dataclass(frozen=True, slots=True)
class _Levels:
    """The confidence of intervals, and the difference that p values allow."""

    confidence: float
    tolerance: float


@dataclass(frozen=True, slots=True)
class _TargetBaselines:
    """A target's baselines, and the scatter of their repeats."""

    baselines: Baselines
    spreads: Mapping[tuple[str, Cell], Spread]


def _figures_on(
    target: _TargetBaselines, first: _TargetBaselines, name: str, cell: Cell, levels: _Levels
) -> TargetFigures:
    baseline = target.baselines.cells.get((name, cell))
    if baseline is None:
        return TargetFigures(None, 0, None, target.baselines.missing.get((name, cell), "not measured there"))
    rate = Level(
        summary_statistics.mean(baseline.iops),
        summary_statistics.level_interval(
            baseline.iops, target.spreads.get((name, cell)), confidence=levels.confidence
        ),
    )
    reference = first.baselines.cells.get((name, cell))
    if target is first or reference is None:
        return TargetFigures(rate, len(baseline.iops), None)
    spreads = target.spreads.get((name, cell)), first.spreads.get((name, cell))
    return _against_first(rate, len(baseline.iops), baseline.iops, reference.iops, spreads, levels)


def _against_first(
    rate: Level,
    n_repeats: int,
    values: Sequence[float],
    reference: Sequence[float],
    spreads: tuple[Spread | None, Spread | None],
    levels: _Levels,
) -> TargetFigures:
    """Return the figures of another target than the first."""
    interval = summary_statistics.welch_ratio_interval(values, reference, *spreads, confidence=levels.confidence)
    p_value = summary_statistics.welch_ratio_p_value(values, reference, *spreads, tolerance=levels.tolerance)
    return TargetFigures(
        rate, n_repeats, Level(summary_statistics.ratio(values, reference), interval), p_value=p_value
    )


Rates = Mapping[str, WorkloadRate]


@dataclass(frozen=True, slots=True)
class Served:
    """A workload under one configuration on every target, in the targets' order.

    Attributes:
        workload: the profile's name.
        configuration: name.
        by_target: figures, with rates in accesses of the mix per second, all clients together.
        rates: the underlying rates; None where the configuration was not measured in all cells of the workload.
    """

    workload: str
    configuration: str
    by_target: tuple[TargetFigures, ...]
    rates: tuple[WorkloadRate | None, ...]


def served_of(
    profile: Profile, targets: Sequence[Baselines], *, confidence: float = CONFIDENCE, tolerance: float = 0.0
) -> tuple[Served, ...]:
    """Return the workload under every configuration that was measured or tried on any target.

    Args:
        profile: of the workload; its mix adds up as time (``workload_rates``).
        targets: of one load each; the others are compared with the first.
        confidence: level of each interval by itself.
        tolerance: difference that the p values allow (``welch_ratio_p_value``).
    """
    levels = _Levels(confidence, tolerance)
    of_targets = [workload_rates(profile, baselines, confidence=confidence) for baselines in targets]
    names = dict.fromkeys(name for baselines in targets for name in baselines.configurations)
    names |= dict.fromkeys(name for baselines in targets for name, _ in baselines.missing)
    found = []
    for name in names:
        rates = tuple(of_target.get(name) for of_target in of_targets)
        by_target = tuple(
            _rate_figures(rate, rates[0] if number else None, levels)
            if rate
            else TargetFigures(None, 0, None, _lacking(profile, baselines, name))
            for number, (rate, baselines) in enumerate(zip(rates, targets, strict=True))
        )
        found.append(Served(profile.name, name, by_target, rates))
    return tuple(found)


def _rate_figures(rate: WorkloadRate, first: WorkloadRate | None, levels: _Levels) -> TargetFigures:
    if first is None:
        return TargetFigures(rate.accesses_per_s, rate.n_rounds, None)
    if not rate.n_rounds or not first.n_rounds:
        ratio = rate.accesses_per_s.mean / first.accesses_per_s.mean
        return TargetFigures(rate.accesses_per_s, rate.n_rounds, Level(ratio, None))
    spreads = rate.spread, first.spread
    return _against_first(rate.accesses_per_s, rate.n_rounds, rate.as_rounds, first.as_rounds, spreads, levels)


def _lacking(profile: Profile, baselines: Baselines, name: str) -> str:
    """Return why there is no rate."""
    lacking = [c for c, n in profile.cell_counts().items() if n > 0 and (name, c) not in baselines.cells]
    if not lacking:
        cells = [c for c, n in profile.cell_counts().items() if n > 0]
        return why_no_rate(baselines.measured_load, name, cells) or "the workload has no accesses"
    more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    return f"lacks {lacking[0]}{more}"


def with_verdicts(rows: Sequence[Row], served: Sequence[Served]) -> tuple[tuple[Row, ...], tuple[Served, ...]]:
    """Adjust the p values of all cells and workloads as one family, by Holm's method.

    So the chance that any of them is wrongly called better or worse is at most the significance level.
    """
    by_targets = [*(row.by_target for row in rows), *(one.by_target for one in served)]
    figures = [one for by_target in by_targets for one in by_target]
    adjusted = iter(holm_adjusted([one.p_value for one in figures if one.p_value is not None]))
    judged = iter([one if one.p_value is None else replace(one, adjusted_p=next(adjusted)) for one in figures])
    return (
        tuple(replace(row, by_target=tuple(next(judged) for _ in row.by_target)) for row in rows),
        tuple(replace(one, by_target=tuple(next(judged) for _ in one.by_target)) for one in served),
    )


def count_changes(by_targets: Iterable[Sequence[TargetFigures]]) -> Counter[Change]:
    """Return how often each verdict occurs; the first target, with which the others are compared, has none."""
    return Counter(figures.change for by_target in by_targets for figures in by_target[1:])


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
