"""Rate and latency of a mix over the load, on queues whose crossing of a latency limit is known."""

import math

import numpy as np
import pytest
from queue_samples import PERCENTILES, queue_samples, sustainable

from cephfit.core.errors import InputError
from cephfit.core.values.cells import LoadedCell, Pattern
from cephfit.core.values.load_level import LevelFigures
from cephfit.core.values.profile import Profile
from cephfit.mapper.load_curve import Limit, LoadCurve, WorkloadMix
from cephfit.results.statistics.load_levels import levels_of

Levels = dict[LoadedCell, dict[int, LevelFigures]]


def profile(**accesses: int) -> Profile:
    """A profile of random accesses; the keys are like ``read_4K``."""
    counts: dict[str, dict[str, int]] = {"read": {}, "write": {}}
    for key, n in accesses.items():
        op, size = key.split("_")
        counts[op][size] = n
    document = {"schema_version": 1, "name": "w", "accesses": counts, "random": {"read": 1.0, "write": 1.0}}
    return Profile.from_json(document)


def of_queue(rates: dict[str, float], **more: object) -> Levels:
    levels = levels_of(queue_samples({"A": rates}, repeats=1, **more))  # type: ignore[arg-type]
    found: Levels = {}
    for (_, kind, n), figures in levels.figures.items():
        found.setdefault(kind, {})[n] = figures[0]
    return found


def curve_of(workload: Profile, levels: Levels) -> LoadCurve:
    mix = WorkloadMix.of(workload, sorted(levels), where="test")
    return LoadCurve.of(mix, levels, PERCENTILES, where="test")


@pytest.mark.parametrize("limit_ms", [12, 20, 100, 400])
def test_one_kind_of_access_crosses_the_limit_where_the_queue_does(limit_ms: float) -> None:
    curve = curve_of(profile(read_4K=100), of_queue({"4K-randread": 1000.0}))
    limit = Limit(p99_seconds=limit_ms / 1000)
    found = curve.rate_at(curve.most_in_flight(limit))
    assert found == pytest.approx(sustainable(1000.0, limit_ms / 1000), rel=1e-4)


def test_the_mean_is_a_limit_too_and_the_stricter_one_counts() -> None:
    curve = curve_of(profile(read_4K=100), of_queue({"4K-randread": 1000.0}))
    # The mean of an M/M/1 queue is 1 / (service rate - rate).
    by_mean = curve.rate_at(curve.most_in_flight(Limit(mean_seconds=0.005)))
    assert by_mean == pytest.approx(1000 - 1 / 0.005, rel=1e-4)
    assert curve.most_in_flight(Limit(1.0, 0.005)) == curve.most_in_flight(Limit(None, 0.005))
    assert curve.most_in_flight(Limit(0.012, 0.005)) == curve.most_in_flight(Limit(0.012, None))


def test_a_mix_adds_up_as_time_and_its_percentile_is_that_of_the_mixture() -> None:
    rates = {"4K-randread": 2000.0, "128K-randwrite": 200.0}
    curve = curve_of(profile(read_4K=80, write_128K=20), of_queue(rates))
    assert curve.rate_at(8.0) == pytest.approx(8 / (0.8 * 9 / 2000 + 0.2 * 9 / 200), rel=1e-6)
    p99 = curve.p99_at(8.0)
    assert p99 is not None
    above = 0.8 * math.exp(-p99 * 2000 / 9) + 0.2 * math.exp(-p99 * 200 / 9)
    assert above == pytest.approx(0.01, rel=0.1)


def test_accesses_between_measured_sizes_take_times_between() -> None:
    rates = {"4K-randread": 2000.0, "32K-randread": 1000.0}
    document = profile(read_4K=1).to_json() | {
        "demands": {
            "columns": ["pattern", "nbytes", "is_aligned", "depth", "is_sync", "accesses", "waiting_seconds"],
            "rows": [["randread", 18 * 1024, True, 3.0, True, 1, None]],
        }
    }
    curve = curve_of(Profile.from_json(document), of_queue(rates))
    assert curve.rate_at(4.0) == pytest.approx(4 / (0.5 * 5 / 2000 + 0.5 * 5 / 1000), rel=1e-6)


def test_a_limit_that_is_never_reached_gives_the_largest_measured_load() -> None:
    curve = curve_of(profile(read_4K=100), of_queue({"4K-randread": 1000.0}))
    most = curve.most_in_flight(Limit(p99_seconds=10.0))
    assert most == 128 and curve.is_bound(most)


