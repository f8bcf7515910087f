"""Statistics against their definitions, for every input."""

import math
import random
import statistics as stdlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cephfit.results.statistics import summary_statistics
from cephfit.results.statistics.summary_statistics import Spread

rates = st.floats(min_value=1e-3, max_value=1e9, allow_nan=False)
some = st.lists(rates, min_size=1, max_size=30)
repeated = st.lists(rates, min_size=2, max_size=30)


@given(some)
def test_mean_and_median_lie_between_the_extremes(values: list[float]) -> None:
    for centre in (summary_statistics.mean(values), summary_statistics.median(values)):
        assert min(values) <= centre * (1 + 1e-12) and centre <= max(values) * (1 + 1e-12)


@given(repeated, st.floats(min_value=1e-3, max_value=1e3))
def test_the_coefficient_of_variation_has_no_unit(values: list[float], factor: float) -> None:
    here = summary_statistics.coefficient_of_variation(values)
    there = summary_statistics.coefficient_of_variation([factor * v for v in values])
    assert here == pytest.approx(there, abs=1e-9)
    assert here == pytest.approx(stdlib.stdev(values) / stdlib.fmean(values), abs=1e-9)


@given(repeated)
def test_the_t_interval_holds_the_mean(values: list[float]) -> None:
    interval = summary_statistics.student_interval(values)
    assert interval is not None and summary_statistics.mean(values) in interval


def test_one_value_has_no_interval_no_spread_and_a_warning() -> None:
    assert summary_statistics.student_interval([7.0]) is None
    assert summary_statistics.coefficient_of_variation([7.0]) is None
    assert summary_statistics.pooled_spread([[7.0], [8.0]]) is None
    assert "once" in (summary_statistics.stability_warning([7.0]) or "")
    with pytest.raises(ValueError, match="at least 1"):
        summary_statistics.mean([])


def test_equal_values_have_an_interval_of_no_width() -> None:
    interval = summary_statistics.student_interval([5.0] * 9)
    assert interval is not None and (interval.low, interval.high) == (5.0, 5.0)


def test_the_t_interval_by_hand() -> None:
    # 10, 12, 14: mean 12, s 2, t(0.975; 2) = 4.30265: 12 -+ 4.30265 * 2 / sqrt(3)
    interval = summary_statistics.student_interval([10.0, 12.0, 14.0])
    assert interval is not None
    assert interval.low == pytest.approx(12 - 4.30265 * 2 / math.sqrt(3), abs=1e-4)
    assert interval.high == pytest.approx(12 + 4.30265 * 2 / math.sqrt(3), abs=1e-4)


@pytest.mark.parametrize("n", [2, 3, 5, 12])
def test_mean_intervals_hold_the_truth_as_often_as_they_say(n: int) -> None:
    """300 experiments of which 95 % must hold: fewer than 88 % has a probability below 1e-5 if they do."""
    rng = random.Random(n)
    held = 0
    for _ in range(300):
        values = [100 * (1 + rng.gauss(0, 0.05)) for _ in range(n)]
        interval = summary_statistics.student_interval(values)
        assert interval is not None
        held += 100.0 in interval
    assert held >= 0.88 * 300


def test_pooled_spread_by_hand() -> None:
    # Two groups, logarithms -+0.1 and -+0.3 around their means: squares 2 * 0.01 + 2 * 0.09 over 2 degrees.
    groups = [[5 * math.exp(-0.1), 5 * math.exp(0.1)], [7 * math.exp(-0.3), 7 * math.exp(0.3)], [9.0]]
    spread = summary_statistics.pooled_spread(groups)
    assert spread is not None and spread.degrees == 2
    assert spread.log_deviation == pytest.approx(math.sqrt(0.2 / 2))


def test_stability() -> None:
    assert summary_statistics.stability_warning([100.0, 101.0, 99.0]) is None
    assert "scatter by" in (summary_statistics.stability_warning([100.0, 150.0, 60.0]) or "")


def test_the_interval_of_two_that_scatter_differently_holds_its_level() -> None:
    """4000 simulated comparisons, one target five times as noisy: 95 % of the intervals hold the true ratio."""
    rng = random.Random(3)
    held = 0
    n = 4000
    for _ in range(n):
        own = [200 * math.exp(rng.gauss(0, 0.10)) for _ in range(4)]
        other = [100 * math.exp(rng.gauss(0, 0.02)) for _ in range(4)]
        spreads = []
        for values in (own, other):
            logs = [math.log(v) for v in values]
            centre = sum(logs) / 4
            spreads.append(Spread(math.sqrt(sum((x - centre) ** 2 for x in logs) / 3), 3))
        found = summary_statistics.welch_ratio_interval(own, other, *spreads)
        assert found is not None
        held += 2.0 in found
    assert held / n == pytest.approx(0.95, abs=0.02)
