"""Restarts of OSDs on a cluster in use: which are due, the ways to restart one, and all of them in turn.

An OSD is in the journal before a value is changed that it reads only at its start. It has the flag ``noout``
while it is down for its restart, so that its data does not move.
"""

import errno
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from cephfit.ceph.admin.answers import RefusedError, listed_pgs
from cephfit.ceph.ceph_health import reasons_against
from cephfit.ceph.cluster_adapters import OsdsDownError
from cephfit.ceph.host import checked
from cephfit.ceph.host_access import Hosts
from cephfit.ceph.pools.pool_plan import POOL_PREFIX
from cephfit.core.errors import CephfitError, ClusterError, HostError
from cephfit.core.journal import Journal
from cephfit.core.protocols import CephAdmin, Progress
from cephfit.core.waiting import wait_until_clear

_RESTART = "restart"


class RestartsDue:
    """A list of OSDs that survives this process.

    Args:
        journal: of the target.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def note(self, osds: Iterable[int]) -> None:
        """Add OSDs that will need a restart; returns after it is on the disk."""
        for osd in osds:
            self._journal.note(_RESTART, str(osd), None)

    def due(self) -> tuple[int, ...]:
        """Return the OSDs that still need a restart."""
        return tuple(sorted(int(e.place) for e in self._journal.entries(_RESTART)))

    def restarted(self, osd: int) -> None:
        """Remove an OSD: it was restarted."""
        self._journal.forget(_RESTART, str(osd))


_RESTART_SECONDS = 120.0
"""Time limit of the command. systemd waits 90 s for the old daemon's end, then kills it (systemd.service(5))."""


class OsdDaemons(Protocol):
    """Restarts the daemon of one OSD; the caller checks that it comes up again."""

    def why_not(self, osd: int) -> str:
        """Return why this OSD cannot be restarted from here; empty if it can. Changes nothing."""

    def restart(self, osd: int) -> None:
        """Restart the daemon.

        Raises:
            ClusterError, HostError: it was not restarted.
        """


class CephadmOsds:
    """Implements ``OsdDaemons`` by the cluster's orchestrator: ``ceph orch daemon restart osd.N``.

    The manager restarts the daemon some seconds later, through the host's cephadm.
    """

    def __init__(self, admin: CephAdmin) -> None:
        self._admin = admin

    def why_not(self, osd: int) -> str:
        try:
            state = self._admin.command("orch status")
        except RefusedError as error:
            return f"the cluster has no orchestrator to restart OSDs: {error.what}"
        if not state.get("available"):
            return (
                f"the cluster's orchestrator ({state.get('backend')}) is not available: {state.get('reason', '')}"
            )
        return ""

    def restart(self, osd: int) -> None:
        self._admin.command("orch daemon", action="restart", name=f"osd.{osd}")


class SystemdOsds:
    """Implements ``OsdDaemons`` by ``systemctl restart ceph-osd@N`` on the OSD's host.

    Before each restart the start counter is reset (``systemctl reset-failed``, systemctl(1)): Ceph's unit has
    ``StartLimitBurst=3`` and ``StartLimitInterval=30min``, also for manual starts (systemd.unit(5)).

    Args:
        admin: locates the hosts of OSDs.
        hosts: gives access to them.
    """

    def __init__(self, admin: CephAdmin, hosts: Hosts) -> None:
        self._admin = admin
        self._hosts = hosts

    def why_not(self, osd: int) -> str:
        name = self._host_of(osd)
        try:
            unit = self._hosts.named(name).run(
                ["systemctl", "show", "--property=LoadState", "--value", _unit(osd)], seconds=_RESTART_SECONDS
            )
        except HostError as error:
            return f"host {name} of osd.{osd} does not answer: {error.what}"
        state = unit.stdout.strip()
        return "" if state == "loaded" else f"host {name} has no unit {_unit(osd)} ({state or unit.words})"

    def restart(self, osd: int) -> None:
        host = self._hosts.named(self._host_of(osd))
        # The unit allows three starts in half an hour, including manual ones; after the fourth it stays stopped.
        host.run(["systemctl", "reset-failed", _unit(osd)], seconds=_RESTART_SECONDS)
        checked(host, ["systemctl", "restart", _unit(osd)], seconds=_RESTART_SECONDS)

    def _host_of(self, osd: int) -> str:
        return str(self._admin.command("osd metadata", id=osd)["hostname"])


