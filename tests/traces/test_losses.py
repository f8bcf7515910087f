"""Events that a trace itself says were lost are counted as lost, and said."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from test_more_formats import GOLDEN, profiled

from cephfit.cli.trace import command
from cephfit.traces import profile_files
from cephfit.traces.readers.block_layer import Action

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
    (BLKPARSE + "Events (8,0): 1 entries\nSkips: 0 forward (0 -   0.0%)\n", None),
]


@pytest.mark.parametrize(("text", "lost"), LOSSES)
def test_losses_that_a_text_tells(tmp_path: Path, text: str, lost: int | None) -> None:
    found = profiled(tmp_path, text)
    assert found.description["lost_events"] == lost
    shown = CliRunner().invoke(command, ["profile", str(tmp_path / "t")])
    assert (f"the tracer lost {lost} events" in shown.output) == (lost is not None)


def test_a_buffer_that_was_large_enough_lost_nothing() -> None:
    assert profile_files([GOLDEN / "ftrace.txt"], action=Action.ISSUE).description["lost_events"] is None
