"""Waiting until a cluster is whole again."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from cephfit.errors import ClusterError
from cephfit.protocols import CephAdmin
from cephfit.sweep.waiting import still_amiss

_POLL_SECONDS = 0.2
_WHOLE_SECONDS = 90.0


def _unready_pgs(pgs: Collection[Mapping[str, Any]], since: Mapping[int, int]) -> str:
    """Why the PGs cannot be trusted yet; empty if they can.

    A PG's state is as old as its last report: one from before its OSD came up says nothing.
    """
    unclean = [pg for pg in pgs if pg["state"] != "active+clean"]
    if unclean:
        states = sorted({pg["state"] for pg in unclean})
        return f"{len(unclean)} of {len(pgs)} PGs are {', '.join(states)}"
    old = [
        pg
        for pg in pgs
        if any(int(pg["reported_epoch"]) < since.get(osd, 0) for osd in {*pg["up"], *pg["acting"]})
    ]
    return f"{len(old)} of {len(pgs)} PGs have not reported yet" if old else ""


def _unready(admin: CephAdmin, osds: Collection[int], before: Mapping[int, int]) -> str:
    osd_map = admin.command("osd dump")
    now = {o["osd"]: o["up_from"] for o in osd_map["osds"] if o["up"]}
    waiting = [osd for osd in osds if osd not in now or now[osd] <= before.get(osd, 0)]
    if waiting:
        return f"OSDs {', '.join(map(str, sorted(waiting)))} are not up"
    n_pgs = sum(pool["pg_num"] for pool in osd_map["pools"])
    pgs = admin.command("pg ls")["pg_stats"]
    pools = {str(pool["pool"]) for pool in osd_map["pools"]}
    if any(pg["pgid"].partition(".")[0] not in pools for pg in pgs):
        return "the manager has not heard yet of pools that were deleted"
    if len(pgs) != n_pgs:
        return f"{len(pgs)} of {n_pgs} PGs are known to the manager"
    since = {osd: now[osd] for osd in before if osd in now}
    return _unready_pgs(pgs, since) or _unready_digest(admin.command("status"), n_pgs)


def _unready_digest(status: Mapping[str, Any], n_pgs: int) -> str:
    """What the monitors would still say against it: they learn of PGs from the manager, a moment after it."""
    if checks := status["health"]["checks"]:
        return ", ".join(checks)
    known = {state["state_name"]: int(state["count"]) for state in status["pgmap"].get("pgs_by_state", ())}
    clean = known.get("active+clean", 0)
    is_right = clean == n_pgs == sum(known.values())
    return "" if is_right else f"the monitors know {clean} of {n_pgs} PGs as active+clean"


def wait_whole(
    admin: CephAdmin,
    osds: Collection[int],
    *,
    before: Mapping[int, int] | None = None,
    alive: Callable[[], None] = lambda: None,
) -> None:
    """Wait until all OSDs are up, every PG is active+clean and the health is HEALTH_OK.

    Args:
        osds: all OSDs of the cluster.
        before: epochs at which restarted OSDs had come up before; they must have come up again since.
        alive: called in between; raises if there is no hope, because a daemon died.

    Raises:
        ClusterError: it takes too long; says what is still amiss.
    """

    def look() -> str:
        alive()
        try:
            return _unready(admin, osds, before or {})
        except ClusterError as error:  # the manager is not there yet
            return error.what

    if why := still_amiss(look, seconds=_WHOLE_SECONDS, poll_seconds=_POLL_SECONDS):
        raise ClusterError(f"not active+clean within {_WHOLE_SECONDS:g} s: {why}", where="cluster")
