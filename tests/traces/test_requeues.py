"""An access that the driver gives back and gets again is one access: raw records, blkparse's text, tracepoints."""

from pathlib import Path
from typing import Any

import pytest
import trace_maker as made
from trace_maker import Event, write

from cephfit.core.values.profile import Profile
from cephfit.traces import profile_files
from cephfit.traces.readers.block_events.block_layer import Action
from cephfit.traces.recordings import ReadOptions

R = 6
MS = 1_000_000
LETTERS = {made.Q: "Q", made.D: "D", made.C: "C", R: "R"}
TRACEPOINTS = {
    made.Q: "block_bio_queue",
    made.D: "block_rq_issue",
    made.C: "block_rq_complete",
    R: "block_rq_requeue",
}


def given_back(n: int, *, gap: int = 10) -> list[Event]:
    """``n`` writes of 4 KiB that a driver gives back once each: D, R, D, C, 1 ms from the second D to C; and as
    many that it takes at once, before them."""
    events = []
    for i in range(n):
        begun = 1 + i * gap * MS
        plain, back = {"sector": 800 * i + 80_000_000}, {"sector": 800 * i, "category": made.WRITE}
        events += [Event(begun, what=made.D, **plain), Event(begun + MS, what=made.C, **plain)]  # type: ignore[arg-type]
        events += [
            Event(begun + when * MS, what=what, **back)  # type: ignore[arg-type]
            for when, what in ((2, made.D), (3, R), (4, made.D), (5, made.C))
        ]
    return events


def as_text(events: list[Event], line: str) -> str:
    """Each event by a format of its time, its letter, op, sector and sectors."""
    return "".join(
        line.format(
            seconds=f"{e.time / 1e9:.9f}",
            letter=LETTERS[e.what],
            event=TRACEPOINTS[e.what],
            nbytes="4096 " if e.what == made.D else "",
            op="W" if e.category & made.WRITE else "R",
            sector=e.sector,
            n=e.nbytes // 512,
            end="[0]" if e.what in (made.C, R) else "[fio]",
            number=i + 1,
        )
        for i, e in enumerate(events)
    )


BLKPARSE_LINE = "  8,0    1 {number:8d} {seconds} 99  {letter}  {op}S {sector} + {n} {end}\n"
TRACEPOINT = "  fio-99  [001] d..1. {seconds}: {event}: 8,0 {op}S {nbytes}() {sector} + {n} {end}\n"


def latencies(found: Profile) -> dict[str, Any]:
    table: dict[str, Any] = found.description["percentiles"]["latency_us"]["all"]
    return table


@pytest.mark.parametrize(("version", "order"), [(7, "<"), (7, ">"), (8, "<"), (8, ">")])
def test_raw_records(tmp_path: Path, version: int, order: str) -> None:
    found = profile_files(
        [write(tmp_path / "t", given_back(30), version=version, order=order)], action=Action.ISSUE
    )
    assert found.n_accesses == 60
    assert latencies(found)["n"] == 60
    assert latencies(found)["p50"] == pytest.approx(1000, rel=0.04)
    assert found.description["events"] == {"C": 60, "D": 90, "R": 30}


@pytest.mark.parametrize("line", [BLKPARSE_LINE, TRACEPOINT])
def test_texts_say_the_same_as_raw_records(tmp_path: Path, line: str) -> None:
    raw = profile_files([write(tmp_path / "t", given_back(30))], action=Action.ISSUE)
    (tmp_path / "text").write_text(as_text(given_back(30), line))
    found = profile_files([tmp_path / "text"], action=Action.ISSUE)
    assert (found.accesses, found.random) == (raw.accesses, raw.random)
    assert found.description["histograms"] == raw.description["histograms"]
    assert found.description["events"] == raw.description["events"]


def test_blkparse_in_a_format_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "t").write_text(as_text(given_back(5), "{seconds} {letter} {op} {sector} {n}\n"))
    found = profile_files(
        [tmp_path / "t"], action=Action.ISSUE, options=ReadOptions(blkparse_format="%T.%t %a %d %S %n")
    )
    assert found.n_accesses == 10


def test_what_an_application_asked_for_counts_once_anyway(tmp_path: Path) -> None:
    events = [Event(e.time - 1, e.sector, category=e.category) for e in given_back(10) if e.what == made.C]
    trace = write(tmp_path / "t", sorted(events + given_back(10), key=lambda e: e.time))
    assert profile_files([trace]).n_accesses == 20


@pytest.mark.parametrize("line", ["", BLKPARSE_LINE, TRACEPOINT])
def test_a_trace_without_completions(tmp_path: Path, line: str) -> None:
    events = [e for e in given_back(100) if e.what != made.C]
    trace = write(tmp_path / "t", events)
    if line:
        trace.write_text(as_text(events, line))
    found = profile_files([trace], action=Action.ISSUE)
    assert found.n_accesses == 200


def test_only_the_very_blocks_are_taken_back(tmp_path: Path) -> None:
    """The second half of a write went back after its first half was done: the first issue stays an access."""
    trace = write(
        tmp_path / "t",
        [
            Event(1, 0, 8192, what=made.D),
            Event(2, 8, 4096, what=R),
            Event(3, 8, 4096, what=R, device=made.DM0),
            Event(4, 800, 4096, what=R),
            Event(5, 8, 4096, what=made.D),
            Event(6, 8, 4096, what=made.C),
        ],
    )
    assert profile_files([trace], action=Action.ISSUE).n_accesses == 2


@pytest.mark.parametrize("line", ["", BLKPARSE_LINE, TRACEPOINT])
@pytest.mark.parametrize("completions", [True, False])
def test_an_access_that_ends_at_the_same_block_hides_none(tmp_path: Path, line: str, completions: bool) -> None:
    """A read of blocks 0 to 15 goes back while a later one of its last half waits."""
    events = [
        Event(1, 100, 4096, what=made.D),
        Event(2, 100, 4096, what=made.C),
        Event(3, 0, 8192, what=made.D),
        Event(4, 8, 4096, what=made.D),
        Event(5, 0, 8192, what=R),
        Event(6, 0, 8192, what=made.D),
        Event(1_000_006, 0, 8192, what=made.C),
    ]
    events = [e for e in events if completions or e.what != made.C]
    trace = write(tmp_path / "t", events)
    if line:
        trace.write_text(as_text(events, line))
    assert profile_files([trace], action=Action.ISSUE).n_accesses == 3


def test_what_was_taken_back_from_behind_another_completes_no_more(tmp_path: Path) -> None:
    """The later read of the last half completes, then nothing waits at that block."""
    events = [
        Event(1, 100, 4096, what=made.D),
        Event(2, 100, 4096, what=made.C),
        Event(3, 0, 8192, what=made.D),
        Event(4, 8, 4096, what=made.D),
        Event(5, 0, 8192, what=R),
        Event(6, 8, 4096, what=made.C),
        Event(7, 0, 8192, what=made.C),
        Event(8, 0, 8192, what=made.D),
        Event(9, 0, 8192, what=made.C),
    ]
    found = profile_files([write(tmp_path / "t", events)], action=Action.ISSUE)
    assert found.n_accesses == 3
    assert latencies(found)["n"] == 3
