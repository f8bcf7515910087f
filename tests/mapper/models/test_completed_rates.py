"""Rates that were not measured: completed ones, their weights on measured ones, and the error of interpolation."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import SIZE_BINS, LoadedCell, Op, Pattern
from cephfit.core.values.demand import Demand
from cephfit.core.values.profile import Profile
from cephfit.mapper import predictor
from cephfit.mapper.absolute_rates.supply import supply_set
from cephfit.mapper.models import completed_rates
from cephfit.mapper.models.completed_rates import SizeErrors, completed
from cephfit.mapper.models.joint_prediction import JointPrediction
from cephfit.mapper.models.many_profiles import predict_many
from cephfit.mapper.models.mix_predictor import MixPredictor

K = 1024
SIZES = (4 * K, 32 * K, 128 * K)
DEPTHS = (1, 4, 16)


def rate(name: str, cell: LoadedCell, repeat: int) -> float:
    """A storage in which all effects multiply, and differ between configurations."""
    factor = {"A": 1.0, "B": 1.7}[name]
    found = 1e6 * factor / (2e4 + cell.nbytes) * (0.3 if cell.pattern.is_random else 1.0) * (1 + 0.01 * repeat)
    found *= cell.iodepth ** (0.5 * factor / 1.7)
    found *= 0.4 * factor if cell.align_nbytes else 1.0
    return found * (0.5 / factor if cell.sync else 1.0)


def measured(cells: list[LoadedCell]) -> Baselines:
    rounds = (0, 1, 2)
    return Baselines(
        {},
        "run r1",
        loaded={
            (name, cell): Baseline(name, cell.bin_cell, tuple(rate(name, cell, r) for r in rounds), 1, rounds)
            for name, cell in product("AB", cells)
        },
    )


def one_at_a_time() -> list[LoadedCell]:
    cells = [LoadedCell(n, pattern) for n, pattern in product(SIZES, Pattern)]
    cells += [LoadedCell(n, Pattern.RANDWRITE, d) for n, d in product(SIZES[:2], DEPTHS[1:])]
    cells += [LoadedCell(n, Pattern.RANDWRITE, 1, 4 * K) for n in SIZES[1:]]
    return [*cells, *(LoadedCell(n, Pattern.RANDWRITE, 1, 0, "fsync") for n in SIZES)]


@given(
    nbytes=st.sampled_from(SIZES),
    depth=st.sampled_from(DEPTHS),
    is_aligned=st.booleans(),
    is_flushed=st.booleans(),
)
def test_effects_that_multiply_are_found_exactly(
    nbytes: int, depth: int, is_aligned: bool, is_flushed: bool
) -> None:
    align = 0 if is_aligned or nbytes == 4 * K else 4 * K
    cell = LoadedCell(nbytes, Pattern.RANDWRITE, depth, align, "fsync" if is_flushed else "")
    found = completed(measured(one_at_a_time())).baselines.loaded
    for name in "AB":
        assert found[name, cell].iops == pytest.approx([rate(name, cell, r) for r in range(3)])
        assert found[name, cell].rounds == (0, 1, 2)
        assert found[name, cell].cell == cell.bin_cell


def test_what_was_measured_stays() -> None:
    before = measured(one_at_a_time())
    after = completed(before).baselines
    assert {key: after.loaded[key] for key in before.loaded} == dict(before.loaded)
    assert completed(after).baselines.loaded == after.loaded


def test_depth_of_sequential_accesses_follows_that_of_random_ones() -> None:
    found = completed(measured(one_at_a_time())).baselines.loaded
    plain, deep = (found["B", LoadedCell(32 * K, Pattern.WRITE, d)].iops[0] for d in (1, 16))
    random, random_deep = (rate("B", LoadedCell(32 * K, Pattern.RANDWRITE, d), 0) for d in (1, 16))
    assert deep / plain == pytest.approx(random_deep / random)


def test_the_effect_of_alignment_is_that_of_the_nearest_size_in_either_order() -> None:
    """Small writes are deferred and large ones are not, so that the size decides what alignment costs."""

    def iops(cell: LoadedCell) -> float:
        slow = 0.3 if cell.align_nbytes and cell.nbytes > 64 * K else 1.0
        return 1000 * slow * (1.0 if cell.pattern.is_random else 1.5)

    cells = [LoadedCell(n, p) for n, p in product(SIZES, (Pattern.WRITE, Pattern.RANDWRITE))]
    cells += [LoadedCell(n, Pattern.RANDWRITE, 1, 4 * K) for n in (32 * K, 128 * K)]
    cells += [LoadedCell(128 * K, Pattern.WRITE, 1, 4 * K)]
    loaded = {("A", cell): Baseline("A", cell.bin_cell, (iops(cell),), 1, (0,)) for cell in cells}
    found = completed(Baselines({}, "run r1", loaded=loaded)).baselines.loaded
    for nbytes in (32 * K, 128 * K):
        cell = LoadedCell(nbytes, Pattern.WRITE, 1, 4 * K)
        assert found["A", cell].iops == pytest.approx((iops(cell),))


def deep_rates(iops: Callable[[LoadedCell], float], cells: list[LoadedCell]) -> Mapping[LoadedCell, float]:
    loaded = {("A", cell): Baseline("A", cell.bin_cell, (iops(cell),), 1, (0,)) for cell in cells}
    found = completed(Baselines({}, "run r1", loaded=loaded)).baselines.loaded
    return {cell: baseline.iops[0] for (_, cell), baseline in found.items()}


def test_the_effect_of_depth_is_that_of_the_own_size_as_far_as_it_was_measured() -> None:
    """A large size grows little up to depth 4, a small one much; from 4 to 16 both grow alike."""

    def iops(cell: LoadedCell) -> float:
        first = 1.2 if cell.nbytes > 64 * K else 3.0
        return 1000 * {1: 1.0, 4: first, 16: first * 1.5}[cell.iodepth]

    shallow = [LoadedCell(n, Pattern.WRITE, d) for n in (32 * K, 128 * K) for d in (1, 4)]
    wanted = LoadedCell(128 * K, Pattern.WRITE, 16)
    found = deep_rates(iops, [*shallow, LoadedCell(32 * K, Pattern.WRITE, 16)])
    assert found[wanted] == pytest.approx(iops(wanted))


def test_the_effect_of_depth_is_that_of_accesses_with_the_same_alignment_before_that_of_others() -> None:
    """Unaligned accesses gain nothing from depth: what they show at 16 says nothing about aligned ones."""

    def iops(cell: LoadedCell) -> float:
        return 1000.0 if cell.align_nbytes else 1000.0 * cell.iodepth**0.5

    large, wanted = 128 * K, LoadedCell(128 * K, Pattern.RANDWRITE, 16)
    sizes = ((large, 1), (large, 4), *product([32 * K], DEPTHS))
    aligned = [LoadedCell(n, Pattern.RANDWRITE, d) for n, d in sizes]
    unaligned = [LoadedCell(large, Pattern.RANDWRITE, d, 4 * K) for d in (1, 16)]
    found = deep_rates(iops, [*aligned, *unaligned])
    assert found[wanted] == pytest.approx(iops(wanted))
    assert found[LoadedCell(large, Pattern.RANDWRITE, 4, 4 * K)] == pytest.approx(2000), "none but the aligned one"


def test_reads_have_no_flushes_and_no_depth_that_no_read_was_measured_at() -> None:
    kinds = [cell for _, cell in completed(measured(one_at_a_time())).baselines.loaded]
    reads = [cell for cell in kinds if cell.pattern.op is Op.READ]
    assert {cell.sync for cell in reads} == {""}
    assert {cell.iodepth for cell in reads} == {1}


def test_large_writes_are_unaffected_by_flushes_that_only_small_ones_were_measured_with() -> None:
    cells = [c for c in one_at_a_time() if not c.sync or c.nbytes == 4 * K]
    found = completed(measured(cells)).baselines.loaded
    flushed, plain = (found["A", LoadedCell(128 * K, Pattern.RANDWRITE, 1, 0, s)].iops[0] for s in ("fsync", ""))
    assert flushed == pytest.approx(plain)


def test_a_configuration_without_the_rates_has_no_combination_and_rounds_are_those_of_all() -> None:
    baselines = measured(one_at_a_time())
    loaded = {k: b for k, b in baselines.loaded.items() if k != ("B", LoadedCell(32 * K, Pattern.RANDWRITE, 4))}
    short = LoadedCell(32 * K, Pattern.RANDWRITE, 1, 4 * K)
    loaded["A", short] = replace(loaded["A", short], iops=loaded["A", short].iops[:2], rounds=(0, 2))
    found = completed(replace(baselines, loaded=loaded)).baselines.loaded
    both = LoadedCell(32 * K, Pattern.RANDWRITE, 4, 4 * K)
    assert ("B", both) not in found
    assert found["A", both].rounds == (0, 2)
    assert all(math.isfinite(v) and v > 0 for b in found.values() for v in b.iops)


def test_a_configuration_whose_sources_have_no_common_round_is_omitted_with_a_note() -> None:
    """Each run of a round failed in another cell."""
    baselines = measured(one_at_a_time())
    loaded = dict(baselines.loaded)
    for cell, r in (
        (LoadedCell(32 * K, Pattern.RANDWRITE, 1, 4 * K), 0),
        (LoadedCell(32 * K, Pattern.RANDWRITE, 4), 1),
    ):
        loaded["B", cell] = replace(loaded["B", cell], iops=loaded["B", cell].iops[r : r + 1], rounds=(r,))
    demands = (Demand(Pattern.RANDWRITE, 32.0 * K, False, 4.0, None, 10.0, 1.0),)
    profile = replace(workload((32 * K,), (Pattern.RANDWRITE,), is_aligned=False), demands=demands)
    found = predictor("waiting").predict(profile, replace(baselines, loaded=loaded))
    assert [p.configuration for p in found.predictions] == ["A"]
    assert any(note.startswith("configuration B is omitted: no baseline for") for note in found.notes)


def test_a_configuration_without_any_rate_of_an_op_has_no_combination_of_it() -> None:
    baselines = measured(one_at_a_time())
    loaded = {k: b for k, b in baselines.loaded.items() if k[0] == "A" or k[1].pattern.op is Op.READ}
    found = completed(replace(baselines, loaded=loaded)).baselines.loaded
    assert {cell.pattern.op for name, cell in found if name == "A"} == set(Op)
    assert {cell.pattern.op for name, cell in found if name == "B"} == {Op.READ}


def test_coefficients_give_the_log_of_every_rate_that_follows_from_others() -> None:
    before = measured(one_at_a_time())
    found = completed(before)
    assert {cell for _, cell in found.baselines.loaded} - {cell for _, cell in before.loaded} == set(found.sources)
    for (cell, coefficients), name, r in product(found.sources.items(), "AB", range(3)):
        log = sum(k * math.log(before.loaded[name, source].iops[r]) for source, k in coefficients.items())
        assert math.log(found.baselines.loaded[name, cell].iops[r]) == pytest.approx(log)
        assert 0 not in coefficients.values()


ROUNDS = (0, 1, 2)
NOISE = 0.03
ORIGIN_SIZES = (4 * K, 16 * K, 32 * K, 64 * K, 128 * K, 512 * K)
LARGE = (4 * K, 32 * K, 128 * K, 1024 * K)
RANDOM = (Pattern.RANDREAD, Pattern.RANDWRITE)
WRITES = (Pattern.WRITE, Pattern.RANDWRITE)
UNALIGNED = (Pattern.RANDREAD, Pattern.WRITE, Pattern.RANDWRITE)

DEPTH_AT_ONE_SIZE = (
    *(LoadedCell(n, Pattern.RANDWRITE) for n in ORIGIN_SIZES),
    LoadedCell(32 * K, Pattern.RANDWRITE, 16),
)
LIKE_THE_EVALUATION = (
    *(LoadedCell(n, pattern) for n, pattern in product(LARGE, Pattern)),
    *(LoadedCell(n, pattern, 1, 4 * K) for n, pattern in product(LARGE[1:], UNALIGNED)),
    *(LoadedCell(n, pattern, 4) for n, pattern in product(LARGE[:3], RANDOM)),
    *(LoadedCell(n, pattern, 16) for n, pattern in product(LARGE[:2], RANDOM)),
    LoadedCell(128 * K, Pattern.RANDWRITE, 16, 4 * K),
    *(LoadedCell(n, pattern, 1, 0, "fsync") for n, pattern in product(LARGE[:2], WRITES)),
)


def origin_rate(cell: LoadedCell) -> float:
    found = cell.iodepth**0.5 / (2e-3 + cell.nbytes / 1e8)
    return found * (0.7 if cell.align_nbytes else 1.0) * (0.5 if cell.sync else 1.0)


def swept(cells: tuple[LoadedCell, ...], draws: np.random.Generator | None, n: int = 8) -> Baselines:
    """Configurations that are all alike, with noise in each measurement by itself, or without any."""
    loaded = {}
    for name, cell in product(("A", *(f"C{j}" for j in range(1, n))), cells):
        logs = np.zeros(len(ROUNDS)) if draws is None else draws.normal(0, NOISE, len(ROUNDS))
        loaded[name, cell] = Baseline(name, cell.bin_cell, tuple(origin_rate(cell) * np.exp(logs)), 1, ROUNDS)
    return Baselines({}, "drawn", loaded=loaded)


def workload(sizes: tuple[int, ...], patterns: tuple[Pattern, ...], *, is_aligned: bool) -> Profile:
    """A workload whose kinds of accesses wait equally long, with 16 outstanding."""
    demands = tuple(
        Demand(pattern, float(n), is_aligned, 16.0, None, 10.0 * 128 * K / n, 1.0)
        for n, pattern in product(sizes, patterns)
    )
    accesses = {op: {size.name: 1.0 for size in SIZE_BINS} for op in Op}
    return Profile("w", accesses, dict.fromkeys(Op, 0.5), demands=demands)


DEEP = workload((4 * K, 16 * K, 64 * K, 128 * K, 512 * K), (Pattern.RANDWRITE,), is_aligned=True)
DEEP_UNALIGNED = workload(LARGE[1:], UNALIGNED, is_aligned=False)
CASES = [(DEPTH_AT_ONE_SIZE, DEEP), (LIKE_THE_EVALUATION, DEEP_UNALIGNED)]


@pytest.fixture
def as_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates are not moved towards what configurations have in common: what follows from them is judged alone."""
    monkeypatch.setattr(completed_rates, "shared", lambda baselines: baselines)


