"""How a mix adds up: the two formulas by hand and by property, and the demands of a workload."""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cephfit.core.errors import InputError
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import SIZE_BINS, Cell, LoadedCell, Op, Pattern, size_bin
from cephfit.core.values.demand import Commits, Demand
from cephfit.core.values.prediction import PredictionSet
from cephfit.core.values.profile import Profile
from cephfit.mapper import predictor
from cephfit.mapper.models.access_weights import AccessWeights, DemandColumns, flushed_share
from cephfit.mapper.models.mix_predictor import MixPredictor
from cephfit.mapper.models.mixture import MIXERS, DemandMix, added_as_rates, added_as_time, queues_of, used_cells
from cephfit.mapper.models.model_error import ModelError

# Counts, default's IOPS and the configuration's IOPS of four cells.
COUNTS = (13019, 9064, 61748, 4456)
DEFAULT = (1290, 420, 142, 26)
RATES = (1300, 399, 196, 119)

rate = st.floats(min_value=0.1, max_value=1e6)
mixes = st.integers(1, 20).flatmap(
    lambda n: st.tuples(
        st.lists(st.floats(min_value=0.5, max_value=1e7), min_size=n, max_size=n).map(np.array),
        st.lists(rate, min_size=n, max_size=n).map(np.array),
        st.lists(rate, min_size=n, max_size=n).map(np.array),
    )
)
mixers = st.sampled_from([added_as_rates, added_as_time])


def profile(reads: dict[str, int], writes: dict[str, int], random_read: float, random_write: float) -> Profile:
    def counts(given_ones: dict[str, int]) -> dict[str, int]:
        return {b.name: given_ones.get(b.name, 0) for b in SIZE_BINS}

    return Profile(
        "by hand",
        {Op.READ: counts(reads), Op.WRITE: counts(writes)},
        {Op.READ: random_read, Op.WRITE: random_write},
    )


def as_arrays() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    return np.array(COUNTS, float), np.array(DEFAULT, float), np.array(RATES, float)


def test_formula_2_1_by_hand() -> None:
    total = sum(COUNTS)
    by_hand = sum(
        Fraction(n, total) * Fraction(x, a) * 100 for n, a, x in zip(COUNTS, DEFAULT, RATES, strict=True)
    )
    assert abs(added_as_rates(*as_arrays()).relative - by_hand) < 1e-12 * by_hand


def test_the_mix_as_time_by_hand() -> None:
    default_time = sum(Fraction(n, a) for n, a in zip(COUNTS, DEFAULT, strict=True))
    time = sum(Fraction(n, x) for n, x in zip(COUNTS, RATES, strict=True))
    by_hand = 100 * default_time / time
    assert abs(added_as_time(*as_arrays()).relative - by_hand) < 1e-12 * by_hand


def test_the_two_models_can_rank_the_other_way_round() -> None:
    """As many 4K random reads as 1M reads: 98 % of the time goes to the large ones (docs/mathematics.md)."""
    counts, default = np.array([1.0, 1.0]), np.array([1000.0, 20.0])
    fast_small, fast_large = np.array([2000.0, 15.0]), np.array([900.0, 26.0])
    assert added_as_rates(counts, default, fast_small).relative == pytest.approx(137.5)
    assert added_as_rates(counts, default, fast_large).relative == pytest.approx(110.0)
    assert added_as_time(counts, default, fast_small).relative == pytest.approx(75.9, abs=0.05)
    assert added_as_time(counts, default, fast_large).relative == pytest.approx(128.9, abs=0.05)


def test_a_bin_is_split_by_the_share_of_random_accesses() -> None:
    used = used_cells(profile({"4K": 1000}, {"1M": 10}, 0.9, 0.2), "meyer")
    assert {str(cell): n for cell, n in used.items()} == pytest.approx(
        {"4K-read": 100.0, "4K-randread": 900.0, "1M-write": 8.0, "1M-randwrite": 2.0}
    )


