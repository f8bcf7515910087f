"""How many of a workload's accesses a configuration serves in a second: what 100 stands for. Pure."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cephfit.baseline import Baseline, Baselines
from cephfit.cells import CELLS, Cell
from cephfit.left_out import left_out_of
from cephfit.measured_load import MeasuredLoad
from cephfit.profile import Profile
from cephfit.results import statistics
from cephfit.results.cell_intervals import AgainstDefault, own_spreads
from cephfit.results.scaling import Level
from cephfit.results.statistics import CONFIDENCE

_THE_MIX = CELLS[0]
"""Stands for the whole mix where its rates are read as those of one cell."""

NO_RATE_OF_A_MIX = (
    "No accesses per second are given: each cell's rate was measured while the other direction ran beside it, and "
    "such rates do not add up as if reads and writes took turns."
)
NO_RATE_AT_A_LIMIT = (
    "No accesses per second are given for configurations that reached the load's own limit in a cell of the "
    "workload: that would be the limit's rate, not the storage's."
)


@dataclass(frozen=True, slots=True)
class WorkloadRate:
    """The workload's mix, served as the sweep's load asks for it, by all clients together.

    Attributes:
        accesses_per_s: of the mix.
        nbytes_per_access: mean over the mix, at the sizes that the cells were measured with.
        n_rounds: in which all cells of the mix were measured.
        spread: of the rates of these rounds; None where nothing was measured in two of them.
        left_out: cells that were not measured and carry next to nothing of the mix: the rate is of the others.
    """

    accesses_per_s: Level
    nbytes_per_access: float
    n_rounds: int
    spread: statistics.Spread | None
    left_out: tuple[Cell, ...] = ()

    @property
    def nbytes_per_s(self) -> float:
        return self.accesses_per_s.mean * self.nbytes_per_access

    @property
    def as_rounds(self) -> tuple[float, ...]:
        """The mean, once for each round: what ``statistics`` takes where the scatter is given."""
        return (self.accesses_per_s.mean,) * self.n_rounds


def workload_rates(
    profile: Profile, baselines: Baselines, *, confidence: float = CONFIDENCE
) -> dict[str, WorkloadRate]:
    """The rate of every configuration that was measured in all cells that the workload uses.

    The mix adds up as time: n accesses, n_c of them in cell c with the rate r_c, take Σ n_c / r_c seconds; r_c is
    the mean over the repeats, and where configurations have different rounds, the default's mean times the ratio
    within the rounds that both have. The interval is from the rates of the single rounds, which carry what a round
    does to all of its cells; their scatter is moderated over the configurations (``own_spreads``). Cells that
    carry next to nothing of the mix and that the default was not measured in are left out, as predictions by time
    leave them out.

    There is no rate under a load that mixes reads and writes, where both directions ran at once and do not add up
    so, and none of a configuration that reached the load's own limit (``why_no_rate``).

    Args:
        confidence: of each interval by itself.
    """
    used = {cell: n for cell, n in profile.cell_counts().items() if n > 0}
    if not used or baselines.measured_load.read_pct is not None:
        return {}
    left_out = left_out_of(used, baselines, "time")
    counts = left_out.counts
    complete = {
        name: {cell: baselines.cells[name, cell] for cell in counts}
        for name in baselines.configurations
        if all((name, cell) in baselines.cells for cell in counts)
        and not why_no_rate(baselines.measured_load, name, counts)
    }
    by_round = {name: rounds for name, cells in complete.items() if (rounds := _of_rounds(name, counts, cells))}
    as_one_cell = {(name, _THE_MIX): rounds for name, rounds in by_round.items()}
    spreads = own_spreads(Baselines(as_one_cell, baselines.source, default=baselines.default))
    total = math.fsum(counts.values())
    nbytes = math.fsum(n * cell.size.benchmark_nbytes for cell, n in counts.items())
    against = AgainstDefault.of(baselines)
    rates = {}
    for name, cells in complete.items():
        mean = _rate(counts, {cell: _iops(against, name, cell) for cell in cells})
        spread = spreads.get((name, _THE_MIX))
        n_rounds = len(by_round[name].iops) if name in by_round else 0
        interval = (
            statistics.level_interval((mean,) * n_rounds, spread, confidence=confidence) if n_rounds else None
        )
        rates[name] = WorkloadRate(Level(mean, interval), nbytes / total, n_rounds, spread, left_out.cells)
    return rates


def why_no_rate(load: MeasuredLoad, configuration: str, cells: Iterable[Cell]) -> str:
    """Why the load gives no rate of a workload in these cells, in few words; empty where it does."""
    if load.read_pct is not None:
        return "not known under a mix"
    at_limit = any((configuration, cell) in load.at_limit for cell in cells)
    return "reached the load's limit" if at_limit else ""


def rate_notes(profile: Profile, baselines: Baselines) -> tuple[str, ...]:
    """Sentences on the rates that are not there because of the load."""
    used = [cell for cell, n in profile.cell_counts().items() if n > 0]
    load = baselines.measured_load
    if load.read_pct is not None:
        return (NO_RATE_OF_A_MIX,)
    if any(why_no_rate(load, name, used) for name in baselines.configurations):
        return (NO_RATE_AT_A_LIMIT,)
    return ()


def _iops(against: AgainstDefault, name: str, cell: Cell) -> float:
    baselines = against.baselines
    default, ratio = baselines.cells.get((baselines.default, cell)), against.ratio(name, cell)
    if default is None or ratio is None:
        return statistics.mean(baselines.cells[name, cell].iops)
    return statistics.mean(default.iops) * ratio


def _rate(counts: Mapping[Cell, float], iops: Mapping[Cell, float]) -> float:
    return math.fsum(counts.values()) / math.fsum(n / iops[cell] for cell, n in counts.items())


def _of_rounds(name: str, counts: Mapping[Cell, float], cells: Mapping[Cell, Baseline]) -> Baseline | None:
    """The rate of each round in which all cells were measured; None where there is no such round."""
    by_cell = {cell: dict(zip(b.rounds, b.iops, strict=True)) for cell, b in cells.items()}
    common = sorted(set.intersection(*(set(rounds) for rounds in by_cell.values())))
    if not common:
        return None
    rates = tuple(_rate(counts, {cell: by_cell[cell][r] for cell in counts}) for r in common)
    return Baseline(name, _THE_MIX, rates, rounds=tuple(common))
