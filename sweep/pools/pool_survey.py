"""The pools that a cluster has: where each one's data lies, how evenly, and what it is for."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from cephfit.protocols import CephAdmin
from cephfit.sweep.admin.older_releases import stored_nbytes
from cephfit.sweep.crush import programs
from cephfit.sweep.crush.live_map import LiveMap
from cephfit.sweep.pools.erasure import profile_of


@dataclass(frozen=True, slots=True)
class PoolPortrait:
    """One pool.

    Attributes:
        name: of the pool.
        kind: ``3 copies``, ``4+2 (jerasure)``.
        rule: name of its CRUSH rule.
        classes: device class to PG copies (or chunks) on it, by the map's own reckoning; ``-`` for no class.
        primary_classes: the same of the primaries.
        n_osds: OSDs that hold a part of it.
        pg_num: PGs.
        busiest: PGs of its most loaded OSD over those that the OSD's weight is due; 1.0 is even.
        balancing_moves: upmap entries that would even it out, as osdmaptool reckons.
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
    balancing_moves: int
    stored_nbytes: int
    tier: str
    compression: str

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def survey(admin: CephAdmin) -> tuple[PoolPortrait, ...]:
    """All pools of a cluster; three monitor commands and some offline work, nothing is changed."""
    live = LiveMap(admin.exchange("osd getcrushmap"))
    osd_map = admin.exchange("osd getmap")
    pools = admin.command("osd dump")["pools"]
    stored = {p["name"]: stored_nbytes(p["stats"]) for p in admin.command("df")["pools"]}
    places = programs.map_pgs(osd_map)
    names = {p["pool"]: p["pool_name"] for p in pools}
    return tuple(_portrait(admin, pool, live, osd_map, places, names, stored) for pool in pools)


def _portrait(
    admin: CephAdmin,
    pool: Mapping[str, Any],
    live: LiveMap,
    osd_map: bytes,
    places: Mapping[str, tuple[int, ...]],
    names: Mapping[int, str],
    stored: Mapping[str, int],
) -> PoolPortrait:
    name = pool["pool_name"]
    mine = [osds for pg, osds in places.items() if pg.startswith(f"{pool['pool']}.")]
    found = [[osd for osd in osds if osd != programs.NOWHERE] for osds in mine]
    counts = Counter(osd for osds in found for osd in osds)
    weights = {osd: w for bucket in live.buckets.values() for osd, w in bucket.items.items() if osd >= 0}
    total = sum(weights.get(osd, 0) for osd in counts)
    copies = sum(counts.values())
    loads = [n * total / (copies * weights[osd]) for osd, n in counts.items() if weights.get(osd)]
    return PoolPortrait(
        name=name,
        kind=_kind(admin, pool),
        rule=next((rule for rule, number in live.rules.items() if number == pool["crush_rule"]), "?"),
        classes=dict(sorted(Counter(live.class_of.get(o, "-") for osds in found for o in osds).items())),
        primary_classes=dict(sorted(Counter(live.class_of.get(o[0], "-") for o in found if o).items())),
        n_osds=len(counts),
        pg_num=int(pool["pg_num"]),
        busiest=max(loads, default=1.0),
        balancing_moves=programs.balancing_moves(osd_map, name),
        stored_nbytes=stored.get(name, 0),
        tier=_tier(pool, names),
        compression=_compression(pool.get("options", {})),
    )


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
