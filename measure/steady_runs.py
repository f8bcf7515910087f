"""Repeat a run that writes with a longer ramp until its rate is steady.

A run must be continuous: a pause between two runs lets a cache write back what it holds. So a run whose rate fell
is not continued but started again, with a ramp that is as long as the whole run before. Its ramp fills the cache,
and the measured time shows the storage behind it. A run that is steady at once costs nothing more.

A rate falls if the second half of a run is slower than the first: a cache absorbed the beginning.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cephfit.core.values.cells import Op
from cephfit.measure.engine import CellOutcome, CellRun, ClientOutcome, Engine

MOST_FALL = 1.5
"""Ratio of the first half's rate to the second's above which a sample is marked."""
_Z = 1.96
_LEAST_WINDOWS = 4


@dataclass(frozen=True, slots=True)
class Halves:
    """I/Os that completed in the first and in the second half of the measured time."""

    first: float
    second: float

    @property
    def fell_by(self) -> float:
        """Rate of the first half divided by that of the second, above 0. Half an I/O is added to both."""
        return (self.first + 0.5) / (self.second + 0.5)

    def fell(self, limit: float = MOST_FALL) -> bool:
        """Return whether the rate fell by more than a factor, and not by chance."""
        error = math.sqrt(1 / (self.first + 0.5) + 1 / (self.second + 0.5))
        return self.fell_by > limit and math.log(self.fell_by) > _Z * error

    def to_json(self) -> dict[str, Any]:
        """For a sample's evidence."""
        return {
            "ios": [round(self.first, 1), round(self.second, 1)],
            "fell_by": round(self.fell_by, 4),
            "unsteady": self.fell(),
        }


def halves_of_counter(
    times: Sequence[float], values: Sequence[int], *, runtime_ns: int, block_nbytes: int
) -> Halves | None:
    """Return the halves of the last ``runtime_ns`` before a counter's last change; None if it never changed.

    Args:
        times: seconds, rising, shape (n,), n >= 2.
        values: bytes, never falling, shape (n,).
        runtime_ns: measured time.
        block_nbytes: bytes of an I/O.
    """
    moved = [i for i in range(1, len(values)) if values[i] != values[i - 1]]
    if not moved:
        return None
    end = times[moved[-1]]
    edges = (end - runtime_ns / 1e9, end - runtime_ns / 2e9, end)
    start, middle, last = np.interp(edges, times, np.asarray(values, dtype=float))
    return Halves(float(middle - start) / block_nbytes, float(last - middle) / block_nbytes)


def halves_of_log(lines: Iterable[str], op: Op, *, window_seconds: float, ios_per_unit: float) -> Halves | None:
    """Return the halves of a log of fio's rates; None if it has fewer than four windows.

    Args:
        lines: time in ms, mean rate since the window before, direction (0: reads, 1: writes), and more. Windows
            without I/O have no line.
        op: the direction to count.
        window_seconds: length of the windows.
        ios_per_unit: I/Os per second that a rate of 1 means.
    """
    rows = [line.split(",") for line in lines if line.count(",") >= 2]
    found = [(int(row[0]), float(row[1])) for row in rows if int(row[2]) == (0 if op is Op.READ else 1)]
    if not found:
        return None
    # The first window begins one length before its line.
    start, end = found[0][0] - 1000 * window_seconds, found[-1][0]
    if end - start < 1000 * window_seconds * _LEAST_WINDOWS:
        return None
    scale = window_seconds * ios_per_unit
    first = second = 0.0
    for moment, rate in found:
        # A window that contains the middle belongs to both halves in part.
        late = min(1.0, max(0.0, (moment - (start + end) / 2) / (1000 * window_seconds)))
        first += (1 - late) * rate * scale
        second += late * rate * scale
    return Halves(first, second)


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
    """Return whether any client's rate fell by more than a factor. A failed client is judged elsewhere."""
    found = [given.evidence.get(HALVES) for given in outcome.clients.values() if given.metrics is not None]
    return any(Halves(*halves["ios"]).fell(limit) for halves in found if halves is not None)


def _with(given: ClientOutcome, evidence: Mapping[str, Any]) -> ClientOutcome:
    return replace(given, evidence={**given.evidence, **evidence})
