"""OSDs restarted one after the other, each under the flag noout.

The flag ``noout`` of single OSDs: while one is down for its restart, its data shall not move elsewhere.

OSDs restarted one after the other, as on a cluster that somebody uses.
"""

import errno
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.admin.older_releases import listed_pgs
from cephfit.ceph.ceph_health import reasons_against
from cephfit.ceph.cluster_adapters import OsdsDownError
from cephfit.ceph.delivery.osd_daemons import OsdDaemons
from cephfit.ceph.pools.pool_plan import POOL_PREFIX
from cephfit.core.errors import CephfitError, ClusterError, HostError
from cephfit.core.journal import Journal
from cephfit.core.protocols import CephAdmin, Progress
from cephfit.core.waiting import wait_until_clear

_NOOUT = "noout"


def osds_of_map(admin: CephAdmin) -> dict[int, Mapping[str, Any]]:
    """The OSDs that the cluster has, each as ``osd dump`` tells it."""
    return {int(osd["osd"]): osd for osd in admin.command("osd dump")["osds"]}


class NooutFlags:
    """Sets flags and takes them back; each is in the journal before it is set.

    Args:
        admin: sends commands.
        journal: of the target.
    """

    def __init__(self, admin: CephAdmin, journal: Journal) -> None:
        self._admin = admin
        self._journal = journal

    def set(self, osd: int, found: Mapping[str, Any]) -> None:
        """Flag an OSD, unless somebody else has.

        Args:
            osd: number.
            found: it, of ``osds_of_map``.
        """
        if "noout" not in found.get("state", ()):
            self._journal.note(_NOOUT, str(osd), None)
            self._admin.command("osd add-noout", ids=[str(osd)])

    def take_back(self) -> None:
        """Take the flags away, but those of OSDs that are down still: their data would begin to move."""
        entries = self._journal.entries(_NOOUT)
        there = osds_of_map(self._admin) if entries else {}
        for entry in entries:
            found = there.get(int(entry.place))
            if found is not None and not found["up"]:
                continue
            if found is not None:  # one that is no more took its flag with it
                self._admin.command("osd rm-noout", ids=[entry.place])
            self._journal.forget(_NOOUT, entry.place)


_POLL_SECONDS = 0.5
_NOBODY = 2147483647
"""CRUSH_ITEM_NONE: a place of an erasure-coded PG that no OSD has."""


