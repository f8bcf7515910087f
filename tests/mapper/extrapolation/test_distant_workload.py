"""Advice: the configuration, its reasons and what would change it, on workloads with a known answer."""

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from cephfit.cli.main import cephfit
from cephfit.cli.predict.advise_command import network_of
from cephfit.core.errors import InputError
from cephfit.core.values.baseline import Baseline, Baselines, MeasuredLoad
from cephfit.core.values.cells import LoadedCell, Op, Pattern
from cephfit.core.values.demand import Commits, Demand
from cephfit.core.values.profile import Profile
from cephfit.core.values.supply import Estimate
from cephfit.mapper import predictor
from cephfit.mapper.extrapolation.distance import Distance
from cephfit.mapper.extrapolation.distant_workload import (
    Advice,
    advised,
    fastest,
    of_targets,
    other_targets,
    predicted_at_distance,
    ratio_of_targets,
)

WRITE = LoadedCell.measured(4096, Pattern.RANDWRITE)
DEEP = LoadedCell.measured(4096, Pattern.RANDWRITE, iodepth=16)
READ = LoadedCell.measured(1 << 20, Pattern.READ)


def baselines(rates: dict[str, dict[LoadedCell, float]]) -> Baselines:
    """Three rounds of each rate, 1 % apart."""
    loaded = {
        (name, cell): Baseline(name, cell.bin_cell, tuple(rate * wobble for wobble in (0.99, 1.0, 1.01)))
        for name, its in rates.items()
        for cell, rate in its.items()
    }
    cells = {(name, c.bin_cell): b for (name, c), b in loaded.items() if c.iodepth == 1}
    return Baselines(cells, "measured", loaded=loaded)


