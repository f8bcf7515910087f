"""Events that blktrace's records show to be lost: gaps in the numbers of a device on a CPU, and nothing else."""

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import trace_maker as made
from test_more_formats import GOLDEN
from trace_maker import Event

from cephfit.traces import profile_files

SDB = 8 << 20 | 16
needs_blkparse = pytest.mark.skipif(shutil.which("blkparse") is None, reason="blkparse is not installed")


def queued(n: int, device: int = made.SDA, *, at: int = 0, cpu: int = 0) -> list[bytes]:
    """Numbered records of one device on one CPU, a microsecond apart."""
    return [Event(at + 1000 * i, 8 * i, device=device, cpu=cpu).packed(i + 1) for i in range(n)]


def process_note(number: int) -> bytes:
    """The record that maps a process number to a name. Kernels before 2025 leave its sequence number
    uninitialized."""
    return Event(0, 0, 0, 0, made.NOTIFY, payload=b"fio".ljust(16, b"\0")).packed(number)


def lost_of(folder: Path, records: Sequence[bytes]) -> int | None:
    trace = folder / "t.blktrace.0"
    trace.write_bytes(b"".join(records))
    lost: int | None = profile_files([trace]).description["lost_events"]
    return lost


def skips_of(trace: Path) -> int:
    """Return how many events blkparse reports as skipped. It checks sequence numbers only on standard input."""
    output = subprocess.run(
        ["blkparse", "-i", "-"], input=trace.read_bytes(), capture_output=True, check=True, timeout=60
    ).stdout.decode()
    found = re.search(r"^Skips: \S+ forward \(([\d,]+) ", output, re.M)
    assert found, output[-500:]
    return int(found[1].replace(",", ""))


MADE: dict[str, Callable[[], list[bytes]]] = {
    "all are there": lambda: [process_note(0), *queued(10)],
    "one is missing": lambda: [process_note(0), *queued(10)[:4], *queued(10)[5:]],
    "two gaps": lambda: [process_note(0), *queued(40)[:10], *queued(40)[17:30], *queued(40)[31:]],
    "a note with an old number": lambda: [process_note(0), *queued(10)[:5], process_note(77), *queued(10)[5:]],
    "a note within a gap": lambda: [process_note(0), *queued(10)[:5], process_note(7), *queued(10)[8:]],
}


@needs_blkparse
@pytest.mark.parametrize("records", MADE.values(), ids=MADE.keys())
def test_lost_events_equal_the_skips_that_blkparse_reports(
    tmp_path: Path, records: Callable[[], list[bytes]]
) -> None:
    found = lost_of(tmp_path, records())
    assert (found or 0) == skips_of(tmp_path / "t.blktrace.0")


@needs_blkparse
def test_a_dump_of_two_devices_has_two_sequences(tmp_path: Path) -> None:
    """blkparse merges the events of both by time, each numbered from 1. None was lost, although one device is
    at its 61st event when the other one begins."""
    for name, device, n, at in (("sda", made.SDA, 40, 60_000), ("sdb", SDB, 120, 0)):
        records = [process_note(0), *queued(n, device, at=at)]
        (tmp_path / f"{name}.blktrace.0").write_bytes(b"".join(records))
    subprocess.run(
        ["blkparse", "-i", "sda", "-i", "sdb", "-O", "-d", "dump"], cwd=tmp_path, check=True, timeout=60
    )
    assert skips_of(tmp_path / "dump") == 0
    found = profile_files([tmp_path / "dump"])
    assert found.n_accesses == 160
    assert not found.description["lost_events"]
    assert not any("lost" in note for note in found.description["notes"])


def test_the_losses_of_one_of_two_devices_are_counted(tmp_path: Path) -> None:
    """Numbers 4 to 6 of the second device are missing, and none of the first; the same on either CPU."""
    of_one, of_other = queued(10, cpu=3), queued(10, SDB, cpu=3)
    mixed = [record for pair in zip(of_one, of_other, strict=True) for record in pair]
    gone = {of_other[i] for i in (3, 4, 5)}
    assert lost_of(tmp_path, [record for record in mixed if record not in gone]) == 3


def test_numbers_without_a_gap_do_not_prove_that_none_were_lost(tmp_path: Path) -> None:
    """Linux before 2025 numbers only events that fit into the buffer."""
    assert lost_of(tmp_path, queued(10)) is None
    lacks = profile_files([tmp_path]).description["lacks"]
    assert any(lack.startswith("lost events") for lack in lacks)
    assert profile_files([GOLDEN / "guest.blktrace.0"]).description["lost_events"] is None


@pytest.mark.parametrize(("dropped", "lost"), [(0, 3), (2, 3), (3, 3), (8, 8)])
def test_losses_in_both_the_capture_and_the_gaps_are_counted_once(tmp_path: Path, dropped: int, lost: int) -> None:
    """Linux since 2025 numbers an event before it checks the buffer, so dropped events leave gaps too."""
    (tmp_path / "t.capture.json").write_text(f'{{"method": "blktrace", "lost_events": {dropped}}}')
    assert lost_of(tmp_path, [*queued(10)[:4], *queued(10)[7:]]) == lost