def test_the_pure_readings_move_all_accesses_to_one_kind() -> None:
    mixed = profile({"4K": 1000}, {"1M": 10}, 0.9, 0.2)
    small, large = size_bin("4K"), size_bin("1M")
    assert used_cells(mixed, "meyer-random") == {
        Cell(small, Pattern.RANDREAD): 1000.0,
        Cell(large, Pattern.RANDWRITE): 10.0,
    }
    assert used_cells(mixed, "meyer-sequential") == {
        Cell(small, Pattern.READ): 1000.0,
        Cell(large, Pattern.WRITE): 10.0,
    }


def test_a_workload_without_accesses_cannot_be_mapped() -> None:
    with pytest.raises(InputError, match="no accesses"):
        used_cells(profile({}, {}, 0.0, 0.0), "time")


@given(mixes)
def test_the_default_against_itself_is_exactly_100(mix) -> None:
    counts, default, _ = mix
    for mixer in MIXERS.values():
        itself = mixer(counts, default, default)
        assert itself.relative == 100.0
        assert not itself.points.any()


@given(mixes, mixers, st.integers(-20, 20))
def test_another_unit_of_rate_changes_nothing(mix, add, power) -> None:
    """Powers of two are exact in floating point, so nothing at all may change."""
    counts, default, rates = mix
    factor = 2.0**power
    assert add(counts, default * factor, rates * factor).relative == add(counts, default, rates).relative


@given(mixes, mixers)
def test_the_mix_is_between_its_slowest_and_fastest_cell(mix, add) -> None:
    result = add(*mix)
    assert result.ratios.min() * (1 - 1e-12) <= result.relative <= result.ratios.max() * (1 + 1e-12)


@given(mixes, mixers, st.floats(min_value=1.0, max_value=100.0), st.integers(0, 19))
def test_a_faster_cell_never_makes_a_prediction_worse(mix, add, factor, index) -> None:
    counts, default, rates = mix
    faster = rates.copy()
    faster[index % len(rates)] *= factor
    assert add(counts, default, faster).relative >= add(counts, default, rates).relative * (1 - 1e-12)


@given(mixes, mixers)
def test_the_cells_points_sum_to_the_prediction(mix, add) -> None:
    result = add(*mix)
    assert 100 + result.points.sum() == pytest.approx(
        result.relative, abs=1e-9 * np.abs(result.points).max() + 1e-9
    )
    assert result.weights.sum() == pytest.approx(1)
    assert result.gradient.sum() == pytest.approx(1)
    assert result.default_gradient.sum() == pytest.approx(1)


@given(mixes, mixers)
def test_the_gradient_is_the_slope(mix, add) -> None:
    """The delta method depends on it: a cell 0.01 % faster moves log(relative) by 0.01 % of its gradient."""
    counts, default, rates = mix
    base = add(counts, default, rates)
    nudged = rates.copy()
    nudged[0] *= 1 + 1e-4
    slope = (np.log(add(counts, default, nudged).relative) - np.log(base.relative)) / np.log(1 + 1e-4)
    assert slope == pytest.approx(base.gradient[0], abs=1e-3)
    nudged = default.copy()
    nudged[0] *= 1 + 1e-4
    slope = (np.log(add(counts, nudged, rates).relative) - np.log(base.relative)) / np.log(1 + 1e-4)
    assert slope == pytest.approx(-base.default_gradient[0], abs=1e-3)


@given(mixes)
def test_adding_rates_never_promises_less_than_adding_time_at_the_same_weights(mix) -> None:
    """The arithmetic mean is never below the harmonic one: where both weigh alike, Formula 2.1 is the optimist."""
    counts, default, rates = mix
    as_time = added_as_time(counts * default, default, rates).relative
    assert added_as_rates(counts, default, rates).relative >= as_time * (1 - 1e-12)


K = 1024
SIZES = (4 * K, 32 * K, 128 * K, 1024 * K)


def demand(
    nbytes: float = 4 * K,
    pattern: Pattern = Pattern.RANDREAD,
    *,
    depth: float | None = 1,
    is_aligned: bool | None = True,
    is_sync: bool | None = True,
    waiting: float | None = 1.0,
) -> Demand:
    return Demand(pattern, nbytes, is_aligned, depth, is_sync, 100, waiting)


