"""Jobs for fio keep a workload's pace, also a slow one, and their notes list what they cannot keep."""

import json
import subprocess
from pathlib import Path

import pytest
from test_trace_views import counts_profile, needs_fio, run, text_of

from cephfit.core.values.profile import Profile
from cephfit.traces.replay.workload_job import job_of

DEPTHS = [1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 64]


def workload(reads: int, writes: int, *, iops: float, depth: int | None = None) -> Profile:
    """Random reads of 4K and sequential writes of 1M at a pace."""
    counted = counts_profile(reads, writes, random=1.0)
    about: dict[str, object] = {"iops": iops}
    if depth is not None:
        counts = [reads + writes if d == depth else 0 for d in DEPTHS] + [0]
        about["histograms"] = {"outstanding": {"all": {"limits": DEPTHS, "counts": counts}}}
    return Profile("slow", counted.accesses, counted.random, None, about)


@pytest.mark.parametrize(("iops", "think_us"), [(0.1, 10_000_000), (9.0, 111_111), (0.0001, 4_000_000_000)])
def test_a_slow_pace_is_kept_by_thinktime(iops: float, think_us: int) -> None:
    """fio's rates are whole accesses per second: as rates, 0.1 would be 1 read and 1 write, 20 times as much."""
    lines = text_of(workload(196, 4, iops=iops), Path("x")).splitlines()
    assert f"thinktime={think_us}us" in lines
    assert "rwmixread=98" in lines
    assert not any(line.startswith("rate_iops") for line in lines)


def test_a_job_of_slow_bursts_notes_that_they_are_drained() -> None:
    job = job_of(workload(50, 50, iops=10, depth=8))
    assert (job.iodepth, job.think_us, job.rates) == (8, 100_000, None)
    assert any("rarely more than one is outstanding" in note for note in job.notes)


def test_a_rare_op_of_a_fast_workload_occurs_and_a_note_gives_its_rate() -> None:
    """0.5 writes per second and 1000 reads: with 100 % reads fio would issue no write."""
    job = job_of(workload(19_990, 10, iops=1000))
    assert job.rates is not None
    assert (list(job.rates.values()), job.read_percent) == ([1000, 1], 99)
    note = "the workload has 0.5 writes per second, the job 1: fio's rates are whole accesses per second"
    assert note in job.notes


@pytest.mark.parametrize(
    ("depth", "why"), [(None, "the trace does not contain"), (8, "several accesses outstanding")]
)
def test_the_note_gives_the_right_reason_for_rates(depth: int | None, why: str) -> None:
    (note,) = (n for n in job_of(workload(500, 500, iops=1000, depth=depth)).notes if "rate_iops" in n)
    assert why in note


@pytest.mark.fio
@needs_fio
def test_fio_keeps_a_slow_pace_and_its_mix(tmp_path: Path) -> None:
    """10 accesses per second, of which 30 % are writes, for 6 seconds."""
    text = text_of(workload(70, 30, iops=10), tmp_path / "data", seconds=6, nbytes=64 << 20)
    (tmp_path / "job.fio").write_text(text)
    done = subprocess.run(
        ["fio", "--output-format=json", "job.fio"],
        check=True,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
    )
    found = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
    n_reads, n_writes = (found[op]["total_ios"] for op in ("read", "write"))
    took_ms = sum(found[op]["lat_ns"]["mean"] * found[op]["total_ios"] for op in ("read", "write")) / 1e6
    assert n_reads + n_writes == pytest.approx((found["job_runtime"] - took_ms) / 100, abs=3)
    assert 8 <= n_writes <= 28  # 18 on average, and fio draws at random


def in_flight(path: Path, depths: list[int]) -> Path:
    """Bursts of ``depths`` accesses that begin within one microsecond, one second apart."""
    rows = [
        f"{1_000_000_000 * burst + i % 1000},r,{4096 * i},4096,500000000\n"
        for burst, depth in enumerate(depths)
        for i in range(depth)
    ]
    path.write_text("".join(rows))
    return path


COLUMNS = ("--columns", "time:ns,op,offset:bytes,length:bytes,latency:ns")


@pytest.mark.parametrize(("deepest", "iodepth"), [(33, 32), (50, 48), (128, 124), (1000, 960), (20_000, 19_456)])
def test_a_job_is_as_deep_as_95_percent_of_the_accesses_were(tmp_path: Path, deepest: int, iodepth: int) -> None:
    """Of a burst of n the k-th finds k in flight: 95 % find 0.95 n, exactly up to 64, then to within 1/16."""
    trace = in_flight(tmp_path / "t", [deepest])
    job = json.loads(run("jobs", trace, *COLUMNS, "--pace", "full-speed", "--json").stdout)
    (section,) = job["sections"]
    assert section["iodepth"] == iodepth
    assert f"iodepth={iodepth}" in job["job"].splitlines()
    assert 0.95 * deepest <= iodepth <= max(0.95 * deepest * (1 + 1 / 16), 0.95 * deepest + 1)


def test_percentiles_of_what_is_in_flight_join_over_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from cephfit.traces import profile_files
    from cephfit.traces.counting import shares
    from cephfit.traces.recordings import ReadOptions

    trace, options = in_flight(tmp_path / "t", [300, 5, 2000]), ReadOptions(columns=COLUMNS[1])
    whole = profile_files([trace], options=options).description["percentiles"]["outstanding"]
    assert whole["all"] == whole["read"]
    assert whole["all"]["n"] == 2305
    monkeypatch.setattr(shares, "PART_NBYTES", 10_000)
    assert profile_files([trace], options=options).description["percentiles"]["outstanding"] == whole


def test_a_histogram_that_ends_too_early_is_noted() -> None:
    """The last bucket of vscsiStats is "above 64"."""
    counted = counts_profile(100, 0, random=1.0)
    depths = {"all": {"limits": DEPTHS, "counts": [0] * len(DEPTHS) + [100]}}
    about = {"iops": 1000.0, "histograms": {"outstanding": depths}}
    job = job_of(Profile("deep", counted.accesses, counted.random, None, about))
    assert job.iodepth == 64
    assert any(note.startswith("more than 64 were outstanding") for note in job.notes)
