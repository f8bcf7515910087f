"""A configuration that stays on a cluster: planned, applied through the code of sweeps, watched, and undone.

While it is applied, its original values are in the target's journal, so that `restore` undoes an interrupted
application. Afterwards they move to a journal of their own: a later sweep starts from the applied values, and its
end does not undo them.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.cluster_adapters import GreaterEnvironment
from cephfit.ceph.delivery.central_config import CONFIG, place_of, stored_settings
from cephfit.ceph.delivery.shell_commands import Parts, Present, parts_of
from cephfit.ceph.options.option import as_ceph_writes, risk_of, same_value
from cephfit.ceph.options.option_catalogue import Catalogue
from cephfit.ceph.pools.declared_pools import PoolChange, moved_by_undoing
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.errors import CephfitError, ClusterError
from cephfit.core.journal import Entry, Journal
from cephfit.core.protocols import CephAdmin, Health
from cephfit.core.values.configuration import Configuration, Difference, Partition, Setting, Undoing
from cephfit.targets.ceph.change_scopes import WholeCluster
from cephfit.targets.ceph.cluster_changes import AppliedValues
from cephfit.targets.ceph.cluster_preview import CurrentValues, option_differences

_TAKEN_BACK_AFTER_SECONDS = 10.0
"""A change makes PGs peer again for some seconds; a problem that lasts longer is one."""
_ROUTINE = re.compile(r"\d+ PGs active\+clean(\+(scrubbing|deep|snaptrim|snaptrim_wait))+")
_BROKEN = re.compile(r"down|incomplete|stale|unknown|inconsistent|unfound|inactive")
_MOVING = re.compile(r"(PG_DEGRADED|OBJECT_MISPLACED|PG_NOT_.*):|\d+ (PGs |bytes/s recovering|objects misplaced)")


class Watched(Protocol):
    """What a permanent configuration needs of its target."""

    name: str

    def health(self) -> Health:
        """Return the current state."""

    def unsupported(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """Return reasons by configuration."""

    def expect_new_pgs(self) -> None:
        """Accept a change of the number of PGs at the next check of the health."""

    def reset(self) -> None:
        """Undo what is in the target's journal."""


@dataclass(frozen=True, slots=True)
class PermanentPlan:
    """What applying a configuration permanently would change.

    Attributes:
        configuration: as it was measured.
        parts: it, divided by what can be applied.
        pool: pool that gets its pool settings; empty without any.
        differences: the settings to apply, with current and new value.
        restarts: OSDs to restart.
        pool_change: change of the pool; None without pool settings.
        present: values before the change.
        earlier: configuration that was applied before; its other settings are undone, and all of them if applying
            this one fails. Empty without one.
        moved_back: its settings of pools whose undoing moves data, as text.
        faults: why it must not be applied.
        warnings: sentences for the user.
    """

    configuration: Configuration
    parts: Parts
    pool: str
    differences: tuple[Difference, ...]
    restarts: tuple[int, ...]
    pool_change: PoolChange | None
    present: Present
    earlier: str = ""
    moved_back: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def changes(self) -> tuple[Difference, ...]:
        """Return the differences whose value changes."""
        return tuple(d for d in self.differences if d.now != d.then)

    @property
    def moves_data(self) -> bool:
        return bool(self.moved_back) or (self.pool_change is not None and self.pool_change.moved.n_pgs > 0)

    def to_json(self) -> dict[str, Any]:
        moved = self.pool_change.moved.as_json() if self.pool_change else None
        return {
            "configuration": self.configuration.name,
            "pool": self.pool,
            "differences": [asdict(d) for d in self.differences],
            "restarts": list(self.restarts),
            "moved": moved,
            "by_hand": [{"setting": str(s), "why": why} for s, why in self.parts.by_hand],
            "earlier": self.earlier,
            "moved_back": list(self.moved_back),
            "faults": list(self.faults),
            "warnings": list(self.warnings),
        }


def problems(health: Health, *, moving: bool = False) -> tuple[str, ...]:
    """Return the reasons of a health report that forbid a change; scrubs and snapshot trims do not.

    Args:
        health: of the cluster.
        moving: data moves on purpose, so PGs that are remapped, degraded or backfilling are expected.
    """
    found = [r for r in health.reasons if not _ROUTINE.fullmatch(r)]
    if moving:
        found = [r for r in found if not _MOVING.match(r) or _BROKEN.search(r)]
    return tuple(found)


