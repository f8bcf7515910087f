"""Options of older Ceph releases that later ones do not have, and what took their place.

The thesis (Meyer 2017, Table 3.5) was measured on the Ceph of 2015; its sweep names some of them. Sources: the
option table of Ceph's source at the time of Jewel (``src/common/config_opts.h``: it has the osd_*_threads and the
new throttles, the old throttles no longer), ``config help`` of a running Pacific, and the OSD's documentation of
its throttles (``doc/dev/osd_internals/osd_throttles.rst``).
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RemovedOption:
    """An option that is gone.

    Attributes:
        gone: since when, as one says it after "it": ``was removed in Jewel (10.2)``.
        instead: what does its work now.
    """

    gone: str
    instead: str


_AFTER_JEWEL = "was removed after Jewel (10.2); Pacific (16.2) does not have it"
_SHARDS = "client operations are served by osd_op_num_shards x osd_op_num_threads_per_shard (and their _hdd, _ssd)"
_FILESTORE_THROTTLE = (
    "FileStore's throttle became filestore_queue_max_bytes, filestore_queue_max_ops and "
    "filestore_queue_{low,high}_threshhold; BlueStore has bluestore_throttle_bytes"
)
_JOURNAL_THROTTLE = (
    "FileStore's journal is throttled by journal_throttle_{low,high}_threshhold; BlueStore has "
    "bluestore_throttle_deferred_bytes"
)

REMOVED_OPTIONS: Mapping[str, RemovedOption] = {
    "osd_op_threads": RemovedOption(_AFTER_JEWEL, _SHARDS),
    "osd_disk_threads": RemovedOption(
        f"{_AFTER_JEWEL}; scrubbing and snapshot trimming went into the operation queue", _SHARDS
    ),
    "osd_recovery_threads": RemovedOption(f"{_AFTER_JEWEL}; recovery went into the operation queue", _SHARDS),
    "filestore_queue_committing_max_bytes": RemovedOption("was removed in Jewel (10.2)", _FILESTORE_THROTTLE),
    "filestore_queue_committing_max_ops": RemovedOption("was removed in Jewel (10.2)", _FILESTORE_THROTTLE),
    "journal_queue_max_bytes": RemovedOption("was removed in Jewel (10.2)", _JOURNAL_THROTTLE),
    "journal_queue_max_ops": RemovedOption("was removed in Jewel (10.2)", _JOURNAL_THROTTLE),
}

FILESTORE_PREFIXES = ("filestore_", "journal_")
"""Options that only FileStore OSDs read. FileStore itself was removed in Reef (18.2)."""
