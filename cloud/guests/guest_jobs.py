"""Jobs for guests that nobody can reach: sent as user data of a rebuilt server, results by Heat or the console.

Results by Heat's signals: from guests that nobody can reach, but that reach Heat.

A stack can hold a wait condition handle for each client. Who has its address and token may leave data there, under
an id; we read them as the handle's metadata. Heat takes up to 1 MiB at once unless it was set up otherwise.

Nova's rebuild with new user data (API 2.57) gives a guest its job on the config drive. What the job printed comes
back packed, as a signal to Heat where the guest has a handle and reaches Heat, else on its console, of which Nova
keeps the last 100 KiB. It takes a boot for every job, and the console needs nothing of the network. While a guest
waits for the common start it shows its clock on the console, which is held against ours.
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
from cephfit.measure.fio import guest_clocks
from cephfit.measure.fio.guest_clocks import ClockWatch, Offset

_HANDLE = "OS::Heat::WaitConditionHandle"
_SERVER = "OS::Nova::Server"


@dataclass(frozen=True, slots=True)
class Handle:
    """Where a guest leaves its results. The token is a secret of the stack: it belongs into no result and no log.

    Attributes:
        path: of the resource in Heat's API.
        endpoint: where signals go.
        token: with which they go there.
    """

    path: str
    endpoint: str
    token: str

    def __repr__(self) -> str:
        return f"Handle({self.path!r})"


def handles(cloud: Connection, stack: str) -> Mapping[str, Handle]:
    """The handle of each client of a stack, by the id of its server; empty for a stack without.

    Raises:
        ClusterError: Heat does not say.
    """
    listed = resources_of(cloud, stack)
    servers = {_stack_of(r): str(r["physical_resource_id"]) for r in listed if r["resource_type"] == _SERVER}
    made = {}
    for resource in listed:
        if resource["resource_type"] != _HANDLE or _stack_of(resource) not in servers:
            continue
        path = f"{_stack_of(resource)}/resources/{resource['resource_name']}"
        said = _asked(cloud, path, params={"with_attr": ["endpoint", "token"]}).get("resource", {})
        attributes = said.get("attributes") or {}
        if attributes.get("endpoint") and attributes.get("token"):
            handle = Handle(path, str(attributes["endpoint"]), str(attributes["token"]))
            made[servers[_stack_of(resource)]] = handle
    return made


def received(cloud: Connection, handle: Handle, key: str) -> str | None:
    """What was left under an id; None as long as nothing was.

    Raises:
        ClusterError: Heat does not say.
    """
    metadata = _asked(cloud, f"{handle.path}/metadata").get("metadata") or {}
    signal = metadata.get(key)
    return None if signal is None else str(signal.get("data") or "")


def _stack_of(resource: Mapping[str, Any]) -> str:
    """``/stacks/NAME/ID`` of the stack that a resource is in."""
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
"""How long after the rebuilds were asked for the first jobs begin: booting side by side shares processors."""
_LEAST_BOOT_SECONDS = 15.0
_LATE_SECONDS = 60.0
_GRACE_SECONDS = 600.0
_DAMAGED = (binascii.Error, zlib.error, OSError, EOFError, ValueError)
"""What unpacking raises."""
_MOST_CHOICES = 1000
"""Of lines that are there in several versions."""
CLOCK_SECONDS = 2.0
"""By this a clock may be off of which nothing else is known: a guest reads it at boot, in whole seconds, and one
that is emulated takes its time until it goes on (1.15 s behind was seen)."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a guest brought back of a job.

    Attributes:
        output: of the job, its standard output.
        errors: what it said besides.
        began: by the guest's clock, in seconds since 1970.
        ended: the same.
        code: with which the job ended.
        by: ``signal`` or ``console``: how it came here.
    """

    output: str
    errors: str
    began: float
    ended: float
    code: int = 0
    by: str = CONSOLE


@dataclass(frozen=True, slots=True)
class Answers:
    """What all guests brought back.

    Attributes:
        said: by client.
        start: when they were to begin, each by its own clock.
        offsets: of their clocks; None where a guest showed none.
    """

    said: Mapping[str, Said]
    start: float
    offsets: Mapping[str, Offset | None]

    def together(self) -> dict[str, Any]:
        """How far apart they began and ended; see ``clocks.together``."""
        began = {name: said.began for name, said in self.said.items()}
        ended = {name: said.ended for name, said in self.said.items()}
        return guest_clocks.together(began, ended, self.offsets, unknown=CLOCK_SECONDS)


@dataclass(slots=True)
class _Waiting:
    """One client that has not answered yet."""

    client: Client
    server: str
    handle: Handle | None
    clock: ClockWatch = field(default_factory=ClockWatch)
    said: Said | None = None


class GuestJobs:
    """Sends jobs and brings back what they printed.

    Args:
        cloud: connection.
        image: of the guests, by name or id.
        nodes: the guests by client; the target's, which change with every configuration.
        handles: where guests may leave results, by server; the target's, too. Empty where they have none.
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
        """Rebuild every client's server with its job, a shell script, and wait for what it printed.

        Args:
            clients: whose servers.
            jobs: by client.
            seconds: that the jobs take at most, about.
            together: whether all begin at the same moment, or each as soon as it can.

        Raises:
            ClusterError: Nova refused, or a guest brought nothing back in time.
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
        said = {one.client.name: one.said for one in waiting if one.said is not None}
        offsets = {one.client.name: one.clock.offset for one in waiting}
        # The next ones get as long as the slowest of these needed to boot, and half as much again.
        first = max(one.clock.first or said[one.client.name].began for one in waiting)
        self._boot_seconds = max(_LEAST_BOOT_SECONDS, 1.5 * (first - asked))
        return Answers(said, start, offsets)

    def _rebuild(self, server: str, image_id: str, script: str) -> None:
        body = {"imageRef": image_id, "user_data": base64.b64encode(script.encode()).decode()}
        n_before = guests.n_rebuilds_of(self._cloud, server)

        def ask() -> bool:
            path, version = f"/servers/{server}/action", _REBUILD_WITH_USER_DATA
            raise_from_response(self._cloud.compute.post(path, json={"rebuild": body}, microversion=version))
            return True

        def is_asked() -> bool | None:
            # A rebuild may be over before a lost answer is missed: the status is ACTIVE again, and the job runs.
            if n_before is not None and (n_now := guests.n_rebuilds_of(self._cloud, server)) is not None:
                return n_now > n_before or None
            return guests.status_of(self._cloud, server) == "REBUILD" or None

        try:
            made_once(ask, is_asked, where=f"server {server}")
        except ClusterError as error:
            what = f"it cannot be rebuilt: {error.what}"
            raise ClusterError(what, where=error.where, remedy=error.remedy) from None

    def _watch_clocks(self, waiting: Sequence[_Waiting], key: str, *, until: float) -> None:
        """Until the start, and a while longer for guests that are late."""
        while (now := time.time()) < until + _LATE_SECONDS:
            if now >= until and all(one.clock.offset is not None for one in waiting):
                break
            for one in waiting:
                asked = time.time()
                if (shown := self._shown(one.server, n_lines=_LOOKING_LINES)) is not None:
                    one.clock.see(readings_of(shown, key), asked=asked, answered=time.time())
            time.sleep(_LOOKING_SECONDS)

    def _collect(self, waiting: Sequence[_Waiting], key: str, *, until: float) -> None:
        while missing := [one for one in waiting if one.said is None]:
            for one in missing:
                if one.handle is not None and (data := received(self._cloud, one.handle, key)) is not None:
                    one.said = from_signal(data)
                else:
                    one.said = unpacked(self._shown(one.server) or "", key)
            still = [one for one in missing if one.said is None]
            if still and time.time() > until:
                lost = still[0]
                words = guests.last_words(self._cloud, lost.server)
                raise ClusterError(
                    f"no result came back; its console ends with: {words or 'nothing'}",
                    where=f"client {lost.client.name}",
                    remedy="see its console (`openstack console log show`), then run the same command again",
                )
            if still:
                time.sleep(_POLLING_SECONDS)

    def _await_active(self, clients: Sequence[Client]) -> None:
        """Nova refuses to rebuild a server that it is still rebuilding."""
        deadline = time.monotonic() + _GRACE_SECONDS
        for client in clients:
            server = self._nodes[client.name].server
            while (status := guests.status_of(self._cloud, server)) != "ACTIVE":
                if status in ("ERROR", "gone") or time.monotonic() > deadline:
                    raise ClusterError(
                        f"its server is {status}",
                        where=f"client {client.name} (server {server})",
                        remedy="see why with `openstack server show`, then run the same command again",
                    )
                time.sleep(_POLLING_SECONDS)

    def _shown(self, server: str, *, n_lines: int | None = None) -> str | None:
        """A console; None while its server is being rebuilt and has none."""
        try:
            return guests.console(self._cloud, server, n_lines=n_lines)
        except ClusterError:
            return None


def user_data(volume: str, job: str, *, key: str, start: int, handle: Handle | None = None) -> str:
    """The script that runs one job, a shell script, and brings back its result."""
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
    """What a guest showed of its clock while it waited for the start of the job ``key``."""
    return [float(found) for found in re.findall(rf"CEPHFIT-CLOCK {key} (\d+\.\d+)\s", console)]


def from_signal(data: str) -> Said:
    """The result in a signal: code, when it began and ended, the output packed, what it said besides."""
    words = data.split(" ", 4)
    if len(words) < 4:
        return Said("", f"the signal's text is damaged: {data[:100]!r}", 0.0, 0.0, by=SIGNAL)
    code, began, ended, packed = words[:4]
    output, errors = "", words[4].strip() if len(words) > 4 else ""
    try:
        output = _unzipped(packed)
    except _DAMAGED as error:
        errors = f"the text of its signal is damaged ({error}); {errors}"
    moments = [float(text) if re.fullmatch(r"\d+(\.\d+)?", text) else 0.0 for text in (began, ended)]
    return Said(output, errors, moments[0], moments[1], int(code) if code.isdigit() else -1, SIGNAL)


def unpacked(console: str, key: str) -> Said | None:
    """The result that a guest printed for the job ``key``; None as long as it is not there whole.

    Nova reads the guest's terminal while the hypervisor writes the same to a file, and appends to that file what
    it has read: pieces appear twice, in the middle of lines. The kernel may write between, too. So guests print
    each line with its number, and all of them twice; the packed text's checksum says which are the true ones.
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
                return Said(output, errors.strip(), float(began), float(ended), int(code), CONSOLE)
    if f"CEPHFIT-RESULT-END {key}" not in console:
        return None
    return Said("", "the text on its console is damaged", 0.0, 0.0, -1, CONSOLE)


def _unzipped(packed: str) -> str:
    return gzip.decompress(base64.b64decode(packed, validate=True)).decode(errors="replace")
