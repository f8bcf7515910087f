"""Guests: the script of their start, status, console and compute hosts, and waiting until they can be measured.

The compute host is kept with every sample. Its counters come from Nova's server diagnostics: an independent count
for fio's figures.
"""

import re
import socket
import time
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, Protocol

import jinja2
import novaclient.exceptions as nova  # type: ignore[import-untyped]
from novaclient import client as nova_client
from openstack.connection import Connection
from openstack.exceptions import NotFoundException

from cephfit import templates
from cephfit.cloud.cloud_connection import HIDDEN, json_of, one_line, persistently
from cephfit.cloud.stacks import Node
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Client, Health
from cephfit.core.units import KIB
from cephfit.measure.engine import CellOutcome, CellRun, ClientOutcome, CountsIo, Engine, MovedBytes
from cephfit.measure.fio.fio_files import UnusableOutputError, error_of, read_output
from cephfit.measure.fio.fio_servers import drive_servers

VOLUME = "/dev/cephfit-volume"
"""Link in every guest to the block device of its Cinder volume."""

_POLLING_SECONDS = 1.0
_CONNECT_SECONDS = 2.0
_PROBE_NBYTES = 4 * KIB
_PROBE_SECONDS = 30.0
_LAST_LINES = 5
_LOOKING_SECONDS = 15.0
"""Interval between readings of a guest's console during a wait."""
_NO_FIO = "CEPHFIT-NO-FIO"


