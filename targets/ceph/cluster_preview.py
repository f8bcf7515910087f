"""Preview what a sweep would change on a whole cluster, from queries to monitors and manager only."""

from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import groupby

from cephfit.ceph.admin.daemons import Daemon, concerned, running_daemons, strongest
from cephfit.ceph.delivery.central_config import stored_settings
from cephfit.ceph.delivery.daemon_options import DaemonOptions
from cephfit.ceph.delivery.option_delivery import has_store
from cephfit.ceph.options.option import as_ceph_writes
from cephfit.ceph.options.option_catalogue import Catalogue
from cephfit.ceph.pools.osd_capacity import (
    OsdCapacity,
    PoolDefaults,
    drops_note,
    few_pgs_note,
    fits_note,
    holds_data,
    memory_targets,
    pool_defaults,
)
from cephfit.ceph.pools.own_pools import Pools
from cephfit.ceph.pools.pool_plan import PoolPlan
from cephfit.ceph.volumes import image_settings
from cephfit.core.protocols import CephAdmin
from cephfit.core.values.configuration import HEALTHY, Configuration, Difference, Partition, PoolToCreate, Preview
from cephfit.core.values.measurement import CacheCondition, PlannedSweep

RESTART_SECONDS = 30.0
"""Assumed time until a restarted OSD's PGs are active+clean again; a lab's take 7 to 11 s."""

_FAST_SHUTDOWN = "osd_fast_shutdown"

_NAMED = 6
"""Number of OSDs that a note names; of the others it gives the count."""


class CurrentValues:
    """The values that daemons run with, as the manager reports them, in one query per daemon."""

    def __init__(self, admin: CephAdmin, catalogue: Catalogue, settings: DaemonOptions) -> None:
        self._admin = admin
        self._catalogue = catalogue
        self._settings = settings
        self._has_store = has_store(catalogue.version())
        self.daemons = running_daemons(admin)
        self._stored = stored_settings(admin) if self._has_store else {}
        self._shown: dict[str, Mapping[str, str]] = {}

    def of_daemon(self, daemon: Daemon, key: str) -> str:
        if not self._has_store:
            return self._settings.value_of(daemon, key)
        if daemon.name not in self._shown:
            shown = self._admin.command("config show", who=daemon.name)
            self._shown[daemon.name] = {entry["name"]: str(entry["value"]) for entry in shown}
        return self._shown[daemon.name].get(key, str(self._catalogue.option(key).default))

    def has(self, key: str) -> bool:
        """Return whether the cluster's release has the option."""
        return self._catalogue.find(key) is not None

    def of_clients(self, key: str) -> str:
        for section in ("client", "global"):
            if (section, key) in self._stored:
                return self._stored[section, key]
        return str(self._catalogue.option(key).default)


def option_differences(configuration: Configuration, present: CurrentValues) -> list[Difference]:
    """Return the current and the new value of every option of a configuration, for each class of daemon."""
    found = []
    settings = tuple(configuration.within(Partition.CEPH))
    for setting in settings:
        then = as_ceph_writes(setting.value)
        if setting.scope.partition("/")[0].partition(".")[0] in ("client", "global"):
            found.append(
                Difference(configuration.name, "clients", setting.key, present.of_clients(setting.key), then)
            )
        rivals = [s.scope for s in settings if s.key == setting.key]
        groups: dict[str, list[Daemon]] = {}
        for daemon in concerned(setting.scope, present.daemons):
            if strongest(rivals, daemon) == setting.scope:
                groups.setdefault(_class_of(daemon), []).append(daemon)
        for place, daemons in groups.items():
            values = {daemon.name: present.of_daemon(daemon, setting.key) for daemon in daemons}
            found.append(Difference(configuration.name, place, setting.key, _together(values), then))
    for setting in image_settings(configuration):
        found.append(Difference(configuration.name, "images", setting.key, "", str(setting.value)))
    return found


