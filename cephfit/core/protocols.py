"""Narrow protocols between the rooms and the world, and the values that they exchange.

docs/design.md lists the protocols that have a contract test suite. ``NullProgress`` is the progress display that
shows nothing. Other values are imported for type checks alone: the command line must start without NumPy.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, Self, runtime_checkable

if TYPE_CHECKING:
    from cephfit.core.values.baseline import Baselines
    from cephfit.core.values.configuration import Configuration
    from cephfit.core.values.prediction import PredictionSet
    from cephfit.core.values.profile import Profile

KeepOnly = Callable[[int, int], None]
"""Keeps only a time of a recording; receives its begin and end, ns since the epoch."""
Observe = Callable[[Path], AbstractContextManager[KeepOnly | None]]
"""Records the accesses to a client's device during a run."""


class CephAdmin(Protocol):
    """Sends commands to a Ceph cluster's monitors and daemons. Safe to call from several threads."""

    def command(self, prefix: str, /, **arguments: Any) -> Any:
        """Send a monitor (or manager) command and return its parsed JSON; None for an empty answer.

        Args:
            prefix: such as ``osd pool get``.
            arguments: named as in Ceph's command table.

        Raises:
            ClusterError: the cluster refused (with its message) or did not answer in time.
        """

    def tell(self, daemon: str, prefix: str, /, **arguments: Any) -> Any:
        """Send a command to one daemon, such as ``osd.0``; otherwise as ``command``."""

    def exchange(self, prefix: str, payload: bytes = b"", /, **arguments: Any) -> bytes:
        """Send a monitor command with bytes as input or answer, such as ``osd getcrushmap``; no JSON.

        Raises:
            ClusterError: as ``command``.
        """

    def close(self) -> None:
        """Close the connection; further calls are an error."""


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a target at one moment.

    Attributes:
        ok: whether a sample taken now can be trusted.
        reasons: why not, in the cluster's terms (``OSD_DOWN``, ``2 PGs active+recovering``); empty if ok.
        observed: raw counters behind it. JSON values only.
    """

    ok: bool
    reasons: tuple[str, ...] = ()
    observed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of applying a configuration, as the target read it back.

    Attributes:
        configuration: name.
        ok: every setting took effect.
        mismatches: one sentence per setting that did not take effect.
        read_back: setting (as text) to its value per daemon or pool. JSON values only.
        restarted: daemons that were restarted to apply it.
        seconds: how long applying took.
    """

    configuration: str
    ok: bool
    mismatches: tuple[str, ...]
    read_back: Mapping[str, Any]
    restarted: tuple[str, ...] = ()
    seconds: float = 0.0

    @classmethod
    def as_read(
        cls,
        configuration: Configuration,
        read_back: Mapping[str, Any],
        mismatches: Iterable[str],
        *,
        seconds: float,
        restarted: Iterable[str] = (),
    ) -> Self:
        """Return the result for values that were read back: ok without a mismatch."""
        against = tuple(mismatches)
        return cls(configuration.name, not against, against, read_back, tuple(restarted), seconds)


@dataclass(frozen=True, slots=True)
class Client:
    """One benchmark client: a volume that fio can access.

    Attributes:
        name: ``c0``, ``c1`` ...: stable over configurations, part of a sample's key.
        fio_options: the job options with which fio opens the volume, for example
            ``{"filename": "/dev/loop3"}`` or ``{"ioengine": "rbd", "pool": ..., "rbdname": ...}``.
        nbytes: size of the volume.
        device: block device of the volume on this machine, if it has one: workloads mount it, and its
            kernel counters are the independent count of I/O.
        address: of the fio server (``fio --server``) that does this client's I/O, as ``fio --client`` takes it:
            ``host``, ``host,port`` or ``sock:/path``; None where fio runs on this machine. With an address,
            ``fio_options`` name the volume as that host sees it, such as ``{"filename": "/dev/vdb"}``.
    """

    name: str
    fio_options: Mapping[str, str]
    nbytes: int
    device: Path | None = None
    address: str | None = None


class Target(Protocol):
    """Where configurations are applied and measured.

    The target owns what it creates and changes nothing else. Every change is journalled before it is applied, so
    that ``reset`` restores the original state, also from another process after a crash. Optional abilities of
    targets are in ``cephfit.targets.abilities``.
    """

    name: str

    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """Versions of everything, the machine, the cluster's layout and clocks. JSON values only, no secrets."""

    @abstractmethod
    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        """Apply ``configuration``: afterwards settings are read back, volumes attached, the cluster is healthy.

        Volumes belong to a configuration and a size. They are filled with incompressible data when first used, and
        kept, because the data on disk depends on the settings under which it was written. A partly filled volume
        is filled again. ``fill=False`` leaves volumes unfilled, for workloads that write their own data.

        Raises:
            ClusterError: the cluster is unhealthy, or refuses.
        """

    @abstractmethod
    def clients(self) -> Sequence[Client]:
        """Return the clients of the last applied configuration."""

    @abstractmethod
    def drop_caches(self) -> None:
        """Drop every cache between client and disk."""

    @abstractmethod
    def health(self) -> Health:
        """Return the current state. It is cheap: called before, during and after every run."""

    @abstractmethod
    def reset(self) -> None:
        """Undo all journalled changes; detach and delete what was created. Safe to call twice."""

    @abstractmethod
    def close(self) -> None:
        """Close connections; change nothing on the target."""


