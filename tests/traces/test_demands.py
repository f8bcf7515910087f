"""Demands: waiting time, depth, alignment and commits, by hand and against a definition that needs no order."""

import itertools
import json
import math
import os
import random
import threading
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import trace_maker as made
from hypothesis import given, settings
from hypothesis import strategies as st
from test_parts import comparable, cut
from trace_maker import Event, batch, write

from cephfit.core.errors import InputError
from cephfit.core.values.cells import SIZE_BIN_EDGES, Op, Pattern
from cephfit.core.values.demand import Commits
from cephfit.core.values.profile import Profile
from cephfit.core.values.supply import WorkloadDemand
from cephfit.traces import profile_files, profiles_by_disk, profiling
from cephfit.traces.columns import FUA, PREFLUSH, SYNC, AccessBatch, Flushes
from cephfit.traces.counting import demand_counts
from cephfit.traces.counting.demand_counts import DemandCounting, WorkloadDemands, demands_of
from cephfit.traces.counting.demand_loops import SIZE_CLASSES, WINDOW
from cephfit.traces.readers.block_events.block_layer import Action
from cephfit.traces.recordings import ReadOptions

MS, S = 1_000_000, 1_000_000_000
FUA_BIT = 1 << 15
META = 1 << 12
GOLDEN = Path(__file__).parent / "golden"


def counted(*batches: AccessBatch) -> WorkloadDemands:
    counting = DemandCounting()
    for one in batches:
        counting.add(one)
    disks = list(counting.counts().disks.values())
    return demands_of(disks, duration_ns=0, has_depths=True, n_flushes=None)


def waited(found: WorkloadDemands | Profile) -> float:
    """All waiting time, flushes included."""
    flushes = found.commits.flush_waiting_seconds if found.commits else None
    return sum(d.waiting_seconds or 0.0 for d in found.demands or ()) + (flushes or 0.0)


def test_two_accesses_share_the_time_in_which_both_are_outstanding() -> None:
    """A read from 0 to 4 ms and a write from 1 to 3 ms: the read waits 1 + 2/2 + 1, the write 2/2."""
    found = counted(batch([(0, "r", 0, 4096), (MS, "w", 800, 8192)], latency_ns=[4 * MS, 2 * MS]))
    read, write_ = sorted(found.demands, key=lambda d: d.nbytes)
    assert (read.pattern, read.waiting_seconds, read.accesses, read.nbytes) == (Pattern.RANDREAD, 0.003, 1, 4096)
    assert (write_.pattern, write_.waiting_seconds, write_.accesses) == (Pattern.RANDWRITE, 0.001, 1)
    assert read.depth == pytest.approx(4 / 3)
    assert write_.depth == 2
    assert found.idle_seconds == 0


def test_a_burst_waits_at_its_depth_and_time_between_bursts_is_idle() -> None:
    """64 writes from 0 to 64 ms, and one of 1 ms after a pause to 100 ms."""
    burst = [(0, "w", 1000 * i, 4096) for i in range(64)]
    found = counted(batch([*burst, (100 * MS, "w", 0, 4096)], latency_ns=[64 * MS] * 64 + [MS]))
    one, deep = sorted(found.demands, key=lambda d: d.depth or 0)
    assert (deep.depth, deep.accesses, deep.waiting_seconds) == (64, 64, pytest.approx(0.064))
    assert (one.depth, one.accesses, one.waiting_seconds) == (1, 1, pytest.approx(0.001))
    assert found.idle_seconds == pytest.approx(0.036)


def test_depths_in_one_class_are_weighted_by_waiting_time() -> None:
    """3 accesses for 3 ms and 4 accesses for 40 ms: depth (9 + 160) / 43."""
    ends = [*[3 * MS] * 3, *[40 * MS] * 4]
    starts = [*[0] * 3, *[10 * MS] * 4]
    found = counted(batch([(t, "r", 9000 * i, 512) for i, t in enumerate(starts)], latency_ns=ends))
    (only,) = found.demands
    assert only.accesses == 7
    assert only.depth == pytest.approx(169 / 43)
    assert only.waiting_seconds == pytest.approx(0.043)


def test_sequential_accesses_are_judged_against_the_previous_one_of_their_op() -> None:
    found = counted(
        batch([(0, "r", 0, 4096), (1, "w", 10**6, 4096), (2, "r", 8 + 128 - 1, 4096), (3, "r", 300, 4096)])
    )
    by_pattern = Counter[Pattern]()
    for d in found.demands:
        by_pattern[d.pattern] += d.accesses
    # Random reads: the first one, and the last one, as 300 - 142 = 158 > 128.
    assert by_pattern == {Pattern.READ: 1, Pattern.RANDREAD: 2, Pattern.RANDWRITE: 1}