def seconds(cell: LoadedCell) -> float:
    """A disk of one server: seek, transfer; five times the seeks where writes are not aligned; flushes on top."""
    seek = 0.01 if cell.pattern.is_random else 0.001
    unaligned = 5 if cell.align_nbytes and cell.pattern.op is Op.WRITE else 1
    return seek * unaligned + cell.nbytes / 100e6 + (0.005 if cell.sync else 0)


def weighed(demands: list[Demand], measured: list[LoadedCell], commits: Commits | None = None) -> list[float]:
    """The seconds per access that the weights give to each demand."""
    access = AccessWeights.of(demands, measured, commits, where="here")
    return list(access.weights @ np.array([seconds(cell) for cell in access.cells]))


def grid(pattern: Pattern = Pattern.RANDREAD, *, align: int = 0, sync: str = "") -> list[LoadedCell]:
    return [LoadedCell(n, pattern, 1, align, sync) for n in SIZES]


@given(nbytes=st.floats(4 * K, 8 * 1024 * K))
def test_time_linear_in_size_is_found_exactly_between_measured_sizes(nbytes: float) -> None:
    expected = 0.01 + nbytes / 100e6
    if nbytes > SIZES[-1]:  # beyond the largest size in proportion
        expected = seconds(LoadedCell(SIZES[-1], Pattern.RANDREAD)) * nbytes / SIZES[-1]
    assert weighed([demand(nbytes)], grid()) == pytest.approx([expected])


def test_below_the_smallest_size_an_access_costs_what_that_one_costs() -> None:
    assert weighed([demand(512)], grid()) == pytest.approx([seconds(LoadedCell(4 * K, Pattern.RANDREAD))])


@given(depth=st.floats(1, 64), servers=st.integers(1, 16))
def test_residence_time_is_interpolated_over_depth(depth: float, servers: int) -> None:
    """Exact where the number of servers was measured: constant residence below it, proportional above."""
    depths = sorted({1, servers, 64})
    times = {d: 0.01 / min(d, servers) for d in depths}
    cells = [LoadedCell(4 * K, Pattern.RANDREAD, d) for d in depths]
    access = AccessWeights.of([demand(depth=depth)], cells, None, where="here")
    found = float((access.weights @ np.array([times[c.iodepth] for c in access.cells]))[0])
    assert found == pytest.approx(0.01 / min(depth, servers))


def test_outside_the_measured_depths_the_nearest_holds_and_is_noted() -> None:
    cells = [LoadedCell(4 * K, Pattern.RANDREAD, d) for d in (4, 8)]
    access = AccessWeights.of([demand(depth=1), demand(depth=100)], cells, None, where="here")
    assert access.weights.tolist() == [[1.0, 0.0], [0.0, 1.0]]
    (note,) = access.notes(np.array([0.5, 0.5]))
    assert "50 %" in note
    assert "iodepth" in note


def test_unaligned_demand_uses_unaligned_rates_and_says_where_there_are_none() -> None:
    write = Pattern.RANDWRITE
    both = [*grid(write), *(LoadedCell(n, write, 1, 4 * K) for n in SIZES[1:])]
    aligned, unaligned, small = weighed(
        [demand(128 * K, write), demand(128 * K, write, is_aligned=False), demand(4 * K, write, is_aligned=False)],
        both,
    )
    assert aligned == pytest.approx(seconds(LoadedCell(128 * K, write)))
    assert unaligned == pytest.approx(seconds(LoadedCell(128 * K, write, 1, 4 * K)))
    assert small == pytest.approx(seconds(LoadedCell(4 * K, write)))
    lacking = AccessWeights.of([demand(128 * K, write, is_aligned=False)], grid(write), None, where="here")
    (note,) = lacking.notes(np.array([1.0]))
    assert "align" in note


def test_flushed_writes_use_rates_with_flushes_by_their_share() -> None:
    write = Pattern.RANDWRITE
    cells = [*grid(write), *grid(write, sync="fsync")]
    plain, synced = (seconds(LoadedCell(4 * K, write, 1, 0, sync)) for sync in ("", "fsync"))
    for flushes, share in ((0, 0.0), (1, 0.32), (4, 1.0), (400, 1.0)):
        (found,) = weighed([demand(4 * K, write)], cells, Commits(flushes))
        assert found == pytest.approx((1 - share) * plain + share * synced)
    (background,) = weighed([demand(4 * K, write, is_sync=False)], cells, Commits(400))
    assert background == pytest.approx(plain)