class PermanentConfiguration:
    """Applies one configuration to a cluster for good.

    Args:
        target: whose journal and lock protect the change.
        admin: sends commands.
        catalogue: of the cluster's options.
        journal: of the target.
        applied: journal of permanent configurations.
        changes: applies options and pools.
        greater: applies settings of hosts.
    """

    def __init__(
        self,
        target: Watched,
        admin: CephAdmin,
        catalogue: Catalogue,
        journal: Journal,
        applied: Journal,
        *,
        changes: WholeCluster,
        greater: GreaterEnvironment,
    ) -> None:
        self._target = target
        self._admin = admin
        self._catalogue = catalogue
        self._journal = journal
        self._applied = AppliedValues(journal, applied)
        self._changes = changes
        self._greater = greater
        self._pools = changes.declared_pools(journal)

    def in_place(self) -> str:
        """Return the name of the configuration that was applied; empty without one."""
        return self._applied.in_place()

    def undoings(self) -> tuple[Undoing, ...]:
        """Return what undoing the applied configuration would restore, newest first."""
        return tuple(_undoing(e) for e in reversed(self._applied.entries()))

    def plan(
        self, configuration: Configuration, *, pool: str = "", accept_risk: Sequence[str] = ()
    ) -> PermanentPlan:
        """Plan a change; changes nothing.

        Args:
            configuration: to apply.
            pool: existing pool that gets its pool settings.
            accept_risk: keys of settings with a known risk that may be applied.

        Raises:
            InputError: no release of Ceph has one of its options, or a value is not possible.
        """
        parts = parts_of(configuration)
        delivered = Configuration(configuration.name, (*parts.options.settings, *parts.hosts.settings))
        faults = [f"{s.key} = {s.value}: {why}" for s, why in self._risks(parts, accept_risk)]
        faults += self._target.unsupported([delivered]).get(configuration.name, ())
        pool_change = None
        if parts.pool.settings and not pool:
            faults.append("it has pool settings, and no pool is named: add --pool POOL")
        elif parts.pool.settings:
            planned = self._pools.plan({pool: _as_declared(parts.pool)}, adopt=frozenset([pool]))
            pool_change = planned.changes[0]
            faults += planned.faults
            if pool_change.state == "new":
                there = ", ".join(p["poolname"] for p in self._admin.command("osd lspools"))
                faults.append(f"this cluster has no pool {pool}; it has {there}")
        if not parts.settings:
            faults.append("nothing of it can be applied to what exists: see the commands")
        if unknown := [s for s in parts.options.settings if self._catalogue.find(s.key) is None]:
            keys = ", ".join(s.key for s in unknown)
            faults = faults or [f"this cluster has no option {keys}"]
            known = Configuration(configuration.name, tuple(s for s in parts.options.settings if s not in unknown))
        else:
            known = parts.options
            if keys := ", ".join(self._changes.settings.not_stored(known)):
                faults.append(
                    f"{keys}: only the config store of the monitors keeps values for good; write them into the "
                    "daemons' ceph.conf yourself, or use settings=store"
                )
        restarts = tuple(sorted(self._changes.settings.needs_restart(known, restored=self._applied.options())))
        if restarts and not faults and (why := self._changes.why_no_restart_of(restarts)):
            names = ", ".join(f"osd.{osd}" for osd in restarts)
            faults.append(f"{names} must be restarted, also for what is undone; {why}")
        moved_back = moved_by_undoing(self._applied.entries(), pool_change)
        return PermanentPlan(
            configuration,
            parts,
            pool if parts.pool.settings else "",
            (*self._option_differences(known), *self._host_differences(parts.hosts), *_of_pool(pool_change)),
            restarts,
            pool_change,
            self._present(pool_change),
            self.in_place(),
            moved_back,
            tuple(dict.fromkeys(faults)),
            tuple(self._warnings(known, parts, pool_change, moved_back)),
        )

    def apply(self, plan: PermanentPlan) -> tuple[str, ...]:
        """Apply a plan, and read everything back. On any failure the state without any configuration is restored.

        So a configuration that was applied before is undone too, and must be applied again.

        Returns:
            The names of the daemons that were restarted.

        Raises:
            ClusterError: the plan has faults, the cluster is not healthy or refuses, or a setting has no effect.
            HostError: a host refuses.
        """
        self._applied.finish_move()
        self._require(plan)
        self._applied.take_in()
        try:
            restarted = self._apply(plan)
            if wrong := self._mismatches(plan.parts):
                raise ClusterError(
                    f"these settings did not take effect: {'; '.join(wrong)}", where=self._target.name
                )
        except RefusedError as refused:
            raise self._undone(plan, ClusterError(str(refused), where=self._target.name)) from None
        except CephfitError as error:
            raise self._undone(plan, error) from None
        return tuple(f"osd.{osd}" for osd in restarted)

    def watch(self, plan: PermanentPlan, *, seconds: float, poll_seconds: float = 1.0) -> None:
        """Watch the health after ``apply``; undo the configuration if it becomes and stays worse.

        A cluster that does not report its health counts as one that is not healthy.

        Raises:
            ClusterError: it did; states why, and that everything was undone.
        """
        started = time.monotonic()
        bad_since: float | None = None
        while True:
            why = self._problems(plan)
            now = time.monotonic()
            bad_since = (bad_since if bad_since is not None else now) if why else None
            if bad_since is not None and now - bad_since >= _TAKEN_BACK_AFTER_SECONDS:
                error = ClusterError(f"the cluster is not healthy: {'; '.join(why)}", where=self._target.name)
                raise self._undone(plan, error)
            if bad_since is None and now - started >= seconds:
                return
            time.sleep(poll_seconds)

    def _problems(self, plan: PermanentPlan) -> tuple[str, ...]:
        try:
            self._target.expect_new_pgs()
            return problems(self._target.health(), moving=plan.moves_data)
        except CephfitError as error:
            return (f"its health cannot be read: {error.what}",)

    def finish_move(self) -> None:
        """Finish ``keep`` or the start of an ``undo`` in which a process was killed."""
        self._applied.finish_move()

    def keep(self, plan: PermanentPlan) -> None:
        """Make the change permanent: move its original values out of the target's journal."""
        self._greater.release_locks()
        self._applied.keep(plan.configuration.name, [str(s) for s in plan.parts.settings])

    def undo(self) -> None:
        """Restore the original values of the applied configuration, after those of an unfinished sweep.

        Raises:
            CephfitError: lists what could not be restored; it stays in the target's journal.
        """
        self._applied.finish_move()
        self._target.reset()
        self._applied.take_in()
        self._target.expect_new_pgs()
        self._target.reset()

    def _require(self, plan: PermanentPlan) -> None:
        if plan.faults:
            raise ClusterError(
                f"configuration {plan.configuration.name} is not applied: {'; '.join(plan.faults)}",
                where=self._target.name,
            )
        if left := self._journal.entries():
            raise ClusterError(
                f"{len(left)} changes of an unfinished sweep, workload or apply are in place",
                where=self._target.name,
                remedy="finish it, or undo it with `cephfit restore`",
            )
        if why := problems(self._target.health()):
            raise ClusterError(
                f"the cluster is not healthy, so nothing is changed on it: {'; '.join(why)}",
                where=self._target.name,
                remedy="repair it first; mute known warnings that do not affect performance: "
                "`ceph health mute CODE`",
            )

    def _apply(self, plan: PermanentPlan) -> tuple[int, ...]:
        restarted = self._changes.apply_options(plan.parts.options)
        self._greater.apply(plan.parts.hosts, ())
        # Pools come last, because data begins to move, and no OSD is restarted meanwhile.
        change = plan.pool_change
        self._pools.give_back(but={} if change is None else {plan.pool: change.keys})
        if change is not None:
            declared = {plan.pool: _as_declared(plan.parts.pool)}
            self._pools.apply(declared, adopt=frozenset(declared))
        return restarted

    def _mismatches(self, parts: Parts) -> list[str]:
        """Read back what ``DeclaredPools.apply`` has not read."""
        found = list(self._changes.settings.read_back(parts.options).mismatches)
        stored = stored_settings(self._admin)
        for setting in parts.options.settings:
            if setting.scope.partition("/")[0].partition(".")[0] == "client":
                got = stored.get((setting.scope, setting.key))
                kind = self._catalogue.option(setting.key).type
                if got is None or not same_value(kind, as_ceph_writes(setting.value), got):
                    found.append(f"the config store has {setting.key} = {got} of {setting.scope}")
        if parts.hosts.settings:
            found += self._greater.read_back(parts.hosts, ())[1]
        return found

    def _undone(self, plan: PermanentPlan, error: CephfitError) -> ClusterError:
        """Undo everything after a failure, also what was applied before; return the error to raise."""
        tried = ErrorCollector()
        self._target.expect_new_pgs()
        tried.make(self._target.reset)
        try:
            tried.end()
        except CephfitError as also:
            return ClusterError(
                f"{error.what}. Undoing it failed as well: {also.what}",
                where=error.where,
                remedy="run `cephfit restore` when the cause is repaired; the original values are in the journal",
            )
        what, remedy = f"{error.what}. Everything was undone", error.remedy
        if plan.earlier:
            what += f", also {plan.earlier}, which was applied before"
            remedy = "; ".join(filter(None, (remedy, f"apply {plan.earlier} again if it is to stay")))
        return ClusterError(what, where=error.where, remedy=remedy)

    @staticmethod
    def _risks(parts: Parts, accepted: Sequence[str]) -> list[tuple[Setting, str]]:
        found = []
        for setting in parts.settings:
            risk = risk_of(setting)
            if risk is not None and setting.key not in accepted:
                found.append((setting, f"{risk.why}; add --accept-risk {setting.key} to apply it"))
        return found

    def _option_differences(self, options: Configuration) -> list[Difference]:
        if not options.settings:
            return []
        present = CurrentValues(self._admin, self._catalogue, self._changes.settings)
        found = []
        for d in option_differences(options, present):
            is_same = same_value(self._catalogue.option(d.key).type, d.then, d.now)
            found.append(Difference(d.configuration, d.place, d.key, d.then if is_same else d.now, d.then))
        return found

    def _host_differences(self, hosts: Configuration) -> list[Difference]:
        if not hosts.settings:
            return []
        try:
            now, _ = self._greater.read_back(hosts, ())
        except CephfitError:  # `unsupported` names the reason
            now = {}
        found = []
        for s in hosts.within(Partition.GREATER):
            values = sorted({str(v) for v in now.get(str(s), {}).values()})
            found.append(Difference(hosts.name, s.scope, s.key, ", ".join(values), as_ceph_writes(s.value)))
        return found

    def _present(self, pool_change: PoolChange | None) -> Present:
        values = {} if pool_change is None else {key: now for key, (now, _) in pool_change.values.items()}
        return Present(stored_settings(self._admin), values)

    def _warnings(
        self, options: Configuration, parts: Parts, pool_change: PoolChange | None, moved_back: Sequence[str]
    ) -> Iterable[str]:
        late = [s.key for s in options.settings if self._catalogue.option(s.key).acts_at_creation_only]
        if late:
            yield f"{', '.join(late)}: only OSDs created from now on read it; existing OSDs stay as they are"
        if any(s.scope.partition("/")[0] == "client" for s in options.settings):
            yield "options of clients act when a client opens its image again: restart or migrate its guest"
        if parts.hosts.settings:
            yield "kernel values are lost when a host boots: write them into sysctl.d or udev rules as well"
        if pool_change is not None and pool_change.moved.n_pgs:
            yield f"data moves in the background: {pool_change.moved}"
        if moved_back:
            yield f"data moves in the background, because of what is undone: {', '.join(moved_back)}"


def _as_declared(pool: Configuration) -> dict[str, str]:
    return {s.key: as_ceph_writes(s.value) for s in pool.settings}


def _of_pool(change: PoolChange | None) -> tuple[Difference, ...]:
    if change is None:
        return ()
    return tuple(
        Difference("", f"pool {change.plan.name}", key, now or "", then)
        for key, (now, then) in change.values.items()
    )


def _undoing(entry: Entry) -> Undoing:
    if entry.kind == CONFIG:
        section, key = place_of(entry)
        return Undoing(f"option {key} of {section}", "", "not set" if entry.was is None else str(entry.was))
    was = "not there" if entry.was is None else str(entry.was)
    return Undoing(f"{entry.kind} {entry.place}", "", was if len(was) < 60 else "as it was")
