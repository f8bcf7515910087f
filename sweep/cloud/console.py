"""Guests that cannot be reached: each job is user data of a rebuilt server, each result is read from its console.

Nova's rebuild with new user data (API 2.57) gives a guest its job on the config drive; what the guest prints to
its console, packed, comes back by Nova, which keeps the last 100 KiB. It takes a boot for every cell, and needs
nothing of the network.
"""

import base64
import binascii
import gzip
import json
import re
import secrets
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import jinja2
from openstack.connection import Connection

from cephfit import templates
from cephfit.errors import ClusterError
from cephfit.protocols import Client
from cephfit.sweep.cloud import guests
from cephfit.sweep.cloud.connection import persistently, spoken
from cephfit.sweep.cloud.stacks import Node
from cephfit.sweep.engine import CellOutcome, CellRun, ClientOutcome
from cephfit.sweep.fio import FioEngine, figures_of
from cephfit.sweep.fio_job import render_job, render_warming
from cephfit.sweep.fio_output import UnusableOutputError, error_of, jobs_by_client, read_output
from cephfit.sweep.fio_remote import MOST_SKEW, why_not_together
from cephfit.units import MIB

_REBUILD_WITH_USER_DATA = "2.57"
_POLLING_SECONDS = 2.0
_BOOT_SECONDS = 30.0
_BOOT_SECONDS_OF_EACH = 10.0
"""How long after the rebuilds were asked for the guests begin: booting side by side shares processors."""
_GRACE_SECONDS = 600.0
_SLOWEST_NBYTES_PER_S = MIB
CLOCK_SECONDS = 1.0
"""A guest reads its clock at boot, in whole seconds: clocks of guests differ by up to this."""


@dataclass(frozen=True, slots=True)
class Said:
    """What a guest brought back of a job.

    Attributes:
        output: fio's standard output.
        errors: what it said besides.
        began: by the guest's clock, in seconds since 1970.
    """

    output: str
    errors: str
    began: int


