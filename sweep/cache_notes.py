"""What a sweep does to the caches of OSDs, and what they do to it, in sentences. Pure."""

from collections.abc import Collection

from cephfit.measurement import CacheCondition, Measurement
from cephfit.units import GIB

IN_MEMORY = "in_memory"
"""Key of a run's facts: ``fits_note`` over all OSDs, where it says something."""
MEMORY_TARGET = "osd_memory_target"
"""Ceph's option, and the key of its value among the facts of an OSD: bytes of memory, most of it for caches."""


def fits_note(measurement: Measurement, targets_nbytes: Collection[int], *, pool: str = "") -> str:
    """What runs with warm caches measure where the volumes fit into them; empty where they do not, or are cold.

    Args:
        measurement: of the sweep.
        targets_nbytes: ``osd_memory_target`` of each OSD that the volumes lie on.
        pool: whose OSDs these are; empty for all of the cluster.
    """
    nbytes = measurement.most_clients * measurement.volume_nbytes
    total = sum(targets_nbytes)
    if measurement.cache is not CacheCondition.WARM or not 0 < nbytes < total:
        return ""
    osds = f"{len(targets_nbytes)} OSDs" + (f" beneath pool {pool}" if pool else "")
    return (
        f"caches are warm, and the volumes ({nbytes / GIB:.3g} GiB) fit into those of the {osds} "
        f"({total / GIB:.3g} GiB by {MEMORY_TARGET}): reads measure memory and network there, not disks; a "
        "workload on more data than that is slower"
    )


def drops_note(n_drops: int, n_osds: int) -> str:
    """How often the caches of all OSDs are emptied; empty if they never are."""
    if not n_drops:
        return ""
    return (
        f"the caches of all {n_osds} OSDs are dropped {n_drops} times, before every run: whatever else uses the "
        "cluster reads from its disks afterwards (`cache: warm` drops none)"
    )
