"""The present pools of a cluster: read back values and OSDs of PGs, wait for PGs, list all pools.

The read-back covers a pool's values, code, tier and the OSDs of its PGs. The list shows each pool's placement,
balance and purpose.
"""

import errno
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from cephfit.ceph.admin.answers import RefusedError, listed_pgs, stored_nbytes
from cephfit.ceph.crush import live_map
from cephfit.ceph.crush.live_map import NOWHERE, LiveMap, NewerMapError
from cephfit.ceph.options.option import same_value
from cephfit.ceph.pools.pool_keys import VALUE_TYPES, profile_of, tier_faults
from cephfit.ceph.pools.pool_plan import PoolPlan, Role
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import CephAdmin
from cephfit.core.values.configuration import Setting
from cephfit.core.waiting import wait_until_clear

Allowed = Mapping[str, Sequence[Mapping[int, int]]]
"""Rule to the OSDs that it may use; separate primaries come first."""


def pool_value(admin: CephAdmin, pool: str, key: str) -> Any:
    """Read a pool's value; None if it was never set, or this release does not report it."""
    try:
        answer = admin.command("osd pool get", pool=pool, var=key)
    except RefusedError as error:
        # The errors for a value that was never set on an existing pool, and for one that cannot be read: before
        # Nautilus `allow_ec_overwrites`.
        if error.code in (errno.ENOENT, errno.EINVAL):
            return None
        raise
    return answer.get(key) if isinstance(answer, dict) else None


