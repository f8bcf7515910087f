"""Falling rates: found in counters and logs, not found in chance, and repeated until steady."""

import math
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cephfit.core.errors import InputError
from cephfit.core.protocols import Client, NullProgress
from cephfit.core.units import MIB
from cephfit.core.values.cells import Cell, Op
from cephfit.core.values.measurement import ASSUMED_TIMES, Steady
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State
from cephfit.measure.engine import CellOutcome, CellRun, ClientOutcome, Engine
from cephfit.measure.fio.fio_local import FioEngine
from cephfit.measure.steady_runs import Halves, halves_of_counter, halves_of_log, run_until_steady
from cephfit.results.report.run_notes import rates_still_falling, run_document, run_notes
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.execution.runner import run_sweep
from cephfit.sweep.sweep_plan import Sweep, run_seconds
from cephfit.targets.simulated import SimulatedTarget


def test_a_fall_counts_only_beyond_the_limit_and_beyond_chance() -> None:
    assert Halves(2000, 1000).fell()
    assert not Halves(1400, 1000).fell(), "less than a factor of 1.5"
    assert Halves(1400, 1000).fell(1.1)
    assert not Halves(4, 2).fell(), "six large I/Os show nothing"
    assert not Halves(1000, 2000).fell(), "a rise"
    assert Halves(100, 0).fell()
    assert not Halves(0, 0).fell()


@given(st.floats(0, 1e7), st.floats(0, 1e7))
def test_only_one_order_of_two_halves_is_a_fall_and_its_ratio_is_finite(first: float, second: float) -> None:
    assert not (Halves(first, second).fell() and Halves(second, first).fell())
    assert math.isfinite(Halves(first, second).fell_by)


def test_the_halves_of_a_counter_begin_after_the_ramp() -> None:
    """Ramp from 0 to 1 s at any rate, 100 blocks/s from 1 to 2 s, 25 blocks/s from 2 to 3 s, idle until 4 s."""
    times = [0.0, 1.0, 2.0, 3.0, 4.0]
    values = [0, 900 * 4096, 1000 * 4096, 1025 * 4096, 1025 * 4096]
    found = halves_of_counter(times, values, runtime_ns=2 * 10**9, block_nbytes=4096)
    assert found == Halves(100, 25)
    assert found.to_json() == {"ios": [100, 25], "fell_by": pytest.approx(3.9412), "unsteady": True}
    assert halves_of_counter([0.0, 1.0], [5, 5], runtime_ns=10**9, block_nbytes=4096) is None


def test_the_halves_of_a_log_count_windows_without_a_line_as_empty() -> None:
    """Ten windows of 0.1 s; fio omits those without I/O, and a mix has lines of both directions."""
    lines = [f"{moment}, 100, 1, 0, 0" for moment in (250, 350, 450, 550, 650, 1150)]
    lines += ["250, 777, 0, 0, 0"]
    assert halves_of_log(lines, Op.WRITE, window_seconds=0.1, ios_per_unit=1) == Halves(50, 10)
    assert halves_of_log(lines[:3], Op.WRITE, window_seconds=0.1, ios_per_unit=1) is None
    assert halves_of_log([], Op.WRITE, window_seconds=0.1, ios_per_unit=1) is None


class CacheThatFills(Engine):
    """Takes 1000 writes/s for its first seconds, and 100 writes/s after that; a new run finds it empty."""

    def __init__(self, full_after_seconds: float) -> None:
        self.full_after_seconds = full_after_seconds
        self.ramps: list[float] = []

    def facts(self) -> Mapping[str, Any]:
        return {"name": "cache", "version": "1"}

    def run(self, run: CellRun) -> CellOutcome:
        ramp, seconds = run.measurement.ramp_seconds, run.measurement.run_seconds
        self.ramps.append(ramp)

        def done(until: float) -> float:
            return 1000 * min(until, self.full_after_seconds) + 100 * max(0.0, until - self.full_after_seconds)

        middle = ramp + seconds / 2
        halves = Halves(done(middle) - done(ramp), done(ramp + seconds) - done(middle))
        iops = (halves.first + halves.second) / seconds
        metrics = Metrics(iops, iops * 4096, int(iops * seconds), int(seconds * 1e9), 1e6)
        return CellOutcome(
            {c.name: ClientOutcome(metrics, evidence={"halves": halves.to_json()}) for c in run.clients}, "{}"
        )

    def warm(self, run: CellRun) -> None:
        pass


def a_run(sweep: Sweep, steady: Steady | None, cell: str = "4K-randwrite", **changes: Any) -> CellRun:
    measurement = replace(sweep.measurement, ramp_seconds=0.0, run_seconds=4.0, steady=steady, **changes)
    clients = [Client(name, {}, 4 * MIB) for name in ("c0", "c1")]
    return CellRun("A", Cell.parse(cell), 0, 0, measurement, clients, {"c0": 1, "c1": 2})


