"""Samples: measurements in a terminal state, with their evidence, such as the independent count of I/O."""

import gc
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import orjson

from cephfit.core.values.cells import Cell

OWN_LOAD = ""
"""Name of the measurement's own load; additional loads have other names."""


SUM_OF_CLIENTS = "sum_of_clients"
"""Key of the evidence of an imported sample that is the sum of several clients: their number."""


class State(StrEnum):
    """How a run ended. Running is not a state: a sample is created after its run ended."""

    OK = "ok"
    FAILED = "failed"
    """fio or the cluster gave no result."""
    INVALID = "invalid"
    """There is a result, but it cannot be trusted; the run is repeated."""
    SKIPPED = "skipped"
    """Deliberately not run."""


@dataclass(frozen=True, slots=True)
class Metrics:
    """The result of one fio run of one cell on one client.

    Attributes:
        iops: I/Os per second over the measured time.
        nbytes_per_s: bytes per second over the measured time.
        n_ios: I/Os completed in the measured time.
        runtime_ns: the measured time.
        latency_mean_ns: mean completion latency.
        latency_percentiles_ns: by percentile, such as ``{50.0: ..., 99.0: ...}``.
    """

    iops: float
    nbytes_per_s: float
    n_ios: int
    runtime_ns: int
    latency_mean_ns: float
    latency_percentiles_ns: dict[float, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (self.iops >= 0 and self.nbytes_per_s >= 0 and self.runtime_ns > 0):
            raise ValueError(f"impossible metrics: {self}")


@dataclass(frozen=True, slots=True)
class SampleKey:
    """Identifies a sample. ``repeat`` and ``attempt`` count from 0; a repeated run has the next ``attempt``.

    ``load`` is the name of the load (I/Os in flight, clients, mix, rate) in the sweep file; ``""`` is the
    measurement's own load.
    """

    configuration: str
    cell: Cell
    client: str
    repeat: int
    attempt: int = 0
    load: str = OWN_LOAD


@dataclass(frozen=True, slots=True)
class Sample:
    """One fio run of one cell on one client, in a terminal state.

    Attributes:
        key: which one.
        state: terminal.
        reason: why it is not ``ok``; empty if it is.
        metrics: None without a result of fio.
        started_ns: wall clock, ns since the epoch.
        finished_ns: wall clock, ns since the epoch.
        evidence: observations on its validity: health before and after, the independent count of I/O, cache
            condition. JSON values only.
    """

    key: SampleKey
    state: State
    metrics: Metrics | None
    started_ns: int
    finished_ns: int
    reason: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.state is State.OK and (self.metrics is None or self.reason):
            raise ValueError("an ok sample has metrics and no reason")
        if self.state is not State.OK and not self.reason:
            raise ValueError(f"a sample that is {self.state} says why")
        if self.finished_ns < self.started_ns:
            raise ValueError("a sample cannot end before it starts")


@dataclass(frozen=True, slots=True)
class WorkloadSample:
    """One run of the real workload on one configuration (verification).

    Attributes:
        configuration: name.
        repeat: counts from 0.
        attempt: counts from 0.
        state: terminal.
        metric: what was measured, for example ``tps``; more is better.
        value: None without a result.
        reason: why it is not ``ok``.
        evidence: the program's output, and the state of the cluster before and after. JSON values only.
    """

    configuration: str
    repeat: int
    attempt: int
    state: State
    metric: str
    value: float | None
    started_ns: int
    finished_ns: int
    reason: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)


DEVICE_IO = "device_io"
"""Key of a workload sample's evidence: what its clients' devices completed during the run, as the kernel counts
(``n_reads``, ``read_nbytes``, ``n_writes``, ``written_nbytes``), the time that it took (``seconds``), and the
operations that the workload did (``operations``), None where it does not state them."""

INDEPENDENT_COUNT = "independent_count"
"""Key of the I/O count by another source than the measuring program (rule 4 of the design)."""
_WINDOW, _NUMBER = "window_nbytes", (int, float)


def counted(*, source: str, window_nbytes: float, total_nbytes: int, allowed_nbytes: float) -> dict[str, Any]:
    """Return the document of a count, stored under ``INDEPENDENT_COUNT``.

    Args:
        source: what counted, as text.
        window_nbytes: moved in the measured window.
        total_nbytes: moved from before the program's start to after its end.
        allowed_nbytes: tolerated difference of ``window_nbytes`` for known reasons.
    """
    return {
        "source": source,
        _WINDOW: round(window_nbytes),
        "total_nbytes": total_nbytes,
        "allowed_nbytes": round(allowed_nbytes),
    }


def not_counted(why: str) -> dict[str, Any]:
    """Return the document for a missing count.

    Args:
        why: reason why no independent count exists.
    """
    return {"none_because": why}


def window_nbytes_of(evidence: Mapping[str, Any]) -> float | None:
    """Counted bytes in the measured window; None without an independent count."""
    count = evidence.get(INDEPENDENT_COUNT)
    found = count.get(_WINDOW) if isinstance(count, dict) else None
    return float(found) if isinstance(found, _NUMBER) else None


class CpuLayer(StrEnum):
    """One layer, in the order of a write, client first; the values are the words in samples and reports."""

    BENCHMARK = "benchmark program"
    CLIENT_BLOCK = "client block layer"
    LIBRBD = "librbd"
    INTERRUPTS = "interrupts and network"
    SERVER = "storage server"
    MESSENGER = "OSD messenger"
    OPS = "OSD op threads"
    STORE = "object store"
    OSD_REST = "OSD, other threads"
    MONITORS = "monitors and managers"
    KERNEL = "kernel threads"
    OTHER = "other programs"
    HYPERVISOR = "taken by the hypervisor"


NOT_OF_STORAGE = (CpuLayer.OTHER, CpuLayer.HYPERVISOR)
"""CPU time that was not used for the measured I/O."""


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause Python's cyclic garbage collector while the block runs.

    It looks through all values again and again while their number grows, and takes a third of the time in which a
    million samples are read. Samples have no cycles, so it finds nothing there. Other threads are paused as well.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def from_json(text: str | bytes) -> Any:
    """Read a stored document; orjson takes a quarter of the time of Python's module.

    It reads integers beyond 64 bits as floats. No document has such.
    """
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # half of a surrogate pair, as from file names that are not UTF-8
        return json.loads(text)
