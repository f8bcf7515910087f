"""The fio that drives fio servers: addresses, arguments, and its output line by line.

Addresses of fio servers: what they mean, and whether anybody answers there.

The one fio that drives fio servers: how it is run, and what it says line by line.
"""

import os
import re
import socket
import subprocess
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

DEFAULT_PORT = 8765
"""Where ``fio --server`` listens unless it is told otherwise."""

_NETWORK = re.compile(r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:,(?P<port>[0-9]{1,5}))?")
_SOCKET = re.compile(r"sock:(?P<path>/[^\s,]+)")


def host_of(client: Client) -> str:
    """The host of a client's server as fio reports it: the name or number, or the path of a socket.

    Raises:
        InputError: the client has no address, or one that ``fio --client`` would take for something else.
    """
    return _parsed(client)[0]


def why_unreachable(client: Client, *, timeout_seconds: float) -> str:
    """Why no server can be reached for a client; empty if one can. Connects, and says nothing.

    Raises:
        InputError: the address cannot be.
    """
    _, connect = _parsed(client)
    try:
        connect(timeout_seconds).close()
    except TimeoutError:
        return f"nothing answers at {client.address} within {timeout_seconds:g} s; is a fio server there?"
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
"""For the servers to answer that they have ended their jobs; that took 1.3 s here (fio 3.33)."""
_TROUBLE = re.compile(r"\bfio: |\berr(?:or)?=|mismatch|refused|failed|not loadable")


@dataclass(frozen=True, slots=True)
class ServerOutput:
    """What one fio client process said.

    Attributes:
        output: its standard output.
        errors: its standard error, or why it was killed.
        starts: when each server began its job, seconds of the monotonic clock.
        ends: when each server's job was over.
    """

    output: str
    errors: str
    starts: tuple[float, ...]
    ends: tuple[float, ...]


def drive_servers(
    clients: Sequence[Client], jobs: Mapping[str, str], *, timeout_seconds: float, folder: Path = Path("/")
) -> ServerOutput:
    """Run the local fio that drives the servers; its lines get the moment at which they came.

    The jobs lie in memory files, so that a kill leaves nothing behind. A server whose connection breaks goes on
    with its job to the end of it, so fio is asked to stop before it is killed, also when this process is killed:
    it tells the servers. timeout(1) sees to it that it does not wait for ever for one that hangs.

    Args:
        clients: whose servers are driven.
        jobs: by client.
        timeout_seconds: how long all of it may take.
        folder: where logs go that the jobs ask for.
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
            in_time = tuple(lines)  # what it finds of jobs that are cut off is no result
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
    """The failure, with what fio said of it: of this host where it names one."""
    said = [
        line.strip()
        for text in (server_output.errors, server_output.output.split("\n{", 1)[0])
        for line in text.splitlines()
        if _TROUBLE.search(line) or "killed" in line
    ]
    named = [line for line in said if host and host in line] or said
    words = "; ".join(dict.fromkeys(named[:3]))
    return f"{failure}; fio said: {words}" if words else failure
