"""Waiting: until a pool's PGs lie where its rule puts them, until the manager knows which pools there are."""

import time
from collections import Counter

from cephfit.errors import ClusterError
from cephfit.protocols import CephAdmin
from cephfit.sweep.admin.answers import RefusedError
from cephfit.sweep.pools.pool_readback import dumped_pool
from cephfit.sweep.waiting import still_amiss

_WAIT_SECONDS = 30.0
"""PGs of an empty pool find their places within 2 s on a lab."""
_POLL_SECONDS = 0.1
_SILENCE_SECONDS = 10.0
"""OSDs report a PG that changed to the manager every 5 s (mgr_stats_period)."""


class UnplacedPoolError(ClusterError):
    """A pool's PGs did not become active+clean, because its rule finds too few OSDs for its size, for example."""


def map_epoch(admin: CephAdmin) -> int:
    """The epoch of the OSD map as it is now."""
    return int(admin.command("osd dump")["epoch"])


def await_placed(admin: CephAdmin, name: str, epoch: int) -> None:
    """Until every PG is active+clean by a report since ``epoch``; older reports tell of older places.

    Args:
        admin: of the cluster.
        name: of the pool.
        epoch: of the map that moved the PGs. One that it did not move makes no report: after a while silence
            counts as that.

    Raises:
        UnplacedPoolError: it takes too long.
    """
    started = time.monotonic()

    def look() -> str:
        silence = time.monotonic() > started + _SILENCE_SECONDS
        return _unplaced(admin, name, 0 if silence else epoch)

    if why := still_amiss(look, seconds=_WAIT_SECONDS, poll_seconds=_POLL_SECONDS):
        raise UnplacedPoolError(f"after {_WAIT_SECONDS:.0f} s {why}", where=f"pool {name}")


def await_counted(admin: CephAdmin) -> None:
    """Until the manager's PG count is that of the pools there are; it hears of deleted ones a little later."""

    def look() -> str:
        expected = sum(int(pool["pg_num"]) for pool in admin.command("osd dump")["pools"])
        counted = admin.command("status")["pgmap"]["num_pgs"]
        return "" if counted == expected else f"{counted} of {expected} PGs are counted"

    still_amiss(look, seconds=_WAIT_SECONDS, poll_seconds=_POLL_SECONDS)


def _unplaced(admin: CephAdmin, name: str, epoch: int) -> str:
    pool = dumped_pool(admin, name)
    target = pool.get("pg_num_target", pool["pg_num"])
    try:
        pgs = admin.command("pg ls-by-pool", poolstr=name)["pg_stats"]
    except RefusedError as error:  # the manager has not heard of the pool yet
        return error.what
    if len(pgs) != target or pool["pg_placement_num"] != pool.get("pg_placement_num_target", target):
        return f"it has {len(pgs)} of {target} PGs"
    counts = Counter(pg["state"] for pg in pgs if pg["state"] != "active+clean")
    silent = sum(int(pg["reported_epoch"]) < epoch for pg in pgs)
    if silent:
        return f"{silent} PGs have not reported"
    return ", ".join(f"{count} PGs are {state}" for state, count in counts.items())
