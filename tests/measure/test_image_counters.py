"""What the OSDs count for single images: the manager's answers, and how well they tell a run's measured time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cephfit.core.protocols import Client
from cephfit.core.units import MIB, NS_PER_S
from cephfit.core.values.cells import Op
from cephfit.core.values.sample import Metrics
from cephfit.measure.engine import disagreement
from cephfit.measure.osd_watch import LEAST_PERIODS, ImageIo, ImageWatch, image_count, is_image, parse

ANSWER = {
    "timestamp": 1795286800.0,
    "counter_descriptors": ["write_ops", "read_ops", "write_bytes", "read_bytes", "write_latency", "read_latency"],
    "pool_descriptors": {"0": "bench", "1": "rbd"},
    "counters": [
        {"0/A.c0": [390, 0, 1597440, 0, 4871236123, 0]},
        {"1/A.c0": [0, 10600, 0, 43417600, 0, 3871236123]},
    ],
}
"""As Ceph 16.2 gave it; images of one name in two pools."""


def test_images_are_told_apart_by_pool_and_name() -> None:
    assert parse(ANSWER) == {
        ("bench", "A.c0"): ImageIo(write_ops=390, written_nbytes=1597440),
        ("rbd", "A.c0"): ImageIo(read_ops=10600, read_nbytes=43417600),
    }


def test_an_image_made_anew_under_a_name_counts_on_from_the_deleted_one() -> None:
    twice = {**ANSWER, "counters": [{"0/A.c0": [1, 0, 4096, 0, 9, 0]}, {"0/A.c0": [2, 5, 8192, 512, 9, 9]}]}
    assert parse(twice) == {("bench", "A.c0"): ImageIo(3, 5, 12288, 512)}


@pytest.mark.parametrize(
    "damaged", [{}, {**ANSWER, "counter_descriptors": ["ops"]}, {**ANSWER, "pool_descriptors": {}}]
)
def test_another_answer_is_none(damaged: dict[str, object]) -> None:
    with pytest.raises((KeyError, TypeError, ValueError)):
        parse(damaged)


def reported(
    rate: int, seconds: float, period: float, phases: list[float], lag: float
) -> tuple[list[float], list[int]]:
    """What is read every half period while OSDs do ``rate`` bytes per second together, and three periods longer.

    Each OSD reports at its own moment of the period; the manager adds up as often, at another one.
    """

    def sent(osd: float, at: float) -> float:
        """Seconds of work in the reports that an OSD has sent until then."""
        return min(seconds, max(0.0, (at - osd) // period * period + osd))

    def known(at: float) -> int:
        added = (at - lag) // period * period + lag
        return int(sum(sent(osd, added) for osd in phases) * rate / len(phases))

    times = [i * period / 2 for i in range(int((seconds + 3 * period) / (period / 2)) + 1)]
    return times, [known(t) for t in times]


parts = st.floats(0, 0.99)


@given(
    rate=st.integers(10_000, 10**9),
    period=st.sampled_from([1.0, 5.0]),
    ramp=parts,
    periods=st.floats(LEAST_PERIODS, 60),
    phases=st.lists(parts, min_size=1, max_size=8),
    lag=parts,
)
def test_steady_io_is_counted_to_within_what_is_allowed(
    rate: int, period: float, ramp: float, periods: float, phases: list[float], lag: float
) -> None:
    run = periods * period
    ramp *= run
    times, values = reported(rate, ramp + run, period, [p * period for p in phases], lag * period)
    count = image_count(
        times, values, moved=values, runtime_ns=int(run * NS_PER_S), in_flight_nbytes=0, period_seconds=period
    )
    assert count.total_nbytes == pytest.approx(rate * (ramp + run), rel=1e-6, abs=len(values)), "all reports came"
    assert abs(count.window_nbytes - rate * run) <= count.allowed_nbytes + 2
    assert count.allowed_nbytes <= 4.5 * period * rate


def test_what_fio_claims_beyond_all_that_was_counted_is_never_explained() -> None:
    times, values = reported(MIB, 12, 1.0, [0.0, 0.5], 0.2)
    count = image_count(
        times, values, moved=values, runtime_ns=10 * NS_PER_S, in_flight_nbytes=0, period_seconds=1.0
    )

    def why(nbytes: int) -> str:
        return disagreement(Metrics(1.0, nbytes / 10, 1, 10 * NS_PER_S, 1e6), count)

    assert why(10 * MIB) == ""
    assert "counted only 12582912" in why(13 * MIB)
    assert "known causes explain" in why(5 * MIB)


def test_only_images_that_fio_opens_itself_are_counted_so() -> None:
    image = {"ioengine": "rbd", "pool": "p", "rbdname": "i"}
    assert is_image(Client("c0", image, 1))
    assert not is_image(Client("c0", {"filename": "/dev/vdb"}, 1))
    assert not is_image(Client("c0", image, 1, address="guest"))


def test_where_nobody_counts_the_reason_is_said() -> None:
    client = Client("c0", {"ioengine": "rbd", "pool": "p", "rbdname": "i"}, 1)
    with ImageWatch([client], Op.READ, run_seconds=100) as watch:
        pass
    assert watch.why_not(client) == "the clients do not belong to one cluster that can be queried"
    there = Client("c0", {**client.fio_options, "conf": "/nowhere/ceph.conf"}, 1)
    with ImageWatch([there], Op.READ, run_seconds=100) as watch:
        pass
    assert "this Ceph configuration file does not exist" in watch.why_not(there)