def profile(writes: int, reads: int, *, write_seconds: float, read_seconds: float) -> Profile:
    accesses = {op: dict.fromkeys(("4K", "32K", "128K", "1M", "32M"), 0) for op in Op}
    accesses[Op.WRITE]["4K"], accesses[Op.READ]["1M"] = writes, reads
    demands = (
        Demand(Pattern.RANDWRITE, 4096, True, 1.0, True, writes, write_seconds),
        Demand(Pattern.READ, 1 << 20, True, 1.0, True, reads, read_seconds),
    )
    random = {Op.READ: 0.0, Op.WRITE: 1.0}
    return Profile("w", accesses, random, demands=demands, idle_seconds=1.0, commits=Commits(flushes=writes // 4))


NEAR = {
    "A": {WRITE: 100.0, READ: 20.0},
    "small": {WRITE: 400.0, READ: 20.0},
    "large": {WRITE: 100.0, READ: 60.0},
}


def advice(distance: Distance, *, rates: dict[str, dict[LoadedCell, float]] = NEAR) -> Advice:
    """1000 writes of 10 ms, 60 reads of 50 ms."""
    workload = profile(1000, 60, write_seconds=10.0, read_seconds=3.0)
    return advised(predictor(), workload, baselines(rates), distance, target="t")


def test_small_writes_decide_and_the_reasons_state_it() -> None:
    found = advice(Distance())
    assert found.best == "small"
    assert any("4K-randwrite is 77 % of the workload" in reason for reason in found.reasons)
    assert any("77 % of its waiting is for synchronous writes of up to 16K" in reason for reason in found.reasons)
    assert any("once per 4 writes" in reason for reason in found.reasons)
    assert "+" in found.certainty


def test_the_distance_at_which_the_advice_changes_is_named() -> None:
    """16 outstanding: `parallel` serves 1600/s, each in 10 ms; `quick` 1000/s at any depth, alone in 1 ms.

    Its 16 / (10 ms + Z) falls below 1000/s beyond Z = 6 ms, while `quick` stays near 1000/s: at 4 ms each way Z is
    8 ms, at 2 ms it is 4 ms.
    """
    rates = {
        "A": {WRITE: 400.0, DEEP: 400.0},
        "parallel": {WRITE: 100.0, DEEP: 1600.0},
        "quick": {WRITE: 1000.0, DEEP: 1000.0},
    }
    accesses = {op: dict.fromkeys(("4K", "32K", "128K", "1M", "32M"), 0) for op in Op}
    accesses[Op.WRITE]["4K"] = 4000
    demand = Demand(Pattern.RANDWRITE, 4096, True, 16.0, True, 4000, 10.0)
    workload = Profile("deep", accesses, {Op.READ: 0.0, Op.WRITE: 1.0}, demands=(demand,), idle_seconds=0.0)
    here = advised(predictor(), workload, baselines(rates), Distance(), target="t")
    assert here.best == "parallel"
    assert "at 4 ms each way, quick would be the best" in here.changes
    there = advised(predictor(), workload, baselines(rates), Distance(one_way_seconds=0.008), target="t")
    assert there.best == "quick"
    assert "at 2 ms each way, parallel would be the best" in there.changes
    assert any("accesses outstanding is 16:" in reason for reason in there.reasons)


def test_the_workload_there_waits_as_long_as_the_prediction_of_the_default_says() -> None:
    """Small and large accesses are outstanding together: the trace has the same waiting time of both."""
    workload = profile(100, 100, write_seconds=2.0, read_seconds=2.0)
    together = tuple(replace(d, depth=2.0) for d in workload.demands or ())
    workload = replace(workload, demands=together, commits=Commits(25, 0.5))
    found = predicted_at_distance(predictor(), workload, baselines(NEAR), Distance(one_way_seconds=0.01))
    here, there = 1.0 + 4.0 + 0.5, 1.0 + sum(d.waiting_seconds or 0.0 for d in found.profile.demands or ())
    assert found.default_relative == pytest.approx(100 * here / there)
    assert found.profile.commits == Commits(25, 0.0)


def test_rates_in_a_mix_show_nothing_about_distances() -> None:
    mixed = replace(baselines(NEAR), loaded={}, measured_load=MeasuredLoad(read_pct=70))
    workload = profile(1000, 60, write_seconds=10.0, read_seconds=3.0)
    found = advised(predictor(), workload, mixed, Distance(), target="t")
    assert found.best == "small"
    assert found.changes[0].startswith("whether another distance changes the best is unknown: rates in a mix")
    others = other_targets(predictor(), workload, {"t": mixed, "u": mixed}, Distance(), "t")
    assert others[0].startswith("whether another target serves more at another distance is unknown")
    with pytest.raises(InputError, match="rates in a mix"):
        advised(predictor(), workload, mixed, Distance(one_way_seconds=0.01), target="t")


def test_without_a_difference_nothing_is_recommended() -> None:
    same = {name: {WRITE: 100.0, READ: 20.0} for name in ("A", "B")}
    found = advice(Distance(), rates=same)
    assert found.best == "A"
    assert "no configuration is distinguishably better" in found.certainty


def test_the_target_that_serves_most_is_chosen_and_equals_are_named() -> None:
    slow, fast = (
        advised(
            predictor(),
            profile(1000, 60, write_seconds=10.0, read_seconds=3.0),
            baselines({"A": {WRITE: 100.0 * factor, READ: 20.0 * factor}}),
            Distance(),
            target=name,
        )
        for name, factor in (("slow", 1.0), ("fast", 3.0))
    )
    assert fastest([slow, fast]) == (fast, ())
    assert fastest([slow, replace(slow, target="as slow")]) == (slow, ("as slow",))


def test_a_target_that_serves_half_as_much_may_be_as_fast_for_the_workload() -> None:
    """Of twelve ratios between real back ends, some were wrong by a factor of 2."""
    workload = profile(1000, 60, write_seconds=10.0, read_seconds=3.0)
    half, whole = (advised(predictor(), workload, b, Distance(), target=t) for t, b in targets(1.0, 2.0).items())
    assert fastest([half, whole]) == (whole, ("slow",))


def test_the_ratio_of_targets_has_the_error_of_both_rates_and_its_own() -> None:
    known = Estimate(200.0, 200.0, 200.0), Estimate(100.0, 100.0, 100.0)
    found = ratio_of_targets(*known, confidence=0.95)
    assert found.value == pytest.approx(2.0)
    assert (found.low, found.high) == pytest.approx((2 / 2.512, 2 * 2.512), rel=1e-3), "exp(1.96 x 0.47)"
    half_busy = ratio_of_targets(*known, confidence=0.95, busy_share=0.5)
    assert half_busy.value == pytest.approx(1 / 0.75), "the time without I/O stays"
    open_end = ratio_of_targets(Estimate(200.0, 0.0, 400.0), known[1], confidence=0.95)
    assert open_end.low == 0.0 and open_end.high == pytest.approx(2 * 3.167, rel=1e-3)


def targets(*factors: float, names: tuple[str, ...] = ("slow", "fast")) -> dict[str, Baselines]:
    """One configuration on each target."""
    return {
        name: baselines({"A": {WRITE: 100.0 * factor, READ: 20.0 * factor}})
        for name, factor in zip(names, factors, strict=True)
    }


def test_what_each_target_serves_is_a_reason() -> None:
    """1000 writes of 10 ms and 60 reads of 50 ms: 1060 accesses in 13 s on the slow target, 81.5 per second."""
    workload = profile(1000, 60, write_seconds=10.0, read_seconds=3.0)
    advices = [advised(predictor(), workload, b, Distance(), target=t) for t, b in targets(1.0, 3.0).items()]
    fast, slow = of_targets(advices)
    assert fast.startswith("fast serves 245 accesses of its mix per second with A (2")
    assert slow.startswith("slow serves 81.5 accesses of its mix per second with A (")
    assert advices[0].certainty == "only the default was measured, so no configuration was compared with it"
    assert advices[0].changes == (), "no other configuration could be the best at another distance"


def test_a_rate_from_fewer_accesses_outstanding_says_what_decides() -> None:
    deep = profile(1000, 60, write_seconds=10.0, read_seconds=3.0)
    deep = replace(deep, demands=tuple(replace(d, depth=16.0) for d in deep.demands or ()), idle_seconds=0.0)
    found = of_targets([advised(predictor(), deep, baselines({"A": NEAR["A"]}), Distance(), target="t")])
    assert found[0].endswith("(78.9 to 1,349)"), "sixteen outstanding serve at most sixteen times as much"
    assert found[1].startswith("more accesses were outstanding than measured on t,")
    assert "larger `iodepth`" in found[1]


def test_the_distance_at_which_another_target_serves_more_is_named() -> None:
    """`deep` serves 16 writes at once at 1600/s, each in 10 ms; `quick` 1000/s at any depth (as above)."""
    rates = {"deep": {WRITE: 100.0, DEEP: 1600.0}, "quick": {WRITE: 1000.0, DEEP: 1000.0}}
    accesses = {op: dict.fromkeys(("4K", "32K", "128K", "1M", "32M"), 0) for op in Op}
    accesses[Op.WRITE]["4K"] = 4000
    demand = Demand(Pattern.RANDWRITE, 4096, True, 16.0, True, 4000, 10.0)
    workload = Profile("deep", accesses, {Op.READ: 0.0, Op.WRITE: 1.0}, demands=(demand,), idle_seconds=0.0)
    measured = {name: baselines({"A": its}) for name, its in rates.items()}
    here = other_targets(predictor(), workload, measured, Distance(), "deep")
    assert here == ["at 4 ms each way, quick would serve more than deep"]
    there = other_targets(predictor(), workload, measured, Distance(one_way_seconds=0.008), "quick")
    assert there == ["at 2 ms each way, deep would serve more than quick"]
    alone = other_targets(predictor(), workload, {"quick": measured["quick"]}, Distance(), "quick")
    assert alone == ["no distance up to 128 ms each way puts another target before quick"]


def test_a_flush_after_each_write_is_in_words_and_small_cells_are_no_reason() -> None:
    workload = profile(1000, 1, write_seconds=10.0, read_seconds=0.01)
    workload = replace(workload, commits=Commits(flushes=1000))
    found = advised(predictor(), workload, baselines({"A": NEAR["A"]}), Distance(), target="t")
    assert "it flushes after each write" in found.reasons
    assert any("of the workload is 4K-randwrite" in reason for reason in found.reasons)
    assert not any(reason.startswith("0 %") for reason in found.reasons)


def test_a_network_is_read_from_text() -> None:
    assert network_of("rtt=20ms,loss=1%,bandwidth=100mbit") == Distance(0.010, loss=0.01, nbytes_per_s=12.5e6)
    assert network_of("rtt=2ms,window=256k") == Distance(0.001, window_nbytes=256 * 1024)
    assert network_of("rtt=2ms,window=1.5MiB,connections=4") == Distance(
        0.001, window_nbytes=3 * 512 * 1024, connections=4
    )
    assert network_of("rtt=0.5s, tcp=bbr") == Distance(0.25, loss_is_congestion=False)
    assert network_of(None) == Distance()


@pytest.mark.parametrize(
    "wrong",
    [
        *("rtt=20", "rtt=20ms,rtt=1ms", "latency=3ms", "loss=1", "rtt=-1ms", "tcp=bbr,tcp=cubic", "tcp=bbr"),
        *("rtt=2ms,connections=1.5", "rtt=2ms,connections=-1", "connections=4", "window=256K"),
    ],
)
def test_a_wrong_network_is_refused(wrong: str) -> None:
    with pytest.raises(InputError, match="not a property of a network"):
        network_of(wrong)


def test_sizes_and_counts_are_checked_as_everywhere() -> None:
    with pytest.raises(InputError, match="'256kbit' is not a size"):
        network_of("rtt=2ms,window=256kbit")
    with pytest.raises(InputError, match="there is no connection"):
        network_of("rtt=2ms,connections=0")


def test_connections_share_what_a_window_lets_through() -> None:
    one, four = (advice(network_of(f"rtt=20ms,window=64K,connections={n}")) for n in (1, 4))
    assert any("let at most 3.12 MiB/s through" in reason for reason in one.reasons)  # 64 KiB / 20 ms
    assert any("let at most 12.5 MiB/s through" in reason for reason in four.reasons)


def test_the_command_says_the_configuration_first() -> None:
    data = Path(__file__).resolve().parents[3] / "benchmarks" / "data" / "evaluation-reef"
    arguments = ["advise", f"{data}/profiles/key-value.json", "--baselines", f"{data}/baselines.csv"]
    answer = CliRunner().invoke(cephfit, [*arguments, "--network", "rtt=20ms"])
    assert answer.exit_code == 0, answer.output
    assert answer.output.startswith("key-value: use ssd\n")
    for part in ("How sure:", "Because:", "What would change it:", "10 ms farther each way"):
        assert part in answer.output
