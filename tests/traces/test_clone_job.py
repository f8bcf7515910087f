"""The clone of a workload: phases with the depths, alignment, flushes and pauses of a profile."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cephfit.core.errors import InputError
from cephfit.core.units import GIB, KIB, MIB
from cephfit.core.values.cells import SIZE_BINS, Op, Pattern
from cephfit.core.values.demand import ClonePhase, Commits, Demand, WorkloadClone
from cephfit.core.values.profile import Profile
from cephfit.traces.replay.clone_job import LEAST_SHARE, MOST_PHASES, clone_of


def demand(
    n: float,
    pattern: Pattern = Pattern.RANDREAD,
    nbytes: float = 4 * KIB,
    *,
    is_aligned: bool | None = True,
    depth: float | None = 1.0,
    is_sync: bool | None = True,
    waiting: float | None = 1.0,
) -> Demand:
    return Demand(pattern, nbytes, is_aligned, depth, is_sync, n, waiting)


def cloned(
    *demands: Demand,
    idle: float = 0.0,
    commits: Commits | None = None,
    nbytes: int | None = 64 * MIB,
    aligned_4k: float | None = None,
    footprint: int | None = None,
) -> WorkloadClone:
    """The clone of a profile with these demands, whose counts are all in the first bin."""
    counts = {
        op: {b.name: 0 for b in SIZE_BINS} | {"4K": round(sum(d.accesses for d in demands if d.pattern.op is op))}
        for op in Op
    }
    about = {} if footprint is None else {"behaviour": {"footprint": {"nbytes": footprint}}}
    alignment = None if aligned_4k is None else {op: {"4K": {"4K": aligned_4k}} for op in Op}
    profile = Profile("work", counts, dict.fromkeys(Op, 0.0), None, about, alignment, demands, idle, commits)
    return clone_of(profile, demands, nbytes=nbytes)


def options(phase: ClonePhase) -> dict[str, str]:
    return dict(line.split("=", 1) for line in phase.options)


def test_reads_and_writes_of_one_depth_and_alignment_are_one_mix() -> None:
    (phase,) = cloned(
        demand(300, Pattern.RANDREAD, depth=3.6, waiting=3.0),
        demand(100, Pattern.WRITE, depth=4.4, waiting=1.0),
    ).phases
    found = options(phase)
    assert found["rw"] == "randrw"
    assert found["rwmixread"] == "75"
    assert found["bssplit"] == "4096/100,4096/100"
    assert found["percentage_random"] == "100,0"
    assert found["iodepth"] == "4"
    assert phase.accesses == 400


def test_each_depth_has_a_phase() -> None:
    clone = cloned(demand(100, depth=1.1), demand(200, depth=15.0))
    assert [(options(p)["iodepth"], p.accesses) for p in clone.phases] == [("1", 100), ("15", 200)]


@pytest.mark.parametrize(
    ("nbytes", "is_aligned", "size", "align"),
    [
        (16 * KIB, True, 16 * KIB, 16 * KIB),
        (16 * KIB, None, 16 * KIB, 16 * KIB),
        (MIB, True, MIB, 64 * KIB),
        (16 * KIB, False, 16 * KIB, 4 * KIB),
        (15_000.5, False, 16 * KIB, 4 * KIB),
        (12 * KIB, True, 12 * KIB, 4 * KIB),
        (700, False, 512, 512),
    ],
)
def test_blockalign_is_the_alignment_of_the_accesses(
    nbytes: float, is_aligned: bool | None, size: int, align: int
) -> None:
    (phase,) = cloned(demand(10, nbytes=nbytes, is_aligned=is_aligned)).phases
    assert options(phase)["bssplit"] == f"{size}/100,{size}/100"
    assert options(phase)["blockalign"] == str(align)


def test_accesses_that_rarely_start_at_4k_start_at_any_block() -> None:
    (phase,) = cloned(demand(10, nbytes=6 * KIB, is_aligned=False), aligned_4k=0.2).phases
    assert (options(phase)["bssplit"], options(phase)["blockalign"]) == ("6144/100,6144/100", "512")


def test_flushes_follow_the_writes_that_the_workload_waits_for() -> None:
    waited, behind = (demand(n, Pattern.RANDWRITE, is_sync=is_sync) for n, is_sync in ((300, True), (900, False)))
    foreground, background = cloned(waited, behind, commits=Commits(75)).phases
    assert options(foreground)["fsync"] == "4"
    assert "fsync" not in options(background)
    assert (foreground.in_background, background.in_background) == (False, True)


def test_flushed_writes_and_reads_are_separate_phases() -> None:
    """Among reads, fio repeats a flush after every read until the next write."""
    reads, writes = cloned(demand(100), demand(50, Pattern.RANDWRITE), commits=Commits(10)).phases
    assert (options(reads)["rw"], "fsync" in options(reads)) == ("randread", False)
    assert (options(writes)["rw"], options(writes)["fsync"]) == ("randwrite", "5")


def test_forced_unit_access_counts_as_a_flush_and_more_than_one_per_write_is_noted() -> None:
    (phase,) = cloned(demand(100, Pattern.WRITE), commits=Commits(0, fua_writes=50)).phases
    assert options(phase)["fsync"] == "2"
    clone = cloned(demand(100, Pattern.WRITE), commits=Commits(300))
    assert options(clone.phases[0])["fsync"] == "1"
    assert clone.notes == ("the workload has 3 flushes per write, the clone one",)


def test_flushes_without_writes_to_wait_for_follow_those_in_the_background() -> None:
    (phase,) = cloned(demand(100, Pattern.WRITE, is_sync=False), commits=Commits(10)).phases
    assert options(phase)["fsync"] == "10"
    (reads,) = cloned(demand(100), commits=Commits(10)).phases
    assert "fsync" not in options(reads)


def test_idle_time_is_pauses_between_accesses() -> None:
    clone = cloned(demand(100, waiting=2.0), idle=1.0)
    (phase,) = clone.phases
    assert (options(phase)["thinktime"], options(phase)["thinktime_blocks"]) == ("10000us", "1")
    assert phase.paused_seconds == pytest.approx(1.0)
    assert phase.seconds == pytest.approx(3.0)
    assert clone.seconds_of_pass({"phase1": 0.03}) == pytest.approx(3.0)
    assert clone.seconds_of_pass({"phase1": 0.02}) == pytest.approx(2.0), "the pauses stay"


def test_pauses_are_not_longer_than_the_accesses_and_the_rest_is_added() -> None:
    clone = cloned(demand(100, waiting=2.0), idle=8.0)
    assert options(clone.phases[0])["thinktime"] == "20000us"
    assert clone.seconds_of_pass({"phase1": 0.04}) == pytest.approx(10.0)
    assert clone.seconds_of_pass({"phase1": 0.03}) == pytest.approx(9.0)


def test_pauses_are_rare_where_many_accesses_are_outstanding_or_they_are_short() -> None:
    (deep,) = cloned(demand(10_000, depth=8.0, waiting=10.0), idle=10.0).phases
    assert (options(deep)["thinktime"], options(deep)["thinktime_blocks"]) == ("128000us", "128")
    (short,) = cloned(demand(10_000, waiting=1.0), idle=1.0).phases
    assert (options(short)["thinktime"], options(short)["thinktime_blocks"]) == ("1000us", "10")


def test_the_background_counts_as_in_the_waiting_model() -> None:
    """Idle time of 3 s hides three quarters of a background of 1 s."""
    clone = cloned(demand(100), demand(50, Pattern.WRITE, is_sync=False), idle=3.0)
    each = {"phase1": (1.0 + clone.phases[0].paused_seconds) / 100, "phase2": 1.0 / 50}
    assert clone.seconds_of_pass(each) == pytest.approx(1 + 3 + 1), "as in the trace"
    assert clone.seconds_of_pass({**each, "phase2": 2.0 / 50}) == pytest.approx(1 + 3 + 0.75 + 0.5)
    assert clone.seconds_of_pass({**each, "phase2": 20.0 / 50}) == pytest.approx(1 + 20), (
        "it outgrew the idle time"
    )


def test_a_profile_of_counts_has_a_clone_without_pauses() -> None:
    clone = cloned(demand(10, waiting=None, depth=None), idle=5.0)
    assert options(clone.phases[0])["iodepth"] == "1"
    assert clone.idle_seconds == 0
    assert [note.split(":")[0] for note in clone.notes] == [
        "the profile has no waiting times",
        "the profile has no depths",
    ]


def test_a_small_part_joins_the_most_similar_phase() -> None:
    clone = cloned(
        demand(100, depth=1, waiting=10.0),
        demand(100, depth=16, waiting=10.0),
        demand(5, Pattern.WRITE, depth=12, waiting=0.1),
    )
    assert [p.accesses for p in clone.phases] == [100, 105]


kinds = st.builds(
    demand,
    st.integers(1, 10**6),
    st.sampled_from(list(Pattern)),
    st.floats(300, 4 * MIB),
    is_aligned=st.booleans(),
    depth=st.floats(1, 200),
    is_sync=st.booleans(),
    waiting=st.floats(0, 1000),
)


@given(st.lists(kinds, min_size=1, max_size=40), st.floats(0, 1000), st.integers(0, 1000))
def test_no_access_is_lost_and_the_phases_are_few(demands: list[Demand], idle: float, flushes: int) -> None:
    clone = cloned(*demands, idle=idle, commits=Commits(flushes))
    assert sum(p.accesses for p in clone.phases) == pytest.approx(sum(d.accesses for d in demands))
    assert len({p.name for p in clone.phases}) == len(clone.phases) <= MOST_PHASES
    waited = sum(d.waiting_seconds or 0.0 for d in demands)
    assert sum(p.seconds - p.paused_seconds for p in clone.phases) == pytest.approx(waited, abs=1e-9)
    assert sum(p.paused_seconds for p in clone.phases) <= idle * 1.001 + 0.001
    for kind in product((False, True), repeat=2):
        own = [
            p.seconds - p.paused_seconds for p in clone.phases if (p.in_background, "fsync" in options(p)) == kind
        ]
        assert len(own) < 2 or min(own) >= LEAST_SHARE * waited * 0.999
    # The trace itself, as a run: each phase takes its time.
    each = {p.name: p.seconds / p.accesses for p in clone.phases}
    total = waited + idle
    assert clone.seconds_of_pass(each) == pytest.approx(total, rel=1e-6, abs=1e-6)


def test_the_used_part_is_the_footprint_within_limits() -> None:
    sizes = [cloned(demand(1), nbytes=None, footprint=n).nbytes for n in (MIB, 200 * MIB + 1, 5 * GIB)]
    assert sizes == [64 * MIB, 201 * MIB, GIB]
    assert cloned(demand(1), nbytes=None).nbytes == GIB


def test_what_cannot_be_cloned_is_refused() -> None:
    with pytest.raises(InputError, match="does not fit"):
        cloned(demand(1, nbytes=128 * MIB))
    with pytest.raises(InputError, match="no accesses"):
        cloned()
