"""OSDs restarted one after the other, as on a cluster that somebody uses."""

import errno
import time
from collections.abc import Callable, Sequence
from typing import Any

from cephfit.errors import ClusterError
from cephfit.protocols import CephAdmin, Progress
from cephfit.sweep.admin.answers import RefusedError
from cephfit.sweep.journal import Journal
from cephfit.sweep.pools.pool_names import POOL_PREFIX
from cephfit.sweep.settings.osd_daemons import OsdDaemons
from cephfit.sweep.validity.ceph_health import reasons_against
from cephfit.sweep.waiting import still_amiss

_NOOUT = "noout"
_POLL_SECONDS = 0.5
_NOBODY = 2147483647
"""CRUSH_ITEM_NONE: a place of an erasure-coded PG that no OSD has."""


class OneByOne:
    """Implements ``RestartsOsds``.

    For each OSD in turn: the monitors must agree that it may stop, it gets the flag ``noout`` so that no data
    moves, its daemon is restarted, it must come up again, the flag goes, and every PG must be active+clean before
    the next one. The flag is in the journal before it is set; an OSD that had it keeps it.

    Args:
        admin: sends commands.
        journal: of the target.
        daemons: restarts the daemon of one OSD.
        progress: hears of every OSD.
        patience_seconds: how long one OSD may take to come up, and the PGs after it to be active+clean.
    """

    def __init__(
        self,
        admin: CephAdmin,
        journal: Journal,
        daemons: OsdDaemons,
        *,
        progress: Progress,
        patience_seconds: float = 600.0,
    ) -> None:
        self._admin = admin
        self._journal = journal
        self._daemons = daemons
        self._progress = progress
        self._patience_seconds = patience_seconds

    def why_not(self, osds: Sequence[int]) -> str:
        return next((why for osd in osds if (why := self._daemons.why_not(osd))), "")

    def restart(self, osds: Sequence[int]) -> None:
        self.clear_up()
        for osd in osds:
            self._require_stoppable(osd)
            self._set_noout(osd)
            before = self._of_map(osd)["up_from"]
            self._progress.note(f"restarting osd.{osd}")
            self._daemons.restart(osd)
            self._await_up(osd, before)
            self.clear_up()
            self._await_clean(osd)

    def clear_up(self) -> None:
        for entry in self._journal.entries(_NOOUT):
            self._admin.command("osd rm-noout", ids=[entry.place])
            self._journal.forget(_NOOUT, entry.place)

    def _require_stoppable(self, osd: int) -> None:
        """Raises:
        ClusterError: stopping it would stop I/O of a pool that is not cephfit's.
        """
        why = self._against_stopping(osd)
        if not why:
            return
        pools = pools_that_would_stop(self._pgs_of(osd) or (), self._admin.command("osd dump")["pools"])
        strangers = [name for name in pools if not name.startswith(POOL_PREFIX)]
        if strangers or not pools:
            raise ClusterError(
                f"osd.{osd} must not be stopped now: {why}",
                where=f"pools {', '.join(strangers)}" if strangers else f"osd.{osd}",
                remedy="wait until all PGs have all their copies; pools without redundancy forbid it for good",
            )

    def _against_stopping(self, osd: int) -> str:
        """The monitors' words against it; they have none yet (EAGAIN) while PGs of new pools are unknown."""
        deadline = time.monotonic() + self._patience_seconds
        while True:
            try:
                said = self._admin.command("osd ok-to-stop", ids=[str(osd)])
            except RefusedError as error:
                if error.code == errno.EBUSY:
                    return error.what
                if error.code != errno.EAGAIN or time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)
                continue
            is_fine = not isinstance(said, dict) or said.get("ok_to_stop", True)
            return "" if is_fine else "the monitors say so"

    def _set_noout(self, osd: int) -> None:
        if "noout" not in self._of_map(osd).get("state", ()):
            self._journal.note(_NOOUT, str(osd), None)
            self._admin.command("osd add-noout", ids=[str(osd)])

    def _of_map(self, osd: int) -> dict[str, Any]:
        found: dict[str, Any] = next(o for o in self._admin.command("osd dump")["osds"] if o["osd"] == osd)
        return found

    def _pgs_of(self, osd: int) -> Sequence[dict[str, Any]] | None:
        """None while the manager does not know: for some seconds after a change of the map."""
        said = self._admin.command("pg ls-by-osd", osd=osd)
        # Of an OSD without PGs, older releases leave the list out.
        found: Sequence[dict[str, Any]] | None = said.get("pg_stats", ()) if said.get("pg_ready", True) else None
        return found

    def _await_up(self, osd: int, before: int) -> None:
        def look() -> str:
            entry = self._of_map(osd)
            return "" if entry["up"] and entry["up_from"] > before else f"osd.{osd} did not come up again"

        if why := self._still_amiss(look):
            raise ClusterError(
                f"{why} within {self._patience_seconds:.0f} s after its restart",
                where=f"osd.{osd}",
                remedy="look at its log; when it is up, the same command goes on",
            )

    def _await_clean(self, osd: int) -> None:
        since = self._of_map(osd)["up_from"]
        if why := self._still_amiss(lambda: self._unclean(osd, since)):
            raise ClusterError(
                f"not healthy {self._patience_seconds:.0f} s after the restart of osd.{osd}: {why}",
                where=f"osd.{osd}",
                remedy="no further OSD is restarted; when the cluster is healthy, the same command goes on",
            )

    def _still_amiss(self, look: Callable[[], str]) -> str:
        return still_amiss(look, seconds=self._patience_seconds, poll_seconds=_POLL_SECONDS)

    def _unclean(self, osd: int, since: int) -> str:
        """What is amiss still; a PG that has not reported since the OSD came up says nothing about now."""
        pgs = self._pgs_of(osd)
        if pgs is None:
            return f"the manager has not heard of the PGs of osd.{osd}"
        silent = sum(int(pg["reported_epoch"]) < since for pg in pgs)
        if silent:
            return f"{silent} PGs of osd.{osd} have not reported"
        return "; ".join(reasons_against(self._admin.command("status")))


def pools_that_would_stop(pgs: Sequence[dict[str, Any]], pools: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """Names of the pools with a PG that would have too few OSDs for I/O if one of its OSDs stopped.

    Args:
        pgs: of that OSD, as ``pg ls-by-osd`` gives them.
        pools: as ``osd dump`` gives them.
    """
    by_id = {pool["pool"]: pool for pool in pools}
    stopped: dict[str, None] = {}
    for pg in pgs:
        pool = by_id[int(pg["pgid"].partition(".")[0])]
        if len([osd for osd in pg["acting"] if osd != _NOBODY]) - 1 < pool["min_size"]:
            stopped[pool["pool_name"]] = None
    return tuple(stopped)