def test_flushed_writes_without_flushed_rates_are_noted_by_their_share() -> None:
    write = Pattern.RANDWRITE
    demands, shares = [demand(4 * K, write), demand()], np.array([0.5, 0.5])
    plain = [*grid(write), *grid()]
    (note,) = AccessWeights.of(demands, plain, Commits(1), where="here").notes(shares)
    assert note.startswith("16 % of the workload is in writes that a flush follows")
    assert "`sync: fsync`" in note
    both = [*plain, *grid(write, sync="fsync")]
    assert AccessWeights.of(demands, both, Commits(1), where="here").notes(shares) == []
    assert AccessWeights.of(demands, plain, None, where="here").notes(shares) == []


def test_large_writes_are_not_extrapolated_from_small_flushed_ones() -> None:
    """Flushes were measured at 4K alone, at another depth than all others: no rate follows from them."""
    write = Pattern.RANDWRITE
    flushed = LoadedCell(4 * K, write, 1, 0, "fsync")
    cells = sorted([flushed, *(LoadedCell(n, write, 16) for n in SIZES)])
    access = AccessWeights.of([demand(128 * K, write), demand(4 * K, write)], cells, Commits(400), where="here")
    large, small = access.weights @ np.array([seconds(cell) for cell in access.cells])
    assert large == pytest.approx(seconds(LoadedCell(128 * K, write)))
    assert small == pytest.approx(seconds(flushed))
    assert not access.too_large.any()


def test_the_flushed_share_counts_forced_writes_and_never_exceeds_one() -> None:
    demands = [demand(4 * K, Pattern.WRITE), demand(4 * K, Pattern.READ)]
    assert flushed_share(demands, None) == 0
    assert flushed_share(demands, Commits(1, fua_writes=2)) == 0.64
    assert flushed_share(demands, Commits(1000)) == 1
    assert flushed_share([demand()], Commits(10)) == 0


def test_an_unmeasured_pattern_is_stood_in_for_and_an_unmeasured_op_is_an_error() -> None:
    access = AccessWeights.of([demand(pattern=Pattern.READ)], grid(), None, where="run 7")
    assert access.notes(np.array([1.0]))
    with pytest.raises(InputError) as caught:
        AccessWeights.of([demand(pattern=Pattern.WRITE)], grid(), None, where="run 7")
    assert "run 7" in str(caught.value)
    assert "write" in caught.value.remedy


def mix(
    demands: list[Demand], *, idle: float = 0.0, by_waiting: bool = True, depths: tuple[int, ...] = (1,)
) -> DemandMix:
    measured = [LoadedCell(4 * K, pattern, depth) for pattern, depth in product(Pattern, depths)]
    profile = replace(workload(), idle_seconds=idle, demands=tuple(demands))
    return DemandMix.of(profile, demands, measured, by_waiting=by_waiting, where="here")


def workload(largest: str = "1M") -> Profile:
    counts = {b.name: 10 if b.name != "32M" or largest == "32M" else 0 for b in SIZE_BINS}
    return Profile("shop", dict.fromkeys(Op, counts), dict.fromkeys(Op, 0.5))


def relative(of: DemandMix, **times_faster: float) -> float:
    """Relative performance where the patterns (randread, ...) are some times as fast as under the default."""
    default = np.full(len(of.cells), 100.0)
    rates = np.array([100.0 * times_faster.get(cell.pattern.value, 1.0) for cell in of.cells])
    return of.added(default, rates).relative


def test_waiting_shrinks_and_idle_time_stays() -> None:
    found = mix([demand(waiting=6.0), demand(pattern=Pattern.RANDWRITE, waiting=2.0)], idle=2.0)
    assert found.storage_share == pytest.approx(0.8)
    assert relative(found) == pytest.approx(100)
    assert relative(found, randread=2.0) == pytest.approx(100 * 10 / 7)
    assert relative(found, randread=1e9, randwrite=1e9) == pytest.approx(100 * 10 / 2)


