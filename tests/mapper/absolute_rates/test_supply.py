"""Supply against known truths: closed forms by hand, and the simulated cluster."""

import math
from collections.abc import Mapping
from dataclasses import replace

import pytest
from simulated_evaluation import CONFIGURATIONS, simulated_baselines

from cephfit.core.errors import InputError
from cephfit.core.values.baseline import Baseline, Baselines, MeasuredLoad
from cephfit.core.values.cells import SIZE_BINS, Cell, LoadedCell, Op, Pattern
from cephfit.core.values.demand import Demand
from cephfit.core.values.fit import Verdict, fit_of, too_small
from cephfit.core.values.profile import Profile
from cephfit.core.values.supply import Estimate, Supply, SupplySet, WorkloadDemand
from cephfit.mapper.absolute_rates.supply import supply_or_reason, supply_set
from cephfit.mapper.models.shared_rates import shared
from cephfit.targets.simulated_storage import Access, iops

READ, WRITE = Cell.parse("4K-randread"), Cell.parse("4K-randwrite")


def workload(
    *,
    reads: int = 900,
    writes: int = 100,
    demands: tuple[Demand, ...] | None = None,
    idle: float | None = None,
    **description: object,
) -> Profile:
    """Random 4K reads and writes."""
    counts = {
        op: {b.name: n * (b.name == "4K") for b in SIZE_BINS} for op, n in ((Op.READ, reads), (Op.WRITE, writes))
    }
    return Profile("w", counts, dict.fromkeys(Op, 1.0), None, description, demands=demands, idle_seconds=idle)


def by_hand(rates: Mapping[str, tuple[float, float]], *, repeats: int = 3, **more: object) -> Baselines:
    """Rates of reads and writes, with repeats that scatter by 1 %."""
    cells = {
        (name, cell): Baseline(name, cell, tuple(rate * (1 + 0.01 * (i % 3 - 1)) for i in range(repeats)))
        for name, pair in rates.items()
        for cell, rate in zip((READ, WRITE), pair, strict=True)
    }
    return Baselines(cells, "by hand", **more)  # type: ignore[arg-type]


def test_a_mix_adds_up_as_time() -> None:
    """900 reads at 1000/s and 100 writes at 100/s take 1.9 s: 526.3 accesses per second."""
    found = supply_set(workload(duration_seconds=100.0), by_hand({"A": (1000, 100), "fast": (2000, 200)}))
    a, fast = found.supplies
    assert a.own_depth.value == pytest.approx(1000 / 1.9, rel=1e-3)
    assert (a.most, a.most_depth) == (a.own_depth, None), "a table without loads has one depth, which is unknown"
    assert fast.most.value == pytest.approx(2000 / 1.9, rel=1e-3)
    assert a.own_depth.low < 1000 / 1.9 < a.own_depth.high
    assert found.demand == WorkloadDemand(100.0, 10.0, None)
    headroom = found.headroom_of("A")
    assert headroom is not None
    assert headroom.value == pytest.approx(52.63, rel=1e-3)
    assert supply_set(
        workload(duration_seconds=100.0), by_hand({"A": (1000, 100), "fast": (2000, 200)})
    ).supplies == (
        a,
        fast,
    )


@pytest.fixture(scope="module")
def simulated() -> list[Baselines]:
    """Twelve sweeps with different noise."""
    return [
        simulated_baselines(
            CONFIGURATIONS[:5],
            seed=seed,
            noise=0.05,
            sizes=(4096, 65536),
            depths=(1, 4, 16),
            alignments=(0,),
            syncs=("",),
        )
        for seed in range(12)
    ]


