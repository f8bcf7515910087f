"""Waiting: until a pool's PGs lie where its rule puts them, until the manager knows which pools there are."""

import time
from collections import Counter
from dataclasses import dataclass

from cephfit.errors import ClusterError
from cephfit.protocols import CephAdmin
from cephfit.sweep.admin.answers import RefusedError
from cephfit.sweep.admin.older_releases import listed_pgs
from cephfit.sweep.pools.pool_readback import dumped_pool
from cephfit.sweep.waiting import still_amiss

_SETTLED_SECONDS = 30.0
"""PGs that are neither clean nor at work on it for so long find no places; on a lab's new pool that takes 2 s."""
_POLL_SECONDS = 0.1
_SLOWEST_POLL_SECONDS = 2.0
_SILENCE_SECONDS = 10.0
"""OSDs report a PG that changed to the manager every 5 s (mgr_stats_period)."""
_COUNTING_SECONDS = 30.0
_IN_PLACE = frozenset(("active", "clean"))
_ELSEWHERE = frozenset(("scrubbing", "deep", "snaptrim", "snaptrim_wait", "laggy", "wait"))
"""Words of states that say nothing of places; with clients at work they come and go for ever."""
_AT_WORK = frozenset(
    ("creating", "peering", "activating", "unknown", "recovering", "recovery_wait", "backfilling", "backfill_wait")
)
"""Words of states of PGs that will be clean by and by."""


@dataclass(frozen=True, slots=True)
class _Outlook:
    """What a pool's PGs are up to.

    Attributes:
        why: they are not in their places, in words; empty if they are.
        may_come: it may come about by itself.
        n_recovered: objects, and bytes of them, that were copied to their places since the PGs were made. Not how
            many are degraded or misplaced: those change with every write of a client, whether anything is copied
            or not.
    """

    why: str
    may_come: bool = True
    n_recovered: int = 0


class UnplacedPoolError(ClusterError):
    """A pool's PGs did not become active+clean, because its rule finds too few OSDs for its size, for example."""


def map_epoch(admin: CephAdmin) -> int:
    """The epoch of the OSD map as it is now."""
    return int(admin.command("osd dump")["epoch"])


def await_placed(admin: CephAdmin, name: str, epoch: int, *, patience_seconds: float) -> None:
    """Until every PG is active and clean by a report since ``epoch``; older reports tell of older places.

    As long as PGs change their state or data is copied it is waited for, because that may take hours.

    Args:
        admin: of the cluster.
        name: of the pool.
        epoch: of the map that moved the PGs. One that it did not move makes no report: after a while silence
            counts as that.
        patience_seconds: how long none of this may happen while PGs are at work.

    Raises:
        UnplacedPoolError: it does not come about.
    """
    started = changed = time.monotonic()
    before: _Outlook | None = None
    while True:
        now = time.monotonic()
        outlook = _outlook(admin, name, 0 if now > started + _SILENCE_SECONDS else epoch)
        if not outlook.why:
            return
        if outlook != before:
            before, changed = outlook, now
        limit = patience_seconds if outlook.may_come else min(_SETTLED_SECONDS, patience_seconds)
        if now > changed + limit:
            raise UnplacedPoolError(f"after {now - started:.0f} s {outlook.why}", where=f"pool {name}")
        time.sleep(min(_POLL_SECONDS + (now - started) / 20, _SLOWEST_POLL_SECONDS))


def await_counted(admin: CephAdmin) -> None:
    """Until the manager's PG count is that of the pools there are; it hears of deleted ones a little later."""

    def look() -> str:
        expected = sum(int(pool["pg_num"]) for pool in admin.command("osd dump")["pools"])
        counted = admin.command("status")["pgmap"]["num_pgs"]
        return "" if counted == expected else f"{counted} of {expected} PGs are counted"

    still_amiss(look, seconds=_COUNTING_SECONDS, poll_seconds=_POLL_SECONDS)


def _outlook(admin: CephAdmin, name: str, epoch: int) -> _Outlook:
    pool = dumped_pool(admin, name)
    target = pool.get("pg_num_target", pool["pg_num"])
    try:
        pgs = listed_pgs(admin.command("pg ls-by-pool", poolstr=name)) or ()
    except RefusedError as error:  # the manager has not heard of the pool yet
        return _Outlook(error.what)
    if len(pgs) != target or pool["pg_placement_num"] != pool.get("pg_placement_num_target", target):
        return _Outlook(f"it has {len(pgs)} of {target} PGs")
    silent = sum(int(pg["reported_epoch"]) < epoch for pg in pgs)
    if silent:
        return _Outlook(f"{silent} PGs have not reported")
    states = [[word for word in pg["state"].split("+") if word not in _ELSEWHERE] for pg in pgs]
    counts = Counter("+".join(words) for words in states if not _IN_PLACE.issubset(words))
    keys = ("num_objects_recovered", "num_bytes_recovered")
    return _Outlook(
        ", ".join(f"{count} PGs are {state}" for state, count in sorted(counts.items())),
        may_come=any(not _AT_WORK.isdisjoint(state.split("+")) for state in counts),
        n_recovered=sum(int(pg.get("stat_sum", {}).get(key, 0)) for pg in pgs for key in keys),
    )
