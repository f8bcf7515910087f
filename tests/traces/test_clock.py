"""Traces with a coarse clock: finer values are omitted, and the shown values are right."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_trace_views import run

from cephfit.core.units import NS_PER_MS, NS_PER_S
from cephfit.traces.columns import AccessBatch
from cephfit.traces.description.recording import PartialProfile
from cephfit.traces.readers.delimited.delimited_formats import FORMATS
from cephfit.traces.readers.delimited.delimited_reader import DelimitedReader
from cephfit.traces.readers.oracle_general import RECORD
from cephfit.traces.readers.reader import clock_ns_of
from cephfit.traces.stream import TraceStream

SECONDS, RATE = 700, 20


def tencent(path: Path) -> Path:
    """20 accesses per second at a constant rate: 10 reads and 10 writes."""
    rows = (f"{1538323200 + i // RATE},{8 * i},8,{i % 2},1063\n" for i in range(SECONDS * RATE))
    path.write_text("".join(rows))
    return path


def oracle_general(path: Path) -> Path:
    rows = np.zeros(SECONDS * RATE, RECORD)
    rows["time"], rows["id"] = np.arange(SECONDS * RATE) // RATE, 8 * np.arange(SECONDS * RATE)
    rows["nbytes"], rows["next"] = 4096, -1
    path.write_bytes(rows.tobytes())
    return path


def strace(path: Path) -> Path:
    """``strace -t -T``: each call takes 50 us, and two are never in flight."""
    lines = ['09:00:00 openat(AT_FDCWD, "/d/f", O_RDWR) = 3 <0.000010>\n']
    for i in range(SECONDS * RATE):
        minutes, seconds = divmod(i // RATE, 60)
        op = "pread64" if i % 2 else "pwrite64"
        lines.append(f'09:{minutes:02}:{seconds:02} {op}(3, ""..., 4096, {4096 * i}) = 4096 <0.000050>\n')
    path.write_text("".join(lines))
    return path


def seconds_of_columns(path: Path) -> Path:
    path.write_text("".join(f"{i // RATE},r,{4096 * i},4096\n" for i in range(SECONDS * RATE)))
    return path


WAYS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "tencent": (tencent, ()),
    "oracle-general": (oracle_general, ("--assume-op", "read")),
    "strace": (strace, ()),
    "columns": (seconds_of_columns, ("--columns", "time:s,op,offset:bytes,length:bytes")),
}


@pytest.mark.parametrize("name", WAYS)
def test_a_steady_workload_looks_steady_by_a_clock_of_whole_seconds(tmp_path: Path, name: str) -> None:
    """Bins of 0.512 or 1.024 s would hold zero, one or two seconds and show false bursts."""
    made, how = WAYS[name]
    document = json.loads(run("show", made(tmp_path / "t"), *how, "--json").stdout)
    about = document["description"]
    assert about["clock_seconds"] == 1
    bursts = about["behaviour"]["burstiness"]
    assert [row["window_seconds"] for row in bursts] == [1, 4, 16, 64]
    assert {(row["peak_to_mean"], row["index_of_dispersion"]) for row in bursts} == {(1, 0)}
    over = about["behaviour"]["over_time"]
    assert over["bin_seconds"] == 2  # of 700 s in at most 512 bins
    both = [r + w for r, w in zip(over["reads"], over["writes"], strict=True)]
    assert set(both[1:-1]) == {2 * RATE}
    assert len(about["behaviour"]["phases"]) == 1
    assert "interarrival_us" not in about["histograms"]
    # One of 20 gaps is a second, the others are shorter; the clock shows no more.
    assert list(about["percentiles"]["interarrival_us"]["all"]) == ["n", "p99", "p99.9"]
    assert any(words.startswith("time: ") for words in about["lacks"])


def test_whole_seconds_do_not_show_accesses_in_flight(tmp_path: Path) -> None:
    """All 20 accesses of a second would seem to begin at once, and to be in flight together."""
    about = json.loads(run("show", strace(tmp_path / "t"), "--json").stdout)["description"]
    assert "outstanding" not in about["histograms"]
    assert "outstanding accesses" in about["lacks"]
    assert about["behaviour"]["busy_share"] is None
    assert {disk["busy_share"] for disk in about["behaviour"]["disks"].values()} == {None}
    assert about["percentiles"]["latency_us"]["all"]["p50"] == pytest.approx(50, rel=0.04)


def test_the_terminal_shows_nothing_finer_than_the_clock(tmp_path: Path) -> None:
    shown = run("show", tencent(tmp_path / "t")).stdout
    assert "0.001 us" not in shown
    assert "the clock has steps of 1 s; less is not shown" in shown
    assert "burstiness at 0." not in shown
    assert "Inter-arrival" not in shown


def test_parquet_keeps_the_clock_of_the_trace(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    run("convert", strace(tmp_path / "t"), "-o", tmp_path / "t.parquet")
    original, found = (
        json.loads(run("show", tmp_path / name, "--json").stdout)["description"] for name in ("t", "t.parquet")
    )
    for about in (original, found):
        about.pop("sources")
    assert found == original


def test_parts_that_are_read_concurrently_give_the_same_description(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cephfit.traces import profile_files
    from cephfit.traces.counting import shares

    trace = tencent(tmp_path / "t")
    whole = profile_files([trace], full=True)
    monkeypatch.setattr(shares, "PART_NBYTES", 50_000)
    assert profile_files([trace], full=True).description == whole.description


def test_milliseconds_keep_the_limits_that_they_resolve(tmp_path: Path) -> None:
    """Gaps of 0 and of 8 ms; the buckets below 1 ms are one."""
    (tmp_path / "t").write_text("".join(f"{8 * (i // 2)},r,{4096 * i},4096\n" for i in range(100)))
    found = json.loads(
        run("profile", tmp_path / "t", "--columns", "time:ms,op,offset:bytes,length:bytes", "--json").stdout
    )
    gaps = found["description"]["histograms"]["interarrival_us"]["all"]
    assert gaps["limits"] == [1000, 5000, 15000, 30000, 50000, 100000]
    assert gaps["counts"] == [50, 0, 49, 0, 0, 0, 0]
    assert found["description"]["clock_seconds"] == 0.001


@pytest.mark.parametrize(
    ("times", "clock_ns"),
    [
        ((b"1", b"2"), NS_PER_S),
        ((b"1.5", b"2.5 "), NS_PER_S // 10),
        ((b"1", b"2.5 "), 1),
        ((b"1", b"2.5", b"2.5001"), NS_PER_S // 10_000),
        ((b"1.000", b"2.000"), NS_PER_MS),
        ((b"1.123456789",), 1),
        ((b"1.123456789012",), 1),
        ((), 1),
    ],
)
def test_the_digits_show_the_clock(times: tuple[bytes, ...], clock_ns: int) -> None:
    assert clock_ns_of(times, NS_PER_S) == clock_ns


COLUMNS = ("--columns", "time:s,op,offset:bytes,length:bytes,latency:s")


def rows_at(times: Iterable[str]) -> str:
    return "".join(f"{time},r,{4096 * i},4096,0.0003\n" for i, time in enumerate(times))


def test_an_additional_idle_disk_does_not_make_the_clock_coarse(tmp_path: Path) -> None:
    """Two accesses at whole seconds by chance."""
    (tmp_path / "a.csv").write_text(rows_at(f"{i * 0.0005:.4f}" for i in range(1000)))
    (tmp_path / "b.csv").write_text(rows_at("01"))
    for disks in (["a.csv"], ["a.csv", "b.csv"], ["b.csv", "a.csv"]):
        found = run("profile", *(tmp_path / disk for disk in disks), *COLUMNS, "--json").stdout
        about = json.loads(found)["description"]
        assert about["clock_seconds"] == 0.0001
        assert {"interarrival_us", "outstanding"} <= about["histograms"].keys()
        assert about["percentiles"]["interarrival_us"]["all"]["p50"] == pytest.approx(500, rel=0.04)
        assert "p50" in about["percentiles"]["outstanding"]["all"]


def test_a_known_coarse_clock_remains_if_recordings_are_read_together(tmp_path: Path) -> None:
    """``strace -t`` always prints whole seconds, ``-tt`` never."""
    strace(tmp_path / "t")
    fine = (tmp_path / "t").read_text().replace(" openat", ".000000 openat").replace(" p", ".000100 p")
    (tmp_path / "tt").write_text(fine)
    found = json.loads(run("profile", tmp_path / "t", tmp_path / "tt", "--json").stdout)
    assert found["description"]["clock_seconds"] == 1
    assert "outstanding" not in found["description"]["histograms"]


@pytest.mark.parametrize("begin", ["%.2f", "%g"])
def test_later_finer_times_revoke_a_coarse_clock(tmp_path: Path, begin: str) -> None:
    early = [begin % (i / 4) for i in range(1100)]
    late = [f"{300 + i * 0.00051:.7g}" for i in range(3000)]
    (tmp_path / "t").write_text(rows_at([*early, *late]))
    pytest.importorskip("pyarrow")
    run("convert", tmp_path / "t", *COLUMNS, "-o", tmp_path / "t.parquet")
    for name, how in (("t", COLUMNS), ("t.parquet", ())):
        about = json.loads(run("show", tmp_path / name, *how, "--json").stdout)["description"]
        assert about["clock_seconds"] is None
        assert about["lacks"] == []
        assert about["percentiles"]["interarrival_us"]["all"]["p50"] == pytest.approx(510, rel=0.04)
        assert about["histograms"]["interarrival_us"]["all"]["limits"][0] == 1
        assert "outstanding" in about["histograms"]
        assert about["behaviour"]["busy_share"] is not None


@pytest.mark.parametrize("clock_ns", [3, 1000, NS_PER_MS, NS_PER_S, 10 * NS_PER_S])
def test_gaps_of_one_step_are_not_below_the_step(clock_ns: int) -> None:
    def recorded(gap_ns: int) -> PartialProfile:
        times = np.array([0, 0, gap_ns])
        zeros = np.zeros(3, np.int64)
        return PartialProfile.of(
            AccessBatch(times, zeros.astype(np.uint8), zeros, zeros + 512, zeros.astype(np.int32), ("a",))
        )

    assert not recorded(clock_ns).has_gaps_below(clock_ns)
    assert recorded(clock_ns * 9 // 10).has_gaps_below(clock_ns)


def test_a_file_without_times_has_no_coarse_clock(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("r,0,4096\nr,4096,4096\n")
    found = json.loads(
        run("profile", tmp_path / "t", "--columns", "op,offset:bytes,length:bytes", "--json").stdout
    )
    assert found["description"]["clock_seconds"] is None


def test_the_bytes_read_for_the_clock_stay_in_the_stream(tmp_path: Path) -> None:
    (reader,) = (DelimitedReader(layout) for layout in FORMATS if layout.name == "tencent")
    with TraceStream(tencent(tmp_path / "t")) as stream:
        assert reader.clock_ns(stream) == NS_PER_S
        assert sum(len(batch) for batch in reader.read(stream)) == SECONDS * RATE
