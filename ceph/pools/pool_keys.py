"""The keys of a pool's declaration, their values in Ceph, and their erasure code profiles and cache tiers."""

import errno
import time
from collections.abc import Callable, Mapping
from typing import Any

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.crush.data_placement import DEVICE_WORDS, Placement
from cephfit.ceph.options.option import same_value
from cephfit.core.errors import ClusterError
from cephfit.core.journal import Journal
from cephfit.core.protocols import CephAdmin

PLAIN_KEYS = (
    "size", "min_size", "pg_num", "pgp_num", "crush_rule", "compression_mode", "compression_algorithm",
    "compression_required_ratio", "compression_max_blob_size", "compression_min_blob_size", "csum_type",
    "csum_min_block", "csum_max_block", "write_fadvise_dontneed", "fast_read", "recovery_priority", "read_ratio",
    "allow_ec_optimizations",
)  # fmt: skip
"""Keys of ``osd pool set`` that a sweep may vary."""

PLACING_KEYS = ("size", "pg_num", "pgp_num", "crush_rule")
"""A change of one of these moves PGs."""

TIER_KEYS = (
    "hit_set_type", "hit_set_count", "hit_set_period", "hit_set_fpp", "hit_set_grade_decay_rate",
    "hit_set_search_last_n", "target_max_bytes", "target_max_objects", "cache_target_dirty_ratio",
    "cache_target_dirty_high_ratio", "cache_target_full_ratio", "cache_min_flush_age", "cache_min_evict_age",
    "min_read_recency_for_promote", "min_write_recency_for_promote",
)  # fmt: skip
"""Parameters of a cache tier (Meyer 2017, Table 2.2, and Ceph's manual, "Cache tiering")."""

CACHE_MODES = ("writeback", "readonly", "readproxy")
"""Modes that cephfit supports; Octopus removed `forward`, `readforward` and `proxy`."""

ERASURE_KEYS = ("k", "m", "plugin", "technique", "stripe_unit", "l", "c", "d", "scalar_mds", "packetsize", "w")
"""Keys of an erasure code profile, without those of placement (Ceph's manual, "Erasure code profiles")."""

_PLACE = (*(f"{word}.{key}" for word in ("devices", "primary") for key in DEVICE_WORDS), "failure_domain")
_BESIDE = (*PLAIN_KEYS, *_PLACE)

DECLARED_KEYS: tuple[str, ...] = (
    *_PLACE,
    *(f"erasure.{key}" for key in ERASURE_KEYS),
    *(f"metadata.{key}" for key in _BESIDE),
    "cache.mode",
    *(f"cache.{key}" for key in (*_BESIDE, *TIER_KEYS)),
)
"""Nested keys of a declaration; written nested (``cache: {mode: writeback}``) or with dots."""

POOL_KEYS: tuple[str, ...] = (*PLAIN_KEYS, *DECLARED_KEYS)

IMAGE_KEYS = ("object_size", "stripe_unit", "stripe_count", "features")
"""Keys of an RBD image."""

CLASSES = "classes"
"""Prefix of a device class with a list of its OSDs, for clusters before Luminous."""

NESTED = ("devices", "primary", "erasure", "metadata", "cache", CLASSES)
"""Keys of a declaration with a mapping as their value."""

LISTS = ("hosts", "osds")
"""Last parts of keys with a list as their value."""


_FIRST_RELEASES: Mapping[str, tuple[int, str]] = {
    "read_ratio": (19, "Squid (19.2)"),
    "allow_ec_optimizations": (20, "Tentacle (20.2)"),
}
"""Keys that not every supported release has: major version and name of the first one (release notes)."""


def why_no_key(key: str, version: Callable[[], str]) -> str:
    """Return why a release does not have a key of pools; empty if it has.

    Args:
        key: also nested, such as ``metadata.size``.
        version: returns that of the release, such as ``18.2.7``; called only for keys that not all releases have.
    """
    first = _FIRST_RELEASES.get(key.rpartition(".")[2])
    if first is None:
        return ""
    major = version().partition(".")[0]
    if not major.isdigit() or int(major) >= first[0]:
        return ""
    return f"pools of Ceph {version()} have no {key}: it came with {first[1]}"


def is_pool_key(key: str) -> bool:
    """Return whether a declaration may contain a key."""
    return key in POOL_KEYS or key.startswith(f"{CLASSES}.")


