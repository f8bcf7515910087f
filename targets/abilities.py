"""What a target may offer besides ``protocols.Target``: abilities that others ask for with ``isinstance``.

A class names those that it has among its bases, and cannot be instantiated while it lacks a method of one of them.
They stand here in the order in which a sweep asks for them. What is of a room is imported for type checkers alone:
no target loads more for being asked.

What a cloud's target gives its own engine, and nobody asks for, is with that engine: ``engine.CountsIo``,
``placement.KnowsPlaces``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from cephfit.core.protocols import Client
from cephfit.core.values.configuration import Configuration
from cephfit.measure.validity.watched_target import HasWitness as HasWitness
from cephfit.measure.validity.watched_target import TellsDisturbances as TellsDisturbances
from cephfit.measure.validity.watched_target import VouchesForClients as VouchesForClients

if TYPE_CHECKING:
    from cephfit.ceph.options.option_catalogue import Catalogue
    from cephfit.cloud.guests.guest_jobs import Answers
    from cephfit.core.values.measurement import PlannedSweep, StepTimes
    from cephfit.core.values.preview import Preview, Undoing
    from cephfit.measure.engine import Engine


@runtime_checkable
class ChecksSweep(Protocol):
    """It was told something about the configurations of one sweep, such as which will be refused.

    Asked: by ``leaving_out.fitted_to``, before all else, when a sweep is planned for the target or run on it.
    Without it: nothing is checked.
    """

    @abstractmethod
    def check(self, sweep: PlannedSweep) -> None:
        """Changes nothing.

        Raises:
            InputError: what it was told does not fit this sweep.
        """


@runtime_checkable
class MayKeepCaches(Protocol):
    """It is not always free to drop the caches of the cluster.

    Asked: by ``beforehand.unsupported_by`` and ``cephfit trace workload``, where cold caches are wanted. Without
    it: ``drop_caches`` is called as if it could always do so.
    """

    @abstractmethod
    def why_caches_stay(self) -> str:
        """Why caches cannot be dropped here; empty if they can."""


@runtime_checkable
class JudgesConfigurations(Protocol):
    """It says beforehand which configurations it cannot be brought into at all.

    Asked: by ``beforehand.unsupported_by`` before a sweep changes anything, and for configurations that are found
    on the way. Without it: all are tried, one that cannot be applied is ``failed`` instead of ``skipped``, and
    ``gone_options: leave-out`` leaves nothing out.
    """

    @abstractmethod
    def unsupported(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """Name of each configuration that cannot be applied, with one reason per setting; changes nothing.

        Their samples are ``skipped`` with these reasons (options that this release no longer has, for example).

        Raises:
            InputError: a setting that no release ever had: a typing error, not a matter of versions.
        """


@runtime_checkable
class HasCatalogue(Protocol):
    """It is a Ceph cluster and can be asked for its options.

    Asked: by ``beforehand.unsupported_by``, of a target that judges configurations; by ``cephfit params``.
    Without it: a sweep's options are not looked up, and ``cephfit params`` refuses the target.
    """

    @abstractmethod
    def catalogue(self) -> Catalogue:
        """The options of the cluster."""


@runtime_checkable
class Previews(Protocol):
    """It says beforehand what it would do. Changes nothing.

    Asked: by ``cephfit sweep plan``, by ``cephfit restore`` before it is told to restore, and by
    ``beforehand.require_healthy``, for which a run is gone on with where something is to be undone. Without it:
    the plan and the list of what would be restored do not name any change, and the target has to be healthy also
    where a run is gone on with.
    """

    @abstractmethod
    def preview(self, sweep: PlannedSweep) -> Preview:
        """What applying a sweep's configurations would change."""

    @abstractmethod
    def undoings(self) -> Sequence[Undoing]:
        """What ``reset`` would put back now, in the order of doing."""


@runtime_checkable
class BringsEngine(Protocol):
    """It is measured by something else than the programs that a sweep file names.

    Asked: by ``run_begin.engine_of``, before a run begins or goes on. Without it: the program that the sweep file
    names measures from this machine.
    """

    @abstractmethod
    def engine(self) -> Engine:
        """What measures it, whatever the sweep file names."""


