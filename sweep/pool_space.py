"""What a configuration's pools take of each device class. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cephfit.configuration import Configuration, Partition
from cephfit.sweep.option_value import as_ceph_writes
from cephfit.sweep.pool_plan import PoolPlan, Role, plan_pools


@dataclass(frozen=True, slots=True)
class Space:
    """What data takes on disks.

    Attributes:
        per_byte: device class to bytes on its disks for each byte of clients' data.
        fixed: device class to bytes that are taken whatever is stored: a cache tier's target, in all copies.
    """

    per_byte: Mapping[str, float]
    fixed: Mapping[str, float] = field(default_factory=dict)

    def cost(self, stored_nbytes: float, prices: Mapping[str, float]) -> float | None:
        """Price of so much data; None if a class has no price."""
        if any(name not in prices for name in (*self.per_byte, *self.fixed)):
            return None
        by_data = sum(prices[name] * share * stored_nbytes for name, share in self.per_byte.items())
        return by_data + sum(prices[name] * nbytes for name, nbytes in self.fixed.items())


def only_pool_settings(configuration: Configuration) -> bool:
    """Whether a configuration differs from the default by its pool and images alone, as a volume type can."""
    return all(s.partition is Partition.POOL for s in configuration.settings)


def space_of(configuration: Configuration) -> Space | None:
    """What a configuration's pools take; None where it does not say on which class, or in how many copies."""
    settings = {s.key: as_ceph_writes(s.value) for s in configuration.within(Partition.POOL) if s.scope == "pool"}
    plans = plan_pools("pool", settings, {}, where=f"configuration {configuration.name}")
    data = next((p for p in plans if p.role is Role.DATA), plans[0])
    per_byte = _shares(data)
    if per_byte is None:
        return None
    fixed: dict[str, float] = {}
    for cache in (p for p in plans if p.role is Role.CACHE):
        shares = _shares(cache)
        if shares is None or "target_max_bytes" not in cache.values:
            return None
        fixed = {name: share * int(cache.values["target_max_bytes"]) for name, share in shares.items()}
    return Space(per_byte, fixed)


def same_pool(configurations: Sequence[Configuration]) -> Mapping[str, str]:
    """Configuration to the first one that has the same pool and images."""
    first: dict[tuple[str, ...], str] = {}
    return {c.name: first.setdefault(tuple(map(str, c.settings)), c.name) for c in configurations}


def _shares(plan: PoolPlan) -> dict[str, float] | None:
    placement = plan.placement
    if placement is None or not placement.devices.device_class:
        return None
    if plan.erasure:
        return {placement.devices.device_class: plan.size / int(plan.erasure["k"])}
    if "size" not in plan.values:
        return None
    if placement.primary is None:
        return {placement.devices.device_class: float(plan.size)}
    if not placement.primary.device_class:
        return None
    shares = {placement.primary.device_class: 1.0}
    shares[placement.devices.device_class] = shares.get(placement.devices.device_class, 0.0) + plan.size - 1
    return shares
