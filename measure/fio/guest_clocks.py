"""Clocks of guests and fio servers, compared with this machine's clock.

A guest prints its clock repeatedly. The time of each query and of its answer are known by this machine's clock. A
reading that is new in an answer was printed between the previous query and that answer. So each query bounds the
offset of the guest's clock from below and above, and all bounds hold together.

A fio server's log with ``log_unix_epoch`` contains times of that host's clock, and is returned with the results.
A single read shows the clock at a moment between the request and its answer. The log of the measured run, a line
per half second, shows when the run began and ended. Servers at unix sockets share this machine's clock and are not
queried.
"""

import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cephfit.core.protocols import Client
from cephfit.core.units import KIB
from cephfit.core.values.cells import Cell
from cephfit.measure.fio.fio_servers import drive_servers, host_of
from cephfit.measure.validity.steady_runs import Halves, halves_of_log

_DRIFT_SECONDS = 0.05
"""Contradiction of bounds up to which it is drift; beyond it, the clock was set in between."""


@dataclass(frozen=True, slots=True)
class Offset:
    """Seconds by which a guest's clock is ahead of this machine's: between ``low`` and ``high``."""

    low: float
    high: float

    @property
    def middle(self) -> float:
        """Best estimate; wrong by ``uncertainty`` at most."""
        return (self.low + self.high) / 2

    @property
    def uncertainty(self) -> float:
        return (self.high - self.low) / 2

    def narrowed(self, other: "Offset") -> "Offset":
        """Return the intersection; on a contradiction the clock was set in between, and the later one holds."""
        low, high = max(self.low, other.low), min(self.high, other.high)
        return other if low > high + _DRIFT_SECONDS else Offset(min(low, high), max(low, high))

    def to_json(self) -> dict[str, float]:
        """For a sample's evidence."""
        return {"ahead_seconds": round(self.middle, 4), "uncertainty_seconds": round(self.uncertainty, 4)}


def between(reading: float, after: float, before: float) -> Offset:
    """Return the offset of a clock that showed ``reading`` between ``after`` and ``before`` of this machine."""
    return Offset(reading - before, reading - after)


class ClockWatch:
    """One guest's clock, from its readings.

    Attributes:
        offset: known so far; None without bounds.
        first: the first reading.
    """

    def __init__(self) -> None:
        self.offset: Offset | None = None
        self.first: float | None = None
        self._asked: float | None = None
        self._last = float("-inf")

    def see(self, readings: Sequence[float], *, asked: float, answered: float) -> None:
        """Add the readings of a query.

        Args:
            readings: all of the guest's readings so far, oldest first; seconds since 1970.
            asked: time of the query, by this machine's clock.
            answered: time of its answer.
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
    """Return the skew of the clients' begins and ends, from their own times and the offsets of their clocks.

    Args:
        began: client to its begin, by its own clock.
        ended: client to its end, by its own clock.
        offsets: client to its clock's offset; None where unknown.
        unknown: seconds by which a clock of unknown offset may be off.
        slack: seconds by which ``began`` and ``ended`` may be inexact.

    Returns:
        ``start_skew_seconds`` and ``end_skew_seconds``, each with bounds that hold for all possible offsets
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
"""Validity of a comparison: clocks drift by less than a millisecond in a minute."""


class ServerClocks:
    """Compares the clocks of fio servers with this machine's, at most once a minute."""

    def __init__(self) -> None:
        self._offsets: dict[str, Offset | None] = {}
        self._at: float | None = None

    def compared(self, clients: Sequence[Client]) -> Mapping[str, Offset | None]:
        """Return by client the offset of its host's clock; None where its server reported none."""
        stale = self._at is None or time.monotonic() - self._at > _KEPT_SECONDS
        if stale or any(str(client.address) not in self._offsets for client in clients):
            found = _probed([client for client in clients if has_clock(client)])
            self._offsets = {str(c.address): found.get(c.name) for c in clients}
            self._at = time.monotonic()
        return {client.name: self._offsets[str(client.address)] for client in clients if has_clock(client)}


def has_clock(client: Client) -> bool:
    """Return whether a client's server may have another clock than this machine."""
    return bool(client.address) and not str(client.address).startswith("sock:")


def with_log(job: str, client: Client) -> str:
    """Return the client's job with a log that shows when its measured part began and ended."""
    if not has_clock(client):
        return job
    options = (
        f"write_bw_log={_LOG.format(client.name)}",
        f"log_avg_msec={round(WINDOW_SECONDS * 1000)}",
        "log_unix_epoch=1",
    )
    return "\n".join([job.rstrip("\n"), *options, ""])


def measured_parts(folder: Path, clients: Sequence[Client]) -> dict[str, tuple[float, float]]:
    """Return when each client's measured part began and ended, by its host's clock, in seconds since 1970.

    Args:
        folder: fio's working folder, with the servers' logs.
        clients: with jobs from ``with_log``; clients without a log are omitted.
    """
    found = {}
    for client in clients:
        if (moments := _moments(folder, client, "bw")) and moments[-1] - moments[0] >= WINDOW_SECONDS:
            found[client.name] = (moments[0] - WINDOW_SECONDS, moments[-1])
    return found


def halves_by_log(folder: Path, client: Client, cell: Cell) -> Halves | None:
    """Return the I/Os in both halves of a client's measured time; None without a log (see ``with_log``)."""
    log = folder / f"{_LOG.format(client.name)}_bw.1.log.{host_of(client)}"
    if not log.is_file():
        return None
    per_kib = KIB / cell.size.benchmark_nbytes
    lines = log.read_text().splitlines()
    return halves_of_log(lines, cell.pattern.op, window_seconds=WINDOW_SECONDS, ios_per_unit=per_kib)


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
    return {name: between(times[0], asked, answered + 0.001) for name, times in moments.items() if times}


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
