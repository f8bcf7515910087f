"""What we count of real recordings, held against what btt counts of them."""

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from test_more_formats import GOLDEN

from cephfit.traces.columns import AccessBatch
from cephfit.traces.readers.blktrace.blktrace_reader import BlktraceReader
from cephfit.traces.readers.block_events.block_layer import Action

pytestmark = pytest.mark.skipif(
    shutil.which("btt") is None or shutil.which("blkparse") is None, reason="btt and blkparse are not installed"
)
_SECONDS = re.compile(r"^(?P<what>Q2Q|Q2C|D2C)(?:dm)?" + r"\s+(\d+\.\d{9})" * 3 + r"\s+(?P<n>\d+)", re.M)
_MERGED = re.compile(r"^ \(\d+, *\d+\) \|" + r"\s+(\d+)" * 2 + r"\s+[\d.]+ \|" + r"\s+(\d+)" * 4 + r"$", re.M)


def recorded_in_a_guest(folder: Path) -> str:
    """By blktrace 1.2.0 in a guest of Linux 6.1: 120 accesses of a virtio disk, up to 4 in flight."""
    shutil.copy(GOLDEN / "guest.blktrace.0", folder)
    return "guest"


def recorded_by_others(folder: Path, samples: Path) -> str:
    """963 accesses of an NVMe disk, all on CPU 1 in a file named 0: blkparse wants it named 1."""
    shutil.copy(samples / "blktrace/takeoverjp/sample.blktrace.0", folder / "sample.blktrace.1")
    (folder / "sample.blktrace.0").touch()
    return "sample"


@pytest.fixture(params=["guest", "others"])
def recording(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with a recording as blktrace left it, the dump of it, and btt's averages and latencies."""
    if request.param == "guest":
        name = recorded_in_a_guest(tmp_path)
    else:
        name = recorded_by_others(tmp_path, request.getfixturevalue("samples"))
    for argv in (
        ["blkparse", "-q", "-O", "-i", name, "-d", "dump"],
        ["btt", "-i", "dump", "-o", "btt", "-l", "d2c", "-q", "q2c"],
    ):
        subprocess.run(argv, cwd=tmp_path, capture_output=True, check=True, timeout=60)
    return tmp_path


def read(folder: Path, action: Action) -> list[AccessBatch]:
    files = sorted(f for f in folder.glob("*.blktrace.*") if f.stat().st_size)
    return list(BlktraceReader(action).batches(files[0]))


def column(batches: list[AccessBatch], name: str) -> np.ndarray:
    return np.concatenate([getattr(b, name) for b in batches if len(b)])


def ns(seconds: str) -> int:
    return int(seconds.replace(".", ""))


def test_numbers_sizes_and_times_are_those_of_btt(recording: Path) -> None:
    average = (recording / "btt.avg").read_text()
    n_queued, n_issued, smallest, mean, largest, total = map(int, _MERGED.search(average).groups())  # type: ignore[union-attr]
    reported = {m["what"]: (*map(ns, m.groups()[1:4]), int(m["n"])) for m in _SECONDS.finditer(average)}
    assert set(reported) == {"Q2Q", "Q2C", "D2C"}
    queued, issued = read(recording, Action.QUEUE), read(recording, Action.ISSUE)
    n_blocks = column(issued, "nbytes") // 512
    assert (len(column(queued, "lbn")), len(n_blocks)) == (n_queued, n_issued)
    assert (n_blocks.min(), n_blocks.max(), n_blocks.sum()) == (smallest, largest, total)
    assert n_blocks.mean() == pytest.approx(mean, abs=1)
    for what, found in (
        ("Q2Q", np.diff(column(queued, "time_ns"))),
        ("Q2C", column(queued, "latency_ns")),
        ("D2C", column(issued, "latency_ns")),
    ):
        assert (found.min(), found.max(), len(found)) == (reported[what][0], reported[what][2], reported[what][3])
        assert found.mean() == pytest.approx(reported[what][1], abs=1)


@pytest.mark.parametrize(("action", "name"), [(Action.QUEUE, "q2c"), (Action.ISSUE, "d2c")])
def test_every_latency_is_that_of_btt(recording: Path, action: Action, name: str) -> None:
    """btt prints them in microseconds, in the order of completion."""
    (file,) = recording.glob(f"{name}_*_{name}.dat")
    theirs = sorted(float(line.split()[1]) * 1e6 for line in file.read_text().splitlines())
    ours = np.sort(column(read(recording, action), "latency_ns")) / 1000
    assert ours == pytest.approx(theirs, abs=1)
