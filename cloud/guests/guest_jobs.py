"""Jobs for guests that cannot be reached by the network: sent by Nova, results by Heat or the console.

Nova's rebuild with new user data (API 2.57) gives a guest its job on the config drive, at the cost of a boot per
job. The job's packed output returns as a signal to Heat, if the guest has a handle and reaches Heat. Otherwise it
returns on the guest's console, of which Nova keeps the last 100 KiB; that needs no network. A guest that waits for
the common start prints its clock on the console, which is compared with this machine's clock.

A stack can have a wait condition handle for each client. With its address and token, data can be stored there
under an id, and read as the handle's metadata. Heat accepts up to 1 MiB at once by default.
"""

import base64
import binascii
import gzip
import re
import secrets
import time
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import resources
from itertools import islice, product
from typing import Any

import jinja2
from openstack.connection import Connection
from openstack.exceptions import raise_from_response

from cephfit import templates
from cephfit.cloud.cloud_connection import json_of, made_once, persistently
from cephfit.cloud.guests import guests
from cephfit.cloud.stacks import Node, resources_of
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Client
from cephfit.measure.fio import fio_servers
from cephfit.measure.fio.fio_servers import ClockWatch, Offset

_HANDLE = "OS::Heat::WaitConditionHandle"
_SERVER = "OS::Nova::Server"


@dataclass(frozen=True, slots=True)
class Handle:
    """Address for a guest's results. The token is a secret of the stack and must not be in results or logs.

    Attributes:
        path: of the resource in Heat's API.
        endpoint: address for signals.
        token: authentication of signals.
    """

    path: str
    endpoint: str
    token: str

    def __repr__(self) -> str:
        return f"Handle({self.path!r})"


def handles(cloud: Connection, stack: str) -> Mapping[str, Handle]:
    """Return the handle of each client of a stack, by the id of its server; empty for a stack without handles.

    Raises:
        ClusterError: Heat does not answer.
    """
    listed = resources_of(cloud, stack)
    servers = {_stack_of(r): str(r["physical_resource_id"]) for r in listed if r["resource_type"] == _SERVER}
    made = {}
    for resource in listed:
        if resource["resource_type"] != _HANDLE or _stack_of(resource) not in servers:
            continue
        path = f"{_stack_of(resource)}/resources/{resource['resource_name']}"
        shown = _asked(cloud, path, params={"with_attr": ["endpoint", "token"]}).get("resource", {})
        attributes = shown.get("attributes") or {}
        if attributes.get("endpoint") and attributes.get("token"):
            handle = Handle(path, str(attributes["endpoint"]), str(attributes["token"]))
            made[servers[_stack_of(resource)]] = handle
    return made


def received(cloud: Connection, handle: Handle, key: str) -> str | None:
    """Return the data that a guest stored under an id; None while there are none.

    Raises:
        ClusterError: Heat does not answer.
    """
    metadata = _asked(cloud, f"{handle.path}/metadata").get("metadata") or {}
    signal = metadata.get(key)
    return None if signal is None else str(signal.get("data") or "")


def _stack_of(resource: Mapping[str, Any]) -> str:
    """Return ``/stacks/NAME/ID`` of a resource's stack."""
    href = next(link["href"] for link in resource["links"] if link["rel"] == "stack")
    return "/stacks/" + str(href).rpartition("/stacks/")[2]


def _asked(cloud: Connection, path: str, **more: Any) -> dict[str, Any]:
    return persistently(lambda: json_of(cloud, path, service="orchestration", **more) or {}, where=path)


