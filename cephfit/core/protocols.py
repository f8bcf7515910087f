"""Narrow protocols between the rooms and the world, and the values that they exchange.

docs/design.md lists the protocols that have a contract test suite. ``NullProgress`` is the progress display that
shows nothing. Other values are imported for type checks alone: the command line must start without NumPy.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from cephfit.core.values.access import AccessBatch
    from cephfit.core.values.baseline import Baselines
    from cephfit.core.values.configuration import Configuration
    from cephfit.core.values.prediction import PredictionSet
    from cephfit.core.values.profile import Profile


class TraceReader(Protocol):
    """Reads one trace format. Safe to use for many files, one after the other or at once.

    Memory is bounded by a constant, whatever the file's size.
    """

    name: str
    """Short name of the format, as ``--format`` takes it."""

    def sniff(self, head: bytes) -> bool:
        """Whether a file that begins with ``head`` (up to 64 KiB, decompressed) is of this format.

        Raises:
            InputError: it is, or nearly, and says that it cannot be read.
        """

    def batches(self, source: Path) -> Iterator[AccessBatch]:
        """The accesses of a file, in order of issue as far as the format tells it.

        Args:
            source: a file, ``-`` for standard input, or a URL.

        Raises:
            InputError: naming the file and, where one is known, the line, record or byte.
        """


class CephAdmin(Protocol):
    """Sends commands to a Ceph cluster's monitors and daemons. Safe to call from several threads."""

    def command(self, prefix: str, /, **arguments: Any) -> Any:
        """Send a monitor (or manager) command and return its JSON, parsed; None where it answers nothing.

        Args:
            prefix: such as ``osd pool get``.
            arguments: by the names of Ceph's own command table.

        Raises:
            ClusterError: the cluster refused (with its own words) or did not answer in time.
        """

    def tell(self, daemon: str, prefix: str, /, **arguments: Any) -> Any:
        """The same for one daemon, such as ``osd.0``."""

    def exchange(self, prefix: str, payload: bytes = b"", /, **arguments: Any) -> bytes:
        """A monitor command whose input or answer are bytes, such as ``osd getcrushmap``; no JSON is asked for.

        Raises:
            ClusterError: as ``command``.
        """

    def close(self) -> None:
        """Give up the connection; further calls are an error."""


@dataclass(frozen=True, slots=True)
class Health:
    """The state of a target at one moment.

    Attributes:
        ok: whether a sample taken now can be trusted.
        reasons: why not, in the cluster's own terms (``OSD_DOWN``, ``2 PGs active+recovering``); empty if ok.
        observed: raw counters behind it. JSON values only.
    """

    ok: bool
    reasons: tuple[str, ...] = ()
    observed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Applied:
    """What a target found when it read a configuration back.

    Attributes:
        configuration: name.
        ok: every setting took effect.
        mismatches: one sentence per setting that did not.
        read_back: setting (as text) to the value per daemon or pool that has it. JSON values only.
        restarted: daemons that were restarted for it.
        seconds: how long applying took.
    """

    configuration: str
    ok: bool
    mismatches: tuple[str, ...]
    read_back: Mapping[str, Any]
    restarted: tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Client:
    """One benchmark client: a volume that fio can reach.

    Attributes:
        name: ``c0``, ``c1`` ...: stable over configurations, part of a sample's key.
        fio_options: the job options that say how fio reaches the volume, for example
            ``{"filename": "/dev/loop3"}`` or ``{"ioengine": "rbd", "pool": ..., "rbdname": ...}``.
        nbytes: size of the volume.
        device: block device of the volume on this machine, if it has one: workloads mount it, and its
            kernel counters are the independent count of I/O.
        address: where a fio server (``fio --server``) waits that does this client's I/O, as ``fio --client`` takes
            it: ``host``, ``host,port`` or ``sock:/path``; None where fio runs on this machine. With an address,
            ``fio_options`` name the volume as that host sees it, such as ``{"filename": "/dev/vdb"}``.
    """

    name: str
    fio_options: Mapping[str, str]
    nbytes: int
    device: Path | None = None
    address: str | None = None