@pytest.mark.parametrize("depth", [1, 4])
def test_supply_agrees_with_the_simulated_truth(simulated: list[Baselines], depth: int) -> None:
    """Rates of measured kinds are known exactly: the intervals hold them as often as they promise."""
    parts = ((Pattern.RANDREAD, 4096, 700), (Pattern.RANDWRITE, 65536, 200), (Pattern.WRITE, 4096, 100))
    demands = tuple(Demand(p, n, True, float(depth), p.op is Op.READ or None, k, 1.0) for p, n, k in parts)

    def truth(name: str, at: int) -> float:
        configuration = next(c for c in CONFIGURATIONS if c.name == name)
        seconds = [k / iops(configuration, Access(n, p, at)) for p, n, k in parts]
        return sum(k for _, _, k in parts) / math.fsum(seconds)

    held = n = 0
    for baselines in simulated:
        for supply in supply_set(workload(reads=700, writes=300, demands=demands, idle=1.0), baselines).supplies:
            own, most = (truth(supply.configuration, at) for at in (depth, 16))
            assert supply.own_depth.value == pytest.approx(own, rel=0.12)
            assert supply.most.value == pytest.approx(most, rel=0.12)
            assert supply.most_depth == 16, "the simulated cluster serves more the more is outstanding"
            assert not supply.is_bound
            for estimate, true in ((supply.own_depth, own), (supply.most, most)):
                n += 1
                held += estimate.low <= true <= estimate.high
                assert estimate.high / estimate.low < 1.5, "and they are no wider than noise of 5 % makes them"
    assert held / n > 0.9, f"{held} of {n} at 95 %"


def test_counts_alone_use_the_depth_of_the_load_and_the_most_of_all_depths(simulated: list[Baselines]) -> None:
    baselines, profile = simulated[0], workload(duration_seconds=10.0)
    found = supply_set(profile, baselines).supplies[0]
    moved = shared(baselines).loaded
    rates = {
        (pattern, depth): moved["A", LoadedCell(4096, pattern, depth)].iops
        for pattern in (Pattern.RANDREAD, Pattern.RANDWRITE)
        for depth in (1, 16)
    }

    def mixed(depth: int) -> float:
        means = {p: sum(rates[p, depth]) / 3 for p in (Pattern.RANDREAD, Pattern.RANDWRITE)}
        return 1000 / (900 / means[Pattern.RANDREAD] + 100 / means[Pattern.RANDWRITE])

    assert found.own_depth.value == pytest.approx(mixed(1))
    assert found.most.value == pytest.approx(mixed(16))


def test_more_outstanding_than_was_measured_is_only_a_lower_bound(simulated: list[Baselines]) -> None:
    demands = (Demand(Pattern.RANDREAD, 4096, True, 40.0, True, 1000, 1.0),)
    found = supply_set(workload(reads=1000, writes=0, demands=demands, idle=0.0), simulated[0])
    as_deep = (replace(demands[0], depth=16.0),)
    shallow = supply_set(workload(reads=1000, writes=0, demands=as_deep, idle=0.0), simulated[0])
    assert all(s.is_bound for s in found.supplies)
    assert not any(s.is_bound for s in shallow.supplies)
    assert [s.most.high for s in found.supplies] == pytest.approx(
        [40 / 16 * s.most.high for s in shallow.supplies]
    ), "40 in flight get at most 2.5 times what 16 get"
    assert found.demand is not None
    assert found.demand.outstanding == 40.0
    most = found.supplies[0].most.high
    for rate, verdict in ((0.99 * most, Verdict.MAYBE), (1.01 * most, Verdict.NOT)):
        needed = replace(found, demand=replace(found.demand, accesses_per_s=rate))
        fit = fit_of(needed, only=found.supplies[0].configuration)
        assert fit.verdict is verdict
        assert "the upper end with more I/O in flight than was measured" in fit.text


def test_a_share_of_nearly_the_whole_time_is_100_percent() -> None:
    """99.97 % was written as 1e+02 %."""
    found = supply_set(workload(duration_seconds=100.0), by_hand({"A": (1000, 100)}))
    assert found.demand is not None
    waits = replace(found, demand=replace(found.demand, busy_share=0.9997))
    assert "it waits for storage (I/O outstanding 100 % of the time)" in fit_of(waits).text


