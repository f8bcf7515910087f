"""Defaults that differ between releases of Ceph and act on the speed of storage, from the option catalogues."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from cephfit.ceph.options.option import Option, as_ceph_writes, same_value
from cephfit.ceph.options.option_archive import KnownOptions, known
from cephfit.core.errors import InputError


class ActsOn(StrEnum):
    """The work whose speed an option changes."""

    ALL = "all I/O"
    WRITES = "writes"
    ERASURE = "erasure codes"
    COMPRESSION = "compression"
    SCRUBBING = "scrubbing next to clients"
    RECOVERY = "recovery next to clients"
    UNKNOWN = "not examined"


_EXAMINED: Mapping[str, tuple[ActsOn, str]] = {
    "osd_op_queue": (ActsOn.ALL, "the OSD's scheduler of client I/O, recovery and scrubbing"),
    "osd_mclock_profile": (ActsOn.ALL, "how mClock divides a disk; no effect with wpq"),
    "osd_mclock_max_sequential_bandwidth_hdd": (ActsOn.ALL, "mClock's cost of large I/O on an HDD"),
    "osd_mclock_max_sequential_bandwidth_ssd": (ActsOn.ALL, "mClock's cost of large I/O on an SSD"),
    "osd_op_num_shards_hdd": (ActsOn.ALL, "queues of an OSD on an HDD"),
    "osd_op_num_threads_per_shard_hdd": (ActsOn.ALL, "threads of each queue of an OSD on an HDD"),
    "ms_tcp_prefetch_max_size": (ActsOn.ALL, "bytes that a connection reads ahead"),
    "bluestore_rocksdb_options": (ActsOn.WRITES, "BlueStore's database: memory tables, compaction, compression"),
    "bluestore_allocation_from_file": (ActsOn.WRITES, "free space is kept in a file, not in the database"),
    "bluefs_wal_envelope_mode": (ActsOn.WRITES, "fewer flushes for each entry of the database's log"),
    "bluestore_elastic_shared_blobs": (ActsOn.WRITES, "writes to images with snapshots or clones; new OSDs only"),
    "osd_ec_partial_reads": (ActsOn.ERASURE, "reads only the needed parts of a stripe"),
    "osd_pool_default_erasure_code_profile": (ActsOn.ERASURE, "the plugin of new pools that name none"),
    "bluestore_compression_min_blob_size_hdd": (ActsOn.COMPRESSION, "smallest unit that is compressed on an HDD"),
    "bluestore_compression_min_blob_size_ssd": (ActsOn.COMPRESSION, "smallest unit that is compressed on an SSD"),
    "osd_max_scrubs": (ActsOn.SCRUBBING, "scrubs of an OSD at one time"),
    "osd_scrub_chunk_max": (ActsOn.SCRUBBING, "objects that a scrub blocks at one time"),
    "osd_requested_scrub_priority": (ActsOn.SCRUBBING, "priority of scrubs that an administrator starts"),
    "osd_scrub_load_threshold": (ActsOn.SCRUBBING, "load of a host above which no scrub starts"),
    "osd_mclock_override_recovery_settings": (ActsOn.RECOVERY, "whether mClock lets osd_max_backfills act"),
}
"""What the options act on. Sources: their descriptions (``src/common/options``), Ceph's "mClock Config Reference",
"BlueStore Configuration Reference" and the release notes of Quincy, Reef, Squid and Tentacle."""

_FAST_PATH = ("bdev_", "bluefs_", "bluestore_", "ms_", "objecter_", "osd_", "rbd_", "rocksdb_")
"""Options of these prefixes may act on speed."""
_OTHER_WORDS = (
    "_dir", "plugins", "bind_port", "class_", "debug", "warn", "inject", "mclock_scheduler_", "crimson",
)  # fmt: skip
"""Parts of the names of options that do not act on speed, or only together with another one (mClock's profile
``custom``)."""


@dataclass(frozen=True, slots=True)
class DifferingDefault:
    """An option whose default is not the same in all compared releases.

    Attributes:
        name: of the option.
        values: default in each release, in their order; None where the release does not have the option.
        acts_on: the work whose speed it changes.
        what: what the option is, in a few words.
        at_creation: only OSDs that are created under the release take its default.
    """

    name: str
    values: tuple[str | None, ...]
    acts_on: ActsOn
    what: str
    at_creation: bool

    @property
    def shown(self) -> tuple[str, ...]:
        """The values for people: of a list ``a=1,b=2`` the parts that not all releases have; ``-`` for none."""
        lists = [dict.fromkeys(value.split(",")) for value in self.values if value is not None]
        if not all(len(parts) > 2 and all("=" in part for part in parts) for parts in lists):
            return tuple("-" if value is None else value or "empty" for value in self.values)
        common = set.intersection(*map(set, lists))
        return tuple(
            "-"
            if value is None
            else ",".join(part for part in value.split(",") if part not in common) or "the rest"
            for value in self.values
        )


def differing_defaults(releases: Sequence[KnownOptions]) -> tuple[DifferingDefault, ...]:
    """Return the options that act on speed and have different defaults, those that matter most first.

    An option that not all releases have counts only if its effect was examined: most new options default to the
    behaviour of the release before.

    Args:
        releases: at least two, oldest first.
    """
    tables = [{option.name: option for option in release.options} for release in releases]
    found = []
    for name in sorted({name for table in tables for name in table}):
        options = [table.get(name) for table in tables]
        present = [option for option in options if option is not None]
        if not _acts_on_speed(name, present, complete=len(present) == len(options)):
            continue
        if len(present) == len(options) and _is_same(present):
            continue
        newest = present[-1]
        acts_on, what = _EXAMINED.get(name, (ActsOn.UNKNOWN, newest.description))
        values = tuple(None if option is None else as_ceph_writes(option.default) for option in options)
        found.append(DifferingDefault(name, values, acts_on, what, newest.acts_at_creation_only))
    return tuple(sorted(found, key=_place))


def catalogues_of(versions: Sequence[str]) -> tuple[tuple[KnownOptions, ...], tuple[str, ...]]:
    """Return the known options of releases, and the versions of which none are known.

    Args:
        versions: such as ``18.2.4``. Another version of the same release stands in for one that is not known.
    """
    found, unknown = [], []
    for version in versions:
        try:
            found.append(_known_or_near(version))
        except InputError:
            unknown.append(version)
    return tuple(found), tuple(unknown)


def _known_or_near(version: str) -> KnownOptions:
    try:
        return known(version)
    except InputError:
        return known(".".join(version.split(".")[:2]))


def _acts_on_speed(name: str, present: Sequence[Option], *, complete: bool) -> bool:
    if name in _EXAMINED:
        return True
    if not complete or not name.startswith(_FAST_PATH) or any(word in name for word in _OTHER_WORDS):
        return False
    return any(option.level != "dev" for option in present)


def _place(default: DifferingDefault) -> tuple[int, str]:
    """Sort key: as in the list of examined options, which begins with those that act on most; then by name."""
    names = list(_EXAMINED)
    return (names.index(default.name) if default.name in _EXAMINED else len(names)), default.name


def _is_same(options: Sequence[Option]) -> bool:
    first = options[0]
    return all(same_value(option.type, first.default, option.default) for option in options)
