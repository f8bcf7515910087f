"""Guests: what they run at their start, and waiting until they can be measured."""

import socket
import time
from collections.abc import Sequence
from importlib import resources

import jinja2
from openstack.connection import Connection

from cephfit import templates
from cephfit.errors import ClusterError
from cephfit.sweep.cloud.connection import persistently
from cephfit.sweep.cloud.stacks import Node

VOLUME = "/dev/cephfit-volume"
"""In every guest: a link to the block device of its Cinder volume."""

_POLLING_SECONDS = 1.0
_CONNECT_SECONDS = 2.0


def user_data(*, port: int) -> str:
    """The script that guests run at their start; Heat puts the volume's id in."""
    text = resources.files(templates).joinpath("guest.sh.j2").read_text()
    template = jinja2.Template(text, undefined=jinja2.StrictUndefined, keep_trailing_newline=True)
    return template.render(device=VOLUME, port=port)


def await_reachable(cloud: Connection, nodes: Sequence[Node], *, port: int, seconds: float) -> None:
    """Until fio's server answers in every guest.

    Raises:
        ClusterError: one does not answer in time; with the last lines of its console.
    """
    deadline = time.monotonic() + seconds
    for node in nodes:
        while not _answers(node.address, port):
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"no fio server answers at {node.address}:{port} after {seconds:.0f} s; the console ends "
                    f"with: {last_words(cloud, node.server) or 'nothing'}",
                    where=f"client {node.name} (server {node.server})",
                    remedy="see whether this machine may reach the guests' network and the image has fio",
                )
            time.sleep(_POLLING_SECONDS)


def last_words(cloud: Connection, server: str, *, n_lines: int = 5) -> str:
    """The last lines of a server's console, on one line."""
    said = console(cloud, server, n_lines=n_lines)
    return " / ".join(line.strip() for line in said.splitlines() if line.strip())


def console(cloud: Connection, server: str, *, n_lines: int | None = None) -> str:
    """What a server's console shows; Nova keeps its last 100 KiB."""
    answer = persistently(
        lambda: cloud.compute.get_server_console_output(server, length=n_lines), where=f"server {server}"
    )
    return str(answer.get("output") or "") if isinstance(answer, dict) else str(answer or "")


def _answers(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=_CONNECT_SECONDS).close()
    except OSError:
        return False
    return True