CONSOLE, SIGNAL = "console", "signal"
_REBUILD_WITH_USER_DATA = "2.57"
_POLLING_SECONDS = 2.0
_LOOKING_SECONDS = 1.0
_LOOKING_LINES = 60
_BOOT_SECONDS = 30.0
_BOOT_SECONDS_OF_EACH = 10.0
"""Time per guest from the rebuild requests to the start of the first jobs: concurrent boots share processors."""
_LEAST_BOOT_SECONDS = 15.0
_LATE_SECONDS = 60.0
_GRACE_SECONDS = 600.0
_DAMAGED = (binascii.Error, zlib.error, OSError, EOFError, ValueError)
"""Exceptions of unpacking."""
_MOST_CHOICES = 1000
"""Limit of combinations of lines that exist in several versions."""
CLOCK_SECONDS = 2.0
"""Error of a clock without other bounds. A guest reads its clock at boot, in whole seconds, and an emulated
guest continues late (1.15 s in one case)."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """Result of a guest's job.

    Attributes:
        output: its standard output.
        errors: its standard error.
        began: by the guest's clock, in seconds since 1970.
        ended: likewise.
        code: exit code of the job.
        by: transport of the result: ``signal`` or ``console``.
    """

    output: str
    errors: str
    began: float
    ended: float
    code: int = 0
    by: str = CONSOLE


@dataclass(frozen=True, slots=True)
class Answers:
    """Results of all guests.

    Attributes:
        results: client name to result.
        start: requested start, for each guest by its own clock.
        offsets: client name to the offset of its clock; None where a guest printed no clock.
    """

    results: Mapping[str, JobResult]
    start: float
    offsets: Mapping[str, Offset | None]

    def together(self) -> dict[str, Any]:
        """Return the skew of begins and ends; see ``fio_servers.together``."""
        began = {name: result.began for name, result in self.results.items()}
        ended = {name: result.ended for name, result in self.results.items()}
        return fio_servers.together(began, ended, self.offsets, unknown=CLOCK_SECONDS)


@dataclass(slots=True)
class _Waiting:
    """One client that has not answered yet."""

    client: Client
    server: str
    handle: Handle | None
    clock: ClockWatch = field(default_factory=ClockWatch)
    result: JobResult | None = None


class GuestJobs:
    """Sends jobs to guests and returns their results.

    Args:
        cloud: connection.
        image: of the guests, by name or id.
        nodes: client name to guest; owned by the target, which changes it with every configuration.
        handles: server id to the handle for results; owned by the target, too. Empty where there are none.
    """

    def __init__(
        self, cloud: Connection, image: str, nodes: Mapping[str, Node], handles: Mapping[str, Handle]
    ) -> None:
        self._cloud = cloud
        self._image = image
        self._nodes = nodes
        self._handles = handles
        self._boot_seconds = 0.0

    def send(
        self, clients: Sequence[Client], jobs: Mapping[str, str], *, seconds: float, together: bool = True
    ) -> Answers:
        """Rebuild every client's server with its job, a shell script, and wait for the results.

        Args:
            clients: of the jobs.
            jobs: client name to shell script.
            seconds: approximate limit of the jobs' time.
            together: whether all begin at the same moment, or each as soon as it can.

        Raises:
            ClusterError: Nova refused, or a guest returned no result in time.
        """
        key = secrets.token_hex(8)
        image = persistently(
            lambda: self._cloud.image.find_image(self._image, ignore_missing=False), where="images"
        )
        self._await_active(clients)
        asked = time.time()
        boot_seconds = self._boot_seconds or _BOOT_SECONDS + _BOOT_SECONDS_OF_EACH * len(clients)
        start = int(asked + boot_seconds if together and len(clients) > 1 else asked)
        waiting = []
        for client in clients:
            node = self._nodes[client.name]
            handle = self._handles.get(node.server)
            script = user_data(node.volume, jobs[client.name], key=key, start=start, handle=handle)
            self._rebuild(node.server, image.id, script)
            waiting.append(_Waiting(client, node.server, handle))
        self._watch_clocks(waiting, key, until=start)
        self._collect(waiting, key, until=start + seconds + _GRACE_SECONDS)
        results = {one.client.name: one.result for one in waiting if one.result is not None}
        offsets = {one.client.name: one.clock.offset for one in waiting}
        # The next jobs get 1.5 times the boot time of the slowest guest.
        first = max(one.clock.first or results[one.client.name].began for one in waiting)
        self._boot_seconds = max(_LEAST_BOOT_SECONDS, 1.5 * (first - asked))
        return Answers(results, start, offsets)

    def _rebuild(self, server: str, image_id: str, script: str) -> None:
        body = {"imageRef": image_id, "user_data": base64.b64encode(script.encode()).decode()}
        n_before = guests.n_rebuilds_of(self._cloud, server)

        def ask() -> bool:
            path, version = f"/servers/{server}/action", _REBUILD_WITH_USER_DATA
            raise_from_response(self._cloud.compute.post(path, json={"rebuild": body}, microversion=version))
            return True

        def is_asked() -> bool | None:
            # A rebuild may end before the lost answer is noticed: the status is ACTIVE again, and the job runs.
            if n_before is not None and (n_now := guests.n_rebuilds_of(self._cloud, server)) is not None:
                return n_now > n_before or None
            return guests.status_of(self._cloud, server) == "REBUILD" or None

        try:
            made_once(ask, is_asked, where=f"server {server}")
        except ClusterError as error:
            what = f"the server cannot be rebuilt: {error.what}"
            raise ClusterError(what, where=error.where, remedy=error.remedy) from None

    def _watch_clocks(self, waiting: Sequence[_Waiting], key: str, *, until: float) -> None:
        """Read the guests' clocks until the start, and longer for late guests."""
        while (now := time.time()) < until + _LATE_SECONDS:
            if now >= until and all(one.clock.offset is not None for one in waiting):
                break
            for one in waiting:
                asked = time.time()
                if (shown := self._shown(one.server, n_lines=_LOOKING_LINES)) is not None:
                    one.clock.see(readings_of(shown, key), asked=asked, answered=time.time())
            time.sleep(_LOOKING_SECONDS)

    def _collect(self, waiting: Sequence[_Waiting], key: str, *, until: float) -> None:
        while missing := [one for one in waiting if one.result is None]:
            for one in missing:
                if one.handle is not None and (data := received(self._cloud, one.handle, key)) is not None:
                    one.result = from_signal(data)
                else:
                    one.result = unpacked(self._shown(one.server) or "", key)
            still = [one for one in missing if one.result is None]
            if still and time.time() > until:
                lost = still[0]
                words = guests.last_words(self._cloud, lost.server)
                raise ClusterError(
                    f"no result came back; its console ends with: {words or 'nothing'}",
                    where=f"client {lost.client.name}",
                    remedy="read its console (`openstack console log show`), then run the same command again",
                )
            if still:
                time.sleep(_POLLING_SECONDS)

    def _await_active(self, clients: Sequence[Client]) -> None:
        """Wait until all servers are ACTIVE: Nova refuses a rebuild during another one."""
        deadline = time.monotonic() + _GRACE_SECONDS
        for client in clients:
            server = self._nodes[client.name].server
            while (status := guests.status_of(self._cloud, server)) != "ACTIVE":
                if status in ("ERROR", "gone") or time.monotonic() > deadline:
                    raise ClusterError(
                        f"its server is {status}",
                        where=f"client {client.name} (server {server})",
                        remedy="find out why with `openstack server show`, then run the same command again",
                    )
                time.sleep(_POLLING_SECONDS)

    def _shown(self, server: str, *, n_lines: int | None = None) -> str | None:
        """Return a console; None while its server is being rebuilt and has none."""
        try:
            return guests.console(self._cloud, server, n_lines=n_lines)
        except ClusterError:
            return None


