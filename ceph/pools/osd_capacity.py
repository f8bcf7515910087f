"""The OSDs of a pool: placement groups, memory, notes on caches, and the capacity that mClock assumes.

mClock is the default scheduler since Quincy (17.2). At its first start, an OSD measures its disk and writes the
result to the cluster's config store, where it stays when the disk or its neighbours change. A value above a
threshold is discarded, and the default is used (Ceph's manual, "mClock Config Reference").
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.admin.daemons import Daemon, running_daemons
from cephfit.ceph.crush.data_placement import Devices, Placement
from cephfit.ceph.pools.pool_plan import PoolPlan
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import CephAdmin
from cephfit.core.units import GIB
from cephfit.core.values.measurement import CacheCondition, Measurement

IN_MEMORY = "in_memory"
"""Key of a run's facts: ``fits_note`` over all OSDs, unless empty."""
MEMORY_TARGET = "osd_memory_target"
"""Ceph's option, and the key of its value among the facts of an OSD: bytes of memory, most of it for caches."""


def fits_note(measurement: Measurement, targets_nbytes: Collection[int], *, pool: str = "") -> str:
    """Return a note that the volumes fit into warm caches; empty if they do not fit or caches are cold.

    Args:
        measurement: of the sweep.
        targets_nbytes: ``osd_memory_target`` of each OSD that holds the volumes.
        pool: pool of these OSDs; empty for all OSDs of the cluster.
    """
    nbytes = measurement.most_clients * measurement.volume_nbytes
    total = sum(targets_nbytes)
    if measurement.cache is not CacheCondition.WARM or not 0 < nbytes < total:
        return ""
    osds = f"{len(targets_nbytes)} OSDs" + (f" of pool {pool}" if pool else "")
    return (
        f"caches are warm, and the volumes ({nbytes / GIB:.3g} GiB) fit into those of the {osds} "
        f"({total / GIB:.3g} GiB by {MEMORY_TARGET}): reads there measure memory and network, not disks; a "
        "workload with more data is slower"
    )


def drops_note(n_drops: int, n_osds: int) -> str:
    """Return a note on how often the caches of all OSDs are dropped; empty if never."""
    if not n_drops:
        return ""
    return (
        f"the caches of all {n_osds} OSDs are dropped {n_drops} times, before every run: other users of the "
        "cluster read from its disks afterwards (`cache: warm` drops none)"
    )


_CEPHS_MEMORY_TARGET_NBYTES = 4 * GIB
"""osd_memory_target of every release that has it (since Luminous 12.2.9)."""
_AT_ONCE = 16
_FEW_PGS = 30
"""PGs per OSD below which Ceph warned of too few (mon_pg_warn_min_per_osd): the load is then uneven."""
_REPLICATED = 1


@dataclass(frozen=True, slots=True)
class PoolDefaults:
    """Default values of a new pool.

    Attributes:
        size: copies.
        pg_num: placement groups.
        min_size: copies that a PG needs to serve clients; 0 for half of the copies, rounded up.
    """

    size: int
    pg_num: int
    min_size: int = 0

    def n_pgs(self, plan: PoolPlan) -> int:
        return int(plan.values.get("pg_num", self.pg_num))

    def n_copies(self, plan: PoolPlan) -> int:
        """Return the copies or chunks of each object."""
        return plan.size if plan.erasure else int(plan.values.get("size", self.size))

    def min_size_of(self, size: int) -> int:
        """Return the ``min_size`` that Ceph gives a pool with ``size`` copies (get_osd_pool_default_min_size)."""
        return min(self.min_size, size) if self.min_size else size - size // 2


def pool_defaults(admin: CephAdmin, daemons: Sequence[Daemon]) -> PoolDefaults:
    """Read the monitors' defaults; Ceph's defaults since Octopus where they do not report them."""
    monitor: Any = next(d for d in daemons if d.kind == "mon")
    try:
        shown = {e["name"]: e["value"] for e in admin.command("config show", who=monitor.name)}
    except RefusedError:  # before Mimic
        shown = {}
    return PoolDefaults(
        int(shown.get("osd_pool_default_size", 3)),
        int(shown.get("osd_pool_default_pg_num", 32)),
        int(shown.get("osd_pool_default_min_size", 0)),
    )


