"""The clients' ceph.conf of a configuration, and the admin sockets of clients.

The sockets need a folder with a short path, whatever the length of the state folder's path. Running clients report
their values through the sockets.
"""

import errno
import hashlib
import json
import os
import re
import socket
import stat
import struct
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2

from cephfit.ceph.admin.answers import monitor_address
from cephfit.ceph.options.option import as_ceph_writes, same_value
from cephfit.ceph.options.option_catalogue import Catalogue
from cephfit.core.errors import ClusterError, HostError
from cephfit.core.optional_modules import optional_module
from cephfit.core.protocols import CephAdmin
from cephfit.core.values.configuration import Configuration, Partition, Setting

_PATH_MAX = 107
"""Maximum bytes of a Unix socket's path (unix(7)); with a longer one Ceph runs without a socket."""
_LONGEST_NAME = f"{2**22}.{2**47 - 1}.asok"
"""Largest process id (PID_MAX_LIMIT) and address in user space: see templates/client.conf.j2."""


def socket_folder(folder: Path) -> Path:
    """Return the folder for the sockets of a target's clients; it may not exist yet.

    It is in the target's folder if paths there are short enough, else under ``$XDG_RUNTIME_DIR`` or the folder for
    temporary files. Its name is derived from the target's folder, so that later processes find it.

    Args:
        folder: of the target.

    Raises:
        HostError: every candidate has a long path.
    """
    nested = folder / "sock"
    if _is_short(nested):
        return nested
    name = hashlib.sha256(os.fsencode(folder.absolute())).hexdigest()[:16]
    places = [base / name for base in _bases()]
    place = next((place for place in places if _is_short(place)), None)
    if place is None:
        raise HostError(
            "the clients' admin sockets need a folder with a short path, of at most "
            f"{_PATH_MAX - len(_LONGEST_NAME) - 1} bytes",
            where=" or ".join(map(str, (nested, *places))),
            remedy="set XDG_RUNTIME_DIR to a folder with a short path",
        )
    return place


def make_socket_folder(folder: Path) -> Path:
    """Create the ``socket_folder``, accessible to this user only.

    Raises:
        HostError: as ``socket_folder``; or another user owns it, who could place sockets in it.
    """
    sockets = socket_folder(folder)
    if folder in sockets.parents:
        sockets.mkdir(exist_ok=True)
    else:
        _make_private(sockets.parent)
        _make_private(sockets)
    return sockets


def remove_socket_folder(folder: Path, sockets: Path) -> None:
    """Remove the folder if it is outside the target's folder and no client uses it any more."""
    if folder in sockets.parents:
        return
    with suppress(OSError):
        sockets.rmdir()
        sockets.parent.rmdir()


def _bases() -> list[Path]:
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    ours = [Path(runtime) / "cephfit"] if runtime and Path(runtime).is_dir() else []
    return [*ours, Path(tempfile.gettempdir()) / f"cephfit-{os.geteuid()}"]


def _is_short(folder: Path) -> bool:
    return len(os.fsencode(folder.absolute() / _LONGEST_NAME)) <= _PATH_MAX


