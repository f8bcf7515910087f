"""The clients of a shared volume at work: processes of this machine through librbd, or guests with fio.

The processes begin and end their runs together. Guests run one fio job each, with the time of every access.
"""

import json
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

from cephfit.core.child_process import end, start
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.protocols import Client
from cephfit.core.units import NS_PER_MS
from cephfit.measure import sharing_client
from cephfit.measure.engine import CHECK_STORAGE
from cephfit.measure.fio.fio_files import UnusableOutputError, error_of, read_output
from cephfit.measure.fio.fio_local import GRACE_SECONDS
from cephfit.measure.fio.fio_remote import jobs_of
from cephfit.measure.fio.fio_servers import ServerOutput, drive_servers, host_of, with_fio_messages
from cephfit.measure.sharing_client import SharedLoad

_CLOSING_SECONDS = 30.0
_PATIENCE_SECONDS = 120.0
"""Time for an answer in addition to that of a run: an image may be held by a client that must be blocklisted."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """How clients reach the pool with the volume.

    Attributes:
        conf: ceph.conf of the cluster.
        client_id: such as ``admin`` for ``client.admin``.
        keyring: with its key; None for that of ``conf`` or of Ceph's defaults.
        pool: name.
    """

    conf: Path
    client_id: str
    keyring: Path | None
    pool: str


class SharingClients:
    """Processes of ``sharing_client``; a context manager that ends them.

    Args:
        access: to the cluster.
        n_clients: number of processes.
    """

    def __init__(self, access: ClusterAccess, n_clients: int) -> None:
        self._access = access
        self._n_clients = n_clients
        self._processes: list[subprocess.Popen[str]] = []

    def __enter__(self) -> "SharingClients":
        its = self._access
        words = (str(its.conf), its.client_id, str(its.keyring or ""), its.pool)
        try:
            for number in range(self._n_clients):
                argv = (sys.executable, "-m", sharing_client.__name__, *words, str(number))
                self._processes.append(start(argv, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._end()

    def _end(self) -> None:
        """End the processes; each may close its image, which a killed client keeps in use for half a minute."""
        for process in self._processes:
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(BrokenPipeError):
                        stream.close()
        for number, process in enumerate(self._processes):
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=_CLOSING_SECONDS)
            end(process, f"client c{number} of the shared volume")

    def fill(self, image: str, *, seconds: float) -> None:
        """Let one client fill an image with random bytes within a time.

        Raises:
            ClusterError: it failed, or took longer.
        """
        self._send(0, {"fill": image})
        self._answer(0, time.monotonic() + seconds + _PATIENCE_SECONDS)

    def open(self, image: str) -> None:
        """Let all clients open an image.

        Raises:
            ClusterError: a client cannot.
        """
        self._all({"open": image})

    def close(self) -> None:
        """Let all clients close the image."""
        self._all({"close": True})

    def run(self, load: SharedLoad, *, ramp_seconds: float, run_seconds: float, seed: int) -> list[dict[str, Any]]:
        """Let all clients run together, and return what ``sharing_client.run_load`` returned for each.

        Raises:
            ClusterError: a client failed, or gave no answer.
        """
        command = {"run": load.to_json(), "ramp_seconds": ramp_seconds, "run_seconds": run_seconds, "seed": seed}
        return self._all(command, seconds=ramp_seconds + run_seconds)

    def burst(self, client: int, n_writes: int, *, nbytes: int, seed: int) -> list[float]:
        """Let one client write some blocks, and return the time of each write in ms."""
        self._send(client, {"burst": n_writes, "nbytes": nbytes, "seed": seed})
        return [float(ms) for ms in self._answer(client, time.monotonic() + _PATIENCE_SECONDS)["times_ms"]]

    def _all(self, command: Mapping[str, Any], *, seconds: float = 0.0) -> list[dict[str, Any]]:
        for client in range(self._n_clients):
            self._send(client, command)
        deadline = time.monotonic() + seconds + _PATIENCE_SECONDS
        return [self._answer(client, deadline) for client in range(self._n_clients)]

    def _send(self, client: int, command: Mapping[str, Any]) -> None:
        stream = self._processes[client].stdin
        assert stream is not None
        try:
            stream.write(json.dumps(command) + "\n")
            stream.flush()
        except BrokenPipeError:
            raise self._failure(client, "its process has ended") from None

    def _answer(self, client: int, deadline: float) -> dict[str, Any]:
        stream = self._processes[client].stdout
        assert stream is not None
        ready: Sequence[Any] = select.select([stream], [], [], max(0.0, deadline - time.monotonic()))[0]
        if not ready:
            raise self._failure(client, "no answer in time")
        line = stream.readline()
        if not line:
            raise self._failure(client, "its process has ended")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise self._failure(client, answer["error"])
        return answer

    def _failure(self, client: int, what: str) -> ClusterError:
        return ClusterError(
            f"client c{client} of the shared volume failed: {what}",
            where=f"pool {self._access.pool}",
            remedy="look at the cluster's health; the same command begins again",
        )


_LOG = "cephfit-{}"


def require_whole_per_cent(load: SharedLoad) -> None:
    """Check that fio can divide the accesses between two zones.

    Raises:
        InputError: the sharing degree is not a whole number of per cent.
    """
    if load.shared_pct != int(load.shared_pct):
        raise InputError(
            f"{load.shared_pct:g} per cent is not a whole number, which fio's zones in guests need",
            where="--shared",
            remedy="give whole numbers",
        )


def job_of(
    load: SharedLoad, number: int, client: Client, *, ramp_seconds: float, run_seconds: float, seed: int
) -> str:
    """Return the fio job of a guest.

    Args:
        load: of all guests.
        number: of the guest, from 0, which determines its own region.
        client: fio's options for the volume in the guest.
        ramp_seconds, run_seconds: before and in the measured time.
        seed: of the offsets; each guest gets another one.
    """
    region, shared = load.region_nbytes, int(load.shared_pct)
    zones = [f"{shared}/{region}", *([f"0/{number * region}"] if number else []), f"{100 - shared}/{region}"]
    options = {
        **{"thread": 1, "ioengine": "libaio", "iodepth": 1, "direct": 1},
        **{"rw": f"rand{load.op.value}", "bs": load.access_nbytes, "size": (load.n_clients + 1) * region},
        # With its map fio would avoid blocks that it has accessed before.
        **{"norandommap": 1, "random_distribution": f"zoned_abs:{':'.join(zones)}"},
        **{"time_based": 1, "ramp_time": f"{round(1000 * ramp_seconds)}ms"},
        "runtime": f"{round(1000 * run_seconds)}ms",
        **{"refill_buffers": 1, "buffer_compress_percentage": 0, "fallocate": "none"},
        # With randrepeat fio 3.33 ignores randseed.
        **{"randrepeat": 0, "randseed": seed * load.n_clients + number},
        # Without offsets: with them fio 3.33 returns only four fifths of a server's log.
        "write_lat_log": _LOG.format(client.name),
        **client.fio_options,
    }
    return "\n".join([f"[{client.name}]", *(f"{key}={value}" for key, value in options.items()), ""])


def times_of(log: str) -> tuple[float, ...]:
    """Return the times of the accesses in a log that fio wrote with ``write_lat_log``, in ms.

    Its lines are: ms since the start, latency in ns, direction, bytes, priority.
    """
    return tuple(int(line.split(",")[1]) / NS_PER_MS for line in log.splitlines() if line.strip())


@dataclass(frozen=True, slots=True)
class GuestsRun:
    """One run of all guests.

    Attributes:
        times_ms: of each guest's accesses in the measured time.
        skew_seconds: between the ends of the first and the last job; 0 where fio did not report them.
    """

    times_ms: tuple[tuple[float, ...], ...]
    skew_seconds: float

    def outcomes(self) -> tuple[dict[str, Any], ...]:
        """Return each guest's accesses in the form of ``sharing_client.run_load``."""
        return tuple(map(_outcome, self.times_ms))


