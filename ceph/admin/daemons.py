"""The running daemons of a cluster, their sections of the config store, and their admin sockets.

Before Mimic the admin socket is the only source of a daemon's values.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cephfit.ceph.host import checked
from cephfit.ceph.host_access import Hosts
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import CephAdmin


@dataclass(frozen=True, slots=True)
class Daemon:
    """A running daemon.

    Attributes:
        kind: ``osd``, ``mon`` or ``mgr``.
        id: such as ``0`` or ``a``.
        device_class: of an OSD.
        location: CRUSH type to bucket name, smallest first: ``{"host": "host0", "root": "default"}``.
    """

    kind: str
    id: str
    device_class: str = ""
    location: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return f"{self.kind}.{self.id}"


def running_daemons(admin: CephAdmin) -> tuple[Daemon, ...]:
    """Return the OSDs that are up, the monitors in quorum and the active manager."""
    daemons = _osds(admin.command("osd tree"))
    daemons += [Daemon("mon", name) for name in admin.command("status")["quorum_names"]]
    if active := admin.command("mgr dump").get("active_name"):
        daemons.append(Daemon("mgr", active))
    return tuple(daemons)


def _osds(tree: Mapping[str, Any]) -> list[Daemon]:
    # An OSD may be in several trees (a separate root for some rule) and is listed in each. The bucket that was
    # created first counts, as in Ceph (CrushWrapper::get_immediate_parent visits them from -1 on).
    parents: dict[int, Mapping[str, Any]] = {}
    for node in sorted(tree["nodes"], key=lambda node: -int(node["id"])):
        for child in node.get("children", ()):
            parents.setdefault(child, node)
    found: dict[str, Daemon] = {}
    for node in tree["nodes"]:
        if node["type"] != "osd" or node["status"] != "up" or str(node["id"]) in found:
            continue
        over: list[Mapping[str, Any]] = []
        above = parents.get(node["id"])
        while above is not None:
            over.append(above)
            above = parents.get(above["id"])
        over.sort(key=lambda bucket: int(bucket["type_id"]))
        location = {bucket["type"]: bucket["name"] for bucket in over}
        found[str(node["id"])] = Daemon("osd", str(node["id"]), node.get("device_class", ""), location)
    return sorted(found.values(), key=lambda d: int(d.id))


def rank(section: str, daemon: Daemon) -> tuple[int, int, int] | None:
    """Return how specific a config store section is to a daemon, as a sort key; None if it does not apply to it.

    The store's rule: a daemon's name beats its type, and ``global`` is the weakest. Within a section, the matching
    mask with the smallest bucket of the CRUSH tree wins. A device class alone is weaker than any bucket, and no
    mask is the weakest (``MaskedOption::get_precision`` in Ceph's ``mon/ConfigMap.cc``). Of two masks with the
    same bucket the store takes either, by the option's name; here the one with a class wins.

    Args:
        section: such as ``global``, ``osd``, ``osd.3``, ``osd/class:hdd``, ``osd/host:host0/class:hdd``.
        daemon: to match.
    """
    name, *masks = section.split("/")
    weight = {"global": 0, daemon.kind: 1, daemon.name: 2}.get(name)
    if weight is None:
        return None
    smallest_last = list(daemon.location)[::-1]
    bucket = device_class = 0
    for mask in masks:
        key, _, value = mask.partition(":")
        if key == "class":
            if daemon.device_class != value:
                return None
            device_class = 1
        elif daemon.location.get(key) != value:
            return None
        else:
            bucket = 1 + smallest_last.index(key)
    return weight, bucket, device_class


def concerned(section: str, daemons: Sequence[Daemon]) -> tuple[Daemon, ...]:
    """Return the daemons that a section applies to."""
    return tuple(d for d in daemons if rank(section, d) is not None)


def strongest(sections: Sequence[str], daemon: Daemon) -> str | None:
    """Return the section, of several with the same option, that gives the daemon its value."""
    ranked = [(r, s) for s in sections if (r := rank(s, daemon)) is not None]
    return max(ranked)[1] if ranked else None


class AdminSockets:
    """Runs ``ceph daemon NAME ...`` on the daemon's host.

    Args:
        admin: of the cluster; locates the daemons.
        hosts: gives access to them.
        conf_path: of the ceph.conf there, which locates the sockets; ``$id`` and ``$name`` are the daemon's.
    """

    def __init__(self, admin: CephAdmin, hosts: Hosts, conf_path: str) -> None:
        self._admin = admin
        self._hosts = hosts
        self._conf_path = conf_path
        self._places: dict[str, str] = {}

    def ask(self, daemon: Daemon, *words: str) -> Any:
        """Run a command and return its JSON.

        Raises:
            HostError: the host is unreachable, or the daemon does not answer there.
            ClusterError: the cluster does not report the daemon's host.
        """
        path = self._conf_path.replace("$name", daemon.name).replace("$id", daemon.id)
        host = self._hosts.named(self._host_of(daemon))
        return json.loads(checked(host, ["ceph", "--conf", path, "daemon", daemon.name, *words]))

    def one_of_each_host(self, daemons: Sequence[Daemon]) -> Sequence[Daemon]:
        """Return the first of these daemons on every host."""
        return tuple({self._host_of(daemon): daemon for daemon in reversed(daemons)}.values())

    def _host_of(self, daemon: Daemon) -> str:
        if daemon.name not in self._places:
            reported = self._admin.command(f"{daemon.kind} metadata")
            self._places |= {
                f"{daemon.kind}.{e.get('id', e.get('name'))}": e["hostname"] for e in reported if "hostname" in e
            }
        if daemon.name not in self._places:
            raise ClusterError("the cluster does not report which host it runs on", where=daemon.name)
        return self._places[daemon.name]