def planned_pools(
    plans: Mapping[str, Sequence[PoolPlan]],
    sweep: PlannedSweep,
    existing: Iterable[str],
    defaults: PoolDefaults,
    osd_capacity: OsdCapacity,
) -> tuple[PoolToCreate, ...]:
    """Return the pools to create for all configurations, each once.

    Args:
        plans: pools of each configuration that will be applied.
        sweep: the sweep, for the number and size of volumes.
        existing: names of pools that exist already.
        defaults: copies and PGs of a pool that does not set them.
        osd_capacity: finds the OSDs of a pool.
    """
    present_pools = set(existing)
    volumes_nbytes = sweep.measurement.most_clients * sweep.measurement.volume_nbytes
    users: dict[str, list[str]] = {}
    by_name: dict[str, PoolPlan] = {}
    for configuration, pools in plans.items():
        for plan in pools:
            users.setdefault(plan.name, []).append(configuration)
            by_name[plan.name] = plan
    found = []
    for name, plan in by_name.items():
        if name in present_pools:
            continue
        # A cache tier writes its data to the base pool in the end, so the data counts there only.
        of_data = holds_data(plan, plans[users[name][0]])
        holds = len(users[name]) * volumes_nbytes if of_data else 0
        found.append(
            PoolToCreate(
                name=name,
                values={**plan.values, **({"crush_rule": plan.rule} if plan.rule else {})},
                configurations=tuple(users[name]),
                n_pgs=defaults.n_pgs(plan),
                nbytes=holds,
                raw_nbytes=round(holds * _copies(plan, defaults.size)),
                pgs_per_osd=osd_capacity.pgs_per_osd(plan, defaults) if of_data or plan.mode else 0.0,
            )
        )
    return tuple(found)


def applied_order(sweep: PlannedSweep, applied: Container[str]) -> list[str]:
    """Return the names of configurations in the order in which they are applied; empty for a reset in between.

    Args:
        sweep: the sweep; with new volumes for each round, the target is reset between rounds.
        applied: names of the configurations that are not skipped.
    """
    order: list[str] = []
    for _, steps in groupby(sweep.steps, key=lambda step: step.repeat):
        order += [name for name, _ in groupby(step.configuration for step in steps) if name in applied]
        order += [""] if sweep.measurement.new_volumes else []
    return order


def count_restarts(order: Sequence[str], startup: Mapping[str, Mapping[int, Mapping[str, str]]]) -> Counter[int]:
    """Return the number of restarts of each OSD during a sweep and its undoing.

    Args:
        order: see ``applied_order``.
        startup: configuration to OSD to the options that the OSD must read at its start, where they differ from
            the values before the sweep.
    """
    count: Counter[int] = Counter()
    before: Mapping[int, Mapping[str, str]] = {}
    for name in [*order, ""]:
        after = startup.get(name, {})
        count.update(osd for osd in before.keys() | after.keys() if before.get(osd, {}) != after.get(osd, {}))
        before = after
    return count


def restarts_note(count: Mapping[int, int]) -> str:
    """Return a sentence about how often each OSD is restarted; empty if none is."""
    by_times: dict[int, list[int]] = {}
    for osd, times in sorted(count.items()):
        by_times.setdefault(times, []).append(osd)
    parts = []
    for times, osds in sorted(by_times.items(), reverse=True):
        names = ", ".join(f"osd.{osd}" for osd in osds[:_NAMED])
        more = f" and {len(osds) - _NAMED} more" if len(osds) > _NAMED else ""
        parts.append(f"{names}{more} {times} times{' each' if len(osds) > 1 else ''}")
    return f"restarted over the whole sweep and its undoing: {'; '.join(parts)}" if parts else ""


def shutdown_note(count: Container[int], present: CurrentValues) -> str:
    """Return a warning if OSDs that are restarted leave their deferred writes to the next start; else empty.

    Args:
        count: the OSDs that are restarted.
        present: the present values of options.
    """
    names = [
        daemon.name
        for daemon in present.daemons
        if daemon.kind == "osd" and int(daemon.id) in count and present.has(_FAST_SHUTDOWN)
        if present.of_daemon(daemon, _FAST_SHUTDOWN).lower() == "true"
    ]
    if not names:
        return ""
    return (
        f"{len(names)} of the restarted OSDs leave deferred writes to their next start ({_FAST_SHUTDOWN} = true), "
        "and a bug of Ceph may then write them over newer data (https://tracker.ceph.com/issues/68060): set "
        f"`ceph config set osd {_FAST_SHUTDOWN} false` for the time of the sweep"
    )