class Workload(Protocol):
    """A real workload, run on a client's volume to verify a prediction.

    Between two calls no process runs and nothing is mounted, also after a failed or interrupted call. All state is
    on the volume: one object may prepare it, and another object in a later process may run it.
    """

    name: str
    metric: str
    """What ``run`` returns, for example ``tps``; more is better."""

    @abstractmethod
    def description(self) -> Mapping[str, Any]:
        """Return all options that affect its data and runs, and the ``version`` of this list. JSON values only.

        It is stored with every sample and every prepared volume. Only runs with equal descriptions are compared:
        an option name keeps its meaning, or the version increases.
        """

    @abstractmethod
    def prepare(self, client: Client) -> None:
        """Write the workload's data to the volume, replacing its content. Raises as ``run``.

        A volume that is too small is an InputError before anything is written.
        """

    @abstractmethod
    def run(self, client: Client, seconds: float, *, seed: int) -> tuple[float, Mapping[str, Any]]:
        """Run for about ``seconds``; return the metric's value and the program's output as JSON values.

        Args:
            client: whose volume was prepared.
            seconds: of the measured part.
            seed: of the workload's random choices, 0 to 2**31 - 1: equal for all configurations of a round, and
                different in every round, because rows or files used before have moved. A retried run has a new
                seed, too.

        Raises:
            ClusterError: there is no result, or the volume has no data of this workload; a retry may succeed.
            HostError: likewise.
            LackingError: this machine lacks something; a retry cannot succeed.
            InputError: the client or its volume does not suit the workload; a retry cannot succeed.
        """

    @abstractmethod
    def cleanup(self, client: Client) -> None:
        """Leave the volume unmounted and no process behind. Safe to call twice, and before anything else."""


@runtime_checkable
class WarmsCaches(Protocol):
    """Optional ability of a Workload whose volume is not a device of this machine: read the volume itself.

    Used before each run with warm caches. Without it the client's device is read, or no run is possible.
    """

    @abstractmethod
    def warm(self, client: Client) -> None:
        """Read the whole volume once before the next run."""


@runtime_checkable
class CountsOperations(Protocol):
    """Optional ability of a Workload: end a run not after a time, but after a number of operations."""

    @abstractmethod
    def run_operations(
        self, client: Client, n_operations: int, seconds: float, *, seed: int
    ) -> tuple[float, Mapping[str, Any]]:
        """Do about so many operations; otherwise as ``Workload.run``.

        Args:
            client: see ``Workload.run``.
            n_operations: of the measured part. The output has their exact number as ``operations``.
            seconds: that they take on the default configuration.
            seed: see ``Workload.run``.
        """


@runtime_checkable
class RunsTogether(Protocol):
    """Optional ability of a Workload: run on several clients at once itself.

    Without it, each client's ``run`` is called in its own thread.
    """

    @abstractmethod
    def run_together(
        self, clients: Sequence[Client], seconds: float, *, seeds: Sequence[int]
    ) -> Sequence[tuple[float, Mapping[str, Any]]]:
        """Run on all clients at once; return what ``run`` returns, for each client. Raises as ``run``."""


class Predictor(Protocol):
    """Predicts every configuration's performance for a profile. Pure: no I/O, no clock, no globals.

    The result is deterministic. It does not depend on the order of the baselines, on the unit of their rates, or
    on the number of accesses of the same mix in the profile. Safe to call from several threads.
    """

    @property
    def name(self) -> str:
        """Name of the model, as ``--model`` takes it."""

    def at(self, confidence: float) -> Predictor:
        """The same predictor, its scatter at another joint level; the error of the model keeps its own level."""

    def predict(self, profile: Profile, baselines: Baselines) -> PredictionSet:
        """Rank the default and every configuration that has all cells of the profile.

        A configuration without one of them is omitted, with a note that names both and the reason.

        Raises:
            InputError: the profile has no access, or the default lacks a cell of the profile.
        """

    def against(self, reference: str, profile: Profile, baselines: Baselines) -> PredictionSet:
        """Rank as ``predict``, but with the performance of ``reference``, not of the default, = 100.

        Raises:
            InputError: as ``predict``, or ``reference`` cannot be compared with the default.
        """


class Progress(Protocol):
    """The display of long work. Rooms report to it; the command line shows it.

    Texts are shown unchanged, without markup. Several threads may report concurrently.
    """

    def start(self, what: str, total: float | None = None) -> None:
        """Begin a task of ``total`` steps (or seconds, or bytes); None if the total is unknown.

        Within a task that is not done, this begins a subtask.
        """

    def advance(self, steps: float = 1.0, detail: str = "") -> None:
        """Report progress of the last started task; ``detail`` describes the current step.

        The sum of steps may exceed ``total``. Without a started task the call is ignored.
        """

    def note(self, message: str) -> None:
        """Show a permanent line, such as a sample that must be repeated."""

    def done(self) -> None:
        """End the last started task."""


class NullProgress:
    """Implements ``Progress`` and shows nothing: for libraries, tests and pipes."""

    def start(self, what: str, total: float | None = None) -> None:
        pass

    def advance(self, steps: float = 1.0, detail: str = "") -> None:
        pass

    def note(self, message: str) -> None:
        pass

    def done(self) -> None:
        pass
