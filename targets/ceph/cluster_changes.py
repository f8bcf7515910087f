"""The changes of a configuration on a Ceph cluster, their forecast, and the original values of those that stay.

``ClusterChanges`` is the protocol for changes on a whole cluster or within one pool. ``FreeCapacity`` checks that
volumes fit before they are filled. ``Forecast`` reports what configurations would change before they do.

Original values of a permanent configuration move between two journals. A move copies entries from one file to the
other, then removes them from the first. A marker in the target's journal precedes both, so that the next process
finishes a move that was killed. An entry that stayed in both journals would be restored twice, the second time
over a value that an admin has set since.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cephfit.ceph.ceph_health import CephHealth, is_getting_full
from cephfit.ceph.cluster_adapters import ClusterAdapters, ReadValues
from cephfit.ceph.delivery.central_config import CONFIG, Place, place_of
from cephfit.ceph.delivery.client_conf import why_no_plugins
from cephfit.ceph.options import option_catalogue as options
from cephfit.ceph.options.option import as_ceph_writes
from cephfit.ceph.pools.declared_pools import DeclaredPools
from cephfit.ceph.volumes import Volume
from cephfit.core.errors import ClusterError
from cephfit.core.journal import Entry, Journal
from cephfit.core.protocols import CephAdmin
from cephfit.core.units import about, with_margin
from cephfit.core.values.configuration import (
    Configuration,
    Difference,
    Partition,
    Preview,
    Undoing,
    other_undoings,
)
from cephfit.core.values.measurement import PlannedSweep


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """The result of applying a configuration.

    Attributes:
        pool: the pool of its images; empty if the cluster refused.
        restarted: OSDs that were restarted.
        refused: the cluster's error text; empty if it accepted everything.
    """

    pool: str
    restarted: tuple[int, ...] = ()
    refused: str = ""


class ClusterChanges(Protocol):
    """Changes a cluster for a configuration, and undoes the changes.

    Every change is in the journal before it happens. A kill at any moment is safe: the next process continues.
    """

    def why_not(self, configuration: Configuration) -> tuple[str, ...]:
        """Return the reasons against a configuration with existing settings; empty without any. Change nothing."""

    def declared_pools(self, journal: Journal) -> DeclaredPools:
        """Return the pools that people declare for the cluster.

        Args:
            journal: of these pools only.

        Raises:
            InputError: this target may not create pools.
        """

    def clean_up(self) -> None:
        """Remove remains of a killed process that affect the cluster's health; may be called at any time."""

    def delete_pools(self) -> None:
        """Delete the pools created so far, because their OSDs are about to be removed."""

    def apply_configuration(self, configuration: Configuration) -> ChangeResult:
        """Apply the configuration's options and create its pool; restore all other earlier changes.

        Raises:
            ClusterError: the cluster did not reach the new state for another reason than a refusal.
        """

    def before_creating(self, volume: Volume) -> None:
        """Prepare for the creation of an image, which follows immediately."""

    def free_nbytes(self, pool: str) -> int | None:
        """Return the bytes that clients can still write into a pool, by Ceph's estimate; None while unknown."""

    def raw_ratio(self, pool: str) -> float:
        """Return the bytes on disks per byte written."""

    def read_back(self, configuration: Configuration) -> Iterable[ReadValues]:
        """Return the values that the daemons and the pool report."""

    def for_clients(self, configuration: Configuration) -> Configuration:
        """Return the configuration with all options that its clients need in their own ceph.conf."""

    def keep(self, osd_map: Callable[[], Mapping[str, Any]]) -> tuple[str, ...]:
        """Restore values that daemons lost in an unexpected restart.

        Args:
            osd_map: returns the current ``osd dump``.

        Returns:
            One sentence per restored loss; empty if nothing was lost.
        """

    def preview(self, sweep: PlannedSweep, configurations: Sequence[Configuration]) -> Preview:
        """Return what these configurations of a sweep would change on the cluster, without its health."""

    def undoings(self) -> Sequence[Undoing]:
        """Return what ``take_back`` would restore now. Change nothing."""

    def take_back(self, *, pools: bool) -> None:
        """Restore the original state as far as possible; what could not be restored stays in the journal.

        Args:
            pools: also delete pools and images; False while the images are still in use.

        Raises:
            CephfitError: names everything that was not restored.
        """


