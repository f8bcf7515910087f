"""What a Ceph target may change: a whole cluster, or only images in one of its pools.

On a whole cluster these are options of daemons, restarts of OSDs, and one pool per configuration.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from cephfit.ceph.admin.answers import RefusedError, is_before_nautilus
from cephfit.ceph.ceph_health import CephHealth
from cephfit.ceph.cluster_adapters import ClusterAdapters, OsdsDownError, ReadValues
from cephfit.ceph.crush.data_placement import no_such_pool
from cephfit.ceph.delivery.daemon_options import DaemonOptions
from cephfit.ceph.delivery.osd_restarts import NooutFlags
from cephfit.ceph.options.option_catalogue import Catalogue
from cephfit.ceph.pools.declared_pools import DeclaredPools
from cephfit.ceph.pools.osd_capacity import OsdCapacity, fits_note, memory_targets
from cephfit.ceph.pools.own_pools import PoolDeletion, Pools
from cephfit.ceph.pools.pool_plan import pool_name
from cephfit.ceph.pools.pool_readback import UnplacedPoolError, dumped_pool
from cephfit.ceph.volumes import Volume, Volumes
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.errors import CephfitError, ClusterError, InputError
from cephfit.core.journal import Entry, Journal
from cephfit.core.protocols import CephAdmin, Progress
from cephfit.core.units import format_nbytes
from cephfit.core.values.configuration import (
    HEALTHY,
    Configuration,
    Difference,
    Partition,
    Preview,
    Setting,
    Undoing,
)
from cephfit.core.values.measurement import RADOS_BENCH, CacheCondition, PlannedSweep
from cephfit.measure.rados_bench import refuse_among_images
from cephfit.targets.ceph.cluster_changes import ChangeResult
from cephfit.targets.ceph.cluster_preview import preview_of


class WholeCluster:
    """Implements ``ClusterChanges``. It creates pools named ``cephfit-*``, and changes no other pool.

    Args:
        admin: sends commands.
        catalogue: of the cluster's options.
        journal: of the target.
        health: is notified when the PG count may change.
        adapters: for restarts of OSDs, and settings of every pool.
        progress: shows restarts.
    """

    def __init__(
        self,
        admin: CephAdmin,
        catalogue: Catalogue,
        journal: Journal,
        *,
        volumes: Volumes,
        health: CephHealth,
        adapters: ClusterAdapters,
        progress: Progress,
    ) -> None:
        self.images = ImagesInOtherPools(journal, volumes)
        self.settings = DaemonOptions(
            admin,
            catalogue,
            journal,
            hosts=adapters.hosts,
            delivery=adapters.delivery,
            progress=progress,
        )
        self.deletion = PoolDeletion(self.settings, journal)
        self.pools = Pools(admin, journal, adapters.pool_defaults, patience_seconds=adapters.patience_seconds)
        self._admin = admin
        self._journal = journal
        self._catalogue = catalogue
        self._restarts = adapters.restarts
        self._default_rule = adapters.pool_defaults.get("crush_rule")
        self._health = health
        self._progress = progress

    def why_not(self, configuration: Configuration) -> tuple[str, ...]:
        reasons = []
        rules = self._admin.command("osd crush rule ls")
        for setting in configuration.settings:
            if setting.key == "crush_rule" and setting.value not in rules:
                reasons.append(f"this cluster has no CRUSH rule {setting.value}; it has {', '.join(rules)}")
        against = self.settings.why_not(configuration)
        if not against and (why := self._why_no_restart(configuration)):
            against = (why,)
        reasons += against
        reasons += self.pools.why_not(configuration)
        if not reasons and is_before_nautilus(self._catalogue.version()):
            plans = self.pools.plans(configuration)
            reasons += [f"before Nautilus pool {p.name} needs a pg_num" for p in plans if "pg_num" not in p.values]
        return tuple(reasons)

    def declared_pools(self, journal: Journal) -> DeclaredPools:
        return DeclaredPools(self._admin, journal, self.deletion)

    def clean_up(self) -> None:
        NooutFlags(self._admin, self._journal).take_back()

    def delete_pools(self) -> None:
        if pools := self.pools.created():
            with self.deletion.allowed():
                for pool in reversed(pools):
                    self.pools.delete(pool)
            self.pools.await_counted()
        self._health.expect_new_pools()

    def apply_configuration(self, configuration: Configuration) -> ChangeResult:
        try:
            restarted = self.apply_options(configuration)
            return ChangeResult(self._ensure_pool(configuration), restarted)
        except (RefusedError, UnplacedPoolError) as refused:
            return ChangeResult("", self._restart_due(), str(refused))

    def before_creating(self, volume: Volume) -> None:
        """Do nothing: the image is deleted with its pool, which is in the journal."""

    def free_nbytes(self, pool: str) -> int | None:
        return self.pools.max_avail_nbytes(pool)

    def raw_ratio(self, pool: str) -> float:
        return self.pools.copies(pool)

    def read_back(self, configuration: Configuration) -> Iterable[ReadValues]:
        found = self.settings.read_back(configuration)
        return (found.values, found.mismatches), self.pools.read_back(configuration)

    def for_clients(self, configuration: Configuration) -> Configuration:
        return self.settings.for_clients(configuration)

    def keep(self, osd_map: Callable[[], Mapping[str, Any]]) -> tuple[str, ...]:
        return self.settings.keep(osd_map)

    def preview(self, sweep: PlannedSweep, configurations: Sequence[Configuration]) -> Preview:
        self._require_default_rule()
        return preview_of(
            sweep,
            configurations,
            admin=self._admin,
            catalogue=self._catalogue,
            settings=self.settings,
            pools=self.pools,
        )

    def undoings(self) -> Sequence[Undoing]:
        pools = [Undoing(f"pool {name} with its images", "there", "deleted") for name in self.pools.created()]
        due = self.settings.restarts_of_undoing()
        restarts = [Undoing(f"osd.{osd}", "runs with other options", "restarted") for osd in due]
        return [*pools, *self.images.undoings(), *self.settings.undoings(), *restarts]

    def take_back(self, *, pools: bool) -> None:
        tried = ErrorCollector()
        if pools:
            tried.make(self.images.delete_all)
            tried.make(self.delete_pools)
        self._health.expect_new_pools()
        are_back = tried.make(self.settings.take_back)
        if tried.make(self._restart_due) and are_back:
            self.settings.forget_originals()
        if pools:  # last: data of adopted pools may begin to move, and no OSD is restarted while it does
            tried.make(self.declared_pools(self._journal).give_back)
            tried.make(self.pools.restore_places)
        self._health.expect_new_pools()
        tried.end()

    def _require_default_rule(self) -> None:
        rules = self._admin.command("osd crush rule ls")
        if self._default_rule is not None and self._default_rule not in rules:
            raise InputError(
                f"this cluster has no CRUSH rule {self._default_rule}",
                where="--crush-rule",
                remedy=f"there are {', '.join(rules)}",
            )

    def _why_no_restart(self, configuration: Configuration) -> str:
        """Return why a configuration's OSDs cannot be restarted; empty if they can, or need no restart."""
        needs = self.settings.needs_restart(configuration)
        why = self.why_no_restart_of(sorted(needs)) if needs else ""
        link = ", and" if self._restarts is None else ";"
        return f"{self.settings.why_restart(configuration, needs)}{link} {why}" if why else ""

    def why_no_restart_of(self, osds: Sequence[int]) -> str:
        """Return why these OSDs cannot be restarted; empty if they can."""
        return "this target cannot restart OSDs" if self._restarts is None else self._restarts.why_not(osds)

    def apply_options(self, configuration: Configuration) -> tuple[int, ...]:
        """Bring the options of daemons to those of a configuration; return the OSDs that were restarted for it.

        Raises:
            RefusedError: the cluster refuses a value; its options are undone.
            ClusterError: OSDs did not come back; their options are undone.
        """
        try:
            self.settings.apply(configuration)
            restarted = self._restart_due()
            self.settings.settle(configuration)
        except RefusedError:
            self.settings.take_back()
            raise
        except OsdsDownError as error:
            raise self._roll_back_failed_start(error) from None
        return restarted

    def _roll_back_failed_start(self, error: OsdsDownError) -> ClusterError:
        """Start OSDs without a configuration's options after they failed to start with them; return the error.

        Other OSDs that were restarted for these options still need another restart. OSDs that were not restarted
        never had the options.
        """
        try:
            self.settings.take_back()
            if error.down:
                self._restart(error.down)
        except CephfitError as also:
            what = f"{error.what}. Undoing its options failed as well: {also.what}"
            return OsdsDownError(what, osds=error.osds, down=error.down, where=error.where, remedy=error.remedy)
        others = "`cephfit restore` restarts the others that have them"
        if not error.down:
            what, remedy = f"{error.what}. The options were undone", f"{error.remedy}; {others}"
        else:
            what = f"{error.what}. The options were undone, and it runs again with the earlier ones"
            remedy = f"see its log for what is wrong with them; {others}"
        return ClusterError(what, where=error.where, remedy=remedy)

    def _restart_due(self) -> tuple[int, ...]:
        due = self.settings.restarts_due()
        if due:
            self._progress.note(f"restarting {', '.join(f'osd.{osd}' for osd in due)}")
            self._restart(due)
        return due

    def _restart(self, osds: Sequence[int]) -> None:
        if self._restarts is None:
            raise ClusterError(
                f"{', '.join(f'osd.{osd}' for osd in osds)} must be restarted, and this target cannot do so",
                where="OSDs that run with values of a configuration",
                remedy="run the same command with the sweep's options for restarts",
            )
        self._restarts.restart(osds, self.settings.restarted)

    def _ensure_pool(self, configuration: Configuration) -> str:
        self._health.expect_new_pools()
        try:
            return self.pools.ensure(configuration)
        except (RefusedError, UnplacedPoolError):
            # A pool whose PGs cannot be placed would keep every later configuration waiting.
            with self.deletion.allowed():
                self.pools.delete(pool_name(configuration))
            self.pools.await_counted()
            self._health.expect_new_pools()
            raise


