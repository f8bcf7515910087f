"""Latency of a mix: percentiles of a mixture against closed forms, and reciprocals of rates."""

import math

import numpy as np
import pytest
from scipy.optimize import brentq

from cephfit.core.errors import InputError
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, SIZE_BINS, Cell, Op
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State
from cephfit.mapper import predictor
from cephfit.results.statistics.sample_baselines import baselines_of
from cephfit.results.statistics.workload_rate import (
    mean_speeds,
    milliseconds,
    percentile_speeds,
    whole_mix,
)

FAST, SLOW = Cell.parse("4K-randread", where="test"), Cell.parse("1M-randread", where="test")
KNOWN = (1.0, 25.0, 50.0, 75.0, 90.0, 99.0, 99.9)


def exponential(mean: float) -> dict[float, float]:
    return {p: -mean * math.log1p(-p / 100) for p in KNOWN}


def profile(small: int, large: int) -> Profile:
    counts = {op: dict.fromkeys((b.name for b in SIZE_BINS), 0) for op in Op}
    counts[Op.READ] |= {"4K": small, "1M": large}
    return Profile("w", counts, {Op.READ: 1.0, Op.WRITE: 0.0})


def sample(name: str, cell: Cell, repeat: int, mean_ns: float, n_ios: int = 1000, client: str = "c0") -> Sample:
    metrics = Metrics(1e9 / mean_ns, 1.0, n_ios, 10**9, mean_ns, exponential(mean_ns))
    return Sample(SampleKey(name, cell, client, repeat), State.OK, metrics, 0, 1)


def test_the_mean_of_a_mix_is_over_its_accesses_and_the_interval_holds_it() -> None:
    """Nine accesses of 1 ms and one of 11 ms: 2 ms on the default, 1 ms where everything is twice as fast."""
    draws = np.random.default_rng(3)
    samples = [
        sample(name, cell, repeat, mean * speed * float(draws.lognormal(0, 0.01)))
        for name, speed in (("A", 1.0), ("fast", 0.5), ("same", 1.0))
        for cell, mean in ((FAST, 1e6), (SLOW, 11e6))
        for repeat in range(4)
    ]
    baselines = baselines_of(samples, source="test")
    speeds = mean_speeds(profile(9, 1), baselines, samples)
    found = milliseconds(speeds, 0.95)
    for name, right in (("A", 2.0), ("fast", 1.0), ("same", 2.0)):
        assert found[name].low < right < found[name].high
        assert found[name].value == pytest.approx(right, rel=0.02)
    ranked = predictor("time").predict(whole_mix(profile(9, 1)), speeds)
    assert ranked.of("fast").relative == pytest.approx(200, rel=0.02)
    assert ranked.best == "fast"


def test_clients_of_a_cell_are_mixed_by_their_number_of_accesses() -> None:
    samples = [
        sample("A", FAST, 0, 1e6, 1500, "c0"),
        sample("A", FAST, 0, 4e6, 500, "c1"),
    ]
    speeds = percentile_speeds(profile(1, 0), baselines_of(samples, source="test"), samples, 99.0)
    right = brentq(lambda t: 0.75 * math.exp(-t) + 0.25 * math.exp(-t / 4) - 0.01, 0, 1e3)
    (speed,) = next(iter(speeds.cells.values())).iops
    assert 1000 / speed == pytest.approx(right, rel=1e-6)


def test_without_samples_latency_is_littles_law() -> None:
    """Two clients, depth 1, 500 accesses/s together: 4 ms."""
    rates = Baselines({("A", FAST): Baseline("A", FAST, (500.0, 500.0), n_clients=2)}, "test")
    speeds = mean_speeds(profile(1, 0), rates, None)
    assert milliseconds(speeds, 0.95)["A"].value == pytest.approx(4.0)


def test_a_round_without_percentiles_in_a_cell_is_refused() -> None:
    metrics = Metrics(100.0, 1.0, 100, 10**9, 1e7)
    samples = [Sample(SampleKey("A", FAST, "c0", 0), State.OK, metrics, 0, 1)]
    with pytest.raises(InputError, match="no round of A has latencies"):
        percentile_speeds(profile(1, 0), baselines_of(samples, source="test"), samples, 99.0)


def test_a_cell_that_was_not_measured_is_named() -> None:
    rates = Baselines({("A", CELLS[0]): Baseline("A", CELLS[0], (500.0,))}, "test")
    with pytest.raises(InputError, match="no baseline for"):
        mean_speeds(profile(1, 1), rates, None)
