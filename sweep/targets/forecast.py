"""What can be said of configurations on a Ceph cluster before anything is changed on it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from cephfit.configuration import Configuration, Partition
from cephfit.measurement import PlannedSweep
from cephfit.protocols import CephAdmin
from cephfit.sweep.journal import Journal
from cephfit.sweep.options.option_value import as_ceph_writes
from cephfit.sweep.preview import Difference, Preview, Undoing, other_undoings
from cephfit.sweep.settings import catalogue as options
from cephfit.sweep.surroundings import Surroundings
from cephfit.sweep.targets.changes import ClusterChanges
from cephfit.sweep.validity.ceph_health import CephHealth


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
