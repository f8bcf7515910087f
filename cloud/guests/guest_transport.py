"""Transport of jobs to guests and of results back, by the way that works in a cloud.

Guests on a network are tried as fio servers first. If no server answers although the guests have started, each
cell becomes one guest job: Nova's rebuild sends it, and the result returns as a signal to Heat, or on the console
if a guest does not reach Heat.
"""

import ipaddress
import json
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from openstack.connection import Connection

from cephfit.cloud.cloud_choice import CloudChoice
from cephfit.cloud.cloud_connection import persistently
from cephfit.cloud.guests import guest_jobs, guests
from cephfit.cloud.guests.guest_jobs import CONSOLE, SIGNAL, Answers, GuestJobs, Handle
from cephfit.cloud.stacks import Node
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Client, Progress
from cephfit.measure.engine import (
    CHECK_STORAGE,
    SLOWEST_NBYTES_PER_S,
    CellOutcome,
    CellRun,
    ClientOutcome,
    CountsIo,
    Engine,
)
from cephfit.measure.fio.fio_files import (
    UnusableOutputError,
    error_of,
    jobs_by_client,
    read_output,
    render_job,
    render_warming,
)
from cephfit.measure.fio.fio_local import FioEngine, figures_of
from cephfit.measure.fio.fio_remote import RemoteFioEngine, drain_seconds, why_not_together
from cephfit.measure.fio.fio_servers import ServerClocks


class GuestJobEngine(Engine):
    """Measures by guest jobs, one per cell and client.

    Args:
        guest_jobs: sends jobs and returns results.
    """

    def __init__(self, guest_jobs: GuestJobs) -> None:
        self._guest_jobs = guest_jobs

    def facts(self) -> Mapping[str, Any]:
        """See Engine."""
        return {**FioEngine().facts(), "mode": "signal, else console"}

    def run(self, run: CellRun) -> CellOutcome:
        """See Engine."""
        jobs = {c.name: render_job(replace(run, clients=[c])) for c in run.clients}
        seconds = run.measurement.ramp_seconds + run.measurement.run_seconds
        try:
            answers = self._send(run.clients, jobs, seconds=seconds)
        except ClusterError as error:
            return CellOutcome({c.name: ClientOutcome(None, str(error)) for c in run.clients}, None)
        together = answers.together()
        outcomes = {}
        documents = []
        for client in run.clients:
            answer = answers.results[client.name]
            try:
                documents.append(document := read_output(answer.output))
                job = jobs_by_client(document, [client.name])[client.name]
                metrics, evidence = figures_of(job, run)
            except (UnusableOutputError, KeyError) as error:
                outcomes[client.name] = ClientOutcome(None, f"{error}; fio's messages: {answer.errors or 'none'}")
                continue
            evidence = {**evidence, "together": together, "results_by": answer.by}
            uncounted = "there is no independent count between two rebuilds of a guest"
            outcomes[client.name] = ClientOutcome(metrics, uncounted=uncounted, evidence=evidence)
        drain = drain_seconds((outcome.metrics for outcome in outcomes.values()), run.measurement.run_seconds)
        doubt = why_not_together(together, run.measurement.run_seconds, drain=drain)
        for name, outcome in outcomes.items():
            if outcome.metrics is not None:
                outcomes[name] = replace(outcome, doubt=doubt)
        # Write one document, like that of one fio with a job for each client.
        whole = {**documents[0], "jobs": [job for d in documents for job in d["jobs"]]} if documents else None
        return CellOutcome(outcomes, json.dumps(whole) if whole is not None else None)

    def warm(self, run: CellRun) -> None:
        """See Engine."""
        jobs = {c.name: render_warming(replace(run, clients=[c])) for c in run.clients}
        moved = self.moved(run.clients, jobs, "read", max(c.nbytes for c in run.clients))
        for client in run.clients:
            if moved[client.name] < client.nbytes:
                raise ClusterError(
                    f"only {moved[client.name]} of {client.nbytes} bytes could be read",
                    where=f"client {client.name}",
                    remedy=CHECK_STORAGE,
                )

    def moved(self, clients: Sequence[Client], jobs: Mapping[str, str], side: str, nbytes: int) -> dict[str, int]:
        """Run jobs that read or write everything once; return the bytes by client.

        Raises:
            ClusterError: a guest returned no result.
        """
        seconds = nbytes * len(clients) / SLOWEST_NBYTES_PER_S
        answers = self._send(clients, jobs, seconds=seconds, together=False)
        found = {}
        for client in clients:
            result = answers.results[client.name]
            try:
                job = jobs_by_client(read_output(result.output), [client.name])[client.name]
                found[client.name] = 0 if error_of(job) else int(job[side]["io_bytes"])
            except (UnusableOutputError, KeyError) as error:
                raise ClusterError(
                    f"{error}; fio's messages: {result.errors}",
                    where=f"client {client.name}",
                    remedy=CHECK_STORAGE,
                ) from None
        return found

    def _send(
        self, clients: Sequence[Client], jobs: Mapping[str, str], *, seconds: float, together: bool = True
    ) -> Answers:
        scripts = {name: script_of(job) for name, job in jobs.items()}
        return self._guest_jobs.send(clients, scripts, seconds=seconds, together=together)