FREE_UP = "`cephfit restore` deletes the volumes of earlier sweeps; or use smaller volumes or fewer clients"


class FreeCapacity:
    """The free capacity of a cluster.

    Args:
        name: of the cluster, for messages.
        health: of the cluster, which reports when the cluster is nearly full.
        changes: knows the pools.
        below: checks the capacity below the pools for the bytes of all copies; raises ClusterError.
    """

    def __init__(
        self, name: str, *, health: CephHealth, changes: ClusterChanges, below: Callable[[int], None]
    ) -> None:
        self._name = name
        self._health = health
        self._changes = changes
        self._below = below

    def in_pool(self, pool: str) -> int | None:
        """Return the bytes that clients can still write into a pool, by Ceph's estimate; None while unknown."""
        return self._changes.free_nbytes(pool)

    def require(self, pool: str, nbytes: int) -> None:
        """Check that the images of a pool can take this number of bytes.

        Raises:
            ClusterError: the free capacity is too small; names the required and the available bytes.
        """
        if full := is_getting_full(self._health.check()):
            raise ClusterError(f"the cluster is filling up: {'; '.join(full)}", where=self._name, remedy=FREE_UP)
        required, available = with_margin(nbytes), self.in_pool(pool)
        if available is not None and available < required:
            raise ClusterError(
                f"the volumes need {about(required)}, the pool has {about(available)} free",
                where=f"pool {pool}",
                remedy=FREE_UP,
            )
        self._below(int(required * self._changes.raw_ratio(pool)))