def run_in_guests(
    load: SharedLoad, clients: Sequence[Client], *, ramp_seconds: float, run_seconds: float, seed: int
) -> GuestsRun:
    """Let all guests access the volume together.

    Raises:
        ClusterError: a guest returned no usable result.
    """
    times = {"ramp_seconds": ramp_seconds, "run_seconds": run_seconds}
    jobs = {c.name: job_of(load, number, c, **times, seed=seed) for number, c in enumerate(clients)}
    with TemporaryDirectory(prefix="cephfit-fio-") as folder:
        timeout = ramp_seconds + run_seconds + GRACE_SECONDS
        output = drive_servers(clients, jobs, timeout_seconds=timeout, folder=Path(folder))
        n_counted = _counted(load, clients, output)
        found = [_logged(Path(folder), client, n_counted[client.name], output) for client in clients]
    ends = output.ends if len(output.ends) == len(clients) else (0.0,)
    return GuestsRun(tuple(found), max(ends) - min(ends))


def _outcome(times_ms: Sequence[float]) -> dict[str, Any]:
    seconds = {"lock": 0.0, "access": sum(times_ms) / 1000, "unlock": 0.0}
    return {"n": len(times_ms), "seconds": seconds, "n_busy": 0, "times_ms": times_ms}


def _counted(load: SharedLoad, clients: Sequence[Client], output: ServerOutput) -> dict[str, int]:
    """Return the number of each client's accesses by fio's own count."""
    try:
        found = jobs_of(read_output(output.output, jobs="client_stats"), clients)
    except UnusableOutputError as error:
        raise _failure(str(error), output, "") from None
    for client in clients:
        if client.name not in found:
            raise _failure(f"the fio server of client {client.name} returned no result", output, host_of(client))
        if number := error_of(found[client.name]):
            raise _failure(f"fio failed in client {client.name} (error {number})", output, host_of(client))
    return {name: int(job[load.op.value]["total_ios"]) for name, job in found.items()}


def _logged(folder: Path, client: Client, n_counted: int, output: ServerOutput) -> tuple[float, ...]:
    """Return the times in a client's log, which must be complete."""
    log = folder / f"{_LOG.format(client.name)}_lat.1.log.{host_of(client)}"
    try:
        times = times_of(log.read_text())
    except (OSError, ValueError, IndexError) as error:
        raise _failure(f"the log of client {client.name} cannot be read: {error!r}", output, "") from None
    # One access may be in flight where the ramp ends.
    if abs(len(times) - n_counted) > 1:
        what = f"fio counted {n_counted} accesses of client {client.name}, and its log has {len(times)}"
        raise _failure(what, output, host_of(client))
    return times


def _failure(what: str, output: ServerOutput, host: str) -> ClusterError:
    return ClusterError(with_fio_messages(what, output, host), where="shared volume", remedy=CHECK_STORAGE)