def preview_of(
    sweep: PlannedSweep,
    configurations: Sequence[Configuration],
    *,
    admin: CephAdmin,
    catalogue: Catalogue,
    settings: DaemonOptions,
    pools: Pools,
) -> Preview:
    """Return what configurations of a sweep would change, without settings around Ceph; change nothing."""
    present = CurrentValues(admin, catalogue, settings)
    startup = {c.name: settings.needs_restart(c) for c in configurations}
    plans = {c.name: pools.plans(c) for c in configurations}
    count = count_restarts(applied_order(sweep, plans), startup)
    n_restarts = count.total()
    # Several pools may share a rule; it counts once.
    wishes = {w.rule: w for p in plans.values() for w in pools.wishes(p, where=f"sweep {sweep.name}")}
    proposal = pools.places.propose(tuple(wishes.values())) if wishes else None
    moved = proposal.moved if proposal else None
    notes = list(proposal.warnings) if proposal else []
    if proposal and proposal.added:
        notes.append(f"{len(proposal.added)} lines are added to the CRUSH map; as a result, {proposal.moved}")
    for configuration in configurations:
        notes += _delivery_notes(configuration, settings)
    notes += filter(None, [restarts_note(count), shutdown_note(count, present)])
    if any(plans.values()):
        notes.append("mon_allow_pool_delete is set to true while pools of cephfit are deleted")
    osd_capacity = OsdCapacity(admin)
    new_pools = planned_pools(plans, sweep, pools.existing(), pool_defaults(admin, present.daemons), osd_capacity)
    notes += filter(None, (few_pgs_note(pool.name, pool.n_pgs, pool.pgs_per_osd) for pool in new_pools))
    notes += _about_caches(sweep, plans, admin=admin, daemons=present.daemons, osd_capacity=osd_capacity)
    return Preview(
        health=HEALTHY,
        differences=tuple(d for c in configurations for d in option_differences(c, present)),
        restarts={name: tuple(sorted(osds)) for name, osds in startup.items() if osds},
        n_restarts=n_restarts,
        restart_seconds=n_restarts * RESTART_SECONDS,
        pools=new_pools,
        moved_nbytes=(moved.nbytes or 0) if moved else 0,
        notes=tuple(notes),
    )


def _about_caches(
    sweep: PlannedSweep,
    plans: Mapping[str, Sequence[PoolPlan]],
    *,
    admin: CephAdmin,
    daemons: Sequence[Daemon],
    osd_capacity: OsdCapacity,
) -> list[str]:
    """Return notes about the caches of OSDs: how often they are dropped, or whether they hold all data."""
    osds = [int(daemon.id) for daemon in daemons if daemon.kind == "osd"]
    if sweep.measurement.cache is CacheCondition.COLD:
        n_drops = sum(len(step.cells) for step in sweep.steps if step.configuration in plans)
        return list(filter(None, [drops_note(n_drops, len(osds))]))
    targets = memory_targets(admin, osds)
    holding = {p.name: p for group in plans.values() for p in group if holds_data(p, group)}
    below = {name: osd_capacity.plan(plan) for name, plan in holding.items()}
    notes = (
        fits_note(sweep.measurement, [n for osd, n in targets.items() if osd in below[name]], pool=name)
        for name in holding
    )
    return list(filter(None, notes))


def _delivery_notes(configuration: Configuration, settings: DaemonOptions) -> list[str]:
    """Return notes about options that do not reach daemons through the config store."""
    found = []
    for change in settings.file_changes(configuration):
        lines = [
            f"[{section}] {', '.join(f'{key} = {value}' for key, value in options.items())}"
            for section, options in change.sections.items()
        ]
        if lines:
            found.append(f"{configuration.name} adds to {change.file.place}: {'; '.join(lines)}")
    if n_injected := settings.n_injected(configuration):
        found.append(
            f"{configuration.name} injects {n_injected} values into running daemons; a daemon that restarts loses "
            "them, so the current sample is invalid and the values are injected again"
        )
    return found


def _class_of(daemon: Daemon) -> str:
    return f"{daemon.kind} (class {daemon.device_class})" if daemon.device_class else daemon.kind


def _together(values: Mapping[str, str]) -> str:
    """Return one value if all agree, else each value with the daemons that have it."""
    by_value: dict[str, list[str]] = {}
    for name, value in values.items():
        by_value.setdefault(value, []).append(name)
    if len(by_value) == 1:
        return next(iter(by_value))
    return ", ".join(f"{value} ({', '.join(names)})" for value, names in by_value.items())


def _copies(plan: PoolPlan, default_size: int) -> float:
    if plan.erasure:
        k = int(plan.erasure["k"])
        return (k + int(plan.erasure["m"])) / k
    return int(plan.values.get("size", default_size))
