"""Judge from one monitor command whether samples taken now are valid."""

from collections.abc import Mapping
from typing import Any

from cephfit.core.protocols import CephAdmin, Health

HARMLESS_CHECKS: Mapping[str, str] = {
    "POOL_NO_REDUNDANCY": "size 1 is an ordinary setting here",
    "POOL_APP_NOT_ENABLED": "a label",
    "POOL_TOO_FEW_PGS": "advice",
    "POOL_TOO_MANY_PGS": "advice",
    "TOO_FEW_PGS": "advice",
    "TOO_MANY_PGS": "advice",
    "TOO_FEW_OSDS": "advice about the default pool size",
    "AUTH_INSECURE_GLOBAL_ID_RECLAIM": "about clients' authentication",
    "AUTH_INSECURE_GLOBAL_ID_RECLAIM_ALLOWED": "about clients' authentication",
    "MON_DISK_LOW": "the monitor's disk still has free space",
    "MON_MSGR2_NOT_ENABLED": "a protocol version",
    "RECENT_CRASH": "history; a daemon that is down now has a separate check",
    "RECENT_MGR_MODULE_CRASH": "history",
    "MGR_MODULE_DEPENDENCY": "a manager module that is not needed",
    "TELEMETRY_CHANGED": "about reporting",
    "BLUESTORE_NO_PER_POOL_OMAP": "accounting",
    "BLUESTORE_NO_PER_PG_OMAP": "accounting",
    "CACHE_POOL_NEAR_FULL": "a cache tier in use is full of what it caches",
    "PG_NOT_SCRUBBED": "scrubs are paused on purpose",
    "PG_NOT_DEEP_SCRUBBED": "scrubs are paused on purpose",
    "POOL_PG_NUM_NOT_POWER_OF_TWO": "advice: a constant property",
    "POOL_TARGET_SIZE_BYTES_OVERCOMMITTED": "advice for the autoscaler",
    "POOL_HAS_TARGET_SIZE_BYTES_AND_RATIO": "advice for the autoscaler",
    "MANY_OBJECTS_PER_PG": "advice",
    "OLD_CRUSH_TUNABLES": "advice: a constant property",
    "OLD_CRUSH_STRAW_CALC_VERSION": "advice: a constant property",
    "LARGE_OMAP_OBJECTS": "found by a deep scrub, possibly long ago",
    "OSD_TOO_MANY_REPAIRS": "a count since the OSD started",
    "OSD_UPGRADE_FINISHED": "an upgrade step that awaits confirmation",
    "OSD_NO_DOWN_OUT_INTERVAL": "a setting",
    "OSD_FILESTORE": "advice",
    "BLUESTORE_LEGACY_STATFS": "accounting",
    "DEVICE_HEALTH": "a forecast; the PGs show when data leaves the device",
    "DEVICE_HEALTH_TOOMANY": "a forecast",
    "AUTH_BAD_CAPS": "about clients' authentication",
    "CEPHADM_STRAY_HOST": "about the management of daemons, not their state",
    "CEPHADM_STRAY_DAEMON": "about the management of daemons, not their state",
    "CEPHADM_HOST_CHECK_FAILED": "about the management of daemons, not their state",
    "CEPHADM_REFRESH_FAILED": "about the management of daemons, not their state",
    "CEPHADM_PAUSED": "about the management of daemons, not their state",
    "CEPHADM_FAILED_DAEMON": "OSDs, monitors and managers that are down have separate checks",
}
"""Health checks (Ceph's manual, "Health checks") that do not change performance, with the reason for each."""

_NEVER_MUTED = (
    "SLOW_OPS", "OSD_SLOW_", "BLUESTORE_SLOW_", "BLOCK_DEVICE_", "DB_DEVICE_", "WAL_DEVICE_", "PG_", "OBJECT_",
    "OSDMAP_FLAGS", "OSD_FLAGS", "OSD_DOWN", "OSD_NEARFULL", "OSD_BACKFILLFULL", "OSD_FULL", "POOL_",
    "MGR_DOWN", "MON_DOWN",
)  # fmt: skip
"""Prefixes of checks about the cluster's present state. They affect the figures even when an admin muted them."""
_HARMLESS_FLAGS = frozenset({"noscrub", "nodeep-scrub", "noout", "noin", "nodown", "nosnaptrim", "notieragent"})
_FULL_CHECKS = ("OSD_NEARFULL", "OSD_BACKFILLFULL", "OSD_FULL", "POOL_NEARFULL", "POOL_BACKFILLFULL", "POOL_FULL")


