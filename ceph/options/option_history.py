"""Options over the releases of Ceph: when they existed, what replaced them, their types before Mimic.

The thesis (Meyer 2017, Table 3.5) used the Ceph of 2015. Its sweep, and configurations from the literature (its
Table B.1), contain options that later releases do not have. ``option_releases.csv`` next to this file lists the
first and the last release of every option.

Monitors before Mimic do not describe their options; later releases' descriptions are used for them.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources

from cephfit.ceph.options.option import Option

RELEASES: Mapping[str, str] = {
    "dumpling": "0.67", "giant": "0.87", "jewel": "10.2", "luminous": "12.2", "mimic": "13.2",
    "nautilus": "14.2", "octopus": "15.2", "pacific": "16.2", "reef": "18.2", "tentacle": "20.2",
}  # fmt: skip
"""The releases with known options, in order. The releases in between were not examined: an option of Giant and
Jewel was also in Hammer and Infernalis; one that only Giant has was removed in one of these or in Jewel."""

_ORDER = tuple(RELEASES)

_SHARDS = "client operations are served by osd_op_num_shards x osd_op_num_threads_per_shard (and their _hdd, _ssd)"
_FILESTORE_THROTTLE = (
    "FileStore's throttle became filestore_queue_max_bytes, filestore_queue_max_ops and "
    "filestore_queue_{low,high}_threshhold; BlueStore has bluestore_throttle_bytes"
)
_JOURNAL_THROTTLE = (
    "FileStore's journal is throttled by journal_throttle_{low,high}_threshhold; BlueStore has "
    "bluestore_throttle_deferred_bytes"
)
_INSTEAD: Mapping[str, str] = {
    "osd_op_threads": _SHARDS,
    "osd_disk_threads": f"scrubbing and snapshot trimming went into the operation queue; {_SHARDS}",
    "osd_recovery_threads": f"recovery went into the operation queue; {_SHARDS}",
    "filestore_queue_committing_max_bytes": _FILESTORE_THROTTLE,
    "filestore_queue_committing_max_ops": _FILESTORE_THROTTLE,
    "journal_queue_max_bytes": _JOURNAL_THROTTLE,
    "journal_queue_max_ops": _JOURNAL_THROTTLE,
}
"""Replacements of removed options. Sources: the option tables of the releases before and after the change, and
the OSD's documentation of its throttles (``doc/dev/osd_internals/osd_throttles.rst``)."""

REPLACED: Mapping[str, tuple[str, ...]] = {
    "bdev_async_discard": ("bdev_async_discard_threads",),
    "mon_cluster_log_file_level": ("mon_cluster_log_level",),
    "mon_cluster_log_to_syslog_level": ("mon_cluster_log_level",),
    **{f"osd_mclock_cost_per_{what}_usec": ("osd_mclock_max_sequential_bandwidth_hdd",
       "osd_mclock_max_sequential_bandwidth_ssd") for what in ("byte", "io")},
    **{f"osd_mclock_cost_per_{what}_usec_{kind}": (f"osd_mclock_max_sequential_bandwidth_{kind}",)
       for what in ("byte", "io") for kind in ("hdd", "ssd")},
    "osd_pg_stat_report_interval_max": (
        "osd_pg_stat_report_interval_max_seconds", "osd_pg_stat_report_interval_max_epochs"),
}  # fmt: skip
"""Options that a later release replaced by others, which may have other units. Sources: the option tables of the
releases (``src/common/options``) and Ceph's "mClock Config Reference"."""

FILESTORE_PREFIXES = ("filestore_", "journal_")
"""Options that only FileStore OSDs read. Reef (18.2) removed FileStore but not its options: releases up to
Tentacle still list and accept them, but no OSD reads them."""


@dataclass(frozen=True, slots=True)
class History:
    """The releases that have an option.

    Attributes:
        name: Ceph's spelling.
        first: first release with it, such as ``jewel``.
        last: last release with it.
    """

    name: str
    first: str
    last: str

    @property
    def is_gone(self) -> bool:
        """Whether the newest known release does not have it."""
        return self.last != _ORDER[-1]

    @property
    def sentence(self) -> str:
        """The history as a sentence to follow the option's name: ``was removed after Jewel (10.2); ...``."""
        if self.is_gone:
            after = _ORDER[_ORDER.index(self.last) + 1]
            instead = f"; {_INSTEAD[self.name]}" if self.name in _INSTEAD else ""
            return f"was removed after {_spelled(self.last)}; {_spelled(after)} does not have it{instead}"
        if self.first != _ORDER[0]:
            return f"came after {_spelled(_before(self.first))}, with {_spelled(self.first)} or before"
        return f"is in every release from {_spelled(self.first)} to {_spelled(self.last)}"


def history_of(name: str) -> History | None:
    """Return the releases that have an option; None if no known release has it."""
    return histories().get(name)


def is_gone(name: str) -> bool:
    """Return whether an option existed in older releases only."""
    history = history_of(name)
    return history is not None and history.is_gone


def logging_levels() -> Iterator[str]:
    """Return the names of the log levels (``debug_osd``) of all releases."""
    return (name for name in histories() if name.startswith("debug_"))


def _spelled(release: str) -> str:
    return f"{release.capitalize()} ({RELEASES[release]})"


def _before(release: str) -> str:
    return _ORDER[_ORDER.index(release) - 1]


@cache
def histories() -> Mapping[str, History]:
    """Return every option of all known releases, by name."""
    text = resources.files("cephfit.ceph.options").joinpath("option_releases.csv").read_text()
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {row["option"]: History(row["option"], row["first"], row["last"]) for row in rows}


def described(key: str, version: str) -> Option | None:
    """Describe an option without a cluster; None if the release does not have it.

    The type and flags of an option that was removed before releases described theirs are unknown. Its type is then
    empty, and it counts as one that acts only at the start of a daemon, which is safe for every option.

    Args:
        key: Ceph's spelling.
        version: of the cluster, such as ``10.2.11``.
    """
    history = histories().get(key)
    if history is None or not _was_in(history, version):
        return None
    kind, flags = _kinds().get(key, ("", ()))
    return Option(
        name=key, type=kind, default="", flags=flags, services=(), can_update_at_runtime="runtime" in flags
    )


def names_of(version: str) -> tuple[str, ...]:
    """Return all options of a release, sorted."""
    return tuple(sorted(name for name, history in histories().items() if _was_in(history, version)))


def _was_in(history: History, version: str) -> bool:
    """Return whether a release has an option; a release between two known ones may have those of either."""
    order = list(RELEASES)
    numbers = [_number(number) for number in RELEASES.values()]
    mine = _number(version)
    lower = max((i for i, number in enumerate(numbers) if number <= mine), default=0)
    upper = lower if numbers[lower] == mine[:2] or lower + 1 == len(order) else lower + 1
    return order.index(history.first) <= upper and order.index(history.last) >= lower


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])


@cache
def _kinds() -> Mapping[str, tuple[str, tuple[str, ...]]]:
    text = resources.files("cephfit.ceph.options").joinpath("option_kinds.csv").read_text()
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {row["option"]: (row["type"], tuple(row["flags"].split())) for row in rows}
