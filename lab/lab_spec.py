"""What a lab is made of. All numbers that shape its speed stand here."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cephfit.ceph.environment.osd_store import OsdStore
from cephfit.core.units import GIB, MIB


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """What a disk can do, for reads and writes each.

    Attributes:
        iops: I/Os per second.
        nbytes_per_s: bytes per second.
    """

    iops: int
    nbytes_per_s: int

    def __post_init__(self) -> None:
        if self.iops <= 0 or self.nbytes_per_s <= 0:
            raise ValueError(f"a disk limit is positive: {self}")


def _default_options() -> dict[str, dict[str, str]]:
    return {
        "global": {
            # Nothing may happen on its own while a sample is taken.
            "osd_pool_default_pg_autoscale_mode": "off",
        },
        "mon": {
            "mon_warn_on_pool_no_redundancy": "false",
            "mon_warn_pg_not_scrubbed_ratio": "0",
            "mon_warn_pg_not_deep_scrubbed_ratio": "0",
            # A dead OSD stays in: data must not move because of it.
            "mon_osd_down_out_interval": "0",
            "mon_warn_on_osd_down_out_interval_zero": "false",
            "mon_osd_min_down_reporters": "1",
        },
        "mgr": {
            # Its pool of one PG would be there at one time and not at another.
            "mgr/devicehealth/enable_monitoring": "false",
            "mgr/balancer/active": "false",
        },
        "osd": {
            "osd_memory_target": str(896 * MIB),  # Ceph's minimum
            "osd_max_scrubs": "0",
            # The lab is a scale model: caches as small against its volumes as real ones are against real data, and
            # fixed, so that reads reach the disks and a cell is steady within a second.
            "bluestore_cache_autotune": "false",
            "bluestore_cache_size": str(32 * MIB),
            "osd_scrub_min_interval": "31536000",
            "osd_scrub_max_interval": "31536000",
            "osd_deep_scrub_interval": "31536000",
            "osd_scrub_load_threshold": "0",
            # Start and recover at once: the sweep waits for it after every restart.
            "osd_recovery_sleep": "0",
            "osd_recovery_sleep_hdd": "0",
            "osd_recovery_sleep_hybrid": "0",
            "osd_max_backfills": "8",
            "osd_recovery_max_active": "32",
            # Tell the monitor of a wanted stop, so that a restart need not be found out.
            "osd_fast_shutdown_notify_mon": "true",
        },
        "client": {
            # What a virtual machine with cache=none sets (see export.py); a sweep may set it otherwise.
            "rbd_cache": "false",
        },
    }


@dataclass(frozen=True, slots=True)
class LabSpec:
    """The shape of a lab.

    Attributes:
        n_hosts: CRUSH hosts; each has one ``hdd`` and one ``ssd`` OSD.
        limits: by device class.
        osd_nbytes: size of each OSD's disk; a sparse file, so it takes what is written.
        pool: name of the pool made at the start, on rule ``hdd``.
        pg_num: of that pool.
        options: section to option to value, put into the central config store, where a sweep can set them
            otherwise (an option in ceph.conf would win over the store).
        free_nbytes: what the folder's disk must have free at the start.
        stores: what the OSDs of a device class keep their objects in; BlueStore where it says nothing.
    """

    n_hosts: int = 2
    limits: Mapping[str, DiskLimits] = field(
        default_factory=lambda: {
            "hdd": DiskLimits(iops=500, nbytes_per_s=150 * MIB),
            "ssd": DiskLimits(iops=3000, nbytes_per_s=400 * MIB),
        }
    )
    osd_nbytes: int = 16 * GIB
    pool: str = "rbd"
    pg_num: int = 32
    options: Mapping[str, Mapping[str, str]] = field(default_factory=_default_options)
    free_nbytes: int = 4 * GIB
    stores: Mapping[str, OsdStore] = field(default_factory=dict)

    @property
    def osds(self) -> tuple[tuple[int, str], ...]:
        """(host, device class) of every OSD, by its id."""
        return tuple((host, device_class) for device_class in self.limits for host in range(self.n_hosts))

    def store(self, osd: int) -> OsdStore:
        """What an OSD keeps its objects in when the lab is new."""
        return self.stores.get(self.osds[osd][1], OsdStore())

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "LabSpec":
        limits = {name: DiskLimits(**values) for name, values in document["limits"].items()}
        stores = {name: OsdStore(**values) for name, values in document.get("stores", {}).items()}
        return cls(**{**document, "limits": limits, "stores": stores})
