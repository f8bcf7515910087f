"""A simulated workload: the time of a profile's accesses, and what its runs show."""

import statistics
from dataclasses import replace

import pytest
from simulated_evaluation import CONFIGURATIONS, simulated_baselines, simulated_evaluation
from simulated_truth import with_waiting_times

from cephfit.core.errors import ClusterError, InputError
from cephfit.core.protocols import Client
from cephfit.core.units import GIB, KIB
from cephfit.core.values.cells import SIZE_BINS, LoadedCell, Op, Pattern
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.demand import Commits, Demand
from cephfit.core.values.profile import Profile
from cephfit.targets.simulated import SimulatedTarget, Simulation
from cephfit.targets.simulated_storage import Access, iops
from cephfit.targets.simulated_workload import SimulatedWorkload, seconds_of

KNOWN = {c.name: c for c in CONFIGURATIONS}
DEFAULT = KNOWN["A"]


def profile_of(*demands: Demand, idle_seconds: float | None = None, flushes: int = 0) -> Profile:
    """Return a profile with these demands; its counts are all in one cell, and are not used."""
    counts = {op: {b.name: 0 for b in SIZE_BINS} for op in Op}
    counts[Op.READ]["4K"] = sum(d.accesses for d in demands)
    return Profile(
        "work",
        counts,
        dict.fromkeys(Op, 0.0),
        demands=demands or None,
        idle_seconds=idle_seconds,
        commits=Commits(flushes),
    )


def write(n: int, *, is_sync: bool, nbytes: int = 32 * KIB, is_aligned: bool = True, depth: float = 1.0) -> Demand:
    return Demand(Pattern.RANDWRITE, nbytes, is_aligned, depth, is_sync, n, None)


def test_demands_of_all_kinds_take_their_time_at_their_own_rates() -> None:
    work = profile_of(
        Demand(Pattern.RANDREAD, 4 * KIB, True, 3.5, True, 1000, None),
        write(100, is_sync=True, nbytes=40 * KIB, is_aligned=False),
        idle_seconds=2.0,
    )
    for configuration in CONFIGURATIONS:
        reads = 1000 / iops(configuration, Access(4 * KIB, Pattern.RANDREAD, 3.5))
        writes = 100 / iops(configuration, Access(40 * KIB, Pattern.RANDWRITE, 1, 4 * KIB))
        assert seconds_of(work, configuration) == pytest.approx(reads + writes + 2.0)


def test_background_writes_are_hidden_until_they_outgrow_idle_time() -> None:
    foreground, background = write(100, is_sync=True), write(100, is_sync=False)
    each = 100 / iops(DEFAULT, Access(32 * KIB, Pattern.RANDWRITE))
    tight, roomy = (profile_of(foreground, background, idle_seconds=idle) for idle in (0.1 * each, 3 * each))
    assert seconds_of(tight, DEFAULT) == pytest.approx(2.1 * each)
    assert seconds_of(roomy, DEFAULT) == pytest.approx(5 * each)
    # Journaling doubles (2.1) the writes: idle time hides those in the background, or does not.
    assert seconds_of(tight, KNOWN["journaling"]) == pytest.approx(4.2 * each)
    assert seconds_of(roomy, KNOWN["journaling"]) == pytest.approx((2.1 + 4) * each)
    # Faster background writes gain nothing.
    ssd = 100 / iops(KNOWN["ssd"], Access(32 * KIB, Pattern.RANDWRITE))
    assert seconds_of(roomy, KNOWN["ssd"]) == pytest.approx(ssd + 4 * each)


def test_the_flushes_of_a_profile_decide_what_a_client_cache_is_worth() -> None:
    cached = KNOWN["cached"]
    unflushed, flushed = (profile_of(write(1000, is_sync=True), flushes=flushes) for flushes in (0, 1000))
    gains = [seconds_of(work, DEFAULT) / seconds_of(work, cached) for work in (unflushed, flushed)]
    assert gains[1] < 1 < gains[0]


def test_waiting_times_flushes_and_idle_time_add_up_to_the_time_of_the_default() -> None:
    work = with_waiting_times(profile_of(write(800, is_sync=True), idle_seconds=3.0, flushes=100))
    assert work.demands is not None and work.commits is not None
    waiting = sum(d.waiting_seconds or 0.0 for d in work.demands) + (work.commits.flush_waiting_seconds or 0.0)
    assert seconds_of(work, DEFAULT) == pytest.approx(waiting + 3.0)


