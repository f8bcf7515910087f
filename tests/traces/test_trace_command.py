"""`cephfit trace` on the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_in_process import run_in_process
from trace_maker import Event, mixed_workload, packed, write

from cephfit.core.values.profile import Profile


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return run_in_process("trace", *arguments)


def test_profile_writes_a_file_and_prints_a_summary(tmp_path: Path) -> None:
    trace = write(tmp_path / "t", mixed_workload(100))
    done = run("profile", trace, "-o", tmp_path / "profile.json", "--name", "db")
    assert done.returncode == 0, done.stderr
    assert "db: 100 accesses" in done.stdout
    found = Profile.loads((tmp_path / "profile.json").read_text())
    assert (found.name, found.n_accesses) == ("db", 100)


def test_json_is_the_profile(tmp_path: Path) -> None:
    trace = write(tmp_path / "t", mixed_workload(100))
    document = json.loads(run("profile", trace, "--json", "--action", "D").stdout)
    assert document["schema_version"] == 2
    assert sum(document["accesses"]["read"].values()) + sum(document["accesses"]["write"].values()) == 100
    assert document["description"]["action"] == "D"


def test_standard_input(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "cephfit.cli.main", "trace", "profile", "-", "--json"]
    trace = packed(mixed_workload(10))
    document = json.loads(subprocess.run(argv, input=trace, capture_output=True, timeout=60, check=True).stdout)
    assert sum(document["accesses"]["read"].values()) + sum(document["accesses"]["write"].values()) == 10


def test_all_files_of_a_capture_may_be_named(tmp_path: Path) -> None:
    """`trace/*` also matches the record of the capture."""
    write(tmp_path / "t.blktrace.0", mixed_workload(10))
    (tmp_path / "t.capture.json").write_text('{"method": "tracefs", "lost_events": 0}')
    done = run("profile", *sorted(tmp_path.iterdir()))
    assert done.returncode == 0, done.stderr
    assert "t: 10 accesses" in done.stdout


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (packed([Event(1), Event(2)])[:-5], "byte 48: the trace is cut off"),
        (b"", "the trace is empty"),
        (b"what is this", "supported are blktrace, blkparse"),
    ],
)
def test_wrong_traces_are_clear_errors_with_exit_code_2(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "t").write_bytes(content)
    done = run("profile", tmp_path / "t")
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unknown_format_name_lists_the_known_ones(tmp_path: Path) -> None:
    done = run("profile", write(tmp_path / "t", [Event(1)]), "--format", "nonsense")
    assert done.returncode == 2
    assert "supported are blktrace, blkparse, vscsi-csv" in done.stderr


def test_capture_of_no_device(tmp_path: Path) -> None:
    done = run("capture", "/dev/no-such-disk", "--seconds", "1", "-o", tmp_path / "x")
    assert done.returncode == 2
    assert "no such device" in done.stderr


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_capture_without_root_is_refused(tmp_path: Path) -> None:
    disk = next((p for p in Path("/dev").iterdir() if p.is_block_device()), None)
    if disk is None:
        pytest.skip("no block device")
    code = f"""
import os
from pathlib import Path
from cephfit.traces.capturing.capture import capture
os.setuid(65534)
capture(Path({str(disk)!r}), 1, Path("x"))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "HostError" in done.stderr
    assert "needs root" in done.stderr
