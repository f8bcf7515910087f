"""The full description joins exactly for any parts, and its counts follow the definitions."""

import itertools
from collections import Counter
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cephfit.traces.counting import buckets
from cephfit.traces.description import locality as footprint_module
from cephfit.traces.description.disk_description import BusyTime, DiskDescription
from cephfit.traces.description.locality import Footprint, Grid, Regions, hot_shares

ROW = st.tuples(
    st.integers(0, 10**12),
    st.integers(0, 1),
    st.one_of(st.integers(0, 4000), st.integers(0, 1 << 40)),
    st.sampled_from([512, 1000, 4096, 8192, 8193, 49153, 1 << 20, (1 << 22) + 1]),
    st.integers(-1, 10**11),
    st.integers(0, 3),
)


def columns(rows: list[tuple[int, ...]]) -> list[Any]:
    time, op, lbn, nbytes, latency, depth = (np.array(c, np.int64) for c in zip(*rows, strict=True))
    return [time, op.astype(np.uint8), lbn, nbytes, latency, depth.astype(np.int32)]


def disk_description(rows: list[tuple[int, ...]]) -> DiskDescription:
    return DiskDescription.of(*columns(rows))


def same(a: Any, b: Any) -> bool:
    """Equal in every field, arrays element by element."""
    if is_dataclass(a):
        return all(same(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(np.array_equal(a, b))


def rejoined(rows: list[tuple[int, ...]], borders: list[int], random: Any) -> DiskDescription:
    places = sorted({0, len(rows), *(min(b, len(rows)) for b in borders)})
    parts = [disk_description(rows[a:b]) for a, b in itertools.pairwise(places)]
    while len(parts) > 1:  # join any two neighbours until one remains
        i = random.randrange(len(parts) - 1)
        parts[i : i + 2] = [parts[i].followed_by(parts[i + 1])]
    return parts[0]


@settings(deadline=None, max_examples=60)
@given(
    st.lists(ROW, min_size=1, max_size=90),
    st.lists(st.integers(0, 90), max_size=8),
    st.randoms(use_true_random=False),
)
def test_any_split_joined_in_any_grouping_gives_the_identical_description(
    rows: list[tuple[int, ...]], borders: list[int], random: Any
) -> None:
    whole, joined = disk_description(rows), rejoined(rows, borders, random)
    assert same(whole, joined)
    assert same(whole.whole(), joined.whole())
    assert whole.busy.share() == joined.busy.share()


@settings(deadline=None, max_examples=25)
@given(st.lists(ROW, min_size=1, max_size=60), st.lists(st.integers(0, 60), max_size=4), st.randoms())
def test_joining_stays_exact_when_the_limits_are_reached(
    rows: list[tuple[int, ...]], borders: list[int], random: Any
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(footprint_module, "MAX_BLOCKS", 8)
        patch.setattr(footprint_module, "MAX_REGIONS", 4)
        patch.setattr("cephfit.traces.description.disk_description.SAMPLE", 5)
        whole, joined = disk_description(rows), rejoined(rows, borders, random)
        assert same(whole, joined)
        assert len(whole.footprint.blocks.keys) <= 8 and len(whole.regions.counts.keys) <= 4


@settings(deadline=None, max_examples=40)
@given(st.lists(ROW, min_size=1, max_size=60))
def test_windowed_distance_is_to_the_closest_of_the_previous_16(rows: list[tuple[int, ...]]) -> None:
    ends = [lbn + -(-nbytes // 512) - 1 for _, _, lbn, nbytes, _, _ in rows]
    expected = Counter[int]()
    for i in range(1, len(rows)):
        distances = [rows[i][2] - end for end in reversed(ends[max(i - 16, 0) : i])]
        expected[int(np.searchsorted(buckets.DISTANCE_LBN, min(distances, key=abs)))] += 1
    counted = disk_description(rows).whole().windowed[0]
    assert {i: n for i, n in enumerate(counted.tolist()) if n} == dict(expected)


@settings(deadline=None, max_examples=40)
@given(st.lists(ROW, min_size=1, max_size=60))
def test_randomness_over_thresholds(rows: list[tuple[int, ...]]) -> None:
    found = disk_description(rows).whole()
    for op, (place, threshold) in itertools.product((0, 1), enumerate(found.edges.tolist())):
        mine = [r for r in rows if r[1] == op]
        expected = sum(abs(b[2] - (a[2] + -(-a[3] // 512) - 1)) > threshold for a, b in itertools.pairwise(mine))
        assert found.magnitudes[op, 0, :, place + 1 :].sum() == expected
    assert found.series[:, 20:30].sum() == found.magnitudes[:, 0, :, list(found.edges).index(128) + 1 :].sum()


@given(st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=20), st.sampled_from([2, 4, 64, 512]))
def test_a_grid_holds_its_range_with_the_narrowest_bins(units: list[int], n_bins: int) -> None:
    grid = Grid(n_bins, min(units), max(units))
    assert 1 <= grid.n_used <= n_bins
    if grid.shift:
        narrower = grid.shift - 1
        assert (grid.high >> narrower) - (grid.low >> narrower) >= n_bins


def busy_share(rows: list[tuple[int, int]]) -> float | None:
    """(issue, latency) in order of issue: the result of BusyTime, joined one by one."""
    ends: list[int] = []
    total = BusyTime()
    for begun, latency in rows:
        depth = sum(e > begun for e in ends)
        one = BusyTime.of(np.array([begun]), np.array([latency]), np.array([depth], np.int32))
        total = total.followed_by(one)
        ends.append(begun + latency)
    return total.share()


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 300)), min_size=1, max_size=30))
def test_busy_time_is_the_union_of_the_times_in_flight(rows: list[tuple[int, int]]) -> None:
    rows = sorted(rows)
    in_flight = {t for begun, latency in rows for t in range(begun, begun + latency)}
    wall = max(b + latency for b, latency in rows) - rows[0][0]
    assert busy_share(rows) == (pytest.approx(len(in_flight) / wall) if wall else None)


def test_the_footprint_is_exact_until_its_limit_and_near_after_it() -> None:
    rng = np.random.default_rng(2017)
    lbn = rng.integers(0, 1 << 32, 500_000) // 8 * 8
    few, many = Footprint.of(lbn[:1000], np.full(1000, 4096)), Footprint.of(lbn, np.full(len(lbn), 4096))
    assert (few.n_blocks, few.relative_error) == (len(set(lbn[:1000].tolist())), 0.0)
    truth = len(np.unique(lbn))
    assert 0 < many.relative_error < 0.004
    assert many.n_blocks == pytest.approx(truth, rel=4 * many.relative_error)
    again = many.joined(many)
    assert again.n_blocks == many.n_blocks
    assert again.reaccess_share == pytest.approx(0.5, abs=0.01)


def test_an_access_within_one_region_touches_one() -> None:
    """The Perl version of ioprof counts 4 KiB at an odd offset in two 1 MiB buckets."""
    found = Regions.of(np.array([8, 2040, 2047]), np.array([4096, 4096, 1024]))
    assert found.counts.keys.tolist() == [0, 1]
    assert found.counts.sums.tolist() == [[3, 4096 + 4096 + 512], [0, 512]]


def test_an_access_at_the_last_possible_byte_has_its_region() -> None:
    """An offset of 2^63 - 1 bytes; where the access ends does not fit into 64 bits."""
    last = (2**63 - 1) >> 9
    found = Regions.of(np.array([last, 8]), np.array([4096, 4096]))
    assert found.counts.keys.tolist() == [0, last >> 11, (last >> 11) + 1]
    assert found.counts.sums.tolist() == [[1, 4096], [1, 512], [0, 3584]]


def test_hot_shares_take_the_largest_regions_first() -> None:
    assert hot_shares(np.array([90, 5, 3, 1, 1, 0, 0, 0, 0, 0]), (0.5, 0.9, 0.95)) == [0.1, 0.1, 0.2]
    assert hot_shares(np.array([1, 1, 1, 1]), (0.5, 1.0)) == [0.5, 1.0]
