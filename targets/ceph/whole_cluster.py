"""A configuration on a whole cluster: options of daemons, restarts, a pool of its own."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.admin.older_releases import is_before_nautilus
from cephfit.ceph.ceph_health import CephHealth
from cephfit.ceph.cluster_adapters import OsdsDownError, ReadValues, Surroundings
from cephfit.ceph.delivery.daemon_options import DaemonOptions
from cephfit.ceph.delivery.osd_restarts import NooutFlags
from cephfit.ceph.options.option_catalogue import Catalogue
from cephfit.ceph.pools.declared_pools import DeclaredPools
from cephfit.ceph.pools.own_pools import PoolDeletion, Pools
from cephfit.ceph.pools.pool_plan import pool_name
from cephfit.ceph.pools.pool_readback import UnplacedPoolError
from cephfit.ceph.volumes import Volume
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.errors import CephfitError, ClusterError, InputError
from cephfit.core.journal import Journal
from cephfit.core.protocols import CephAdmin, Progress
from cephfit.core.values.configuration import Configuration
from cephfit.core.values.measurement import PlannedSweep
from cephfit.core.values.preview import Preview, Undoing
from cephfit.targets.ceph.cluster_changes import Made
from cephfit.targets.ceph.cluster_preview import preview_of


class WholeCluster:
    """Implements ``ClusterChanges``. Pools are named ``cephfit-*``; no other pool is touched.

    Args:
        admin: sends commands.
        catalogue: of the cluster's options.
        journal: of the target.
        health: told when the PG count may change.
        surroundings: who restarts OSDs; settings of every pool.
        progress: hears of restarts.
    """

    def __init__(
        self,
        admin: CephAdmin,
        catalogue: Catalogue,
        journal: Journal,
        *,
        health: CephHealth,
        surroundings: Surroundings,
        progress: Progress,
    ) -> None:
        self.settings = DaemonOptions(
            admin,
            catalogue,
            journal,
            hosts=surroundings.hosts,
            reach=surroundings.reach,
            progress=progress,
        )
        self.deletion = PoolDeletion(self.settings, journal)
        self.pools = Pools(
            admin, journal, surroundings.pool_defaults, patience_seconds=surroundings.patience_seconds
        )
        self._admin = admin
        self._journal = journal
        self._catalogue = catalogue
        self._restarts = surroundings.restarts
        self._default_rule = surroundings.pool_defaults.get("crush_rule")
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

    def clear_up(self) -> None:
        NooutFlags(self._admin, self._journal).take_back()

    def give_up_pools(self) -> None:
        if pools := self.pools.made():
            with self.deletion.allowed():
                for pool in reversed(pools):
                    self.pools.delete(pool)
            self.pools.await_counted()
        self._health.expect_new_pools()

    def bring_about(self, configuration: Configuration) -> Made:
        try:
            restarted = self._apply_options(configuration)
            return Made(self._ensure_pool(configuration), restarted)
        except (RefusedError, UnplacedPoolError) as refused:
            return Made("", self._restart_due(), str(refused))

    def about_to_make(self, volume: Volume) -> None:
        """Nothing: the image goes with its pool, and that is in the journal."""

    def room_in(self, pool: str) -> int | None:
        return self.pools.max_avail_nbytes(pool)

    def copies_in(self, pool: str) -> float:
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
        pools = [Undoing(f"pool {name} with its images", "there", "deleted") for name in self.pools.made()]
        due = self.settings.restarts_of_undoing()
        restarts = [Undoing(f"osd.{osd}", "runs with other options", "restarted") for osd in due]
        return [*pools, *self.settings.undoings(), *restarts]

    def take_back(self, *, pools: bool) -> None:
        tried = ErrorCollector()
        if pools:
            tried.make(self.give_up_pools)
            tried.make(self.pools.restore_places)
        self._health.expect_new_pools()
        are_back = tried.make(self.settings.take_back)
        if tried.make(self._restart_due) and are_back:
            self.settings.forget_originals()
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
        """Why the OSDs that a configuration needs restarted cannot be; empty if they can, or none is."""
        needs = self.settings.needs_restart(configuration)
        if not needs:
            return ""
        if self._restarts is None:
            return f"{self.settings.why_restart(configuration, needs)}, and there is no way to restart OSDs here"
        why = self._restarts.why_not(sorted(needs))
        return f"{self.settings.why_restart(configuration, needs)}; {why}" if why else ""

    def _apply_options(self, configuration: Configuration) -> tuple[int, ...]:
        try:
            self.settings.apply(configuration)
            restarted = self._restart_due()
            self.settings.settle(configuration)
        except RefusedError:
            self.settings.take_back()
            raise
        except OsdsDownError as error:
            raise self._started_as_before(error) from None
        return restarted

    def _started_as_before(self, error: OsdsDownError) -> ClusterError:
        """What to say of OSDs that did not start with a configuration's options, after they were started without.

        The others that were restarted for these options are due still, for whatever comes next; those that nobody
        restarted never had them.
        """
        try:
            self.settings.take_back()
            if error.down:
                self._restart(error.down)
        except CephfitError as also:
            what = f"{error.what}. Then its options were to be taken back, and: {also.what}"
            return OsdsDownError(what, osds=error.osds, down=error.down, where=error.where, remedy=error.remedy)
        others = "`cephfit restore` restarts the others that have them"
        if not error.down:
            what, remedy = f"{error.what}. The options were taken back", f"{error.remedy}; {others}"
        else:
            what = f"{error.what}. The options were taken back, and it runs again with those of before"
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
                f"{', '.join(f'osd.{osd}' for osd in osds)} must be restarted, and there is no way to do so",
                where="OSDs that run with values of a configuration",
                remedy="run the same command with the options for restarts that the sweep was given",
            )
        self._restarts.restart(osds, self.settings.restarted)

    def _ensure_pool(self, configuration: Configuration) -> str:
        self._health.expect_new_pools()
        try:
            return self.pools.ensure(configuration)
        except (RefusedError, UnplacedPoolError):
            # Left in place, a pool without places would keep every later configuration waiting.
            with self.deletion.allowed():
                self.pools.delete(pool_name(configuration))
            self.pools.await_counted()
            self._health.expect_new_pools()
            raise
