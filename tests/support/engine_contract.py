"""What must hold for every implementation of ``Engine``: one suite, run by test_engines.py against each.

A harness gives the engine, clients that it can measure, and one of the same kind whose volume is not there.
"""

import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from interrupts import Interrupted, interrupt_when, started_by_us

from cephfit.core.errors import CephfitError, ClusterError, HostError
from cephfit.core.protocols import Client
from cephfit.core.values.cells import CELLS, Cell
from cephfit.core.values.measurement import Measurement
from cephfit.core.values.sample import State
from cephfit.measure.engine import CellOutcome, CellRun, ClientOutcome, Engine, KnowsItsLimits, PreparesCells
from cephfit.measure.surveillance import Circumstances, judge
from cephfit.sweep.sweep_plan import Sweep

AROUND = Circumstances(1, 2, (1, 2), (), 1)
SECONDS = 0.4
DEPTH = 4
ENDS_WITHIN_SECONDS = 10.0
"""An interrupted run, and what it started; a machine that is busy with other tests is slow."""


@dataclass(frozen=True, slots=True)
class Harness:
    """One implementation under test.

    Attributes:
        engine: that measures.
        clients: two that it can measure.
        broken: like them, but its volume cannot be opened; None where nothing is opened.
        measurement: what is particular to it: fields of ``Measurement``.
        cells: that it is asked for.
        least_seconds: of the measured time, where it cannot be asked for exactly.
        by_program: whether it runs a program of this machine.
        attempts: more than one where it chooses by the last one how much to do.
    """

    engine: Engine
    clients: Sequence[Client]
    broken: Client | None
    measurement: dict[str, object] = field(default_factory=dict)
    cells: tuple[str | Cell, ...] = ("4K-randread", "1M-write")
    least_seconds: float = 0.9 * SECONDS
    by_program: bool = True
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Others:
    """Processes and threads that are none of the engine's."""

    pids: set[int]
    threads: Sequence[threading.Thread]

    def assert_alone(self) -> None:
        """What a run started is over, or about to be: servers end a job when the connection to them is gone."""
        deadline = time.monotonic() + ENDS_WITHIN_SECONDS
        while (left := started_by_us() - self.pids) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left
        assert [thread for thread in threading.enumerate() if thread not in self.threads] == []


class EngineContract:
    """Subclass with a fixture ``harness``."""

    @pytest.fixture
    def measurement(self, small_sweep: Sweep, harness: Harness) -> Measurement:
        usual = {"ramp_seconds": 0.0, "run_seconds": SECONDS, "iodepth": DEPTH, "direct": False, "n_clients": 2}
        return replace(small_sweep.measurement, **{**usual, **harness.measurement})  # type: ignore[arg-type]

    @pytest.fixture
    def others(self, harness: Harness) -> Others:
        """What runs before the engine does anything, such as servers."""
        return Others(started_by_us(), threading.enumerate())

    def test_its_facts_name_a_program_and_are_json_without_secrets(self, harness: Harness) -> None:
        facts = dict(harness.engine.facts())
        assert facts == dict(harness.engine.facts())
        assert facts["name"]
        assert facts["version"]
        assert "==" not in json.dumps(facts, allow_nan=False), "a key in base64 ends so"

    def test_every_client_gets_figures_of_the_measured_time(
        self, harness: Harness, measurement: Measurement
    ) -> None:
        for cell in harness.cells:
            run = a_run(measurement, harness.clients, cell)
            outcome = measured(harness, run)
            assert set(outcome.clients) == {"c0", "c1"}
            assert outcome.program
            assert outcome.fio_json is None or json.loads(outcome.fio_json)
            for given in outcome.clients.values():
                assert_measured(given, run, least_seconds=harness.least_seconds)
            samples = judge(run, outcome, AROUND)
            assert [sample.key.client for sample in samples] == ["c0", "c1"]
            # A busy machine may make one invalid: that it has a reason is seen to by Sample.
            assert {sample.state for sample in samples} <= {State.OK, State.INVALID}

    def test_volumes_are_read_through_as_often_as_it_is_told(
        self, harness: Harness, measurement: Measurement, others: Others
    ) -> None:
        run = a_run(measurement, harness.clients, harness.cells[0])
        make_ready(harness.engine, run)
        harness.engine.warm(run)
        harness.engine.warm(run)
        others.assert_alone()


class InterruptibleContract(EngineContract):
    """For engines whose work an interrupt reaches: not that of guests, which are rebuilt for the next run."""

    def test_an_interrupt_ends_a_run_soon_with_all_that_it_started(
        self, harness: Harness, measurement: Measurement, others: Others
    ) -> None:
        run = a_run(measurement, harness.clients, harness.cells[0])
        make_ready(harness.engine, run)
        long = replace(run, measurement=replace(measurement, run_seconds=60.0))

        def is_running() -> bool:
            return not harness.by_program or bool(started_by_us() - others.pids)

        with interrupt_when(is_running) as interrupted_at:
            with pytest.raises(Interrupted):
                harness.engine.run(long)
            assert time.monotonic() - interrupted_at[0] < ENDS_WITHIN_SECONDS
        others.assert_alone()
        assert set(harness.engine.run(run).clients) == {"c0", "c1"}, "and the engine is usable after it"