def test_writes_in_the_background_hide_in_idle_time_until_they_outgrow_it() -> None:
    found = mix([demand(pattern=Pattern.RANDWRITE, is_sync=False, waiting=2.0)], idle=8.0)
    assert relative(found, randwrite=1e9) == pytest.approx(100 * 10 / 9.6), "most of them were hidden already"
    assert relative(found, randwrite=0.5) == pytest.approx(100 * 10 / 10.4)
    assert relative(found, randwrite=0.1) == pytest.approx(100 * 10 / 20), "20 s of writing hide nothing any more"
    busy = mix([demand(pattern=Pattern.RANDWRITE, is_sync=False, waiting=10.0)], idle=0.0)
    assert relative(busy, randwrite=2.0) == pytest.approx(200), "without idle time the writes are the bottleneck"


def test_fast_storage_writes_back_while_the_application_reads() -> None:
    """Reads one by one leave a disk idle in between: at depth 8 it serves four times as many."""
    reads = demand(waiting=2.0)
    writes = demand(pattern=Pattern.RANDWRITE, depth=8.0, is_sync=False, waiting=8.0)
    of = mix([reads, writes], depths=(1, 8))
    default = np.array([400.0 if cell.iodepth == 8 else 100.0 for cell in of.cells])
    assert of.added(default, default).relative == pytest.approx(100)
    # On the default: work of 2 / 4 s for reads and 8 s for writes, and 1.5 s that do not overlap.
    fast = default * np.array([16.0 if cell.pattern is Pattern.RANDWRITE else 1.0 for cell in of.cells])
    assert of.added(default, fast).relative == pytest.approx(100 * 10 / (2 + 1.5 / 16))
    slow = default * np.array([0.5 if cell.pattern is Pattern.RANDWRITE else 1.0 for cell in of.cells])
    assert of.added(default, slow).relative == pytest.approx(100 * 10 / (0.5 + 16 + 3))


def test_storage_that_is_slower_when_saturated_is_no_more_work_than_accesses_alone() -> None:
    of = mix([demand(), demand(pattern=Pattern.WRITE, is_sync=False, waiting=0.01)], depths=(1, 8))
    default = np.array([50.0 if cell.iodepth == 8 else 100.0 for cell in of.cells])
    assert of.added(default, default).relative == pytest.approx(100)
    assert of.added(default, 2 * default).relative == pytest.approx(200)


def served_in_turn(sizes: list[float], costs: dict[float, float]) -> tuple[list[float], float]:
    """One server, all accesses issued at once and served in the order of the list.

    Returns the waiting time of each access, every instant divided evenly among those outstanding, and the total.
    """
    waiting, moment = [0.0] * len(sizes), 0.0
    for served, nbytes in enumerate(sizes):
        moment += costs[nbytes]
        for later in range(served, len(sizes)):
            waiting[later] += costs[nbytes] / (len(sizes) - served)
    return waiting, moment


@given(order=st.permutations([4 * K] * 12 + [128 * K] * 8), small=st.floats(0.1, 10), large=st.floats(0.1, 10))
def test_accesses_outstanding_together_wait_for_each_other(order: list[float], small: float, large: float) -> None:
    """A queue of small and large writes takes what a server that is simulated takes, under any configuration."""
    before, after = {4 * K: 0.001, 128 * K: 0.01}, {4 * K: 0.001 / small, 128 * K: 0.01 / large}
    waiting, total = served_in_turn(order, before)
    demands = [
        replace(
            demand(nbytes, Pattern.RANDWRITE, depth=17.0),
            accesses=order.count(nbytes),
            waiting_seconds=sum(w for w, n in zip(waiting, order, strict=True) if n == nbytes),
        )
        for nbytes in before
    ]
    profile = replace(workload(), demands=tuple(demands), idle_seconds=0.0)
    cells = [LoadedCell(nbytes, Pattern.RANDWRITE, 16) for nbytes in before]
    of = DemandMix.of(profile, demands, cells, by_waiting=True, where="here")
    default, rates = (np.array([1 / costs[n] for n in before]) for costs in (before, after))
    found = of.added(default, rates)
    assert found.relative == pytest.approx(100 * total / served_in_turn(order, after)[1])
    assert found.weights == pytest.approx([0.012 / 0.092, 0.08 / 0.092])


