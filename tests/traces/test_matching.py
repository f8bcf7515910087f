"""Completions find their accesses wherever the stream is cut."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cephfit.traces.columns import UNKNOWN_LATENCY, Accesses
from cephfit.traces.matching import latency
from cephfit.traces.matching.completion_loop import MAX_HELD
from cephfit.traces.matching.latency import CompletionMatcher, InFlight


@st.composite
def streams(draw: st.DrawFn) -> list[tuple[bool, int, int, int]]:
    """(completion or not, time, LBN, disk) in order of time; some accesses never complete, some complete twice."""
    n = draw(st.integers(1, 60))
    events = []
    for i in range(n):
        lbn, disk = 8 * draw(st.integers(0, 6)), draw(st.integers(0, 1))
        begun = 10 * i + draw(st.integers(0, 9))
        events.append((False, begun, lbn, disk))
        for _ in range(draw(st.sampled_from([0, 1, 1, 1, 2]))):
            events.append((True, begun + draw(st.integers(1, 200)), lbn, disk))
    return sorted(events, key=lambda e: e[1])


def matched(events: list[tuple[bool, int, int, int]], borders: list[int]) -> tuple[Accesses, list[int]]:
    """The accesses, and how many were in flight at the issue of each."""
    matcher = CompletionMatcher()
    places = sorted({0, len(events), *(b for b in borders if b < len(events))})
    found = []
    for begin, end in itertools.pairwise(places):
        done, time, lbn, disk = (np.array(c) for c in zip(*events[begin:end], strict=True))
        size = np.full(len(time), 4096)
        matcher.push(done.view(np.uint8), time, (lbn // 8 % 2).astype(np.uint8), lbn, size, disk.astype(np.int32))
        if ready := matcher.ready():
            found.append(ready)
    found.append(matcher.finish())
    depths = np.concatenate([ready.outstanding for ready in found])
    return Accesses.joined([ready.accesses for ready in found]), depths.tolist()


@pytest.fixture(autouse=True)
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Release accesses as soon as possible."""
    monkeypatch.setattr(latency, "_FEWEST_READY", 1)


def one_after_the_other(events: list[tuple[bool, int, int, int]]) -> list[int]:
    """The latencies by definition: a completion belongs to the latest access that waits for it."""
    latency: list[int] = []
    begun: list[int] = []
    waiting: dict[tuple[int, int], list[int]] = {}
    for is_completion, time, lbn, disk in events:
        if not is_completion:
            waiting.setdefault((lbn, disk), []).append(len(begun))
            begun.append(time)
            latency.append(UNKNOWN_LATENCY)
        elif waiting.get((lbn, disk)):
            i = waiting[lbn, disk].pop()
            latency[i] = time - begun[i]
    return latency


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(streams())
def test_a_completion_belongs_to_the_latest_access_that_waits(events: list[tuple[bool, int, int, int]]) -> None:
    assert matched(events, [])[0].latency_ns.tolist() == one_after_the_other(events)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(streams(), st.lists(st.integers(1, 100), max_size=8))
def test_the_result_does_not_depend_on_where_the_stream_is_cut(
    events: list[tuple[bool, int, int, int]], borders: list[int]
) -> None:
    whole, depths = matched(events, [])
    assert whole.time_ns.tolist() == [time for done, time, _, _ in events if not done]
    cut, its_depths = matched(events, borders)
    assert cut.latency_ns.tolist() == whole.latency_ns.tolist()
    assert its_depths == depths


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(streams())
def test_accesses_in_flight_were_issued_before_and_ended_later(events: list[tuple[bool, int, int, int]]) -> None:
    found, depths = matched(events, [])
    if (found.latency_ns == UNKNOWN_LATENCY).all():
        return
    ends = np.where(found.latency_ns < 0, -1, found.time_ns + found.latency_ns)
    assert depths == [
        int(((ends[:i] > found.time_ns[i]) & (found.disk[:i] == found.disk[i])).sum()) for i in range(len(found))
    ]


def one_request(*spans: tuple[int, int], completed: list[tuple[int, int]]) -> list[int]:
    """Latencies of writes of these blocks (first, after the last), issued at 0, 1 ..., when requests of the
    given blocks complete at 1000, 1001 ..."""
    rows = [(False, i, a, 512 * (b - a)) for i, (a, b) in enumerate(spans)]
    rows += [(True, 1000 + i, a, 512 * (b - a)) for i, (a, b) in enumerate(completed)]
    done, time, lbn, nbytes = (np.array(c) for c in zip(*rows, strict=True))
    matcher = CompletionMatcher()
    matcher.push(
        done.view(np.uint8), time, np.ones(len(rows), np.uint8), lbn, nbytes, np.zeros(len(rows), np.int32)
    )
    return matcher.finish().accesses.latency_ns.tolist()


def test_accesses_that_were_merged_complete_together() -> None:
    assert one_request((0, 8), (16, 24), (8, 16), completed=[(0, 24)]) == [1000, 999, 998]


def test_a_split_access_completes_with_its_last_piece() -> None:
    assert one_request((0, 24), completed=[(0, 16), (16, 24)]) == [1001]


