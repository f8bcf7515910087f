"""Objectives: reads and writes separately, weighted time, cost, and the Pareto front."""

import math
from dataclasses import replace

import numpy as np
import pytest

from cephfit.core.errors import InputError
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import SIZE_BINS, Cell, Op, Pattern
from cephfit.core.values.demand import Demand
from cephfit.core.values.prediction import Prediction, PredictionSet, Verdict
from cephfit.core.values.profile import Profile
from cephfit.mapper import predictor
from cephfit.mapper.decisions.contrasts import worse_than
from cephfit.mapper.decisions.objectives import Judged, Objective, by_cost, dominated, only, reads_weighted

READ, WRITE = Cell.parse("4K-randread", where="test"), Cell.parse("4K-randwrite", where="test")


def profile(reads: int, writes: int) -> Profile:
    counts = {op: dict.fromkeys((b.name for b in SIZE_BINS), 0) for op in Op}
    counts[Op.READ]["4K"], counts[Op.WRITE]["4K"] = reads, writes
    return Profile("w", counts, {Op.READ: 1.0, Op.WRITE: 1.0})


def measured(scatter: float = 0.0, **speeds: tuple[float, float]) -> Baselines:
    """Rates of reads and writes, four repeats."""
    draws = np.random.default_rng(1)
    return Baselines(
        {
            (name, cell): Baseline(name, cell, tuple(iops * draws.lognormal(0, scatter, 4)))
            for name, both in speeds.items()
            for cell, iops in zip((READ, WRITE), both, strict=True)
        },
        "test",
    )


@pytest.mark.parametrize("weight", [3.0, 0.25, 1.0, 2.7])
def test_the_time_of_reads_counts_as_often_as_asked(weight: float) -> None:
    """A: 10 ms per read, 20 ms per write. B: 5 ms and 30 ms. Four reads and one write."""
    baselines = measured(A=(100.0, 50.0), B=(200.0, 1000 / 30))
    found = predictor("time").predict(reads_weighted(profile(4, 1), weight), baselines)
    right = 100 * (weight * 40 + 20) / (weight * 20 + 30)
    assert found.of("B").relative == pytest.approx(right)


def test_waiting_times_of_reads_are_weighted_too() -> None:
    demands = tuple(
        Demand(pattern, 4096.0, True, 1.0, True, 10.0, 2.0) for pattern in (Pattern.RANDREAD, Pattern.RANDWRITE)
    )
    given = replace(profile(10, 10), demands=demands, idle_seconds=1.0)
    found = reads_weighted(given, 3.0)
    assert found.demands is not None
    assert [d.waiting_seconds for d in found.demands] == [6.0, 2.0]
    assert found.idle_seconds == 1.0


@pytest.mark.parametrize("weight", [0.0, 1e-6, 1e6, math.nan])
def test_an_impossible_weight_is_refused(weight: float) -> None:
    with pytest.raises(InputError, match="not a weight of reads"):
        reads_weighted(profile(1, 1), weight)


def test_reads_alone_are_predicted_from_reads_alone() -> None:
    baselines = measured(A=(100.0, 50.0), B=(200.0, 25.0))
    assert predictor("time").predict(only(profile(4, 100), Op.READ), baselines).of("B").relative == pytest.approx(
        200
    )
    assert predictor("time").predict(only(profile(400, 1), Op.WRITE), baselines).of("B").relative == pytest.approx(
        50
    )


def test_a_workload_without_reads_has_no_reads_to_rank_by() -> None:
    with pytest.raises(InputError, match="the workload has no reads"):
        only(profile(0, 1), Op.READ)


def judged(baselines: Baselines, workload: Profile, objective: Objective) -> Judged:
    chosen = predictor("time")
    found = chosen.predict(workload, baselines)
    return Judged(objective, found, worse_than(chosen, workload, baselines, found))


def test_only_certain_differences_remove_a_configuration_from_the_front() -> None:
    """B is certainly better in both. ``near`` is slower than B by less than the scatter in writes: it stays."""
    baselines = measured(0.02, A=(100.0, 50.0), B=(200.0, 100.0), near=(150.0, 99.5), reads=(300.0, 40.0))
    objectives = [
        judged(baselines, only(profile(1, 1), Op.READ), Objective.READ),
        judged(baselines, only(profile(1, 1), Op.WRITE), Objective.WRITE),
    ]
    found = dominated(objectives)
    assert found.keys() == {"A"}
    assert found["A"] in ("B", "near")


def test_equal_costs_are_equal_and_equal_samples_are_not() -> None:
    baselines = measured(0.02, A=(100.0, 100.0), fast=(200.0, 200.0), cheap=(100.5, 100.5))
    speed = judged(baselines, profile(1, 1), Objective.THROUGHPUT)
    cost = by_cost({"A": 2.0, "fast": 2.0, "cheap": 1.5}, speed.predictions)
    assert dominated([speed, cost]) == {"A": "fast"}, "fast costs the same; cheap is not certainly slower than A"
    assert cost.predictions.best == "cheap"
    assert cost.predictions.of("cheap").relative == pytest.approx(100 * 2 / 1.5)


def test_a_configuration_without_an_objective_is_not_compared() -> None:
    rows = (Prediction("A", 100, 100, 100, Verdict.DEFAULT), Prediction("B", 50, 49, 51, Verdict.WORSE))
    both = PredictionSet("time", "w", "test", rows, "A", "B", 0.95, 1.0)
    one = PredictionSet("time", "w", "test", rows[:1], "A", "A", 0.95, 1.0)

    def behind(reference: str) -> frozenset[str]:
        return frozenset({"B"} if reference == "A" else ())

    assert dominated([Judged(Objective.READ, both, behind), Judged(Objective.WRITE, both, behind)]) == {"B": "A"}
    assert dominated([Judged(Objective.READ, both, behind), Judged(Objective.WRITE, one, behind)]) == {}


@pytest.mark.parametrize("scatter", [0.01, 0.05])
def test_the_front_is_that_of_all_pairs_with_few_direct_comparisons(scatter: float) -> None:
    """Each direct comparison predicts all configurations, so 24 times 2 of them would take long."""
    dice = np.random.default_rng(4)
    speeds = {f"c{i}": (float(r), float(w)) for i, (r, w) in enumerate(dice.lognormal(5, 0.3, (23, 2)))}
    baselines = measured(scatter, A=(150.0, 150.0), **speeds)
    compared = []

    def counted(of: Judged) -> Judged:
        def behind(reference: str) -> frozenset[str]:
            compared.append(reference)
            return of.slower(reference)

        return replace(of, slower=behind)

    both = [
        judged(baselines, only(profile(1, 1), op), of)
        for op, of in ((Op.READ, Objective.READ), (Op.WRITE, Objective.WRITE))
    ]
    found = dominated([counted(of) for of in both])
    beaten = {name: both[0].slower(name) & both[1].slower(name) for name in both[0].names}
    assert found.keys() == frozenset().union(*beaten.values())
    assert 0 < len(found) < 24
    assert all(loser in beaten[winner] for loser, winner in found.items())
    assert len(compared) < 24