def read_back_pools(
    admin: CephAdmin, plans: Sequence[PoolPlan], settings: Sequence[Setting], allowed: Allowed
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Read pool values: setting (as text) to pool to value, and one sentence per mismatch.

    Args:
        admin: of the cluster.
        plans: pools of the settings.
        settings: of the pool partition, scope ``pool``.
        allowed: for each plan that has a placement.
    """
    values: dict[str, dict[str, Any]] = {}
    faults: list[str] = []
    text_of = {s.key: str(s) for s in settings}
    base = ""
    for plan in plans:
        base = base if plan.role is Role.CACHE else plan.name
        for key, name in plan.declared_as.items():
            required, got = plan.values[name], pool_value(admin, plan.name, name)
            values.setdefault(text_of[key], {})[plan.name] = got
            if got is None or not same_value(VALUE_TYPES.get(name, "str"), required, got):
                faults.append(f"pool {plan.name} has {name} = {got}, not {required}")
        if plan.erasure:
            faults += _read_code(admin, plan, text_of, values)
        if plan.role is Role.CACHE:
            faults += tier_faults(admin, base=base, cache=plan.name, mode=plan.mode)
            if "cache.mode" in text_of:
                values[text_of["cache.mode"]] = {plan.name: dumped_pool(admin, plan.name)["cache_mode"]}
        if plan.placement is not None:
            faults += _read_place(admin, plan, text_of, values, allowed[plan.rule])
    return values, faults


def _read_code(
    admin: CephAdmin, plan: PoolPlan, text_of: Mapping[str, str], values: dict[str, dict[str, Any]]
) -> list[str]:
    dumped = dumped_pool(admin, plan.name)
    profile = profile_of(admin, dumped["erasure_code_profile"])
    faults = []
    for key, required in plan.erasure.items():
        got = profile.get(key)
        values[text_of[f"erasure.{key}"]] = {plan.name: got}
        if got is None or not same_value(VALUE_TYPES.get(key, "str"), required, got):
            faults.append(f"the erasure code of pool {plan.name} has {key} = {got}, not {required}")
    if int(dumped["size"]) != plan.size:
        faults.append(f"pool {plan.name} has {dumped['size']} chunks, not {plan.size}")
    if "ec_overwrites" not in str(dumped["flags_names"]).split(","):
        faults.append(f"pool {plan.name} does not allow overwrites, so it cannot hold images")
    return faults


def _read_place(
    admin: CephAdmin,
    plan: PoolPlan,
    text_of: Mapping[str, str],
    values: dict[str, dict[str, Any]],
    allowed: Sequence[Mapping[int, int]],
) -> list[str]:
    """Compare the OSDs of PGs, as the manager reports them, with those that the map permits."""
    pgs = listed_pgs(admin.command("pg ls-by-pool", poolstr=plan.name)) or ()
    firsts = {pg["acting_primary"] for pg in pgs}
    others = {osd for pg in pgs for osd in pg["acting"] if osd not in (pg["acting_primary"], NOWHERE)}
    prefix = {Role.BASE: ("", "metadata."), Role.DATA: ("",), Role.CACHE: ("cache.",)}[plan.role]
    for key, text in text_of.items():
        for start in prefix:
            rest = key.removeprefix(start)
            if key.startswith(start) and rest.startswith(("devices.", "primary.", "failure_domain")):
                found = firsts if rest.startswith("primary.") else others if len(allowed) > 1 else firsts | others
                values.setdefault(text, {})[plan.name] = " ".join(f"osd.{osd}" for osd in sorted(found))
    groups = [(firsts, allowed[0], "primaries"), (others, allowed[-1], "copies")]
    return [
        f"{what} of pool {plan.name} are on {', '.join(f'osd.{osd}' for osd in sorted(wrong))}, not on "
        f"{plan.placement}"
        for found, right, what in groups
        if (wrong := found - set(right))
    ]


def dumped_pool(admin: CephAdmin, name: str) -> dict[str, Any]:
    """Return an existing pool's entry of ``osd dump``.

    Raises:
        ClusterError: the pool was deleted meanwhile.
    """
    for pool in admin.command("osd dump")["pools"]:
        if pool["pool_name"] == name:
            return dict(pool)
    raise ClusterError(
        "the pool was deleted while cephfit used it",
        where=f"pool {name}",
        remedy="run the same command again: a pool that cephfit had created is created again",
    )


def mapped_pgs(admin: CephAdmin, osd_map: bytes, pools: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return PG id to its OSDs without temporary mappings: by osdmaptool, or as the manager reports them.

    The manager is asked if this machine's osdmaptool is older than the cluster.

    Args:
        admin: of the cluster.
        osd_map: from ``ceph osd getmap``.
        pools: names; PGs of others may be missing.

    Raises:
        ClusterError: the manager does not know the PGs, also after some time.
    """
    try:
        return live_map.map_pgs(osd_map)
    except NewerMapError:
        return _reported_pgs(admin, pools)


def _reported_pgs(admin: CephAdmin, pools: Sequence[str]) -> dict[str, tuple[int, ...]]:
    places: dict[str, tuple[int, ...]] = {}

    def look() -> str:
        for name in pools:
            pgs = listed_pgs(admin.command("pg ls-by-pool", poolstr=name))
            if pgs is None:
                return f"the manager does not know the PGs of pool {name}"
            places.update({pg["pgid"]: tuple(pg["up"]) for pg in pgs})
        return ""

    if unknown := wait_until_clear(look, seconds=_COUNTING_SECONDS, poll_seconds=_POLL_SECONDS):
        raise ClusterError(unknown, where="pg ls-by-pool", remedy="check that a manager is active, then try again")
    return places


_SETTLED_SECONDS = 30.0
"""PGs that are neither clean nor active for this long find no OSDs; a lab's new pool takes 2 s."""
_POLL_SECONDS = 0.1
_SLOWEST_POLL_SECONDS = 2.0
_SILENCE_SECONDS = 10.0
"""OSDs report changed PGs to the manager every 5 s (mgr_stats_period)."""
_COUNTING_SECONDS = 30.0
_IN_PLACE = frozenset(("active", "clean"))
_ELSEWHERE = frozenset(("scrubbing", "deep", "snaptrim", "snaptrim_wait", "laggy", "wait"))
"""Words of states that are unrelated to placement; with active clients they appear at any time."""
_AT_WORK = frozenset(
    ("creating", "peering", "activating", "unknown", "recovering", "recovery_wait", "backfilling", "backfill_wait")
)
"""Words of states of PGs that will become clean."""


@dataclass(frozen=True, slots=True)
class _Outlook:
    """The progress of a pool's PGs.

    Attributes:
        why: reason why they are not on their OSDs; empty if they are.
        may_come: whether they may get there without intervention.
        n_recovered: objects and bytes copied to their OSDs since the PGs were created. The numbers of degraded or
            misplaced objects are no measure of progress: they change with every write of a client.
    """

    why: str
    may_come: bool = True
    n_recovered: int = 0


class UnplacedPoolError(ClusterError):
    """A pool's PGs did not become active+clean, for example because its rule finds too few OSDs for its size."""


def map_epoch(admin: CephAdmin) -> int:
    """Return the epoch of the present OSD map."""
    return int(admin.command("osd dump")["epoch"])


def await_placed(admin: CephAdmin, name: str, epoch: int, *, patience_seconds: float) -> None:
    """Wait until every PG is active+clean by a report since ``epoch``; older reports describe older placements.

    The wait continues as long as PGs change their state or data is copied, which may take hours.

    Args:
        admin: of the cluster.
        name: of the pool.
        epoch: of the map that moved the PGs. A PG that it did not move sends no report; after a while a missing
            report counts as that.
        patience_seconds: how long unfinished PGs may make no progress.

    Raises:
        UnplacedPoolError: the PGs do not become active+clean.
    """
    started = changed = time.monotonic()
    before: _Outlook | None = None
    while True:
        now = time.monotonic()
        outlook = _outlook(admin, name, 0 if now > started + _SILENCE_SECONDS else epoch)
        if not outlook.why:
            return
        if outlook != before:
            before, changed = outlook, now
        limit = patience_seconds if outlook.may_come else min(_SETTLED_SECONDS, patience_seconds)
        if now > changed + limit:
            raise UnplacedPoolError(f"after {now - started:.0f} s {outlook.why}", where=f"pool {name}")
        time.sleep(min(_POLL_SECONDS + (now - started) / 20, _SLOWEST_POLL_SECONDS))


def await_counted(admin: CephAdmin) -> None:
    """Wait until the manager counts the PGs of the existing pools; it learns of deleted pools a little later."""

    def look() -> str:
        expected = sum(int(pool["pg_num"]) for pool in admin.command("osd dump")["pools"])
        counted = admin.command("status")["pgmap"]["num_pgs"]
        return "" if counted == expected else f"{counted} of {expected} PGs are counted"

    wait_until_clear(look, seconds=_COUNTING_SECONDS, poll_seconds=_POLL_SECONDS)


def _outlook(admin: CephAdmin, name: str, epoch: int) -> _Outlook:
    pool = dumped_pool(admin, name)
    target = pool.get("pg_num_target", pool["pg_num"])
    try:
        pgs = listed_pgs(admin.command("pg ls-by-pool", poolstr=name)) or ()
    except RefusedError as error:  # the manager does not know the pool yet
        return _Outlook(error.what)
    if len(pgs) != target or pool["pg_placement_num"] != pool.get("pg_placement_num_target", target):
        return _Outlook(f"it has {len(pgs)} of {target} PGs")
    silent = sum(int(pg["reported_epoch"]) < epoch for pg in pgs)
    if silent:
        return _Outlook(f"{silent} PGs have not reported")
    states = [[word for word in pg["state"].split("+") if word not in _ELSEWHERE] for pg in pgs]
    counts = Counter("+".join(words) for words in states if not _IN_PLACE.issubset(words))
    keys = ("num_objects_recovered", "num_bytes_recovered")
    return _Outlook(
        ", ".join(f"{count} PGs are {state}" for state, count in sorted(counts.items())),
        may_come=any(not _AT_WORK.isdisjoint(state.split("+")) for state in counts),
        n_recovered=sum(int(pg.get("stat_sum", {}).get(key, 0)) for pg in pgs for key in keys),
    )


@dataclass(frozen=True, slots=True)
class PoolDescription:
    """One pool.

    Attributes:
        name: of the pool.
        kind: ``3 copies``, ``4+2 (jerasure)``.
        rule: name of its CRUSH rule.
        classes: device class to PG copies (or chunks) on it, by the map; ``-`` for no class.
        primary_classes: the same for the primaries.
        n_osds: number of OSDs with a part of it.
        pg_num: PGs.
        busiest: PGs of its most loaded OSD over the fair share of that OSD's weight; 1.0 is even.
        balancing_moves: upmap entries that would balance it, by osdmaptool; None if this machine's osdmaptool is
            older than the cluster.
        stored_nbytes: of clients' data.
        tier: ``cache of X (writeback)``, ``has the cache X``, or empty.
        compression: mode and algorithm, or empty.
    """

    name: str
    kind: str
    rule: str
    classes: Mapping[str, int]
    primary_classes: Mapping[str, int]
    n_osds: int
    pg_num: int
    busiest: float
    balancing_moves: int | None
    stored_nbytes: int
    tier: str
    compression: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def survey(admin: CephAdmin) -> tuple[PoolDescription, ...]:
    """List all pools of a cluster, with a few commands and offline computation; changes nothing."""
    live = LiveMap(admin.exchange("osd getcrushmap"))
    osd_map = admin.exchange("osd getmap")
    pools = admin.command("osd dump")["pools"]
    stored = {p["name"]: stored_nbytes(p["stats"]) for p in admin.command("df")["pools"]}
    names = {p["pool"]: p["pool_name"] for p in pools}
    places = mapped_pgs(admin, osd_map, list(names.values()))
    return tuple(_description(admin, pool, live, osd_map, places, names, stored) for pool in pools)


def _description(
    admin: CephAdmin,
    pool: Mapping[str, Any],
    live: LiveMap,
    osd_map: bytes,
    places: Mapping[str, tuple[int, ...]],
    names: Mapping[int, str],
    stored: Mapping[str, int],
) -> PoolDescription:
    name = pool["pool_name"]
    mine = [osds for pg, osds in places.items() if pg.startswith(f"{pool['pool']}.")]
    found = [[osd for osd in osds if osd != live_map.NOWHERE] for osds in mine]
    counts = Counter(osd for osds in found for osd in osds)
    weights = {osd: w for bucket in live.buckets.values() for osd, w in bucket.items.items() if osd >= 0}
    total = sum(weights.get(osd, 0) for osd in counts)
    copies = sum(counts.values())
    loads = [n * total / (copies * weights[osd]) for osd, n in counts.items() if weights.get(osd)]
    return PoolDescription(
        name=name,
        kind=_kind(admin, pool),
        rule=next((rule for rule, number in live.rules.items() if number == pool["crush_rule"]), "?"),
        classes=dict(sorted(Counter(live.class_of.get(o, "-") for osds in found for o in osds).items())),
        primary_classes=dict(sorted(Counter(live.class_of.get(o[0], "-") for o in found if o).items())),
        n_osds=len(counts),
        pg_num=int(pool["pg_num"]),
        busiest=max(loads, default=1.0),
        balancing_moves=_balancing_moves(osd_map, name),
        stored_nbytes=stored.get(name, 0),
        tier=_tier(pool, names),
        compression=_compression(pool.get("options", {})),
    )


def _balancing_moves(osd_map: bytes, name: str) -> int | None:
    try:
        return live_map.balancing_moves(osd_map, name)
    except NewerMapError:
        return None


def _kind(admin: CephAdmin, pool: Mapping[str, Any]) -> str:
    if not pool.get("erasure_code_profile"):
        return f"{pool['size']} copies" if pool["size"] != 1 else "1 copy"
    profile = profile_of(admin, pool["erasure_code_profile"])
    return f"{profile.get('k', '?')}+{profile.get('m', '?')} ({profile.get('plugin', '?')})"


def _tier(pool: Mapping[str, Any], names: Mapping[int, str]) -> str:
    if pool.get("tier_of", -1) in names:
        return f"cache of {names[pool['tier_of']]} ({pool['cache_mode']})"
    tiers = [names[tier] for tier in pool.get("tiers", ()) if tier in names]
    return f"has the cache {', '.join(tiers)}" if tiers else ""


def _compression(options: Mapping[str, Any]) -> str:
    mode = options.get("compression_mode", "")
    return f"{mode} {options.get('compression_algorithm', '')}".strip() if mode not in ("", "none") else ""