@pytest.mark.slow
@pytest.mark.usefixtures("as_measured")
@pytest.mark.parametrize(("cells", "profile"), CASES)
def test_intervals_hold_as_often_as_promised_where_rates_follow_from_the_same_measurements(
    cells: tuple[LoadedCell, ...], profile: Profile
) -> None:
    """As if each such rate were measured by itself, all predictions were in 45 % of the sweeps in their intervals
    at once, and 76 % and 83 % of the supplies."""
    draws, model = np.random.default_rng(1), predictor("waiting", with_error=False)
    truth = supply_set(profile, swept(cells, None)).supplies[0].own_depth.value
    together, served = [], []
    for _ in range(150):
        baselines = swept(cells, draws)
        together.append(all(p.low <= 100 <= p.high for p in model.predict(profile, baselines).predictions))
        served += [s.own_depth.low <= truth <= s.own_depth.high for s in supply_set(profile, baselines).supplies]
    assert 0.92 <= np.mean(together) <= 0.995
    assert 0.92 <= np.mean(served) <= 0.995


@pytest.mark.usefixtures("as_measured")
@pytest.mark.parametrize(("cells", "profile"), CASES)
def test_predictions_are_those_as_if_all_rates_were_measured(
    cells: tuple[LoadedCell, ...], profile: Profile
) -> None:
    baselines = swept(cells, np.random.default_rng(2))
    every = completed(baselines).baselines
    assert not completed(every).sources
    for model in ("waiting", "time"):
        found, expected = (predictor(model).predict(profile, of) for of in (baselines, every))
        for p in found.predictions:
            assert p.relative == pytest.approx(expected.of(p.configuration).relative, rel=1e-12)
    for one, other in zip(
        supply_set(profile, baselines).supplies, supply_set(profile, every).supplies, strict=True
    ):
        assert one.own_depth.value == pytest.approx(other.own_depth.value, rel=1e-12)
        assert one.most.value == pytest.approx(other.most.value, rel=1e-12)


