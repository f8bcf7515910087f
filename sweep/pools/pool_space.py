"""What a configuration's pools take of each device class. Pure."""

from collections.abc import Mapping, Sequence

from cephfit.configuration import Configuration, Partition
from cephfit.sweep.options.option_value import as_ceph_writes
from cephfit.sweep.pools.pool_plan import PoolPlan, Role, plan_pools

Space = Mapping[str, float]
"""Device class to bytes on its disks for each byte of clients' data."""


def only_pool_settings(configuration: Configuration) -> bool:
    """Whether a configuration differs from the default by its pool and images alone, as a volume type can."""
    return all(s.partition is Partition.POOL for s in configuration.settings)


def space_of(configuration: Configuration, measured_nbytes: int) -> Space | None:
    """What data takes in a configuration's pools, for the speed that was measured.

    A cache tier counts with the part of the measured data that it had room for: more data in the same cache would
    be slower than what was measured.

    Args:
        configuration: of a sweep.
        measured_nbytes: all volumes of the sweep together.

    Returns:
        None where the configuration does not say on which class its pools lie, or in how many copies.
    """
    settings = {s.key: as_ceph_writes(s.value) for s in configuration.within(Partition.POOL) if s.scope == "pool"}
    plans = plan_pools("pool", settings, {}, where=f"configuration {configuration.name}")
    data = next((p for p in plans if p.role is Role.DATA), plans[0])
    shares = _shares(data)
    if shares is None:
        return None
    for cache in (p for p in plans if p.role is Role.CACHE):
        copies = _shares(cache)
        if copies is None or "target_max_bytes" not in cache.values:
            return None
        held = min(1.0, int(cache.values["target_max_bytes"]) / measured_nbytes)
        for name, share in copies.items():
            shares[name] = shares.get(name, 0.0) + share * held
    return shares


def cost_of(space: Space, prices: Mapping[str, float]) -> float | None:
    """Price of a byte of clients' data; None if a class has no price."""
    if any(name not in prices for name in space):
        return None
    return sum(prices[name] * share for name, share in space.items())


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
