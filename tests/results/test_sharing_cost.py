"""The cost of locks over repeats."""

import csv
import io
import math

import pytest

from cephfit.results.statistics.sharing_cost import (
    ClientFigures,
    SharingRun,
    cost_document,
    hand_over_of,
    runs_csv,
    sharing_costs,
)


def client(n: int, lock: float = 0.0, busy: int = 0, ms: float = 5.0) -> ClientFigures:
    return ClientFigures(n, lock, n * ms / 1000 - lock, 0.0, busy, (ms,) * n)


def run(way: str, repeat: int, *n: int, range_nbytes: int = 0, lock: float = 0.0, busy: int = 0) -> SharingRun:
    return SharingRun(way, range_nbytes, 20.0, repeat, 2.0, tuple(client(one, lock, busy) for one in n))


def test_the_cost_is_relative_to_the_same_round_so_a_slow_round_cancels() -> None:
    runs = [
        *(run("none", 0, 100, 300), run("none", 1, 50, 150), run("none", 2, 200, 200)),
        *(run("ranges", 0, 40, 60, range_nbytes=4096), run("ranges", 1, 25, 25, range_nbytes=4096)),
    ]
    free, ranges = sharing_costs(runs)
    assert free.relative is None
    assert free.rate.mean == pytest.approx((200 + 100 + 200) / 3)
    assert free.slowest_rate.mean == pytest.approx((50 + 25 + 100) / 3)
    assert ranges.relative is not None and ranges.relative.interval is not None
    assert ranges.relative.mean == pytest.approx(25.0)
    assert ranges.relative.interval.low == pytest.approx(25.0), "both rounds have the same ratio"


def test_the_interval_of_the_cost_is_students_of_the_logarithms() -> None:
    runs = [run("none", 0, 100), run("none", 1, 100), run("exclusive-lock", 0, 40), run("exclusive-lock", 1, 50)]
    cost = sharing_costs(runs)[1].relative
    assert cost is not None and cost.interval is not None
    assert cost.mean == pytest.approx(100 * math.sqrt(0.4 * 0.5))
    half = 12.7062 * abs(math.log(0.5 / 0.4)) / 2
    assert cost.interval.high == pytest.approx(cost.mean * math.exp(half), rel=1e-4)


def test_shares_and_busy_locks_are_of_all_clients() -> None:
    (cost,) = sharing_costs([run("ranges", 0, 100, 100, range_nbytes=65536, lock=0.1, busy=25)])
    assert cost.lock_share == pytest.approx(0.2)
    assert cost.busy_per_access == pytest.approx(0.25)
    assert (cost.mean_ms.mean, cost.p99_ms) == (5.0, 5.0)
    assert cost.mean_ms.interval is None, "measured once"
    assert cost_document(cost)["relative"] is None


def test_a_run_without_accesses_has_no_cost_and_a_row_without_times() -> None:
    stuck = run("exclusive-lock", 0, 0, 0)
    assert sharing_costs([stuck]) == ()
    rows = list(csv.DictReader(io.StringIO(runs_csv([stuck, run("none", 0, 10, 30)]))))
    assert [row["accesses_per_s"] for row in rows] == ["0.0", "0.0", "5.0", "15.0"]
    assert [row["mean_ms"] for row in rows] == ["", "", "5.0", "5.0"]


def test_a_hand_over_costs_the_first_write_of_a_turn() -> None:
    found = hand_over_of("exclusive-lock", [(30.0, 5.0, 5.0), (50.0, 4.0, 6.0)])
    assert (found.first_ms.mean, found.later_ms.mean, found.cost_ms.mean) == (40.0, 5.0, 35.0)
    assert found.n_turns == 2
