"""Count the servers of a cloud by class of workload."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from openstack.connection import Connection

from cephfit.cloud.cloud_connection import persistently


@dataclass(frozen=True, slots=True)
class ServerCounts:
    """Servers by class.

    Attributes:
        cloud: name.
        by_class: every class, also with 0.
        unmatched: servers in no class.
    """

    cloud: str
    by_class: Mapping[str, int]
    unmatched: int

    @property
    def sentence(self) -> str:
        """What was counted, for display."""
        counted = ", ".join(f"{n} {name}" for name, n in self.by_class.items())
        rest = f"; {self.unmatched} more servers are in no class" if self.unmatched else ""
        return f"counted in cloud {self.cloud}: {counted}{rest}"


def count_servers(cloud: Connection, classes: Sequence[str]) -> ServerCounts:
    """Count the servers that this user sees, each in at most one class.

    A server belongs to the class whose name is a part of its own name, such as ``db`` of ``db-17``; of several, to
    the one with the longest name. Otherwise it belongs to the class with the name of a volume type of its volumes.

    Args:
        cloud: connection.
        classes: names.

    Raises:
        ClusterError: Nova or Cinder refuses or does not answer.
    """
    servers = persistently(lambda: list(cloud.compute.servers()), where=f"cloud {cloud.name}: servers")
    types: dict[str, list[str]] = {}
    for volume in persistently(lambda: list(cloud.block_storage.volumes()), where=f"cloud {cloud.name}: volumes"):
        for attachment in volume.attachments or ():
            types.setdefault(str(attachment["server_id"]), []).append(str(volume.volume_type))
    counts: Counter[str | None] = Counter(_class_of(s.name or "", types.get(s.id, ()), classes) for s in servers)
    return ServerCounts(cloud.name, {name: counts[name] for name in classes}, counts[None])


def _class_of(name: str, volume_types: Sequence[str], classes: Sequence[str]) -> str | None:
    """Return the class of a server; None if it is in none."""
    own = set(re.split(r"[^a-z0-9]+", name.lower()))
    for one in sorted(classes, key=len, reverse=True):
        words = re.split(r"[^a-z0-9]+", one.lower())
        if one.lower() in name.lower() and own.issuperset(words):
            return one
    return next((one for one in classes if one in volume_types), None)
