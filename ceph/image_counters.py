"""The I/O of every image of a live cluster, from the manager's counters. Changes nothing.

The counters are those behind `rbd perf image iostat` and `iotop`. After the first query, OSDs count the operations
on the data objects of images, and report once per period (``mgr_stats_period``: 5 s). The manager adds them up,
and stops a minute after the last query. Nothing is sampled: differences of counters miss no operation, except at
both ends of the time, to within two periods.
"""

import errno
import time
from collections.abc import Callable, Iterator
from typing import Any

from cephfit.ceph.admin.answers import RefusedError
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.protocols import CephAdmin
from cephfit.core.values.image_io import ImageName, IoCounts, Reading, counters_reading

PERIOD_SECONDS = 5.0
"""Default of ``mgr_stats_period``."""
LONGEST_INTERVAL_SECONDS = 55.0
"""The manager stops counting a minute after the last query."""
_COMMAND = "rbd perf image counters"
_ORDERS = ("write_ops", "read_ops", "write_bytes", "read_bytes", "write_latency", "read_latency")


def rbd_pools(admin: CephAdmin) -> list[str]:
    """Return the names of pools with the application ``rbd``.

    Raises:
        ClusterError: the cluster does not answer.
        InputError: there is none.
    """
    pools = admin.command("osd dump")["pools"]
    names = [str(p["pool_name"]) for p in pools if "rbd" in p.get("application_metadata", {})]
    if not names:
        raise InputError(
            "the cluster has no pool with the application rbd, so it has no images",
            remedy="mark the pools of images: ceph osd pool application enable POOL rbd",
        )
    return names


def readings(
    admin: CephAdmin,
    *,
    seconds: float,
    interval_seconds: float,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Reading]:
    """Yield readings of all images' counters: one now, and one after each interval.

    Args:
        admin: of the cluster.
        seconds: the whole time.
        interval_seconds: between readings, at most ``LONGEST_INTERVAL_SECONDS``.
        wait: sleeps for so many seconds.
        clock: a rising time in seconds.

    Raises:
        ClusterError: the cluster does not answer, or its manager does not count images.
        InputError: there is no pool of images.
    """
    pools = rbd_pools(admin)
    _read(admin, pools)  # makes the OSDs begin to count
    start = clock()
    n = max(1, round(seconds / interval_seconds))
    for i in range(n + 1):
        if i:
            wait(max(0.0, start + i * seconds / n - clock()))
        images, is_complete = _read(admin, pools)
        yield Reading(clock(), images, _pool_counts(admin), is_complete)


def _read(admin: CephAdmin, pools: list[str]) -> tuple[dict[ImageName, IoCounts], bool]:
    """Return the counters of all images, and whether images that are not listed had no I/O."""
    found: dict[ImageName, IoCounts] = {}
    # The query without a pool sees images in all namespaces, but few of a large cluster.
    everywhere = _answer(admin, _ORDERS[0], {})
    found.update((name, io) for name, io in everywhere.images.items() if name.namespace)
    is_complete = everywhere.is_complete or not found
    for pool in pools:
        first = _answer(admin, _ORDERS[0], {"pool_spec": pool})
        found.update(first.images)
        if not first.is_complete:
            # Other orders list other images.
            is_complete = False
            for order in _ORDERS[1:]:
                found.update(_answer(admin, order, {"pool_spec": pool}).images)
    return found, is_complete


def _answer(admin: CephAdmin, order: str, where: dict[str, str]) -> Reading:
    try:
        # Through a monitor the manager does not know the caller's key and refuses.
        answer: Any = admin.tell("mgr", _COMMAND, **where, sort_by=order)
        return counters_reading(answer)
    except RefusedError as error:
        raise _explained(error) from None
    except (KeyError, TypeError, ValueError) as error:
        raise ClusterError(
            f"the manager's answer has an unknown form: {error!r:.100}", where=f"`{_COMMAND}`"
        ) from None


def _explained(error: RefusedError) -> ClusterError:
    remedy = error.remedy
    if error.code in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOENT):
        remedy = "the manager's module counts images: ceph mgr module enable rbd_support"
    elif error.code in (errno.EACCES, errno.EPERM):
        remedy = "the key lacks the capability mgr 'allow r' (docs/capabilities.md)"
    return ClusterError(error.what, where=error.where, remedy=remedy)


def _pool_counts(admin: CephAdmin) -> dict[str, IoCounts]:
    """Return the client I/O of pools since their creation."""
    pools = admin.command("df", detail="detail")["pools"]
    return {
        f"pool {pool['name']}": IoCounts(
            *(float(pool["stats"].get(key, 0)) for key in ("rd", "wr", "rd_bytes", "wr_bytes"))
        )
        for pool in pools
    }
