"""The specification of a lab, with all numbers that determine its speed."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from cephfit.ceph.environment.scopes import OsdStore
from cephfit.core.errors import InputError
from cephfit.core.units import GIB, MIB


@dataclass(frozen=True, slots=True)
class DiskLimits:
    """How fast a disk is.

    The kernel's throttle limits reads and writes separately. A disk that takes time does one I/O after the other.

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
            # No background work may run during a sample.
            "osd_pool_default_pg_autoscale_mode": "off",
        },
        "mon": {
            "mon_warn_on_pool_no_redundancy": "false",
            "mon_warn_pg_not_scrubbed_ratio": "0",
            "mon_warn_pg_not_deep_scrubbed_ratio": "0",
            # A dead OSD stays in, so that no data moves.
            "mon_osd_down_out_interval": "0",
            "mon_warn_on_osd_down_out_interval_zero": "false",
            "mon_osd_min_down_reporters": "1",
        },
        "mgr": {
            # Its pool of one PG would exist only at times.
            "mgr/devicehealth/enable_monitoring": "false",
            "mgr/balancer/active": "false",
        },
        "osd": {
            "osd_memory_target": str(896 * MIB),  # Ceph's minimum
            "osd_max_scrubs": "0",
            # The lab is a scale model: the ratio of caches to volumes is that of real clusters. Cache sizes are
            # fixed, so that reads reach the disks and a cell is steady within a second.
            "bluestore_cache_autotune": "false",
            "bluestore_cache_size": str(32 * MIB),
            # The page cache would hold all of the lab's RocksDB: no read of it would reach a disk.
            "bluefs_buffered_io": "false",
            "osd_scrub_min_interval": "31536000",
            "osd_scrub_max_interval": "31536000",
            "osd_deep_scrub_interval": "31536000",
            "osd_scrub_load_threshold": "0",
            # Start and recover without delay: the sweep waits for it after every restart.
            "osd_recovery_sleep": "0",
            "osd_recovery_sleep_hdd": "0",
            "osd_recovery_sleep_hybrid": "0",
            "osd_max_backfills": "8",
            "osd_recovery_max_active": "32",
            # A fast shutdown leaves deferred writes to the next start. Ceph may then write them over newer data
            # (https://tracker.ceph.com/issues/68060): one of 60 to 160 restarts between writes lost an OSD.
            "osd_fast_shutdown": "false",
        },
        "client": {
            # As a virtual machine with cache=none (see image_export.py); a sweep may change it.
            "rbd_cache": "false",
        },
    }


BACKENDS = ("iscsi", "nfs", "swift", "local")
"""What a lab may have next to Ceph, each on a separate disk: iSCSI server, NFS server, Swift, the disk alone."""
BACKEND_CLASS = "hdd"
"""Device class whose limits the disks of back ends have: that of the lab's first pool."""


def parse_backends(text: str) -> tuple[str, ...]:
    """Read names of back ends, separated by commas.

    Raises:
        InputError: there is no such back end.
    """
    names = tuple(dict.fromkeys(name for word in text.split(",") if (name := word.strip())))
    for name in names:
        if name not in BACKENDS:
            raise InputError(
                f"a lab has no back end {name!r}", where="--with", remedy=f"choose from: {', '.join(BACKENDS)}"
            )
    return names


@dataclass(frozen=True, slots=True)
class LabSpec:
    """The shape of a lab.

    Attributes:
        n_hosts: CRUSH hosts; each has one ``hdd`` and one ``ssd`` OSD.
        limits: by device class.
        osd_nbytes: size of each OSD's disk; a sparse file, which grows as it is written.
        pool: name of the pool created first, on rule ``hdd``.
        pg_num: of that pool.
        options: section to option to value, written to the central config store, where a sweep can change
            them (an option in ceph.conf would override the store).
        free_nbytes: required free space on the folder's disk at creation.
        stores: object store of the OSDs of a device class; BlueStore by default.
        client_network: clients are in a network of their own, whose distance can be set.
        backends: of ``BACKENDS``.
        timed_disks: an I/O occupies its disk for a while (``disk_times``); not in labs of earlier versions.
        release: of Ceph, whose programs are in a root of their own (``ceph_programs``); empty for the machine's.
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
    client_network: bool = False
    backends: tuple[str, ...] = ()
    timed_disks: bool = True
    release: str = ""

    @property
    def osds(self) -> tuple[tuple[int, str], ...]:
        """(host, device class) of every OSD, by its id."""
        return tuple((host, device_class) for device_class in self.limits for host in range(self.n_hosts))

    def store(self, osd: int) -> OsdStore:
        """Return the object store of an OSD in a new lab."""
        return self.stores.get(self.osds[osd][1], OsdStore())

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "LabSpec":
        limits = {name: DiskLimits(**values) for name, values in document["limits"].items()}
        stores = {name: OsdStore(**values) for name, values in document.get("stores", {}).items()}
        backends = tuple(document.get("backends", ()))
        document = {"timed_disks": False, **document}
        return cls(**{**document, "limits": limits, "stores": stores, "backends": backends})