class Target(Protocol):
    """Where configurations are applied and measured.

    The target owns what it creates and changes nothing else. Every change is journalled before it is made, so
    that ``reset`` brings back what was there, also from another process after a crash. What a target may offer
    besides is in ``cephfit.targets.abilities``.
    """

    name: str

    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """Versions of everything, the machine, the cluster's layout and clocks. JSON values only, no secrets."""

    @abstractmethod
    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        """Bring the target into ``configuration``: settings read back, volumes attached, cluster healthy.

        Volumes belong to a configuration and a size: they are filled with incompressible data under it when
        first used, and kept, because what lies on the disks depends on the settings it was written under. A
        half-filled volume is filled again. ``fill=False`` leaves the volumes as they are, for workloads that
        bring their own data.

        Raises:
            ClusterError: the cluster is unhealthy, or refuses.
        """

    @abstractmethod
    def clients(self) -> Sequence[Client]:
        """The clients of the configuration applied last."""

    @abstractmethod
    def drop_caches(self) -> None:
        """Make every cache between client and disk cold."""

    @abstractmethod
    def health(self) -> Health:
        """The state now; cheap, called around and during every run."""

    @abstractmethod
    def reset(self) -> None:
        """Undo all that was journalled; detach and delete what was created. Safe to call twice."""

    @abstractmethod
    def close(self) -> None:
        """Let go of connections; changes nothing on the target."""


class Workload(Protocol):
    """A real workload, run on a client's volume to verify a prediction.

    Nothing of it runs and nothing is mounted between two calls, also after one that failed or was interrupted.
    What it needs to know is on the volume: one object may prepare it, and another one, in a later process, run.
    """

    name: str
    metric: str
    """What ``run`` returns, for example ``tps``; more is better."""

    @abstractmethod
    def description(self) -> Mapping[str, Any]:
        """All options that shape its data and its runs, and the ``version`` of this list. JSON values only.

        It is kept with every sample and every prepared volume, and runs are compared only where it is the same: a
        name once given keeps its meaning, and where that cannot be, the version grows.
        """

    @abstractmethod
    def prepare(self, client: Client) -> None:
        """Put the workload's data on the volume, replacing all that is there. Raises as ``run``.

        A volume that is too small is an InputError before anything is written.
        """

    @abstractmethod
    def run(self, client: Client, seconds: float, *, seed: int) -> tuple[float, Mapping[str, Any]]:
        """Run for about ``seconds``; the metric's value and the program's own output as JSON values.

        Args:
            client: whose volume was prepared.
            seconds: of the measured part.
            seed: of the workload's random choices, 0 to 2**31 - 1: the same on every configuration within a
                round, another one in every round, because rows or files touched before are not where they were.
                A run that is tried again has another one, too.

        Raises:
            ClusterError: it gave no result, or the volume holds no data of this workload; another run may.
            HostError: likewise.
            LackingError: this machine lacks something, so that no later run could do better.
            InputError: the client or its volume does not suit the workload; no later run could do better either.
        """

    @abstractmethod
    def cleanup(self, client: Client) -> None:
        """Leave the volume unmounted and no process behind. Safe to call twice, and before anything else."""


@runtime_checkable
class WarmsCaches(Protocol):
    """What a Workload can do besides, where the volume is no device here: read it once itself before a run.

    Asked: before each run with warm caches. Without it: the client's device is read, or no run is possible.
    """

    @abstractmethod
    def warm(self, client: Client) -> None:
        """Before the next run the volume is read once through."""


class Predictor(Protocol):
    """Predicts every configuration's performance for a profile. Pure: no I/O, no clock, no globals.

    The same question has the same answer, which does not depend on the order of the baselines, on the unit of
    their rates or on how many accesses of the same mix the profile counts. Safe to ask from several threads.
    """

    @property
    def name(self) -> str:
        """The model that speaks, as ``--model`` takes it."""

    def predict(self, profile: Profile, baselines: Baselines) -> PredictionSet:
        """Rank the default and every configuration that has all the cells which the profile uses.

        One that lacks a cell is left out, with a note that names both and says why.

        Raises:
            InputError: the profile counts no access, or the default lacks a cell that it uses.
        """


class Progress(Protocol):
    """The one display of long work. Rooms report to it; the command line shows it.

    All words are shown as they are written, whatever they hold. Several threads may report at once.
    """

    def start(self, what: str, total: float | None = None) -> None:
        """Begin a piece of work of ``total`` steps (or seconds, or bytes); None when that is not known.

        Within another one, where that is not done yet.
        """

    def advance(self, steps: float = 1.0, detail: str = "") -> None:
        """Some of the piece that was started last is done; ``detail`` says what is going on now.

        It may come to more than ``total``. Where nothing was started it is passed over.
        """

    def note(self, message: str) -> None:
        """A lasting line, such as a sample that must be taken again."""

    def done(self) -> None:
        """The piece of work that was started last is over."""


class NullProgress:
    """Implements ``protocols.Progress`` by saying nothing."""

    def start(self, what: str, total: float | None = None) -> None:
        pass

    def advance(self, steps: float = 1.0, detail: str = "") -> None:
        pass

    def note(self, message: str) -> None:
        pass

    def done(self) -> None:
        pass
