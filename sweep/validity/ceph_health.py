"""Whether a sample taken now can be trusted: the state of a Ceph cluster from one monitor command."""

from collections.abc import Mapping
from typing import Any

from cephfit.protocols import CephAdmin, Health

HARMLESS_CHECKS: Mapping[str, str] = {
    "POOL_NO_REDUNDANCY": "size 1 is a setting like any other",
    "POOL_APP_NOT_ENABLED": "a label",
    "POOL_TOO_FEW_PGS": "advice",
    "POOL_TOO_MANY_PGS": "advice",
    "TOO_FEW_PGS": "advice",
    "TOO_MANY_PGS": "advice",
    "TOO_FEW_OSDS": "advice about the default pool size",
    "AUTH_INSECURE_GLOBAL_ID_RECLAIM": "about clients' authentication",
    "AUTH_INSECURE_GLOBAL_ID_RECLAIM_ALLOWED": "about clients' authentication",
    "MON_DISK_LOW": "the monitor's disk has room still",
    "MON_MSGR2_NOT_ENABLED": "a protocol version",
    "RECENT_CRASH": "history; a daemon that is down now has a check of its own",
    "RECENT_MGR_MODULE_CRASH": "history",
    "MGR_MODULE_DEPENDENCY": "a manager module that is not needed",
    "TELEMETRY_CHANGED": "about reporting",
    "BLUESTORE_NO_PER_POOL_OMAP": "accounting",
    "BLUESTORE_NO_PER_PG_OMAP": "accounting",
    "CACHE_POOL_NEAR_FULL": "a cache tier that is full of what it caches is at work",
    "PG_NOT_SCRUBBED": "scrubs are kept away on purpose",
    "PG_NOT_DEEP_SCRUBBED": "scrubs are kept away on purpose",
}
"""Health checks (Ceph's manual, "Health checks") that do not change performance, each with why."""

_HARMLESS_FLAGS = frozenset({"noscrub", "nodeep-scrub", "noout", "noin", "nodown", "nosnaptrim", "notieragent"})
_FULL_CHECKS = ("OSD_NEARFULL", "OSD_BACKFILLFULL", "OSD_FULL", "POOL_NEARFULL", "POOL_BACKFILLFULL", "POOL_FULL")


class CephHealth:
    """Judges a cluster's state; remembers the PG count, since a change of it makes samples invalid.

    Args:
        admin: one command per ``check``, under a millisecond over librados.
    """

    def __init__(self, admin: CephAdmin) -> None:
        self._admin = admin
        self._num_pgs: int | None = None

    def expect_new_pools(self) -> None:
        """The PG count may change now without that being a fault."""
        self._num_pgs = None

    def check(self) -> Health:
        """The state now.

        Raises:
            ClusterError: no monitor answers.
        """
        status = self._admin.command("status")
        reasons = reasons_against(status)
        num_pgs = int(status["pgmap"]["num_pgs"])
        if self._num_pgs is not None and num_pgs != self._num_pgs:
            reasons = (*reasons, f"the number of PGs changed from {self._num_pgs} to {num_pgs}")
        self._num_pgs = num_pgs
        return Health(ok=not reasons, reasons=reasons, observed=_observed(status))


def reasons_against(status: Mapping[str, Any]) -> tuple[str, ...]:
    """Why a sample under this ``ceph status`` (JSON) must not be trusted, in Ceph's words; empty if nothing."""
    reasons = []
    for name, check in sorted(status["health"]["checks"].items()):
        message = check["summary"]["message"]
        if name in HARMLESS_CHECKS or (name == "OSDMAP_FLAGS" and _only_harmless_flags(message)):
            continue
        reasons.append(f"{name}: {message}")
    osds = status["osdmap"]
    osds = osds.get("osdmap", osds)  # nested once before Octopus
    if osds["num_up_osds"] < osds["num_osds"] or osds["num_in_osds"] < osds["num_osds"]:
        reasons.append(f"{osds['num_osds']} OSDs: {osds['num_up_osds']} up, {osds['num_in_osds']} in")
    for state in status["pgmap"].get("pgs_by_state", ()):
        if state["state_name"] != "active+clean":
            reasons.append(f"{state['count']} PGs {state['state_name']}")
    if osds.get("num_remapped_pgs"):
        reasons.append(f"{osds['num_remapped_pgs']} PGs remapped")
    for key, text in (
        ("recovering_bytes_per_sec", "bytes/s recovering"),
        ("misplaced_objects", "objects misplaced"),
    ):
        if status["pgmap"].get(key):
            reasons.append(f"{status['pgmap'][key]} {text}")
    if not status["mgrmap"].get("available", True):
        reasons.append("no manager is active, so the state of the PGs is not known")
    return tuple(reasons)


def is_getting_full(health: Health) -> tuple[str, ...]:
    """The reasons of a health that speak of room running out."""
    return tuple(r for r in health.reasons if r.startswith(_FULL_CHECKS))


def _only_harmless_flags(message: str) -> bool:
    flags = message.split(" flag", maxsplit=1)[0].split(",")
    return _HARMLESS_FLAGS.issuperset(f.strip() for f in flags)


def _observed(status: Mapping[str, Any]) -> dict[str, Any]:
    osds = status["osdmap"]
    osds = osds.get("osdmap", osds)
    return {
        "status": status["health"]["status"],
        "num_osds": osds["num_osds"],
        "num_up_osds": osds["num_up_osds"],
        "num_in_osds": osds["num_in_osds"],
        "osdmap_epoch": osds["epoch"],
        "num_pgs": status["pgmap"]["num_pgs"],
        "pgs_by_state": {s["state_name"]: s["count"] for s in status["pgmap"].get("pgs_by_state", ())},
        "bytes_used": status["pgmap"].get("bytes_used"),
        "bytes_avail": status["pgmap"].get("bytes_avail"),
    }
