"""Runs of a sweep, and their samples: measurements in a terminal state, with evidence such as the count of I/O."""

import gc
import json
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import orjson

from cephfit.core.tabular import Table, Tabular
from cephfit.core.units import NS_PER_S
from cephfit.core.values.cells import Cell

SIMULATED = "SIMULATED: these figures come from a model, not from a disk"
"""Shown with all figures of a simulated run."""

IMPORTED_FACT = "imported"
"""Key of the facts of an imported run: number of files, and their formats."""
IMPORTED_OUTPUT = "imported output"
"""Key of the JSON text in which the content of an imported file is kept."""
IMPORTED = (
    "IMPORTED: cephfit did not measure these figures, so its checks did not apply: health, caches, an independent "
    "count. Repeats of one number are read as one round; what changed between configurations over time appears as "
    "a difference between them"
)
"""Shown with all figures of an imported run."""

RUN_COLUMNS = ("run", "sweep", "target", "created", "finished", "simulated")
"""Columns of a table of runs."""


def new_run_id(name: str, created_ns: int) -> str:
    """Return a unique id from a name and a time in ns since the epoch: ``quick-20261121T101500-3f9a``."""
    return f"{name}-{datetime.fromtimestamp(created_ns // NS_PER_S, UTC):%Y%m%dT%H%M%S}-{secrets.token_hex(2)}"


@dataclass(frozen=True, slots=True)
class Run(Tabular):
    """One run of one sweep on one target; it may be interrupted and continued any number of times.

    Attributes:
        run_id: unique, safe in file names and RBD image names: ``quick-20261121T101500-3f9a``.
        sweep_name: the sweep's name.
        sweep_text: the original sweep file, unchanged.
        sweep_digest: SHA-256 of the file's meaning (without comments and layout), hex.
        target: the target's name, for example ``lab:default``.
        seed: of the order of runs.
        created_ns: wall clock, ns since the epoch.
        facts: versions of everything, the machine, the cluster's layout, clocks. JSON values only.
        finished: every sample of the plan is in a terminal state.
    """

    run_id: str
    sweep_name: str
    sweep_text: str
    sweep_digest: str
    target: str
    seed: int
    created_ns: int
    facts: Mapping[str, Any] = field(default_factory=dict)
    finished: bool = False

    @property
    def is_simulated(self) -> bool:
        """Whether the figures come from a model instead of a disk."""
        return self.target.startswith("simulated") or bool(self.facts.get("simulated"))

    @property
    def is_imported(self) -> bool:
        """Whether the figures come from outputs of benchmarks that cephfit did not run."""
        return IMPORTED_FACT in self.facts

    @property
    def created(self) -> datetime:
        """Start time in UTC."""
        return datetime.fromtimestamp(self.created_ns // NS_PER_S, UTC)

    @property
    def origin_notes(self) -> tuple[str, ...]:
        """What readers must know about the origin of the figures; empty if cephfit measured them on a disk."""
        return (*((SIMULATED,) if self.is_simulated else ()), *((IMPORTED,) if self.is_imported else ()))

    def _table(self) -> Table:
        rows = ((self.run_id, self.sweep_name, self.target, self.created, self.finished, self.is_simulated),)
        return Table(f"Run {self.run_id}", RUN_COLUMNS, rows, self.origin_notes)


PROFILE_DOCUMENT = "profile"
"""Profile of the mapped workload; for a named load the kind is that of ``kind_of`` in ``sample_store``."""
PREDICTIONS_DOCUMENT = "predictions"
"""Predictions for that workload; likewise."""
WORKLOAD_PROFILE_DOCUMENT = "workload profile"
"""Profile of a workload that was run (``cephfit verify``); the kind ends with its name, as that of ``kind_of``."""
VERIFICATION_DOCUMENT = "verification"
"""Assessment of the predictions by runs of the workload."""
PROBE_DOCUMENT = "probe"
"""Predictions before and after runs of a clone (``cephfit probe``); the kind ends with the name of the profile."""
PROBE_PREFIX = "probe:"
"""Begins the name of a workload that is a clone: it repeats the accesses of a profile, and verifies nothing."""
STOPPING_DOCUMENT = "stopping"
"""Decisions of races, and the repeats that they saved."""
TRIALS_DOCUMENT = "trials"
"""Configurations that an optimiser proposed."""
CONTINUATIONS_DOCUMENT = "continuations"
"""Other program versions with which a run was continued."""
MEASURING_DOCUMENT = "measuring"
"""The process that measures a run; empty after it has ended."""
IMPORTED_DOCUMENT = "imported files"
"""Files of an imported run: name by SHA-256, those without figures included."""
TARGETS_DOCUMENT = "targets"
"""Position of the run's target among several targets of one command."""

CLUSTER = "fsid"
"""Key of a target's facts: the cluster's identifier, if the target is a cluster."""


def is_another_cluster(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether two sets of facts are of different clusters. A lab that was created again is another cluster.

    Targets without an identifier are compared by name.
    """
    return None not in (before.get(CLUSTER), now.get(CLUSTER)) and before[CLUSTER] != now[CLUSTER]


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
"""Key of a workload sample's evidence: what its clients' devices completed while it was measured, as the kernel
counts (``n_reads``, ``read_nbytes``, ``n_writes``, ``written_nbytes``), the time that it took (``seconds``), and
the operations that the workload did (``operations``), None where it does not state them."""

CPU_BUSY = "cpu_busy"
"""Key of a workload sample's evidence: busy share of the CPUs of the machine that ran the workload, while it was
measured, 0 to 1. Absent where it ran on other machines, or does not state when it was measured."""

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


def windows_nbytes_of(evidence: Sequence[Mapping[str, Any]]) -> Sequence[float | None]:
    """Return ``window_nbytes_of`` of each evidence; fast if all of them have a count."""
    try:
        found = [own[INDEPENDENT_COUNT][_WINDOW] for own in evidence]
    except (KeyError, TypeError):
        found = [None]
    if {*map(type, found)} <= {*_NUMBER}:
        return found
    return [window_nbytes_of(own) for own in evidence]


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
