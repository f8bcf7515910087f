"""Whether a rate was steady over the measured time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cephfit.measure.block_device import steadiness_of

SECONDS = 5.0


def counter(rate, n: int = 500):
    """A counter sampled ``n`` times over a second of ramp and the measured time, with a rate given over time."""
    times = np.linspace(0.0, SECONDS + 1, n)
    values = np.concatenate([[0], np.cumsum(rate(times[1:]) * np.diff(times))])
    return list(times), [int(v) for v in values]


def found(rate, **more):
    times, values = counter(rate, **more)
    return steadiness_of(times, values, runtime_ns=int(SECONDS * 1e9))


def test_a_constant_rate_is_steady_and_the_ramp_before_it_does_not_count():
    steady = found(lambda t: np.where(t < 1, 5e6, 1e6))
    assert steady.is_steady
    assert steady.drift == pytest.approx(0, abs=0.01)


def test_a_rate_that_falls_by_a_third_drifts():
    falling = found(lambda t: 1e6 * (1.2 - 0.4 * (t - 1) / SECONDS))
    assert not falling.is_steady
    assert falling.drift == pytest.approx(-0.4, abs=0.02)


def test_a_pause_in_the_middle_is_an_excursion_without_drift():
    paused = found(lambda t: np.where(np.abs(t - 3.5) < 0.25, 0.0, 1e6))
    assert not paused.is_steady
    assert abs(paused.drift) < 0.1
    assert paused.excursion > 0.4


def test_a_counter_of_few_steps_tells_nothing():
    times = list(np.linspace(0.0, SECONDS, 500))
    values = [int(t) * 32 * 2**20 for t in times]
    assert steadiness_of(times, values, runtime_ns=int(SECONDS * 1e9)) is None
    assert steadiness_of([0.0, 1.0], [5, 5], runtime_ns=10**9) is None


@given(st.floats(1e5, 1e9), st.integers(200, 900))
def test_steadiness_does_not_depend_on_the_size_of_the_rate(rate: float, n: int):
    here = found(lambda t: rate * (1 + 0.3 * t / SECONDS), n=n)
    there = found(lambda t: 1e7 * (1 + 0.3 * t / SECONDS), n=n)
    assert here.drift == pytest.approx(there.drift, abs=0.01)