@pytest.mark.usefixtures("as_measured")
@pytest.mark.parametrize(("cells", "profile"), CASES)
def test_weights_are_the_derivatives_by_each_measurement(cells: tuple[LoadedCell, ...], profile: Profile) -> None:
    """C1 was measured itself in a kind that follows from others under the other configurations."""
    sweep = swept(cells, None, 3)
    kind = max(completed(sweep).sources, key=lambda cell: (cell.iodepth, -cell.nbytes, cell.align_nbytes))
    of_kind = Baseline("C1", kind.bin_cell, (1.3 * origin_rate(kind),) * len(ROUNDS), 1, ROUNDS)
    sweep = replace(sweep, loaded={**sweep.loaded, ("C1", kind): of_kind})
    model = predictor("waiting")
    assert isinstance(model, MixPredictor)
    joint = JointPrediction.of(model, profile, sweep)
    weights, before, names = joint.weights(), joint.logs(), [place.name for place in joint.places]
    assert set(joint.table.cells) == {cell for _, cell in sweep.loaded}
    step = 1e-5
    for (name, cell), measured in sweep.loaded.items():
        values = (measured.iops[0], measured.iops[1] * math.exp(step), measured.iops[2])
        moved = replace(sweep, loaded={**sweep.loaded, (name, cell): replace(measured, iops=values)})
        slopes = (JointPrediction.of(model, profile, moved).logs() - before) / step
        at = joint.table.cells.index(cell)
        assert weights[:, names.index(name), at, 1] == pytest.approx(slopes, abs=1e-4), (name, cell)


