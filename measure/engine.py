"""Protocols of the engines that measure one cell, and the values they exchange with the runner."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from cephfit.core.protocols import Client
from cephfit.core.units import MIB
from cephfit.core.values.cells import Cell, Op
from cephfit.core.values.measurement import Measurement
from cephfit.core.values.sample import OWN_LOAD, Metrics

CHECK_STORAGE = (
    "check the health of the cluster or disk behind it, and the system's log; then run the same command again to "
    "continue"
)
"""Remedy where a volume cannot be read or written."""

SLOWEST_NBYTES_PER_S = MIB
"""A volume that is read or written more slowly than this counts as stuck."""


@dataclass(frozen=True, slots=True)
class CellRun:
    """One cell to measure on all clients at once.

    Attributes:
        configuration: its name.
        cell: which of the 20.
        repeat: round, from 0.
        attempt: from 0.
        measurement: how to measure, under this load.
        clients: that run together.
        seeds: client name to the seed of its random offsets.
        load: its name; empty for the measurement's own load.
    """

    configuration: str
    cell: Cell
    repeat: int
    attempt: int
    measurement: Measurement
    clients: Sequence[Client]
    seeds: Mapping[str, int]
    load: str = OWN_LOAD


@dataclass(frozen=True, slots=True)
class IndependentCount:
    """Bytes of one client, counted independently of the measuring program (rule 4 of the design).

    Attributes:
        source: of the count, for people.
        window_nbytes: bytes moved in the measured window, estimated from the count.
        total_nbytes: bytes moved from before the program's start to after its end, exact.
        allowed_nbytes: difference of ``window_nbytes`` that known causes explain.
    """

    source: str
    window_nbytes: float
    total_nbytes: int
    allowed_nbytes: float


@dataclass(frozen=True, slots=True)
class ClientOutcome:
    """Result of one client.

    Attributes:
        metrics: None if the client failed.
        failure: reason of a failure; empty if there is none.
        count: independent count; None where none exists.
        uncounted: reason why no independent count exists, where there are metrics; empty if one does.
        doubt: reason why the engine does not trust the result; empty if it does.
        evidence: additions to the sample's evidence. JSON values only.
    """

    metrics: Metrics | None
    failure: str = ""
    count: IndependentCount | None = None
    uncounted: str = ""
    doubt: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """Result of one run of a cell.

    Attributes:
        clients: client name to outcome, for every client of the run.
        fio_json: the program's own output as one JSON document; None if there is none.
        program: name of the program that ran, for people.
    """

    clients: Mapping[str, ClientOutcome]
    fio_json: str | None
    program: str = "fio"


class Engine(Protocol):
    """Measures one cell. Called from one thread at a time.

    No figure comes from an earlier run. A failed or interrupted run does not affect the next one. No process that
    it started is alive when ``run`` or ``warm`` returns, also after an interrupt, which it passes on at once.
    (A guest that cannot be reached continues until it gets its next job.)
    """

    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """Return the engine's ``name``, ``version`` and more. JSON values, no secrets; the same each time.

        Raises:
            HostError: the engine cannot work on this machine.
        """

    @abstractmethod
    def run(self, run: CellRun) -> CellOutcome:
        """Measure a cell. Return an outcome for every client: its figures, or the reason of its failure.

        Raises:
            HostError: this machine lacks something that every later run needs, too.
            InputError: the engine cannot measure this kind of client.
        """

    @abstractmethod
    def warm(self, run: CellRun) -> None:
        """Read the volume of every client once, by the path that the run will use. May be called again.

        Raises:
            ClusterError: a volume could not be read; names the client, its place and a remedy.
        """


@dataclass(frozen=True, slots=True)
class MovedBytes:
    """Bytes that a client has moved since its counters began, counted independently of the measuring program."""

    read_nbytes: int
    written_nbytes: int

    def of(self, op: Op) -> int:
        return self.read_nbytes if op is Op.READ else self.written_nbytes


@runtime_checkable
class CountsIo(Protocol):
    """Source of independent counts of clients' I/O, such as the hypervisor of guests.

    A target passes it to the engine that it brings. The engine reads it before, during and after a run, from one
    thread at a time. Without it: samples state that no independent count exists.
    """

    count_source: str
    """Name of the source, for people."""
    count_seconds: float
    """Useful interval between two readings."""

    @abstractmethod
    def moved(self, client: Client) -> MovedBytes:
        """Return the current counters of a client's volume; they never fall while the client exists.

        Raises:
            CephfitError: the reason why no count exists for this client.
        """


@runtime_checkable
class PreparesCells(Protocol):
    """An engine that prepares data before it can measure a cell.

    Called: by ``runner``, before each run of a cell. Without it: a cell is measured as soon as the caches are in
    their condition.
    """

    @abstractmethod
    def prepare(self, run: CellRun) -> None:
        """Prepare what the run needs, before caches are brought into their condition. May be called again.

        Raises:
            ClusterError: the preparation failed; names the client, its place and a remedy.
        """


@runtime_checkable
class KnowsItsLimits(Protocol):
    """An engine that cannot measure every cell.

    Called: by ``runner``, before a configuration is applied for its cells. Without it: all cells are measured.
    """

    @abstractmethod
    def cannot(self, cell: Cell, measurement: Measurement) -> str:
        """Return why this cell cannot be measured; empty if it can. Its samples are ``skipped`` with it."""


def disagreement(metrics: Metrics, count: IndependentCount, *, program: str = "fio") -> str:
    """Return why the program's figure and an independent count contradict each other; empty if they agree.

    There are two tests. The count over the program's whole life includes its ramp, so it is never less than what
    the program reports after the ramp: exact. The count over the measured window may differ by
    ``allowed_nbytes``, or by one per cent of the program's figure where that is more.
    """
    claimed = metrics.nbytes_per_s * metrics.runtime_ns / 1e9
    # fio rounds its rate down to whole bytes per second: half a byte more per second is no disagreement.
    rounding = metrics.runtime_ns / 1e9 + 1
    if claimed > count.total_nbytes + rounding:
        return (
            f"{program} reports {claimed:.0f} bytes moved, but {count.source} counted only {count.total_nbytes} "
            "from its start to its end"
        )
    allowed = max(count.allowed_nbytes, 0.01 * claimed)
    if abs(claimed - count.window_nbytes) > allowed:
        return (
            f"{program} reports {claimed:.0f} bytes moved in the measured time, but {count.source} counted "
            f"{count.window_nbytes:.0f}; known causes explain a difference of {allowed:.0f} bytes"
        )
    return ""
