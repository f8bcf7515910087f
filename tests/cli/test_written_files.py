"""Atomic output files: links, concurrent writers, killed writers."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cephfit.cli.output import write_whole, written_whole


def test_the_target_of_a_link_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "archive").mkdir()
    real, link = tmp_path / "archive" / "july.html", tmp_path / "latest.html"
    real.write_text("old")
    link.symlink_to("archive/july.html")
    write_whole(link, "new", what="the report")
    assert link.is_symlink() and real.read_text() == "new"
    assert [p.name for p in real.parent.iterdir()] == ["july.html"]
    real.unlink()
    write_whole(link, "again", what="the report")
    assert link.is_symlink() and real.read_text() == "again"


WRITER = """
import sys, time
from pathlib import Path
from cephfit.cli.output import written_whole
with written_whole(Path(sys.argv[1]), what="the report") as place:
    place.write_text("other")
    print("half", flush=True)
    sys.stdin.read()
"""


def other_writer(path: Path) -> "subprocess.Popen[str]":
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "half\n"
    return process


def test_two_writers_of_one_file_do_not_disturb_each_other(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    with other_writer(target) as other:
        write_whole(target, "mine", what="the report")
        assert target.read_text() == "mine"
    assert other.returncode == 0
    assert target.read_text() == "other"
    assert list(tmp_path.iterdir()) == [target]


def test_files_of_a_killed_writer_are_removed_by_the_next(tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    with other_writer(target) as other:
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
        (left,) = tmp_path.iterdir()
    for more in ("-wal", "-shm"):  # of a database
        left.with_name(left.name + more).touch()
    write_whole(target, "mine", what="the report")
    assert list(tmp_path.iterdir()) == [target]


def test_the_content_is_on_disk_before_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    fsync, replace = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (done.append("fsync"), fsync(descriptor))[1])
    monkeypatch.setattr(Path, "replace", lambda self, to: (done.append("replace"), replace(self, to))[1])
    with written_whole(tmp_path / "r.html", what="the report") as place:
        place.write_text("mine")
    assert done == ["fsync", "replace", "fsync"]
