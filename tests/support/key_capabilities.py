"""The capabilities of a client's key that docs/capabilities.md names, and that tests create keys with."""

from collections.abc import Mapping
from enum import StrEnum

from cephfit.ceph.admin.answers import LOCK_CAPABILITY


class Level(StrEnum):
    """What cephfit does on a cluster."""

    READ = "read"
    """Show options, plans and previews."""
    ONLY_POOL = "only-pool"
    """Sweep within one existing pool: images, clients' options."""
    FULL = "full"
    """Sweep options of daemons and pools that cephfit creates."""


def capabilities(level: Level, *, pool: str = "") -> Mapping[str, str]:
    """Return the capabilities per daemon type.

    Args:
        level: what cephfit does.
        pool: of ``ONLY_POOL``.
    """
    if level is Level.READ:
        return {"mon": "allow r", "mgr": "allow r"}
    if level is Level.ONLY_POOL:
        return {
            "mon": f"allow r, profile rbd, {LOCK_CAPABILITY}",
            "mgr": "allow r, profile rbd",
            "osd": f"profile rbd pool={pool}",
        }
    # OSDs accept commands (reading values, dropping caches) only from keys with full access.
    return {"mon": f"allow rw, profile rbd, {LOCK_CAPABILITY}", "mgr": "allow rw", "osd": "allow *"}
