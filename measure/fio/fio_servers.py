"""The local fio that drives fio servers: their addresses, its arguments, and its output line by line."""

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
