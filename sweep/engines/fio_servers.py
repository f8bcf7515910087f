"""Addresses of fio servers: what they mean, and whether anybody answers there."""

import re
import socket
from collections.abc import Callable

from cephfit.errors import InputError
from cephfit.protocols import Client

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
