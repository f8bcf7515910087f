"""The capacity that the mClock scheduler believes an OSD to have.

mClock is the default scheduler since Quincy (17.2). At its first start, an OSD measures its disk and writes the
result to the cluster's config store, where it stays when the disk or its neighbours change. A value above a
threshold is discarded, and the default is used (Ceph's manual, "mClock Config Reference").
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cephfit.core.errors import ClusterError
from cephfit.core.protocols import CephAdmin

FIRST_WITH_MCLOCK = 17
"""Major version of the first release with mClock as the default."""
MCLOCK = "mclock"
"""Key of a run's facts that holds ``mclock_facts``."""
CAPACITY = "osd_mclock_max_capacity_iops_"
"""Prefix of the options of the capacity, followed by ``hdd`` or ``ssd``."""
_SCHEDULER = "mclock_scheduler"
_SPREAD = 2.0
"""Capacities of OSDs of one class that differ more than this were not measured under equal conditions."""


def mclock_facts(admin: CephAdmin, classes: Mapping[int, str], rotational: Mapping[int, bool]) -> dict[str, Any]:
    """Return the scheduler of each OSD and, under mClock, the capacity that it uses. JSON values.

    Args:
        admin: of the cluster.
        classes: device class of each OSD.
        rotational: whether the OSD regards its disk as spinning: it then uses the capacity of ``hdd``.

    Returns:
        Empty for releases before Quincy and for clusters whose monitors do not answer ``config show``.
    """
    osds: dict[str, dict[str, Any]] = {}
    stored = _measured(admin)
    for osd, device_class in sorted(classes.items()):
        key = f"{CAPACITY}{'hdd' if rotational.get(osd) else 'ssd'}"
        try:
            scheduler = _shown(admin, osd, "osd_op_queue")
            if scheduler != _SCHEDULER:
                continue
            osds[str(osd)] = {
                "device_class": device_class,
                "profile": _shown(admin, osd, "osd_mclock_profile"),
                "capacity_iops": float(_shown(admin, osd, key)),
                "measured_by_osd": (f"osd.{osd}", key) in stored,
            }
        except ClusterError:
            return {}
    return {"osds": osds, "warnings": list(capacity_warnings(osds))} if osds else {}


def _measured(admin: CephAdmin) -> set[tuple[str, str]]:
    """Return (section, option) of the capacities in the config store: an OSD writes its own in its section."""
    try:
        dumped = admin.command("config dump")
    except ClusterError:
        return set()
    return {(entry["section"], entry["name"]) for entry in dumped if entry["name"].startswith(CAPACITY)}


def _shown(admin: CephAdmin, osd: int, key: str) -> str:
    answer = admin.command("config show", who=f"osd.{osd}", key=key)
    return str(answer["value"] if isinstance(answer, dict) else answer).strip()


def capacity_warnings(osds: Mapping[str, Mapping[str, Any]]) -> tuple[str, ...]:
    """Return sentences on capacities that are doubtful.

    Args:
        osds: id to ``device_class`` and ``capacity_iops``.
    """
    by_class: dict[str, list[tuple[str, float]]] = {}
    for osd, fact in osds.items():
        by_class.setdefault(fact["device_class"], []).append((osd, fact["capacity_iops"]))
    return tuple(
        _spread_sentence(device_class, capacities)
        for device_class, capacities in by_class.items()
        if max(c for _, c in capacities) > _SPREAD * min(c for _, c in capacities)
    )


def _spread_sentence(device_class: str, capacities: Sequence[tuple[str, float]]) -> str:
    low, high = min(capacities, key=lambda one: one[1]), max(capacities, key=lambda one: one[1])
    return (
        f"mClock believes osd.{low[0]} to serve {low[1]:.0f} IOPS and osd.{high[0]} {high[1]:.0f}, both of class "
        f"{device_class or '(none)'}: such values are stale, or were measured while the OSD was busy. "
        f"`ceph config rm osd.N {CAPACITY}...` makes an OSD measure again at its next start"
    )
