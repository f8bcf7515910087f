"""The least that a client's key must be allowed (cephx capabilities), by what cephfit is to do on a cluster."""

from collections.abc import Mapping
from enum import StrEnum

LOCK_PREFIX = "cephfit/lock/"
"""Where the lock of a cluster lies in the monitors' key-value store."""
_LOCK = (
    f'allow command "config-key dump" with key={LOCK_PREFIX}, '
    f'allow command "config-key set" with key prefix {LOCK_PREFIX}, '
    f'allow command "config-key rm" with key prefix {LOCK_PREFIX}'
)
"""The monitors keep their key-value store from everybody but ``allow *``; it may hold keys of encrypted disks."""


class Level(StrEnum):
    """What cephfit is to do."""

    READ = "read"
    """Show options, plans and previews."""
    ONLY_POOL = "only-pool"
    """Sweep within one pool that is there: images, clients' options."""
    FULL = "full"
    """Sweep options of daemons and pools of cephfit's own."""


def capabilities(level: Level, *, pool: str = "") -> Mapping[str, str]:
    """Daemon type to capabilities.

    Args:
        level: what for.
        pool: of ``ONLY_POOL``.
    """
    if level is Level.READ:
        return {"mon": "allow r", "mgr": "allow r"}
    if level is Level.ONLY_POOL:
        return {
            "mon": f"allow r, profile rbd, {_LOCK}",
            "mgr": "allow r, profile rbd",
            "osd": f"profile rbd pool={pool}",
        }
    # OSDs take commands (their values, dropping their caches) only from those who may do everything to them.
    return {"mon": f"allow rw, profile rbd, {_LOCK}", "mgr": "allow rw", "osd": "allow *"}


def needed_for(whom: str, prefix: str) -> str:
    """The capability that a refused command needs, for messages.

    Args:
        whom: ``mon``, ``osd.3`` ...: who refused.
        prefix: the command, such as ``config set``.
    """
    kind = whom.partition(".")[0]
    if kind == "osd":
        return "osd 'allow *'"
    if whom != kind:
        return f"{kind} 'allow *'"
    if prefix.startswith("config-key"):
        return f"mon '{_LOCK}'"
    if prefix.startswith(_SERVED_BY_THE_MANAGER):
        return f"mgr 'allow {'rw' if prefix.startswith('orch daemon') else 'r'}'"
    return "mon 'allow r'" if prefix.startswith(_READING) else "mon 'allow rw'"


_SERVED_BY_THE_MANAGER = ("orch", "pg ls", "pg dump", "osd df", "osd ok-to-stop", "config show", "mgr ")
_READING = (
    "status", "health", "versions", "df", "mon dump", "mgr dump", "config dump", "config ls", "config help",
    "config get", "osd dump", "osd tree", "osd ls", "osd lspools", "osd metadata", "osd pool get", "osd pool ls",
    "osd getcrushmap", "osd getmap", "osd crush rule ls", "osd crush dump", "osd crush rule dump", "time-sync",
)  # fmt: skip