def accesses_by_pattern(found: WorkloadDemands) -> dict[Pattern, float]:
    counts: Counter[Pattern] = Counter()
    for demand in found.demands:
        counts[demand.pattern] += demand.accesses
    return dict(counts)


def test_streams_that_alternate_count_half_as_sequential_and_half_as_random() -> None:
    """A log and a journal, of 10 writes of 8 blocks each, in turn; only the first of each is random."""
    log, journal = ([(start + 8 * i) for i in range(10)] for start in (10_000, 900_000))
    lbns = [lbn for pair in zip(log, journal, strict=True) for lbn in pair]
    found = counted(batch([(i * MS, "w", lbn, 4096) for i, lbn in enumerate(lbns)], latency_ns=[MS // 2] * 20))
    assert accesses_by_pattern(found) == {Pattern.RANDWRITE: 2 + 9, Pattern.WRITE: 9}
    waiting = {d.pattern: d.waiting_seconds for d in found.demands}
    assert waiting == {Pattern.RANDWRITE: pytest.approx(5.5e-3), Pattern.WRITE: pytest.approx(4.5e-3)}


@pytest.mark.parametrize(("n_streams", "random_after_the_first"), [(1, 0.0), (16, 0.5), (17, 1.0)])
def test_streams_beyond_the_previous_16_accesses_are_random(n_streams: int, random_after_the_first: float) -> None:
    lbns = [100_000 * (1 + i % n_streams) + 8 * (i // n_streams) for i in range(4 * n_streams)]
    found = counted(batch([(i * MS, "r", lbn, 4096) for i, lbn in enumerate(lbns)]))
    assert accesses_by_pattern(found)[Pattern.RANDREAD] == n_streams + 3 * n_streams * random_after_the_first


@settings(max_examples=50)
@given(
    st.lists(st.tuples(st.sampled_from("rw"), st.integers(0, 40), st.integers(1, 16)), min_size=1, max_size=60),
    st.integers(1, 60),
)
def test_orders_are_those_of_the_definition(accesses: list[tuple[str, int, int]], at_once: int) -> None:
    rows = [(i * MS, op, 100 * place, 512 * blocks) for i, (op, place, blocks) in enumerate(accesses)]
    expected: Counter[str] = Counter()
    ends: dict[str, list[int]] = {"r": [], "w": []}
    for _, op, lbn, nbytes in rows:
        near = [abs(lbn - end) <= 128 for end in ends[op][-16:]]
        sequential = 1.0 if near and near[-1] else 0.5 if any(near) else 0.0
        expected[op] += sequential
        ends[op].append(lbn + nbytes // 512 - 1)
    found = accesses_by_pattern(counted(*(batch(rows[i : i + at_once]) for i in range(0, len(rows), at_once))))
    assert (found.get(Pattern.READ, 0), found.get(Pattern.WRITE, 0)) == (expected["r"], expected["w"])
    assert sum(found.values()) == len(rows)


def test_without_latencies_sizes_are_known_and_waiting_is_not() -> None:
    found = counted(batch([(0, "r", 0, 4096), (5, "w", 3, 4096)]))
    known = [(d.waiting_seconds, d.depth, d.is_aligned) for d in found.demands]
    assert known == [(None, None, True), (None, None, False)]  # the read begins at 0, the write at block 3
    assert found.idle_seconds is None
    assert found.commits is None


def test_accesses_without_a_completion_are_a_demand_of_unknown_waiting() -> None:
    found = counted(batch([(0, "r", 0, 4096), (0, "r", 8, 4096)], latency_ns=[MS, -1]))
    assert sorted((d.waiting_seconds is None, d.accesses) for d in found.demands) == [(False, 1), (True, 1)]
    assert waited(found) == 0.001


def test_a_few_accesses_without_a_completion_count_with_those_of_their_kind_and_add_no_waiting() -> None:
    """As in every recording that ends while accesses are outstanding."""

    def recorded(n: int) -> WorkloadDemands:
        """Reads that end, and a read and a write that do not."""
        reads = [(i * 2 * MS, "r", 800 * i, 4096) for i in range(n)]
        cut = [(n * 2 * MS, "r", 800 * n, 4096), (n * 2 * MS, "w", 0, 8192)]
        return counted(batch([*reads, *cut], latency_ns=[MS] * n + [-1, -1]))

    read, write_ = recorded(30).demands
    assert (read.accesses, read.waiting_seconds) == (31, pytest.approx(0.030))
    assert (write_.accesses, write_.nbytes, write_.waiting_seconds, write_.depth) == (1, 8192, 0.0, 1.0)
    assert [d.waiting_seconds is None for d in recorded(10).demands] == [False, True, True], "a sixth is not a few"


def test_alignment_counts_multiples_of_4k_8k_64k_and_of_the_size_by_bin() -> None:
    found = counted(
        batch(
            [
                (0, "r", 0, 4096),  # multiple of all
                (1, "r", 8, 4096),  # of 4K and its size
                (2, "r", 16, 8192),  # of 4K, 8K and its size
                (3, "r", 1, 4096),  # of none
                (4, "w", 128, 131072),  # of 64K, not of its size
            ]
        )
    )
    assert found.alignment[Op.READ] == {"4K": {"4K": 0.75, "8K": 0.5, "64K": 0.25, "own": 0.75}}
    assert found.alignment[Op.WRITE] == {"128K": {"4K": 1.0, "8K": 1.0, "64K": 1.0, "own": 0.0}}


def test_size_classes_are_half_octaves_that_respect_the_size_bins() -> None:
    """No class holds sizes of two bins, and within a class the largest is at most 1.5 times the smallest."""
    by_class: dict[int, list[int]] = {}
    for nbytes in range(512, 4 << 20, 512):
        by_class.setdefault(int(SIZE_CLASSES[(nbytes - 1) >> 9]), []).append(nbytes)
    for sizes in by_class.values():
        assert len(set(np.searchsorted(SIZE_BIN_EDGES, [sizes[0], sizes[-1]]).tolist())) == 1
        assert sizes[-1] <= 1.5 * sizes[0]


def test_sizes_beyond_the_table_have_their_classes_too() -> None:
    sizes = [3 << 20, 4 << 20, 5 << 20, 6 << 20, 7 << 20, 8 << 20, 32 << 20, 1 << 31]
    found = counted(batch([(i, "w", 0, n) for i, n in enumerate(sizes)]))
    means = [3 << 20, 4 << 20, 5.5 * (1 << 20), 7.5 * (1 << 20), 32 << 20, 1 << 31]
    assert sorted(d.nbytes for d in found.demands) == means


def test_sync_of_writes_is_that_of_their_flags_and_reads_always_are() -> None:
    accesses = batch([(i, "rwwww"[i], 0, 4096) for i in range(5)])
    accesses = replace(accesses, flags=np.array([0, 0, SYNC, FUA, PREFLUSH | FUA | SYNC], np.uint8))
    found = counted(accesses)
    assert sorted((d.pattern.op.value, d.is_sync, d.accesses) for d in found.demands) == [
        ("read", True, 1),
        ("write", False, 1),
        ("write", True, 3),
    ]
    assert found.commits is not None
    assert (found.commits.flushes, found.commits.fua_writes, found.commits.sync_writes) == (1, 2, 3)


def flush_events() -> list[Event]:
    """A write, a flush, and during the flush a write with a flush before it and forced unit access; 12 ms."""
    sync = made.WRITE | made.SYNC
    commit = {"sector": 16, "category": sync | made.FLUSH | FUA_BIT}
    return sorted(
        [
            *(Event(t, 8, what=w, category=sync) for t, w in ((0, made.Q), (10, made.D), (2 * MS, made.C))),
            Event(8 * MS, 0, 0, made.Q, sync | made.FLUSH),
            Event(8 * MS + 5, 0, 0, made.D, made.FLUSH | made.READ),
            Event(10 * MS - 5, 0, 0, made.C, made.FLUSH | made.READ),
            Event(10 * MS, 0, 0, made.C, sync | made.FLUSH),
            *(Event(t, what=w, **commit) for t, w in ((9 * MS, made.Q), (9 * MS + 10, made.D), (12 * MS, made.C))),
        ],
        key=lambda e: e.time,
    )


@pytest.mark.parametrize("version", [7, 8])
def test_a_flush_waits_together_with_the_writes_during_it(tmp_path: Path, version: int) -> None:
    """The flush waits from 8 to 9 ms alone and to 10 ms with the write, which waits on to 12 ms."""
    found = profile_files([write(tmp_path / "t", flush_events(), version=version)], demands=True)
    assert found.commits == Commits(2, 0.0015, fua_writes=1, sync_writes=2)
    assert waited(found) == pytest.approx(0.006)
    assert found.idle_seconds == pytest.approx(0.006)
    assert found.description["skipped"] == {"flush": 1}


def test_the_devices_view_has_the_flush_that_linux_sends(tmp_path: Path) -> None:
    path = write(tmp_path / "t", flush_events())
    found = profile_files([path], demands=True, action=Action.ISSUE)
    assert found.commits is not None
    # 5 ns after 8 ms until 9 ms and 10 ns alone, then with the write until 5 ns before 10 ms
    assert found.commits.flush_waiting_seconds == pytest.approx((MS + 5 + (MS - 15) / 2) / 1e9, abs=1e-12)


def test_flushes_change_no_other_figure(tmp_path: Path) -> None:
    path = write(tmp_path / "t", flush_events())
    with_, without = profile_files([path], demands=True), profile_files([path])
    assert without.demands is without.alignment is without.idle_seconds is without.commits is None
    assert with_.description == without.description


def test_a_flush_that_never_completes_is_counted(tmp_path: Path) -> None:
    events = [e for e in flush_events() if not (e.what == made.C and e.nbytes == 0)]
    found = profile_files([write(tmp_path / "t", events)], demands=True)
    assert found.commits == Commits(2, None, fua_writes=1, sync_writes=2)


def fsyncs(n: int) -> list[Event]:
    """Writes with fsync on XFS, with the bits that Linux 6.18 recorded on a loop device, which has no FUA.

    The log write is queued with a flush before it and forced unit access. The device gets a flush, the data,
    another flush; the last completion has no length.
    """
    queued, data = made.WRITE | made.SYNC | made.QUEUE, made.WRITE | made.SYNC | META
    events: list[Event] = []
    for i in range(n):
        at, log = 10 * MS * i, {"sector": 393_266 + 6 * i, "nbytes": 3072}
        of_file = {"sector": 80 + 16 * i, "nbytes": 8192}
        events += [
            Event(at, what=made.Q, category=queued, **of_file),
            Event(at + MS, what=made.C, category=data | 1 << 7, **of_file),
            Event(at + 2 * MS, what=made.Q, category=queued | META | made.FLUSH | FUA_BIT, **log),
            Event(at + 3 * MS, 0, 0, made.D, made.READ | made.FLUSH | 1 << 6),
            Event(at + 4 * MS, (1 << 64) - 1, 0, made.C, made.READ | made.FLUSH | 1 << 7),
            Event(at + 5 * MS, what=12, category=data | 1 << 8, **log),
            Event(at + 5 * MS, what=made.D, category=data | 1 << 6, **log),
            Event(at + 6 * MS, what=made.C, category=data | 1 << 7, **log),
            Event(at + 7 * MS, 0, 0, made.D, made.READ | made.FLUSH | 1 << 6),
            Event(at + 8 * MS, (1 << 64) - 1, 0, made.C, made.READ | made.FLUSH | 1 << 7),
            Event(at + 8 * MS, log["sector"], 0, made.C, data | 1 << 7),
        ]
    return events


@pytest.mark.parametrize("version", [7, 8])
def test_a_log_write_counts_as_a_write_as_a_flush_and_as_forced(tmp_path: Path, version: int) -> None:
    found = profile_files([write(tmp_path / "t", fsyncs(50), version=version)], demands=True)
    assert found.n_accesses == 100
    assert found.commits == Commits(50, None, fua_writes=50, sync_writes=100)
    assert found.description["skipped"] == {}


def test_the_device_gets_two_flushes_for_a_log_write(tmp_path: Path) -> None:
    """Each of 1 ms; the first one's is unknown, because the trace has shown no completion of an access before."""
    path = write(tmp_path / "t", [e for e in fsyncs(50) if e.nbytes != 8192])
    found = profile_files([path], demands=True, action=Action.ISSUE)
    assert found.n_accesses == 50
    assert found.commits == Commits(100, 0.099, fua_writes=0, sync_writes=50)


def test_blkparses_text_of_a_log_write(tmp_path: Path) -> None:
    text = tmp_path / "text"
    lines = "".join(
        f"  7,5    0        {2 * i} {i}.000000000 99  Q  WS {16 * i + 80} + 16 [app]\n"
        f"  7,5    0        {2 * i + 1} {i}.002000000 99  Q FWFSM {393_266 + 6 * i} + 6 [app]\n"
        f"  7,5    0        {2 * i + 1} {i}.003000000 99  D  FN [kworker/0:1H]\n"
        f"  7,5    0        {2 * i + 1} {i}.004000000 99  C  FN 0 [0]\n"
        f"  7,5    0        {2 * i + 1} {i}.006000000 99  C WSM {393_266 + 6 * i} + 6 [0]\n"
        for i in range(50)
    )
    text.write_text(lines)
    found = profile_files([text], demands=True)
    assert found.n_accesses == 100
    assert found.commits == Commits(50, None, fua_writes=50, sync_writes=100)


def blkparse_line(event: Event, number: int) -> str:
    """As blkparse 1.2 prints it."""
    write_, flush = event.category & made.WRITE, event.category & made.FLUSH
    kind = ("F" if flush else "") + ("W" if write_ else "R" if event.nbytes else "N")
    kind += ("F" if event.category & FUA_BIT else "") + ("S" if event.category & made.SYNC else "")
    what = {made.Q: "Q", made.D: "D", made.C: "C"}[event.what]
    place = f"{event.sector} + {event.nbytes // 512} " if event.nbytes else f"{event.sector} " * (what == "C")
    time = f"{event.time // S}.{event.time % S:09d}"
    tail = "[0]" if what == "C" else "[app]"
    return f"  8,0    0 {number:8d} {time:>15s}    99  {what} {kind:>3s} {place}{tail}\n"


@pytest.mark.parametrize("action", Action)
def test_blkparses_text_gives_the_same_as_the_records(tmp_path: Path, action: Action) -> None:
    raw = profile_files([write(tmp_path / "raw", flush_events())], demands=True, action=action)
    text = tmp_path / "text"
    text.write_text("".join(itertools.starmap(blkparse_line, zip(flush_events(), range(99), strict=False))))
    found = profile_files([text], demands=True, action=action)
    assert found.demands == raw.demands
    assert (found.commits, found.idle_seconds, found.alignment) == (raw.commits, raw.idle_seconds, raw.alignment)


def perf_line(event: Event) -> str:
    """As perf script prints the tracepoint."""
    write_, flush = event.category & made.WRITE, event.category & made.FLUSH
    kind = ("F" if flush else "") + ("W" if write_ else "R" if event.nbytes else "F")
    kind += ("F" if event.category & FUA_BIT else "") + ("S" if event.category & made.SYNC else "")
    name = {made.Q: "block_bio_queue", made.D: "block_rq_issue", made.C: "block_rq_complete"}[event.what]
    body = {
        made.Q: f"{event.sector} + {event.nbytes // 512} [app]",
        made.D: f"{event.nbytes} () {event.sector} + {event.nbytes // 512} [app]",
        made.C: f"() {event.sector} + {event.nbytes // 512} [0]",
    }[event.what]
    return f"app 99 [000] {event.time // S}.{event.time % S:09d}: block:{name}: 8,0 {kind} {body}\n"


@pytest.mark.parametrize("action", Action)
def test_block_events_as_text_give_the_same_as_the_records(tmp_path: Path, action: Action) -> None:
    raw = profile_files([write(tmp_path / "raw", flush_events())], demands=True, action=action)
    text = tmp_path / "text"
    text.write_text("".join(map(perf_line, flush_events())))
    found = profile_files([text], demands=True, action=action)
    assert found.demands == raw.demands
    assert (found.commits, found.idle_seconds) == (raw.commits, raw.idle_seconds)


Interval = tuple[int, int]


def brute_force(intervals: list[Interval]) -> tuple[list[Fraction], int]:
    """The waiting time of each interval by definition, and the time covered by any; ns."""
    times = sorted({t for interval in intervals for t in interval})
    waiting, busy = [Fraction(0)] * len(intervals), 0
    for begin, end in itertools.pairwise(times):
        there = [i for i, (a, b) in enumerate(intervals) if a <= begin and b >= end]
        busy += (end - begin) * bool(there)
        for i in there:
            waiting[i] += Fraction(end - begin, len(there))
    return waiting, busy


@settings(max_examples=150, deadline=None)
@given(
    accesses=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 300), st.booleans()), min_size=1, max_size=40),
    at_once=st.integers(1, 30),
)
def test_waiting_is_that_of_the_definition(accesses: list[tuple[int, int, bool]], at_once: int) -> None:
    """Accesses of 20 sizes, so that nearly each one's waiting time is compared; some are flushes."""
    sizes = [512 << (i % 20) for i in range(len(accesses))]
    intervals = [(t, t + took) for t, took, _ in accesses]
    waiting, busy = brute_force(intervals)
    columns = [
        replace(
            batch([(t, "w", 0, nbytes)] * (not is_flush), latency_ns=[took] * (not is_flush)),
            disks=("disk0",),
            flushes=Flushes(
                *(np.array([value] * is_flush, np.int64) for value in (0, t, took)),
                np.zeros(int(is_flush), np.int32),
            ),
        )
        for (t, took, is_flush), nbytes in zip(accesses, sizes, strict=True)
    ]
    before = demand_counts._DIVIDED_AT_ONCE
    demand_counts._DIVIDED_AT_ONCE = at_once
    try:
        if all(is_flush for *_, is_flush in accesses):
            return
        found = counted(*columns)
    finally:
        demand_counts._DIVIDED_AT_ONCE = before
    for nbytes in set(sizes):
        mine = [i for i, n in enumerate(sizes) if n == nbytes and not accesses[i][2]]
        its = sum(d.waiting_seconds or 0 for d in found.demands if d.nbytes == nbytes)
        assert its == pytest.approx(float(sum((waiting[i] for i in mine), Fraction(0))) / 1e9, abs=1e-10)
    assert waited(found) == pytest.approx(busy / 1e9, abs=1e-10)
    span = max(b for _, b in intervals) - min(a for a, _ in intervals)
    assert found.idle_seconds == pytest.approx((span - busy) / 1e9, abs=1e-15)


def test_more_accesses_than_are_followed_at_once_wait_as_one_stream() -> None:
    """Long accesses stay outstanding over many blocks; the sum of waiting is the busy time."""
    rng = np.random.default_rng(5)
    n = 100_000
    time = np.cumsum(rng.integers(0, 20_000, n))
    latency = np.where(rng.random(n) < 0.01, 30 * MS, rng.integers(1000, 50_000, n))
    whole = batch([(int(t), "rw"[i % 2], i * 997, 4096) for i, t in enumerate(time)], latency_ns=latency.tolist())
    found = counted(whole)
    order = np.argsort(time)
    ends = np.maximum.accumulate((time + latency)[order])
    gaps = np.maximum(time[order][1:] - ends[:-1], 0).sum()
    assert found.idle_seconds == gaps / 1e9
    assert waited(found) == pytest.approx((ends[-1] - time[0] - gaps) / 1e9, rel=1e-8)


def test_an_access_far_out_of_order_counts_from_the_time_of_those_before_it() -> None:
    """2,000 accesses 1 ms apart, then one that began at 0 and ended with the last: its wait begins in between."""
    n = 2 * WINDOW
    accesses = [(MS * i, "w", 10**6 + 997 * i, 512) for i in range(n)]
    found = counted(batch([*accesses, (0, "r", 0, 1 << 20)], latency_ns=[MS // 2] * n + [MS * (n - 1)]))
    late = next(d for d in found.demands if d.nbytes == 1 << 20)
    # From access n - WINDOW on: half of each ms alone, half of it shared.
    assert late.waiting_seconds == pytest.approx(0.75e-3 * (WINDOW - 1), rel=1e-3)


def test_the_profile_of_disks_adds_their_waiting_times(tmp_path: Path) -> None:
    """Each busy for 1 of 4 ms; if independent of each other, both are idle for (3/4)^2 of the time."""
    sdb = 8 << 20 | 16
    events = [
        Event(0, device=made.SDA),
        Event(MS, device=made.SDA, what=made.C),
        Event(3 * MS, 80, device=made.SDA),
        Event(4 * MS, 80, device=made.SDA, what=made.C),
        Event(0, device=sdb),
        Event(4 * MS, device=sdb, what=made.C),
    ]
    path = write(tmp_path / "t", sorted(events, key=lambda e: e.time))
    found = profile_files([path], demands=True)
    assert waited(found) == pytest.approx(0.006)
    assert found.idle_seconds == 0
    one = profile_files([path], demands=True, disks=["8,0"])
    assert waited(one) == pytest.approx(0.002)
    assert one.idle_seconds == pytest.approx(0.002)


def test_disks_that_are_used_one_after_the_other_are_idle_in_between(tmp_path: Path) -> None:
    """Each has one access of a second, 9 s apart: both are idle for (8/9)^2 of the recording.

    With the time of each disk instead of that of the recording, the workload was never idle.
    """
    (tmp_path / "t").write_text("".join(f"{9000 * i},disk{i},R,0,4096,1000\n" for i in range(2)))
    columns = ReadOptions(columns="time:ms,disk,op,offset,length,latency")
    found = profile_files([tmp_path / "t"], options=columns, demands=True)
    assert waited(found) == pytest.approx(2)
    assert found.idle_seconds == pytest.approx(9 * (8 / 9) ** 2)


@pytest.mark.slow
def test_too_many_disks_have_no_demands_and_the_profile_says_so(tmp_path: Path) -> None:
    events = [Event(i, device=(8 << 20) + i) for i in range(demand_counts.MAX_DISKS + 1)]
    path = write(tmp_path / "t", events)
    found = profile_files([path], demands=True)
    assert found.demands is None
    assert any("at most 64 disks" in note for note in found.description["notes"])
    assert profile_files([path], demands=True, disks=["8,5"]).demands is not None


def with_demands(files: list[Path], **options: Any) -> dict[str, Any]:
    return comparable(profile_files(files, demands=True, **options))


@settings(max_examples=20, deadline=None)
@given(n=st.integers(2, 80), seed=st.integers(0, 1 << 30), n_cuts=st.integers(1, 5))
def test_any_cut_of_a_recording_gives_the_identical_demands(n: int, seed: int, n_cuts: int) -> None:
    """With flushes among the accesses; also in one process per core."""
    rng = random.Random(seed)
    events = made.mixed_workload(n, seed % 1000)
    for i in range(n // 4):
        t = rng.randrange(1000, events[-1].time)
        way: dict[str, Any] = {"nbytes": 0, "category": made.WRITE | made.FLUSH, "cpu": i % 2}
        events += [Event(t, what=made.Q, **way), Event(t + rng.randrange(1, 90_000), what=made.C, **way)]
    content = made.packed(sorted(events, key=lambda e: e.time))
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "whole").write_bytes(content)
        whole = with_demands([folder / "whole"])
        assert whole["commits"]["flushes"] == n // 4
        files = cut(folder, content, [rng.randrange(len(content)) for _ in range(n_cuts)])
        assert with_demands(files, parts=True) == whole


def test_the_guests_recording(tmp_path: Path) -> None:
    """120 accesses of fio in a guest: the sum of waiting is the time with I/O outstanding."""
    found = profile_files([GOLDEN / "guest.blktrace.0"], demands=True, full=True)
    assert found.demands is not None
    assert sum(d.accesses for d in found.demands) == 120
    assert all(d.is_sync for d in found.demands)  # fio's direct writes are synchronous
    disk = next(iter(found.description["behaviour"]["disks"].values()))
    assert found.idle_seconds is not None
    busy_share = waited(found) / (waited(found) + found.idle_seconds)
    assert busy_share == pytest.approx(disk["busy_share"], rel=1e-4)
    assert found.commits == Commits(0, 0.0, fua_writes=0, sync_writes=63)


def test_the_public_recording_and_its_text_have_the_same_demands(samples: Path) -> None:
    folder = samples / "blktrace" / "takeoverjp"
    raw = profile_files([folder / "sample.blktrace.0"], demands=True)
    text = profile_files([folder / "blkparse-1.2.0.derived.txt"], demands=True)
    assert (raw.demands, raw.idle_seconds, raw.alignment) == (text.demands, text.idle_seconds, text.alignment)
    assert sum(d.accesses for d in raw.demands or ()) == 963
    # Of 344 ms, its reads of 4 KiB, one at a time, took 57 us each.
    assert waited(raw) == pytest.approx(963 * 57e-6, rel=0.01)


def test_vscsi_has_no_latencies_but_sizes_alignment_and_flushes(samples: Path) -> None:
    found = profile_files([samples / "vscsi" / "cloudPhysicsIO.vscsi"], demands=True)
    assert sum(d.accesses for d in found.demands or ()) == 113_872
    assert all(d.waiting_seconds is None for d in found.demands or ())
    assert found.idle_seconds is None
    assert found.alignment is not None


def test_a_flush_of_vscsistats_is_a_commit_of_unknown_waiting(tmp_path: Path) -> None:
    records = [(i, 4096, 0, command, (1 << 8), 8 * i, i) for i, command in enumerate((0x28, 0x2A, 0x35, 0x91))]
    layout = np.dtype("<u4,<u4,<u4,<u2,<u2,<u8,<u8")
    (tmp_path / "t").write_bytes(np.array(records, layout).tobytes())
    found = profile_files([tmp_path / "t"], demands=True, format_name="vscsi-binary")
    assert found.commits == Commits(2, None, None, None)


def test_a_profile_with_demands_is_read_back(tmp_path: Path) -> None:
    found = profile_files([write(tmp_path / "t", flush_events())], demands=True)
    assert Profile.loads(found.dumps()).to_json() == found.to_json()


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("commits", "flushes", math.inf),
        ("commits", "flushes", -1),
        ("commits", "fua_writes", -1),
        ("commits", "flush_waiting_seconds", -0.1),
        ("commits", "flush_waiting_seconds", math.inf),
        ("demands.rows[0]", "accesses", math.inf),
        ("demands.rows[0]", "accesses", 0),
    ],
)
def test_impossible_numbers_of_a_profile_are_refused_by_their_place(
    part: str, key: str, value: float, tmp_path: Path
) -> None:
    document = profile_files([write(tmp_path / "t", flush_events())], demands=True).to_json()
    table = document[part.partition(".")[0]]
    if part == "commits":
        table[key] = value
    else:
        table["rows"][0][table["columns"].index(key)] = value
    with pytest.raises(InputError) as caught:
        Profile.from_json(document, where="p")
    assert caught.value.where == f"p.{part}"


def test_a_number_that_is_too_large_for_a_double_is_refused(tmp_path: Path) -> None:
    """Python's JSON reads it as infinity."""
    found = profile_files([write(tmp_path / "t", flush_events())], demands=True).to_json()
    text = json.dumps({**found, "description": {"duration_seconds": 0.25}}).replace("0.25", "1e999")
    with pytest.raises(InputError, match="1e999 is too large"):
        Profile.loads(text)


def merged_events(n: int = 40, *, issued: int | None = None) -> list[Event]:
    """Pairs of adjacent writes of 4 KiB that are queued together, merged, and issued as one of 8 KiB.

    Each pair is queued at 10 ms x i, issued 2 ms later, and served in 4 ms. Only the first ``issued`` are issued.
    """
    events = []
    for i in range(n):
        at, sector = 10 * MS * i, 10_000 * i
        events += [Event(at + k, sector + 8 * k, category=made.WRITE) for k in range(2)]
        events += [Event(at + 2, sector + 8, category=made.WRITE, what=made.M)]
        if issued is None or i < issued:
            events += [
                Event(at + delay * MS, sector, 8192, category=made.WRITE, what=what)
                for delay, what in ((2, made.D), (6, made.C))
            ]
    return events


def test_demands_are_of_what_the_block_layer_issued_where_it_merged_accesses(tmp_path: Path) -> None:
    trace = write(tmp_path / "t", merged_events())
    found = profile_files([trace], demands=True)
    assert (found.n_accesses, found.accesses[Op.WRITE]["4K"]) == (80, 80), "the application's view"
    assert [(d.nbytes, d.accesses, d.depth) for d in found.demands or ()] == [(8192, 40, 1)], "the storage's view"
    assert waited(found) == pytest.approx(40 * 0.004)
    assert found.idle_seconds == pytest.approx(39 * 0.006)
    assert found.description["demands_action"] == "D"
    issued = profile_files([trace], demands=True, action=Action.ISSUE)
    assert (found.demands, found.commits) == (issued.demands, issued.commits)
    (each,) = profiles_by_disk([trace], demands=True)
    assert each.demands == found.demands


def test_the_demand_per_second_is_of_issued_accesses(tmp_path: Path) -> None:
    found = WorkloadDemand.of(profile_files([write(tmp_path / "t", merged_events(200))], demands=True))
    assert found is not None
    assert found.accesses_per_s == pytest.approx(100, rel=0.01)
    assert found.busiest_second == pytest.approx(100, rel=0.02)
    assert found.nbytes_per_s == pytest.approx(819_200, rel=0.01)


def test_a_named_action_has_its_own_demands(tmp_path: Path) -> None:
    found = profile_files([write(tmp_path / "t", merged_events())], demands=True, action=Action.QUEUE)
    assert [(d.nbytes, d.accesses) for d in found.demands or ()] == [(4096, 80)] or len(found.demands or ()) == 2
    assert sum(d.accesses for d in found.demands or ()) == 80
    assert "demands_action" not in found.description


def test_accesses_that_nothing_merged_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = write(tmp_path / "t", made.mixed_workload(50))
    with monkeypatch.context() as patched:
        patched.setattr(profiling, "with_demands_of_issued", lambda *_: pytest.fail("read again"))
        found = profile_files([trace], demands=True)
    assert found.demands == profile_files([trace], demands=True, action=Action.QUEUE).demands


def test_a_trace_that_lacks_issued_accesses_keeps_the_queued_ones(tmp_path: Path) -> None:
    found = profile_files([write(tmp_path / "t", merged_events(issued=30))], demands=True)
    assert sum(d.accesses for d in found.demands or ()) == 80
    assert "demands_action" not in found.description


def test_a_pipe_cannot_be_read_again_and_the_profile_says_so(tmp_path: Path) -> None:
    content = write(tmp_path / "t", merged_events()).read_bytes()
    os.mkfifo(tmp_path / "pipe")
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(content,))
    writer.start()
    found = profile_files([tmp_path / "pipe"], demands=True)
    writer.join()
    assert sum(d.accesses for d in found.demands or ()) == 80
    assert any("a pipe cannot be read again" in note for note in found.description["notes"])
