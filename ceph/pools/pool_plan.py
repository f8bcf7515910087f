"""The pools that a declaration results in: order, placement, values, names and space per device class. Pure."""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from cephfit.ceph.crush.data_placement import Placement, RuleLayout, placement_of
from cephfit.ceph.options.option import as_ceph_writes
from cephfit.ceph.pools.pool_keys import CACHE_MODES, CLASSES, PLAIN_KEYS, TIER_KEYS
from cephfit.core.errors import InputError
from cephfit.core.units import parse_nbytes
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.core.yaml_lines import nearest

RULE_PREFIX = "cephfit-"
_HIT_SETS = {"hit_set_type": "bloom", "hit_set_count": "4", "hit_set_period": "1200"}
"""Defaults of ``osd tier add-cache`` (options osd_tier_default_cache_hit_set_*); ``osd tier add`` sets none."""


class Role(StrEnum):
    """The role of a pool for its images."""

    BASE = "base"
    """Holds the images, or only their metadata if there is an erasure-coded data pool."""
    DATA = "data"
    """Holds the erasure-coded data of images with their metadata in the base pool."""
    CACHE = "cache"
    """A cache tier over the data pool, or over the base without one."""


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """One planned pool.

    Attributes:
        name: of the pool.
        role: base, data or cache.
        values: for ``osd pool set``, as Ceph writes them; ``crush_rule`` only if it names an existing one.
        placement: None if ``crush_rule`` or the cluster's default determines it.
        erasure: the erasure code profile; empty for a replicated pool.
        mode: of a cache tier; empty for others.
        rule: name of the CRUSH rule for its placement; empty without one.
        declared_as: source of this pool's values: declaration's key to value's key.
    """

    name: str
    role: Role
    values: Mapping[str, str]
    placement: Placement | None = None
    erasure: Mapping[str, str] = field(default_factory=dict)
    mode: str = ""
    rule: str = ""
    declared_as: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Copies or chunks of each object; 3 (Ceph's default) unless set."""
        if self.erasure:
            return int(self.erasure["k"]) + int(self.erasure["m"])
        return int(self.values.get("size", 3))


def data_pool_of(name: str) -> str:
    """Return the name of the erasure-coded data pool of a base pool."""
    return f"{name}-data"


def cache_pool_of(name: str) -> str:
    """Return the name of the cache tier of a base pool."""
    return f"{name}-cache"


def shared_rule(pool: str, placement: Placement) -> str:
    """Name one rule for all pools with the same placement: the fewest changes of the map over a sweep."""
    return f"{RULE_PREFIX}{placement.digest}"


def own_rule(pool: str, placement: Placement) -> str:
    """Name the rule after its pool, as admins expect."""
    return pool


def plan_pools(
    name: str,
    settings: Mapping[str, str],
    defaults: Mapping[str, str],
    *,
    rule_of: Callable[[str, Placement], str] = shared_rule,
    where: str = "",
) -> tuple[PoolPlan, ...]:
    """Return the pools for settings, in the order of their creation.

    Args:
        name: of the pool that holds the images.
        settings: key to value as Ceph writes it; keys that ``pool_keys.is_pool_key`` accepts.
        defaults: of the cluster, for missing settings.
        rule_of: names the rule of a pool and its placement.
        where: for messages.

    Raises:
        InputError: the settings contradict each other.
    """
    plain = {k: v for k, v in settings.items() if k in PLAIN_KEYS}
    shared = {k: v for k, v in settings.items() if k.startswith(f"{CLASSES}.")}
    erasure = {k.removeprefix("erasure."): v for k, v in settings.items() if k.startswith("erasure.")}
    cache = {k.removeprefix("cache."): v for k, v in settings.items() if k.startswith("cache.")}
    metadata = {k.removeprefix("metadata."): v for k, v in settings.items() if k.startswith("metadata.")}
    own = {k: v for k, v in settings.items() if not k.startswith(("erasure.", "cache.", "metadata."))}
    plans: list[PoolPlan] = []
    if erasure:
        _require_code(erasure, plain, where)
        plans.append(_metadata_plan(name, metadata, own, erasure, defaults, where))
        placement = placement_of(own, erasure=True, where=where)
        values = _with_defaults(plain, defaults, placement)
        plans.append(
            PoolPlan(data_pool_of(name), Role.DATA, values, placement, erasure, declared_as={k: k for k in plain})
        )
    else:
        if metadata:
            raise InputError(
                "only an erasure-coded pool has separate metadata",
                where=where,
                remedy="add `erasure: {k: ..., m: ...}`",
            )
        placement = placement_of(own, where=where)
        values = _with_defaults(plain, defaults, placement)
        plans.append(PoolPlan(name, Role.BASE, values, placement, declared_as={k: k for k in plain}))
    if cache:
        plans.append(_cache_plan(name, {**cache, **shared}, defaults, where))
    return tuple(p if p.placement is None else replace(p, rule=rule_of(p.name, p.placement)) for p in plans)


def _require_code(erasure: Mapping[str, str], plain: Mapping[str, str], where: str) -> None:
    for key in ("k", "m"):
        if not erasure.get(key, "").isdigit() or int(erasure[key]) < 1:
            raise InputError(
                f"erasure.{key} must be a whole number from 1, not {erasure.get(key, 'left out')}", where=where
            )
    if "size" in plain:
        raise InputError("an erasure-coded pool has k + m chunks, no size", where=where, remedy="remove `size`")


def _metadata_plan(
    name: str,
    metadata: Mapping[str, str],
    own: Mapping[str, str],
    erasure: Mapping[str, str],
    defaults: Mapping[str, str],
    where: str,
) -> PoolPlan:
    """Plan the metadata: replicated, on the data's devices, with the same tolerated disk losses, unless set."""
    plain = {k: v for k, v in metadata.items() if k in PLAIN_KEYS}
    placement = placement_of(metadata, where=where)
    if placement is None and "crush_rule" not in metadata:
        inherited = {k: v for k, v in own.items() if k.startswith(("devices.", "failure_domain", f"{CLASSES}."))}
        placement = placement_of(inherited, where=where) or Placement()
    values = {"size": str(int(erasure["m"]) + 1), **_with_defaults(plain, defaults, placement)}
    return PoolPlan(name, Role.BASE, values, placement, declared_as={f"metadata.{k}": k for k in plain})


def _cache_plan(name: str, cache: Mapping[str, str], defaults: Mapping[str, str], where: str) -> PoolPlan:
    mode = cache.get("mode", "writeback")
    if mode not in CACHE_MODES:
        raise InputError(f"there is no cache mode {mode!r}", where=where, remedy=nearest(mode, CACHE_MODES))
    placement = placement_of(cache, where=where)
    if placement is None and "crush_rule" not in cache:
        raise InputError(
            "the cache tier has no placement",
            where=where,
            remedy="add `devices: {class: ssd}` or a `crush_rule`; on the pool's devices it is useless",
        )
    if not {"target_max_bytes", "target_max_objects"} & set(cache):
        raise InputError(
            "a cache tier without target_max_bytes or target_max_objects fills its devices and stops",
            where=where,
            remedy="add, for example, `target_max_bytes: 10G` to it",
        )
    plain = {k: v for k, v in cache.items() if k in PLAIN_KEYS}
    # Without hit sets there is no promotion by recency, and the cluster's health warns.
    tier = {**_HIT_SETS, **{k: v for k, v in cache.items() if k in TIER_KEYS}}
    if "target_max_bytes" in tier:
        tier["target_max_bytes"] = str(parse_nbytes(tier["target_max_bytes"], where=where))
    declared_as = {f"cache.{k}": k for k in (*plain, *tier) if k in cache}
    values = {**_with_defaults(plain, defaults, placement), **tier}
    return PoolPlan(cache_pool_of(name), Role.CACHE, values, placement, mode=mode, declared_as=declared_as)


def _with_defaults(
    plain: Mapping[str, str], defaults: Mapping[str, str], placement: Placement | None
) -> dict[str, str]:
    kept = {k: v for k, v in defaults.items() if k != "crush_rule" or placement is None}
    return {**kept, **plain}


POOL_PREFIX = "cephfit-"


def pool_settings(configuration: Configuration) -> tuple[Setting, ...]:
    """Return a configuration's settings of its pool (without those of images)."""
    return tuple(s for s in configuration.within(Partition.POOL) if s.scope == "pool")


def pool_name(configuration: Configuration) -> str:
    """Return the pool's name: equal pool settings share a pool; the default's is ``cephfit-default``."""
    settings = pool_settings(configuration)
    if not settings:
        return POOL_PREFIX + "default"
    text = "\n".join(f"{s.key}={as_ceph_writes(s.value)}" for s in sorted(settings))
    return POOL_PREFIX + hashlib.sha256(text.encode()).hexdigest()[:10]


def data_pool_name(configuration: Configuration) -> str | None:
    """Return the data pool of the images if that is a separate pool; None otherwise."""
    is_coded = any(s.key.startswith("erasure.") for s in pool_settings(configuration))
    return data_pool_of(pool_name(configuration)) if is_coded else None


_UNKNOWN_LAYOUT = RuleLayout()

Space = Mapping[str, float]
"""Device class to bytes on its disks per byte of clients' data."""


def only_pool_settings(configuration: Configuration) -> bool:
    """Return whether a configuration differs from the default only by pool and images, as a volume type can."""
    return all(s.partition is Partition.POOL for s in configuration.settings)


def space_of(
    configuration: Configuration, measured_nbytes: int, layout: RuleLayout = _UNKNOWN_LAYOUT
) -> Space | None:
    """Return the space that data takes in a configuration's pools, at the measured speed.

    A cache tier counts by the share of the measured data that it could hold: more data in the same cache would be
    slower than measured.

    Args:
        configuration: of a sweep.
        measured_nbytes: all volumes of the sweep together.
        layout: of the cluster, for what the configuration does not state.

    Returns:
        None if the class of a pool, or the number of copies, is not known.
    """
    settings = {s.key: as_ceph_writes(s.value) for s in configuration.within(Partition.POOL) if s.scope == "pool"}
    plans = plan_pools("pool", settings, {}, where=f"configuration {configuration.name}")
    data = next((p for p in plans if p.role is Role.DATA), plans[0])
    shares = _shares(data, layout)
    if shares is None:
        return None
    for cache in (p for p in plans if p.role is Role.CACHE):
        copies = _shares(cache, layout)
        if copies is None or "target_max_bytes" not in cache.values:
            return None
        held = min(1.0, int(cache.values["target_max_bytes"]) / measured_nbytes)
        for name, share in copies.items():
            shares[name] = shares.get(name, 0.0) + share * held
    return shares


def cost_of(space: Space, prices: Mapping[str, float]) -> float | None:
    """Return the price of a byte of clients' data; None if a class has no price."""
    if any(name not in prices for name in space):
        return None
    return sum(prices[name] * share for name, share in space.items())


def same_pool(configurations: Sequence[Configuration]) -> Mapping[str, str]:
    """Map each configuration to the first one with the same pool and images."""
    first: dict[tuple[str, ...], str] = {}
    return {c.name: first.setdefault(tuple(map(str, c.settings)), c.name) for c in configurations}


def _shares(plan: PoolPlan, layout: RuleLayout) -> dict[str, float] | None:
    placement = plan.placement
    if placement is None:
        if plan.erasure:
            classes = layout.classes.get(plan.values.get("crush_rule", ""), ())
            return {classes[0]: plan.size / int(plan.erasure["k"])} if len(classes) == 1 else None
        copies = int(plan.values["size"]) if "size" in plan.values else None
        return layout.shares(plan.values.get("crush_rule", ""), copies)
    if not placement.devices.device_class:
        return None
    if plan.erasure:
        return {placement.devices.device_class: plan.size / int(plan.erasure["k"])}
    if "size" not in plan.values and layout.default_copies is None:
        return None
    size = int(plan.values.get("size", layout.default_copies or 0))
    if placement.primary is None:
        return {placement.devices.device_class: float(size)}
    if not placement.primary.device_class:
        return None
    shares = {placement.primary.device_class: 1.0}
    shares[placement.devices.device_class] = shares.get(placement.devices.device_class, 0.0) + size - 1
    return shares
