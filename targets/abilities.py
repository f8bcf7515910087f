"""Abilities: optional protocols of a target in addition to ``protocols.Target``.

Callers test for an ability with ``isinstance``. A class lists its abilities among its bases, and cannot be
instantiated while it lacks one of their methods. The protocols are in the order in which a sweep asks for them.
Types of other rooms are imported for type checkers only, so a target loads nothing for them.

Two protocols serve only a cloud target's own engine and are defined next to it: ``engine.CountsIo`` and
``guests.KnowsPlaces``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from cephfit.core.protocols import Client
from cephfit.core.values.configuration import Configuration
from cephfit.measure.disturbances import ChecksClients as ChecksClients
from cephfit.measure.disturbances import HasTelemetry as HasTelemetry
from cephfit.measure.disturbances import ReportsDisturbances as ReportsDisturbances
from cephfit.measure.micro.file_places import CountsTraffic as CountsTraffic
from cephfit.measure.micro.file_places import ExportsFiles as ExportsFiles
from cephfit.measure.micro.file_places import Traffic as Traffic
from cephfit.measure.micro.file_places import TrafficCounter as TrafficCounter
from cephfit.measure.micro.file_places import traffic_of as traffic_of

if TYPE_CHECKING:
    from cephfit.ceph.options.option_catalogue import Catalogue
    from cephfit.cloud.guests.guest_jobs import Answers
    from cephfit.core.values.configuration import Preview, Undoing
    from cephfit.core.values.measurement import PlannedSweep, StepTimes
    from cephfit.measure.engine import Engine


@runtime_checkable
class ChecksSweep(Protocol):
    """Checks that its own options fit a sweep, such as the name of a configuration that it simulates as refused.

    Asked: by ``unsupported_options.fitted_to``, first of all, when a sweep is planned for the target or run on it.
    Without it: nothing is checked.
    """

    @abstractmethod
    def check(self, sweep: PlannedSweep) -> None:
        """Check the target's options against a sweep; change nothing.

        Raises:
            InputError: an option of the target does not fit this sweep.
        """


@runtime_checkable
class MayKeepCaches(Protocol):
    """Cannot always drop the caches of the cluster.

    Asked: by ``preflight.unsupported_by`` and ``cephfit trace workload``, where cold caches are required. Without
    it: ``drop_caches`` is called unconditionally.
    """

    @abstractmethod
    def why_caches_stay(self) -> str:
        """Return why caches cannot be dropped here; empty if they can."""


@runtime_checkable
class JudgesConfigurations(Protocol):
    """Reports in advance which configurations it does not support.

    Asked: by ``preflight.unsupported_by`` before a sweep changes anything, and for configurations that an
    optimiser adds. Without it: all are tried, one that cannot be applied is ``failed`` instead of ``skipped``, and
    ``gone_options: leave-out`` has no effect.
    """

    @abstractmethod
    def unsupported(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """Return the name of each unsupported configuration, with one reason per setting; change nothing.

        Their samples are ``skipped`` with these reasons (options that this release no longer has, for example).

        Raises:
            InputError: no release ever had a setting: a typing error, not a matter of versions.
        """


@runtime_checkable
class HasCatalogue(Protocol):
    """Is a Ceph cluster and provides the catalogue of its options.

    Asked: by ``preflight.unsupported_by``, of a target that judges configurations; by ``cephfit params``.
    Without it: a sweep's options are not looked up, and ``cephfit params`` refuses the target.
    """

    @abstractmethod
    def catalogue(self) -> Catalogue:
        """Return the options of the cluster."""


@runtime_checkable
class Previews(Protocol):
    """Reports in advance what it would change, without changing anything.

    Asked: by ``cephfit sweep plan``, by ``cephfit restore`` without ``--apply``, and by
    ``preflight.require_healthy``, which takes pending undoings as the sign of a run to continue. Without it: the
    plan and the list of what would be restored name no change, and the target must be healthy even where a run
    continues.
    """

    @abstractmethod
    def preview(self, sweep: PlannedSweep) -> Preview:
        """Return what applying a sweep's configurations would change."""

    @abstractmethod
    def undoings(self) -> Sequence[Undoing]:
        """Return what ``reset`` would restore now, in the order of execution."""


