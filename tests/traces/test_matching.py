"""Completions find their accesses however the stream is cut."""

import itertools

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cephfit.traces.columns import UNKNOWN_LATENCY, Accesses
from cephfit.traces.latency import CompletionMatcher, InFlight
from cephfit.traces.latency_loop import sort_nearly_sorted


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


def matched(events: list[tuple[bool, int, int, int]], borders: list[int]) -> Accesses:
    matcher = CompletionMatcher()
    places = sorted({0, len(events), *(b for b in borders if b < len(events))})
    found = []
    for begin, end in itertools.pairwise(places):
        done, time, lbn, disk = (np.array(c) for c in zip(*events[begin:end], strict=True))
        size = np.full(len(time), 4096)
        found.append(matcher.push(done, time, (lbn // 8 % 2).astype(np.uint8), lbn, size, disk.astype(np.int32)))
    return Accesses.joined([*found, matcher.finish()])


def one_after_the_other(events: list[tuple[bool, int, int, int]]) -> list[int]:
    """The latencies by the definition: a completion belongs to the latest access that waits for it."""
    latency: list[int] = []
    begun: list[int] = []
    waiting: dict[tuple[int, int], int] = {}
    for is_completion, time, lbn, disk in events:
        if not is_completion:
            waiting[lbn, disk] = len(begun)
            begun.append(time)
            latency.append(UNKNOWN_LATENCY)
        elif (lbn, disk) in waiting:
            i = waiting.pop((lbn, disk))
            latency[i] = time - begun[i]
    return latency


@settings(max_examples=200, deadline=None)
@given(streams())
def test_a_completion_belongs_to_the_latest_access_that_waits(events: list[tuple[bool, int, int, int]]) -> None:
    found = matched(events, []).latency_ns.tolist()
    expected = one_after_the_other(events)
    # What no completion was left for may have been covered by one that was another's.
    assert [f for f, e in zip(found, expected, strict=True) if e != UNKNOWN_LATENCY] == [
        e for e in expected if e != UNKNOWN_LATENCY
    ]


@settings(max_examples=200, deadline=None)
@given(streams(), st.lists(st.integers(1, 100), max_size=8))
def test_accesses_leave_in_the_order_in_which_they_came(
    events: list[tuple[bool, int, int, int]], borders: list[int]
) -> None:
    found = matched(events, borders)
    assert found.time_ns.tolist() == [time for done, time, _, _ in events if not done]
    known = found.latency_ns[found.latency_ns != UNKNOWN_LATENCY]
    assert (known > 0).all() or not len(known)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(-1, 300)), min_size=1, max_size=80))
def test_in_flight_agrees_with_looking_at_every_pair(gaps: list[tuple[int, int]]) -> None:
    begun = np.cumsum([gap for gap, _ in gaps])
    latency = np.array([took or 1 for _, took in gaps])
    n = len(begun)
    zeros = np.zeros(n, np.int64)
    depth = InFlight().count(
        Accesses(begun, zeros.astype(np.uint8), zeros, zeros + 512, zeros.astype(np.int32), latency)
    )
    expected = [sum(1 for j in range(i) if latency[j] >= 0 and begun[j] + latency[j] > begun[i]) for i in range(n)]
    assert depth.tolist() == expected


@given(st.lists(st.integers(-1000, 1000)))
def test_nearly_sorted_or_told_that_it_is_not(values: list[int]) -> None:
    array = np.array(values, np.int64)
    if sort_nearly_sorted(array, 50):
        assert array.tolist() == sorted(values)
    else:
        assert sorted(array.tolist()) == sorted(values)
