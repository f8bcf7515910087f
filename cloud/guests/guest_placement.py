"""The compute host of each guest, and its hypervisor's I/O counters.

The host is kept with every sample. The counters come from Nova's server diagnostics, as an independent count for
fio's figures.
"""

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import novaclient.exceptions as nova  # type: ignore[import-untyped]
from novaclient import client as nova_client
from openstack.connection import Connection

from cephfit.cloud.cloud_connection import one_line, persistently
from cephfit.cloud.stacks import Node
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Client
from cephfit.measure.engine import CellOutcome, CellRun, ClientOutcome, CountsIo, Engine, MovedBytes


@dataclass(frozen=True, slots=True)
class Place:
    """The host of a guest.

    Attributes:
        server: its id.
        host: the hypervisor's name; empty where Nova hides it from this user (by default only administrators see
            it).
        host_id: Nova's name of the host for all users: the same for all servers of a project on one host.
    """

    server: str
    host: str
    host_id: str

    def __str__(self) -> str:
        return self.host or f"host {self.host_id[:12]}"

    def to_json(self) -> dict[str, str]:
        """For a sample's evidence."""
        return {"server": self.server, "host": self.host, "host_id": self.host_id}


class KnowsPlaces(Protocol):
    """A target whose clients are guests."""

    @abstractmethod
    def places(self) -> Mapping[str, Place]:
        """Return the current place of each client, by the client's name.

        Raises:
            ClusterError: Nova does not answer.
        """

    @abstractmethod
    def n_guests(self) -> int:
        """Return the number of existing guests, including those that a load leaves idle."""


def places_of(cloud: Connection, nodes: Sequence[Node]) -> dict[str, Place]:
    """Return the place of each node's server, by the node's name."""
    found = {}
    for node in nodes:
        server = _asked(cloud, node.server)
        found[node.name] = Place(node.server, str(server.hypervisor_hostname or ""), str(server.host_id or ""))
    return found


def _asked(cloud: Connection, server: str) -> Any:
    return persistently(lambda: cloud.compute.get_server(server), where=f"server {server}")


class PlacedEngine(Engine):
    """Measures with another engine, and adds the place of its guest to each sample.

    A guest that was moved to another host during a run makes its sample invalid: it was paused during the move,
    and then used another host's network.

    Args:
        engine: that measures.
        target: knows the places of the guests.
    """

    def __init__(self, engine: Engine, target: KnowsPlaces) -> None:
        self._engine = engine
        self._target = target

    def facts(self) -> Mapping[str, Any]:
        """See Engine."""
        return self._engine.facts()

    def warm(self, run: CellRun) -> None:
        """See Engine."""
        self._engine.warm(run)

    def run(self, run: CellRun) -> CellOutcome:
        """See Engine."""
        try:
            before = self._target.places()
        except ClusterError as error:
            return CellOutcome({c.name: ClientOutcome(None, str(error)) for c in run.clients}, None)
        outcome = self._engine.run(run)
        try:
            after = self._target.places()
        except ClusterError as error:
            lost = {n: replace(given, doubt=str(error)) for n, given in outcome.clients.items()}
            return replace(outcome, clients=lost)
        idle = self._target.n_guests() - len(run.clients)
        clients = {}
        for name, given in outcome.clients.items():
            evidence = {**given.evidence, "placement": {**after[name].to_json(), "idle_guests": idle}}
            moved = moved_away(before[name], after[name])
            clients[name] = replace(given, doubt="; ".join(filter(None, (given.doubt, moved))), evidence=evidence)
        return replace(outcome, clients=clients)


def moved_away(before: Place, after: Place) -> str:
    """Return why a guest's move makes a run invalid; empty if its host is the same."""
    if (before.host, before.host_id) == (after.host, after.host_id):
        return ""
    return f"its guest was moved from {before} to {after} during the run"


_WITH_DEVICE_NAMES = "2.47"
"""Up to 2.47 the answer has the hypervisor's names (``vdb_read``); later versions do not name disks."""
_COUNT_SECONDS = 1.0


class ServerDiagnostics(CountsIo):
    """Counts the I/O of libvirt guests, with python-novaclient: the SDK has no call for it.

    By default Nova's policy allows only administrators to read the diagnostics; other users get the reason.

    Args:
        cloud: connection; provides the session.
        nodes: the guests.
    """

    count_source = "the hypervisor (Nova's server diagnostics)"
    count_seconds = _COUNT_SECONDS

    def __init__(self, cloud: Connection, nodes: Sequence[Node]) -> None:
        self._nova = nova_client.Client(
            _WITH_DEVICE_NAMES,
            session=cloud.session,
            region_name=cloud.config.region_name or None,
            endpoint_override=cloud.config.get_endpoint("compute"),  # clouds.yaml may set it
        )
        self._nodes = {node.name: node for node in nodes}
        self._devices = {node.name: device_of(cloud, node) for node in nodes}

    def moved(self, client: Client) -> MovedBytes:
        """See CountsIo.

        Raises:
            ClusterError: Nova does not answer, or the hypervisor does not count for this disk.
        """
        node = self._nodes[client.name]
        where = f"server {node.server}"
        try:
            _, body = persistently(self._nova.servers.diagnostics, node.server, where=where)
        except nova.Forbidden:
            raise ClusterError(
                "Nova's policy does not allow this user to read server diagnostics", where=where
            ) from None
        except nova.ClientException as error:
            raise ClusterError(one_line(error), where=where) from None
        return moved_of(body or {}, self._devices[client.name])


def moved_of(diagnostics: Mapping[str, Any], device: str) -> MovedBytes:
    """Return the counters of one disk.

    Args:
        diagnostics: Nova's answer up to API version 2.47, from libvirt: ``{"vdb_read": 4096, ...}``.
        device: such as ``vdb``.

    Raises:
        ClusterError: the hypervisor does not count for this disk.
    """
    read, written = diagnostics.get(f"{device}_read"), diagnostics.get(f"{device}_write")
    if not isinstance(read, int) or not isinstance(written, int):
        raise ClusterError(f"the hypervisor does not count the I/O of disk {device}")
    return MovedBytes(read, written)


def device_of(cloud: Connection, node: Node) -> str:
    """Return the hypervisor's name of a guest's volume, such as ``vdb``.

    Raises:
        ClusterError: the volume is not attached to the guest.
    """
    found = persistently(
        lambda: list(cloud.compute.volume_attachments(node.server)), where=f"server {node.server}"
    )
    for attachment in found:
        if attachment.volume_id == node.volume and attachment.device:
            return re.sub("^/dev/", "", str(attachment.device))
    raise ClusterError(f"volume {node.volume} is not attached", where=f"client {node.name} (server {node.server})")
