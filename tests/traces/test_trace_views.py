"""`cephfit trace show`, `plot`, `compare`, `convert`, `jobs` and `replay` on the command line."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_maker import READ, WRITE, C, Event, Q, mixed_workload, write

from cephfit.cli.main import main
from cephfit.cli.trace.trace_show import _time
from cephfit.core.values.profile import Profile
from cephfit.traces.description.stored_descriptions import compared, kolmogorov_smirnov, total_variation
from cephfit.traces.replay.workload_job import DiskJob, job_file, job_of, sections_of

needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


def run(*arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run the command in this process: a new process for each takes longer than all commands."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            main(["trace", *map(str, arguments)])
        except SystemExit as end:
            code = int(end.code or 0)
    assert not check or code == 0, errors.getvalue()
    return subprocess.CompletedProcess(["cephfit"], code, output.getvalue(), errors.getvalue())


def database(n: int = 3000) -> list[Event]:
    """70 % random reads of 4K and 16K, 30 % mostly sequential writes, each completes before the next one."""
    rng = np.random.default_rng(7)
    events: list[Event] = []
    time = next_write = 0
    for _ in range(n):
        time += int(rng.exponential(500_000)) + 200_000
        if rng.random() < 0.7:
            way = {"sector": int(rng.integers(0, 1 << 14)) * 8, "category": READ}
            way["nbytes"] = 4096 if rng.random() < 0.75 else 16384
        else:
            place = next_write if rng.random() < 0.8 else int(rng.integers(0, 1 << 14)) * 8
            way = {"sector": place, "nbytes": 8192, "category": WRITE}
            next_write = place + 16
        events += [Event(time, what=Q, **way), Event(time + 100_000, what=C, **way)]
    return events


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("views") / "db.blktrace.0", database())


def test_show_prints_without_colour(trace: Path) -> None:
    shown = run("show", trace).stdout
    for part in (
        "3,000 accesses",
        "Size [bytes]",
        "closest of the previous 16",
        "Phases",
        "Heat map",
        "footprint",
    ):
        assert part in shown
    assert "\x1b" not in shown


def test_show_json_is_the_profile_with_its_behaviour(trace: Path) -> None:
    found = Profile.from_json(json.loads(run("show", trace, "--json").stdout))
    assert found.n_accesses == 3000
    assert found.description["behaviour"]["busy_share"] == pytest.approx(1 / 7, abs=0.02)  # 100 of 700 us


def test_show_of_a_profile_without_behaviour_explains_how_to_get_it(trace: Path, tmp_path: Path) -> None:
    run("profile", trace, "-o", tmp_path / "p.json")
    assert "--describe full" in run("show", tmp_path / "p.json").stdout


def test_threshold_changes_what_is_random(trace: Path) -> None:
    strict = json.loads(run("profile", trace, "--threshold", "16", "--json").stdout)
    loose = json.loads(run("profile", trace, "--threshold", str(1 << 20), "--json").stdout)
    assert (strict["random_threshold_lbn"], loose["random_threshold_lbn"]) == (16, 1 << 20)
    assert strict["random"]["write"] > 0.15
    assert loose["random"] == {"read": 0.0, "write": 0.0}


def test_plot_draws_every_plot_as_png_svg_and_html(trace: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    names = json.loads(run("plot", trace, "-o", tmp_path / "w.html", "--json").stdout)["pictures"]
    assert {"cells", "size", "distance_windowed", "latency_us", "iops", "lbn", "heat_map"} <= set(names)
    page = (tmp_path / "w.html").read_text()
    assert page.count("<svg") == len(names)
    assert "<script" not in page
    run("plot", trace, "-o", tmp_path / "w.png", "--only", "heat_map")
    assert (tmp_path / "w.png").read_bytes().startswith(b"\x89PNG")
    run("plot", trace, "-o", tmp_path / "w.svg", "--only", "lbn")
    assert ElementTree.parse(tmp_path / "w.svg").getroot().tag.endswith("svg")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("-o", "w.gif"), "use a file name that ends with .png"),
        (("-o", "w.png", "--only", "cat"), "choose from: cells, size"),
    ],
)
def test_plot_errors(trace: Path, arguments: tuple[str, ...], message: str) -> None:
    done = run("plot", trace, *arguments, check=False)
    assert done.returncode == 2
    assert message in done.stderr


def test_a_workload_compared_with_itself_has_no_distance(trace: Path) -> None:
    found = json.loads(run("compare", trace, trace, "--json").stdout)
    assert found["total_variation"] == 0
    assert {h["kolmogorov_smirnov"] for h in found["histograms"]} == {0}
    assert "distance: 0.0 %" in run("compare", trace, trace).stdout


def counts_profile(reads_4k: int, writes_1m: int, *, random: float) -> Profile:
    none = {"4K": 0, "32K": 0, "128K": 0, "1M": 0, "32M": 0}
    return Profile.from_json(
        {
            "schema_version": 1,
            "accesses": {"read": none | {"4K": reads_4k}, "write": none | {"1M": writes_1m}},
            "random": {"read": random, "write": 0.0},
        }
    )


def test_the_distance_is_the_share_of_accesses_in_another_cell() -> None:
    """A: 100 random reads; B: 75 random reads and 25 sequential writes: a quarter is in another cell."""
    found = compared(counts_profile(100, 0, random=1), counts_profile(75, 25, random=1))
    assert found.total_variation == pytest.approx(0.25)
    assert compared(counts_profile(9, 0, random=1), counts_profile(9, 0, random=0)).total_variation == 1


SHARES = st.lists(st.integers(0, 1000), min_size=4, max_size=4).filter(any)


@given(SHARES, SHARES, SHARES)
def test_both_distances_are_metrics_between_0_and_1(a: list[int], b: list[int], c: list[int]) -> None:
    x, y, z = ([n / sum(counts) for n in counts] for counts in (a, b, c))
    for distance in (total_variation, kolmogorov_smirnov):
        assert distance(x, x) == 0
        assert distance(x, y) == distance(y, x)
        assert distance(x, z) <= distance(x, y) + distance(y, z) + 1e-12
        assert 0 <= distance(x, y) <= 1 + 1e-12
    assert kolmogorov_smirnov(x, y) <= total_variation(x, y) + 1e-12


def without_sources(document: dict[str, object]) -> dict[str, object]:
    about = dict(document["description"])  # type: ignore[call-overload]
    for name in ("sources", "action"):
        about.pop(name)
    return document | {"description": about}


def test_parquet_gives_the_identical_profile(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    source = write(tmp_path / "t", mixed_workload(2000))
    run("convert", source, "-o", tmp_path / "t.parquet")
    profiles = [
        json.loads(run("profile", p, "--describe", "full", "--name", "x", "--json").stdout)
        for p in (source, tmp_path / "t.parquet")
    ]
    raw, parquet = map(without_sources, profiles)
    # Parquet does not hold the flags of accesses, so whether writes are synchronous, and commits, are unknown.
    del raw["commits"]
    at = raw["demands"]["columns"].index("is_sync")
    for row in raw["demands"]["rows"]:
        row[at] = row[at] or None
    assert raw == parquet


def test_a_parquet_file_with_other_columns_is_a_clear_error(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "x.parquet")
    done = run("profile", tmp_path / "x.parquet", check=False)
    assert done.returncode == 2
    assert "column 'time_ns' is missing" in done.stderr
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "x.parquet").read_bytes()[:-20])
    done = run("profile", tmp_path / "cut.parquet", check=False)
    assert done.returncode == 2
    assert "damaged" in done.stderr


@pytest.mark.parametrize("version", ["2", "3"])
def test_an_io_log_has_the_same_accesses(trace: Path, tmp_path: Path, version: str) -> None:
    run("convert", trace, "-o", tmp_path / "t.iolog", "--iolog-version", version)
    assert (tmp_path / "t.iolog").read_text().startswith(f"fio version {version} iolog\n")
    a, b = (json.loads(run("profile", p, "--json").stdout) for p in (trace, tmp_path / "t.iolog"))
    assert (a["accesses"], a["random_by_bin"]) == (b["accesses"], b["random_by_bin"])
    for kind, histogram in a["description"]["histograms"]["distance"].items():
        assert b["description"]["histograms"]["distance"][kind] == histogram


@pytest.mark.parametrize(
    ("microseconds", "shown"),
    [(0.5, "0.5 us"), (565, "565 us"), (999.7, "1 ms"), (24_900, "24.9 ms"), (999_700, "1 s"), (3.6e9, "3,600 s")],
)
def test_times_have_no_exponents(microseconds: float, shown: str) -> None:
    assert _time(microseconds) == shown


def test_the_note_of_a_job_has_no_exponents(tmp_path: Path) -> None:
    rows = [f"{i},{disk},R,{4096 * i},4096\n" for i, disk in ((0, "a"), (1500, "a"), (7200, "b"))]
    (tmp_path / "t.csv").write_text("".join(rows))
    columns = ("--columns", "time:s,disk,op,offset,length", "--disk", "a")
    assert "within 1,500 s of the 7,200 s" in " ".join(run("jobs", tmp_path / "t.csv", *columns).stdout.split())


def test_time_outstanding_on_several_disks_is_no_share_of_the_recording(tmp_path: Path) -> None:
    """Four disks, each busy for 5 of the 10 ms after each access, together for 2 s in a recording of 1 s."""
    rows = [f"{10 * i},disk{n},R,{4096 * i},4096,5\n" for i in range(100) for n in range(4)]
    (tmp_path / "t.csv").write_text("".join(rows))
    columns = ("--columns", "time:ms,disk,op,offset,length,latency")
    (line,) = (
        line
        for line in run("profile", tmp_path / "t.csv", *columns).stdout.splitlines()
        if line.startswith("I/O outstanding")
    )
    assert "I/O outstanding: 2 s, added up over 4 disks; about " in line
    assert "% of the time" not in line


def test_a_trace_is_not_written_over_itself(trace: Path, tmp_path: Path) -> None:
    copy = tmp_path / "t.iolog"
    shutil.copy(trace, copy)
    done = run("convert", copy, "-o", copy, check=False)
    assert done.returncode == 2
    assert copy.read_bytes() == trace.read_bytes()


@pytest.mark.fio
@needs_fio
def test_fio_reproduces_the_profile(trace: Path, tmp_path: Path) -> None:
    """fio takes whole percents: each share agrees with the profile within 2.5 percentage points."""
    job, data, log = (tmp_path / name for name in ("db.fio", "data", "out.iolog"))
    arguments = ("--pace", "full-speed", "--file", data, "--size", "64M", "--seconds", "1.5")
    run("jobs", trace, "-o", job, *arguments)
    subprocess.run(
        ["fio", f"--write_iolog={log}", str(job)], check=True, capture_output=True, cwd=tmp_path, timeout=60
    )
    expected, done = (Profile.from_json(json.loads(run("profile", p, "--json").stdout)) for p in (trace, log))
    assert done.n_accesses > 500
    for op, counts in expected.accesses.items():
        for size, n in counts.items():
            share, got = n / expected.n_accesses, done.accesses[op][size] / done.n_accesses
            assert got == pytest.approx(share, abs=0.025), (op, size)
        assert done.random[op] == pytest.approx(expected.random[op], abs=0.04), op


@pytest.mark.fio
@needs_fio
def test_fio_keeps_the_pace(trace: Path, tmp_path: Path) -> None:
    """The workload pauses for 600 us after each access of 100 us; fio is not faster (a busy machine is slower)."""
    text = run("jobs", trace, "--file", tmp_path / "data", "--size", "64M", "--seconds", "2").stdout
    assert "iodepth=1\n" in text
    think_us = int(text.split("thinktime=")[1].split("us")[0])
    assert think_us == pytest.approx(600, rel=0.05)
    (tmp_path / "db.fio").write_text(text)
    subprocess.run(["fio", "--output-format=json", "--output=out.json", "db.fio"], cwd=tmp_path, check=True)
    out = (tmp_path / "out.json").read_text()
    found = json.loads(out[out.index("{") :])["jobs"][0]
    n = found["read"]["total_ios"] + found["write"]["total_ios"]
    took = sum(found[op]["lat_ns"]["mean"] * found[op]["total_ios"] for op in ("read", "write")) / n / 1e9
    assert found["job_runtime"] / 1e3 / n > 0.95 * (think_us / 1e6 + took)


def text_of(profile: Profile, file: Path, *, seconds: float = 1, nbytes: int | None = None) -> str:
    """The job file of one disk."""
    job = DiskJob(None, profile.n_accesses, job_of(profile, nbytes=nbytes))
    return job_file(sections_of([job], file=file, files={}), title=profile.name, seconds=seconds)


def test_a_job_of_a_deep_workload_keeps_its_rate_and_depth() -> None:
    profile = counts_profile(600, 400, random=0.5)
    outstanding = {"limits": [1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 64], "counts": [0] * 4 + [96, 4] + [0] * 7}
    about = {"iops": 1000.0, "histograms": {"outstanding": {"all": outstanding}}}
    text = text_of(Profile(profile.name, profile.accesses, profile.random, None, about), Path("x:y"))
    for line in ("iodepth=8", "rate_iops=600,400", "rwmixread=60", "bssplit=4096/100,1048576/100"):
        assert line in text.splitlines()
    assert "percentage_random=50,0" in text
    assert "filename=x\\:y" in text


@pytest.mark.fio
@needs_fio
def test_replay_issues_the_trace_on_a_file_and_reports_lateness(tmp_path: Path) -> None:
    """1.5 s of reads and writes: all are issued at their times."""
    rng = np.random.default_rng(3)
    times = np.cumsum(rng.exponential(5e6, 300)).astype(int)
    events = [
        Event(int(t), sector=int(rng.integers(0, 4000)) * 8, category=WRITE if i % 3 else READ)
        for i, t in enumerate(times)
    ]
    source, data = write(tmp_path / "t", events), tmp_path / "data"
    data.write_bytes(bytes(32 << 20))
    found = json.loads(run("replay", source, "--file", data, "--i-know-it-writes", "--json").stdout)
    assert found["replayed"] == found["accesses"] == 300
    # fio never issues early; its lateness depends on the load of this machine, and the report must show it.
    behind_ms = 1e3 * (found["actual_seconds"] - found["planned_seconds"])
    assert behind_ms > -50
    assert found["late_ms"]["p100"] >= behind_ms - 5
    assert data.read_bytes() != bytes(32 << 20)


def test_replay_without_consent_or_beyond_the_end_writes_nothing(trace: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.write_bytes(bytes(1 << 20))
    refused = run("replay", trace, "--file", data, check=False)
    assert refused.returncode == 2
    assert "--i-know-it-writes" in refused.stderr
    if shutil.which("fio") is not None:
        beyond = run("replay", trace, "--file", data, "--i-know-it-writes", check=False)
        assert beyond.returncode == 2
        assert "--wrap" in beyond.stderr
        assert "the trace: it touches byte" in beyond.stderr
    assert data.read_bytes() == bytes(1 << 20)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_replay_refuses_a_mounted_device(trace: Path, tmp_path: Path) -> None:
    image, place = tmp_path / "image", tmp_path / "mnt"
    place.mkdir()
    with image.open("wb") as file:
        file.truncate(32 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True, timeout=60)
    made = subprocess.run(["losetup", "-f", "--show", str(image)], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no loop device: {made.stderr}")
    device = made.stdout.strip()
    try:
        if subprocess.run(["mount", device, str(place)], check=False, timeout=60).returncode:
            pytest.skip("mounting is not possible here")
        try:
            done = run("replay", trace, "--device", device, "--i-know-it-writes", check=False)
        finally:
            subprocess.run(["umount", str(place)], check=True, timeout=60)
    finally:
        subprocess.run(["losetup", "-d", device], check=True, timeout=60)
    assert done.returncode == 2
    assert "in use" in done.stderr


def test_a_custom_delimited_trace_is_shown_compared_and_converted(tmp_path: Path) -> None:
    trace = tmp_path / "own.tsv"
    trace.write_text("1\t0\t4096\tR\n2\t4096\t4096\tW\n3\t81920\t8192\tR\n")
    columns = ("--columns", "time:s,offset:bytes,length:bytes,op:R/W,sep=tab")
    shown = Profile.loads(run("show", trace, *columns, "--json").stdout, where="show")
    assert shown.n_accesses == 3
    same = json.loads(run("compare", trace, trace, *columns, "--json").stdout)
    assert same["total_variation"] == 0
    converted = tmp_path / "own.parquet"
    run("convert", trace, *columns, "-o", converted)
    assert Profile.loads(run("show", converted, "--json").stdout, where="show").n_accesses == 3


def test_disks_with_and_without_latencies_are_shown_together(tmp_path: Path) -> None:
    """In MSR's traces a response time of 0 means unknown."""
    rows = [
        f"{128166372000000000 + 100_000 * i},h,{i % 2},Read,{4096 * i},4096,{(500, 0)[i % 2]}" for i in range(40)
    ]
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    shown = run("show", tmp_path / "t.csv").stdout
    assert "disk h/0: accesses outstanding" in shown
    assert "disk h/1: accesses outstanding" not in shown
    assert "accesses outstanding" not in run("show", tmp_path / "t.csv", "--disk", "h/1").stdout


def test_the_requested_threshold_is_used(trace: Path, tmp_path: Path) -> None:
    run("profile", trace, "--threshold", "1024", "-o", tmp_path / "p.json")
    shown = run("show", tmp_path / "p.json").stdout
    assert "by threshold in LBN (1024 is used): 128: " in shown
    assert "128 counts" not in shown


def test_the_rate_of_a_slow_workload_is_not_shown_as_zero(tmp_path: Path) -> None:
    """Four accesses of 4K in 15 s."""
    (tmp_path / "t.csv").write_text("".join(f"{5 * i},R,{4096 * i},4096\n" for i in range(4)))
    shown = run("show", tmp_path / "t.csv", "--columns", "time:s,op,offset,length").stdout
    assert "0.267 IOPS, 0.00104 MiB/s" in shown
    assert "│ at most 0\n" not in shown.partition("write IOPS")[0]