class Forecast:
    """Reports which settings would be refused, have no effect, change or be restored.

    Args:
        admin: sends commands that change nothing.
        catalogue: the options of the cluster.
        health: of the cluster.
        changes: changes of configurations on the cluster itself.
        adapters: for hosts, clients and OSDs around the cluster.
        journal: of earlier changes.
    """

    def __init__(
        self,
        admin: CephAdmin,
        catalogue: options.Catalogue,
        *,
        health: CephHealth,
        changes: ClusterChanges,
        adapters: ClusterAdapters,
        journal: Journal,
    ) -> None:
        self._admin = admin
        self._catalogue = catalogue
        self._health = health
        self._changes = changes
        self._around = adapters
        self._journal = journal

    def unsupported(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """Return reasons by configuration; see ``JudgesConfigurations``."""
        configurations = tuple(configurations)
        reasons = {n: list(why) for n, why in options.unsupported(configurations, self._catalogue).items()}
        for configuration in configurations:
            more = [
                why
                for setting in configuration.within(Partition.GREATER)
                if (why := self._around.greater.why_not(setting))
            ]
            more += why_no_plugins(configuration)
            if configuration.name not in reasons:  # the remaining checks require that all settings exist
                more += self._changes.why_not(configuration)
                more += self._around.stores.why_not(configuration) if self._around.stores else ()
            if more:
                reasons.setdefault(configuration.name, []).extend(more)
        return {name: tuple(dict.fromkeys(why)) for name, why in reasons.items()}

    def without_effect(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """Return warnings by configuration: settings that exist but that these OSDs never read."""
        if (remake := self._around.stores) is None:
            stores = {osd.get("osd_objectstore", "") for osd in self._admin.command("osd metadata")}
            return options.without_effect(configurations, stores)
        found: dict[str, tuple[str, ...]] = {}
        for configuration in configurations:
            found |= options.without_effect([configuration], set(remake.objectstores(configuration)))
        return found

    def preview(self, sweep: PlannedSweep) -> Preview:
        """Return what a sweep would change."""
        against = self.unsupported(sweep.configurations)
        supported = tuple(c for c in sweep.configurations if c.name not in against)
        found = self._changes.preview(sweep, supported)
        around = tuple(d for c in supported for d in self._differences_around(c))
        return replace(found, health=self._health.check(), differences=found.differences + around)

    def undoings(self) -> Sequence[Undoing]:
        """Return what would be restored now."""
        return [*other_undoings(self._journal.entries()), *self._changes.undoings()]

    def _differences_around(self, configuration: Configuration) -> list[Difference]:
        found = []
        now, _ = self._around.greater.read_back(configuration, ())
        for setting in configuration.within(Partition.GREATER):
            values = {str(v) for v in now.get(str(setting), {}).values()}
            then = as_ceph_writes(setting.value)
            found.append(
                Difference(configuration.name, setting.scope, setting.key, ", ".join(sorted(values)), then)
            )
        return found


APPLIED_FILE = "applied.jsonl"
"""Name of the journal with the original values of a permanent configuration, in the target's folder."""
_APPLIED = "applied configuration"
_KEEPING = "configuration to keep"
_TAKING_IN = "configuration to undo"


class AppliedValues:
    """The two journals of a target.

    Args:
        journal: of the target; `restore` undoes what is in it.
        applied: of the permanent configuration.
    """

    def __init__(self, journal: Journal, applied: Journal) -> None:
        self._journal = journal
        self._applied = applied

    def in_place(self) -> str:
        """Return the name of the configuration that was applied; empty without one."""
        entries = self._applied.entries()
        named = [e.place for e in (*self._journal.entries(_KEEPING), *self._applied.entries(_APPLIED))]
        return named[0] if named else "an earlier configuration" if entries else ""

    def entries(self) -> tuple[Entry, ...]:
        """Return the original values of the applied configuration, oldest first."""
        moving = self._journal.entries() if self.is_keeping() else ()
        found = {(e.kind, e.place): e for e in (*self._applied.entries(), *moving)}
        return tuple(e for e in found.values() if e.kind not in (_APPLIED, _KEEPING))

    def options(self) -> dict[Place, str | None]:
        """Return the config store's original values of the applied configuration; None for an unset option."""
        entries = (e for e in self.entries() if e.kind == CONFIG)
        return {place_of(e): None if e.was is None else str(e.was) for e in entries}

    def is_keeping(self) -> bool:
        """Return whether ``keep`` was begun and not finished: what is in the target's journal stays."""
        return bool(self._journal.entries(_KEEPING))

    def keep(self, name: str, settings: list[str]) -> None:
        """Move everything out of the target's journal: the configuration stays."""
        self._journal.note(_KEEPING, name, settings)
        self.finish_move()

    def take_in(self) -> None:
        """Move the original values of the applied configuration to the target's journal, to be undone."""
        if name := self.in_place():
            self._journal.note(_TAKING_IN, name, None)
        self.finish_move()

    def finish_move(self) -> None:
        """Finish a move that was begun, also by a process that was killed. Safe to call at any time."""
        for marker in self._journal.entries(_KEEPING):
            self._keep(marker)
        for marker in self._journal.entries(_TAKING_IN):
            self._take_in(marker)

    def _keep(self, marker: Entry) -> None:
        moved = [e for e in self._journal.entries() if e != marker]
        for entry in moved:
            self._applied.note(entry.kind, entry.place, entry.was)
        for entry in self._applied.entries(_APPLIED):
            if entry.place != marker.place:
                self._applied.forget(_APPLIED, entry.place)
        self._applied.note(_APPLIED, marker.place, marker.was)
        for entry in moved:
            self._journal.forget(entry.kind, entry.place)
        self._journal.forget(marker.kind, marker.place)
        self._journal.finish()

    def _take_in(self, marker: Entry) -> None:
        for entry in self.entries():
            self._journal.note(entry.kind, entry.place, entry.was)
        for entry in self._applied.entries():
            self._applied.forget(entry.kind, entry.place)
        self._applied.finish()
        self._journal.forget(marker.kind, marker.place)
