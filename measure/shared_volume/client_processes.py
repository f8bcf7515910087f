"""The clients of a shared volume: one process each, which begin and end their runs together."""

import json
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from cephfit.core.child_process import end, start
from cephfit.core.errors import ClusterError
from cephfit.measure.shared_volume import sharing_client
from cephfit.measure.shared_volume.access_plan import SharedLoad

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