def user_data(volume: str, job: str, *, key: str, start: int, handle: Handle | None = None) -> str:
    """Return the script that runs one job, a shell script, and sends its result."""
    text = resources.files(templates).joinpath("guest_job.sh.j2").read_text()
    template = jinja2.Template(
        text, undefined=jinja2.StrictUndefined, keep_trailing_newline=True, trim_blocks=True, lstrip_blocks=True
    )
    packed = base64.b64encode(gzip.compress(job.encode(), mtime=0)).decode()
    endpoint, token = (handle.endpoint, handle.token) if handle is not None else ("", "")
    return str(
        template.render(
            volume=volume, device=guests.VOLUME, job=packed, key=key, start=start, endpoint=endpoint, token=token
        )
    )


def readings_of(console: str, key: str) -> list[float]:
    """Return the clock readings that a guest printed while it waited for the start of the job ``key``."""
    return [float(found) for found in re.findall(rf"CEPHFIT-CLOCK {key} (\d+\.\d+)\s", console)]


def from_signal(data: str) -> JobResult:
    """Parse the result in a signal: exit code, begin, end, packed output, standard error."""
    words = data.split(" ", 4)
    if len(words) < 4:
        return JobResult("", f"the signal's text is damaged: {data[:100]!r}", 0.0, 0.0, by=SIGNAL)
    code, began, ended, packed = words[:4]
    output, errors = "", words[4].strip() if len(words) > 4 else ""
    try:
        output = _unzipped(packed)
    except _DAMAGED as error:
        errors = f"the text of its signal is damaged ({error}); {errors}"
    moments = [float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else 0.0 for text in (began, ended)]
    return JobResult(output, errors, moments[0], moments[1], int(code) if code.isdigit() else -1, SIGNAL)


def unpacked(console: str, key: str) -> JobResult | None:
    """Return the result that a guest printed for the job ``key``; None while it is incomplete.

    Nova reads the guest's terminal while the hypervisor writes the same to a file, and appends what it has read to
    that file: pieces appear twice, in the middle of lines. The kernel's messages may be in between, too. So guests
    print each line with its number, and all lines twice. The packed text's checksum identifies the correct ones.
    """
    parts: dict[int, dict[str, None]] = {}
    for number, text in re.findall(rf"CEPHFIT-PART {key} (\d+) ([A-Za-z0-9+/=]+)\s", console):
        parts.setdefault(int(number), {})[text] = None
    for n_parts in {int(found) for found in re.findall(rf"CEPHFIT-PARTS {key} (\d+)\s", console)}:
        if n_parts > len(parts):
            continue
        choices = [parts.get(number, {}) for number in range(1, n_parts + 1)]
        for chosen in islice(product(*choices), _MOST_CHOICES):
            with suppress(*_DAMAGED):
                head, _, output = _unzipped("".join(chosen)).partition("\n")
                code, began, ended, errors = head.split(" ", 3)
                return JobResult(output, errors.strip(), float(began), float(ended), int(code), CONSOLE)
    if f"CEPHFIT-RESULT-END {key}" not in console:
        return None
    return JobResult("", "the text on its console is damaged", 0.0, 0.0, -1, CONSOLE)


def _unzipped(packed: str) -> str:
    return gzip.decompress(base64.b64decode(packed, validate=True)).decode(errors="replace")
