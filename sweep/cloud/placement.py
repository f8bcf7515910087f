"""Where guests are: on which compute host each one runs, kept with every sample."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from openstack.connection import Connection

from cephfit.errors import ClusterError
from cephfit.sweep.cloud.connection import persistently
from cephfit.sweep.cloud.stacks import Node
from cephfit.sweep.engines.engine import CellOutcome, CellRun, ClientOutcome, Engine


@dataclass(frozen=True, slots=True)
class Place:
    """Where a guest runs.

    Attributes:
        server: its id.
        host: the hypervisor's name; empty where Nova does not show it to this user (by default to administrators).
        host_id: Nova's name of the host for everybody: the same for all servers of a project on one host.
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
        """Where each client is now, by the client's name.

        Raises:
            ClusterError: Nova does not say.
        """

    @abstractmethod
    def n_guests(self) -> int:
        """Guests that there are, also those that a load leaves idle."""


def places_of(cloud: Connection, nodes: Sequence[Node]) -> dict[str, Place]:
    """Where each node's server runs, by the node's name."""
    found = {}
    for node in nodes:
        server = _asked(cloud, node.server)
        found[node.name] = Place(node.server, str(server.hypervisor_hostname or ""), str(server.host_id or ""))
    return found


def _asked(cloud: Connection, server: str) -> Any:
    return persistently(lambda: cloud.compute.get_server(server), where=f"server {server}")


class PlacedEngine(Engine):
    """Measures by another engine, and adds to each sample where its guest was.

    A guest that was moved to another host during a run makes its sample invalid: it stood still meanwhile, and
    reached the storage over another host's network.

    Args:
        engine: that measures.
        target: knows where the guests are.
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
    """Why a run must not be trusted during which a guest changed its host; empty if it did not."""
    if (before.host, before.host_id) == (after.host, after.host_id):
        return ""
    return f"its guest was moved from {before} to {after} meanwhile"
