"""The full description of workloads with known properties."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_tally import SOURCE, cut, traces
from trace_maker import batch

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op
from cephfit.core.values.profile import Profile
from cephfit.traces.columns import AccessBatch
from cephfit.traces.description.describe import profile_of
from cephfit.traces.description.disk_description import MAX_DISKS, DiskDescriptions
from cephfit.traces.description.recording import PartialProfile


def partial(accesses: AccessBatch, threshold: int = 128) -> PartialProfile:
    return replace(
        PartialProfile.of(accesses), disk_descriptions=DiskDescriptions.of(accesses, threshold=threshold)
    )


def profile(counted: PartialProfile) -> Profile:
    duration_ns = counted.duration_ns
    return profile_of(
        counted, name="made", action="", sources=SOURCE, duration_ns=duration_ns, with_behaviour=True
    )


def behaviour(accesses: AccessBatch) -> Any:
    return profile(partial(accesses)).description["behaviour"]


def stream(rate: float, seconds: float, start: float, op: str, nbytes: int, *, random: bool, seed: int = 1) -> Any:
    """Accesses that arrive like a Poisson process."""
    rng = np.random.default_rng(seed)
    times = start + np.cumsum(rng.exponential(1 / rate, int(2 * rate * seconds) + 100))
    times = times[times < start + seconds]
    lbn = rng.integers(0, 1 << 27, len(times)) * 8 if random else np.arange(len(times)) * (nbytes // 512)
    return [(int(t * 1e9), op, int(b), nbytes) for t, b in zip(times, lbn, strict=True)]


@settings(deadline=None, max_examples=30)
@given(traces(), st.lists(st.integers(0, 40), max_size=6), st.randoms(use_true_random=False))
def test_any_split_joined_in_any_grouping_gives_the_identical_description(
    whole: AccessBatch, borders: list[int], random: Any
) -> None:
    places = sorted({0, len(whole), *(min(b, len(whole)) for b in borders)})
    parts = [partial(cut(whole, a, b)) for a, b in itertools.pairwise(places)]
    while len(parts) > 1:
        i = random.randrange(len(parts) - 1)
        parts[i : i + 2] = [parts[i].followed_by(parts[i + 1])]
    assert profile(parts[0]).dumps() == profile(partial(whole)).dumps()


@settings(deadline=None, max_examples=30)
@given(traces(), st.sampled_from([0, 16, 100, 128, 5000]))
def test_another_threshold_classifies_every_access(whole: AccessBatch, threshold: int) -> None:
    found = profile(partial(whole, threshold))
    assert found.to_json()["random_threshold_lbn"] == threshold
    last: dict[tuple[int, int], int] = {}
    judged, random = {0: 0, 1: 0}, {0: 0, 1: 0}
    for op, lbn, nbytes, disk in zip(whole.op, whole.lbn, whole.nbytes, whole.disk, strict=True):
        if (op, disk) in last:
            judged[op] += 1
            random[op] += bool(abs(lbn - last[op, disk]) > threshold)
        last[op, disk] = lbn + -(-nbytes // 512) - 1
    for i, op in enumerate(Op):
        assert found.random[op] == pytest.approx(random[i] / judged[i] if judged[i] else 0.0)


@settings(deadline=None, max_examples=20)
@given(traces())
def test_at_128_the_full_description_has_the_same_shares_as_the_fast_one(whole: AccessBatch) -> None:
    fast = profile_of(PartialProfile.of(whole), name="made", action="", sources=SOURCE, duration_ns=1)
    found = profile(partial(whole))
    assert found.random == pytest.approx(fast.random)
    assert found.random_by_bin == fast.random_by_bin


def test_a_steady_workload_is_one_phase() -> None:
    assert len(behaviour(batch(stream(2000, 10, 0, "r", 4096, random=True)))["phases"]) == 1


def test_phases_begin_where_the_workload_changes_and_have_their_own_profiles() -> None:
    """4 s of random reads, 3 s of sequential writes, 3 s of the reads again."""
    rows = stream(2000, 4, 0, "r", 4096, random=True)
    rows += stream(500, 3, 4, "w", 131072, random=False, seed=2)
    rows += stream(2000, 3, 7, "r", 4096, random=True, seed=3)
    phases = behaviour(batch(sorted(rows)))["phases"]
    assert [round(p["start_seconds"], 1) for p in phases] == pytest.approx([0, 4, 7], abs=0.2)
    reading, writing, _ = phases
    assert reading["random"]["read"] > 0.99
    assert reading["iops"] == pytest.approx(2000, rel=0.1)
    assert writing["random"]["write"] < 0.01
    assert writing["accesses"]["write"]["128K"] == pytest.approx(1500, rel=0.05)
    assert sum(p["share_of_accesses"] for p in phases) == pytest.approx(1)


def test_poisson_arrivals_have_an_index_of_dispersion_of_one_and_bursts_a_larger_one() -> None:
    steady = behaviour(batch(stream(1000, 20, 0, "r", 4096, random=True)))["burstiness"]
    assert steady[0]["index_of_dispersion"] == pytest.approx(1, abs=0.2)
    rows = [r for s in range(20) for r in stream(10000, 0.1, s, "r", 4096, random=True, seed=s)]
    assert behaviour(batch(rows))["burstiness"][1]["index_of_dispersion"] > 20


def test_interleaved_sequential_streams_are_random_only_without_the_window() -> None:
    """Eight files are read concurrently: each is far from the previous access, and next to one of the last 16."""
    rows = [(i * 1000, "r", (i % 8) * 10**7 + (i // 8) * 8, 4096) for i in range(800)]
    found = profile(partial(batch(rows)))
    table = found.description["behaviour"]["sensitivity"]
    place = table["thresholds_lbn"].index(128)
    assert table["read"]["previous"][place] == 1.0
    assert table["read"]["closest_of_16"][place] == pytest.approx(7 / 799)
    windowed = found.description["histograms"]["distance_windowed"]["all"]
    assert windowed["counts"][windowed["limits"].index(1)] == 800 - 8


def test_hot_spots_and_reaccess() -> None:
    """90 accesses of one block, 10 each of another region."""
    rows = [(i, "r", 0 if i < 90 else i << 11, 4096) for i in range(100)]
    found = behaviour(batch(rows))
    assert found["footprint"] == {
        "blocks_of_4k": 11,
        "nbytes": 11 * 4096,
        "exact": True,
        "relative_standard_error": 0.0,
        "reaccess_share": pytest.approx(0.89),
    }
    assert found["hot_spots"]["share_of_regions"]["accesses"] == {
        "50%": pytest.approx(1 / 11),
        "80%": pytest.approx(1 / 11),
        "90%": pytest.approx(1 / 11),
    }


def test_series_and_map_hold_every_access() -> None:
    rows = stream(500, 7, 3, "w", 8192, random=True)
    found = behaviour(batch(rows))
    assert sum(found["over_time"]["writes"]) == len(rows)
    assert sum(found["over_time"]["write_nbytes"]) == len(rows) * 8192
    (disk,) = found["disks"].values()
    assert sum(int(n) for row in disk["heat_map"]["rows"] for n in row.split()) == len(rows)
    assert len(disk["sample"]["op"]) == 2000


def test_too_many_disks_is_a_clear_error() -> None:
    rows = [(i, "r", 0, 4096) for i in range(MAX_DISKS + 1)]
    with pytest.raises(InputError, match="at most"):
        profile(partial(batch(rows, disk=list(range(MAX_DISKS + 1)))))


def test_phases_follow_each_other_and_last_as_long_as_the_trace() -> None:
    """The first and last bins extend beyond the trace: a rate over whole bins would be too low."""
    rows = stream(1000, 0.3, 0.0005, "r", 4096, random=True)
    rows += stream(1000, 0.23, 0.3, "w", 131072, random=False, seed=2)
    phases = behaviour(batch(sorted(rows)))["phases"]
    ends = [p["start_seconds"] + p["seconds"] for p in phases]
    assert phases[0]["start_seconds"] == 0
    assert [p["start_seconds"] for p in phases[1:]] == pytest.approx(ends[:-1])
    assert ends[-1] == pytest.approx((max(rows)[0] - min(rows)[0]) / 1e9, abs=0.002)
    for phase in phases:
        n = sum(sum(counts.values()) for counts in phase["accesses"].values())
        assert phase["iops"] == pytest.approx(n / phase["seconds"])


def test_mean_outstanding_counts_until_the_last_completion() -> None:
    """Two accesses within 4 ms, each of 1 s: two of them for nearly all of the time, and not 500."""
    found = behaviour(
        batch([(0, "r", 0, 4096), (4_000_000, "r", 800, 4096)], latency_ns=[1_000_000_000] * 2, outstanding=[0, 1])
    )
    (disk,) = found["disks"].values()
    assert disk["mean_outstanding"] == pytest.approx(2 / 1.004)
    assert disk["mean_latency_us"] == 1e6
    assert disk["busy_share"] == found["busy_share"] == 1


def test_a_disk_without_latencies_has_no_busy_share_even_if_another_disk_has_one() -> None:
    rows = [(i * 10_000_000, "r", 800 * i, 4096) for i in range(20)]
    latency_ns = [5_000_000 if i % 2 == 0 else -1 for i in range(20)]
    accesses = batch(rows, disk=[i % 2 for i in range(20)], latency_ns=latency_ns, outstanding=[0] * 20)
    first, second = behaviour(accesses)["disks"].values()
    assert first["busy_share"] == pytest.approx(50 / 185)  # ten times 5 ms until 185 ms
    assert (second["busy_share"], second["mean_outstanding"], second["mean_latency_us"]) == (None, None, None)


def test_the_sizes_of_the_rarer_op_are_listed_too() -> None:
    """Twelve sizes of reads, each more common than the only size of the writes."""
    rows = [(1000 * i, "r", 8 * i, 4096 * (1 + i % 12)) for i in range(240)]
    rows += [(300_000 + i, "w", 8 * i, 512) for i in range(3)]
    found = behaviour(batch(rows))["sizes"]["dominant"]
    assert [row["op"] for row in found] == ["read"] * 10 + ["write"]
    assert found[-1] == {"op": "write", "nbytes": 512, "accesses": 3, "share": 3 / 243}
    assert [row["accesses"] for row in found] == sorted((row["accesses"] for row in found), reverse=True)
