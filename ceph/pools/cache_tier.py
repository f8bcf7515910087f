"""One pool as the cache tier of another: made, read back and taken apart."""

import time
from typing import Any

from cephfit.core.errors import ClusterError
from cephfit.core.protocols import CephAdmin

_DEPRECATED_SINCE = 18
"""Reef's release notes: cache tiering is deprecated and may go without much further notice."""
_AGENT_RATES = ("flush_bytes_sec", "evict_bytes_sec", "promote_op_per_sec")
"""What ``ceph status`` tells of the tiering agents' work, averaged over some seconds."""
_REST_SECONDS = 60.0
_UNSAFE_MODES = ("readonly",)
"""Ceph wants to be told twice: what is written to the base makes copies in the cache stale."""


def add_tier(admin: CephAdmin, *, base: str, cache: str) -> None:
    """Make ``cache`` a tier of ``base`` that nobody uses yet: only then it takes a tier's values.

    Raises:
        RefusedError: the cluster refuses, or no longer knows cache tiers.
    """
    if _pools(admin)[cache]["tier_of"] < 0:
        admin.command("osd tier add", pool=base, tierpool=cache)


def use_tier(admin: CephAdmin, *, base: str, cache: str, mode: str) -> None:
    """Put a tier to work in a mode and send clients to it. Safe to call again at any point."""
    pools = _pools(admin)
    if pools[cache]["cache_mode"] != mode:
        sure = {"yes_i_really_mean_it": True} if mode in _UNSAFE_MODES else {}
        admin.command("osd tier cache-mode", pool=cache, mode=mode, **sure)
    if pools[base]["read_tier"] != pools[cache]["pool"]:
        admin.command("osd tier set-overlay", pool=base, overlaypool=cache)


def take_apart(admin: CephAdmin, name: str) -> None:
    """Free a pool from its tiers, or from the pool that it is a tier of, whatever was made of it so far.

    What is dirty in the cache is lost to the base: only for pools that are deleted next.
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
    """One sentence for each thing that is not as ``add_tier`` and ``use_tier`` made it."""
    pools = _pools(admin)
    if cache not in pools or base not in pools:
        return [f"pool {cache} or {base} is not there"]
    faults = []
    if pools[cache]["tier_of"] != pools[base]["pool"]:
        faults.append(f"pool {cache} is not a tier of {base}")
    if pools[cache]["cache_mode"] != mode:
        faults.append(f"pool {cache} has cache mode {pools[cache]['cache_mode']}, not {mode}")
    if pools[base]["read_tier"] != pools[cache]["pool"]:
        faults.append(f"clients of pool {base} are not sent to {cache}")
    return faults


def await_rest(admin: CephAdmin) -> None:
    """Until no tier flushes, evicts or promotes, or a minute has passed.

    What the agent of one pool still does would be counted against the next one that is measured.
    """
    deadline = time.monotonic() + _REST_SECONDS
    while time.monotonic() < deadline:
        rates = admin.command("status")["pgmap"]
        if not any(rates.get(key) for key in _AGENT_RATES):
            return
        time.sleep(0.5)


def release_note(version: str) -> str:
    """What a release thinks of cache tiers; empty where it says nothing against them.

    Args:
        version: such as ``16.2.15``.
    """
    major = int(version.partition(".")[0] or 0) if version[:1].isdigit() else 0
    if major >= _DEPRECATED_SINCE:
        return f"Ceph {version}: cache tiers are deprecated since Reef (18.2) and may go without much notice"
    return ""


def why_no_tiers(admin: CephAdmin) -> str:
    """Why this release cannot have cache tiers; empty if it can. Asks with a command that changes nothing."""
    try:
        pools: list[dict[str, Any]] = admin.command("osd dump")["pools"]
    except ClusterError as error:
        return error.what
    if pools and "tier_of" not in pools[0]:
        return "this Ceph has no cache tiers any more (they were deprecated in Reef, 18.2)"
    return ""


def _pools(admin: CephAdmin) -> dict[str, dict[str, Any]]:
    return {p["pool_name"]: p for p in admin.command("osd dump")["pools"]}