def test_many_workloads_have_the_intervals_of_one_also_where_one_configuration_has_other_rounds() -> None:
    sweep = swept(LIKE_THE_EVALUATION, np.random.default_rng(3))
    first = LoadedCell(32 * K, Pattern.RANDWRITE, 1, 4 * K)
    short = replace(sweep.loaded["C1", first], iops=sweep.loaded["C1", first].iops[1:], rounds=ROUNDS[1:])
    # Under all configurations a source has fewer rounds than the others.
    fewer = {
        key: replace(b, iops=b.iops[:2], rounds=ROUNDS[:2]) if key[1] == first else b
        for key, b in sweep.loaded.items()
    }
    own = LoadedCell(32 * K, Pattern.RANDWRITE, 16, 4 * K)
    measured_itself = {("C2", own): Baseline("C2", own.bin_cell, (900.0, 950.0, 930.0), 1, ROUNDS)}
    plain = workload(LARGE, RANDOM, is_aligned=True)
    for loaded in ({}, {("C1", first): short}, fewer, measured_itself):
        baselines = replace(sweep, loaded={**sweep.loaded, **loaded})
        for model in ("waiting", "time"):
            found = predict_many([DEEP_UNALIGNED, plain, DEEP], baselines, model)
            for i, profile in enumerate((DEEP_UNALIGNED, plain, DEEP)):
                for p in predictor(model).predict(profile, baselines).predictions:
                    at = i, found.configurations.index(p.configuration)
                    assert found.relative[at] == pytest.approx(p.relative, rel=1e-9)
                    assert found.low[at] == pytest.approx(p.low, rel=1e-6)
                    assert found.high[at] == pytest.approx(p.high, rel=1e-6)


