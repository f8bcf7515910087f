"""Create, inspect and empty containers of a Swift account by the program ``swift`` (python3-swiftclient)."""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cephfit.core.errors import ClusterError, InputError, LackingError

_URL = re.compile(
    r"(?://)?(?P<user>[^:@/\s]+:[^:@/\s]+)@(?P<host>\[[0-9a-fA-F:]+\]|[^/:@\s]+)(:(?P<port>\d+))?/(?P<container>[^/?\s]+)"
)
_PORT = 8080
_SECONDS = 60.0
_DELETE_SECONDS = 3600.0
_KEY, _KEY_FILE = "ST_KEY", "ST_KEY_FILE"


@dataclass(frozen=True, slots=True)
class SwiftAddress:
    """The address of a container.

    Attributes:
        user: ``account:user`` of tempauth (version 1 of the protocol).
        host: ``host:port`` of the proxy server.
        container: its name.
    """

    user: str
    host: str
    container: str

    def __str__(self) -> str:
        return f"swift://{self.user}@{self.host}/{self.container}"

    @property
    def auth(self) -> str:
        """URL that gives tokens."""
        return f"http://{self.host}/auth/v1.0"


def parse_swift(text: str) -> SwiftAddress:
    """Read ``//account:user@host:port/container``; the slashes in front and the port may be missing.

    Raises:
        InputError: it is something else, or has a key, which the message does not repeat.
    """
    match = _URL.fullmatch(text)
    if match is None:
        raise InputError(
            "this is not the address of a container, or it has a key",
            where="--target swift",
            remedy="write it like swift://account:user@192.0.2.7:8080/container, with the key in the environment "
            f"variable {_KEY}; or swift:lab for the server of a lab",
        )
    return SwiftAddress(match["user"], f"{match['host']}:{match['port'] or _PORT}", match["container"])


def key_from_environment() -> str:
    """Return the user's key, from a variable or a file.

    Raises:
        InputError: there is none.
    """
    if key := os.environ.get(_KEY):
        return key
    file = os.environ.get(_KEY_FILE, "")
    try:
        return Path(file).read_text().strip()
    except OSError:
        raise InputError(
            "the key of the Swift user is missing" + (f": {file} cannot be read" if file else ""),
            where="--target swift",
            remedy=f"put it into the environment variable {_KEY}, or into a file that {_KEY_FILE} names",
        ) from None


class SwiftAccount:
    """The account of one user.

    Args:
        address: of the proxy server and the user.
        key: of the user.
        enter: command line that enters the server's network namespace; empty for none.
    """

    def __init__(self, address: SwiftAddress, key: str, *, enter: Sequence[str] = ()) -> None:
        self._address = address
        self._key = key
        self._enter = enter

    def ask(self) -> None:
        """Ask for the account, which tempauth's tokens and all storage servers must work for.

        Raises:
            LackingError: the program is missing.
            ClusterError: the server does not answer or refuses.
        """
        self._swift("stat")

    def create(self, container: str, policy: str) -> None:
        """Create a container with a storage policy, unless it exists. Raises as ``ask``."""
        self._swift("post", "--header", f"X-Storage-Policy: {policy}", container)

    def state(self, container: str, name: str = "") -> dict[str, str]:
        """Return the headers of a container or object. Raises as ``ask``, also if it does not exist."""
        lines = self._swift("stat", container, *([name] if name else [])).splitlines()
        pairs = (line.partition(":") for line in lines)
        return {key.strip(): value.strip() for key, _, value in pairs}

    def names(self, container: str, prefix: str) -> list[str]:
        """Return the names of the objects of a container that begin with a prefix. Raises as ``state``."""
        return self._swift("list", container, "--prefix", prefix).splitlines()

    def delete(self, container: str, prefix: str) -> None:
        """Delete the objects of a container whose names begin with a prefix. Raises as ``state``."""
        if self.names(container, prefix):
            self._swift("delete", container, "--prefix", prefix, seconds=_DELETE_SECONDS)

    def _swift(self, *words: str, seconds: float = _SECONDS) -> str:
        where = f"swift://{self._address.host}"
        environment = {"ST_AUTH": self._address.auth, "ST_USER": self._address.user, _KEY: self._key}
        try:
            done = subprocess.run(
                [*self._enter, "swift", "--auth-version", "1.0", *words],
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
                env={**os.environ, **environment},
            )
        except subprocess.TimeoutExpired:
            raise ClusterError(f"Swift gave no answer within {seconds:g} s", where=where) from None
        except FileNotFoundError:
            raise _lacking() from None
        if done.returncode == 127 or "failed to execute swift" in done.stderr:
            raise _lacking()
        if done.returncode:
            lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
            raise ClusterError(
                f"`swift {words[0]}` failed: {lines[-1].replace(self._key, '...')}",
                where=where,
                remedy="check address, user, key and container",
            )
        return done.stdout


def _lacking() -> LackingError:
    return LackingError(
        "swift: not found", where="programs on this machine", remedy="apt install python3-swiftclient"
    )
