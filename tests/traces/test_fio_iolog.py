"""fio's I/O logs: as its documentation has them, and as the real fio writes them."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from test_trace_views import run

from cephfit.cells import Op
from cephfit.errors import InputError
from cephfit.traces import profile_files

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
/dev/vdb read 4096 8192
/dev/vdb wait 74 0
/dev/vdb write 12288 65536
/dev/vdb sync 0 0
/dev/vdb trim 0 4096
/dev/vdb close
"""


@pytest.mark.parametrize("text", [VERSION_2, VERSION_3])
def test_both_versions(tmp_path: Path, text: str) -> None:
    path = tmp_path / "log"
    path.write_text(text)
    found = profile_files([path])
    assert (found.accesses[Op.READ]["4K"], found.accesses[Op.WRITE]["128K"]) == (1, 1)
    assert list(found.description["disks"]) == ["/dev/vdb"]
    assert found.description["skipped"] == {"discard": 1, "flush": 1}
    assert found.description["duration_seconds"] == pytest.approx(74e-6)


def test_an_unknown_version(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(VERSION_3.replace("version 3", "version 4"))
    with pytest.raises(InputError, match="versions 2 and 3 are known"):
        profile_files([path])


def test_a_line_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(VERSION_3 + "1271300 /dev/vdb read 4096\n")
    with pytest.raises(InputError, match="not a line of fio's I/O log") as caught:
        profile_files([path])
    assert caught.value.where == f"{path}, line 9"


@pytest.mark.fio
@pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")
def test_a_log_of_the_real_fio_has_its_own_totals(tmp_path: Path) -> None:
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


def test_disks_whose_names_differ_in_blanks_only_stay_apart(tmp_path: Path) -> None:
    """In a log a blank ends a name: two of one name would be replayed onto each other's places."""
    rows = [
        f"{i},{disk},R,{4096 * i},{4096 * (1 + n)}\n" for i in range(4) for n, disk in enumerate(["a b", "a_b"])
    ]
    (tmp_path / "t.csv").write_text("".join(rows))
    columns = ("--columns", "time:ms,disk,op,offset,length")
    run("convert", tmp_path / "t.csv", *columns, "-o", tmp_path / "t.iolog")
    disks = profile_files([tmp_path / "t.iolog"]).description["disks"]
    assert {name: disk["nbytes"]["read"] for name, disk in disks.items()} == {"a_b": 4 * 4096, "a_b_2": 4 * 8192}