class OneByOne:
    """Implements ``RestartsOsds``.

    OSDs that are down are started first, all of them: nothing has to be asked for that, and as long as they are
    down no other one may stop. Then, for each OSD in turn: the monitors must agree that it may stop, it gets the
    flag ``noout`` so that no data moves, its daemon is restarted, it must come up again, the flag goes, and every
    PG must be active+clean before the next one. The flag is in the journal before it is set, and stays as long as
    the OSD is down; an OSD that had it keeps it.

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
        self._flags = NooutFlags(admin, journal)
        self._daemons = daemons
        self._progress = progress
        self._patience_seconds = patience_seconds

    def why_not(self, osds: Sequence[int]) -> str:
        return next((why for osd in osds if (why := self._daemons.why_not(osd))), "")

    def restart(self, osds: Sequence[int], done: Callable[[int], None]) -> None:
        self._flags.take_back()
        there = self._still_there(osds, done)
        down = [osd for osd in there if not there[osd]["up"]]
        dead = self._start(down, done) if down else None
        for osd in there:
            if osd not in down and self._still_there([osd], done):
                self._require_stoppable(osd)
                self._restart([osd], done)
        if dead is not None:
            raise dead

    def _still_there(self, osds: Sequence[int], done: Callable[[int], None]) -> dict[int, Mapping[str, Any]]:
        """Those that nobody has purged meanwhile, by the map; the others are done."""
        there = osds_of_map(self._admin)
        for gone in (osd for osd in osds if osd not in there):
            self._progress.note(f"osd.{gone} is no more; it need not be restarted")
            done(gone)
        return {osd: there[osd] for osd in osds if osd in there}

    def _start(self, osds: Sequence[int], done: Callable[[int], None]) -> OsdsDownError | None:
        """Start those that are down.

        Returns:
            The error of such as stay down and hold no data, because their disks are broken.

        Raises:
            OsdsDownError: as long as they are down, no other one may stop.
        """
        try:
            self._restart(osds, done)
        except OsdsDownError as error:
            if reasons_against(self._admin.command("status")):
                raise
            return error
        return None

    def _restart(self, osds: Sequence[int], done: Callable[[int], None]) -> None:
        before = self._still_there(osds, done)
        refused: dict[int, CephfitError] = {}
        for osd, found in before.items():
            self._flags.set(osd, found)
            self._progress.note(f"{'restarting' if found['up'] else 'starting'} osd.{osd}")
            try:
                self._daemons.restart(osd)
            except (ClusterError, HostError) as error:
                refused[osd] = error
        late = self._await_up({osd: found["up_from"] for osd, found in before.items() if osd not in refused})
        now = osds_of_map(self._admin)
        refused = {osd: error for osd, error in refused.items() if osd in now}
        for osd in before:
            if osd not in late and osd not in refused:
                done(osd)
        self._flags.take_back()
        if refused or late:
            raise self._not_anew(refused, late, now)
        for osd in before:
            self._await_clean(osd)

    def _not_anew(
        self, refused: Mapping[int, CephfitError], late: Sequence[int], now: Mapping[int, Mapping[str, Any]]
    ) -> OsdsDownError:
        """Args:
        refused: those that nobody restarted, and why.
        late: those that were restarted and did not come up.
        now: all there are.
        """
        whats, remedies = [], []
        for osd, error in refused.items():
            state = "runs on as it was" if now[osd]["up"] else "is down"
            whats.append(f"osd.{osd} was not restarted and {state}: {error.what}")
            remedies.append(error.remedy)
        if late:
            names = ", ".join(f"osd.{osd}" for osd in late)
            whats.append(f"{names} did not come up within {self._patience_seconds:.0f} s after being restarted")
        down = [*(osd for osd in refused if not now[osd]["up"]), *late]
        if down:
            remedies.append(
                "look at its log. While it is down it keeps the flag noout, so that no data moves (`ceph osd "
                "rm-noout` removes it); when it is up, or purged (`ceph osd purge`), run the same command again"
            )
        elif not any(remedies):
            remedies.append("when it can be restarted, run the same command again")
        osds = sorted([*refused, *late])
        return OsdsDownError(
            "; ".join(whats),
            osds=osds,
            down=sorted(down),
            where=", ".join(f"osd.{osd}" for osd in osds),
            remedy="; ".join(dict.fromkeys(filter(None, remedies))),
        )

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
                remedy="wait until all PGs have all their copies; pools without redundancy never allow it",
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

    def _pgs_of(self, osd: int) -> Sequence[Mapping[str, Any]] | None:
        """None while the manager does not know: for some seconds after a change of the map."""
        return listed_pgs(self._admin.command("pg ls-by-osd", osd=osd))

    def _await_up(self, before: Mapping[int, int]) -> tuple[int, ...]:
        """Those that do not come up; one that is purged meanwhile is not waited for.

        Args:
            before: OSD to the epoch in which it had come up before its restart.
        """

        def look() -> tuple[int, ...]:
            there = osds_of_map(self._admin)
            return tuple(
                osd
                for osd, epoch in before.items()
                if osd in there and (not there[osd]["up"] or there[osd]["up_from"] <= epoch)
            )

        return wait_until_clear(look, seconds=self._patience_seconds, poll_seconds=_POLL_SECONDS)

    def _await_clean(self, osd: int) -> None:
        why = wait_until_clear(
            lambda: self._unclean(osd), seconds=self._patience_seconds, poll_seconds=_POLL_SECONDS
        )
        if why:
            raise ClusterError(
                f"not healthy {self._patience_seconds:.0f} s after the restart of osd.{osd}: {why}",
                where=f"osd.{osd}",
                remedy="no further OSD is restarted; when the cluster is healthy, run the same command again",
            )

    def _unclean(self, osd: int) -> str:
        """What is amiss still; a PG that has not reported since the OSD came up says nothing about now."""
        found = osds_of_map(self._admin).get(osd)
        if found is not None:  # one that somebody purges has no PGs
            pgs = self._pgs_of(osd)
            if pgs is None:
                return f"the manager has not heard of the PGs of osd.{osd}"
            silent = sum(int(pg["reported_epoch"]) < found["up_from"] for pg in pgs)
            if silent:
                return f"{silent} PGs of osd.{osd} have not reported"
        return "; ".join(reasons_against(self._admin.command("status")))


def pools_that_would_stop(pgs: Sequence[Mapping[str, Any]], pools: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
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
