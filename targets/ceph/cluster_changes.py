"""What a configuration changes on a Ceph cluster, and what is known of it before.

What a configuration changes on a Ceph cluster itself, behind one protocol: the whole cluster, or one pool.

Whether volumes fit into their cluster and pool, before they are filled.

What can be said of configurations on a Ceph cluster before anything is changed on it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from cephfit.ceph.ceph_health import CephHealth, is_getting_full
from cephfit.ceph.cluster_adapters import ReadValues, Surroundings
from cephfit.ceph.options import option_catalogue as options
from cephfit.ceph.options.option import as_ceph_writes
from cephfit.ceph.pools.declared_pools import DeclaredPools
from cephfit.ceph.volumes import Volume
from cephfit.core.errors import ClusterError
from cephfit.core.journal import Journal
from cephfit.core.protocols import CephAdmin
from cephfit.core.units import about, with_margin
from cephfit.core.values.configuration import Configuration, Partition
from cephfit.core.values.measurement import PlannedSweep
from cephfit.core.values.preview import Difference, Preview, Undoing, other_undoings


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """What became of a configuration.

    Attributes:
        pool: where its images belong; empty if the cluster refused.
        restarted: OSDs that were restarted on the way.
        refused: the cluster's words against it; empty if it took everything.
    """

    pool: str
    restarted: tuple[int, ...] = ()
    refused: str = ""


class ClusterChanges(Protocol):
    """Everything is journalled before it is made. May be cut off at any instant; the next process goes on."""

    def why_not(self, configuration: Configuration) -> tuple[str, ...]:
        """What speaks against a configuration whose settings all exist; empty if nothing. Changes nothing."""

    def declared_pools(self, journal: Journal) -> DeclaredPools:
        """The pools that people declare for the cluster.

        Args:
            journal: of these pools alone.

        Raises:
            InputError: no pools may be made here.
        """

    def clear_up(self) -> None:
        """Take away what a process that was killed left in the way of the cluster's health; at any time."""

    def delete_pools(self) -> None:
        """Delete the pools made so far: the OSDs below them go."""

    def apply_configuration(self, configuration: Configuration) -> ChangeResult:
        """Make the configuration's options and pool; what was changed before and is not wanted now gets its
        original.

        Raises:
            ClusterError: the cluster did not become what it should for other reasons than a refusal.
        """

    def before_creating(self, volume: Volume) -> None:
        """An image will be made now."""

    def free_nbytes(self, pool: str) -> int | None:
        """Bytes that clients can still write into a pool, as Ceph reckons; None while it does not know."""

    def raw_ratio(self, pool: str) -> float:
        """Bytes that lie on disks for each byte written."""

    def read_back(self, configuration: Configuration) -> Iterable[ReadValues]:
        """What the daemons and the pool say."""

    def for_clients(self, configuration: Configuration) -> Configuration:
        """The configuration with all that its clients have to be told in their own ceph.conf."""

    def keep(self, osd_map: Callable[[], Mapping[str, Any]]) -> tuple[str, ...]:
        """Make good what daemons lost that restarted by themselves, one sentence each; empty if nothing was lost.

        Args:
            osd_map: gives ``osd dump`` as it is now.
        """

    def preview(self, sweep: PlannedSweep, configurations: Sequence[Configuration]) -> Preview:
        """What these configurations of a sweep would change on the cluster; its health is not asked here."""

    def undoings(self) -> Sequence[Undoing]:
        """What ``take_back`` would put back now, as far as it is of this kind. Changes nothing."""

    def take_back(self, *, pools: bool) -> None:
        """Everything as it was, as far as it can be; what could not be put back stays in the journal.

        Args:
            pools: delete pools and images, too; not while something works on the images still.

        Raises:
            CephfitError: names everything that was not put back.
        """


FREE_UP = "`cephfit restore` deletes the volumes of earlier sweeps; or use smaller volumes or fewer clients"


class FreeCapacity:
    """The room that is left on a cluster.

    Args:
        name: of the cluster, for messages.
        health: of the cluster, which says itself when room is running out.
        changes: knows the pools.
        below: asked about what lies under the pools, with the bytes of all copies; raises ClusterError.
    """

    def __init__(
        self, name: str, *, health: CephHealth, changes: ClusterChanges, below: Callable[[int], None]
    ) -> None:
        self._name = name
        self._health = health
        self._changes = changes
        self._below = below

    def in_pool(self, pool: str) -> int | None:
        """Bytes that clients can still write into a pool, as Ceph reckons; None while it does not know."""
        return self._changes.free_nbytes(pool)

    def require(self, pool: str, nbytes: int) -> None:
        """See that so many bytes can be written into the images of a pool.

        Raises:
            ClusterError: there is too little room; says how much is wanted and how much there is.
        """
        if full := is_getting_full(self._health.check()):
            raise ClusterError(f"the cluster is filling up: {'; '.join(full)}", where=self._name, remedy=FREE_UP)
        wanted, available = with_margin(nbytes), self.in_pool(pool)
        if available is not None and available < wanted:
            raise ClusterError(
                f"the volumes need {about(wanted)}, the pool has room for {about(available)}",
                where=f"pool {pool}",
                remedy=FREE_UP,
            )
        self._below(int(wanted * self._changes.raw_ratio(pool)))


class Forecast:
    """What would be refused, what would have no effect, what would change, what would be put back.

    Args:
        admin: sends commands, none of which changes anything.
        catalogue: the options of the cluster.
        health: of the cluster.
        changes: that configurations make on the cluster itself.
        surroundings: what is around the cluster.
        journal: of what was changed.
    """

    def __init__(
        self,
        admin: CephAdmin,
        catalogue: options.Catalogue,
        *,
        health: CephHealth,
        changes: ClusterChanges,
        surroundings: Surroundings,
        journal: Journal,
    ) -> None:
        self._admin = admin
        self._catalogue = catalogue
        self._health = health
        self._changes = changes
        self._around = surroundings
        self._journal = journal

    def unsupported(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """Reasons by configuration; see ``JudgesConfigurations``."""
        configurations = tuple(configurations)
        reasons = {n: list(why) for n, why in options.unsupported(configurations, self._catalogue).items()}
        for configuration in configurations:
            more = [
                why
                for setting in configuration.within(Partition.GREATER)
                if (why := self._around.greater.why_not(setting))
            ]
            if configuration.name not in reasons:  # what the rest asks is about settings that exist
                more += self._changes.why_not(configuration)
                more += self._around.stores.why_not(configuration) if self._around.stores else ()
            if more:
                reasons.setdefault(configuration.name, []).extend(more)
        return {name: tuple(dict.fromkeys(why)) for name, why in reasons.items()}

    def without_effect(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """Warnings by configuration: settings that exist here but that these OSDs never read."""
        if (remake := self._around.stores) is None:
            stores = {osd.get("osd_objectstore", "") for osd in self._admin.command("osd metadata")}
            return options.without_effect(configurations, stores)
        found: dict[str, tuple[str, ...]] = {}
        for configuration in configurations:
            found |= options.without_effect([configuration], set(remake.objectstores(configuration)))
        return found

    def preview(self, sweep: PlannedSweep) -> Preview:
        """What a sweep would do here."""
        against = self.unsupported(sweep.configurations)
        supported = tuple(c for c in sweep.configurations if c.name not in against)
        found = self._changes.preview(sweep, supported)
        around = tuple(d for c in supported for d in self._differences_around(c))
        return replace(found, health=self._health.check(), differences=found.differences + around)

    def undoings(self) -> Sequence[Undoing]:
        """What would be put back now."""
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
