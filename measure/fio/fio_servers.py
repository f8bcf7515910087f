"""fio servers: the local fio that drives them, its output line by line, and clocks of guests compared with ours.

A guest prints its clock repeatedly. The time of each query and of its answer are known by this machine's clock. A
reading that is new in an answer was printed between the previous query and that answer. So each query bounds the
offset of the guest's clock from below and above, and all bounds hold together.

A fio server's log with ``log_unix_epoch`` contains times of that host's clock, and is returned with the results.
A single read shows the clock at a moment between the request and its answer. The log of the measured run, a line
per half second, shows when the run began and ended. Servers at unix sockets share this machine's clock and are not
queried.
"""

import os
import re
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cephfit.core.child_process import end, find_program, start
from cephfit.core.errors import InputError
from cephfit.core.protocols import Client
from cephfit.core.units import KIB
from cephfit.core.values.cells import Cell
from cephfit.measure.steady_runs import Halves, halves_of_log

DEFAULT_PORT = 8765
"""Default port of ``fio --server``."""

_NETWORK = re.compile(r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:,(?P<port>[0-9]{1,5}))?")
_SOCKET = re.compile(r"sock:(?P<path>/[^\s,]+)")


def host_of(client: Client) -> str:
    """Return the host of a client's server as fio reports it: a name, an address, or the path of a socket.

    Raises:
        InputError: the client has no address, or one that ``fio --client`` would interpret differently.
    """
    return _parsed(client)[0]


def why_unreachable(client: Client, *, timeout_seconds: float) -> str:
    """Return why a client's server cannot be reached; empty if it can. Connects without sending data.

    Raises:
        InputError: the address is invalid.
    """
    _, connect = _parsed(client)
    try:
        connect(timeout_seconds).close()
    except TimeoutError:
        return f"no answer from {client.address} within {timeout_seconds:g} s; is a fio server running there?"
    except OSError as error:
        return f"no fio server at {client.address}: {error.strerror or error}"
    return ""


def _parsed(client: Client) -> tuple[str, Callable[[float], socket.socket]]:
    text = client.address or ""
    if found := _SOCKET.fullmatch(text):
        path = found["path"]
        return path, lambda timeout: _connect_socket(path, timeout)
    if found := _NETWORK.fullmatch(text):
        host, port = found["host"], int(found["port"] or DEFAULT_PORT)
        if 0 < port < 65536:
            return host, lambda timeout: socket.create_connection((host, port), timeout=timeout)
    raise InputError(
        f"client {client.name} has no address of a fio server: {text!r}",
        remedy="an address is host, host,port or sock:/path",
    )


def _connect_socket(path: str, timeout_seconds: float) -> socket.socket:
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        stream.settimeout(timeout_seconds)
        stream.connect(path)
    except BaseException:
        stream.close()
        raise
    return stream


_STARTS = re.compile(r"^<[^>]*> Starting \d+ (?:thread|process)")
_ENDS = re.compile(r"^<[^>]*>\s*$")
_QUIT_SECONDS = 5
"""Time for the servers to confirm the end of their jobs; it took 1.3 s in a test (fio 3.33)."""
_TROUBLE = re.compile(r"\bfio: |\berr(?:or)?=|mismatch|refused|failed|not loadable")


@dataclass(frozen=True, slots=True)
class ServerOutput:
    """Output of one fio client process.

    Attributes:
        output: its standard output.
        errors: its standard error, or why it was killed.
        starts: time at which each server began its job, seconds of the monotonic clock.
        ends: time at which each server's job ended.
    """

    output: str
    errors: str
    starts: tuple[float, ...]
    ends: tuple[float, ...]


def drive_servers(
    clients: Sequence[Client], jobs: Mapping[str, str], *, timeout_seconds: float, folder: Path = Path("/")
) -> ServerOutput:
    """Run the local fio that drives the servers, and note the time of each line of its output.

    The jobs are in memory files, so that a kill leaves no files. A server that loses its connection continues its
    job to the end. So fio gets a signal to stop before it is killed, also when this process is killed, and stops
    the servers. timeout(1) limits how long it waits for a server that hangs.

    Args:
        clients: of the servers.
        jobs: client name to job file.
        timeout_seconds: limit for the whole run.
        folder: for logs that the jobs request.
    """
    with ExitStack() as stack:
        bound = find_program("timeout", package="coreutils"), f"--kill-after={_QUIT_SECONDS}", "infinity"
        command = [*bound, find_program("fio", package="fio"), "--output-format=json", "--eta=never"]
        descriptors = []
        for client in clients:
            descriptor = os.memfd_create(f"cephfit-job-{client.name}", 0)
            stack.callback(os.close, descriptor)
            os.write(descriptor, jobs[client.name].encode())
            descriptors.append(descriptor)
            command += [f"--client={client.address}", f"/proc/self/fd/{descriptor}"]
        process = start(command, pass_fds=descriptors, folder=folder, signal_at_death="TERM")
        lines: list[tuple[float, str]] = []
        errors: list[str] = []
        readers = [
            threading.Thread(target=_read_lines, args=(process.stdout, lines), daemon=True),
            threading.Thread(target=_read_all, args=(process.stderr, errors), daemon=True),
        ]
        for reader in readers:
            reader.start()
        in_time: Sequence[tuple[float, str]] = lines
        try:
            process.wait(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            errors.append(f"fio did not end within {timeout_seconds:.0f} s and was killed\n")
            in_time = tuple(lines)  # figures of stopped jobs, which fio writes later, are no result
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=2 * _QUIT_SECONDS)
            end(process, "fio")
            for reader in readers:
                reader.join(timeout=10)
    return ServerOutput(
        output="".join(line for _, line in in_time),
        errors="".join(errors),
        starts=tuple(at for at, line in in_time if _STARTS.match(line)),
        ends=tuple(at for at, line in in_time if _ENDS.match(line)),
    )


def _read_lines(stream: Any, lines: list[tuple[float, str]]) -> None:
    for line in stream:
        lines.append((time.monotonic(), line))


def _read_all(stream: Any, texts: list[str]) -> None:
    for line in stream:
        texts.append(line)


def with_fio_messages(failure: str, server_output: ServerOutput, host: str) -> str:
    """Return the failure with fio's messages about it, of this host where a message names one."""
    messages = [
        line.strip()
        for text in (server_output.errors, server_output.output.split("\n{", 1)[0])
        for line in text.splitlines()
        if _TROUBLE.search(line) or "killed" in line
    ]
    named = [line for line in messages if host and host in line] or messages
    text = "; ".join(dict.fromkeys(named[:3]))
    return f"{failure}; fio's messages: {text}" if text else failure


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
