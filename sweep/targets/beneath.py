"""The OSDs beneath a pool: how many placement groups each gets, and how much memory it takes."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cephfit.protocols import CephAdmin
from cephfit.sweep.admin.answers import RefusedError
from cephfit.sweep.admin.daemons import Daemon
from cephfit.sweep.cache_notes import MEMORY_TARGET
from cephfit.sweep.crush.placement import Devices, Placement
from cephfit.sweep.pools.pool_plan import PoolPlan
from cephfit.sweep.preview import PoolToMake
from cephfit.units import GIB

_CEPHS_MEMORY_TARGET_NBYTES = 4 * GIB
"""osd_memory_target of every release that has it (since Luminous 12.2.9)."""
_AT_ONCE = 16
_FEW_PGS = 30
"""PGs on an OSD below which Ceph warned of too few (mon_pg_warn_min_per_osd): OSDs are loaded unevenly then."""
_REPLICATED = 1


class Beneath:
    """Which OSDs that are up a pool lies on, by its rule or by what is planned for it; no CRUSH program is run.

    Args:
        admin: of the cluster; asked for its rules once.
        daemons: that run.
    """

    def __init__(self, admin: CephAdmin, daemons: Sequence[Daemon]) -> None:
        self._rules: Sequence[Mapping[str, Any]] = admin.command("osd crush rule dump")
        self._osds = [daemon for daemon in daemons if daemon.kind == "osd"]

    def rule(self, rule: str | int | None) -> frozenset[int]:
        """OSDs that a rule takes, by its name or id; by the first replicated one where none is said."""
        found = next((r for r in self._rules if rule in (r["rule_name"], r["rule_id"])), None)
        if rule is None:
            replicated = [r for r in self._rules if r["type"] == _REPLICATED]
            found = min(replicated, key=lambda r: int(r["rule_id"]), default=None)
        taken = [s["item_name"].partition("~") for s in (found or {}).get("steps", ()) if s["op"] == "take"]
        return frozenset(
            int(osd.id)
            for osd in self._osds
            for bucket, _, of_class in taken
            if bucket in osd.location.values() and of_class in ("", osd.device_class)
        )

    def plan(self, plan: PoolPlan) -> frozenset[int]:
        """OSDs that a planned pool's copies or chunks lie on."""
        place = plan.placement
        if place is None:
            return self.rule(plan.values.get("crush_rule"))
        groups = [place.devices, *([place.primary] if place.primary is not None else [])]
        return frozenset(int(o.id) for o in self._osds if any(_is_among(o, devices, place) for devices in groups))


def _is_among(osd: Daemon, devices: Devices, place: Placement) -> bool:
    buckets = set(osd.location.values())
    return (
        (not devices.osds or int(osd.id) in devices.osds)
        and (not devices.hosts or bool(buckets & set(devices.hosts)))
        and (not devices.root or devices.root in buckets)
        and (
            devices.device_class in ("", osd.device_class)
            or int(osd.id) in place.classes.get(devices.device_class, ())
        )
    )


def memory_targets(admin: CephAdmin, osds: Collection[int]) -> dict[int, int]:
    """Bytes of memory that each OSD is to take, most of it for caches; without those that do not say."""

    def ask(osd: int) -> int | None:
        try:
            shown = admin.command("config show", who=f"osd.{osd}")
        except RefusedError:  # before Mimic, or the manager has not heard of it yet
            return None
        said = next((entry["value"] for entry in shown if entry["name"] == MEMORY_TARGET), None)
        return int(said) if said is not None else _CEPHS_MEMORY_TARGET_NBYTES

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        asked = dict(zip(osds, threads.map(ask, osds), strict=True))
    return {osd: nbytes for osd, nbytes in asked.items() if nbytes is not None}


def few_pgs_notes(pools: Iterable[PoolToMake]) -> list[str]:
    """Pools whose data lies on so few PGs that their OSDs are loaded unevenly."""
    found = []
    for pool in pools:
        if not 0 < pool.pgs_per_osd < _FEW_PGS:
            continue
        wanted = 1
        while wanted * pool.pgs_per_osd < _FEW_PGS * pool.n_pgs:
            wanted *= 2
        found.append(
            f"pool {pool.name} has {pool.n_pgs} PGs, {pool.pgs_per_osd:g} on each OSD in all copies: below "
            f"{_FEW_PGS} OSDs are loaded unevenly, which is slower than the OSDs can be; `pg_num: {wanted}` is "
            "enough"
        )
    return found