def test_a_gap_in_a_merged_request_leaves_no_access_waiting() -> None:
    """The event of the access between was lost."""
    assert one_request((0, 8), (16, 24), completed=[(0, 24)]) == [1000, 999]


def test_a_request_of_one_access_does_not_complete_an_overlapping_one() -> None:
    """Two reads of overlapping blocks are in flight, each as one request."""
    assert one_request((0, 8), (0, 16), completed=[(0, 16), (0, 8)]) == [1001, 999]


def test_many_waiting_accesses_are_found_by_their_ends() -> None:
    """More accesses wait than the request has blocks."""
    spans = [(100 + i, 101 + i) for i in range(0, 60, 2)]
    found = one_request(*spans, completed=[(100, 110)])
    assert [latency >= 0 for latency in found] == [a < 110 for a, _ in spans]


def test_more_disks_than_fit_into_a_key_are_distinguished() -> None:
    """The same block of 300 disks, completed in another order."""
    n = 300
    done = np.repeat([False, True], n)
    disk = np.concatenate([np.arange(n), np.arange(n)[::-1]]).astype(np.int32)
    time = np.arange(2 * n)
    matcher = CompletionMatcher()
    matcher.push(
        done.view(np.uint8), time, np.zeros(2 * n, np.uint8), np.zeros(2 * n, np.int64), np.full(2 * n, 4096), disk
    )
    assert matcher.finish().accesses.latency_ns.tolist() == [2 * (n - i) - 1 for i in range(n)]


def test_an_access_that_waits_too_long_is_given_up() -> None:
    """The first access completes after too many later ones."""
    n = MAX_HELD + 10
    matcher = CompletionMatcher()
    found = []
    for begin in range(0, n, 50_000):
        time = np.arange(begin, min(begin + 50_000, n))
        zeros = np.zeros(len(time), np.int64)
        matcher.push(
            zeros.astype(np.uint8), time, zeros.astype(np.uint8), 8 * time, zeros + 4096, zeros.astype(np.int32)
        )
        if ready := matcher.ready():
            found.append(ready)
    both = np.array([0, 8 * (n - 1)])
    zeros = np.zeros(2, np.int64)
    matcher.push(
        (zeros == 0).view(np.uint8), zeros + n, zeros.astype(np.uint8), both, zeros + 4096, zeros.astype(np.int32)
    )
    found.append(matcher.finish())
    latency_ns = np.concatenate([ready.accesses.latency_ns for ready in found])
    assert len(latency_ns) == n
    assert np.flatnonzero(latency_ns >= 0).tolist() == [n - 1]
    # For accesses given up before the first completion, the number in flight is unknown.
    depths = np.concatenate([ready.outstanding for ready in found])
    assert np.flatnonzero(depths < 0).tolist() == list(range(n - MAX_HELD))


def timed(begun: list[int], latency: list[int], disk: list[int]) -> Accesses:
    zeros = np.zeros(len(begun), np.int64)
    return Accesses(
        np.array(begun, np.int64), zeros.astype(np.uint8), zeros, zeros + 512, np.array(disk, np.int32),
        np.array(latency, np.int64),
    )  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(-5, 50), st.integers(-1, 300), st.integers(0, 2)), min_size=1, max_size=80),
    st.integers(0, 80),
    st.sampled_from(["sorted", "heap", "ascending"]),
)
def test_in_flight_agrees_with_a_comparison_of_every_pair(
    steps: list[tuple[int, int, int]], cut: int, how: str
) -> None:
    """Cut anywhere, and with times that step back: an access that is complete stays complete."""
    begun = np.cumsum([abs(step) % 8 if how == "ascending" else step for step, _, _ in steps]).tolist()
    took, disk = [took for _, took, _ in steps], [disk for _, _, disk in steps]
    expected = []
    for i in range(len(steps)):
        others = [j for j in range(i) if disk[j] == disk[i] and took[j] >= 0]
        seen = {j: [begun[k] for k in range(j + 1, i + 1) if disk[k] == disk[i]] for j in others}
        expected.append(sum(begun[j] + took[j] > max(seen[j]) for j in others))
    rows = timed(begun, took, disk)
    with pytest.MonkeyPatch.context() as patch:
        if how == "heap":
            patch.setattr(latency, "_MOVES_PER_ACCESS", 0)
        in_flight = InFlight()
        found = [in_flight.count(part).tolist() for part in (rows.cut(0, cut), rows.cut(cut, len(rows)))]
    assert found[0] + found[1] == expected


@pytest.mark.parametrize("moves", [0, 1 << 40], ids=["heap", "sorted"])
def test_the_number_in_flight_is_limited(moves: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "_MOVES_PER_ACCESS", moves)
    monkeypatch.setattr(latency, "MAX_HELD", 3)
    depth = InFlight().count(timed([0, 1, 2, 3, 4, 60, 61], [50, 100, 50, 200, 50, 9, 9], [0] * 7))
    assert depth.tolist() == [0, 1, 2, 3, 3, 1, 2]
