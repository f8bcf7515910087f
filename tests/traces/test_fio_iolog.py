"""fio's I/O logs: as its documentation has them, and as the real fio writes them."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from test_trace_views import needs_fio, run

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op
from cephfit.traces import profile_files
from cephfit.traces.replay.fio_replay import read_log

FIO = [
    *("fio", "--name=a", "--filename=file", "--size=16m", "--rw=randrw", "--bsrange=4k-128k", "--io_size=8m"),
    *("--ioengine=psync", "--write_iolog=log", "--output-format=json"),
]

VERSION_3 = """\
fio version 3 iolog
18 /dev/vdb add
123 /dev/vdb open
126 /dev/vdb read 4096 8192
200 /dev/vdb write 12288 65536
210 /dev/vdb sync 0 0
215 /dev/vdb trim 0 4096
1271225 /dev/vdb close
"""

VERSION_2 = """\
fio version 2 iolog
/dev/vdb add
/dev/vdb open
/dev/vdb wait 300 0
/dev/vdb read 4096 8192
/dev/vdb wait 374 0
/dev/vdb write 12288 65536
/dev/vdb sync 0 0
/dev/vdb trim 0 4096
/dev/vdb close
"""


@pytest.mark.parametrize(("text", "seconds"), [(VERSION_2, 0.074), (VERSION_3, 74e-6)])
def test_both_versions(tmp_path: Path, text: str, seconds: float) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    found = profile_files([path])
    assert (found.accesses[Op.READ]["4K"], found.accesses[Op.WRITE]["128K"]) == (1, 1)
    assert list(found.description["disks"]) == ["/dev/vdb"]
    assert found.description["skipped"] == {"discard": 1, "flush": 1}
    assert found.description["duration_seconds"] == pytest.approx(seconds)


def test_an_unknown_version(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(VERSION_3.replace("version 3", "version 4"))
    with pytest.raises(InputError, match="versions 2 and 3 are supported"):
        profile_files([path])


def test_an_invalid_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(VERSION_3 + "1271300 /dev/vdb read 4096\n")
    with pytest.raises(InputError, match="not a line of fio's I/O log") as caught:
        profile_files([path])
    assert caught.value.where == f"{path}, line 9"


@pytest.mark.fio
@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_a_log_of_the_real_fio_has_its_reported_totals(tmp_path: Path) -> None:
    done = subprocess.run(
        FIO,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
    found = profile_files([tmp_path / "log"])
    for op in Op:
        assert sum(found.accesses[op].values()) == job[op.value]["total_ios"]
        assert found.description["nbytes"][op.value] == job[op.value]["io_bytes"]


@pytest.mark.fio
@needs_fio
def test_a_log_of_the_real_fio_with_every_kind_of_sync(tmp_path: Path) -> None:
    """``sync_file_range`` starts the writeback of pages; it is no flush of the disk's cache."""
    syncs = ["--sync_file_range=write:4", "--fdatasync=8"]
    command = ["fio", "--name=a", "--filename=f", "--size=64k", "--rw=write", "--bs=4k", "--ioengine=sync"]
    subprocess.run(
        [*command, *syncs, "--write_iolog=log"], cwd=tmp_path, check=True, capture_output=True, timeout=60
    )
    found = profile_files([tmp_path / "log"], demands=True)
    assert found.n_accesses == 16
    assert found.description["skipped"] == {"flush": 1, "writeback": 2}
    assert found.commits is not None
    assert found.commits.flushes == 1


@pytest.mark.fio
@needs_fio
def test_waits_are_those_that_the_real_fio_makes(tmp_path: Path) -> None:
    """fio's manual has microseconds between the waits. fio waits until so many milliseconds after its start."""
    rows = "".join(f"{at},R,{8192 * at},4096\n" for at in (0, 300, 310, 900))
    (tmp_path / "t.csv").write_text(rows)
    (tmp_path / "target").write_bytes(bytes(8 << 20))
    columns = ("--columns", "time:ms,op,offset,length")
    run("convert", tmp_path / "t.csv", *columns, "-o", tmp_path / "t.iolog", "--iolog-version", "2")
    options = [f"--replay_redirect={tmp_path}/target", "--write_lat_log=l", "--log_offset=1", "--ioengine=psync"]
    command = ["fio", "--name=r", "--read_iolog=t.iolog", *options]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=60)
    issued, _ = read_log(tmp_path / "l_lat.1.log")
    assert (issued.time_ms - issued.time_ms[0]).tolist() == pytest.approx([0, 300, 310, 900], abs=60)
    found = profile_files([tmp_path / "t.iolog"]).description
    assert (found["duration_seconds"], found["clock_seconds"]) == (0.9, 0.001)