class ConsoleEngine:
    """Implements ``Engine`` for guests without a network.

    Args:
        cloud: connection.
        image: of the guests, by name or id.
        nodes: the guests; the target's, which change with every configuration.
    """

    def __init__(self, cloud: Connection, image: str, nodes: dict[str, Node]) -> None:
        self._cloud = cloud
        self._image = image
        self._nodes = nodes
        self._more_seconds = 0

    def facts(self) -> Mapping[str, Any]:
        """See Engine."""
        return {**FioEngine().facts(), "mode": "console", "clocks_differ_by_up_to_seconds": CLOCK_SECONDS}

    def run(self, run: CellRun) -> CellOutcome:
        """See Engine."""
        jobs = {c.name: render_job(replace(run, clients=[c])) for c in run.clients}
        seconds = run.measurement.ramp_seconds + run.measurement.run_seconds
        try:
            said, start = self.speak(run.clients, jobs, seconds=seconds)
        except ClusterError as error:
            return CellOutcome({c.name: ClientOutcome(None, str(error)) for c in run.clients}, None)
        late = {"start_skew_seconds": max(0.0, float(max(s.began for s in said.values()) - start))}
        doubt = why_not_together(late, run.measurement.run_seconds, most_skew=MOST_SKEW)
        outcomes = {}
        documents = []
        for client in run.clients:
            answer = said[client.name]
            try:
                documents.append(document := read_output(answer.output))
                job = jobs_by_client(document, [client.name])[client.name]
                metrics, evidence = figures_of(job, run)
            except (UnusableOutputError, KeyError) as error:
                outcomes[client.name] = ClientOutcome(None, f"{error}; fio said: {answer.errors or 'nothing'}")
                continue
            evidence = {**evidence, "together": {**late, "clocks_differ_by_up_to_seconds": CLOCK_SECONDS}}
            uncounted = "nobody counts between two rebuilds of a guest"
            outcomes[client.name] = ClientOutcome(metrics, uncounted=uncounted, doubt=doubt, evidence=evidence)
        # One document, as of one fio with a job for each client.
        together = {**documents[0], "jobs": [job for d in documents for job in d["jobs"]]} if documents else None
        return CellOutcome(outcomes, json.dumps(together) if together is not None else None)

    def warm(self, run: CellRun) -> None:
        """See Engine."""
        jobs = {c.name: render_warming(replace(run, clients=[c])) for c in run.clients}
        moved = self.moved(run.clients, jobs, "read", max(c.nbytes for c in run.clients))
        for client in run.clients:
            if moved[client.name] < client.nbytes:
                raise ClusterError(
                    f"only {moved[client.name]} of {client.nbytes} bytes could be read: {client.name}"
                )

    def moved(self, clients: Sequence[Client], jobs: Mapping[str, str], side: str, nbytes: int) -> dict[str, int]:
        """Run jobs that read or write everything once; bytes by client.

        Raises:
            ClusterError: a guest brought nothing back.
        """
        seconds = nbytes * len(clients) / _SLOWEST_NBYTES_PER_S
        said, _ = self.speak(clients, jobs, seconds=seconds)
        found = {}
        for client in clients:
            try:
                job = jobs_by_client(read_output(said[client.name].output), [client.name])[client.name]
                found[client.name] = 0 if error_of(job) else int(job[side]["io_bytes"])
            except (UnusableOutputError, KeyError) as error:
                raise ClusterError(f"{error}; fio said: {said[client.name].errors}", where=client.name) from None
        return found

    def speak(
        self, clients: Sequence[Client], jobs: Mapping[str, str], *, seconds: float
    ) -> tuple[dict[str, Said], int]:
        """Rebuild every client's server with its job, and wait for what they print; and when they were to begin.

        Raises:
            ClusterError: Nova refused, or a guest printed nothing in time.
        """
        key = secrets.token_hex(8)
        image = persistently(
            lambda: self._cloud.image.find_image(self._image, ignore_missing=False), where="images"
        )
        self._await_active(clients)
        start = int(time.time() + _BOOT_SECONDS + _BOOT_SECONDS_OF_EACH * len(clients) + self._more_seconds)
        for client in clients:
            node = self._nodes[client.name]
            script = user_data(node.volume, jobs[client.name], key=key, start=start)
            body = {"imageRef": image.id, "user_data": base64.b64encode(script.encode()).decode()}
            with spoken(f"server {node.server}"):
                answer = self._cloud.compute.post(
                    f"/servers/{node.server}/action",
                    json={"rebuild": body},
                    microversion=_REBUILD_WITH_USER_DATA,
                )
                if answer.status_code >= 400:
                    raise ClusterError(f"it cannot be rebuilt: {answer.text}", where=f"server {node.server}")
        said: dict[str, Said] = {}
        deadline = start + seconds + _GRACE_SECONDS
        while len(said) < len(clients):
            for client in clients:
                if client.name not in said and (found := unpacked(self._shown(client), key)) is not None:
                    said[client.name] = found
            if time.time() > deadline:
                lost = next(c.name for c in clients if c.name not in said)
                words = guests.last_words(self._cloud, self._nodes[lost].server)
                raise ClusterError(
                    f"no result on its console; it ends with: {words or 'nothing'}", where=f"client {lost}"
                )
            if len(said) < len(clients):
                time.sleep(_POLLING_SECONDS)
        # The next ones get as much more time to boot as the last of these was late.
        self._more_seconds += max(0, max(answer.began for answer in said.values()) - start)
        return said, start

    def _await_active(self, clients: Sequence[Client]) -> None:
        """Nova refuses to rebuild a server that it is still rebuilding."""
        deadline = time.monotonic() + _GRACE_SECONDS
        for client in clients:
            server = self._nodes[client.name].server
            while (status := guests.status_of(self._cloud, server)) != "ACTIVE":
                if status in ("ERROR", "gone") or time.monotonic() > deadline:
                    raise ClusterError(f"its server is {status}", where=f"client {client.name} (server {server})")
                time.sleep(_POLLING_SECONDS)

    def _shown(self, client: Client) -> str:
        """A client's console; empty while its server is being rebuilt and has none."""
        try:
            return guests.console(self._cloud, self._nodes[client.name].server)
        except ClusterError:
            return ""


def user_data(volume: str, job: str, *, key: str, start: int) -> str:
    """The script that runs one job and prints its result."""
    text = resources.files(templates).joinpath("guest_console.sh.j2").read_text()
    template = jinja2.Template(text, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    packed = base64.b64encode(job.encode()).decode()
    return str(template.render(volume=volume, device=guests.VOLUME, job=packed, key=key, start=start))


def unpacked(console: str, key: str) -> Said | None:
    """The result that a guest printed for the job ``key``; None as long as it is not there whole.

    Lines of the kernel between those of the result are passed over.
    """
    lines = [line.strip() for line in console.splitlines()]
    begin = next((n for n, line in enumerate(lines) if line.startswith(f"CEPHFIT-RESULT-BEGIN {key} ")), None)
    if begin is None or f"CEPHFIT-RESULT-END {key}" not in lines[begin:]:
        return None
    rest = lines[begin + 1 :]
    end = next(n for n, line in enumerate(rest) if line.startswith(f"CEPHFIT-RESULT-ERRORS {key}"))
    errors = rest[end].partition(key)[2].strip()
    packed = "".join(line for line in rest[:end] if re.fullmatch(r"[A-Za-z0-9+/=]+", line))
    began = lines[begin].split()[-1]
    try:
        output = gzip.decompress(base64.b64decode(packed, validate=True)).decode(errors="replace")
    except (binascii.Error, zlib.error, OSError, EOFError) as error:
        output, errors = "", f"the console's text is damaged ({error}); {errors}"
    return Said(output, errors, int(began) if began.isdigit() else 0)
