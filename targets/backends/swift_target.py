"""A Swift container as a target, and its account.

Each client has the segments of its volume as objects in it. Files of the engine ``micro`` are objects, too: s3fs
reads and writes them through Swift's S3 interface (the middleware s3api).
"""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cephfit.ceph.environment.scopes import SWIFT
from cephfit.core.child_process import find_program
from cephfit.core.errors import ClusterError, InputError, LackingError
from cephfit.core.protocols import Client
from cephfit.measure.micro.file_places import S3, FilePlace
from cephfit.targets.abilities import ExportsFiles
from cephfit.targets.backends.backend_target import BackendTarget, ExportsVolumes, NbdServer, ServerPlace

_URL = re.compile(
    r"(?://)?(?P<user>[^:@/\s]+:[^:@/\s]+)@(?P<host>\[[0-9a-fA-F:]+\]|[^/:@\s]+)(:(?P<port>\d+))?/(?P<container>[^/?\s]+)"
)
_UNREACHABLE = re.compile(r"NewConnectionError\(.*\[Errno -?\d+\] ([^')]+)")
"""In what urllib3 reports."""
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
            if unreachable := _UNREACHABLE.search(done.stderr):
                raise ClusterError(
                    f"no server answers: {unreachable[1]}",
                    where=where,
                    remedy="check host and port, and that a proxy server of Swift listens there",
                )
            lines = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()
            reasons = [line for line in lines if not line.startswith("Failed Transaction ID")] or lines
            raise ClusterError(
                f"`swift {words[0]}` failed: {reasons[-1].replace(self._key, '...')}",
                where=where,
                remedy="check address, user, key and container",
            )
        return done.stdout


def _lacking() -> LackingError:
    return LackingError(
        "swift: not found", where="programs on this machine", remedy="apt install python3-swiftclient"
    )


_CREATED = "objects"
_PLUGIN = Path(__file__).with_name("swift_blocks.py")
_MOST_NBYTES = 5 << 30
"""Largest object (``max_file_size`` of swift.conf)."""


def policy_of(replicas: str) -> str:
    """Return the storage policy of a lab's server with a number of copies."""
    return f"replicas-{replicas}"


class SwiftTarget(BackendTarget, ExportsFiles):
    """Objects in one container, or on a lab's server in one for each number of copies.

    The layout is in the names of the objects, so configurations with another one have other volumes. ``reset``
    deletes the objects of this target; others it does not touch.
    """

    protocol = SWIFT
    client_side = "nbdkit with a plugin on swiftclient"

    def __init__(
        self,
        name: str,
        address: SwiftAddress,
        key: str,
        place: ServerPlace,
        devices: ExportsVolumes,
        *,
        for_change: bool = True,
    ) -> None:
        super().__init__(name, place, devices, for_change=for_change)
        self._address = address
        self._key = key
        self._account = SwiftAccount(address, key, enter=place.server.enter)
        self._layout: Mapping[str, str] = {}

    def why_not_by_client(self, key: str, value: str) -> str:
        if key == "replicas":
            return self._server.why_not(key)
        if int(value) > _MOST_NBYTES:
            return "segments of more than 5G are missing in Swift, whose largest object has 5G"
        return ""

    def in_effect(self, key: str, wanted: str, client: Client) -> str:
        """As ``BackendTarget.in_effect``, by the container's policy or the first object's size.

        A volume without objects has no size of segments yet: ``wanted``.
        """
        if key == "replicas":
            return self._account.state(self._container()).get("X-Storage-Policy", "").removeprefix(policy_of(""))
        prefix = self._volume(int(client.name[1:]), client.nbytes).partition("/")[2]
        first = next(iter(self._account.names(self._container(), prefix)), None)
        if first is None:
            return wanted
        nbytes = self._account.state(self._container(), first)["Content Length"]
        return wanted if int(nbytes) == min(int(wanted), client.nbytes) else nbytes

    def files_of(self, client: Client) -> FilePlace:
        find_program("s3fs", package="s3fs")
        folder = f"cephfit-{self._tag}-{client.name}-files"
        self._journal.note(_CREATED, f"{self._container()}/{folder}/", None)
        return FilePlace(
            S3,
            self._container(),
            host=self._address.host,
            folder=folder,
            enter=tuple(self._server.enter),
            secrets=(("AWSACCESSKEYID", self._address.user), ("AWSSECRETACCESSKEY", self._key)),
        )

    def _nbd_server(self, index: int, nbytes: int, options: Mapping[str, str]) -> NbdServer:
        given = {
            "auth": self._address.auth,
            "user": self._address.user,
            "container": self._container(),
            "prefix": self._volume(index, nbytes).partition("/")[2],
            "size": nbytes,
            "segment_size": options["segment_size"],
        }
        words = (f"{key}={value}" for key, value in given.items())
        argv = ("nbdkit", "--exit-with-parent", "--foreground", "python", str(_PLUGIN), *words)
        return NbdServer(argv, "nbdkit nbdkit-plugin-python python3-swiftclient", {"ST_KEY": self._key})

    def _container(self) -> str:
        if self._server.why_not("replicas"):
            return self._address.container
        return f"{self._address.container}-{self._layout['replicas']}"

    def _volume(self, index: int, nbytes: int) -> str:
        return f"{self._container()}/cephfit-{self._tag}-c{index}-{nbytes}-{self._layout['segment_size']}/"

    def _require_volumes(self, n_clients: int, nbytes: int, options: Mapping[str, str]) -> None:
        self._layout = options
        if self._server.why_not("replicas"):
            self._account.state(self._container())
        else:
            self._account.create(self._container(), policy_of(options["replicas"]))
        for index in range(n_clients):
            volume = self._volume(index, nbytes)
            if self._journal.get(_CREATED, volume) is None:
                container, _, prefix = volume.partition("/")
                if self._account.names(container, prefix):
                    raise InputError(
                        f"objects {prefix}... already exist in the container, and no journal on this machine "
                        "knows them",
                        where=self.name,
                        remedy="delete them on the server if they are left from an earlier sweep",
                    )
                self._journal.note(_CREATED, volume, None)

    def _remove_volumes(self) -> None:
        with self._server.full_speed():
            for entry in self._journal.entries(_CREATED):
                container, _, prefix = entry.place.partition("/")
                self._account.delete(container, prefix)
                self._journal.forget(_CREATED, entry.place)
