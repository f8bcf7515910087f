"""What a trace lacks is reported for every format, on the terminal and in the profile."""

import json
from pathlib import Path

import pytest
from test_formats import WHOLE
from test_more_formats import ORACLE
from test_trace_views import run
from test_vscsi import record_1, record_2

from cephfit.traces import formats

COLUMNS = ("--columns", "offset:bytes,length:bytes,op")
BLKPARSE_F = ("--blkparse-format", "%d %S %n\\n")

LACKS = {
    "blktrace": ("lost events",),
    "blktrace-8": ("lost events",),
    "blkparse": (),
    "blkparse-2": ("lost events",),
    "blkparse-f": ("time", "device", "action", "lost events", "latency"),
    "block-events": ("lost events", "latency: of 1 of the 2 accesses"),
    "biosnoop": ("order",),
    "xperf": (),
    "iosnoop": (),
    "disksim-validate": (),
    "vscsi-histogram": ("order", "times"),
    "vscsi-csv": ("latency",),
    "vscsi-binary": ("latency",),
    "vscsi-binary-2": (),
    "qemu": ("latency", "names"),
    "qemu-2": ("time", "latency", "names"),
    "rbd-replay": ("time", "latency"),
    "fio-iolog": ("latency",),
    "fio-iolog-2": ("time: version 2 has only waits", "time: all accesses have the same one", "latency"),
    "fio-iolog-2-waits": ("time: version 2 has only waits", "latency"),
    "blkreplay": ("latency: of 1 of the 2 accesses",),
    "strace": ("the place on the disk",),
    "msr": (),
    "spc": ("latency",),
    "alibaba": ("latency",),
    "tencent": ("time", "latency"),
    "systor17": ("latency: of 1 of the 2 accesses",),
    "fiu": ("latency",),
    "mqsim": ("latency",),
    "disksim": ("latency",),
    "oracle-general": ("op", "time", "latency"),
    "columns": ("time", "latency"),
    "parquet": ("latency",),
}
"""By format, as docs/formats.md lists it, and by variant: the beginning of each sentence."""

VERSION_2 = "fio version 2 iolog\nf add\nf open\nf read 0 4096\n{}f write 8192 4096\nf read 65536 4096\nf close\n"
CONTENT = {
    **WHOLE,
    "blkparse-2": b"".join(line for line in WHOLE["blkparse"].splitlines(True) if not line.startswith(b"Skips")),
    "vscsi-binary": b"".join(record_1(0x28, 8 * i, time_us=i) for i in range(20)),
    "vscsi-binary-2": b"".join(record_2(0x28, 8 * i, time_us=i) for i in range(20)),
    "qemu-2": b"".join(line.partition(b":")[2] for line in WHOLE["qemu"].splitlines(keepends=True)),
    "oracle-general": ORACLE,
    "columns": b"0,4096,R\n4096,4096,W\n",
    "blkparse-f": b"R 0 8\nW 8 8\n",
    "fio-iolog-2": VERSION_2.format("").encode(),
    "fio-iolog-2-waits": VERSION_2.format("f wait 500 0\n").encode(),
}
OPTIONS = {"oracle-general": ("--assume-op", "read"), "columns": COLUMNS, "blkparse-f": BLKPARSE_F}


@pytest.fixture
def trace(tmp_path: Path, name: str) -> Path:
    file = tmp_path / "trace"
    if name != "parquet":
        file.write_bytes(CONTENT[name])
        return file
    pytest.importorskip("pyarrow")
    file.write_bytes(WHOLE["alibaba"])
    run("convert", file, "-o", tmp_path / "trace.parquet")
    return tmp_path / "trace.parquet"


def test_every_format_reports_what_it_lacks() -> None:
    assert {name.removesuffix("-8").partition("-2")[0] for name in LACKS} == set(formats.titles())


@pytest.mark.parametrize("name", LACKS)
def test_what_a_format_lacks_is_on_the_terminal_and_in_the_profile(trace: Path, name: str) -> None:
    options = OPTIONS.get(name, ())
    found = json.loads(run("profile", trace, *options, "--json").stdout)["description"]
    starts = [words for words in LACKS[name] if not any(lack.startswith(words) for lack in found["lacks"])]
    assert not starts, found["lacks"]
    assert len(found["lacks"]) == len(LACKS[name]), found["lacks"]
    shown = run("profile", trace, *options).stdout.splitlines()
    start = "the trace does not contain: "
    assert [line.removeprefix(start) for line in shown if start in line] == found["lacks"]


@pytest.mark.parametrize("name", LACKS)
def test_nothing_is_invented_that_a_trace_lacks(trace: Path, name: str) -> None:
    about = json.loads(run("profile", trace, *OPTIONS.get(name, ()), "--describe", "full", "--json").stdout)
    found = about["description"]
    histograms = found["histograms"]
    if name == "vscsi-histogram":  # its inter-arrival is vscsiStats' own, when each access came is not known
        assert found["duration_seconds"] is None
        assert not {"iops", "bytes_per_second", "percentiles", "behaviour"} & set(found)
        assert (found["lost_events"], about.get("random_by_bin")) == (None, None)
        assert all(sum(row["counts"]) > 0 for row in histograms["size"].values())
        return
    assert "latency_us" in histograms or any(lack.startswith("latency") for lack in found["lacks"])
    is_timed = found["duration_seconds"] > 0
    is_fine = (found["clock_seconds"] or 0) < 0.1
    assert ("interarrival_us" in histograms, "iops" in found) == (is_timed and is_fine, is_timed)
    assert ("interarrival_us" in found["percentiles"]) == is_timed
    assert bool(found["behaviour"]["over_time"]) == bool(found["behaviour"]["phases"]) == is_timed


@pytest.mark.parametrize("name", ["fio-iolog-2", "qemu-2", "columns", "blkparse-f"])
def test_without_times_there_is_no_inter_arrival(trace: Path, name: str) -> None:
    shown = run("show", trace, *OPTIONS.get(name, ())).stdout
    assert "the trace does not contain: time" in shown
    assert "inter-arrival of" not in shown
    assert "IOPS" not in shown.partition("size bin")[0]
    assert "Over time: not available" in shown