_BY_HAND = "run the program manually, with the OSD's number and its host, to see why; then the same command again"


class ProgramOsds:
    """Implements ``OsdDaemons`` by a program of the site, called as ``PROGRAM OSD HOST``.

    Args:
        admin: locates the hosts of OSDs.
        program: path; must end with code 0 when it has restarted the OSD.
    """

    def __init__(self, admin: CephAdmin, program: Path) -> None:
        self._admin = admin
        self._program = program

    def why_not(self, osd: int) -> str:
        return "" if self._program.is_file() else f"there is no program {self._program}"

    def restart(self, osd: int) -> None:
        host = str(self._admin.command("osd metadata", id=osd).get("hostname", ""))
        argv: Sequence[str] = [str(self._program), str(osd), host]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_RESTART_SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HostError(
                f"the program did not restart osd.{osd}: {error}", where=str(self._program), remedy=_BY_HAND
            ) from None
        if done.returncode != 0:
            lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
            raise ClusterError(
                f"the program did not restart osd.{osd} and ended with code {done.returncode}: {lines[-1]}",
                where=str(self._program),
                remedy=_BY_HAND,
            )


def _unit(osd: int) -> str:
    return f"ceph-osd@{osd}.service"


_NOOUT = "noout"


def osds_of_map(admin: CephAdmin) -> dict[int, Mapping[str, Any]]:
    """Return the cluster's OSDs, each as in ``osd dump``."""
    return {int(osd["osd"]): osd for osd in admin.command("osd dump")["osds"]}


class NooutFlags:
    """Sets and removes flags; each is in the journal before it is set.

    Args:
        admin: sends commands.
        journal: of the target.
    """

    def __init__(self, admin: CephAdmin, journal: Journal) -> None:
        self._admin = admin
        self._journal = journal

    def set(self, osd: int, found: Mapping[str, Any]) -> None:
        """Flag an OSD, unless another client has done so.

        Args:
            osd: number.
            found: its entry of ``osds_of_map``.
        """
        if "noout" not in found.get("state", ()):
            self._journal.note(_NOOUT, str(osd), None)
            self._admin.command("osd add-noout", ids=[str(osd)])

    def take_back(self) -> None:
        """Remove the flags, except for OSDs that are still down: their data would begin to move."""
        entries = self._journal.entries(_NOOUT)
        there = osds_of_map(self._admin) if entries else {}
        for entry in entries:
            found = there.get(int(entry.place))
            if found is not None and not found["up"]:
                continue
            if found is not None:  # the flag of a removed OSD is gone with it
                self._admin.command("osd rm-noout", ids=[entry.place])
            self._journal.forget(_NOOUT, entry.place)


_POLL_SECONDS = 0.5
_NOBODY = 2147483647
"""CRUSH_ITEM_NONE: a position of an erasure-coded PG without an OSD."""


