"""The hosts that a target may access, by their names in Ceph, and access to them over SSH.

A host is connected like `ssh NAME`, with keys only, and only if its host key is known.
"""

import asyncio
import shlex
import socket
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TypeVar

from cephfit.ceph.host import SEARCH_PATH, Finished, Host, HostRefusedError, LocalHost, no_such_program
from cephfit.core.errors import HostError, LackingError
from cephfit.core.optional_modules import optional_module

if TYPE_CHECKING:
    import asyncssh


_Answer = TypeVar("_Answer")
_CONNECT_SECONDS = 20.0
_KEEPALIVE_SECONDS = 15
"""A lost host is detected after three of these."""
_GRACE_SECONDS = 5.0
"""Time for the report that a program was ended there; after it the host counts as lost."""
_ENDED_BY_TIMEOUT = (124, 137)
"""Exit codes of timeout(1) after it ended the program, and after it killed it."""


class SshHost:
    """Implements ``Host`` on a machine with an SSH server, a POSIX shell and coreutils.

    Name, port, user, keys, jump hosts (ProxyJump) and files of known hosts come from the user's SSH configuration:
    what `ssh NAME` does without a prompt works here. There are no password prompts. Host keys are always checked:
    an unknown host is refused.

    Args:
        destination: ``HOST`` or ``USER@HOST``; HOST may be an alias of the SSH configuration.
        name: in messages and journals; the destination unless given.
        sudo: run everything through ``sudo -n``; None does so unless the remote user is root.
        config: SSH configuration; ``~/.ssh/config`` unless given.
    """

    def __init__(
        self, destination: str, *, name: str = "", sudo: bool | None = None, config: Path | None = None
    ) -> None:
        self.name = name or destination
        self._user, _, self._address = destination.rpartition("@")
        self._sudo = sudo
        self._config = config
        self._connection: asyncssh.SSHClientConnection | None = None
        self._gate = threading.Lock()

    def run(self, argv: Sequence[str], *, seconds: float = 30.0, stdin: str | bytes = "") -> Finished:
        if self._sudo is None:
            self._sudo = self._plain(["id", "-u"], seconds=seconds, sudo=False).stdout.strip() != "0"
        done = self._plain(argv, seconds=seconds, stdin=stdin, sudo=self._sudo)
        if self._sudo and done.code == 1 and "sudo:" in done.stderr and "password" in done.stderr:
            raise LackingError(
                f"sudo requires a password for {argv[0]}",
                where=self.name,
                remedy="allow the user these programs without one (NOPASSWD in sudoers), or log in as root",
            )
        if _is_missing(done, argv[0]):
            raise no_such_program(argv[0], where=self.name)
        return done

    def read(self, path: PurePosixPath) -> str:
        done = self.run(["cat", "--", str(path)])
        if done.code != 0:
            raise HostError(f"cannot be read: {_reason(done)}", where=f"{self.name}: {path}")
        return done.stdout

    def read_all(self, paths: Sequence[PurePosixPath]) -> Mapping[PurePosixPath, str]:
        if not paths:
            return {}
        # Every line is prefixed by the name of its file and a zero byte; unreadable files are skipped.
        done = self.run(["grep", "--no-messages", "--with-filename", "--null", "", *map(str, paths)])
        found: dict[PurePosixPath, str] = {}
        for line in done.stdout.splitlines(keepends=True):
            name, _, text = line.partition("\0")
            path = PurePosixPath(name)
            found[path] = found.get(path, "") + text
        return {path: found[path] for path in paths if path in found}

    def write(self, path: PurePosixPath, text: str) -> None:
        done = self.run(["tee", "--", str(path)], stdin=text)
        if done.code != 0:
            raise HostRefusedError(
                f"{text.strip()!r} cannot be written: {_reason(done)}", where=f"{self.name}: {path}"
            )

    def exists(self, path: PurePosixPath) -> bool:
        # A dangling link exists too.
        done = self.run(["test", "-e", str(path), "-o", "-L", str(path)])
        if done.code not in (0, 1):
            raise HostError(f"cannot be examined: {done.words}", where=f"{self.name}: {path}")
        return done.code == 0

    def close(self) -> None:
        with self._gate:
            connection, self._connection = self._connection, None
        if connection is not None:
            _finish(_close(connection))

    def _plain(self, argv: Sequence[str], *, seconds: float, stdin: str | bytes = "", sudo: bool) -> Finished:
        """Run a program through the login shell with every word quoted; timeout(1) ends it there."""
        prefix = ["env", "LC_ALL=C", f"PATH={SEARCH_PATH}", "timeout", "--kill-after=1", f"{seconds:g}"]
        # sudo gets the program itself, so that sudoers may list the few that are needed.
        command = shlex.join([*prefix, *(["sudo", "-n", "--"] if sudo else ["env"]), *argv])
        raw = stdin.encode() if isinstance(stdin, str) else stdin
        connection = self._connected()
        started = time.monotonic()
        try:
            done = _finish(_run(connection, command, raw, seconds + _GRACE_SECONDS))
        except TimeoutError:
            done = None
        except OSError as error:
            raise HostError(f"the SSH connection broke: {error}", where=self.name) from None
        if done is None or (done.code in _ENDED_BY_TIMEOUT and time.monotonic() - started >= seconds):
            raise HostError(f"no answer within {seconds:g} s", where=f"{self.name}: {' '.join(argv)}")
        return done

    def _connected(self) -> "asyncssh.SSHClientConnection":
        with self._gate:
            if self._connection is None or self._connection.is_closed():
                self._connection = self._connect()
            return self._connection

    def _connect(self) -> "asyncssh.SSHClientConnection":
        optional_module("asyncssh", where=self.name)
        import asyncssh

        options: dict[str, Any] = {"password": None, "preferred_auth": ("publickey",)}
        if self._user:
            options["username"] = self._user
        if self._config is not None:
            options["config"] = [str(self._config)]
        try:
            return _finish(_open(self._address, options))
        except asyncssh.HostKeyNotVerifiable as error:
            raise LackingError(
                f"its host key does not match the known one: {error.reason}",
                where=self.name,
                remedy=f"if it is the right host, accept its key with `ssh {self._address}` once",
            ) from None
        except asyncssh.PermissionDenied as error:
            raise LackingError(
                f"login was refused: {error.reason}",
                where=self.name,
                remedy=f"`ssh -o BatchMode=yes {self._address} true` must work: load the key into the agent, or "
                "name user and IdentityFile in the SSH configuration",
            ) from None
        except (asyncssh.Error, TimeoutError, OSError, ValueError) as error:
            raise HostError(
                f"cannot be reached by SSH: {error or 'no answer'}",
                where=self.name,
                remedy=f"see the output of `ssh -v {self._address} true`",
            ) from None


