"""Ways to restart one OSD, and the OSDs that a changed value requires to restart.

Which OSDs run with a value that only a restart changes: in the journal before the value is changed.

Ways to restart one OSD's daemon on somebody else's cluster.
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
    """A list of OSDs that outlives this process.

    Args:
        journal: of the target.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def note(self, osds: Iterable[int]) -> None:
        """These will have to be restarted; returns after it is on the disk."""
        for osd in osds:
            self._journal.note(_RESTART, str(osd), None)

    def due(self) -> tuple[int, ...]:
        """OSDs that have to be restarted still."""
        return tuple(sorted(int(e.place) for e in self._journal.entries(_RESTART)))

    def restarted(self, osd: int) -> None:
        """It has been restarted since."""
        self._journal.forget(_RESTART, str(osd))


_RESTART_SECONDS = 120.0
"""How long the command may take. systemd waits 90 s for the old daemon's end, then kills (systemd.service(5))."""


class OsdDaemons(Protocol):
    """Restarts the daemon of one OSD; whether it comes up again is for the caller to see."""

    def why_not(self, osd: int) -> str:
        """Why this OSD cannot be restarted from here at all; empty if it can. Changes nothing."""

    def restart(self, osd: int) -> None:
        """Raises:
        ClusterError, HostError: it was not restarted.
        """


class CephadmOsds:
    """Implements ``OsdDaemons`` by the cluster's own orchestrator: ``ceph orch daemon restart osd.N``.

    The manager restarts the daemon some seconds later, by way of the host's cephadm.
    """

    def __init__(self, admin: CephAdmin) -> None:
        self._admin = admin

    def why_not(self, osd: int) -> str:
        try:
            said = self._admin.command("orch status")
        except RefusedError as error:
            return f"the cluster has no orchestrator that could restart OSDs: {error.what}"
        if not said.get("available"):
            return f"the cluster's orchestrator ({said.get('backend')}) is not available: {said.get('reason', '')}"
        return ""

    def restart(self, osd: int) -> None:
        self._admin.command("orch daemon", action="restart", name=f"osd.{osd}")


class SystemdOsds:
    """Implements ``OsdDaemons`` by ``systemctl restart ceph-osd@N`` on the OSD's host.

    Before each restart the count of starts is set to zero (``systemctl reset-failed``, systemctl(1)): Ceph's unit
    has ``StartLimitBurst=3`` and ``StartLimitInterval=30min``, also for starts by hand (systemd.unit(5)).

    Args:
        admin: knows the hosts of OSDs.
        hosts: reaches them.
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
            return f"host {name} of osd.{osd} cannot be asked: {error.what}"
        state = unit.stdout.strip()
        return "" if state == "loaded" else f"host {name} has no unit {_unit(osd)} ({state or unit.words})"

    def restart(self, osd: int) -> None:
        host = self._hosts.named(self._host_of(osd))
        # The unit allows three starts in half an hour, those by hand included; after the fourth it stays stopped.
        host.run(["systemctl", "reset-failed", _unit(osd)], seconds=_RESTART_SECONDS)
        checked(host, ["systemctl", "restart", _unit(osd)], seconds=_RESTART_SECONDS)

    def _host_of(self, osd: int) -> str:
        return str(self._admin.command("osd metadata", id=osd)["hostname"])


_BY_HAND = "run the program by hand, with the OSD's number and its host, to see why; then the same command again"


class ProgramOsds:
    """Implements ``OsdDaemons`` by a program of the site's own, called as ``PROGRAM OSD HOST``.

    Args:
        admin: knows the hosts of OSDs.
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
            lines = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()
            raise ClusterError(
                f"the program did not restart osd.{osd} and ended with code {done.returncode}: {lines[-1]}",
                where=str(self._program),
                remedy=_BY_HAND,
            )


def _unit(osd: int) -> str:
    return f"ceph-osd@{osd}.service"
