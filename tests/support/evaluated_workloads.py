"""Synthetic workloads with known true performance on synthetic configurations."""

import csv
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, SIZE_BINS, LoadedCell, Op, Pattern
from cephfit.core.values.demand import Demand
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import State, WorkloadSample
from cephfit.mapper import predictor
from cephfit.mapper.assessment.model_evaluation import EvaluatedWorkload

FACTORS: Mapping[str, Callable[[Pattern], float]] = {
    "A": lambda _: 1.0,
    "A-again": lambda _: 1.0,
    "fast": lambda _: 1.5,
    "reads": lambda pattern: 2.5 if pattern.op is Op.READ else 0.9,
    "writes": lambda pattern: 0.8 if pattern.op is Op.READ else 2.0,
    "slow": lambda _: 0.5,
}
"""By configuration: its rate over the default's, by pattern."""
WAITED = {"database": (0.9, 0.1), "backup": (0.1, 0.9), "mixed": (0.5, 0.5)}
"""By workload: seconds waited for reads and for writes. All have as many reads as writes."""
ROUNDS = 3


def rates(*, with_loads: bool = True) -> Baselines:
    """The rates of every configuration in all cells at depth 1, with a noise of 0.5 %."""
    noise = random.Random(3)
    cells = {}
    loaded = {}
    for name, factor in FACTORS.items():
        for number, cell in enumerate(CELLS):
            rate = factor(cell.pattern) * (1000 - 40 * number)
            found = Baseline(name, cell, tuple(rate * noise.uniform(0.995, 1.005) for _ in range(ROUNDS)))
            cells[name, cell] = found
            loaded[name, LoadedCell(cell.size.benchmark_nbytes, cell.pattern)] = found
    return Baselines(cells, "synthetic rates", loaded=loaded if with_loads else {})


def profile(name: str, reads: float, writes: float) -> Profile:
    """As many random reads as writes of 4K, with seconds waited for each; no idle time."""
    counts = {b.name: 0 for b in SIZE_BINS}
    demands = tuple(
        Demand(Pattern.of(op, is_random=True), 4096.0, True, 1.0, True, 1000.0, seconds)
        for op, seconds in ((Op.READ, reads), (Op.WRITE, writes))
    )
    accesses = {op: {**counts, "4K": 1000} for op in Op}
    return Profile(name, accesses, dict.fromkeys(Op, 1.0), demands=demands, idle_seconds=0.0)


def samples(relative: Mapping[str, float], *, noise: float = 0.0, seed: int = 1) -> tuple[WorkloadSample, ...]:
    """Runs of ``ROUNDS`` rounds with these values, default = 100, and the standard deviation of their logs."""
    dice = random.Random(seed)
    return tuple(
        WorkloadSample(name, r, 0, State.OK, "ops/s", 7.0 * value * math.exp(dice.gauss(0, noise)), 0, 0)
        for r in range(ROUNDS)
        for name, value in sorted(relative.items())
    )


def evaluated(
    truth: str = "waiting", *, noise: float = 0.0, baselines: Baselines | None = None
) -> list[EvaluatedWorkload]:
    """The workloads, each with the performance that the model ``truth`` predicts for it."""
    measured = baselines or rates()
    found = []
    for name, (reads, writes) in WAITED.items():
        own = profile(name, reads, writes)
        relative = {p.configuration: p.relative for p in predictor(truth).predict(own, measured).predictions}
        runs = samples(relative, noise=noise, seed=len(found))
        found.append(EvaluatedWorkload(name, own, measured, runs, "r1", "sim", again=frozenset({"A-again"})))
    return found


def write_folder(folder: Path, workloads: Sequence[EvaluatedWorkload]) -> Path:
    """Write an evaluation folder with all digits, without the product's own export."""
    (folder / "profiles").mkdir(parents=True)
    with (folder / "baselines.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("configuration", "size", "pattern", "client", "run", "iops", "iodepth"))
        for (name, cell), found in workloads[0].baselines.cells.items():
            for r, iops in zip(found.rounds, found.iops, strict=True):
                writer.writerow((name, cell.size.name, cell.pattern.value, "c0", r, repr(iops), 1))
    with (folder / "measured.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("workload", "metric", "configuration", "round", "volume", "value"))
        for one in workloads:
            (folder / "profiles" / f"{one.workload}.json").write_text(one.profile.dumps())
            for s in one.samples:
                writer.writerow((one.workload, s.metric, s.configuration, s.repeat, "", repr(s.value)))
    return folder


def without_demands(workloads: Sequence[EvaluatedWorkload]) -> list[EvaluatedWorkload]:
    """The same with profiles that only count accesses."""
    return [replace(one, profile=replace(one.profile, demands=None, idle_seconds=None)) for one in workloads]