@runtime_checkable
class EstimatesStepTimes(Protocol):
    """It says how long the steps of a sweep take on it, where this has little to do with Ceph and fio.

    Asked: by ``step_times.times_on``, for plans and progress displays. Without it: earlier runs in the store say
    it, or what was measured on a one-machine lab is assumed.
    """

    @abstractmethod
    def step_times(self) -> StepTimes:
        """What the steps take; their source is "simulated" or the like."""


@runtime_checkable
class KeepsToImages(Protocol):
    """It may be told to touch nothing but the images in one pool.

    Asked: by ``run_begin.engine_of``, where the sweep file names a program that makes more than images. Without
    it: any program may measure.
    """

    only_pool: str
    """Its name; empty where there is no such limit."""


@runtime_checkable
class WarnsOfSettings(Protocol):
    """It says which settings it takes but never reads.

    Asked: by ``beforehand.without_effect_by``, for a plan, and when a run begins or goes on. Without it: nobody is
    warned.
    """

    @abstractmethod
    def without_effect(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """Name of each configuration with such settings, and sentences that name them; changes nothing.

        They are measured all the same; the run keeps the sentences, and reports show them.
        """


@runtime_checkable
class ReportsLimits(Protocol):
    """It says which limits lie on clients that are not those of the storage.

    Asked: by ``beforehand.limits_by``, when a run begins or goes on. Without it: reports show no such limits.
    """

    @abstractmethod
    def limits(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """Name of each configuration whose results such limits cap, one sentence per limit; changes nothing.

        The run keeps the sentences, and reports show them.
        """


@runtime_checkable
class BelongsToRun(Protocol):
    """It marks what it creates with the run that it is created for.

    Called: by ``runner.run_sweep``, ``cephfit verify`` and ``cephfit trace workload``, before anything is applied.
    Without it: the target never hears of runs.
    """

    @abstractmethod
    def begin(self, run_id: str) -> None:
        """A run begins or goes on: what is created from now on carries its id, what it created before is its."""


@runtime_checkable
class ScalesClients(Protocol):
    """It adds clients to those that are there, keeping these and their volumes.

    Asked: by ``runner.run_sweep``, before the first configuration is applied, and at each load for the number of
    clients. ``apply`` is called with as many as the next load needs, and again for the configuration that is in
    place when a later load needs more. Without it: ``apply`` makes as many as the largest load needs, at once.
    """

    @abstractmethod
    def require_clients(
        self, configurations: Iterable[Configuration], *, n_clients: int, volume_nbytes: int
    ) -> None:
        """Look whether so many clients can be had under each configuration, before the first of them is made.

        Raises:
            InputError: something that they are made of is not there.
            ClusterError: there is not enough of it.
        """


@runtime_checkable
class KeepsNotes(Protocol):
    """It keeps a note with a client's volume for as long as the volume lives.

    Asked: by ``verification``, around the preparation of a volume for a workload. Without it: each command
    prepares the volumes anew.
    """

    @abstractmethod
    def note_on(self, client: Client, key: str) -> str | None:
        """The note, None if there is none."""

    @abstractmethod
    def set_note(self, client: Client, key: str, text: str | None) -> None:
        """Keep a note, or take it away."""


@runtime_checkable
class DoesErrands(Protocol):
    """Its clients are guests that do jobs of any kind.

    Asked: by ``cephfit verify`` and ``cephfit trace workload``, which then run the workload in a guest. Without
    it: the workload runs on this machine, on the client's device.
    """

    @abstractmethod
    def errand(self, client: Client, script: str, *, seconds: float) -> Answers:
        """Have a guest run a shell script, after a boot; with its volume at ``guests.VOLUME``.

        Args:
            client: whose guest.
            script: for ``sh``.
            seconds: that it takes at most, about.

        Raises:
            ClusterError: nothing came back.
        """
