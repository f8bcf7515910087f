"""Daemons asked on their own hosts, by their admin sockets: before Mimic they tell their values nowhere else."""

import json
from collections.abc import Sequence
from typing import Any

from cephfit.errors import ClusterError
from cephfit.protocols import CephAdmin
from cephfit.sweep.admin.daemons import Daemon
from cephfit.sweep.hosts.access import Hosts
from cephfit.sweep.hosts.host import checked


class AdminSockets:
    """Asks by ``ceph daemon NAME ...`` on the daemon's host.

    Args:
        admin: knows where the daemons are.
        hosts: reaches them.
        conf_path: of the ceph.conf there, which says where sockets are; ``$id`` and ``$name`` are the daemon's.
    """

    def __init__(self, admin: CephAdmin, hosts: Hosts, conf_path: str) -> None:
        self._admin = admin
        self._hosts = hosts
        self._conf_path = conf_path
        self._places: dict[str, str] = {}

    def ask(self, daemon: Daemon, *words: str) -> Any:
        """A command's JSON.

        Raises:
            HostError: the host cannot be reached, or the daemon does not answer there.
            ClusterError: the cluster does not say where the daemon is.
        """
        path = self._conf_path.replace("$name", daemon.name).replace("$id", daemon.id)
        host = self._hosts.named(self._host_of(daemon))
        return json.loads(checked(host, ["ceph", "--conf", path, "daemon", daemon.name, *words]))

    def one_of_each_host(self, daemons: Sequence[Daemon]) -> Sequence[Daemon]:
        """The first of these on every host."""
        return tuple({self._host_of(daemon): daemon for daemon in reversed(daemons)}.values())

    def _host_of(self, daemon: Daemon) -> str:
        if daemon.name not in self._places:
            said = self._admin.command(f"{daemon.kind} metadata")
            self._places |= {
                f"{daemon.kind}.{e.get('id', e.get('name'))}": e["hostname"] for e in said if "hostname" in e
            }
        if daemon.name not in self._places:
            raise ClusterError("the cluster does not say which host it runs on", where=daemon.name)
        return self._places[daemon.name]
