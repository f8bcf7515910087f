"""How many of a workload's accesses a configuration serves in a second: what 100 stands for. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cephfit.baseline import Baseline, Baselines
from cephfit.cells import Cell
from cephfit.profile import Profile
from cephfit.results import statistics
from cephfit.results.cell_intervals import AgainstDefault
from cephfit.results.scaling import Level
from cephfit.results.statistics import CONFIDENCE


@dataclass(frozen=True, slots=True)
class WorkloadRate:
    """The workload's mix, served as the sweep's load asks for it, by all clients together.

    Attributes:
        accesses_per_s: of the mix.
        nbytes_per_access: mean over the mix, at the sizes that the cells were measured with.
    """

    accesses_per_s: Level
    nbytes_per_access: float

    @property
    def nbytes_per_s(self) -> float:
        return self.accesses_per_s.mean * self.nbytes_per_access


def workload_rates(
    profile: Profile, baselines: Baselines, *, confidence: float = CONFIDENCE
) -> dict[str, WorkloadRate]:
    """The rate of every configuration that was measured in all cells that the workload uses.

    The mix adds up as time: n accesses, n_c of them in cell c with the rate r_c, take Σ n_c / r_c seconds; r_c is
    the mean over the repeats, and where configurations have different rounds, the default's mean times the ratio
    within the rounds that both have. The interval is from the rates of the single rounds, which carry what a round
    does to all of its cells; their scatter is pooled over the configurations (``statistics.level_interval``).

    Args:
        confidence: of each interval by itself.
    """
    counts = {cell: n for cell, n in profile.cell_counts().items() if n > 0}
    complete = {
        name: {cell: baselines.cells[name, cell] for cell in counts}
        for name in baselines.configurations
        if counts and all((name, cell) in baselines.cells for cell in counts)
    }
    by_round = {name: _of_rounds(counts, cells) for name, cells in complete.items()}
    spread = statistics.pooled_spread(by_round.values())
    total = math.fsum(counts.values())
    nbytes = math.fsum(n * cell.size.benchmark_nbytes for cell, n in counts.items())
    against = AgainstDefault.of(baselines)
    rates = {}
    for name, cells in complete.items():
        mean = _rate(counts, {cell: _iops(against, name, cell) for cell in cells})
        n_rounds = len(by_round[name])
        interval = (
            statistics.level_interval((mean,) * n_rounds, spread, confidence=confidence) if n_rounds else None
        )
        rates[name] = WorkloadRate(Level(mean, interval), nbytes / total)
    return rates


def _iops(against: AgainstDefault, name: str, cell: Cell) -> float:
    baselines = against.baselines
    default, ratio = baselines.cells.get((baselines.default, cell)), against.ratio(name, cell)
    if default is None or ratio is None:
        return statistics.mean(baselines.cells[name, cell].iops)
    return statistics.mean(default.iops) * ratio


def _rate(counts: Mapping[Cell, float], iops: Mapping[Cell, float]) -> float:
    return math.fsum(counts.values()) / math.fsum(n / iops[cell] for cell, n in counts.items())


def _of_rounds(counts: Mapping[Cell, float], cells: Mapping[Cell, Baseline]) -> Sequence[float]:
    """The rate of each round in which all cells were measured."""
    by_cell = {cell: dict(zip(b.rounds, b.iops, strict=True)) for cell, b in cells.items()}
    common = set.intersection(*(set(rounds) for rounds in by_cell.values()))
    return [_rate(counts, {cell: by_cell[cell][r] for cell in counts}) for r in sorted(common)]