VALUE_TYPES: Mapping[str, str] = {
    "compression_max_blob_size": "size",
    "compression_min_blob_size": "size",
    "csum_min_block": "size",
    "csum_max_block": "size",
    "compression_required_ratio": "float",
    "read_ratio": "int",
    "write_fadvise_dontneed": "bool",
    "fast_read": "bool",
    "recovery_priority": "int",
    "allow_ec_optimizations": "bool",
    "size": "int",
    "min_size": "int",
    "pg_num": "int",
    "pgp_num": "int",
    "hit_set_count": "int",
    "hit_set_period": "int",
    "hit_set_fpp": "float",
    "hit_set_grade_decay_rate": "int",
    "hit_set_search_last_n": "int",
    "target_max_bytes": "size",
    "target_max_objects": "int",
    "cache_target_dirty_ratio": "float",
    "cache_target_dirty_high_ratio": "float",
    "cache_target_full_ratio": "float",
    "cache_min_flush_age": "int",
    "cache_min_evict_age": "int",
    "min_read_recency_for_promote": "int",
    "min_write_recency_for_promote": "int",
    "k": "int",
    "m": "int",
}
"""Ceph's type names for the comparison of values; other values are compared as text."""


def value_that_unsets(key: str) -> str:
    """Return the value with which ``osd pool set`` removes a pool's own value.

    For words it is ``unset``. Numbers refuse that, and 0 removes them (OSDMonitor::prepare_command_pool_set).
    """
    return "unset" if VALUE_TYPES.get(key, "str") == "str" else "0"


_PROFILE = "erasure profile"


def ensure_profile(
    admin: CephAdmin, journal: Journal, name: str, code: Mapping[str, str], placement: Placement | None
) -> None:
    """Create a profile for a pool that does not exist yet; it is in the journal before it exists.

    Args:
        admin: of the cluster.
        journal: of created resources.
        name: of the profile.
        code: ``k``, ``m``, ``plugin`` ...
        placement: recorded in the profile for information; the pool's rule determines the placement.

    Raises:
        ClusterError: a profile of this name exists that cephfit did not create.
        RefusedError: a profile of ours with another code exists, and a pool uses it.
    """
    if name in admin.command("osd erasure-code-profile ls"):
        if journal.get(_PROFILE, name) is None:
            raise ClusterError(
                "an erasure code profile of this name exists but is not in the journal, so cephfit did not create "
                "it",
                where=f"erasure code profile {name}",
                remedy="give the pool another name, or remove the profile if no pool uses it",
            )
        if not code_differences(code, profile_of(admin, name)):
            return
        admin.command("osd erasure-code-profile rm", name=name)  # created for a code that is no longer required
    journal.note(_PROFILE, name, None)
    words = dict(code)
    if placement is not None:
        words["crush-failure-domain"] = placement.failure_domain
        if placement.devices.device_class:
            words["crush-device-class"] = placement.devices.device_class
    admin.command("osd erasure-code-profile set", name=name, profile=[f"{k}={v}" for k, v in words.items()])


def is_coded(journal: Journal, pool: str) -> bool:
    """Return whether cephfit created a profile for this pool."""
    return journal.get(_PROFILE, pool) is not None


def code_differences(required: Mapping[str, str], profile: Mapping[str, str]) -> dict[str, tuple[str | None, str]]:
    """Return key to (present value, declared value), where a profile differs from a declaration."""
    return {
        key: (profile.get(key), then)
        for key, then in required.items()
        if key not in profile or not same_value(VALUE_TYPES.get(key, "str"), then, profile[key])
    }


def profile_of(admin: CephAdmin, name: str) -> Mapping[str, str]:
    """Read a profile; empty if there is none of this name."""
    try:
        reported: dict[str, str] = admin.command("osd erasure-code-profile get", name=name)
    except RefusedError as error:
        if error.code == errno.ENOENT:
            return {}
        raise
    return reported


def remove_profile(admin: CephAdmin, journal: Journal, name: str) -> None:
    """Remove a profile that is in the journal; its pool must be deleted first."""
    if journal.get(_PROFILE, name) is None:
        return
    admin.command("osd erasure-code-profile rm", name=name)  # no error where there is none
    journal.forget(_PROFILE, name)


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