def user_data(*, port: int) -> str:
    """Return the script that guests run at their start; Heat inserts the volume's id."""
    text = resources.files(templates).joinpath("guest.sh.j2").read_text()
    template = jinja2.Template(text, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    return str(template.render(device=VOLUME, port=port))


def client_of(node: Node, *, port: int, nbytes: int) -> Client:
    """Return a guest as a benchmark client with a fio server."""
    # If the link is missing, fio must not create a file of that name in the guest's memory and measure it.
    options = {"filename": VOLUME, "allow_file_create": "0"}
    return Client(node.name, options, nbytes, address=f"{node.address},{port}")


def console_client_of(node: Node, *, nbytes: int) -> Client:
    """Return a guest as a benchmark client that cannot be reached by the network."""
    return Client(node.name, {"filename": VOLUME, "allow_file_create": "0"}, nbytes)


def await_ready(cloud: Connection, nodes: Sequence[Node], *, port: int, seconds: float) -> None:
    """Wait until the fio server in every guest answers and can read the guest's volume.

    Raises:
        ClusterError: a server does not answer in time; with the last lines of its console.
    """
    patience = _Patience(cloud, seconds)
    for node in nodes:
        while not answers(node.address, port):
            patience.pause(node, f"no fio server answers at {node.address}:{port}")
    waiting = list(nodes)
    while waiting := [node for node in waiting if not _can_read(node, port)]:
        patience.pause(waiting[0], f"its fio server cannot read its volume at {VOLUME}")


class _Patience:
    """Waits for guests, up to a limit or until a guest reports that it will not become ready."""

    def __init__(self, cloud: Connection, seconds: float) -> None:
        self._cloud = cloud
        self._seconds = seconds
        self._began = self._looked = time.monotonic()

    def pause(self, node: Node, why: str) -> None:
        """Pause before the next attempt.

        Raises:
            ClusterError: the limit is reached, or the guest reports that it will not become ready.
        """
        now = time.monotonic()
        if now - self._looked > _LOOKING_SECONDS:
            require_fio(console(self._cloud, node.server), node)
            self._looked = now
        if now - self._began > self._seconds:
            words = last_words(self._cloud, node.server) or "nothing"
            raise ClusterError(
                f"{why} after {self._seconds:.0f} s; the console ends with: {words}",
                where=f"client {node.name} (server {node.server})",
                remedy="check that this machine can reach the guests' network and that the image has fio",
            )
        time.sleep(_POLLING_SECONDS)


def require_fio(console: str, node: Node) -> None:
    """Require that a guest has fio, as far as its console shows.

    Raises:
        ClusterError: the image has no fio, and it could not be installed.
    """
    if _NO_FIO in console:
        why = console.rpartition(_NO_FIO)[2].partition("\n")[0].strip()
        raise ClusterError(
            f"its image has no fio, and none could be installed: {why or 'the guest gives no reason'}",
            where=f"client {node.name} (server {node.server})",
            remedy="use an image with fio (`cephfit image build`), or a network on which guests reach their "
            "distribution's mirrors",
        )


def has_started(console: str) -> bool:
    """Return whether a guest's console shows the end of its start, so that its fio server runs."""
    return "CEPHFIT-SERVER " in console


def _can_read(node: Node, port: int) -> bool:
    client = client_of(node, port=port, nbytes=_PROBE_NBYTES)
    lines = [f"[{node.name}]", "rw=read", f"bs={_PROBE_NBYTES}", f"size={_PROBE_NBYTES}", "direct=1", "thread=1"]
    lines += [f"{key}={value}" for key, value in client.fio_options.items()]
    found = drive_servers([client], {node.name: "\n".join([*lines, ""])}, timeout_seconds=_PROBE_SECONDS)
    try:
        jobs = read_output(found.output, jobs="client_stats")["client_stats"]
    except UnusableOutputError:
        return False
    return any(
        job.get("jobname") == node.name and not error_of(job) and job["read"]["io_bytes"] == _PROBE_NBYTES
        for job in jobs
    )


def status_of(cloud: Connection, server: str) -> str:
    """Return Nova's status of a server, such as ``ACTIVE``; ``gone`` if it does not exist."""

    def ask() -> str:
        try:
            return str(cloud.compute.get_server(server).status)
        except NotFoundException:
            return "gone"

    return persistently(ask, where=f"server {server}")


def n_rebuilds_of(cloud: Connection, server: str) -> int | None:
    """Return the number of rebuild requests that Nova noted for a server; None where hidden from this user."""
    path, where = f"/servers/{server}/os-instance-actions", f"server {server}"
    found = persistently(lambda: json_of(cloud, path, HIDDEN, service="compute"), where=where)
    return None if found is None else sum(one["action"] == "rebuild" for one in found["instanceActions"])


def health_of(cloud: Connection, nodes: Sequence[Node], *, are_rebuilt: bool) -> Health:
    """Return whether the servers run, by Nova's status.

    Args:
        cloud: connection.
        nodes: of the servers.
        are_rebuilt: whether they get jobs by rebuilds, so that ``REBUILD`` is healthy, too.
    """
    well = ("ACTIVE", "REBUILD") if are_rebuilt else ("ACTIVE",)
    found = {node.name: status_of(cloud, node.server) for node in nodes}
    reasons = tuple(f"the server of client {name} is {now}" for name, now in found.items() if now not in well)
    return Health(ok=not reasons, reasons=reasons, observed={"servers": len(nodes)})


def last_words(cloud: Connection, server: str) -> str:
    """Return the last lines of a server's console, on one line."""
    shown = console(cloud, server, n_lines=_LAST_LINES)
    return " / ".join(line.strip() for line in shown.splitlines() if line.strip())


def console(cloud: Connection, server: str, *, n_lines: int | None = None) -> str:
    """Return the text of a server's console; Nova keeps its last 100 KiB."""
    answer = persistently(
        lambda: cloud.compute.get_server_console_output(server, length=n_lines), where=f"server {server}"
    )
    return str(answer.get("output") or "") if isinstance(answer, dict) else str(answer or "")


def answers(address: str, port: int) -> bool:
    """Return whether the port accepts connections."""
    try:
        socket.create_connection((address, port), timeout=_CONNECT_SECONDS).close()
    except OSError:
        return False
    return True


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