_IMAGE = "image"
_NAMESPACE = "namespace"


class ImagesInOtherPools:
    """Images, and namespaces of objects, in pools that cephfit did not create.

    They are in the journal before they are created, so that ``restore`` deletes them after a kill.

    Args:
        journal: of the target.
        volumes: deletes them.
    """

    def __init__(self, journal: Journal, volumes: Volumes) -> None:
        self._journal = journal
        self._volumes = volumes

    def before_creating(self, volume: Volume) -> None:
        """Record an image that is created next.

        Raises:
            InputError: there is one of this name that cephfit did not create.
        """
        if self._journal.get(_IMAGE, str(volume)) is None and self._volumes.exists(volume):
            raise InputError(
                "an image of this name exists, and cephfit did not create it according to the journal",
                where=f"image {volume}",
                remedy="rename or delete it",
            )
        self._journal.note(_IMAGE, str(volume), None)

    def before_using(self, pool: str, namespace: str) -> None:
        """Record a namespace of a pool, of cephfit alone, in which objects are created next."""
        self._journal.note(_NAMESPACE, f"{pool}/{namespace}", None)

    def has_created(self, pool: str, image: str) -> bool:
        return self._journal.get(_IMAGE, f"{pool}/{image}") is not None

    def undoings(self) -> list[Undoing]:
        return [Undoing(f"{e.kind} {e.place}", "there", "deleted") for e in self._entries()]

    def delete(self, *names: str) -> None:
        """Delete the images and namespaces of these names in all pools, as far as they are recorded.

        Raises:
            CephfitError: as ``delete_all``.
        """
        self._delete([e for e in self._entries() if e.place.partition("/")[2] in names])

    def delete_all(self) -> None:
        """Delete all that is recorded.

        Raises:
            CephfitError: lists what could not be deleted; it stays in the journal.
        """
        self._delete(self._entries())

    def _entries(self) -> list[Entry]:
        return [e for e in self._journal.entries() if e.kind in (_IMAGE, _NAMESPACE)]

    def _delete(self, entries: Sequence[Entry]) -> None:
        tried = ErrorCollector()
        for entry in reversed(entries):
            tried.make(partial(self._delete_one, entry))
        tried.end()

    def _delete_one(self, entry: Entry) -> None:
        pool, _, name = entry.place.partition("/")
        if entry.kind == _IMAGE:
            self._volumes.remove(Volume(pool, name, 0))
        else:
            self._volumes.empty_namespace(pool, name)
        self._journal.forget(entry.kind, entry.place)