def _make_private(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    about = folder.lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & 0o022:
        raise HostError(
            "a folder for the clients' admin sockets is accessible to other users",
            where=str(folder),
            remedy="remove it, or set XDG_RUNTIME_DIR to a private folder",
        )


_SOCKET_SECONDS = 5.0
_ENDING_SECONDS = 0.2
_POLL_SECONDS = 0.05
_FLUSH_SECONDS = 60.0
"""Time limit for flushing librbd's cache, 32 MiB by default, to slow disks."""


def client_settings(configuration: Configuration) -> tuple[Setting, ...]:
    """Return the settings that apply to clients."""
    return tuple(s for s in configuration.within(Partition.CEPH) if s.scope.partition("/")[0] == "client")


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """Access of clients to a cluster.

    Attributes:
        client_id: such as ``admin`` for ``client.admin``.
        keyring: paths of keyrings, in the syntax of ceph.conf; empty to use that of ``base``.
        base: text of the cluster's ceph.conf, with which the clients' file begins; empty for a cluster that
            delivers everything through its config store.
    """

    client_id: str
    keyring: str
    base: str = ""


def render_client_conf(
    configuration: Configuration, admin: CephAdmin, *, access: ClientAccess, socket_folder: Path
) -> str:
    """Return the text of a client's ceph.conf under a configuration.

    Options are in the file as well as in the config store, because clients of a release other than the cluster's
    may not read the store.
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
    """Replace the file atomically: a client that starts meanwhile reads the old or the new one."""
    draft = path.with_suffix(".new")
    draft.touch(mode=0o600)  # a cluster's ceph.conf may contain a key
    draft.write_text(text)
    draft.replace(path)


def read_back_clients(
    configuration: Configuration, catalogue: Catalogue, socket_folder: Path
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Read the values of every running client through its admin socket.

    Returns:
        Setting (as text) to client to value, and one sentence per setting that did not take effect.

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
        mismatches.append("no running client reported " + ", ".join(s.key for s in settings))
    return values, mismatches


def read_back_new_client(
    configuration: Configuration, catalogue: Catalogue, conf: Path, client_id: str
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Start a client with ``conf`` in this process and read its values: for clients that run only during fio.

    Returns:
        As ``read_back_clients``.

    Raises:
        ClusterError: it cannot connect.
    """
    settings = client_settings(configuration)
    if not settings:
        return {}, []
    values: dict[str, dict[str, Any]] = {}
    mismatches = []
    rados = optional_module("rados")
    try:
        with rados.Rados(conffile=str(conf), rados_id=client_id) as client:
            found = {setting: client.conf_get(setting.key) for setting in settings}
    except rados.Error as error:
        raise ClusterError(f"a new client cannot connect: {error}", where=str(conf)) from None
    for setting, got in found.items():
        values[str(setting)] = {"a new client": got}
        if not same_value(catalogue.option(setting.key).type, setting.value, str(got)):
            mismatches.append(f"a new client runs {setting.key} = {got}, not {setting.value}")
    return values, mismatches


def drop_client_caches(socket_folder: Path) -> None:
    """Make running clients flush and invalidate their image caches (``rbd_cache = true``).

    Raises:
        ClusterError: a client runs and does not do it.
    """
    for path in live_sockets(socket_folder):
        commands = sorted(_asked(path, "help"))
        for verb in ("rbd cache flush ", "rbd cache invalidate "):
            for command in (c for c in commands if c.startswith(verb)):
                _drop_cache(path, command)


def _drop_cache(path: Path, command: str) -> None:
    """Run one cache command. A client that has closed the image since has no cache of it any more."""
    try:
        ask(path, command, seconds=_FLUSH_SECONDS)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _no_answer(path, command, error) from None


def live_sockets(folder: Path) -> Sequence[Path]:
    """Return the admin sockets of running clients; remove those of killed ones.

    Raises:
        ClusterError: a client runs and does not answer.
    """
    return [path for path in sorted(folder.glob("*.asok")) if _is_alive(path)]


def remove_dead_sockets(folder: Path) -> None:
    """Remove the admin sockets of killed clients; those of running clients stay, whether they answer or not."""
    for path in sorted(folder.glob("*.asok")):
        with suppress(ClusterError):
            _is_alive(path)


def _is_alive(path: Path) -> bool:
    """Return whether a client runs. Only an ended one refuses connections; one that hangs still has a cache.

    Raises:
        ClusterError: it hangs.
    """
    try:
        try:
            ask(path, "version")
        except (ConnectionResetError, BrokenPipeError):  # a client that is ending now disappears shortly after
            time.sleep(_ENDING_SECONDS)
            ask(path, "version")
    except (ConnectionRefusedError, FileNotFoundError):
        path.unlink(missing_ok=True)
        return False
    except OSError as error:
        raise _no_answer(path, "version", error) from None
    return True


def _asked(path: Path, prefix: str, *, seconds: float | None = None, **arguments: str) -> Any:
    """Call ``ask`` for a running client.

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
        remedy=f"find out why process {path.name.partition('.')[0]} hangs, or end it; then run the command again",
    )


def ask(path: Path, prefix: str, *, seconds: float | None = None, **arguments: str) -> Any:
    """Send one command over a Ceph admin socket: JSON and a zero byte out, a length and JSON (or nothing) back.

    Raises:
        OSError: no process listens, or the answer is incomplete or an error, whose number it has.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as link:
        link.settimeout(_SOCKET_SECONDS if seconds is None else seconds)
        # Paths of Unix sockets end at 107 bytes; /proc/self/fd gives a short path.
        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            _connect(link, f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)
        link.sendall(json.dumps({"prefix": prefix, **arguments, "format": "json"}).encode() + b"\0")
        (length,) = struct.unpack(">I", _receive(link, 4))
        answer = _receive(link, length)
    try:
        return json.loads(answer) if answer else None
    except ValueError:
        text = answer.decode(errors="replace").strip()
        number = re.match(r"ERROR: \((\d+)\)", text)  # as Ceph words it: "ERROR: (2) No such file or directory"
        raise OSError(int(number[1]) if number else errno.EPROTO, text) from None


def _connect(link: socket.socket, address: str) -> None:
    """Connect within the timeout. Where a process's queue is full, ``connect`` fails at once (EAGAIN)."""
    until = time.monotonic() + (link.gettimeout() or 0.0)
    while True:
        try:
            link.connect(address)
            return
        except BlockingIOError:
            if time.monotonic() > until:
                raise
        time.sleep(_POLL_SECONDS)


def _receive(link: socket.socket, n_bytes: int) -> bytes:
    content = b""
    while len(content) < n_bytes:
        part = link.recv(n_bytes - len(content))
        if not part:
            raise ConnectionResetError("the admin socket's answer is incomplete")
        content += part
    return content


_OPTION = "rbd_plugins"
_FILE = "librbd/libceph_librbd_{name}.so"
"""Of a plugin, below the option ``plugin_dir`` (``src/common/PluginRegistry.cc``)."""


def why_no_plugins(configuration: Configuration, folder: Path | None = None) -> tuple[str, ...]:
    """Return why clients on this machine cannot load the plugins of a configuration; empty if they can.

    Without its plugin, librbd does not open an image.

    Args:
        configuration: to apply; ``rbd_plugins`` of its clients is a list separated by commas.
        folder: with Ceph's plugins; None: where this machine's librados looks for them.
    """
    settings = [setting for setting in client_settings(configuration) if setting.key == _OPTION]
    names = [name.strip() for setting in settings for name in str(setting.value).split(",") if name.strip()]
    if not names:
        return ()
    place = folder or Path(optional_module("rados").Rados(rados_id="admin").conf_get("plugin_dir"))
    return tuple(
        f"librbd on this machine has no plugin {name}: there is no {place / _FILE.format(name=name)}"
        for name in names
        if not (place / _FILE.format(name=name)).exists()
    )
