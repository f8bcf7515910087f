"""Counts of accesses, and exact joins of parts."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from trace_maker import batch

from cephfit.core.values.cells import Op
from cephfit.core.values.profile import Profile
from cephfit.traces.columns import AccessBatch
from cephfit.traces.compiled import compiled
from cephfit.traces.counting import buckets, tally_loop
from cephfit.traces.counting.buckets import place, steps_of
from cephfit.traces.counting.tally import FINE_PER_OCTAVE, Tally, fine_value_ns, percentile_ns
from cephfit.traces.counting.tally_loop import N_FINE
from cephfit.traces.description.describe import profile_of
from cephfit.traces.description.recording import PartialProfile

SOURCE = [{"files": ["made"]}]


def profile(partial: PartialProfile) -> Profile:
    return profile_of(partial, name="made", action="", sources=SOURCE, duration_ns=partial.duration_ns)


def profile_of_accesses(*accesses: tuple[int, str, int, int]) -> Profile:
    return profile(PartialProfile.of(batch(list(accesses))))


def test_a_sequential_stream_is_not_random() -> None:
    found = profile_of_accesses(*[(i, "r", 8 * i, 4096) for i in range(10)])
    assert found.accesses[Op.READ]["4K"] == 10
    assert found.random[Op.READ] == 0.0


def test_large_sequential_accesses_are_sequential_because_the_distance_is_from_the_end() -> None:
    found = profile_of_accesses(*[(i, "w", 65536 * i, 32 << 20) for i in range(5)])
    assert found.random[Op.WRITE] == 0.0
    distances = found.description["histograms"]["distance"]["write"]
    assert distances["counts"][distances["limits"].index(1)] == 4  # adjacent is +1


@pytest.mark.parametrize(
    ("start", "is_random"),
    [(7 + 128, False), (7 + 129, True), (7 - 128, False), (7 - 129, True)],
)
def test_random_is_more_than_128_lbn_from_the_last_block(start: int, is_random: bool) -> None:
    """The first access touches blocks 1000 to 1007."""
    found = profile_of_accesses((0, "r", 1000, 4096), (1, "r", 1000 + start, 4096))
    assert found.random[Op.READ] == float(is_random)


def test_reads_are_compared_with_reads_and_writes_with_writes() -> None:
    """Two interleaved streams far apart: each is sequential."""
    mixed = []
    for i in range(6):
        mixed += [(2 * i, "r", 8 * i, 4096), (2 * i + 1, "w", 10**6 + 16 * i, 8192)]
    found = profile_of_accesses(*mixed)
    assert found.random == {Op.READ: 0.0, Op.WRITE: 0.0}
    distances = found.description["histograms"]["distance"]["all"]
    assert distances["counts"][-1] == 6  # the stream of all accesses jumps forward at every write


def test_the_first_access_of_a_kind_is_counted_but_not_judged() -> None:
    """Two of three reads have a predecessor, and one of these is random."""
    found = profile_of_accesses((0, "r", 0, 4096), (1, "r", 8, 4096), (2, "r", 90000, 65536))
    assert sum(found.accesses[Op.READ].values()) == 3
    assert found.random[Op.READ] == 0.5
    assert found.random_by_bin == {Op.READ: {"4K": 0.0, "128K": 1.0}, Op.WRITE: {}}


def test_disks_are_separate_streams() -> None:
    """Two disks read in turn, each one sequentially."""
    rows = [(i, "r", 8 * (i // 2) + 10**6 * (i % 2), 4096) for i in range(8)]
    found = profile(PartialProfile.of(batch(rows, disk=[i % 2 for i in range(8)])))
    assert found.random[Op.READ] == 0.0
    assert found.description["n_disks"] == 2
    assert found.description["disks"]["disk1"]["accesses"]["read"]["4K"] == 4


@st.composite
def traces(draw: st.DrawFn) -> AccessBatch:
    n = draw(st.integers(1, 40))
    row = st.tuples(
        st.integers(0, 10**12),
        st.sampled_from("rw"),
        st.integers(0, 4000),
        st.sampled_from([512, 4096, 8192, 8193, 49152, 49153, 262144, 1 << 22, (1 << 22) + 1]),
    )
    rows = draw(st.lists(row, min_size=n, max_size=n))
    return batch(
        rows,
        disk=draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)),
        latency_ns=draw(st.lists(st.integers(-1, 10**10), min_size=n, max_size=n)),
        outstanding=draw(st.lists(st.integers(0, 100), min_size=n, max_size=n)),
    )


def cut(whole: AccessBatch, start: int, stop: int) -> AccessBatch:
    part = slice(start, stop)
    assert whole.latency_ns is not None and whole.outstanding is not None
    return AccessBatch(
        whole.time_ns[part],
        whole.op[part],
        whole.lbn[part],
        whole.nbytes[part],
        whole.disk[part],
        whole.disks,
        whole.latency_ns[part],
        whole.outstanding[part],
    )


@settings(deadline=None)
@given(traces(), st.lists(st.integers(0, 40), max_size=6), st.randoms(use_true_random=False))
def test_any_split_joined_in_any_grouping_gives_the_identical_profile(
    whole: AccessBatch, borders: list[int], random: object
) -> None:
    ends = sorted({0, len(whole), *(min(b, len(whole)) for b in borders)})
    parts = [PartialProfile.of(cut(whole, a, b)) for a, b in itertools.pairwise(ends)]
    while len(parts) > 1:  # join any two neighbours until one remains
        i = random.randrange(len(parts) - 1)  # type: ignore[attr-defined]
        parts[i : i + 2] = [parts[i].followed_by(parts[i + 1])]
    assert profile(parts[0]).to_json() == profile(PartialProfile.of(whole)).to_json()


@settings(deadline=None)
@given(traces())
def test_counts_agree_with_counting_one_access_after_the_other(whole: AccessBatch) -> None:
    random = {"r": 0, "w": 0}
    judged = {"r": 0, "w": 0}
    last: dict[tuple[int, str], int] = {}
    for op, lbn, nbytes, disk in zip(whole.op, whole.lbn, whole.nbytes, whole.disk, strict=True):
        kind = "rw"[op]
        if (disk, kind) in last:
            judged[kind] += 1
            random[kind] += abs(lbn - last[disk, kind]) > 128
        last[disk, kind] = lbn + -(-nbytes // 512) - 1
    found = profile(PartialProfile.of(whole))
    for op, kind in ((Op.READ, "r"), (Op.WRITE, "w")):
        assert found.random[op] == pytest.approx(random[kind] / judged[kind] if judged[kind] else 0.0)


@compiled
def place_among(value: int, steps: NDArray[np.uint64], part: np.uint64, shift: np.uint64) -> np.uintp:
    return place(value, steps, part, shift)


INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
"""Numbers of every magnitude."""
NEAR_LIMITS = st.builds(
    lambda limit, by: limit + by,
    st.sampled_from(
        [*tally_loop.DISTANCES, *tally_loop.SIZES, *[2**k for k in range(62)], *[-(2**k) for k in range(62)]]
    ),
    st.integers(-2, 2),
)


@settings(deadline=None)
@given(INT64 | NEAR_LIMITS)
def test_every_number_finds_the_place_that_a_search_finds(value: int) -> None:
    for limits_, first in (
        (tally_loop.SIZES, tally_loop.SIZE_STEPS),
        (tally_loop.DISTANCES, tally_loop.DISTANCE_STEPS),
    ):
        found = place_among(value, tally_loop.STEPS, np.uint64(first), np.uint64(tally_loop.FEW_SHIFT))
        assert found == np.searchsorted(limits_, value)


def test_limits_that_are_too_close_to_distinguish_are_refused() -> None:
    with pytest.raises(ValueError, match="too close"):
        steps_of([1024, 1025], tally_loop.FEW_SHIFT)


def fine_of(time_ns: int) -> int:
    """The fine bucket in which the gap between two accesses is counted."""
    rows = batch([(0, "r", 0, 4096), (time_ns, "r", 8, 4096)])
    fine = Tally.of(rows.time_ns, rows.op, rows.lbn, rows.nbytes).counts.fine_interarrival
    assert fine[0].sum() == 1
    return int(fine[0].argmax())


@settings(deadline=None)
@given(st.integers(1, (1 << 44) - 1))
def test_the_error_of_a_fine_bucket_is_less_than_its_width(time_ns: int) -> None:
    value = fine_value_ns(fine_of(time_ns))
    assert abs(value - time_ns) <= time_ns / FINE_PER_OCTAVE + 1


@settings(deadline=None)
@given(st.integers(1 << 44, (1 << 63) - 1))
def test_longer_times_belong_to_the_last_fine_bucket(time_ns: int) -> None:
    assert fine_of(time_ns) == N_FINE - 1


@settings(deadline=None)
@given(st.integers(0, 1 << 44) | st.sampled_from(tally_loop.TIMES).flatmap(lambda t: st.integers(t - 1, t + 1)))
def test_a_time_is_counted_in_the_limits_that_a_search_finds(time_ns: int) -> None:
    rows = batch([(0, "r", 0, 4096), (time_ns, "r", 8, 4096)])
    counts = Tally.of(rows.time_ns, rows.op, rows.lbn, rows.nbytes).counts.interarrival
    assert counts[0].argmax() == np.searchsorted(buckets.TIME_US * 1000, time_ns)


def test_a_percentile_is_the_value_that_this_share_does_not_exceed() -> None:
    found = [fine_of(t) for t in [1000] * 99 + [10**6]]
    fine = np.bincount(found, minlength=N_FINE)
    assert percentile_ns(fine, 0.99) == pytest.approx(1000, rel=1 / FINE_PER_OCTAVE)
    assert percentile_ns(fine, 1.0) == pytest.approx(10**6, rel=1 / FINE_PER_OCTAVE)


@settings(deadline=None)
@given(traces())
def test_histograms_agree_with_a_binary_search_in_their_limits(whole: AccessBatch) -> None:
    found = profile(PartialProfile.of(whole)).description["histograms"]
    assert whole.latency_ns is not None and whole.outstanding is not None
    known = whole.latency_ns[whole.latency_ns >= 0]
    for name, bounds, values in (
        ("size", buckets.SIZE_NBYTES, whole.nbytes),
        ("latency_us", buckets.TIME_US * 1000, known),
        ("outstanding", buckets.OUTSTANDING, whole.outstanding + 1),
    ):
        expected = np.bincount(np.searchsorted(bounds, values), minlength=len(bounds) + 1)
        if name == "outstanding" and len(values) > 1 and not np.ptp(whole.time_ns):
            assert name not in found  # all have the same time: inter-arrival is unknown
        elif len(values):
            assert found[name]["all"]["counts"] == expected.tolist()


@settings(deadline=None)
@given(traces())
def test_the_share_at_another_threshold_equals_a_count_with_that_threshold(whole: AccessBatch) -> None:
    found = profile(PartialProfile.of(whole))
    distances: dict[str, list[int]] = {"read": [], "write": []}
    last: dict[tuple[int, int], int] = {}
    for op, lbn, nbytes, disk in zip(whole.op, whole.lbn, whole.nbytes, whole.disk, strict=True):
        if (disk, op) in last:
            distances[("read", "write")[op]].append(abs(int(lbn - last[disk, op])))
        last[disk, op] = int(lbn) + -(-int(nbytes) // 512) - 1
    for op, spans in distances.items():
        table = found.description["random_by_threshold"].get(op, {})
        assert bool(table) == bool(spans)
        for threshold, share in table.items():
            assert share == pytest.approx(np.mean([d > int(threshold) for d in spans]))
        if table:
            assert table["128"] == pytest.approx(found.random[Op(op)])
