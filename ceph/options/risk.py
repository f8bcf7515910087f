"""Settings that risk data or leave a cluster in an unwanted state, with the reasons.

A sweep file with one of them is refused unless ``accept_risk`` lists its key: acceptable on a private lab, not on
a cluster with other people's data.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from cephfit.ceph.environment.scopes import CLIENT_NETWORK
from cephfit.core.values.configuration import Partition, Setting, Value


def _below(limit: float, value: Value) -> bool:
    try:
        return float(value) < limit
    except ValueError:
        return False


def _is_false(value: Value) -> bool:
    return str(value).lower() in ("false", "0", "no", "off")


def _is_none(value: Value) -> bool:
    return str(value).lower() == "none"


@dataclass(frozen=True, slots=True)
class Risk:
    """One kind of setting that risks data.

    Attributes:
        partition: of the setting.
        key: a shell pattern over the key.
        when: dangerous values: ``always``, ``below 2``, ``is readonly``, ``false`` or ``none``.
        why: one sentence for users.
    """

    partition: Partition
    key: str
    when: str
    why: str

    def concerns(self, partition: Partition, key: str) -> bool:
        """Return whether some value of a key has this risk."""
        return partition is self.partition and fnmatchcase(key, self.key)

    def applies(self, setting: Setting) -> bool:
        """Return whether a setting with its value has this risk."""
        if not self.concerns(setting.partition, setting.key):
            return False
        if self.when.startswith("below "):
            return _below(float(self.when.removeprefix("below ")), setting.value)
        if self.when.startswith("is "):
            return str(setting.value) == self.when.removeprefix("is ")
        if self.when == "false":
            return _is_false(setting.value)
        if self.when == "none":
            return _is_none(setting.value)
        return True


def _always(partition: Partition, why: str, *keys: str) -> tuple[Risk, ...]:
    return tuple(Risk(partition, key, "always", why) for key in keys)


RISKS: tuple[Risk, ...] = (
    Risk(Partition.POOL, "size", "below 3", "fewer than three copies: two lost disks, or one, lose data"),
    Risk(Partition.POOL, "min_size", "below 2", "writes are acknowledged with one copy only"),
    Risk(Partition.POOL, "*.size", "below 3", "fewer than three copies: two lost disks, or one, lose data"),
    Risk(Partition.POOL, "*.min_size", "below 2", "writes are acknowledged with one copy only"),
    Risk(Partition.POOL, "erasure.m", "below 2", "one lost disk and one bad sector elsewhere lose data"),
    Risk(
        Partition.POOL,
        "cache.mode",
        "is readonly",
        'Ceph: "may corrupt your data"; stale copies are read',
    ),
    Risk(Partition.CEPH, "osd_pool_default_size", "below 3", "new pools get fewer than three copies"),
    Risk(
        Partition.CEPH, "osd_pool_default_min_size", "below 2", "new pools acknowledge writes with one copy only"
    ),
    Risk(Partition.CEPH, "bluestore_csum_type", "none", "corrupt data on a disk is served without an error"),
    Risk(Partition.CEPH, "bdev_*unsafe*", "always", "the name says it"),
    Risk(Partition.CEPH, "*debug_inject*", "always", "makes daemons delay or fail on purpose"),
    Risk(Partition.CEPH, "ms_inject*", "always", "makes connections fail on purpose"),
    Risk(Partition.CEPH, "*_debug_*", "always", "a developers' switch that may break a daemon"),
    Risk(Partition.CEPH, "bluestore_rocksdb_options*", "always", "may turn off the write-ahead log's syncing"),
    Risk(
        Partition.CEPH, "rbd_cache_writethrough_until_flush", "false", "a guest that never flushes may lose writes"
    ),
    Risk(Partition.CEPH, "journal_ignore_corruption", "always", "a broken journal is replayed"),
    Risk(Partition.CEPH, "auth_*_required", "none", "the cluster no longer authenticates its clients"),
    Risk(
        Partition.CEPH,
        "osd_heartbeat_grace",
        "below 20",
        "OSDs that are only busy are marked down, and data moves",
    ),
    *_always(
        Partition.CEPH,
        "running OSDs are marked down, or dead ones stay up",
        "osd_heartbeat_interval",
        "osd_heartbeat_min_*",
        "osd_mon_heartbeat_*",
        "osd_mon_report_*",
        "mon_osd_report_timeout",
        "mon_osd_min_down_*",
        "mon_osd_reporter_subtree_level",
        "mon_osd_adjust_heartbeat_grace",
        "*_suicide_timeout",
    ),
    *_always(
        Partition.CEPH,
        "decides when the data of OSDs that are down is moved, or whether it is",
        "mon_osd_down_out_*",
        "mon_osd_adjust_down_out_interval",
        "mon_osd_auto_mark_*",
        "mon_osd_min_in_ratio",
        "mon_osd_min_up_ratio",
    ),
    *_always(
        Partition.CEPH,
        "an OSD that is completely full does not start again",
        "osd_failsafe_*",
        "osd_backfill_full_ratio",
        "mon_osd_full_ratio",
        "mon_osd_backfillfull_ratio",
        "mon_osd_nearfull_ratio",
    ),
    Risk(Partition.CEPH, "osd_max_object_size", "always", "objects already larger become unreadable"),
    *_always(
        Partition.GREATER,
        "affects all traffic of the OSDs' hosts, not only Ceph's",
        "delay_ms",
        "jitter_ms",
        "loss_pct",
        "rate_mbit",
    ),
    Risk(Partition.GREATER, "mtu", "always", "a network that does not carry frames of this size stalls the OSDs"),
    Risk(Partition.GREATER, "kernel[./]*", "always", "affects the whole host, not only its storage"),
    Risk(Partition.GREATER, "vm[./]panic_*", "always", "stops the whole host where it would continue"),
    Risk(Partition.GREATER, "vm[./]overcommit_*", "always", "daemons may get no memory, or be killed for it"),
    Risk(Partition.CEPH, "mon_allow_pool_*", "always", "pools become easier to delete or to set unsafely"),
)
"""Known risks to data, in order of precedence. Source: Ceph's option descriptions and operations manual."""


def risk_of(setting: Setting) -> Risk | None:
    """Return the first declared risk of a setting, or None."""
    if setting.partition is Partition.GREATER and setting.scope == CLIENT_NETWORK:
        return None  # its keys are also those of the hosts' network, but no other program uses the clients' path
    return next((risk for risk in RISKS if risk.applies(setting)), None)
