"""The independent count: what the kernel saw in fio's measured time, and when the two cannot both be right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cephfit.core.protocols import Client
from cephfit.core.units import MIB, NS_PER_S
from cephfit.core.values.cells import Cell
from cephfit.core.values.sample import Metrics, State
from cephfit.measure.block_device import in_flight_nbytes, window_count
from cephfit.measure.engine import CellOutcome, CellRun, ClientOutcome, IndependentCount, disagreement
from cephfit.measure.surveillance import Circumstances, judge
from cephfit.sweep.declaration.sweep_file import parse_sweep


def metrics(nbytes: float, seconds: float = 2.0) -> Metrics:
    return Metrics(nbytes / 4096 / seconds, nbytes / seconds, int(nbytes // 4096), int(seconds * NS_PER_S), 1e6)


@given(
    rate=st.integers(1_000, 10**9),
    ramp=st.floats(0.1, 2),
    run=st.floats(0.5, 5),
    tail=st.floats(0.0, 1),
)
def test_a_steady_device_is_counted_to_within_what_is_allowed(
    rate: int, ramp: float, run: float, tail: float
) -> None:
    """The device works for ramp + run and then rests; of that the last ``run`` seconds are counted."""
    times = [i * 0.02 for i in range(int((ramp + run + tail) / 0.02) + 2)]
    values = [int(rate * min(t, ramp + run)) for t in times]
    count = window_count(times, values, source="test", runtime_ns=int(run * NS_PER_S), in_flight_nbytes=0)
    assert abs(count.window_nbytes - rate * run) <= count.allowed_nbytes + 1
    assert count.total_nbytes == values[-1]
    assert count.allowed_nbytes <= 0.2 * rate


def test_a_run_of_two_large_blocks_cannot_be_wrong_by_one_of_them() -> None:
    """At 32 MiB/s and depth 1 fio claims two blocks of 32M in 2 s; a device that moved one meanwhile denies it."""
    block, times = 32 * MIB, [i * 0.02 for i in range(201)]
    in_flight = in_flight_nbytes(1, block)

    def why(nbytes_per_s: float) -> str:
        values = [int(nbytes_per_s * t) for t in times]
        count = window_count(times, values, source="k", runtime_ns=2 * NS_PER_S, in_flight_nbytes=in_flight)
        claimed = Metrics(1.0, float(block), 2, 2 * NS_PER_S, 1e9)
        return disagreement(claimed, count)

    assert why(block) == ""
    assert "known causes explain" in why(block / 2)
    assert in_flight_nbytes(4, block) == 3 * block


def test_a_counter_that_never_moves_counts_nothing() -> None:
    count = window_count([0.0, 1.0, 2.0], [5, 5, 5], source="t", runtime_ns=NS_PER_S, in_flight_nbytes=0)
    assert (count.window_nbytes, count.total_nbytes) == (0, 0)
    assert "counted only 0" in disagreement(metrics(4096 * 100), count)


def test_more_than_the_device_ever_moved_is_never_right() -> None:
    """fio claims 10 MB, the device moved 9 MB in all: no allowance helps."""
    count = IndependentCount("the kernel", 10e6, 9_000_000, allowed_nbytes=1e9)
    assert "counted only 9000000" in disagreement(metrics(10e6), count)


def test_a_difference_that_is_explained_is_none() -> None:
    assert not disagreement(metrics(10e6), IndependentCount("k", 9.5e6, 20_000_000, allowed_nbytes=0.6e6))
    why = disagreement(metrics(10e6), IndependentCount("k", 9.5e6, 20_000_000, allowed_nbytes=0.4e6))
    assert "10000000" in why
    assert "9500000" in why


def _judged(
    *outcomes: ClientOutcome, unhealthy: tuple[str, ...] = (), program: str = "fio"
) -> list[tuple[State, str]]:
    sweep = parse_sweep(
        "{schema_version: 1, name: x, measurement: "
        "{clients: 2, volume_size: 32M, repeats: 1, run_seconds: 2, seed: 1}}",
        file="x",
    )
    clients = [Client(f"c{i}", {}, 1 << 25) for i in range(len(outcomes))]
    run = CellRun("A", Cell.parse("4K-read"), 0, 0, sweep.measurement, clients, {"c0": 1, "c1": 2})
    around = Circumstances(10, 20, (1, 2), unhealthy, 2)
    result = CellOutcome({f"c{i}": outcome for i, outcome in enumerate(outcomes)}, None, program)
    return [(s.state, s.reason) for s in judge(run, result, around)]


def test_one_client_that_disagrees_makes_the_run_invalid_and_says_both_numbers() -> None:
    good = IndependentCount("the kernel (/dev/x)", 8e6, 10_000_000, 1e5)
    wrong = IndependentCount("the kernel (/dev/y)", 4e6, 10_000_000, 1e5)
    first, second = _judged(ClientOutcome(metrics(8e6), count=good), ClientOutcome(metrics(8e6), count=wrong))
    assert second[0] is State.INVALID
    assert "8000000" in second[1]
    assert "4000000" in second[1]
    assert first[0] is State.INVALID
    assert "another client of the same run" in first[1]


@pytest.mark.parametrize("program", ["fio", "rados bench", "rbd bench"])
def test_the_program_that_measured_is_named_where_the_count_denies_it(program: str) -> None:
    less = ClientOutcome(metrics(8e6), count=IndependentCount("the OSDs", 4e6, 10_000_000, 1e5))
    never = ClientOutcome(metrics(8e6), count=IndependentCount("the OSDs", 8e6, 6_000_000, 1e5))
    (_, in_the_window), (_, in_all) = _judged(less, never, program=program)
    assert in_the_window.startswith(f"{program} reports 8000000 bytes moved in the measured time, but the OSDs")
    assert in_all.startswith(f"{program} reports 8000000 bytes moved, but the OSDs counted only 6000000")


def test_unhealthy_at_any_look_is_invalid_and_no_result_is_failed() -> None:
    assert _judged(ClientOutcome(metrics(8e6)), ClientOutcome(metrics(8e6))) == [(State.OK, "")] * 2
    ill = _judged(ClientOutcome(metrics(8e6)), ClientOutcome(metrics(8e6)), unhealthy=("OSD_DOWN",))
    assert {state for state, _ in ill} == {State.INVALID}
    assert all("OSD_DOWN" in reason for _, reason in ill)
    failed = _judged(ClientOutcome(None, "fio: Input/output error"), ClientOutcome(metrics(8e6)))
    assert [state for state, _ in failed] == [State.FAILED, State.INVALID]
