"""What fio servers say of time: their clocks against ours, and when each one's measured part began and ended.

A server's log with fio's ``log_unix_epoch`` carries moments of that host's clock, and comes back with the results.
A single read, made at a moment that we know to lie between our asking and its answer, tells what the clock shows;
the log of the measured run itself, a line in every half second, tells where the run lay. Servers at unix sockets
have our own clock, and are not asked.
"""

import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cephfit.protocols import Client
from cephfit.sweep.engines.clocks import Offset, between
from cephfit.sweep.engines.fio_driver import speak
from cephfit.sweep.engines.fio_servers import host_of

WINDOW_SECONDS = 0.5
_PROBE_NBYTES = 4096
_PROBE_SECONDS = 30.0
_LOG = "cephfit-{}"
_KEPT_SECONDS = 60.0
"""How long a comparison holds: clocks drift by less than a millisecond in a minute."""


class ServerClocks:
    """Compares the clocks of fio servers with ours, and not again within a minute."""

    def __init__(self) -> None:
        self._offsets: dict[str, Offset | None] = {}
        self._at: float | None = None

    def compared(self, clients: Sequence[Client]) -> Mapping[str, Offset | None]:
        """By client: how far its host's clock is ahead of ours; None where its server did not say."""
        stale = self._at is None or time.monotonic() - self._at > _KEPT_SECONDS
        if stale or any(str(client.address) not in self._offsets for client in clients):
            found = _probed([client for client in clients if has_clock(client)])
            self._offsets = {str(c.address): found.get(c.name) for c in clients}
            self._at = time.monotonic()
        return {client.name: self._offsets[str(client.address)] for client in clients if has_clock(client)}


def has_clock(client: Client) -> bool:
    """Whether a client's server may have another clock than ours."""
    return bool(client.address) and not str(client.address).startswith("sock:")


def with_log(job: str, client: Client) -> str:
    """A job of this client that also tells when its measured part began and ended."""
    if not has_clock(client):
        return job
    options = (
        f"write_bw_log={_LOG.format(client.name)}",
        f"log_avg_msec={round(WINDOW_SECONDS * 1000)}",
        "log_unix_epoch=1",
    )
    return "\n".join([job.rstrip("\n"), *options, ""])


def measured_parts(folder: Path, clients: Sequence[Client]) -> dict[str, tuple[float, float]]:
    """When each client's measured part began and ended, by the clock of its host, in seconds since 1970.

    Args:
        folder: in which fio ran, and left the servers' logs.
        clients: whose jobs had ``with_log``; one whose log is not there is left out.
    """
    found = {}
    for client in clients:
        if (moments := _moments(folder, client, "bw")) and moments[-1] - moments[0] >= WINDOW_SECONDS:
            found[client.name] = (moments[0] - WINDOW_SECONDS, moments[-1])
    return found


def _probed(clients: Sequence[Client]) -> dict[str, Offset]:
    jobs = {client.name: _probe(client) for client in clients}
    if not jobs:
        return {}
    with tempfile.TemporaryDirectory(prefix="cephfit-clocks-") as text:
        folder = Path(text)
        asked = time.time()
        speak(clients, jobs, timeout_seconds=_PROBE_SECONDS, folder=folder)
        answered = time.time()
        moments = {client.name: _moments(folder, client, "clat") for client in clients}
    # fio writes whole milliseconds.
    return {name: between(said[0], asked, answered + 0.001) for name, said in moments.items() if said}


def _probe(client: Client) -> str:
    lines = [f"[{client.name}]", "rw=read", f"bs={_PROBE_NBYTES}", f"size={_PROBE_NBYTES}", "thread=1"]
    lines += [f"{key}={value}" for key, value in client.fio_options.items()]
    lines += [f"write_lat_log={_LOG.format(client.name)}", "log_unix_epoch=1", ""]
    return "\n".join(lines)


def _moments(folder: Path, client: Client, kind: str) -> list[float]:
    log = folder / f"{_LOG.format(client.name)}_{kind}.1.log.{host_of(client)}"
    try:
        lines = log.read_text().splitlines()
    except OSError:
        return []
    return [int(first) / 1000 for line in lines if (first := line.partition(",")[0].strip()).isdigit()]
