"""Clocks of guests and fio servers against this machine's clock.

Guests' clocks against the clock of this machine.

A guest shows its clock again and again; we know when we asked for what it showed, and when the answer came. A
reading that was not there when we asked before, and is there now, was made between the two, so each look bounds by
how much the guest's clock is ahead of ours, from below and from above. All looks hold at once.

What fio servers say of time: their clocks against ours, and when each one's measured part began and ended.

A server's log with fio's ``log_unix_epoch`` carries moments of that host's clock, and comes back with the results.
A single read, made at a moment that we know to lie between our asking and its answer, tells what the clock shows;
the log of the measured run itself, a line in every half second, tells where the run lay. Servers at unix sockets
have our own clock, and are not asked.
"""

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cephfit.core.protocols import Client
from cephfit.measure.fio.fio_servers import drive_servers, host_of

_DRIFT_SECONDS = 0.05
"""By so much bounds may miss each other before that is a clock which was set meanwhile."""


@dataclass(frozen=True, slots=True)
class Offset:
    """By how many seconds a guest's clock is ahead of ours: between ``low`` and ``high``."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """The best guess; off by ``uncertainty`` at most."""
        return (self.low + self.high) / 2

    @property
    def uncertainty(self) -> float:
        return (self.high - self.low) / 2

    def narrowed(self, other: "Offset") -> "Offset":
        """What both say; if they contradict each other, the clock was set meanwhile: the later one holds."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return other if low > high + _DRIFT_SECONDS else Offset(min(low, high), max(low, high))

    def to_json(self) -> dict[str, float]:
        """For a sample's evidence."""
        return {"ahead_seconds": round(self.middle, 4), "uncertainty_seconds": round(self.uncertainty, 4)}


def between(reading: float, after: float, before: float) -> Offset:
    """The offset of a clock that showed ``reading`` at a moment of ours between ``after`` and ``before``."""
    return Offset(reading - before, reading - after)


class ClockWatch:
    """One guest's clock, from what it showed at each look.

    Attributes:
        offset: as far as it is known by now.
        first: what it showed first.
    """

    def __init__(self) -> None:
        self.offset: Offset | None = None
        self.first: float | None = None
        self._asked: float | None = None
        self._last = float("-inf")

    def see(self, readings: Sequence[float], *, asked: float, answered: float) -> None:
        """What the guest has shown so far.

        Args:
            readings: of its clock, oldest first; seconds since 1970.
            asked: when we asked, by our clock.
            answered: when the answer was here.
        """
        new = [reading for reading in readings if reading > self._last]
        if new and self._asked is not None:
            for reading in (new[0], new[-1]):
                found = between(reading, self._asked, answered)
                self.offset = found if self.offset is None else self.offset.narrowed(found)
        self.first = min(new, default=None) if self.first is None else self.first
        self._last = max(new, default=self._last)
        self._asked = asked


def together(
    began: Mapping[str, float],
    ended: Mapping[str, float],
    offsets: Mapping[str, Offset | None],
    *,
    unknown: float,
    slack: float = 0.0,
) -> dict[str, Any]:
    """How far apart clients began and ended, from what they say themselves and what their clocks are known to be.

    Args:
        began: by client, by its own clock.
        ended: the same.
        offsets: of the clocks; None where nothing is known of one.
        unknown: by how many seconds such a clock may be off.
        slack: by how many seconds ``began`` and ``ended`` may be wrong in themselves.

    Returns:
        ``start_skew_seconds`` and ``end_skew_seconds``, each with the bounds that hold whatever the clocks were
        (``..._at_most``, ``..._at_least``), and the clocks.
    """
    known = {name: offset or Offset(-unknown, unknown) for name, offset in offsets.items()}
    found: dict[str, Any] = {}
    for word, moments in (("start", began), ("end", ended)):
        ours = {name: at - known[name].middle for name, at in moments.items()}
        apart = max(ours.values()) - min(ours.values())
        unsure = max(known[name].uncertainty for name in moments) + slack if len(moments) > 1 else 0.0
        found[f"{word}_skew_seconds"] = round(apart, 4)
        found[f"{word}_skew_at_most_seconds"] = round(apart + 2 * unsure, 4)
        found[f"{word}_skew_at_least_seconds"] = round(max(0.0, apart - 2 * unsure), 4)
    found["clocks"] = {name: offset.to_json() for name, offset in known.items()}
    return found


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
        drive_servers(clients, jobs, timeout_seconds=_PROBE_SECONDS, folder=folder)
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