def test_only_accesses_with_neighbours_share_a_queue() -> None:
    demands = [
        demand(depth=1.0),
        demand(depth=1.2, pattern=Pattern.READ),
        demand(depth=5.0),
        demand(depth=8.4, pattern=Pattern.WRITE),
        demand(depth=8.6, pattern=Pattern.WRITE),
        demand(depth=5.0, pattern=Pattern.WRITE, is_sync=False),
        demand(depth=None),
        demand(depth=None),
        demand(depth=5.0),
    ]
    queues = queues_of(DemandColumns.of(demands), np.array([0] * 8 + [1])).tolist()
    assert queues[2] == queues[3]
    assert len(set(queues)) == 8
    assert queues[8] == 7, "of another workload"


@given(
    waiting=st.lists(st.floats(0.01, 10), min_size=4, max_size=4),
    depths=st.lists(st.sampled_from([1.0, 9.0]), min_size=4, max_size=4),
    idle=st.floats(0, 20),
    factors=st.lists(st.floats(0.05, 20), min_size=4, max_size=4),
    background=st.booleans(),
    by_waiting=st.booleans(),
    saturated=st.lists(st.floats(0.5, 8), min_size=4, max_size=4),
)
def test_points_add_up_and_gradients_are_the_derivatives(
    waiting: list[float],
    depths: list[float],
    idle: float,
    factors: list[float],
    background: bool,
    by_waiting: bool,
    saturated: list[float],
) -> None:
    demands = [
        demand(pattern=pattern, depth=depth, waiting=seconds, is_sync=not (background and pattern.op is Op.WRITE))
        for pattern, depth, seconds in zip(Pattern, depths, waiting, strict=True)
    ]
    of = mix(demands, idle=idle, by_waiting=by_waiting, depths=(1, 16))
    places = [list(Pattern).index(cell.pattern) for cell in of.cells]
    default = np.array(
        [100.0 * (saturated[i] if c.iodepth > 1 else 1) for i, c in zip(places, of.cells, strict=True)]
    )
    rates = default * np.array(factors)[places]
    found = of.added(default, rates)
    assert found.points.sum() == pytest.approx(found.relative - 100, abs=1e-6)
    assert found.weights.sum() == pytest.approx(1)
    assert sum(r.points for r in of.reasons(found)) == pytest.approx(found.relative - 100, abs=1e-6)
    assert found.gradient.sum() == pytest.approx(found.default_gradient.sum())
    step = 1e-6
    for i in range(len(rates)):
        moved = rates.copy()
        moved[i] *= np.exp(step)
        up = np.log(of.added(default, moved).relative / found.relative) / step
        moved[i] *= np.exp(-2 * step)
        down = -np.log(of.added(default, moved).relative / found.relative) / step
        low, high = sorted((up, down))  # they differ where two bounds meet
        assert low - 1e-4 <= found.gradient[i] <= high + 1e-4
        other = default.copy()
        other[i] *= np.exp(step)
        up = -np.log(of.added(other, rates).relative / found.relative) / step
        other[i] *= np.exp(-2 * step)
        down = np.log(of.added(other, rates).relative / found.relative) / step
        low, high = sorted((up, down))
        assert low - 1e-4 <= found.default_gradient[i] <= high + 1e-4


def measured(factors: dict[str, float], *, noise: float = 0.01) -> Baselines:
    draws = np.random.default_rng(3)
    loaded = {}
    for (name, factor), nbytes, pattern, depth in product(factors.items(), SIZES, Pattern, (1, 8)):
        cell = LoadedCell(nbytes, pattern, depth)
        rate = factor * min(depth, 2) / seconds(cell)
        loaded[name, cell] = Baseline(name, cell.bin_cell, tuple(rate * draws.normal(1, noise, 3)))
    return Baselines({}, "run r1", loaded=loaded)


def answer(model: str = "waiting", *, idle: float = 0.0, **factors: float) -> PredictionSet:
    demands = (demand(waiting=3.0), demand(20 * K, Pattern.RANDWRITE, depth=3.0, waiting=1.0))
    profile = replace(workload(), demands=demands, idle_seconds=idle)
    return predictor(model).predict(profile, measured({"A": 1.0, **factors}))


