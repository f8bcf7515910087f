"""Rate and latency of a mix over the load, on queues with known service rates."""

import math

import numpy as np
import pytest
from queue_samples import PERCENTILES, queue_samples

from cephfit.core.errors import InputError
from cephfit.core.values.baseline import LevelFigures
from cephfit.core.values.cells import LoadedCell, Pattern
from cephfit.core.values.profile import Profile
from cephfit.mapper.absolute_rates.load_curve import LoadCurve, WorkloadMix, with_larger_loads
from cephfit.results.statistics.scaling import levels_of

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


def test_a_mix_adds_up_as_time_and_its_percentile_is_that_of_the_mixture() -> None:
    rates = {"4K-randread": 2000.0, "128K-randwrite": 200.0}
    curve = curve_of(profile(read_4K=80, write_128K=20), of_queue(rates))
    assert curve.rate_at(8.0) == pytest.approx(8 / (0.8 * 8 / 2000 + 0.2 * 8 / 200), rel=1e-6)
    p99 = curve.least_p99_seconds
    assert 0.8 * math.exp(-p99 * 2000) + 0.2 * math.exp(-p99 * 200) == pytest.approx(0.01, rel=0.1)
    assert curve.least_mean_seconds == pytest.approx(0.8 / 2000 + 0.2 / 200)


def test_accesses_between_measured_sizes_take_times_between() -> None:
    rates = {"4K-randread": 2000.0, "32K-randread": 1000.0}
    document = profile(read_4K=1).to_json() | {
        "demands": {
            "columns": ["pattern", "nbytes", "is_aligned", "depth", "is_sync", "accesses", "waiting_seconds"],
            "rows": [["randread", 18 * 1024, True, 3.0, True, 1, None]],
        }
    }
    curve = curve_of(Profile.from_json(document), of_queue(rates))
    assert curve.rate_at(4.0) == pytest.approx(1 / (0.5 / 2000 + 0.5 / 1000), rel=1e-6)


def test_unaligned_accesses_grow_above_their_loads_like_aligned_ones() -> None:
    levels = of_queue({"4K-randwrite": 1000.0, "32K-randwrite": 500.0})
    plain = next(kind for kind in levels if kind.nbytes == 32768)
    unaligned = LoadedCell(plain.nbytes, plain.pattern, align_nbytes=4096)
    half = {
        n: LevelFigures(f.iops / 2, 2 * f.mean_ns, tuple(2 * q for q in f.quantiles_ns))
        for n, f in levels[plain].items()
    }
    found = with_larger_loads({**levels, unaligned: {n: half[n] for n in (1, 4)}})
    assert set(found[unaligned]) == {1, 4, 8, 32, 128} and found[plain] == levels[plain]
    # With 4 in flight 16 ms; plain ones need 8 ms with 4, and 64 ms with 32.
    assert found[unaligned][32].iops == pytest.approx(32 / (0.016 + 0.064 - 0.008))


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
    assert curve.rate_at(32.0) == pytest.approx(1 / (0.999 / 1000 + 0.001 / 100), rel=1e-6)
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
