"""Events that a trace reports as lost are counted as lost, and shown."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from test_more_formats import GOLDEN, profiled
from test_trace_views import run

from cephfit.cli.trace.trace_commands import command
from cephfit.traces import profile_files
from cephfit.traces.capturing.capture import file_of, keep
from cephfit.traces.readers.block_events.block_layer import Action

TRACEPOINT = "  fio-9  [000]  1.5: block_bio_queue: 8,0 R 8 + 8 [fio]\n"
BIOSNOOP = "0.000004 supervise 1950 xvda1 W 13092560 4096 0.74\n"
BLKPARSE = "  8,0    1        1     0.000001000    99  Q  WS 1024 + 8 [x]\n"


LOSSES = [
    (TRACEPOINT + "CPU:0 [LOST 5000 EVENTS]\n", 5000),
    ("CPU:7 [204600 EVENTS DROPPED]\n" + TRACEPOINT, 204_600),
    (TRACEPOINT + "CPU:1 [EVENTS DROPPED]\n", 1),
    (
        "# tracer: nop\n#\n# entries-in-buffer/entries-written: 1/6001   #P:2\n" + TRACEPOINT,
        6000,
    ),
    (TRACEPOINT + "swapper 0 [001] 2.5: PERF_RECORD_LOST lost 17\n", 17),
    (BIOSNOOP + "Possibly lost 812 samples\n" + BIOSNOOP, 812),
    (BIOSNOOP + "lost 31 events on CPU #1\n" + BIOSNOOP, 31),
    (BLKPARSE + "Events (8,0): 1 entries\nSkips: 3 forward (4,321 - 99.9%)\n", 4321),
    (BLKPARSE + "Events (8,0): 1 entries\nSkips: 3 forward (4321 -   0.1%)\n", 4321),
    (BLKPARSE + "Events (8,0): 1 entries\nSkips: 0 forward (0 -   0.0%)\n", 0),
]
NOT_TOLD = [(BLKPARSE, None), (BIOSNOOP, None), (TRACEPOINT, None)]


@pytest.mark.parametrize(("text", "lost"), [*LOSSES, *NOT_TOLD])
def test_losses_that_a_text_reports(tmp_path: Path, text: str, lost: int | None) -> None:
    found = profiled(tmp_path, text)
    assert found.description["lost_events"] == lost
    shown = CliRunner().invoke(command, ["profile", str(tmp_path / "t")])
    assert (f"the tracer lost {lost} events" in shown.output) == bool(lost)
    if text.startswith(BLKPARSE):
        assert ("lost events: whether" in " ".join(found.description["lacks"])) == (lost is None)
    assert not any("statements" in name for name in found.description["events"])


@pytest.mark.parametrize(("text", "lost"), [*LOSSES, *NOT_TOLD])
def test_zero_and_unknown_losses_differ_in_parquet(tmp_path: Path, text: str, lost: int | None) -> None:
    """Converted twice: the second file preserves the metadata of the first one."""
    pytest.importorskip("pyarrow")
    (tmp_path / "t").write_text(text)
    run("convert", tmp_path / "t", "-o", tmp_path / "t.parquet")
    run("convert", tmp_path / "t.parquet", "-o", tmp_path / "again.parquet")
    original, once, twice = (
        profile_files([tmp_path / name]).description for name in ("t", "t.parquet", "again.parquet")
    )
    for found in (once, twice):
        assert found["lost_events"] == lost
        assert (found["lacks"], found["events"]) == (original["lacks"], original["events"])


def test_a_buffer_that_was_large_enough_lost_nothing() -> None:
    assert profile_files([GOLDEN / "ftrace.txt"], action=Action.ISSUE).description["lost_events"] is None


@pytest.mark.parametrize("lost", [0, 3])
def test_events_that_a_guest_lost_are_reported_with_its_trace(tmp_path: Path, lost: int) -> None:
    """The text does not contain them; the record file next to it does."""
    file = file_of(tmp_path, "c0")
    keep(TRACEPOINT, lost, file, volume="/dev/vdb", seconds=1.0)
    found = profile_files([file]).description
    assert found["lost_events"] == lost
    assert not any(lack.startswith("lost events") for lack in found["lacks"])
    assert any("lost 3 events" in note for note in found["notes"]) == bool(lost)
    assert found["sources"][0]["captured_by"] == "tracepoints in the guest"