def test_a_profile_without_demands_runs_its_cells_at_depth_1() -> None:
    counts = {op: {b.name: 0 for b in SIZE_BINS} for op in Op}
    counts[Op.WRITE]["32K"] = 60
    work = Profile("counts", counts, {Op.READ: 0.0, Op.WRITE: 0.5})
    expected = sum(30 / iops(DEFAULT, Access(32 * KIB, p)) for p in (Pattern.WRITE, Pattern.RANDWRITE))
    assert seconds_of(work, DEFAULT) == pytest.approx(expected)


def test_runs_scatter_about_the_true_rate_and_repeat_for_a_seed() -> None:
    work = profile_of(write(100, is_sync=True))
    target = SimulatedTarget(Simulation(noise=0.05))
    target.apply(KNOWN["ssd"], n_clients=1, volume_nbytes=GIB)
    (client,) = target.clients()
    workload = SimulatedWorkload(target, work)
    workload.prepare(client)
    values = [workload.run(client, 30.0, seed=seed)[0] for seed in range(200)]
    truth = 100 / seconds_of(work, KNOWN["ssd"])
    assert statistics.mean(values) == pytest.approx(truth, rel=0.02)
    assert statistics.stdev(values) == pytest.approx(0.05 * truth, rel=0.25)
    value, output = SimulatedWorkload(target, work).run(client, 30.0, seed=7)
    assert value == values[7]
    assert output["simulated"] is True
    assert output["true_rate"] == pytest.approx(truth)


def test_descriptions_differ_where_profiles_do() -> None:
    target = SimulatedTarget()
    one, same, other = (profile_of(write(n, is_sync=True)) for n in (100, 100, 101))
    described = [SimulatedWorkload(target, work).description() for work in (one, same, other)]
    assert described[0] == described[1] != described[2]


def test_what_cannot_run_is_refused() -> None:
    target = SimulatedTarget()
    workload = SimulatedWorkload(target, profile_of(write(1, is_sync=True)))
    with pytest.raises(InputError, match="the volume of client c0 has 4096 bytes"):
        workload.prepare(Client("c0", {}, 4 * KIB))
    with pytest.raises(ClusterError, match="no configuration is applied"):
        workload.run(Client("c0", {}, GIB), 1.0, seed=1)


def test_an_evaluation_has_consistent_profiles_and_exact_baselines_without_noise() -> None:
    baselines = simulated_baselines(noise=0.0, repeats=1)
    for profile, measured, truth in simulated_evaluation(5, 6, baselines=baselines):
        assert measured is baselines
        assert Profile.from_json(profile.to_json()) == profile
        assert profile.demands is not None
        assert profile.n_accesses == sum(d.accesses for d in profile.demands)
        assert truth["A"] == truth["A-again"] == 1.0
        assert truth["journaling"] <= 1.0 <= truth["ssd"]
    kind = LoadedCell(128 * KIB, Pattern.RANDWRITE, 4, 4 * KIB, "every 8")
    access = Access(128 * KIB, Pattern.RANDWRITE, 4, 4 * KIB, "every 8")
    for name, configuration in KNOWN.items():
        assert baselines.loaded[name, kind].iops == pytest.approx([iops(configuration, access)])
    assert len(baselines.cells) == 20 * len(CONFIGURATIONS)


def test_an_evaluation_repeats_for_a_seed_and_differs_for_another() -> None:
    few: tuple[Configuration, ...] = CONFIGURATIONS[:3]
    first, again, other = (simulated_evaluation(seed, 3, few) for seed in (1, 1, 2))
    assert [p for p, _, _ in first] == [p for p, _, _ in again] != [p for p, _, _ in other]
    assert first[0][1].loaded == again[0][1].loaded != other[0][1].loaded


def test_volumes_differ_by_placement_and_stay_the_same_over_repeats() -> None:
    configurations = [replace(DEFAULT, name=f"A{i}") for i in range(60)]
    lucky = simulated_baselines(
        configurations,
        noise=0.0,
        placement=0.12,
        repeats=2,
        sizes=[4 * KIB],
        depths=[1],
        alignments=[0],
        syncs=[""],
    )
    cell = LoadedCell(4 * KIB, Pattern.RANDREAD)
    rates = [lucky.loaded[c.name, cell].iops for c in configurations]
    assert all(a == b for a, b in rates)
    spread = statistics.stdev(a for a, _ in rates) / statistics.mean(a for a, _ in rates)
    assert 0.08 < spread < 0.17
    writes = [lucky.loaded[c.name, LoadedCell(4 * KIB, Pattern.RANDWRITE)].iops[0] for c in configurations]
    factors = {round(w / r[0], 9) for w, r in zip(writes, rates, strict=True)}
    assert len(factors) == 1, "the luck is of the volume, not of a cell"