class CephHealth:
    """Judges a cluster's state. Remembers the number of PGs and OSDs, since a change makes samples invalid.

    OSDs that are out from the beginning are ignored. One that goes out later makes it a different cluster, even
    after its data has moved to other OSDs.

    Args:
        admin: one command per ``check``, under a millisecond over librados.
    """

    def __init__(self, admin: CephAdmin) -> None:
        self._admin = admin
        self._num_pgs: int | None = None
        self._num_in: int | None = None

    def expect_new_pools(self) -> None:
        """Accept a change of the PG count at the next check."""
        self._num_pgs = None

    def check(self) -> Health:
        """Return the current state.

        Raises:
            ClusterError: no monitor answers.
        """
        status = self._admin.command("status")
        reasons = reasons_against(status)
        num_pgs = int(status["pgmap"]["num_pgs"])
        if self._num_pgs is not None and num_pgs != self._num_pgs:
            reasons = (*reasons, f"the number of PGs changed from {self._num_pgs} to {num_pgs}")
        self._num_pgs = num_pgs
        num_in = int(_osds_of(status)["num_in_osds"])
        if self._num_in is None and not reasons:  # an OSD may return while the caller waits for health
            self._num_in = num_in
        if self._num_in is not None and num_in != self._num_in:
            reasons = (*reasons, f"{num_in} OSDs are in; {self._num_in} were in at the beginning")
        return Health(ok=not reasons, reasons=reasons, observed=_observed(status))


def reasons_against(status: Mapping[str, Any]) -> tuple[str, ...]:
    """Return why a sample under this ``ceph status`` (JSON) is invalid, in Ceph's words; empty if it is valid."""
    reasons = []
    for name, check in sorted(status["health"]["checks"].items()):
        if not _is_harmless(name, check):
            reasons.append(f"{name}: {check['summary']['message']}")
    osds = _osds_of(status)
    if osds["num_up_osds"] < osds["num_in_osds"]:  # those that are out may be down: they hold no data
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
        reasons.append("no manager is active, so the state of the PGs is unknown")
    return tuple(reasons)


def is_getting_full(health: Health) -> tuple[str, ...]:
    """Return the health reasons that report a shortage of free space."""
    return tuple(r for r in health.reasons if r.startswith(_FULL_CHECKS))


def _is_harmless(name: str, check: Mapping[str, Any]) -> bool:
    if name in HARMLESS_CHECKS or (check.get("muted") and not name.startswith(_NEVER_MUTED)):
        return True
    return name == "OSDMAP_FLAGS" and _only_harmless_flags(check["summary"]["message"])


def _osds_of(status: Mapping[str, Any]) -> Mapping[str, Any]:
    osds: Mapping[str, Any] = status["osdmap"].get("osdmap", status["osdmap"])  # nested once before Octopus
    return osds


def _only_harmless_flags(message: str) -> bool:
    flags = message.split(" flag", maxsplit=1)[0].split(",")
    return _HARMLESS_FLAGS.issuperset(f.strip() for f in flags)


def _observed(status: Mapping[str, Any]) -> dict[str, Any]:
    osds = _osds_of(status)
    return {
        "status": status["health"]["status"],
        "checks": {name: check["summary"]["message"] for name, check in status["health"]["checks"].items()},
        "num_osds": osds["num_osds"],
        "num_up_osds": osds["num_up_osds"],
        "num_in_osds": osds["num_in_osds"],
        "osdmap_epoch": osds["epoch"],
        "num_pgs": status["pgmap"]["num_pgs"],
        "pgs_by_state": {s["state_name"]: s["count"] for s in status["pgmap"].get("pgs_by_state", ())},
        "bytes_used": status["pgmap"].get("bytes_used"),
        "bytes_avail": status["pgmap"].get("bytes_avail"),
    }