def test_a_limit_below_the_smallest_load_allows_nothing() -> None:
    curve = curve_of(profile(read_4K=100), of_queue({"4K-randread": 1000.0}))
    assert curve.most_in_flight(Limit(p99_seconds=0.9 * math.log(100) * 2 / 1000)) == 0
    assert curve.most_in_flight(Limit(p99_seconds=1.01 * math.log(100) * 2 / 1000)) > 0


def test_a_rate_that_falls_under_load_counts_with_its_best() -> None:
    kind = LoadedCell.measured(4096, Pattern.RANDREAD)
    levels = {
        kind: {
            n: LevelFigures(rate, 1e9 * n / rate, tuple(1e9 * n / rate * q for q in (0.5, 2.0)))
            for n, rate in {1: 100.0, 4: 300.0, 16: 200.0}.items()
        }
    }
    mix = WorkloadMix.of(profile(read_4K=1), [kind], where="test")
    curve = LoadCurve.of(mix, levels, (50.0, 99.0), where="test")
    assert curve.rate_at(16.0) == pytest.approx(300.0)


def saturated(noise: float, seed: int, loads: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)) -> LoadCurve:
    """A storage that serves 1000 per second from two in flight on, with noise of each level by itself."""
    kind = LoadedCell.measured(4096, Pattern.RANDREAD)
    dice = np.random.default_rng(seed)
    found = {}
    for n in loads:
        ns = 1e9 * n / (min(n / 2, 1) * 1000 * dice.lognormal(0, noise))
        found[n] = LevelFigures(1e9 * n / ns, ns, (0.5 * ns, 2 * ns))
    mix = WorkloadMix.of(profile(read_4K=1), [kind], where="test")
    return LoadCurve.of(mix, {kind: found}, (50.0, 99.0), where="test")


@pytest.mark.parametrize(("noise", "most"), [(0.02, 0.002), (0.05, 0.005), (0.1, 0.02)])
def test_scatter_does_not_inflate_the_rate_of_a_saturated_storage(noise: float, most: float) -> None:
    """The maximum of the five noisy levels up to 16 in flight would be too high by the noise or more."""
    curves = [saturated(noise, seed) for seed in range(400)]
    rates = [curve.rate_at(16.0) for curve in curves]
    standard_error = noise / math.sqrt(400)
    assert abs(np.mean(rates) / 1000 - 1) < most + 2 * standard_error
    # The last load has no later one that would correct it: about half of the maximum's bias is left.
    last = np.mean([curve.rate_at(64.0) for curve in curves]) / 1000 - 1
    expected_maximum = 1.267 * noise  # of six normal deviates, in standard deviations
    assert 0 < last < 0.55 * expected_maximum
    for curve in curves:
        found = [curve.rate_at(n) for n in (1.0, 1.5, 2.0, 5.0, 16.0, 50.0, 64.0)]
        assert np.all(np.diff(found) > -1e-9)


def test_a_kind_with_little_of_the_time_is_extrapolated_and_named() -> None:
    levels = of_queue({"4K-randread": 1000.0, "1M-randread": 100.0})
    large = next(kind for kind in levels if kind.nbytes > 4096)
    levels[large] = {n: levels[large][n] for n in (1, 2)}
    curve = curve_of(profile(read_4K=9990, read_1M=10), levels)
    assert curve.in_flight[-1] == 128 and curve.extrapolated == (large,)
    # A queue is linear in the load, so its extrapolation is exact.
    assert curve.rate_at(32.0) == pytest.approx(32 / (33 * (0.999 / 1000 + 0.001 / 100)), rel=1e-6)
    heavy = curve_of(profile(read_4K=1000, read_1M=1000), levels)
    assert heavy.in_flight[-1] == 2 and not heavy.extrapolated


def test_kinds_without_a_common_load_are_refused() -> None:
    levels = of_queue({"4K-randread": 1000.0, "1M-randread": 100.0})
    small, large = sorted(levels)
    split = {small: {1: levels[small][1]}, large: {8: levels[large][8]}}
    with pytest.raises(InputError, match="not measured under a common load"):
        curve_of(profile(read_4K=100, read_1M=100), split)


def test_an_op_that_was_not_measured_is_refused() -> None:
    with pytest.raises(InputError, match="no rate of writes"):
        curve_of(profile(read_4K=1, write_4K=1), of_queue({"4K-randread": 1000.0}))