def test_a_note_explains_why_what_is_served_and_the_prediction_have_other_ratios(
    simulated: list[Baselines],
) -> None:
    one_deep = (Demand(Pattern.RANDREAD, 4096, True, 1.0, True, 1000, 1.0),)
    found = supply_set(workload(reads=1000, writes=0, demands=one_deep, idle=0.0), simulated[0])
    assert found.supplies[0].most_depth != 1
    assert any("the most at any measured depth" in note for note in found.notes)
    alike = supply_set(workload(), by_hand({"A": (1000, 100)}))
    assert not any("the most at any measured depth" in note for note in alike.notes)


def test_a_load_with_a_limit_gives_lower_bounds() -> None:
    load = MeasuredLoad(limit="250 IOPS", at_limit=frozenset({("A", READ)}))
    found = supply_set(
        workload(duration_seconds=1.0), by_hand({"A": (250, 250), "B": (249, 200)}, measured_load=load)
    )
    a, b = found.supplies
    assert (a.is_bound, b.is_bound) == (True, False)
    assert a.most.high == math.inf > b.most.high
    fit = fit_of(found)
    assert (fit.verdict, fit.configuration) == (Verdict.MAYBE, "A")
    assert "may serve more than was measured" in fit.text


def test_rates_in_a_mix_do_not_add_up() -> None:
    found = supply_set(
        workload(duration_seconds=1.0), by_hand({"A": (500, 500)}, measured_load=MeasuredLoad(read_pct=50))
    )
    assert found.supplies == ()
    assert fit_of(found).verdict is Verdict.UNKNOWN
    assert fit_of(found).text.startswith("cannot tell whether it fits (it needs 1,000/s): ")


def test_disks_that_are_busy_at_the_same_time_are_not_added_up() -> None:
    """Two disks, each busy for half of 10 s independently of the other: a quarter of the time neither is."""
    demands = (Demand(READ.pattern, 4096, True, 1.0, True, 100, 10.0),)
    two = workload(demands=demands, idle=2.5, duration_seconds=10.0, n_disks=2)
    assert WorkloadDemand.of(two).busy_share == pytest.approx(0.75)
    one = workload(demands=demands, idle=30.0, duration_seconds=40.0, n_disks=1)
    assert WorkloadDemand.of(one).busy_share == pytest.approx(0.25)


def test_a_profile_without_duration_tells_no_demand() -> None:
    found = supply_set(workload(), by_hand({"A": (1000, 100)}))
    assert found.demand is None
    assert found.supplies[0].most.value == pytest.approx(526.3, rel=1e-3)
    assert found.to_json()["demand"] is None
    assert "the profile has no duration" in found.fit()


@pytest.mark.parametrize("seconds", [0, -3.0, "ten", True, None, [1]])
def test_a_duration_that_is_none_counts_as_unknown(seconds: object) -> None:
    profile = workload(duration_seconds=seconds, nbytes="many", busiest=[7])
    assert WorkloadDemand.of(profile) is None
    assert WorkloadDemand.of(
        replace(profile, description={"duration_seconds": 2, "nbytes": "many", "busiest": [7]})
    )


def test_busy_and_idle_time_are_the_duration() -> None:
    demands = (
        Demand(Pattern.RANDREAD, 4096, True, 1.0, True, 900, 3.0),
        Demand(Pattern.RANDWRITE, 4096, True, 5.0, True, 100, 1.0),
    )
    demand = WorkloadDemand.of(workload(demands=demands, idle=36.0))
    assert demand is not None
    assert (demand.seconds, demand.accesses_per_s, demand.busy_share) == (40.0, 25.0, 0.1)
    assert demand.outstanding == 2.0, "three quarters of the busy time at 1, one at 5"


