"""Rates of combinations that were not measured, from effects that were measured one at a time."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import LoadedCell, Op, Pattern
from cephfit.mapper.completed_rates import completed

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


def test_coefficients_give_the_log_of_every_rate_that_follows_from_others() -> None:
    before = measured(one_at_a_time())
    found = completed(before)
    assert {cell for _, cell in found.baselines.loaded} - {cell for _, cell in before.loaded} == set(found.sources)
    for (cell, coefficients), name, r in product(found.sources.items(), "AB", range(3)):
        log = sum(k * math.log(before.loaded[name, source].iops[r]) for source, k in coefficients.items())
        assert math.log(found.baselines.loaded[name, cell].iops[r]) == pytest.approx(log)
        assert 0 not in coefficients.values()
