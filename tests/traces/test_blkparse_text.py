"""blkparse's default text, line by line."""

import shutil
import subprocess
from pathlib import Path

import pytest
from trace_maker import mixed_workload, write

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op
from cephfit.traces import profile_files

TEXT = """\
  8,0    0        0     0.000000000     0  m   N cfq workload slice:100
  8,0    0        1     0.000001000  4162  Q  WS 1024 + 8 [kworker/0:1 a]
  8,0    0        2     0.000002000  4162  G  WS 1024 + 8 [kworker/0:1 a]
  8,0    0        3     0.000003000  4162  D  WS 1024 + 8 [kworker/0:1 a]
  8,0    1        1     0.000050000     0  C  WS 1024 + 8 [0]
  8,0    1        2     0.000060000  4162  Q   R 1032 + 128 [(null)]
  8,0    1        3     0.000061000  4162  Q FWS [jbd2/sda1-8]
  8,0    1        4     0.000062000  4162  Q  DS 4096 + 2048 [fstrim]
  8,0    1        5     0.000063000  4162  Q   R 36 (12 00 00 00 24 00 ..) [smartd]
  8,0    1        6     0.000064000  4162  Q   N [x]
  8,0    1        7     0.000065000  4162  U   N [x] 2
  8,0    1        8     0.000070000  4162  C   R 1032 + 128 [0]
CPU0 (8,0):
 Reads Queued:           0,        0KiB\t Writes Queued:           1,        4KiB
 Read depth:             1        \t Write depth:             1
 IO unplugs:             1        \t Timer unplugs:           0

Throughput (R/W): 65,165KiB/s / 0KiB/s
Events (8,0): 12 entries
Skips: 0 forward (0 -   0.0%)
Input file sda.blktrace.0 added
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "trace.txt"
    path.write_text(text)
    return path


def test_accesses_and_what_is_skipped(tmp_path: Path) -> None:
    found = profile_files([written(tmp_path, TEXT)])
    assert found.accesses[Op.WRITE]["4K"] == 1
    assert found.accesses[Op.READ]["128K"] == 1
    assert found.n_accesses == 2
    assert found.description["skipped"] == {"discard": 1, "flush": 1, "passthrough": 1, "zero length": 1}
    assert found.description["percentiles"]["latency_us"]["write"]["p50"] == pytest.approx(49, rel=0.04)


OF_PROGRAMS = """\
kworker/0:1 a (4162)
 Reads Queued:           1,       64KiB\t Writes Queued:           1,        4KiB
 Allocation wait:        0        \t Allocation wait:         0
 Dispatch wait:          1        \t Dispatch wait:           1
 Completion wait:       49        \t Completion wait:        49
fio (7, ...)
 Reads Queued:           0,        0KiB\t Writes Queued:           0,        0KiB
"""
"""What ``blkparse -s`` prints before the summary (blkparse 1.2 with -t)."""


def test_the_summary_of_each_program_is_no_event(tmp_path: Path) -> None:
    text = TEXT.replace("CPU0 (8,0):\n", f"{OF_PROGRAMS}CPU0 (8,0):\n")
    found, expected = (profile_files([written(tmp_path, its)]).to_json() for its in (text, TEXT))
    assert found == expected


def test_the_time_of_the_start_is_no_event(tmp_path: Path) -> None:
    """blktrace 1.3 (Debian 13) prints these lines on standard output after the events, 1.2 on standard error."""
    of_1_3 = f"{TEXT}Trace started at Thu Jan  1 00:00:00 1970\n\nInput file sda.blktrace.0 added\n"
    found, expected = (profile_files([written(tmp_path, its)]).to_json() for its in (of_1_3, TEXT))
    assert found == expected


@pytest.mark.skipif(shutil.which("blkparse") is None, reason="blkparse is not installed")
def test_the_real_summary_of_each_program(tmp_path: Path) -> None:
    write(tmp_path / "sda.blktrace.0", mixed_workload(50))
    command = ["blkparse", "-i", "sda", "-s", "-t"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True, timeout=60)
    assert b"Dispatch wait:" in done.stdout
    (tmp_path / "t").write_bytes(done.stdout)
    assert profile_files([tmp_path / "t"]).n_accesses == done.stdout.count(b"  Q  ")


def test_a_remap_from_a_partition_changes_nothing(tmp_path: Path) -> None:
    remap = "  8,0    0        9     0.000000500  4162  A  WS 1024 + 8 <- (8,1) 0\n"
    found = profile_files([written(tmp_path, remap + TEXT)])
    assert found.n_accesses == 2
    assert found.description["left_out"] == {}


def test_an_invalid_line_is_named(tmp_path: Path) -> None:
    lines = TEXT.splitlines()
    lines[4] = "serial console: login:"
    with pytest.raises(InputError, match="not a line of blkparse") as caught:
        profile_files([written(tmp_path, "\n".join(lines))])
    assert caught.value.where.endswith("trace.txt, line 5")


def test_a_trace_cut_off_within_its_last_line_is_named(tmp_path: Path) -> None:
    text = "\n".join(TEXT.splitlines()[:6])
    with pytest.raises(InputError, match="cut off") as caught:
        profile_files([written(tmp_path, text[: text.index(" + 128") + 5])])
    assert "line 6" in caught.value.where