class OsdCapacity:
    """Finds the OSDs (of those that are up) of a pool, by its rule or its plan, without running a CRUSH program.

    Args:
        admin: of the cluster; its rules and tree are read once.
    """

    def __init__(self, admin: CephAdmin) -> None:
        self._rules: Sequence[Mapping[str, Any]] = admin.command("osd crush rule dump")
        nodes = {int(node["id"]): node for node in admin.command("osd tree")["nodes"]}
        # An OSD may be in several trees, so each bucket is traversed.
        self._under = {node["name"]: _osds_under(node, nodes) for node in nodes.values() if node["type"] != "osd"}
        up = {n: node for n, node in nodes.items() if node["type"] == "osd" and node.get("status") == "up"}
        self._class_of = {n: str(node.get("device_class", "")) for n, node in up.items()}

    def rule(self, rule: str | int | None) -> frozenset[int]:
        """Return the OSDs that a rule takes, by its name or id; None means the first replicated rule."""
        found = next((r for r in self._rules if rule in (r["rule_name"], r["rule_id"])), None)
        if rule is None:
            replicated = [r for r in self._rules if r["type"] == _REPLICATED]
            found = min(replicated, key=lambda r: int(r["rule_id"]), default=None)
        taken = [s["item_name"].partition("~") for s in (found or {}).get("steps", ()) if s["op"] == "take"]
        return frozenset(
            osd
            for osd, its_class in self._class_of.items()
            for bucket, _, of_class in taken
            if osd in self._under.get(bucket, ()) and of_class in ("", its_class)
        )

    def plan(self, plan: PoolPlan) -> frozenset[int]:
        """Return the OSDs for a planned pool's copies or chunks."""
        place = plan.placement
        if place is None:
            return self.rule(plan.values.get("crush_rule"))
        groups = [place.devices, *([place.primary] if place.primary is not None else [])]
        return frozenset(o for o in self._class_of if any(self._is_among(o, devices, place) for devices in groups))

    def _is_among(self, osd: int, devices: Devices, place: Placement) -> bool:
        return (
            (not devices.osds or osd in devices.osds)
            and (not devices.hosts or any(osd in self._under.get(host, ()) for host in devices.hosts))
            and (not devices.root or osd in self._under.get(devices.root, ()))
            and (
                devices.device_class in ("", self._class_of[osd])
                or osd in place.classes.get(devices.device_class, ())
            )
        )

    def pgs_per_osd(self, plan: PoolPlan, defaults: PoolDefaults) -> float:
        """Return a pool's future PGs per OSD, all copies or chunks counted; 0 where its OSDs are unknown."""
        n_osds = len(self.plan(plan))
        return round(defaults.n_pgs(plan) * defaults.n_copies(plan) / n_osds, 1) if n_osds else 0.0


def _osds_under(node: Mapping[str, Any], nodes: Mapping[int, Mapping[str, Any]]) -> frozenset[int]:
    """Return the OSDs in a bucket of ``osd tree`` at any depth."""
    found: set[int] = set()
    waiting = [node]
    while waiting:
        for child in waiting.pop().get("children", ()):
            if child >= 0:
                found.add(int(child))
            elif child in nodes:
                waiting.append(nodes[child])
    return frozenset(found)


def memory_targets(admin: CephAdmin, osds: Collection[int]) -> dict[int, int]:
    """Return each OSD's memory target in bytes, most of it for caches; OSDs without an answer are omitted."""

    def ask(osd: int) -> int | None:
        try:
            shown = admin.command("config show", who=f"osd.{osd}")
        except RefusedError:  # before Mimic, or the manager does not know it yet
            return None
        reported = next((entry["value"] for entry in shown if entry["name"] == MEMORY_TARGET), None)
        return int(reported) if reported is not None else _CEPHS_MEMORY_TARGET_NBYTES

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        asked = dict(zip(osds, threads.map(ask, osds), strict=True))
    return {osd: nbytes for osd, nbytes in asked.items() if nbytes is not None}


def holds_data(plan: PoolPlan, others: Sequence[PoolPlan]) -> bool:
    """Return whether a pool finally holds the data of images, given the other pools of its declaration."""
    if plan.mode:
        return False
    return bool(plan.erasure) or not any(other.erasure for other in others)


def few_pgs_note(pool: str, n_pgs: int, pgs_per_osd: float) -> str:
    """Return a note that a pool has too few PGs for an even load of its OSDs; empty if it has enough.

    Args:
        pool: its name.
        n_pgs: its number of PGs.
        pgs_per_osd: see ``OsdCapacity.pgs_per_osd``; 0 if unknown.
    """
    if not 0 < pgs_per_osd < _FEW_PGS:
        return ""
    required = 1
    while required * pgs_per_osd < _FEW_PGS * n_pgs:
        required *= 2
    return (
        f"pool {pool} has {n_pgs} PGs, {pgs_per_osd:g} on each OSD in all copies: below {_FEW_PGS} the "
        f"load of OSDs is uneven, which costs performance; `pg_num: {required}` is enough"
    )