def _is_missing(done: Finished, program: str) -> bool:
    """Return whether env(1) or sudo(8) did not find the program, as opposed to a program that failed."""
    by_env = done.code == 127 and done.stderr.startswith(f"env: '{program}'")
    return by_env or (done.code == 1 and done.stderr.startswith(f"sudo: {program}: command not found"))


def _reason(done: Finished) -> str:
    """Return the message of coreutils without the program and the file: ``Invalid argument``."""
    return done.words.rpartition(": ")[2]


async def _open(address: str, options: dict[str, Any]) -> "asyncssh.SSHClientConnection":
    import asyncssh

    return await asyncssh.connect(
        address, connect_timeout=_CONNECT_SECONDS, keepalive_interval=_KEEPALIVE_SECONDS, **options
    )


async def _run(connection: "asyncssh.SSHClientConnection", command: str, stdin: bytes, seconds: float) -> Finished:
    import asyncssh

    try:
        async with asyncio.timeout(seconds):
            done = await connection.run(command, input=stdin, encoding=None, check=False)
    except asyncssh.Error as error:
        raise ConnectionError(str(error)) from None
    if done.exit_status is None:
        raise ConnectionError("the host hung up")
    return Finished(done.exit_status, _text(done.stdout), _text(done.stderr))


def _text(raw: object) -> str:
    return raw.decode(errors="replace") if isinstance(raw, bytes) else str(raw or "")


async def _close(connection: "asyncssh.SSHClientConnection") -> None:
    connection.close()
    await connection.wait_closed()


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of all connections of this process, in a separate thread."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="cephfit-ssh", daemon=True).start()
    return loop


def _finish(work: Coroutine[Any, Any, _Answer]) -> _Answer:
    """Run a coroutine on that loop, and wait for it."""
    return asyncio.run_coroutine_threadsafe(work, _loop()).result()


@dataclass(frozen=True, slots=True)
class SshAccess:
    """SSH access to the hosts of a cluster.

    Attributes:
        user: login name; the SSH configuration's unless given.
        config: SSH configuration; ``~/.ssh/config`` unless given.
        destinations: host name in Ceph to SSH destination, where they differ.
    """

    user: str = ""
    config: Path | None = None
    destinations: Mapping[str, str] = field(default_factory=dict)


class Hosts:
    """The hosts of one target. Connections are opened on demand and kept.

    Args:
        access: None: this machine only.
        all_local: every name means this machine, as in a lab with hosts that exist only in its CRUSH map.
    """

    def __init__(self, access: SshAccess | None = None, *, all_local: bool = False) -> None:
        self._access = access
        self._all_local = all_local
        self._open: dict[str, Host] = {}

    def named(self, name: str) -> Host:
        """Return the host that Ceph calls ``name``, without connecting.

        Raises:
            LackingError: it is another machine, and no access was configured.
        """
        if name not in self._open:
            self._open[name] = self._make(name)
        return self._open[name]

    def _make(self, name: str) -> Host:
        reported = self._access.destinations if self._access else {}
        if self._all_local or (name in ("localhost", socket.gethostname()) and name not in reported):
            return LocalHost(name)
        if self._access is None:
            raise LackingError(
                "settings of this host need access to it",
                where=name,
                remedy="allow SSH to the OSD hosts with --ssh, or do not use these settings",
            )
        destination = self._access.destinations.get(name, name)
        if self._access.user and "@" not in destination:
            destination = f"{self._access.user}@{destination}"
        return SshHost(destination, name=name, config=self._access.config)

    def close(self) -> None:
        """Close all connections."""
        while self._open:
            self._open.popitem()[1].close()