@runtime_checkable
class BringsEngine(Protocol):
    """Is measured by its own engine, not by the program that a sweep file names.

    Asked: by ``preflight.engine_of``, before a run begins or continues. Without it: the program that the sweep
    file names measures from this machine.
    """

    @abstractmethod
    def engine(self) -> Engine:
        """Return the engine, independent of the sweep file."""


@runtime_checkable
class EstimatesStepTimes(Protocol):
    """Estimates how long the steps of a sweep take on it, where the usual times of Ceph and fio do not apply.

    Asked: by ``run_progress.times_on``, for plans and progress displays. Without it: the times come from earlier
    runs in the store, or else are those of a one-machine lab.
    """

    @abstractmethod
    def step_times(self) -> StepTimes:
        """Return the durations of the steps; their source is "simulated" or similar."""


@runtime_checkable
class KeepsToImages(Protocol):
    """Can be restricted to the images in one pool.

    Asked: by ``preflight.engine_of``, where the sweep file names a program that creates other objects than images.
    Without it: any program may measure.
    """

    only_pool: str
    """Name of the pool; empty without such a restriction."""


@runtime_checkable
class WarnsOfSettings(Protocol):
    """Reports which settings it accepts but never reads.

    Asked: by ``preflight.without_effect_by``, for a plan, and when a run begins or continues. Without it: there is
    no warning.
    """

    @abstractmethod
    def without_effect(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """Return the name of each configuration with such settings, and a sentence for each; change nothing.

        They are measured nevertheless; the run keeps the sentences, and reports show them.
        """


@runtime_checkable
class ReportsLimits(Protocol):
    """Reports limits of clients that are not those of the storage, such as the QoS of a cloud.

    Asked: by ``preflight.limits_by``, when a run begins or continues. Without it: reports show no such limits.
    """

    @abstractmethod
    def limits(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """Return the name of each configuration that such limits cap, one sentence per limit; change nothing.

        The run keeps the sentences, and reports show them.
        """


@runtime_checkable
class BelongsToRun(Protocol):
    """Marks what it creates with the id of the current run.

    Called: by ``runner.run_sweep``, ``cephfit verify`` and ``cephfit trace workload``, before anything is applied.
    Without it: the target does not know the run.
    """

    @abstractmethod
    def begin(self, run_id: str) -> None:
        """Begin or continue a run: new resources carry its id, and earlier ones of the same id belong to it."""


@runtime_checkable
class ScalesClients(Protocol):
    """Adds clients to the existing ones, and keeps these and their volumes.

    Asked: by ``runner.run_sweep``, before the first configuration is applied, and at each load for the number of
    clients. ``apply`` is called with as many clients as the next load needs, and again for the configuration that
    is in place when a later load needs more. Without it: ``apply`` creates as many as the largest load needs, at
    once.
    """

    @abstractmethod
    def require_clients(
        self, configurations: Iterable[Configuration], *, n_clients: int, volume_nbytes: int
    ) -> None:
        """Check that each configuration can have this number of clients, before the first one is created.

        Raises:
            InputError: a resource that clients need does not exist.
            ClusterError: the capacity is too small.
        """


@runtime_checkable
class KeepsNotes(Protocol):
    """Keeps notes with a client's volume for the lifetime of the volume.

    Asked: by ``verification``, around the preparation of a volume for a workload. Without it: each command
    prepares the volumes again.
    """

    @abstractmethod
    def note_on(self, client: Client, key: str) -> str | None:
        """Return the note, None if there is none."""

    @abstractmethod
    def set_note(self, client: Client, key: str, text: str | None) -> None:
        """Set a note, or remove it with None."""


@runtime_checkable
class RunsGuestJobs(Protocol):
    """Runs arbitrary jobs in its clients, which are guests, in several of them at once.

    Asked: by ``cephfit verify`` and ``cephfit trace workload``, which then run the workload in a guest, and by
    ``cephfit probe``, which refuses such a target. Without it: the workload runs on this machine, on the client's
    device.
    """

    @abstractmethod
    def run_guest_jobs(self, clients: Sequence[Client], scripts: Mapping[str, str], *, seconds: float) -> Answers:
        """Run a shell script in each guest after a boot, with the guest's volume at ``guests.VOLUME``.

        Several begin at the same moment.

        Args:
            clients: the clients that the guests are.
            scripts: client name to script for ``sh``.
            seconds: approximate limit of their duration.

        Raises:
            ClusterError: a guest returned no answer.
        """