class OneByOne:
    """Implements ``RestartsOsds``.

    All OSDs that are down are started first: that is always safe, and while they are down no other OSD may stop.
    Then, for each OSD in turn: the monitors must agree that it may stop; it gets the flag ``noout`` so that no
    data moves; its daemon is restarted; it must come up again; the flag is removed; and every PG must be
    active+clean before the next one. The flag is in the journal before it is set, and stays as long as the OSD is
    down. An OSD that had the flag before keeps it.

    Args:
        admin: sends commands.
        journal: of the target.
        daemons: restarts the daemon of one OSD.
        progress: reports every OSD.
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
        """Return the OSDs that still exist by the map; purged ones are done."""
        there = osds_of_map(self._admin)
        for gone in (osd for osd in osds if osd not in there):
            self._progress.note(f"osd.{gone} no longer exists; it needs no restart")
            done(gone)
        return {osd: there[osd] for osd in osds if osd in there}

    def _start(self, osds: Sequence[int], done: Callable[[int], None]) -> OsdsDownError | None:
        """Start the OSDs that are down.

        Returns:
            The error for OSDs that stay down and hold no data, because their disks are broken.

        Raises:
            OsdsDownError: while they are down, no other OSD may stop.
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
        """Build the error for OSDs that did not come back.

        Args:
            refused: OSDs that were not restarted, and why.
            late: OSDs that were restarted and did not come up.
            now: all OSDs of the map.
        """
        whats, remedies = [], []
        for osd, error in refused.items():
            state = "still runs unchanged" if now[osd]["up"] else "is down"
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
        """Check that an OSD may stop.

        Raises:
            ClusterError: that would stop the I/O of a pool that is not cephfit's.
        """
        why = self._against_stopping(osd)
        if not why:
            return
        pools = pools_that_would_stop(self._pgs_of(osd) or (), self._admin.command("osd dump")["pools"])
        foreign_pools = [name for name in pools if not name.startswith(POOL_PREFIX)]
        if foreign_pools or not pools:
            raise ClusterError(
                f"osd.{osd} must not be stopped now: {why}",
                where=f"pools {', '.join(foreign_pools)}" if foreign_pools else f"osd.{osd}",
                remedy="wait until all PGs have all their copies; pools without redundancy never allow it",
            )

    def _against_stopping(self, osd: int) -> str:
        """Return the monitors' objection; they answer EAGAIN while PGs of new pools are unknown."""
        deadline = time.monotonic() + self._patience_seconds
        while True:
            try:
                reported = self._admin.command("osd ok-to-stop", ids=[str(osd)])
            except RefusedError as error:
                if error.code == errno.EBUSY:
                    return error.what
                if error.code != errno.EAGAIN or time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_SECONDS)
                continue
            is_fine = not isinstance(reported, dict) or reported.get("ok_to_stop", True)
            return "" if is_fine else "the monitors refuse it"

    def _pgs_of(self, osd: int) -> Sequence[Mapping[str, Any]] | None:
        """Return the PGs of an OSD; None while the manager does not know them, some seconds after a map change."""
        return listed_pgs(self._admin.command("pg ls-by-osd", osd=osd))

    def _await_up(self, before: Mapping[int, int]) -> tuple[int, ...]:
        """Wait for OSDs, and return those that do not come up; one that is purged meanwhile is not awaited.

        Args:
            before: OSD to the epoch in which it came up before its restart.
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
        """Return what is still wrong; the state of a PG without a report since the OSD came up is unknown."""
        found = osds_of_map(self._admin).get(osd)
        if found is not None:  # a purged one has no PGs
            pgs = self._pgs_of(osd)
            if pgs is None:
                return f"the manager does not yet know the PGs of osd.{osd}"
            silent = sum(int(pg["reported_epoch"]) < found["up_from"] for pg in pgs)
            if silent:
                return f"{silent} PGs of osd.{osd} have not reported"
        return "; ".join(reasons_against(self._admin.command("status")))


def pools_that_would_stop(pgs: Sequence[Mapping[str, Any]], pools: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the pools with a PG that would have too few OSDs for I/O if one of its OSDs stopped.

    Args:
        pgs: of that OSD, from ``pg ls-by-osd``.
        pools: from ``osd dump``.
    """
    by_id = {pool["pool"]: pool for pool in pools}
    stopped: dict[str, None] = {}
    for pg in pgs:
        pool = by_id[int(pg["pgid"].partition(".")[0])]
        if len([osd for osd in pg["acting"] if osd != _NOBODY]) - 1 < pool["min_size"]:
            stopped[pool["pool_name"]] = None
    return tuple(stopped)