def test_it_ranks_by_demands_and_names_the_model() -> None:
    found = answer(fast=2.0, slow=0.5)
    assert (found.model, found.best, found.worst) == ("waiting", "fast", "slow")
    assert found.of("fast").relative == pytest.approx(200, rel=0.03)
    assert answer("time", fast=2.0).of("fast").relative == pytest.approx(200, rel=0.03)


def test_the_share_of_the_storage_limits_what_any_configuration_can_gain() -> None:
    found = answer(idle=996.0, fast=1000.0)
    assert found.of("fast").relative < 100.5
    assert "0.4 %" in found.notes[0]


def test_a_configuration_without_a_needed_rate_is_predicted_from_those_that_it_has() -> None:
    baselines = measured({"A": 1.0, "fast": 2.0, "slow": 0.5})
    gone = ("fast", LoadedCell(4 * K, Pattern.RANDREAD))
    lacking = {key: b for key, b in baselines.loaded.items() if key != gone}
    profile = replace(workload(), demands=(demand(),))
    found = predictor("waiting").predict(profile, replace(baselines, loaded=lacking))
    assert [p.configuration for p in found.predictions] == ["fast", "A", "slow"]
    assert found.of("fast").relative == pytest.approx(200, rel=0.03)
    assert found.best == "fast"
    (note,) = [note for note in found.notes if "fast" in note]
    assert "lacks cells" in note


def test_intervals_hold_jointly_with_those_of_configurations_that_lack_cells() -> None:
    baselines = measured({"A": 1.0, "fast": 2.0, "slow": 0.5})
    gone = ("fast", LoadedCell(4 * K, Pattern.RANDREAD))
    lacking = replace(baselines, loaded={key: b for key, b in baselines.loaded.items() if key != gone})
    profile = replace(workload(), demands=(demand(),))
    without = replace(baselines, loaded={key: b for key, b in baselines.loaded.items() if key[0] != "fast"})
    of_two = MixPredictor("waiting", 0.9).predict(profile, lacking)
    assert {p.configuration for p in of_two.predictions} == {"A", "fast", "slow"}
    alone = MixPredictor("waiting", 0.95).predict(profile, without)
    assert of_two.of("slow").high == pytest.approx(alone.of("slow").high), "each of two has half of the error"


def test_a_configuration_without_any_rate_of_an_op_is_left_out_by_name() -> None:
    baselines = measured({"A": 1.0, "fast": 2.0})
    lacking = {k: b for k, b in baselines.loaded.items() if k[0] == "A" or k[1].pattern.op is Op.WRITE}
    profile = replace(workload(), demands=(demand(),))
    found = predictor("waiting").predict(profile, replace(baselines, loaded=lacking))
    assert [p.configuration for p in found.predictions] == ["A"]
    assert any("fast is omitted" in note and "4K-randread" in note for note in found.notes)


def test_counts_alone_are_interpolated_where_their_cell_was_not_measured() -> None:
    found = predictor("time").predict(workload(), measured({"A": 1.0, "fast": 2.0}))
    assert found.model == "time"
    assert found.of("fast").relative == pytest.approx(200, rel=0.03)


def test_accesses_far_larger_than_all_measured_ones_are_an_error() -> None:
    with pytest.raises(InputError, match="more than 8 times larger") as caught:
        predictor("time").predict(workload("32M"), measured({"A": 1.0, "fast": 2.0}))
    assert caught.value.where == "run r1"
    assert "larger sizes" in caught.value.remedy


def test_the_error_of_the_model_widens_intervals_and_is_told_apart_from_the_scatter() -> None:
    profile = replace(workload(), demands=(demand(),))
    baselines = measured({"A": 1.0, "fast": 1.2})
    bare = MixPredictor("waiting").predict(profile, baselines).of("fast")
    wide = MixPredictor("waiting", errors={"waiting": ModelError(0.3, 0.1)}).predict(profile, baselines).of("fast")
    assert (bare.low, bare.high) == (bare.scatter_low, bare.scatter_high) == (wide.scatter_low, wide.scatter_high)
    assert wide.low < bare.low < wide.relative < bare.high < wide.high
    assert wide.low < 100, "20 % are no difference where the model errs by 30 %"