def test_a_run_is_repeated_with_a_longer_ramp_until_the_cache_is_full(small_sweep: Sweep) -> None:
    engine = CacheThatFills(9.0)
    # A run of 4 s is steady at the cache's rate; one of 4 s after a ramp of 6 s meets the end of the cache.
    run = a_run(small_sweep, Steady(0.1, 100.0))
    measured = run_until_steady(engine, replace(run, measurement=replace(run.measurement, ramp_seconds=6.0)))
    assert engine.ramps == [6.0, 10.0]
    given = measured.outcome.clients["c0"]
    assert given.metrics is not None
    assert given.metrics.iops == 100, "the rate of the storage behind the cache"
    assert given.evidence["steady"] == {"attained": True, "runs": 2, "ramp_seconds": 10.0}
    assert measured.io_seconds == 10 + 14


def test_repetitions_end_at_the_limit_and_it_is_said(small_sweep: Sweep) -> None:
    engine = CacheThatFills(3.0)
    measured = run_until_steady(engine, a_run(small_sweep, Steady(0.1, 11.9)))
    assert engine.ramps == [0.0], "4 s, and then 8 s, would be more than the limit"
    assert measured.outcome.clients["c1"].evidence["steady"]["attained"] is False
    engine = CacheThatFills(3.0)
    measured = run_until_steady(engine, a_run(small_sweep, Steady(0.1, 12.0)))
    assert engine.ramps == [0.0, 4.0]
    assert measured.outcome.clients["c1"].evidence["steady"]["attained"] is True


@pytest.mark.parametrize(
    ("cell", "steady", "read_pct", "n_runs"),
    [
        ("4K-randwrite", None, None, 1),
        ("4K-read", Steady(0.1, 99), None, 1),
        ("4K-read", Steady(0.1, 99), 50, 2),
        ("4K-randwrite", Steady(0.1, 99), None, 2),
    ],
)
def test_only_runs_that_write_are_repeated(
    small_sweep: Sweep, cell: str, steady: Steady | None, read_pct: int | None, n_runs: int
) -> None:
    engine = CacheThatFills(3.0)
    run_until_steady(engine, a_run(small_sweep, steady, cell, read_pct=read_pct))
    assert len(engine.ramps) == n_runs


def test_a_sweep_repeats_runs_and_stores_only_the_last(small_text: str, store: Store) -> None:
    text = small_text.replace("ramp_seconds: 0.2", "ramp_seconds: 0")
    sweep = parse_sweep(text + "  steady: {within: 10%, limit_seconds: 9}\n", file="small.yaml")
    assert sweep.measurement.steady == Steady(0.1, 9.0)
    engine = CacheThatFills(0.7)
    run = run_sweep(sweep, SimulatedTarget(), store, NullProgress(), resume=None, engine=engine)
    samples = store.samples(run.run_id)
    writes = [s for s in samples if s.key.cell.pattern.op is Op.WRITE]
    reads = [s for s in samples if s.key.cell.pattern.op is Op.READ]
    assert {s.metrics.iops for s in writes if s.metrics} == {100.0}
    assert all(s.evidence["steady"]["attained"] for s in writes)
    assert all("steady" not in s.evidence for s in reads)
    # The reads of this engine fall, too, and are not repeated: notes name them, and no writes.
    (note,) = [n for n in run_notes(run_document(str(store.name), run.run_id)) if "falling" in n]
    assert "A 4K-read" in note
    assert "write" not in note.partition(".")[0]


def test_notes_name_each_place_once_and_only_a_few() -> None:
    def sample(name: str, repeat: int, evidence: dict[str, Any], state: State = State.OK) -> Sample:
        key = SampleKey(name, Cell.parse("4K-write"), "c0", repeat)
        return Sample(
            key, state, Metrics(1.0, 4096.0, 1, 10**9, 1.0), 1, 2, "bad" if state is not State.OK else "", evidence
        )

    fell = {"halves": Halves(900, 300).to_json()}
    level = {"halves": Halves(300, 300).to_json()}
    assert (
        rates_still_falling([sample("A", 0, level), sample("B", 0, {}), sample("C", 0, fell, State.INVALID)]) == ""
    )
    assert "falling: A 4K-write." in rates_still_falling([sample("A", 0, fell), sample("A", 1, fell)])
    # A measurement with a limit of its own decides by that.
    not_attained = {**level, "steady": {"attained": False}}
    assert "falling: B 4K-write." in rates_still_falling(
        [sample("A", 0, {**fell, "steady": {"attained": True}}), sample("B", 0, not_attained)]
    )
    assert "and 3 more" in rates_still_falling([sample(f"c{i}", 0, fell) for i in range(9)])


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("  steady: {within: 10%}\n", "limit_seconds"),
        ("  steady: {within: 0%, limit_seconds: 9}\n", "a percentage above 0"),
        ("  steady: {within: much, limit_seconds: 9}\n", "such as 10%"),
        ("  steady: {within: 10%, limit_seconds: 1}\n", "less than one run of 1.2 s"),
        ("  settle_seconds: soon\n", "a number of seconds"),
    ],
)
def test_an_impossible_section_is_refused_with_its_line(small_text: str, lines: str, message: str) -> None:
    with pytest.raises(InputError, match=r"small\.yaml:\d+") as caught:
        parse_sweep(small_text + lines, file="small.yaml")
    assert message in str(caught.value)