class VolumesContract(EngineContract):
    """For those that open volumes: all but the simulation. The harness has a ``broken`` client."""

    def test_a_volume_that_is_not_there_is_an_outcome_which_no_other_run_feels(
        self, harness: Harness, measurement: Measurement, others: Others
    ) -> None:
        run = with_a_broken_client(harness, measurement)
        outcome = harness.engine.run(run)
        assert set(outcome.clients) == {"c0", "c1"}
        assert outcome.clients["c1"].metrics is None
        assert outcome.clients["c1"].failure
        assert outcome.fio_json is None or json.loads(outcome.fio_json)
        first, second = judge(run, outcome, AROUND)
        assert second.state is State.FAILED
        assert first.state is not State.OK, "it did not have the load that was asked for"
        others.assert_alone()
        outcome = measured(harness, a_run(measurement, harness.clients, harness.cells[0]))
        assert all(given.metrics is not None for given in outcome.clients.values()), outcome
        others.assert_alone()

    def test_a_volume_that_cannot_be_read_is_an_error_with_place_and_remedy(
        self, harness: Harness, measurement: Measurement
    ) -> None:
        make_ready(harness.engine, a_run(measurement, harness.clients, harness.cells[0]))
        run = with_a_broken_client(harness, measurement)
        with pytest.raises(ClusterError) as caught:
            harness.engine.warm(run)
        assert_says_where(caught.value)


class ProgramContract(InterruptibleContract, VolumesContract):
    """For those that run a program of this machine on volumes."""

    def test_a_missing_program_is_named_with_its_remedy(
        self, harness: Harness, measurement: Measurement, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        run = a_run(measurement, harness.clients, harness.cells[0])
        monkeypatch.setenv("PATH", str(tmp_path))
        for what in (harness.engine.facts, lambda: harness.engine.run(run)):
            with pytest.raises(HostError) as caught:
                what()
            assert "apt install" in caught.value.remedy


class PreparingEngineContract(ProgramContract):
    """For engines that are also ``PreparesCells`` and ``KnowsItsLimits``."""

    def test_it_says_of_every_cell_whether_it_can_measure_it(
        self, harness: Harness, measurement: Measurement
    ) -> None:
        assert isinstance(harness.engine, KnowsItsLimits)
        reasons = {cell: harness.engine.cannot(cell, measurement) for cell in CELLS}
        assert {cell: harness.engine.cannot(cell, measurement) for cell in CELLS} == reasons
        assert not any(harness.engine.cannot(cell_of(cell), measurement) for cell in harness.cells)
        assert not any(reason.endswith(".") for reason in reasons.values()), "a part of a sample's reason"

    def test_what_cannot_be_prepared_is_an_error_with_place_and_remedy(
        self, harness: Harness, measurement: Measurement
    ) -> None:
        assert isinstance(harness.engine, PreparesCells)
        with pytest.raises(ClusterError) as caught:
            harness.engine.prepare(with_a_broken_client(harness, measurement))
        assert_says_where(caught.value)

    def test_what_is_prepared_may_be_prepared_again(self, harness: Harness, measurement: Measurement) -> None:
        assert isinstance(harness.engine, PreparesCells)
        run = a_run(measurement, harness.clients, harness.cells[0])
        harness.engine.prepare(run)
        outcome = measured(harness, run)
        assert all(given.metrics is not None for given in outcome.clients.values()), outcome


def cell_of(cell: str | Cell) -> Cell:
    return cell if isinstance(cell, Cell) else Cell.parse(cell)


def a_run(measurement: Measurement, clients: Sequence[Client], cell: str | Cell) -> CellRun:
    seeds = {client.name: 11 + i for i, client in enumerate(clients)}
    return CellRun("A", cell_of(cell), 0, 0, measurement, clients, seeds)


def with_a_broken_client(harness: Harness, measurement: Measurement) -> CellRun:
    """The second client's volume is not there."""
    assert harness.broken is not None
    return a_run(measurement, [harness.clients[0], replace(harness.broken, name="c1")], harness.cells[0])


def measured(harness: Harness, run: CellRun) -> CellOutcome:
    """What a run gives that is made ready and, where it failed, taken again: as the runner does."""
    for attempt in range(harness.attempts):
        make_ready(harness.engine, run)
        outcome = harness.engine.run(replace(run, attempt=attempt))
        if all(given.metrics is not None for given in outcome.clients.values()):
            break
    return outcome


def make_ready(engine: Engine, run: CellRun) -> None:
    """What is brought about before caches are put into their condition."""
    if isinstance(engine, PreparesCells):
        engine.prepare(run)


def assert_measured(given: ClientOutcome, run: CellRun, *, least_seconds: float) -> None:
    metrics, block = given.metrics, run.cell.size.benchmark_nbytes
    assert metrics is not None, given.failure
    assert given.failure == ""
    assert metrics.n_ios >= 1
    assert metrics.nbytes_per_s == pytest.approx(metrics.iops * block, rel=0.01)
    assert metrics.iops == pytest.approx(metrics.n_ios / metrics.runtime_ns * 1e9, rel=0.05, abs=2)
    assert metrics.runtime_ns >= least_seconds * 1e9
    # Little: no more are in flight than were asked for.
    assert 0 < metrics.latency_mean_ns * metrics.iops / 1e9 <= 1.1 * run.measurement.iodepth
    assert all(0 < p < 100 and ns > 0 for p, ns in metrics.latency_percentiles_ns.items())
    json.dumps(dict(given.evidence), allow_nan=False)
    if given.count is None:
        assert given.uncounted, "an independent count exists, or the reason why not"
    else:
        assert not given.uncounted
        assert given.count.source
        assert given.count.total_nbytes >= 0
        assert given.count.allowed_nbytes >= 0


def assert_says_where(error: CephfitError) -> None:
    """It names the client whose volume it is, says where that is, and what to do."""
    assert "c1" in str(error)
    assert error.where
    assert error.remedy
