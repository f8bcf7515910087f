"""How jobs reach guests and results come back: by what works in this cloud.

Guests on a network are first tried as fio servers. Where nobody answers although the guests have started, jobs go
by Nova's rebuilds, and results come as signals to Heat, or by the console where a guest does not reach Heat.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from openstack.connection import Connection

from cephfit.errors import ClusterError
from cephfit.protocols import Client, Progress
from cephfit.sweep.cloud import guests, signals
from cephfit.sweep.cloud.choice import CloudChoice
from cephfit.sweep.cloud.errand_engine import ErrandEngine
from cephfit.sweep.cloud.errands import CONSOLE, SIGNAL, Errands
from cephfit.sweep.cloud.signals import Handle
from cephfit.sweep.cloud.stacks import Node
from cephfit.sweep.engines.engine import CellOutcome, CellRun, CountsIo, Engine
from cephfit.sweep.engines.fio_clocks import ServerClocks
from cephfit.sweep.engines.fio_remote import RemoteFioEngine

SERVER = "server"
_READY_SECONDS = 900.0
"""A guest that installs fio from its distribution's mirrors needs minutes."""
_PATIENCE_SECONDS = 20.0
"""How long a guest that has started its fio server may not answer before it counts as out of reach."""
_LOOKING_SECONDS = 3.0


class Reach:
    """How the guests of one target are reached.

    Args:
        cloud: connection.
        choice: whether they have a network, and by which way results come if somebody said it.
        counts: who counts the I/O of guests that are fio servers.
        progress: hears which way was chosen.
    """

    def __init__(self, cloud: Connection, choice: CloudChoice, counts: CountsIo, progress: Progress) -> None:
        self._cloud = cloud
        self._choice = choice
        self._progress = progress
        self._nodes: dict[str, Node] = {}
        self._handles: dict[str, Handle] = {}
        self._errands = Errands(cloud, choice.image, self._nodes, self._handles)
        self._by_servers = RemoteFioEngine(counts=counts, clocks=ServerClocks())
        self._by_errands = ErrandEngine(self._errands)
        self.way = (choice.results or "") if choice.network else CONSOLE

    @property
    def is_by_errands(self) -> bool:
        """Whether guests get jobs by rebuilds of their servers."""
        return self.way in (SIGNAL, CONSOLE)

    @property
    def errands(self) -> Errands:
        """For jobs that are not fio's."""
        return self._errands

    def moved(self, clients: Sequence[Client], jobs: Mapping[str, str], side: str, nbytes: int) -> dict[str, int]:
        """See ``ErrandEngine.moved``."""
        return self._by_errands.moved(clients, jobs, side, nbytes)

    def engine(self) -> Engine:
        """What measures, whichever way is chosen later."""
        return _ChosenEngine(self, self._by_servers, self._by_errands)

    def wants_handles(self, *, for_errands: bool) -> bool:
        """Whether a stack shall have handles for signals."""
        return self.way == SIGNAL or (for_errands and self.way != CONSOLE)

    def take_up(
        self, nodes: Sequence[Node], nbytes: int, *, stack: str, for_errands: bool = False
    ) -> tuple[Client, ...] | None:
        """The guests of a stack become the clients.

        Args:
            nodes: the guests.
            nbytes: of each one's volume.
            stack: that they are of.
            for_errands: whether they get jobs of other kinds, which fio's servers cannot do.

        Returns:
            The clients; None if the stack must first get handles for signals, because nobody can reach its guests.

        Raises:
            ClusterError: guests do not start.
        """
        by_servers = not (for_errands or self.is_by_errands)
        if by_servers and (n_silent := sum(not guests.answers(n.address, self._choice.port) for n in nodes)):
            self._progress.note(f"waiting for guests to start: {n_silent} of {len(nodes)}")
        if by_servers and self._answer(nodes):
            return tuple(guests.client_of(node, port=self._choice.port, nbytes=nbytes) for node in nodes)
        self._nodes.clear()
        self._nodes.update({node.name: node for node in nodes})
        self._handles.clear()
        if self.wants_handles(for_errands=for_errands):
            self._handles.update(signals.handles(self._cloud, stack))
            if missing := [node.name for node in nodes if node.server not in self._handles]:
                self._progress.note(f"no handle for signals of {', '.join(missing)}: results come by the console")
        elif self.way != CONSOLE:
            self.way = SIGNAL
            return None
        return tuple(guests.console_client_of(node, nbytes=nbytes) for node in nodes)

    def _answer(self, nodes: Sequence[Node]) -> bool:
        """Whether the guests' fio servers answer; if the way was said, they must."""
        port = self._choice.port
        if self.way == SERVER or not (why := self._why_unreachable(nodes)):
            guests.await_ready(self._cloud, nodes, port=port, seconds=_READY_SECONDS)
            self.way = SERVER
            return True
        self._progress.note(f"{why}: jobs go by rebuilds of the servers, results come by Heat's signals")
        return False

    def _why_unreachable(self, nodes: Sequence[Node]) -> str:
        """Why guests that have started are out of reach; empty once one answers, or none started in time.

        Raises:
            ClusterError: their image has no fio.
        """
        deadline = time.monotonic() + _READY_SECONDS
        started: float | None = None
        while time.monotonic() < deadline:
            if any(guests.answers(node.address, self._choice.port) for node in nodes):
                return ""
            first = nodes[0]
            if started is None:
                shown = guests.console(self._cloud, first.server)
                guests.require_fio(shown, first)
                if guests.has_started(shown):
                    started = time.monotonic()
            if started is not None and time.monotonic() - started > _PATIENCE_SECONDS:
                return f"the guests have started, but nothing answers at {first.address}:{self._choice.port}"
            time.sleep(_LOOKING_SECONDS)
        return ""


class _ChosenEngine(Engine):
    """Measures by the one that works, which is known when guests are there."""

    def __init__(self, reach: Reach, by_servers: Engine, by_errands: Engine) -> None:
        self._reach = reach
        self._by_servers = by_servers
        self._by_errands = by_errands

    def facts(self) -> Mapping[str, Any]:
        """See Engine; what was chosen is in the evidence of each sample."""
        if not self._reach.way:
            return {**self._by_servers.facts(), "mode": "client/server, else signal, else console"}
        mode = "client/server" if self._reach.way == SERVER else self._reach.way
        return {**self._by_servers.facts(), "mode": mode}

    def run(self, run: CellRun) -> CellOutcome:
        """See Engine."""
        return self._chosen().run(run)

    def warm(self, run: CellRun) -> None:
        """See Engine."""
        self._chosen().warm(run)

    def _chosen(self) -> Engine:
        if not self._reach.way:
            raise ClusterError("no configuration was applied, so nobody knows how guests are reached")
        return self._by_errands if self._reach.is_by_errands else self._by_servers
