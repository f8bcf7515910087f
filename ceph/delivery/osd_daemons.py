"""Ways to restart one OSD of an existing cluster, and the journalled list of OSDs that need a restart.

An OSD is in the journal before a value is changed that it reads only at its start.
"""

import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.hosts.host import checked
from cephfit.ceph.hosts.host_access import Hosts
from cephfit.core.errors import ClusterError, HostError
from cephfit.core.journal import Journal
from cephfit.core.protocols import CephAdmin

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