def needing(mean: float, peak: float | None = None, busy: float | None = 0.004) -> Profile:
    """A workload of 1000 accesses at this mean rate, and a share of time with I/O outstanding."""
    seconds = 1000 / mean
    description = {"duration_seconds": seconds, "busiest": {"second": peak, "minute": None}}
    if busy is None:
        return workload(**description)
    demands = (Demand(Pattern.RANDREAD, 4096, True, None, True, 1000, busy * seconds),)
    return workload(demands=demands, idle=(1 - busy) * seconds, **description)


@pytest.mark.parametrize(
    ("profile", "verdict", "words"),
    [
        (
            needing(10, 100),
            Verdict.FITS,
            "fits A 53 times over (mean 10.0/s, busiest second 100/s; A serves 526/s, ",
        ),
        (needing(10), Verdict.FITS, "no configuration can shorten its run time by more than 0.4 %"),
        (needing(10, busy=0.9), Verdict.FITS, "it waits for storage (I/O outstanding 90 % of the time)"),
        (needing(10, busy=None), Verdict.FITS, "the trace does not show whether it waits for storage"),
        (
            needing(600),
            Verdict.FITS,
            "fits fast 1.8 times over, and A, the default, is too slow (mean 600/s; fast",
        ),
        (needing(10, 5000), Verdict.PEAK, "fits A on average, not in its busiest second: mean 10.0/s, busiest"),
        (needing(1052), Verdict.MAYBE, "may fit fast, and A, the default, is too slow: mean 1,052/s; fast serves"),
        (needing(51_279), Verdict.NOT, "does not fit: needs 51,279/s, the best (fast) serves 1,053/s ("),
    ],
)
def test_the_answer(profile: Profile, verdict: Verdict, words: str) -> None:
    """A serves 526.3/s, fast 1052.6/s, each up to the scatter of three repeats."""
    found = supply_set(replace(profile, demands=None), by_hand({"A": (1000, 100), "fast": (2000, 200)}))
    fit = fit_of(replace(found, demand=WorkloadDemand.of(profile)))
    assert fit.verdict is verdict
    assert words in fit.text


def test_what_was_measured_once_has_no_interval_and_says_so() -> None:
    found = supply_set(workload(duration_seconds=100.0), by_hand({"A": (1000, 100)}, repeats=1))
    assert found.supplies[0].most.to_json() == {"value": pytest.approx(521.05, rel=1e-3), "low": 0.0, "high": None}
    assert "measured once, so without an interval" in fit_of(found).text


def test_a_workload_that_needs_more_outstanding_than_it_had(simulated: list[Baselines]) -> None:
    """A closed loop cannot use what the storage serves at another depth."""
    demands = (Demand(Pattern.RANDWRITE, 4096, True, 1.0, True, 1000, 1.0),)
    profile = workload(reads=0, writes=1000, demands=demands, idle=1.0)
    own, most = (
        getattr(supply_set(profile, simulated[0]).supplies[0], what).value for what in ("own_depth", "most")
    )
    between = replace(profile, description={"duration_seconds": 1000 / math.sqrt(own * most)})
    fit = fit_of(supply_set(between, simulated[0]), only="A")
    assert fit.verdict is Verdict.DEEPER
    assert "with only as many outstanding as it had (1)" in fit.text


def test_a_profile_without_depths_is_compared_with_the_best_depth_alone(simulated: list[Baselines]) -> None:
    """Counts alone do not tell how many accesses were outstanding, so nothing is said about that."""
    counted = workload(reads=0, writes=1000)
    found = supply_set(counted, simulated[0]).supplies[0]
    assert found.own_depth.high < found.most.low
    for rate in (math.sqrt(found.own_depth.high * found.most.low), found.most.high * 1.5):
        fit = fit_of(
            supply_set(replace(counted, description={"duration_seconds": 1000 / rate}), simulated[0]), only="A"
        )
        assert fit.verdict is (Verdict.FITS if rate < found.most.low else Verdict.NOT)
        assert "outstanding" not in fit.text


