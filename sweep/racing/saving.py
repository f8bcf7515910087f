"""What stopping early saves: expected of a plan, and done by a run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cephfit.cells import Cell
from cephfit.configuration import DEFAULT_CONFIGURATION
from cephfit.results.baselines import baselines_of
from cephfit.results.statistics import pooled_spread
from cephfit.sample import Metrics, Sample, SampleKey, State
from cephfit.sweep.goal import Goal, even_profile
from cephfit.sweep.model import Sweep
from cephfit.sweep.plan import Plan, plan_of
from cephfit.sweep.racing.rounds import Place, begin, decide
from cephfit.sweep.stopping import RaceFor

_IMAGINED = 20
"""Sweeps that are imagined for an expectation."""
_SOME_IOPS = 100.0
"""Rate of the imagined default; it cancels."""


@dataclass(frozen=True, slots=True)
class Scatter:
    """How figures scatter, as standard deviations of their logarithms (about parts of them).

    Attributes:
        repeats: from repeat to repeat of one cell.
        configurations: from configuration to configuration, common to all cells.
        cells: of one configuration's effect, from cell to cell.
        source: where this comes from, for people.
    """

    repeats: float
    configurations: float
    cells: float
    source: str


ASSUMED_SCATTER = Scatter(
    0.05, 0.15, 0.15, "assumed: repeats scatter by 5 %, configurations by 15 %, their effects over cells by 15 %"
)


def saved_runs(plan: Plan, stops: Mapping[Place, int]) -> int:
    """Runs of the full plan that are not made."""
    return sum(
        step.repeat >= stops.get((step.configuration, cell), step.repeat + 1)
        for step in plan.steps
        for cell in step.cells
    )


def scatter_of(samples: Sequence[Sample], source: str) -> Scatter | None:
    """The scatter of an earlier run; None where it has no repeats or nothing to compare."""
    baselines = baselines_of(samples, source=source)
    spread = pooled_spread(b.iops for b in baselines.cells.values())
    others = [name for name in baselines.configurations if name != DEFAULT_CONFIGURATION]
    shared = [c for n, c in baselines.cells if n == DEFAULT_CONFIGURATION]
    effects = [
        [np.log(np.mean(baselines.cells[n, c].iops) / np.mean(baselines.cells[DEFAULT_CONFIGURATION, c].iops))
         for c in shared]
        for n in others
        if all((n, c) in baselines.cells for c in shared)
    ]  # fmt: skip
    if spread is None or len(effects) < 2 or not shared:
        return None
    table = np.array(effects)
    within = table - table.mean(axis=1, keepdims=True)
    return Scatter(
        spread.log_deviation,
        float(np.sqrt((table.mean(axis=1) ** 2).mean())),
        float(np.sqrt((within**2).mean())),
        f"from {source}: repeats scatter by {100 * spread.log_deviation:.1f} %",
    )


def expected_saving(sweep: Sweep, goal: Goal, scatter: Scatter = ASSUMED_SCATTER) -> tuple[float, float, float]:
    """The part of the plan's runs that stopping early is expected to save: least, median and most of 20.

    Sweeps of this plan are drawn from a made-up truth of this scatter and decided on as a real one would be. A
    goal without a profile is taken to move as many bytes in every cell.
    """
    stopping = sweep.stopping
    if stopping is None:
        return 0.0, 0.0, 0.0
    if stopping.race is RaceFor.PROFILE and goal.profile is None:
        goal = Goal(goal.predictor, goal.model, even_profile(sweep.measurement))
    plan = plan_of(sweep)
    parts = sorted(_imagined(sweep, plan, goal, scatter, seed) for seed in range(_IMAGINED))
    return parts[0], parts[_IMAGINED // 2], parts[-1]


def _imagined(sweep: Sweep, plan: Plan, goal: Goal, scatter: Scatter, seed: int) -> float:
    samples = imagined_samples(sweep, scatter, seed)
    decided = begin(sweep, goal)
    assert sweep.stopping is not None, "the caller's condition"
    for measured in range(sweep.stopping.minimum, sweep.measurement.repeats):
        decided = decide(decided, sweep, samples, goal, measured=measured)
    return saved_runs(plan, {place: stop.after for place, stop in decided.stopped.items()}) / plan.n_runs


def imagined_samples(sweep: Sweep, scatter: Scatter, seed: int) -> list[Sample]:
    """All samples of the full plan, drawn from a made-up truth."""
    dice = np.random.default_rng([seed, sweep.measurement.seed])
    cells, repeats = sweep.measurement.cells, sweep.measurement.repeats
    samples = []
    for configuration in sweep.configurations:
        is_default = configuration.name == DEFAULT_CONFIGURATION
        whole = 0.0 if is_default else dice.normal(0, scatter.configurations)
        own = np.zeros(len(cells)) if is_default else dice.normal(0, scatter.cells, len(cells))
        noise = dice.normal(0, scatter.repeats, (len(cells), repeats))
        for i, cell in enumerate(cells):
            for repeat in range(repeats):
                iops = _SOME_IOPS * float(np.exp(whole + own[i] + noise[i, repeat]))
                samples.append(_sample(configuration.name, cell, repeat, iops))
    return samples


def _sample(name: str, cell: Cell, repeat: int, iops: float) -> Sample:
    metrics = Metrics(iops, iops * cell.size.benchmark_nbytes, 1, 1, 1.0)
    return Sample(SampleKey(name, cell, "c0", repeat), State.OK, metrics, 0, 0)


def saving_document(plan: Plan, stops: Mapping[Place, int]) -> dict[str, Any]:
    """What was not run, for people and programs."""
    saved = saved_runs(plan, stops)
    return {"runs_of_full_plan": plan.n_runs, "runs_saved": saved, "part_saved": saved / max(1, plan.n_runs)}
