"""What measures one cell: fio, or a simulation of it. The runner knows only this protocol."""

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
"""The remedy where a volume cannot be read or written."""

SLOWEST_NBYTES_PER_S = MIB
"""Reading or writing a whole volume more slowly than this is taken for stuck."""


@dataclass(frozen=True, slots=True)
class CellRun:
    """One cell to be measured on all clients at once.

    Attributes:
        configuration: name.
        cell: which of the 20.
        repeat: round, counts from 0.
        attempt: counts from 0.
        measurement: how, under this load.
        clients: that run together.
        seeds: by client name, of its random offsets.
        load: its name; empty is the measurement's own.
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
    """What somebody else than the measuring program counted for one client (rule 4 of the design).

    Attributes:
        source: who counted, for people.
        window_nbytes: moved in the measured window, as well as the count can tell.
        total_nbytes: moved from before the program's start to after its end, exact.
        allowed_nbytes: by how much ``window_nbytes`` may differ for reasons that are known.
    """

    source: str
    window_nbytes: float
    total_nbytes: int
    allowed_nbytes: float


@dataclass(frozen=True, slots=True)
class ClientOutcome:
    """What one client gave.

    Attributes:
        metrics: None if it failed.
        failure: why; empty if it did not.
        count: of somebody else; None where nobody can count.
        uncounted: why nobody can, where there are metrics and ``count`` is None.
        doubt: why the engine itself does not trust what it got; empty if it does.
        evidence: more for the sample's evidence. JSON values only.
    """

    metrics: Metrics | None
    failure: str = ""
    count: IndependentCount | None = None
    uncounted: str = ""
    doubt: str = ""
    evidence: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CellOutcome:
    """What a run of a cell gave.

    Attributes:
        clients: by name: one for every client of the run.
        fio_json: the program's own output as one JSON document; None if there is none.
        program: that ran, as people call it.
    """

    clients: Mapping[str, ClientOutcome]
    fio_json: str | None
    program: str = "fio"


class Engine(Protocol):
    """Measures one cell. Called from one thread at a time.

    No figure comes from an earlier run, and one that failed or was interrupted does not touch the next. Nothing
    it started is alive when ``run`` or ``warm`` is over, also when an interrupt ends it, which it lets through at
    once. (A guest that nobody reaches works on until it is given its next job.)
    """

    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """What measures (``name``), its ``version`` and more. JSON values only, no secrets; the same each time.

        Raises:
            HostError: it cannot work on this machine.
        """

    @abstractmethod
    def run(self, run: CellRun) -> CellOutcome:
        """Measure; a failure is an outcome too: of every client there is one, with figures or the reason why not.

        Raises:
            HostError: this machine lacks something, so that no later run could do better.
            InputError: a client is of a kind that it never could measure.
        """

    @abstractmethod
    def warm(self, run: CellRun) -> None:
        """Read the volume of every client of a run once through, the way the run will. May be called again.

        Raises:
            ClusterError: one could not be read; which client's, its place and a remedy.
        """


@dataclass(frozen=True, slots=True)
class MovedBytes:
    """What a client has moved since its counters began, by somebody else than the program that measures."""

    read_nbytes: int
    written_nbytes: int

    def of(self, op: Op) -> int:
        return self.read_nbytes if op is Op.READ else self.written_nbytes


@runtime_checkable
class CountsIo(Protocol):
    """Who can say what clients have moved: the hypervisor of guests, for example.

    A target gives it to the engine that it brings, which asks before, during and after a run, from one thread at a
    time. Without it: samples say that nobody counted.
    """

    count_source: str
    """Who counts, for people."""
    count_seconds: float
    """How often asking makes sense."""

    @abstractmethod
    def moved(self, client: Client) -> MovedBytes:
        """The counters of a client's volume now; they never fall while the client is there.

        Raises:
            CephfitError: nobody can count for this client, and why.
        """


@runtime_checkable
class PreparesCells(Protocol):
    """An engine that needs something there before it can measure a cell.

    Asked: by ``runner``, before each run of a cell. Without it: a cell is measured as soon as caches are in their
    condition.
    """

    @abstractmethod
    def prepare(self, run: CellRun) -> None:
        """Bring about what the run needs, before caches are put into their condition. May be called again.

        Raises:
            ClusterError: it cannot be brought about; for which client, its place and a remedy.
        """


@runtime_checkable
class KnowsItsLimits(Protocol):
    """An engine that cannot measure every cell.

    Asked: by ``runner``, before a configuration is applied for its cells. Without it: all of them are measured.
    """

    @abstractmethod
    def cannot(self, cell: Cell, measurement: Measurement) -> str:
        """Why not this cell; empty if it can. Its samples are ``skipped`` with this reason."""


def disagreement(metrics: Metrics, count: IndependentCount, *, program: str = "fio") -> str:
    """Why the program that measured and an independent count cannot both be right; empty if they can.

    Two tests. The count over the whole life of the program includes its ramp, so it is never less than what the
    program says it moved after the ramp: exact. The count over the measured window may differ by
    ``allowed_nbytes``, or by one per cent of the program's figure where that is more.
    """
    claimed = metrics.nbytes_per_s * metrics.runtime_ns / 1e9
    # fio rounds its rate down to whole bytes per second: half a byte more per second is no disagreement.
    rounding = metrics.runtime_ns / 1e9 + 1
    if claimed > count.total_nbytes + rounding:
        return (
            f"{program} says that it moved {claimed:.0f} bytes, {count.source} counted only {count.total_nbytes} "
            "from its start to its end"
        )
    allowed = max(count.allowed_nbytes, 0.01 * claimed)
    if abs(claimed - count.window_nbytes) > allowed:
        return (
            f"{program} says that it moved {claimed:.0f} bytes in the measured time, {count.source} counted "
            f"{count.window_nbytes:.0f}; {allowed:.0f} bytes of difference are explained"
        )
    return ""