def few_pgs_of(admin: CephAdmin, groups: Iterable[Sequence[PoolPlan]]) -> list[str]:
    """Return ``few_pgs_note`` for planned pools, grouped by declaration."""
    daemons = running_daemons(admin)
    osd_capacity, defaults = OsdCapacity(admin), pool_defaults(admin, daemons)
    holding = [plan for group in groups for plan in group if plan.mode or holds_data(plan, group)]
    notes = (few_pgs_note(p.name, defaults.n_pgs(p), osd_capacity.pgs_per_osd(p, defaults)) for p in holding)
    return list(filter(None, notes))


FIRST_WITH_MCLOCK = 17
"""Major version of the first release with mClock as the default."""
MCLOCK = "mclock"
"""Key of a run's facts that holds ``mclock_facts``."""
CAPACITY = "osd_mclock_max_capacity_iops_"
"""Prefix of the options of the capacity, followed by ``hdd`` or ``ssd``."""
_SCHEDULER = "mclock_scheduler"
_SPREAD = 2.0
"""Capacities of OSDs of one class that differ more than this were not measured under equal conditions."""


def mclock_facts(admin: CephAdmin, classes: Mapping[int, str], rotational: Mapping[int, bool]) -> dict[str, Any]:
    """Return the scheduler of each OSD and, under mClock, the capacity that it uses. JSON values.

    Args:
        admin: of the cluster.
        classes: device class of each OSD.
        rotational: whether the OSD regards its disk as spinning: it then uses the capacity of ``hdd``.

    Returns:
        Empty for releases before Quincy and for clusters whose monitors do not answer ``config show``.
    """
    osds: dict[str, dict[str, Any]] = {}
    stored = _measured(admin)
    for osd, device_class in sorted(classes.items()):
        key = f"{CAPACITY}{'hdd' if rotational.get(osd) else 'ssd'}"
        try:
            scheduler = _shown(admin, osd, "osd_op_queue")
            if scheduler != _SCHEDULER:
                continue
            osds[str(osd)] = {
                "device_class": device_class,
                "profile": _shown(admin, osd, "osd_mclock_profile"),
                "capacity_iops": float(_shown(admin, osd, key)),
                "measured_by_osd": (f"osd.{osd}", key) in stored,
            }
        except ClusterError:
            return {}
    return {"osds": osds, "warnings": list(capacity_warnings(osds))} if osds else {}


def _measured(admin: CephAdmin) -> set[tuple[str, str]]:
    """Return (section, option) of the capacities in the config store: an OSD writes its own in its section."""
    try:
        dumped = admin.command("config dump")
    except ClusterError:
        return set()
    return {(entry["section"], entry["name"]) for entry in dumped if entry["name"].startswith(CAPACITY)}


def _shown(admin: CephAdmin, osd: int, key: str) -> str:
    answer = admin.command("config show", who=f"osd.{osd}", key=key)
    return str(answer["value"] if isinstance(answer, dict) else answer).strip()


def capacity_warnings(osds: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Return sentences on capacities that are doubtful.

    Args:
        osds: id to ``device_class`` and ``capacity_iops``.
    """
    by_class: dict[str, list[tuple[str, float]]] = {}
    for osd, fact in osds.items():
        by_class.setdefault(fact["device_class"], []).append((osd, fact["capacity_iops"]))
    return tuple(
        _spread_sentence(device_class, capacities)
        for device_class, capacities in by_class.items()
        if max(c for _, c in capacities) > _SPREAD * min(c for _, c in capacities)
    )


def _spread_sentence(device_class: str, capacities: Sequence[tuple[str, float]]) -> str:
    low, high = min(capacities, key=lambda one: one[1]), max(capacities, key=lambda one: one[1])
    return (
        f"mClock believes osd.{low[0]} to serve {low[1]:.0f} IOPS and osd.{high[0]} {high[1]:.0f}, both of class "
        f"{device_class or '(none)'}: such values are stale, or were measured while the OSD was busy. "
        f"`ceph config rm osd.N {CAPACITY}...` makes an OSD measure again at its next start"
    )