def test_a_wait_of_centuries_is_named(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"fio version 2 iolog\nf add\nf read 0 512\nf wait {1 << 50} 0\nf read 0 512\n")
    with pytest.raises(InputError, match="wait of less than a century") as caught:
        profile_files([tmp_path / "log"])
    assert caught.value.where.endswith("line 4")


def test_disks_with_names_that_differ_only_in_blanks_stay_separate(tmp_path: Path) -> None:
    """In a log a blank ends a name: two disks with one name would be replayed onto the same places."""
    rows = [
        f"{i},{disk},R,{4096 * i},{4096 * (1 + n)}\n" for i in range(4) for n, disk in enumerate(["a b", "a_b"])
    ]
    (tmp_path / "t.csv").write_text("".join(rows))
    columns = ("--columns", "time:ms,disk,op,offset,length")
    run("convert", tmp_path / "t.csv", *columns, "-o", tmp_path / "t.iolog")
    disks = profile_files([tmp_path / "t.iolog"]).description["disks"]
    assert {name: disk["nbytes"]["read"] for name, disk in disks.items()} == {
        "disk-a_b": 4 * 4096,
        "disk-a_b-2": 4 * 8192,
    }


STRACE = """\
1700000000.000001 openat(AT_FDCWD, "{file}", O_RDWR) = 3 <0.000010>
1700000000.000100 pwrite64(3, ""..., 100, 0) = 100 <0.000020>
1700000000.000200 pwrite64(3, ""..., 100, 700) = 100 <0.000020>
1700000000.000300 pread64(3, ""..., 4096, 4096) = 4096 <0.000020>
"""


@pytest.fixture
def of_a_program(tmp_path: Path) -> tuple[Path, Path]:
    """What strace recorded of a program that accesses a file, and this file."""
    own, trace = tmp_path / "own.db", tmp_path / "t.strace"
    own.write_bytes(b"precious" * 4096)
    trace.write_text(STRACE.format(file=own))
    return trace, own


@pytest.mark.fio
@needs_fio
@pytest.mark.parametrize("version", ["2", "3"])
def test_a_log_never_names_the_files_of_the_program_that_was_traced(
    of_a_program: tuple[Path, Path], tmp_path: Path, version: str
) -> None:
    """fio would write to them. Sizes are whole blocks, as fio's direct I/O requires, which is reported."""
    trace, own = of_a_program
    log, target = tmp_path / "t.iolog", tmp_path / "target"
    said = run("convert", trace, "-o", log, "--iolog-version", version).stdout
    assert "2 accesses have sizes that are not multiples of 512 bytes" in said
    assert f"in the log: disk {own}" in said
    assert str(own) not in log.read_text()
    assert re.findall(r"(read|write) (\d+ \d+)$", log.read_text(), re.MULTILINE) == [
        *(("write", "0 512"), ("write", "512 512"), ("read", "4096 4096"))
    ]
    target.write_bytes(bytes(1 << 16))
    arguments = ["--name=r", f"--read_iolog={log}", f"--replay_redirect={target}", "--direct=1"]
    subprocess.run(["fio", *arguments], cwd=tmp_path, check=True, capture_output=True, timeout=60)
    assert own.read_bytes() == b"precious" * 4096
    assert any(target.read_bytes()[:1024])
    assert not list(tmp_path.glob("disk-*"))


@pytest.mark.fio
@needs_fio
def test_a_program_is_replayed_in_whole_blocks(of_a_program: tuple[Path, Path], tmp_path: Path) -> None:
    """Direct I/O of 100 bytes, or at the end of a target of 4 1/2 KiB and a byte, would fail."""
    trace, own = of_a_program
    target = tmp_path / "target"
    target.write_bytes(bytes(8193))
    done = json.loads(run("replay", trace, "--file", target, "--i-know-it-writes", "--wrap", "--json").stdout)
    assert (done["accesses"], done["replayed"], done["rounded"]) == (3, 3, 2)
    assert own.read_bytes() == b"precious" * 4096
