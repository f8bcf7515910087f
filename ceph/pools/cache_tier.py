"""Cache tiers: create one pool as the tier of another, read it back and remove it."""

import time
from typing import Any

from cephfit.core.errors import ClusterError
from cephfit.core.protocols import CephAdmin

_DEPRECATED_SINCE = 18
"""Reef's release notes: cache tiering is deprecated and may be removed without much further notice."""
_AGENT_RATES = ("flush_bytes_sec", "evict_bytes_sec", "promote_op_per_sec")
"""Keys of the tiering agents' work in ``ceph status``, averaged over some seconds."""
_REST_SECONDS = 60.0
_UNSAFE_MODES = ("readonly",)
"""Ceph requires a confirmation: writes to the base make copies in the cache stale."""


def add_tier(admin: CephAdmin, *, base: str, cache: str) -> None:
    """Make ``cache`` a tier of ``base`` that is not in use yet: only then it accepts a tier's values.

    Raises:
        RefusedError: the cluster refuses, or no longer supports cache tiers.
    """
    if _pools(admin)[cache]["tier_of"] < 0:
        admin.command("osd tier add", pool=base, tierpool=cache)


def use_tier(admin: CephAdmin, *, base: str, cache: str, mode: str) -> None:
    """Activate a tier in a mode and direct clients to it. Safe to call again at any point."""
    pools = _pools(admin)
    if pools[cache]["cache_mode"] != mode:
        sure = {"yes_i_really_mean_it": True} if mode in _UNSAFE_MODES else {}
        admin.command("osd tier cache-mode", pool=cache, mode=mode, **sure)
    if pools[base]["read_tier"] != pools[cache]["pool"]:
        admin.command("osd tier set-overlay", pool=base, overlaypool=cache)


def take_apart(admin: CephAdmin, name: str) -> None:
    """Detach a pool from its tiers, or from the pool that it is a tier of, in any state.

    Dirty data in the cache is lost to the base: only for pools that are deleted next.
    """
    pools = _pools(admin)
    if name not in pools:
        return
    by_id = {p["pool"]: p["pool_name"] for p in pools.values()}
    pairs = [(name, by_id[tier]) for tier in pools[name]["tiers"] if tier in by_id]
    if pools[name]["tier_of"] in by_id:
        pairs.append((by_id[pools[name]["tier_of"]], name))
    for base, cache in pairs:
        if pools[cache]["pool"] in (pools[base]["read_tier"], pools[base]["write_tier"]):
            admin.command("osd tier remove-overlay", pool=base)
        admin.command("osd tier remove", pool=base, tierpool=cache)


def tier_faults(admin: CephAdmin, *, base: str, cache: str, mode: str) -> list[str]:
    """Return one sentence per difference from what ``add_tier`` and ``use_tier`` created."""
    pools = _pools(admin)
    if cache not in pools or base not in pools:
        return [f"pool {cache} or {base} does not exist"]
    faults = []
    if pools[cache]["tier_of"] != pools[base]["pool"]:
        faults.append(f"pool {cache} is not a tier of {base}")
    if pools[cache]["cache_mode"] != mode:
        faults.append(f"pool {cache} has cache mode {pools[cache]['cache_mode']}, not {mode}")
    if pools[base]["read_tier"] != pools[cache]["pool"]:
        faults.append(f"clients of pool {base} are not directed to {cache}")
    return faults


def await_rest(admin: CephAdmin) -> None:
    """Wait until no tier flushes, evicts or promotes, or a minute has passed.

    Remaining work of one pool's agent would affect the next measured pool.
    """
    deadline = time.monotonic() + _REST_SECONDS
    while time.monotonic() < deadline:
        rates = admin.command("status")["pgmap"]
        if not any(rates.get(key) for key in _AGENT_RATES):
            return
        time.sleep(0.5)


def release_note(version: str) -> str:
    """Return a release's deprecation note on cache tiers; empty if there is none.

    Args:
        version: such as ``16.2.15``.
    """
    major = int(version.partition(".")[0] or 0) if version[:1].isdigit() else 0
    if major >= _DEPRECATED_SINCE:
        return (
            f"Ceph {version}: cache tiers are deprecated since Reef (18.2) and may be removed without much notice"
        )
    return ""


def why_no_tiers(admin: CephAdmin) -> str:
    """Return why this release has no cache tiers; empty if it has. Tests with a command that changes nothing."""
    try:
        pools: list[dict[str, Any]] = admin.command("osd dump")["pools"]
    except ClusterError as error:
        return error.what
    if pools and "tier_of" not in pools[0]:
        return "this Ceph no longer has cache tiers (they were deprecated in Reef, 18.2)"
    return ""


def _pools(admin: CephAdmin) -> dict[str, dict[str, Any]]:
    return {p["pool_name"]: p for p in admin.command("osd dump")["pools"]}