class OnlyPool:
    """Implements ``ClusterChanges`` without the config store, restarts, and creation or changes of pools.

    It allows settings of images, options of clients (in the clients' own ceph.conf, which overrides the config
    store) and settings of the clients' disks.

    Args:
        pool: an existing pool that may be used.
        admin: sends commands.
        journal: of the target.
        volumes: creates and deletes images.
    """

    def __init__(self, pool: str, admin: CephAdmin, journal: Journal, volumes: Volumes) -> None:
        self.images = ImagesInOtherPools(journal, volumes)
        self._pool = pool
        self._admin = admin

    def why_not(self, configuration: Configuration) -> tuple[str, ...]:
        return tuple(why for s in configuration.settings if (why := self._against(s)))

    def declared_pools(self, journal: Journal) -> DeclaredPools:
        raise InputError(
            f"only pool {self._pool} may be changed, so no pools are created, changed or deleted",
            where="--only-pool",
            remedy="remove this option",
        )

    def clean_up(self) -> None:
        """Do nothing: this target leaves nothing that affects the cluster's health."""

    def delete_pools(self) -> None:
        """Do nothing: this target creates no pool."""

    def apply_configuration(self, configuration: Configuration) -> ChangeResult:
        self._require_pool()
        return ChangeResult(self._pool)

    def before_creating(self, volume: Volume) -> None:
        self.images.before_creating(volume)

    def has_made(self, image: str) -> bool:
        """Return whether cephfit created an image of the pool."""
        return self.images.has_created(self._pool, image)

    def free_nbytes(self, pool: str) -> int | None:
        for entry in self._admin.command("df")["pools"]:
            if entry["name"] == pool:
                return int(entry["stats"]["max_avail"]) or None
        return None

    def raw_ratio(self, pool: str) -> float:
        return int(self._admin.command("osd pool get", pool=pool, var="size")["size"])

    def read_back(self, configuration: Configuration) -> Iterable[ReadValues]:
        return ()

    def for_clients(self, configuration: Configuration) -> Configuration:
        return configuration

    def keep(self, osd_map: Callable[[], Mapping[str, Any]]) -> tuple[str, ...]:
        return ()

    def preview(self, sweep: PlannedSweep, configurations: Sequence[Configuration]) -> Preview:
        if sweep.measurement.engine == RADOS_BENCH:
            refuse_among_images(self._pool)
        self._require_pool()
        nbytes = len(configurations) * sweep.measurement.most_clients * sweep.measurement.volume_nbytes
        differences = tuple(
            Difference(c.name, "clients" if s.partition is Partition.CEPH else "images", s.key, "", str(s.value))
            for c in configurations
            for s in c.settings
            if s.partition is not Partition.GREATER
        )
        note = f"{format_nbytes(nbytes)} are written into pool {self._pool}, as images that are deleted at the end"
        notes = filter(None, (note, self._fits_note(sweep)))
        return Preview(HEALTHY, differences, {}, 0, 0.0, (), notes=tuple(notes))

    def _fits_note(self, sweep: PlannedSweep) -> str:
        if sweep.measurement.cache is not CacheCondition.WARM:
            return ""
        rule = dumped_pool(self._admin, self._pool)["crush_rule"]
        osds = OsdCapacity(self._admin).rule(int(rule))
        return fits_note(sweep.measurement, memory_targets(self._admin, osds).values(), pool=self._pool)

    def undoings(self) -> Sequence[Undoing]:
        return self.images.undoings()

    def take_back(self, *, pools: bool) -> None:
        if pools:
            self.images.delete_all()

    def _require_pool(self) -> None:
        if self._pool not in (p["poolname"] for p in self._admin.command("osd lspools")):
            raise no_such_pool(self._pool)

    def _against(self, setting: Setting) -> str:
        place = (setting.partition, setting.scope.partition("/")[0])
        if place in ((Partition.POOL, "image"), (Partition.CEPH, "client"), (Partition.GREATER, "client_disk")):
            return ""
        needs = {
            Partition.POOL: "its own pool",
            Partition.CEPH: "the cluster's config store",
            Partition.GREATER: "the hosts of OSDs",
        }[setting.partition]
        return f"{setting.key} needs {needs}, and only pool {self._pool} may be changed"
