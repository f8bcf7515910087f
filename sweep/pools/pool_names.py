"""What the tool calls the pools that a configuration comes to. Pure."""

import hashlib

from cephfit.configuration import Configuration, Partition, Setting
from cephfit.sweep.options.option_value import as_ceph_writes
from cephfit.sweep.pools.pool_plan import data_pool_of

POOL_PREFIX = "cephfit-"


def pool_settings(configuration: Configuration) -> tuple[Setting, ...]:
    """What a configuration says about its pool (not about its images)."""
    return tuple(s for s in configuration.within(Partition.POOL) if s.scope == "pool")


def pool_name(configuration: Configuration) -> str:
    """Configurations with the same pool settings share a pool; the default's is ``cephfit-default``."""
    settings = pool_settings(configuration)
    if not settings:
        return POOL_PREFIX + "default"
    text = "\n".join(f"{s.key}={as_ceph_writes(s.value)}" for s in sorted(settings))
    return POOL_PREFIX + hashlib.sha256(text.encode()).hexdigest()[:10]


def data_pool_name(configuration: Configuration) -> str | None:
    """The pool of the images' data where that is not the pool of the images; None otherwise."""
    is_coded = any(s.key.startswith("erasure.") for s in pool_settings(configuration))
    return data_pool_of(pool_name(configuration)) if is_coded else None
