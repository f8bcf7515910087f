"""The distance model against exact solutions of queueing networks, closed forms and the tables of Ng et al."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import distance_check, ng_distance
from benchmarks.ng_distance import access_seconds, congested_delays, congestion, errors
from cephfit.core.errors import InputError
from cephfit.core.values.baseline import Baseline, Baselines, MeasuredLoad
from cephfit.core.values.cells import Cell, LoadedCell, Op, Pattern, size_bin
from cephfit.core.values.demand import Demand
from cephfit.core.values.profile import Profile
from cephfit.mapper import predictor
from cephfit.mapper.extrapolation import distance
from cephfit.mapper.extrapolation.distance import (
    Distance,
    baselines_at_distance,
    closed_rate,
    rates_by_outstanding,
    write_cache_nbytes,
)
from cephfit.mapper.extrapolation.distant_workload import predicted_at_distance

READ_4K = LoadedCell.measured(4096, Pattern.RANDREAD)
FSYNC_4K = LoadedCell.measured(4096, Pattern.RANDWRITE, sync="fsync")


def mean_value_analysis(services: Sequence[float], delay: float, customers: int) -> list[float]:
    """Rates of a closed network of single-server queues and a delay for 1 ... N customers (Reiser, Lavenberg)."""
    queues, rates = [0.0] * len(services), []
    for n in range(1, customers + 1):
        residence = [s * (1 + q) for s, q in zip(services, queues, strict=True)]
        rates.append(n / (delay + sum(residence)))
        queues = [rates[-1] * r for r in residence]
    return rates


@pytest.mark.parametrize("customers", [1, 2, 7, 40])
@pytest.mark.parametrize("delay", [0.0005, 0.004, 0.3])
def test_the_rate_far_away_is_that_of_the_whole_network_solved_by_mean_value_analysis(
    customers: int, delay: float
) -> None:
    storage = [0.002, 0.0007, 0.0015]
    near = mean_value_analysis(storage, 0.0, customers)
    found = closed_rate(np.array(near), delay)
    assert found == pytest.approx(mean_value_analysis(storage, delay, customers)[-1], rel=1e-9)


def test_a_link_is_one_more_queue() -> None:
    near = mean_value_analysis([0.002, 0.0007], 0.0, 9)
    exact = mean_value_analysis([0.002, 0.0007, 0.001], 0.004, 9)[-1]
    assert closed_rate(np.array(near), 0.004, link=1000.0) == pytest.approx(exact, rel=1e-9)


def test_one_access_at_a_time_takes_its_time_plus_the_round_trip() -> None:
    rate = Distance(one_way_seconds=0.002).rates(READ_4K, np.array([125.0]))
    assert 1 / rate == pytest.approx(access_seconds(disk=0.008, one_way=0.002, protocol=0.0))
    assert 1 / rate == pytest.approx(0.012)


def test_a_masked_write_takes_the_longer_of_disk_and_round_trip() -> None:
    assert access_seconds(10.0, 1.0, 0.5, masked=True) == 10.5
    assert access_seconds(10.0, 8.0, 0.5, masked=True) == 16.5
    write = LoadedCell.measured(4096, Pattern.RANDWRITE)
    for one_way, seconds in ((0.001, 0.010), (0.008, 0.016)):
        its = Distance(one_way_seconds=one_way, acknowledged_seconds=0.0)
        assert 1 / its.rates(write, np.array([100.0])) == pytest.approx(seconds)
        assert 1 / its.rates(READ_4K, np.array([100.0])) == pytest.approx(0.010 + 2 * one_way), "reads are not"
    late = Distance(one_way_seconds=0.008, acknowledged_seconds=0.003)
    assert 1 / late.rates(write, np.array([100.0])) == pytest.approx(0.019)


def test_many_outstanding_accesses_hide_the_distance_from_a_busy_server() -> None:
    busy = np.full(64, 500.0)  # one server: the rate does not grow with the depth
    its = Distance(one_way_seconds=0.002)
    assert its.rates(READ_4K, busy[:1]) == pytest.approx(1 / 0.006)
    assert its.rates(READ_4K, busy) == pytest.approx(500.0, rel=1e-6)


def test_flushes_wait_one_after_the_other() -> None:
    far = Distance(one_way_seconds=0.005)
    assert 1 / far.rates(FSYNC_4K, np.array([100.0])) == pytest.approx(0.010 + 0.010 + 0.010)
    eighth = LoadedCell.measured(4096, Pattern.RANDWRITE, sync="every 8")
    assert 1 / far.rates(eighth, np.array([100.0])) == pytest.approx(0.010 + 0.010 + 0.010 / 8)
    durable = LoadedCell.measured(4096, Pattern.RANDWRITE, sync="dsync")
    assert 1 / far.rates(durable, np.array([100.0])) == pytest.approx(0.020), "the write itself is durable"


def test_clients_do_not_wait_for_the_flushes_of_each_other() -> None:
    """Each of four has one write at a time in 10 ms; farther away 20 ms, and 10 ms for the flush."""
    far = Distance(one_way_seconds=0.005)
    assert far.rates(FSYNC_4K, np.array([100.0, 200.0, 300.0, 400.0])) == pytest.approx(4 / 0.030)
    deep = replace(FSYNC_4K, iodepth=4)
    assert far.rates(deep, np.array([100.0, 200.0, 300.0, 400.0])) == pytest.approx(1 / (0.020 / 4 + 0.010))


def test_bandwidth_limits_large_accesses() -> None:
    its = Distance(nbytes_per_s=12.5e6)  # 100 Mbit/s
    large = LoadedCell.measured(1 << 20, Pattern.READ)
    assert 1 / its.rates(large, np.array([100.0])) == pytest.approx(0.010 + (1 << 20) / 12.5e6)


def test_a_window_costs_round_trips_and_bounds_all_accesses_together() -> None:
    its = Distance(one_way_seconds=0.010, window_nbytes=65536)
    large = LoadedCell.measured(1 << 20, Pattern.READ)
    # 16 windows: the first one travels with the access, each further one waits for an acknowledgement.
    assert 1 / its.rates(large, np.array([100.0])) == pytest.approx(0.010 + 0.020 * 16)
    assert 1 / its.rates(FSYNC_4K, np.array([100.0])) == pytest.approx(0.010 + 0.020 + 0.020), "fits into one"
    many = replace(its, connections=4).rates(large, np.full(64, 1e6))
    assert many == pytest.approx(4 * 65536 / 0.020 / (1 << 20)), "64 at once share four windows"
    assert replace(its, one_way_seconds=0.0).rates(large, np.array([100.0])) == pytest.approx(100)
    with pytest.raises(InputError, match="TCP window"):
        Distance(window_nbytes=100)


def test_loss_costs_a_repeated_packet_and_bandwidth() -> None:
    its = Distance(one_way_seconds=0.010, loss=0.01)
    # 4096 bytes are three segments, repeated after two round trips; the request is alone, and waits 0.2 s more.
    assert its.loss_seconds(4096) == pytest.approx(0.01 * 0.24 + 3 * 0.01 * 0.04, rel=0.02)
    assert its.loss_seconds(512) == pytest.approx(2 * 0.01 * 0.24), "both messages are one segment"
    # Mathis: 1448 bytes / 20 ms x sqrt(3/2) / sqrt(0.01).
    assert its.link_nbytes_per_s == pytest.approx(1448 / 0.020 * math.sqrt(1.5) * 10)
    assert replace(its, loss_is_congestion=False).link_nbytes_per_s == math.inf


def test_segments_that_are_lost_at_once_are_repeated_at_once() -> None:
    """Mean of the largest of m geometric numbers of repetitions, against a simulation."""
    its, rng = Distance(one_way_seconds=0.010, loss=0.1), np.random.default_rng(5)
    repetitions = (rng.geometric(0.9, size=(20_000, 91)) - 1).max(axis=1).mean()
    alone = 0.1 * (0.2 + 0.04)
    assert its.loss_seconds(91 * 1448) == pytest.approx(alone + repetitions * 0.04, rel=0.02)


def test_a_write_cache_holds_bandwidth_times_delay() -> None:
    assert write_cache_nbytes(10e6, 0.008) == pytest.approx(80_000)


def test_between_measured_depths_the_time_in_the_storage_is_linear() -> None:
    rates = rates_by_outstanding([1, 4], [100.0, 200.0], 4)
    assert 1e3 * np.arange(1, 5) / rates == pytest.approx([10, 40 / 3, 50 / 3, 20])


def _baselines(rates: dict[str, dict[LoadedCell, tuple[float, ...]]]) -> Baselines:
    loaded = {(name, c): Baseline(name, c.bin_cell, r) for name, its in rates.items() for c, r in its.items()}
    cells = {(name, c.bin_cell): b for (name, c), b in loaded.items() if c.iodepth == 1 and not c.sync}
    return Baselines(cells, "here", loaded=loaded)


def test_without_a_distance_nothing_changes() -> None:
    deep = LoadedCell.measured(4096, Pattern.RANDREAD, iodepth=16)
    here = _baselines({"A": {READ_4K: (90.0, 110.0), deep: (300.0, 310.0), FSYNC_4K: (20.0, 21.0)}})
    there = baselines_at_distance(here, Distance()).baselines
    for place, baseline in here.loaded.items():
        assert there.loaded[place].iops == pytest.approx(baseline.iops)


def test_rounds_keep_their_scatter_at_depth_one_exactly() -> None:
    here = _baselines({"A": {READ_4K: (90.0, 110.0)}})
    there = baselines_at_distance(here, Distance(one_way_seconds=0.002)).baselines
    expected = [1 / (1 / 90 + 0.004), 1 / (1 / 110 + 0.004)]
    assert there.loaded["A", READ_4K].iops == pytest.approx(expected)
    assert there.cells["A", READ_4K.bin_cell].iops == pytest.approx(expected)


def test_only_deep_rates_are_lower_bounds_and_a_note_states_it() -> None:
    deep = LoadedCell.measured(4096, Pattern.RANDREAD, iodepth=16)
    found = baselines_at_distance(_baselines({"A": {deep: (300.0,)}}), Distance(one_way_seconds=0.002))
    assert any("iodepth of 16" in note for note in found.notes)
    saturated = _baselines({"A": {deep: (300.0,), READ_4K: (300.0,)}})
    known = baselines_at_distance(saturated, Distance(one_way_seconds=0.002))
    assert found.baselines.loaded["A", deep].iops[0] < known.baselines.loaded["A", deep].iops[0]
    assert known.baselines.loaded["A", deep].iops[0] == pytest.approx(300, rel=1e-6)


def test_rates_of_a_mix_are_refused() -> None:
    mixed = Baselines({}, "here", measured_load=MeasuredLoad(read_pct=70))
    with pytest.raises(InputError, match="do not show how long an access takes"):
        baselines_at_distance(mixed, Distance(one_way_seconds=0.001))


IMPOSSIBLE = [
    {"one_way_seconds": -1.0},
    {"one_way_seconds": 1e305},
    {"one_way_seconds": math.nan},
    {"acknowledged_seconds": 1e9},
    {"rtt_per_access": 1e300},
    {"loss": 1.0},
    {"loss": 0.21},
    {"nbytes_per_s": 0.0},
    {"nbytes_per_s": 1e-300},
    {"nbytes_per_s": math.nan},
]


@pytest.mark.parametrize("wrong", IMPOSSIBLE)
def test_impossible_distances_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match=r"delay|round trips|bandwidth|losses"):
        Distance(**wrong)  # type: ignore[arg-type]


def test_a_fast_configuration_gains_less_far_away() -> None:
    """1000 reads of 8 ms here, 2 ms under X: four times as fast. 10 ms farther: 18 ms against 12 ms."""
    here = _baselines({"A": {READ_4K: (125.0, 125.0)}, "X": {READ_4K: (500.0, 500.0)}})
    accesses = {op: dict.fromkeys(("4K", "32K", "128K", "1M", "32M"), 0) for op in Op}
    accesses[Op.READ]["4K"] = 1000
    demand = Demand(Pattern.RANDREAD, 4096, True, 1.0, True, 1000, 8.0)
    profile = Profile("w", accesses, dict.fromkeys(Op, 1.0), demands=(demand,), idle_seconds=2.0)
    found = predicted_at_distance(predictor(), profile, here, Distance(one_way_seconds=0.005))
    relative = {p.configuration: p.relative for p in found.predictions.predictions}
    assert found.default_relative == pytest.approx(100 * 10 / 20), "2 s idle + 8 s, then 2 s + 18 s"
    assert relative["X"] == pytest.approx(100 * 20 / 14)
    assert found.of_here("X") == pytest.approx(100 * 10 / 14)
    assert "A is at 50 % of its speed here" in found.sentence()


def test_ngs_first_table_is_predicted_from_its_row_without_a_distance() -> None:
    found = errors(with_cache=True)
    off = [abs(predicted / measured - 1) for measured, predicted in found.values()]
    assert len(off) == 64
    assert max(off) < 0.10
    assert float(np.median(off)) < 0.02
    # Without the masking, random writes would be off by more than half.
    measured, _ = found["DNES_rw", 4]
    assert (11.38 + 8) / measured > 1.5


def test_the_document_has_the_tables_that_the_benchmark_prints() -> None:
    text = (Path(__file__).resolve().parents[3] / "docs" / "distance.md").read_text()
    for tables in (ng_distance.TABLES, distance_check.TABLES):
        for lines in tables.values():
            assert "\n".join(lines()) in text


def test_cells_of_unknown_depth_count_as_one_access_at_a_time() -> None:
    cell = Cell(size_bin("4K"), Pattern.RANDREAD)
    found = baselines_at_distance(
        Baselines({("A", cell): Baseline("A", cell, (100.0,))}, "csv"), Distance(one_way_seconds=0.005)
    )
    assert found.baselines.cells["A", cell].iops == pytest.approx((50.0,))
    assert any("unknown" in note for note in found.notes)


def test_ngs_congested_link_is_a_fixed_time_and_one_in_proportion_to_the_loss() -> None:
    for application, largest in (
        ("PM_ffs", 0.07),
        ("PM_soft", 0.12),
        ("PM_nt_ntfs", 0.10),
        ("TPCC_nt_ntfs", 0.02),
    ):
        rows, fit = congestion(application)
        off = [1 / np.asarray(fit["fitted"])[i] / row[application] - 1 for i, row in enumerate(rows)]
        assert max(map(abs, off)) < largest


def test_the_fit_of_a_congested_link_finds_known_coefficients() -> None:
    rtt, loss = np.array([0.001, 0.002, 0.003, 0.001]), np.array([0.0, 1e-4, 1e-3, 5e-4])
    fit = congested_delays({"seconds": (0.01 + 6 * rtt + 40 * loss).tolist(), "rtt": rtt, "loss": loss})
    assert (fit["constant"], fit["round_trips"], fit["seconds_per_loss"]) == pytest.approx((0.01, 6, 40))


def test_the_largest_distance_has_finite_rates() -> None:
    largest = Distance(
        distance.MOST_SECONDS,
        distance.MOST_ROUND_TRIPS,
        distance.MOST_ROUND_TRIPS,
        distance.LEAST_NBYTES_PER_S,
        distance.MOST_LOSS,
        acknowledged_seconds=distance.MOST_SECONDS,
    )
    for pattern in Pattern:
        for without in (largest, replace(largest, acknowledged_seconds=None)):
            rate = without.rates(LoadedCell(32 << 20, pattern, 64, sync="fsync"), np.full(64, 1e6))
            assert 0 < rate < 1e-6