def test_engines_without_a_ramp_refuse_it(small_text: str) -> None:
    text = small_text.replace("  ramp_seconds: 0.2\n", "  engine: rados-bench\n")
    with pytest.raises(InputError, match="has no ramp"):
        parse_sweep(text + "  steady: {within: 10%, limit_seconds: 9}\n", file="small.yaml")


def test_the_rest_before_runs_is_taken_and_expected(small_text: str, store: Store) -> None:
    plain = parse_sweep(small_text, file="small.yaml")
    rested = parse_sweep(small_text + "  settle_seconds: 0.05\n", file="small.yaml")
    assert rested.digest != plain.digest
    more = run_seconds(rested.measurement, ASSUMED_TIMES) - run_seconds(plain.measurement, ASSUMED_TIMES)
    assert more == pytest.approx(0.05)
    begun = time.monotonic()
    run_sweep(rested, SimulatedTarget(), store, NullProgress(), resume=None)
    assert time.monotonic() - begun >= 24 * 0.05, "2 rounds of 3 configurations in 4 cells"


needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


def stopped_for_most_of_the_second_half() -> threading.Thread:
    """Stops this process's fio 1.6 s after it began to read, for 1.1 s: a rate that falls to a third in 3 s."""

    def stop() -> None:
        tasks, deadline = Path(f"/proc/{os.getpid()}/task"), time.monotonic() + 20
        while time.monotonic() < deadline:
            pids = [p for task in tasks.iterdir() for p in (task / "children").read_text().split()]
            for pid in pids:
                if Path(f"/proc/{pid}/comm").read_text().strip() == "fio" and read_nbytes(pid) > 4 * MIB:
                    time.sleep(1.6)
                    os.kill(int(pid), signal.SIGSTOP)
                    time.sleep(1.1)
                    os.kill(int(pid), signal.SIGCONT)
                    return
            time.sleep(0.01)

    def read_nbytes(pid: str) -> int:
        return int(Path(f"/proc/{pid}/io").read_text().split()[1])

    thread = threading.Thread(target=stop)
    thread.start()
    return thread


def measured(sweep: Sweep, client: Client, *, falls: bool) -> ClientOutcome:
    """A run of 3 s. The rate that does not fall is limited: noise of the machine does not look like a fall."""
    run = a_run(sweep, None, "4K-randread")
    m = replace(run.measurement, run_seconds=3.0, iodepth=1, ioengine="psync", rate_iops=None if falls else 300)
    run = replace(run, clients=[client], measurement=replace(m, direct=client.device is not None))
    thread = stopped_for_most_of_the_second_half() if falls else None
    outcome = FioEngine().run(run).clients[client.name]
    if thread is not None:
        thread.join()
    assert outcome.metrics is not None, outcome.failure
    return outcome


def steady_as_expected(sweep: Sweep, client: Client, *, falls: bool) -> None:
    """One of three runs shows it: other processes may slow the first half, and so hide the fall of the second.

    They also make a window of fio's log longer than stated, so that its I/Os count for less.
    """
    for _ in range(3):
        outcome = measured(sweep, client, falls=falls)
        assert outcome.metrics is not None
        halves = outcome.evidence["halves"]
        complete = sum(halves["ios"]) == pytest.approx(outcome.metrics.n_ios, rel=0.15)
        if complete and halves["unsteady"] is falls:
            return
    pytest.fail(f"three runs: {halves} of {outcome.metrics.n_ios} I/Os")


@pytest.mark.fio
@needs_fio
@pytest.mark.parametrize("falls", [False, True])
def test_fios_log_shows_a_fall_where_the_kernel_does_not_count(
    small_sweep: Sweep, tmp_path: Path, falls: bool
) -> None:
    volume = tmp_path / "volume"
    volume.write_bytes(bytes(4 * MIB))
    steady_as_expected(small_sweep, Client("c0", {"filename": str(volume)}, 4 * MIB), falls=falls)


@pytest.mark.fio
@pytest.mark.root
@needs_fio
@pytest.mark.parametrize("falls", [False, True])
def test_the_kernels_counters_show_a_fall(
    small_sweep: Sweep, loop_device: Callable[[int], Path], falls: bool
) -> None:
    device = loop_device(16 * MIB)
    steady_as_expected(small_sweep, Client("c0", {"filename": str(device)}, 16 * MIB, device), falls=falls)
