"""Processes of Ceph's benchmark programs: one per client, started together."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cephfit.core.child_process import end, find_program, start
from cephfit.core.errors import ClusterError, HostError, InputError
from cephfit.core.protocols import Client
from cephfit.measure.engine import CHECK_STORAGE
from cephfit.measure.fio.fio_files import CONF_OPTION

PACKAGE = "ceph-common"


@dataclass(frozen=True, slots=True)
class Ended:
    """A program that has ended.

    Attributes:
        output: its standard output.
        trouble: reason why the output is no result; empty if the program succeeded.
    """

    output: str
    trouble: str


@dataclass(frozen=True, slots=True)
class Image:
    """An image and the access to it, from a client that fio would open by ``ioengine=rbd``.

    Attributes:
        pool: its pool.
        name: its name.
        access: arguments of every Ceph program for connecting to the cluster.
    """

    pool: str
    name: str
    access: tuple[str, ...]


def image_of(client: Client) -> Image:
    """Return the image of a client.

    Raises:
        InputError: the client is not an image that a program can open.
    """
    options = client.fio_options
    if "rbdname" not in options or "pool" not in options:
        raise InputError(
            f"client {client.name} is not an RBD image that rados and rbd can reach",
            where="measurement.engine",
            remedy="use engine: fio, or a target whose clients are images of a Ceph cluster",
        )
    conf = ("--conf", options[CONF_OPTION]) if CONF_OPTION in options else ()
    return Image(options["pool"], options["rbdname"], (*conf, "--id", options.get("clientname", "admin")))


def place_of(client: Client) -> str:
    """Return the place of a client's data, for errors."""
    image = image_of(client)
    return f"pool {image.pool}, image {image.name}"


def version_of(program: str) -> str:
    """Return the version that a Ceph program reports.

    Raises:
        HostError: it is not installed, or does not start.
    """
    path = find_program(program, package=PACKAGE)
    answer = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=60)
    if answer.returncode:
        raise HostError(f"{program} does not start: {answer.stderr.strip()}", where=path)
    return answer.stdout.strip()


def run_together(commands: Mapping[str, Sequence[str]], *, timeout_seconds: float) -> dict[str, Ended]:
    """Run one command per client, all at once. The processes die with the calling thread.

    Raises:
        HostError: a program is missing, or cannot be killed.
    """
    processes: dict[str, subprocess.Popen[str]] = {}
    deadline = time.monotonic() + timeout_seconds
    try:
        for name, command in commands.items():
            processes[name] = start((find_program(command[0], package=PACKAGE), *command[1:]))
        with ThreadPoolExecutor(max(1, len(processes))) as pool:
            waits = {n: pool.submit(_wait, p, deadline, timeout_seconds) for n, p in processes.items()}
            try:
                return {name: wait.result() for name, wait in waits.items()}
            except BaseException:  # an interrupt: without a kill the pool would wait for the processes
                for process in processes.values():
                    process.kill()
                raise
    finally:
        for name, process in processes.items():
            end(process, commands[name][0])


def require_success(clients: Sequence[Client], ended: Mapping[str, Ended], what: str, done: str) -> None:
    """Require that every client's program succeeded.

    Args:
        clients: of the programs.
        ended: client name to its program's result.
        what, done: object and verb of the message, such as ``the volume`` and ``read``.

    Raises:
        ClusterError: a program failed.
    """
    for client in clients:
        if trouble := ended[client.name].trouble:
            raise ClusterError(
                f"{what} of client {client.name} could not be {done}: {trouble}",
                where=place_of(client),
                remedy=CHECK_STORAGE,
            )


def _wait(process: subprocess.Popen[str], deadline: float, timeout_seconds: float) -> Ended:
    try:
        output, errors = process.communicate(timeout=max(0.1, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        return Ended(output, f"did not end within {timeout_seconds:.0f} s and was killed")
    if process.returncode:
        messages = [line.strip() for line in errors.splitlines() if line.strip()]
        return Ended(output, messages[-1] if messages else f"ended with {process.returncode}")
    return Ended(output, "")