KIB = 1024
INTERPOLATED_SIZES = (4, 8, 16, 64, 128, 256, 1024)


def reads(**counts: int) -> Profile:
    """Random reads: the number of accesses in each bin."""
    accesses = {op: {b.name: counts.get(f"b{b.name}", 0) * (op is Op.READ) for b in SIZE_BINS} for op in Op}
    return Profile("w", accesses, {Op.READ: 1.0, Op.WRITE: 0.0})


def seconds(kib: int, name: str, bend: float) -> float:
    """A fixed part and bandwidth; with ``bend``, configuration X deviates from it at every other size."""
    if name == "A":
        return 1e-3 + kib * 1e-5
    return 0.5e-3 + kib * 0.8e-5 * (
        1 + bend * (INTERPOLATED_SIZES.index(kib) % 2 if kib in INTERPOLATED_SIZES else 0)
    )


def swept_sizes(bend: float = 0.0, sizes: tuple[int, ...] = INTERPOLATED_SIZES) -> Baselines:
    loaded = {}
    for name in ("A", "X"):
        for kib in sizes:
            cell = LoadedCell(kib * KIB, Pattern.RANDREAD)
            rate = 1 / seconds(kib, name, bend)
            loaded[name, cell] = Baseline(name, cell.bin_cell, (rate, rate * 1.001, rate * 0.999))
    cells = {
        (name, cell.bin_cell): b
        for (name, cell), b in loaded.items()
        if cell.nbytes == cell.bin_cell.size.benchmark_nbytes
    }
    return Baselines(cells, "by hand", loaded=loaded)


