"""One configuration for several workloads: against the definition, and under noise of a known truth."""

import math

import numpy as np
import pytest

from cephfit.core.errors import InputError
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import SIZE_BINS, Cell, Op
from cephfit.core.values.profile import Profile
from cephfit.mapper import predictor
from cephfit.mapper.decisions.balance import Weighted, balanced

READ, WRITE = Cell.parse("4K-randread", where="test"), Cell.parse("4K-randwrite", where="test")


def workload(name: str, reads: int, writes: int) -> Profile:
    counts = {op: dict.fromkeys((b.name for b in SIZE_BINS), 0) for op in Op}
    counts[Op.READ]["4K"], counts[Op.WRITE]["4K"] = reads, writes
    return Profile(name, counts, {Op.READ: 1.0, Op.WRITE: 1.0})


def measured(scatter: float, seed: int = 1, **speeds: tuple[float, float]) -> Baselines:
    draws = np.random.default_rng(seed)
    return Baselines(
        {
            (name, cell): Baseline(name, cell, tuple(iops * draws.lognormal(0, scatter, 4)))
            for name, both in speeds.items()
            for cell, iops in zip((READ, WRITE), both, strict=True)
        },
        "test",
    )


SPEEDS = {"A": (100.0, 100.0), "reads": (400.0, 80.0), "writes": (90.0, 300.0), "even": (180.0, 170.0)}
READER, WRITER = workload("reader", 1, 0), workload("writer", 0, 1)


@pytest.mark.parametrize(("weights", "best"), [((1, 1), "reads"), ((1, 3), "writes"), ((9, 1), "reads")])
@pytest.mark.parametrize("model", ["time", "meyer"])
def test_the_weighted_geometric_mean_decides(model: str, weights: tuple[float, float], best: str) -> None:
    found = balanced(
        [Weighted(READER, weights[0]), Weighted(WRITER, weights[1])],
        measured(0.001, **SPEEDS),
        predictor(model),
        0.95,
    )
    total = sum(weights)
    for b in found.configurations:
        read, write = SPEEDS[b.configuration]
        right = 100 * math.exp((weights[0] * math.log(read / 100) + weights[1] * math.log(write / 100)) / total)
        assert b.weighted.value == pytest.approx(right, rel=0.01)
    assert found.best == best


def test_the_worst_case_is_the_workload_that_gives_up_most_of_its_own_best() -> None:
    found = balanced(
        [Weighted(READER, 9), Weighted(WRITER, 1)], measured(0.001, **SPEEDS), predictor("time"), 0.95
    )
    assert found.best == "reads"
    assert found.best_worst == "even", "45 % of 400 and 57 % of 300; all others leave one below a third"
    even = found.of("even")
    assert even.worst.value == pytest.approx(45, rel=0.01)
    assert even.worst_workload == "reader"
    shares = {s.workload: s for s in found.of("reads").shares}
    assert shares["reader"].of_best.value == 100
    assert not shares["reader"].is_given_up
    assert shares["writer"].own_best == "writes"
    assert shares["writer"].is_given_up


def test_configurations_that_scatter_cannot_separate_are_as_good() -> None:
    found = balanced(
        [Weighted(READER, 1), Weighted(WRITER, 1)],
        measured(0.05, A=(100, 100), one=(200, 200), two=(203, 199), slow=(50, 50)),
        predictor("time"),
        0.95,
    )
    assert {found.best, *found.as_good} == {"one", "two"}


def test_the_intervals_hold_jointly_as_often_as_they_promise() -> None:
    right = {n: math.sqrt(r * w) for n, (r, w) in SPEEDS.items()}
    held = 0
    for seed in range(100):
        found = balanced(
            [Weighted(READER, 1), Weighted(WRITER, 1)], measured(0.03, seed, **SPEEDS), predictor("time"), 0.9
        )
        held += all(b.weighted.low <= right[b.configuration] <= b.weighted.high for b in found.configurations)
    assert held >= 82, "90 of 100 are promised; fewer than 82 come from such a promise once in 150 times"


@pytest.mark.parametrize("weight", [0.0, -1.0, math.inf, math.nan])
def test_a_weight_is_positive(weight: float) -> None:
    with pytest.raises(InputError, match="is not a weight"):
        balanced([Weighted(READER, weight)], measured(0.01, **SPEEDS), predictor("time"), 0.95)


def test_a_workload_counts_once() -> None:
    with pytest.raises(InputError, match="several workloads have the name reader"):
        balanced([Weighted(READER, 1)] * 2, measured(0.01, **SPEEDS), predictor("time"), 0.95)


def test_the_default_is_not_as_good_as_an_interval_above_100() -> None:
    """The default's interval is exactly 100, so that one wholly above it is certainly better."""
    baselines = measured(0.02, seed=3, A=(100.0, 100.0), fast=(300.0, 300.0), like=(280.0, 310.0))
    wide = predictor("time", confidence=0.95, with_error=True)
    found = balanced([Weighted(READER, 1), Weighted(WRITER, 1)], baselines, wide, 0.95)
    best = found.of(found.best)
    assert best.weighted.low > 100
    assert "A" not in found.as_good
    for b in found.configurations:
        separate = b.weighted.high < best.weighted.low
        assert not (separate and b.configuration in found.as_good)
        for share in b.shares:
            its_best = next(s for s in found.of(share.own_best).shares if s.workload == share.workload)
            if share.relative.high < its_best.relative.low:
                assert share.is_given_up
                assert b.configuration not in share.as_good