def test_a_configuration_that_lacks_rates_has_no_supply_and_a_default_that_does_is_refused() -> None:
    baselines = by_hand({"A": (1000, 100), "B": (2000, 200)})
    cells = {place: b for place, b in baselines.cells.items() if place != ("B", WRITE)}
    found = supply_set(workload(duration_seconds=9.0), replace(baselines, cells=cells))
    assert [s.configuration for s in found.supplies] == ["A"]
    assert any("no supply is known of B" in note for note in found.notes)
    cells = {place: b for place, b in baselines.cells.items() if place != ("A", WRITE)}
    with pytest.raises(InputError, match="no baseline for 4K-randwrite under configuration A"):
        supply_set(workload(duration_seconds=9.0), replace(baselines, cells=cells))
    reason = supply_or_reason(workload(duration_seconds=9.0), replace(baselines, cells=cells))
    assert "no baseline for 4K-randwrite" in fit_of(reason).text


@pytest.mark.parametrize("confidence", [0.0, 1.0, -1.0])
def test_a_level_outside_0_to_1_is_refused(confidence: float) -> None:
    with pytest.raises(InputError, match="confidence level"):
        supply_set(workload(duration_seconds=9.0), by_hand({"A": (1000, 100)}), confidence=confidence)


def test_a_default_that_serves_less_than_the_traced_storage_is_not_called_too_slow() -> None:
    """A workload that waits for storage shows what its storage serves; the default may have been that storage."""
    demand = WorkloadDemand(10.0, 200.0, 1e6, outstanding=1.0, busy_share=0.98)
    found = SupplySet(
        "w",
        "b",
        demand,
        tuple(
            Supply(name, Estimate(rate, rate, rate), Estimate(rate, rate, rate), 1)
            for name, rate in (("A", 130.0), ("fast", 2000.0))
        ),
        0.95,
        "A",
        (),
    )
    text = fit_of(found).text
    assert "A, the default, serves 130/s by its cells, less than the traced storage did" in text
    assert "too slow" not in text


def test_a_pool_is_too_small_for_machines_that_need_more_than_it_serves() -> None:
    """A serves 526/s and fast 1053/s; machines that ask for 100/s fit five and ten times."""
    idle = replace(needing(100), demands=None)
    found = supply_set(idle, by_hand({"A": (1000, 100), "fast": (2000, 200)}))
    found = replace(found, demand=WorkloadDemand.of(needing(100)))
    sizes = {n: too_small(found.for_machines(n)) for n in (1, 8, 20)}
    assert sizes == {1: frozenset(), 8: {"A"}, 20: {"A", "fast"}}
    assert "needs 8 x 100/s, A serves 526/s (" in fit_of(found.for_machines(8), only="A").text
    waits = replace(found, demand=replace(WorkloadDemand.of(needing(5000, busy=0.99))))
    assert too_small(waits) == frozenset(), "one machine that waits for its storage adapts to it"


@pytest.mark.parametrize(("waited", "is_faster"), [(1.2, False), (0.5, False), (0.1, True)])
def test_a_trace_of_far_faster_storage_is_noted(
    simulated: list[Baselines], waited: float, is_faster: bool
) -> None:
    """On the traced storage it hardly waits; on the default it may."""
    demands = (Demand(Pattern.RANDREAD, 4096, True, 1.0, True, 1000, 1.0),)
    at_full_speed = (
        1000
        / supply_set(workload(reads=1000, writes=0, demands=demands), simulated[0]).supplies[0].own_depth.value
    )
    traced = (replace(demands[0], waiting_seconds=waited * at_full_speed),)
    found = supply_set(workload(reads=1000, writes=0, demands=traced, idle=1000.0), simulated[0])
    assert any("its accesses took 10 % of the time that they take on A" in n for n in found.notes) is is_faster