def test_times_that_are_linear_in_size_have_no_error_between_sizes() -> None:
    errors = SizeErrors.of(swept_sizes().loaded, "A", "X")
    assert len(errors.between) == len(INTERPOLATED_SIZES) - 2
    assert np.allclose(errors.between, 0.0, atol=1e-9)
    assert len(errors.beyond) == 2
    assert max(map(abs, errors.beyond)) > 0.001  # below the smallest size the time is taken as constant


def test_the_error_is_that_of_the_ratio_computed_by_hand() -> None:
    """8K left out lies a third of the way from 4K to 16K."""
    errors = SizeErrors.of(swept_sizes(0.3).loaded, "A", "X")
    mean = {(n, k): 3 / (1 + 1.001 + 0.999) * seconds(k, n, 0.3) for n in ("A", "X") for k in (4, 8, 16)}
    left = {n: mean[n, 4] * 2 / 3 + mean[n, 16] / 3 for n in ("A", "X")}
    expected = math.log(left["X"] / left["A"]) - math.log(mean["X", 8] / mean["A", 8])
    assert errors.between[0] == pytest.approx(expected)


def test_a_cell_that_was_not_measured_is_interpolated_and_said_and_widens_the_interval() -> None:
    """32K is missing; the true ratio there lies in the interval, which grows with the error at other sizes."""
    workload = reads(b4K=1000, b32K=300)  # 1.04 s and 0.396 s under the default
    straight = predictor("time").predict(workload, swept_sizes())
    total = {n: 1000 * seconds(4, n, 0) + 300 * seconds(32, n, 0) for n in ("A", "X")}
    found = straight.of("X")
    assert found.relative == pytest.approx(100 * total["A"] / total["X"], rel=1e-3)
    (note,) = [n for n in straight.notes if n.startswith("interpolated")]
    assert "32K-randread with 28 % of the default's time, not measured" in note
    bent = predictor("time").predict(workload, swept_sizes(0.3)).of("X")
    assert math.log(bent.high / bent.low) > 3 * math.log(found.high / found.low)


def test_counts_are_taken_at_the_depth_of_the_load_also_where_a_cell_is_interpolated() -> None:
    """With 16 outstanding B is twice as fast, alone it is not. 32K was not measured."""
    loaded = {}
    for name, nbytes, depth in product("AB", (4 * K, 128 * K, 1024 * K), (1, 16)):
        cell = LoadedCell(nbytes, Pattern.RANDREAD, depth)
        rate = (2.0 if name == "B" else 1.0) ** (depth > 1) * depth / (0.01 + nbytes / 1e8)
        loaded[name, cell] = Baseline(name, cell.bin_cell, (rate, 1.001 * rate))
    cells = {(name, cell.bin_cell): b for (name, cell), b in loaded.items() if cell.iodepth == 16}
    deep = Baselines(cells, "load deep", loaded=loaded)
    assert predictor("time").predict(reads(b4K=10, b32K=10), deep).of("B").relative == pytest.approx(200)
    unknown = replace(deep, cells={})
    assert predictor("time").predict(reads(b4K=10, b32K=10), unknown).of("B").relative == pytest.approx(100)


def test_nothing_is_widened_where_every_cell_was_measured() -> None:
    found = predictor("time").predict(reads(b4K=1000, b128K=5), swept_sizes(0.3))
    assert not [n for n in found.notes if n.startswith("interpolated")]
    assert math.log(found.of("X").high / found.of("X").low) < 0.02


def test_with_two_sizes_the_error_is_unknown_and_the_interval_holds_a_factor_of_ten() -> None:
    workload = reads(b4K=1000, b32K=10)
    found = predictor("time").predict(workload, swept_sizes(sizes=(4, 128)))
    assert any("too few sizes were measured" in n for n in found.notes)
    x = found.of("X")
    slower = 1000 * seconds(4, "X", 0) + 10 * 10 * seconds(32, "X", 0)
    truth = 100 * (1000 * seconds(4, "A", 0) + 10 * seconds(32, "A", 0)) / slower
    assert x.low <= truth * 1.001


def test_many_workloads_at_once_have_the_same_intervals() -> None:
    workloads = [reads(b4K=1000, b32K=300), reads(b4K=1000)]
    many = predict_many(workloads, swept_sizes(0.3), "time")
    for i, workload in enumerate(workloads):
        one = predictor("time").predict(workload, swept_sizes(0.3)).of("X")
        assert (many.low[i, 1], many.high[i, 1]) == pytest.approx((one.low, one.high))
