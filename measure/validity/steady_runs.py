"""Repeat a run that writes with a longer ramp until its rate is steady.

A run must be continuous: a pause between two runs lets a cache write back what it holds. So a run whose rate fell
is not continued but started again, with a ramp that is as long as the whole run before. Its ramp fills the cache,
and the measured time shows the storage behind it. A run that is steady at once costs nothing more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from cephfit.core.values.cells import Op
from cephfit.measure.counters.rate_halves import Halves
from cephfit.measure.engine import CellOutcome, CellRun, ClientOutcome, Engine

HALVES = "halves"
"""Key of a client's evidence: ``Halves.to_json``."""


@dataclass(frozen=True, slots=True)
class SteadyOutcome:
    """The outcome of the last run, and the time with I/O of all runs in seconds."""

    outcome: CellOutcome
    io_seconds: float


def run_until_steady(engine: Engine, run: CellRun) -> SteadyOutcome:
    """Measure a cell; repeat a run whose rate fell if the measurement has a ``steady`` and the cell writes.

    Reads are not repeated: the first run would warm the caches of the second. A client without ``halves`` counts
    as steady. Every client's evidence has ``steady`` where the measurement has it and the cell writes.

    Raises:
        HostError, InputError: see ``Engine.run``.
    """
    measurement = run.measurement
    ramp, seconds = measurement.ramp_seconds, measurement.run_seconds
    spent = ramp + seconds
    outcome = engine.run(run)
    writes = run.cell.pattern.op is Op.WRITE or measurement.read_pct is not None
    if measurement.steady is None or not writes:
        return SteadyOutcome(outcome, spent)
    limit, n_runs = 1 + measurement.steady.within, 1
    while (
        _fell(outcome, limit) and (again := ramp + seconds) + seconds + spent <= measurement.steady.limit_seconds
    ):
        ramp = again
        spent += ramp + seconds
        n_runs += 1
        outcome = engine.run(replace(run, measurement=replace(measurement, ramp_seconds=ramp)))
    found = {"attained": not _fell(outcome, limit), "runs": n_runs, "ramp_seconds": ramp}
    clients = {name: _with(given, {"steady": found}) for name, given in outcome.clients.items()}
    return SteadyOutcome(replace(outcome, clients=clients), spent)


def _fell(outcome: CellOutcome, limit: float) -> bool:
    """Whether any client's rate fell by more than a factor. A failed client is judged elsewhere."""
    found = [given.evidence.get(HALVES) for given in outcome.clients.values() if given.metrics is not None]
    return any(Halves(*halves["ios"]).fell(limit) for halves in found if halves is not None)


def _with(given: ClientOutcome, evidence: Mapping[str, Any]) -> ClientOutcome:
    return replace(given, evidence={**given.evidence, **evidence})