def script_of(job: str) -> str:
    """Return the shell script that runs a fio job."""
    there = "/tmp/cephfit.fio"
    # A rebuild removes packages that were installed at a guest's first start. Guests run this text as it is.
    without = 'echo "the image has no fio, which guests without a network need" >&2; exit 127'
    lines = (
        f"cat >{there} <<'CEPHFIT-END'\n{job}\nCEPHFIT-END",
        f"command -v fio >/dev/null || {{ {without}; }}",
        f"exec fio --output-format=json {there}",
    )
    return "\n".join([*lines, ""])


SERVER = "server"
_READY_SECONDS = 900.0
"""Limit for the guests' start: the installation of fio from a distribution's mirror takes minutes."""
_PATIENCE_SECONDS = 20.0
"""Time without an answer after which a started fio server counts as unreachable."""
_LOOKING_SECONDS = 3.0


class GuestTransport:
    """Chooses and holds the transport to the guests of one target.

    Args:
        cloud: connection.
        choice: whether guests have a network, and the way of results if the target names it.
        counts: source of independent counts for guests that are fio servers.
        progress: receives a note on the chosen way.
    """

    def __init__(self, cloud: Connection, choice: CloudChoice, counts: CountsIo, progress: Progress) -> None:
        self._cloud = cloud
        self._choice = choice
        self._progress = progress
        self._nodes: dict[str, Node] = {}
        self._handles: dict[str, Handle] = {}
        self._guest_jobs = GuestJobs(cloud, choice.image, self._nodes, self._handles)
        self._by_servers = RemoteFioEngine(counts=counts, clocks=ServerClocks())
        self._by_guest_jobs = GuestJobEngine(self._guest_jobs)
        self.way = (choice.results or "") if choice.network else CONSOLE

    @property
    def uses_guest_jobs(self) -> bool:
        """Whether guests get jobs by rebuilds of their servers instead of fio servers."""
        return self.way in (SIGNAL, CONSOLE)

    @property
    def guest_jobs(self) -> GuestJobs:
        """Jobs other than fio's."""
        return self._guest_jobs

    def moved(self, clients: Sequence[Client], jobs: Mapping[str, str], side: str, nbytes: int) -> dict[str, int]:
        """See ``GuestJobEngine.moved``."""
        return self._by_guest_jobs.moved(clients, jobs, side, nbytes)

    def engine(self) -> Engine:
        """Return the engine, which uses the way that is chosen later."""
        return _ChosenEngine(self, self._by_servers, self._by_guest_jobs)

    def needs_handles(self, *, for_guest_jobs: bool) -> bool:
        """Return whether a stack needs handles for signals."""
        return self.way == SIGNAL or (for_guest_jobs and self.way != CONSOLE)

    def adopt_guests(
        self, nodes: Sequence[Node], nbytes: int, *, stack: str, for_guest_jobs: bool = False
    ) -> tuple[Client, ...] | None:
        """Make the guests of a stack the clients.

        Args:
            nodes: the guests.
            nbytes: size of each volume.
            stack: its name.
            for_guest_jobs: whether they get jobs other than fio's, which fio servers cannot run.

        Returns:
            The clients; None if the stack needs handles for signals first, because its guests are unreachable.

        Raises:
            ClusterError: guests do not start.
        """
        by_servers = not (for_guest_jobs or self.uses_guest_jobs)
        if by_servers and (n_silent := sum(not guests.answers(n.address, self._choice.port) for n in nodes)):
            self._progress.note(f"waiting for guests to start: {n_silent} of {len(nodes)}")
        if by_servers and self._answer(nodes):
            return tuple(guests.client_of(node, port=self._choice.port, nbytes=nbytes) for node in nodes)
        self._nodes.clear()
        self._nodes.update({node.name: node for node in nodes})
        self._handles.clear()
        if self.needs_handles(for_guest_jobs=for_guest_jobs):
            self._handles.update(guest_jobs.handles(self._cloud, stack))
            if missing := [node.name for node in nodes if node.server not in self._handles]:
                self._progress.note(
                    f"no handle for signals of {', '.join(missing)}: results return by the console"
                )
        elif self.way != CONSOLE:
            self.way = SIGNAL
            return None
        return tuple(guests.console_client_of(node, nbytes=nbytes) for node in nodes)

    def _answer(self, nodes: Sequence[Node]) -> bool:
        """Return whether the guests' fio servers answer; require it if the target names this way."""
        port = self._choice.port
        if self.way == SERVER or not (why := self._why_unreachable(nodes)):
            guests.await_ready(self._cloud, nodes, port=port, seconds=_READY_SECONDS)
            self.way = SERVER
            return True
        self._progress.note(f"{why}: jobs are sent by rebuilds of the servers, results return by Heat's signals")
        return False

    def _why_unreachable(self, nodes: Sequence[Node]) -> str:
        """Return why started guests are unreachable; empty once one answers, or if none started in time.

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
    """Measures with the engine that works, which is known when the guests exist."""

    def __init__(self, transport: GuestTransport, by_servers: Engine, by_guest_jobs: Engine) -> None:
        self._transport = transport
        self._by_servers = by_servers
        self._by_guest_jobs = by_guest_jobs

    def facts(self) -> Mapping[str, Any]:
        """See Engine; the chosen way is in the evidence of each sample."""
        if not self._transport.way:
            return {**self._by_servers.facts(), "mode": "client/server, else signal, else console"}
        mode = "client/server" if self._transport.way == SERVER else self._transport.way
        return {**self._by_servers.facts(), "mode": mode}

    def run(self, run: CellRun) -> CellOutcome:
        """See Engine."""
        return self._chosen().run(run)

    def warm(self, run: CellRun) -> None:
        """See Engine."""
        self._chosen().warm(run)

    def _chosen(self) -> Engine:
        if not self._transport.way:
            raise ClusterError("no configuration was applied, so the transport to guests is not chosen yet")
        return self._by_guest_jobs if self._transport.uses_guest_jobs else self._by_servers


NO_HOST = "127.0.0.1/32"
"""An address that no host has on a network."""
_DISCARD = 9
"""A port. Nothing is sent to it: the kernel only chooses the route."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class From:
    """Addresses that may reach guests.

    Attributes:
        cidr: the addresses.
        note: reason for this choice, for people.
    """

    cidr: str
    note: str


