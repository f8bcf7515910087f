"""The busiest second and minute, against counting by hand."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cephfit.traces import profile_files
from cephfit.traces.columns import AccessBatch
from cephfit.traces.counting.second_counts import SecondCounting, SecondCounts, busiest

NS = 10**9
TIMES = st.lists(st.integers(-5 * NS, 200 * NS), min_size=1, max_size=60)


def batch(times: list[int], disks: list[int] | None = None) -> AccessBatch:
    n = len(times)
    columns = np.array(times, np.int64), np.zeros(n, np.uint8), np.zeros(n, np.int64), np.full(n, 4096)
    return AccessBatch(*columns, np.array(disks or [0] * n, np.int32), ("a", "b"))


def counted(times: list[int], disks: list[int] | None = None, *, each_disk: bool = False) -> SecondCounts:
    counting = SecondCounting(each_disk=each_disk)
    counting.add(batch(times, disks))
    return counting.counts()


@settings(deadline=None)  # the first call compiles
@given(TIMES)
def test_windows_are_those_of_the_clock(times: list[int]) -> None:
    by_second = Counter(ns // NS for ns in times)
    minutes = [sum(by_second[s - i] for i in range(60)) for s in range(-5, 261)]
    runs = counted(times).of(["a"])
    assert runs is not None
    assert busiest(runs) == (max(by_second.values()), max(minutes) / 60)


@settings(deadline=None)
@given(TIMES, st.lists(st.integers(0, 60), max_size=3))
def test_stretches_add_up_however_a_trace_is_cut(times: list[int], cuts: list[int]) -> None:
    ends = [0, *sorted(min(cut, len(times)) for cut in cuts), len(times)]
    total = SecondCounts()
    for begin, end in pairwise(ends):
        if end > begin:
            total = total.followed_by(counted(times[begin:end]))
    joined, whole = total.of(["a"]), counted(times).of(["a"])
    assert joined is not None
    assert whole is not None
    assert joined.tolist() == whole.tolist()


def test_disks_are_distinguished_where_only_some_count() -> None:
    times, disks = [0, 1, 2, 5 * NS, 5 * NS + 1], [0, 0, 1, 1, 1]
    each = counted(times, disks, each_disk=True)
    found = {of: each.of(list(of)) for of in ("a", "b", "ab")}
    assert {of: runs is not None and busiest(runs)[0] for of, runs in found.items()} == {"a": 2, "b": 2, "ab": 3}
    only = SecondCounting(["b"], each_disk=False)
    only.add(batch(times, disks))
    runs = only.counts().of(["b"])
    assert runs is not None
    assert runs.tolist() == [[0, 5], [1, 2]]


def test_a_damaged_time_far_away_costs_nothing() -> None:
    runs = counted([0, 1, 2**62]).of(["a"])
    assert runs is not None
    assert runs.shape == (2, 2)


def written(path: Path, seconds: list[float]) -> Path:
    path.write_text(
        "time,op,offset,length\n" + "".join(f"{s:.6f},R,{i * 4096},4096\n" for i, s in enumerate(seconds))
    )
    return path


def described(files: list[Path], *, parts: bool = False, demands: bool = False) -> object:
    from cephfit.traces.recordings import read_options

    options = read_options(None, "time:s,op,offset:bytes,length:bytes", None)
    return profile_files(files, parts=parts, demands=demands, options=options).description.get("busiest")


@pytest.mark.parametrize("demands", [False, True])
def test_every_timed_trace_has_its_busiest_second_and_minute(tmp_path: Path, demands: bool) -> None:
    """One access per second for 100 s, and 50 more in second 30."""
    seconds = sorted([*map(float, range(101)), *(30 + i / 60 for i in range(1, 51))])
    trace = written(tmp_path / "t.csv", seconds)
    assert described([trace], demands=demands) == {"second": 51, "minute": 110 / 60}


def test_windows_longer_than_the_trace_are_null(tmp_path: Path) -> None:
    assert described([written(tmp_path / "a.csv", [0.0, 0.1, 0.4])]) == {"second": None, "minute": None}
    assert described([written(tmp_path / "b.csv", [0.0, 0.1, 2.4])]) == {"second": 2, "minute": None}


def test_a_trace_without_times_has_none(tmp_path: Path) -> None:
    assert described([written(tmp_path / "c.csv", [3.0, 3.0, 3.0])]) is None


def test_parts_count_as_the_whole_trace_and_restarted_clocks_do_not_add_up(tmp_path: Path) -> None:
    first, second = [0.0, 40.0, 70.2, 70.4], [70.6, 71.0, 130.0]
    parts = [written(tmp_path / "p1.csv", first), written(tmp_path / "p2.csv", second)]
    whole = written(tmp_path / "whole.csv", first + second)
    assert described(parts, parts=True) == described([whole]) == {"second": 3, "minute": 5 / 60}
    again = written(tmp_path / "p3.csv", first)
    assert described([parts[0], again], parts=True) == {"second": 2, "minute": 3 / 60}
