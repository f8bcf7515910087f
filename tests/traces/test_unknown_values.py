"""One access, no time between accesses, clocks that step back: unknown values are not shown as numbers."""

import json
from pathlib import Path

import pytest
from test_trace_views import run

ONE = "1,R,4096,4096,1000\n"
RANDOM = "".join(f"1,R,{4096 * (7919 * i % 10007)},4096,{1000 * i}\n" for i in range(50))
SEQUENTIAL = "".join(f"1,R,{4096 * i},4096,{1000 * i}\n" for i in range(50))


def written(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_the_randomness_of_a_single_access_is_not_known(tmp_path: Path) -> None:
    """It has no previous access."""
    shown = run("profile", written(tmp_path, "one", ONE)).stdout.splitlines()
    (row,) = (line.split() for line in shown if line.startswith("all "))
    assert row == ["all", "1", "100.0", "%", "-", "0", "0.0", "%", "-"]


@pytest.mark.parametrize("other", [RANDOM, SEQUENTIAL])
def test_an_unknown_is_not_a_difference(tmp_path: Path, other: str) -> None:
    a, b = written(tmp_path, "one", ONE), written(tmp_path, "many", other)
    for pair in ((a, b), (b, a)):
        found = json.loads(run("compare", *pair, "--json").stdout)
        assert (found["total_variation"], found["unjudged"]) == (0, ["read"])
        assert list(found["cells"].values()).count({"a": 1, "b": 1, "difference": 0}) == 1
        assert "reads are compared by size only" in run("compare", *pair).stdout
    assert "random reads: - in A" in run("compare", a, b).stdout


def test_judged_workloads_are_compared_by_randomness(tmp_path: Path) -> None:
    found = json.loads(
        run("compare", written(tmp_path, "a", RANDOM), written(tmp_path, "b", SEQUENTIAL), "--json").stdout
    )
    assert (found["total_variation"] > 0.9, found["unjudged"]) == (True, [])


@pytest.mark.parametrize("text", [ONE, ONE + "1,W,8192,4096,1000\n"])
def test_no_time_no_rates(tmp_path: Path, text: str) -> None:
    """Not even in bins of 1 ms, where one access would be 1,000 per second."""
    trace = written(tmp_path, "t", text)
    shown = run("show", trace).stdout
    assert "IOPS" not in shown
    assert "Over time: not available" in shown
    about = json.loads(run("show", trace, "--json").stdout)["description"]
    assert (about["behaviour"]["over_time"], about["behaviour"]["phases"]) == (None, [])
    assert "iops" not in about


def test_plots_of_a_trace_without_time_omit_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = json.loads(run("plot", written(tmp_path, "one", ONE), "-o", tmp_path / "x.html", "--json").stdout)[
        "pictures"
    ]
    assert "cells" in drawn
    assert not {"iops", "bytes"} & set(drawn)


def test_clocks_that_step_back_are_reported(tmp_path: Path) -> None:
    lines = SEQUENTIAL.splitlines(keepends=True)
    lines[10], lines[11] = lines[11], lines[10]
    trace = written(tmp_path, "t", "".join(lines))
    assert "the clock steps back: 1 of 50 accesses" in run("profile", trace).stdout
    assert "backwards" not in run("profile", trace).stdout
    assert json.loads(run("profile", trace, "--json").stdout)["description"]["clock_steps_back"] == 1


def test_a_file_in_reversed_time_gives_a_warning(tmp_path: Path) -> None:
    trace = written(tmp_path, "t", "".join(reversed(SEQUENTIAL.splitlines(keepends=True))))
    shown = run("profile", trace).stdout
    assert "the clock steps back: 49 of 50 accesses" in shown
    assert "the trace runs backwards in time" in shown


def test_a_disk_without_times_has_no_rates_though_the_recording_lasts(tmp_path: Path) -> None:
    """All accesses of a disk are at one moment; the duration of the recording does not give their rate."""
    rows = [f"{disk},R,{4096 * i},4096,{1000 * disk}\n" for disk in (1, 2) for i in range(5)]
    trace = written(tmp_path, "t", "".join(rows))
    shown = run("profile", trace, "--disk", "1").stdout
    assert "IOPS" not in shown
    assert "time: all accesses have the same one; no rates" in shown
    about = json.loads(run("profile", trace, "--disk", "1", "--json").stdout)["description"]
    assert not {"iops", "bytes_per_second"} & set(about)
    # A job has the mean pace of the recording, with a note; a recording of one moment has no pace.
    assert "# the accesses occurred within 0 s of the" in run("jobs", trace, "--disk", "1").stdout
    alone = written(tmp_path, "alone", "".join(rows[:5]))
    refused = run("jobs", alone, check=False)
    assert (refused.returncode, "does not contain the rate" in refused.stderr) == (2, True)
    assert "IOPS" in run("profile", trace).stdout