def reached_from(cloud: Connection, network: str) -> From:
    """Return this machine's address towards the guests of a network, by its routes.

    Without a route into that network it is the address towards the cloud. If that is not exactly one address, no
    host gets access. Address translation on the way cannot be detected here; the target has to name
    ``reached_from`` then.

    Args:
        cloud: connection.
        network: name or id.
    """
    sources = {source for there in _guests_addresses(cloud, network) if (source := source_towards(there))}
    if not sources:
        host = urlsplit(str(cloud.config.auth.get("auth_url") or "")).hostname or ""
        sources = {source for there in _resolved(host) if (source := source_towards(there))}
    if len(sources) != 1:
        seen = f"has {len(sources)} addresses towards them" if sources else "has no known address towards them"
        return From(
            NO_HOST,
            f"the guests' ports stay closed, because this machine {seen}, and fio servers accept every client: "
            "results return by other ways, unless reached_from=CIDR in the target names the allowed addresses",
        )
    (source,) = sources
    cidr = f"{source}/{source.max_prefixlen}"
    return From(
        cidr,
        f"guests are reached from {cidr} only, this machine; if they see it under another address, add "
        "reached_from=CIDR to the target",
    )


def source_towards(there: str) -> Address | None:
    """Return this machine's source address towards ``there``; None if other hosts cannot answer to it."""
    family = socket.AF_INET6 if ":" in there else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as asked:
        try:
            asked.connect((there, _DISCARD))
        except OSError:  # no route
            return None
        source = ipaddress.ip_address(asked.getsockname()[0].partition("%")[0])
    return None if source.is_loopback or source.is_unspecified or source.is_link_local else source


def _guests_addresses(cloud: Connection, network: str) -> list[str]:
    """Return a guest's address in each subnet; only IPv4 where there is any, because fio's client prefers it."""

    def ask() -> list[Any]:
        found = cloud.network.find_network(network, ignore_missing=True)
        return list(cloud.network.subnets(network_id=found.id)) if found is not None else []

    subnets = persistently(ask, where=f"subnets of network {network}")
    by_version = {
        version: [_address_in(subnet) for subnet in subnets if subnet.ip_version == version] for version in (4, 6)
    }
    return by_version[4] or by_version[6]


def _address_in(subnet: Any) -> str:
    """Return the first address that Neutron assigns in a subnet, or its first address."""
    pools = subnet.allocation_pools or ()
    return str(pools[0]["start"] if pools else ipaddress.ip_network(subnet.cidr)[1])


def _resolved(host: str) -> Iterable[str]:
    try:
        return [str(found[4][0]) for found in socket.getaddrinfo(host, _DISCARD, type=socket.SOCK_DGRAM)][:1]
    except OSError:
        return ()
