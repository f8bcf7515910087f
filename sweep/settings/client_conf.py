"""The clients' ceph.conf of a configuration, and what running clients say they took from it."""

import json
import os
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from cephfit.configuration import Configuration, Partition, Setting
from cephfit.errors import ClusterError
from cephfit.optional_modules import optional_module
from cephfit.protocols import CephAdmin
from cephfit.sweep.admin.older_releases import monitor_address
from cephfit.sweep.options.option_value import as_ceph_writes, same_value
from cephfit.sweep.settings.catalogue import Catalogue

_SOCKET_SECONDS = 5.0
_ENDING_SECONDS = 0.2
_FLUSH_SECONDS = 60.0
"""Writing out librbd's cache, 32 MiB by default, to slow disks."""


def client_settings(configuration: Configuration) -> tuple[Setting, ...]:
    """The settings that clients are concerned by."""
    return tuple(s for s in configuration.within(Partition.CEPH) if s.scope.partition("/")[0] == "client")


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """How clients reach a cluster.

    Attributes:
        client_id: such as ``admin`` for ``client.admin``.
        keyring: paths of keyrings, as ceph.conf takes them; empty to leave it to ``base``.
        base: text of the cluster's own ceph.conf, which the clients' one begins with; empty for a cluster that
            gives everything through its config store.
    """

    client_id: str
    keyring: str
    base: str = ""


def render_client_conf(
    configuration: Configuration, admin: CephAdmin, *, access: ClientAccess, socket_folder: Path
) -> str:
    """The text of a ceph.conf with which a client reaches the cluster under a configuration.

    Options stand in the file as well as in the config store, because clients of other releases than the
    cluster's may not ask the store.
    """
    dump = admin.command("mon dump")
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, keep_trailing_newline=True, autoescape=False
    )
    template = environment.from_string((files("cephfit.templates") / "client.conf.j2").read_text())
    return template.render(
        configuration=configuration.name,
        fsid=dump["fsid"],
        mon_host=" ".join(monitor_address(mon) for mon in dump["mons"]),
        keyring=access.keyring,
        base=access.base,
        client_id=access.client_id,
        socket_folder=socket_folder,
        options=[(s.key, as_ceph_writes(s.value)) for s in client_settings(configuration)],
    )


def write_client_conf(path: Path, text: str) -> None:
    """Replace the file at once: a client that starts meanwhile reads the old one or the new one."""
    draft = path.with_suffix(".new")
    draft.touch(mode=0o600)  # a cluster's ceph.conf may have a key in it
    draft.write_text(text)
    draft.replace(path)


def read_back_clients(
    configuration: Configuration, catalogue: Catalogue, socket_folder: Path
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Ask every running client through its admin socket.

    Returns:
        Setting as text to client to value, and one sentence per setting that did not take effect.

    Raises:
        ClusterError: a client runs and does not answer.
    """
    settings = client_settings(configuration)
    values: dict[str, dict[str, Any]] = {str(s): {} for s in settings}
    mismatches = []
    clients = live_sockets(socket_folder) if settings else ()
    for number, path in enumerate(clients):
        for setting in settings:
            got = _asked(path, "config get", var=setting.key).get(setting.key)
            values[str(setting)][f"client {number}"] = got
            if not same_value(catalogue.option(setting.key).type, setting.value, str(got)):
                mismatches.append(f"client {number} runs {setting.key} = {got}, not {setting.value}")
    if settings and not clients:
        mismatches.append("no running client could be asked for " + ", ".join(s.key for s in settings))
    return values, mismatches


def read_back_new_client(
    configuration: Configuration, catalogue: Catalogue, conf: Path, client_id: str
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Start a client on ``conf`` in this process and ask it: for clients that live only while fio runs.

    Returns:
        As ``read_back_clients``.
    """
    settings = client_settings(configuration)
    if not settings:
        return {}, []
    values: dict[str, dict[str, Any]] = {}
    mismatches = []
    with optional_module("rados").Rados(conffile=str(conf), rados_id=client_id) as client:
        for setting in settings:
            got = client.conf_get(setting.key)
            values[str(setting)] = {"a new client": got}
            if not same_value(catalogue.option(setting.key).type, setting.value, str(got)):
                mismatches.append(f"a new client runs {setting.key} = {got}, not {setting.value}")
    return values, mismatches


def drop_client_caches(socket_folder: Path) -> None:
    """Make running clients write out and forget what they hold of their images (``rbd_cache = true``).

    Raises:
        ClusterError: a client runs and does not do it.
    """
    for path in live_sockets(socket_folder):
        commands = sorted(_asked(path, "help"))
        for verb in ("rbd cache flush ", "rbd cache invalidate "):
            for command in (c for c in commands if c.startswith(verb)):
                _asked(path, command, seconds=_FLUSH_SECONDS)


def live_sockets(folder: Path) -> Sequence[Path]:
    """Admin sockets of clients that still run; those that the killed left behind are removed.

    Raises:
        ClusterError: a client runs and does not answer.
    """
    return [path for path in sorted(folder.glob("*.asok")) if _lives(path)]


def remove_dead_sockets(folder: Path) -> None:
    """Remove the admin sockets that the killed left behind; those of clients that run stay, answer or not."""
    for path in sorted(folder.glob("*.asok")):
        with suppress(ClusterError):
            _lives(path)


def _lives(path: Path) -> bool:
    """Only who is gone refuses to be spoken to: one that hangs has options and a cache all the same.

    Raises:
        ClusterError: it hangs.
    """
    try:
        try:
            ask(path, "version")
        except (ConnectionResetError, BrokenPipeError):  # one that ends at this moment is gone a little later
            time.sleep(_ENDING_SECONDS)
            ask(path, "version")
    except (ConnectionRefusedError, FileNotFoundError):
        path.unlink(missing_ok=True)
        return False
    except OSError as error:
        raise _no_answer(path, "version", error) from None
    return True


def _asked(path: Path, prefix: str, *, seconds: float | None = None, **arguments: str) -> Any:
    """As ``ask``, of a client that lives.

    Raises:
        ClusterError: it does not answer.
    """
    try:
        return ask(path, prefix, seconds=seconds, **arguments)
    except OSError as error:
        raise _no_answer(path, prefix, error) from None


def _no_answer(path: Path, prefix: str, error: OSError) -> ClusterError:
    return ClusterError(
        f"a client of the benchmark gave no answer to `{prefix}`: {error}",
        where=str(path),
        remedy=f"see what process {path.name.partition('.')[0]} hangs on, or end it; then run the command again",
    )


def ask(path: Path, prefix: str, *, seconds: float | None = None, **arguments: str) -> Any:
    """One command over a Ceph admin socket: JSON and a zero byte there, a length and JSON (or nothing) back.

    Raises:
        OSError: nobody listens, or the answer breaks off.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(_SOCKET_SECONDS if seconds is None else seconds)
        # Paths of Unix sockets end at 107 bytes; one's own folder of open files is a short way there.
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            link.connect(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        link.sendall(json.dumps({"prefix": prefix, **arguments, "format": "json"}).encode() + b"\0")
        (length,) = struct.unpack(">I", _receive(link, 4))
        answer = _receive(link, length)
        return json.loads(answer) if answer else None


def _receive(link: socket.socket, n_bytes: int) -> bytes:
    content = b""
    while len(content) < n_bytes:
        part = link.recv(n_bytes - len(content))
        if not part:
            raise ConnectionResetError("the admin socket's answer broke off")
        content += part
    return content
