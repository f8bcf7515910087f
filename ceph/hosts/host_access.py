"""The hosts that a target may access, by their names in Ceph."""

import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cephfit.ceph.hosts.host import Host, LocalHost
from cephfit.ceph.hosts.ssh_host import SshHost
from cephfit.core.errors import LackingError


@dataclass(frozen=True, slots=True)
class SshAccess:
    """SSH access to the hosts of a cluster.

    Attributes:
        user: login name; the SSH configuration's unless given.
        config: SSH configuration; ``~/.ssh/config`` unless given.
        destinations: host name in Ceph to SSH destination, where they differ.
    """

    user: str = ""
    config: Path | None = None
    destinations: Mapping[str, str] = field(default_factory=dict)


class Hosts:
    """The hosts of one target. Connections are opened on demand and kept.

    Args:
        access: None: this machine only.
        all_local: every name means this machine, as in a lab with hosts that exist only in its CRUSH map.
    """

    def __init__(self, access: SshAccess | None = None, *, all_local: bool = False) -> None:
        self._access = access
        self._all_local = all_local
        self._open: dict[str, Host] = {}

    def named(self, name: str) -> Host:
        """Return the host that Ceph calls ``name``, without connecting.

        Raises:
            LackingError: it is another machine, and no access was configured.
        """
        if name not in self._open:
            self._open[name] = self._make(name)
        return self._open[name]

    def _make(self, name: str) -> Host:
        reported = self._access.destinations if self._access else {}
        if self._all_local or (name in ("localhost", socket.gethostname()) and name not in reported):
            return LocalHost(name)
        if self._access is None:
            raise LackingError(
                "settings of this host need access to it",
                where=name,
                remedy="allow SSH to the OSD hosts with --ssh, or do not use these settings",
            )
        destination = self._access.destinations.get(name, name)
        if self._access.user and "@" not in destination:
            destination = f"{self._access.user}@{destination}"
        return SshHost(destination, name=name, config=self._access.config)

    def close(self) -> None:
        """Close all connections."""
        while self._open:
            self._open.popitem()[1].close()
