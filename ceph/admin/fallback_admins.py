"""Administration without librados: through the `ceph` program, or over ceph-rest-api by python-cephclient.

Ceph shipped the server of the REST API up to Luminous (ceph-rest-api(8)). The words of a command are the path,
its arguments the query, and a command that changes something is a PUT. The server sends commands to the monitors
and to OSDs, not to single monitors or managers.
"""

import errno
import json
import re
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from cephfit.ceph.admin.answers import (
    DEFAULT_TIMEOUT_SECONDS,
    RefusedError,
    as_before_nautilus,
    parse_answer,
    refusal,
    require_conf,
    spelled,
)
from cephfit.core.errors import ClusterError, HostError
from cephfit.core.optional_modules import optional_module

_GLOBAL_WORDS = frozenset({"name", "key", "id", "user", "cluster", "conf", "host", "fsid", "keyring"})
"""Argument names that are also options of the program (``--key``: a secret, ``--name``: the client)."""

_REFUSED = re.compile(r"^Error (E[A-Z0-9]+|\d+): ?(.*)$", re.MULTILINE | re.DOTALL)


class BinaryAdmin:
    """Implements ``protocols.CephAdmin`` by running ``ceph -f json``; about 0.2 s per command.

    The program finds the key through the configuration file; the key is never among the arguments. Arguments are
    passed by name, except to commands with an argument named like an option of the program: those take all
    arguments by position, so callers pass them in the order of Ceph's command table.

    Raises:
        HostError: there is no `ceph` program.
        ClusterError: the configuration file is missing.
    """

    def __init__(
        self,
        conf: Path,
        *,
        client_id: str = "admin",
        keyring: Path | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> None:
        program = shutil.which("ceph")
        if program is None:
            raise HostError("there is no `ceph` program", remedy="install the package ceph-common")
        require_conf(conf)
        seconds = max(1, round(timeout_seconds))
        self._where = f"cluster of {conf}"
        self._timeout_seconds = float(seconds)
        self._start = [program, "--conf", str(conf), "--id", client_id]
        self._start += ["--keyring", str(keyring)] if keyring else []
        self._start += ["--format", "json", "--connect-timeout", str(seconds)]
        self._closed = False

    def command(self, prefix: str, /, **arguments: Any) -> Any:
        try:
            return self._run("mon", prefix.split(), prefix, arguments)
        except RefusedError as error:
            # The program asks the monitors for their command table and refuses unknown arguments.
            if error.code != errno.EINVAL or "autoscale_mode" not in arguments:
                raise
            del arguments["autoscale_mode"]
        return self._run("mon", prefix.split(), prefix, arguments)

    def tell(self, daemon: str, prefix: str, /, **arguments: Any) -> Any:
        return self._run(daemon, ["tell", daemon, *prefix.split()], prefix, arguments)

    def exchange(self, prefix: str, payload: bytes = b"", /, **arguments: Any) -> bytes:
        with tempfile.TemporaryDirectory(prefix="cephfit-") as folder:
            given, got = Path(folder, "in"), Path(folder, "out")
            given.write_bytes(payload)
            files = ["-o", str(got), *(["-i", str(given)] if payload else [])]
            self._run("mon", [*files, *prefix.split()], prefix, arguments)
            return got.read_bytes() if got.exists() else b""

    def close(self) -> None:
        self._closed = True

    def _run(self, whom: str, words: list[str], prefix: str, arguments: dict[str, Any]) -> Any:
        if self._closed:
            raise ClusterError("the connection is closed", where=self._where)
        typed = spelled(prefix, arguments)
        argv = [*self._start, *words, *_spell(arguments)]
        try:
            # The program's timeout covers the connection only; this one covers a daemon that hangs later.
            done = subprocess.run(
                argv, capture_output=True, text=True, check=False, timeout=2 * self._timeout_seconds + 1
            )
        except subprocess.TimeoutExpired:
            raise refusal(whom, typed, errno.ETIMEDOUT, "") from None
        if done.returncode == 0:
            return parse_answer(done.stdout)
        reported = _REFUSED.search(done.stderr)
        if reported is not None:
            code = int(reported[1]) if reported[1].isdigit() else getattr(errno, reported[1], 0)
            raise refusal(whom, typed, code, reported[2])
        if "timed out" in done.stderr + done.stdout:
            raise refusal(whom, typed, errno.ETIMEDOUT, "no monitor answers")
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise refusal(whom, typed, done.returncode, lines[-1] if lines else "")


def _spell(arguments: dict[str, Any]) -> list[str]:
    """Return arguments in the program's syntax; True becomes a bare flag."""
    lists = any(isinstance(value, list) for value in arguments.values())
    positional = lists or not _GLOBAL_WORDS.isdisjoint(arguments)
    words = []
    for name, value in arguments.items():
        if value is True:
            words.append("--" + name.replace("_", "-"))
        elif value is False:
            continue
        elif isinstance(value, list) and positional:
            words += map(str, value)
        elif positional:
            words.append(str(value))
        else:
            words.append(f"--{name}={value}")
    return words


_METHOD_NOT_ALLOWED = 405
_ERROR = re.compile(r"Error: (.*) \((-?\d+)\)\s*$", re.DOTALL)
_NO_JSON = "Error decoding JSON from "
_UNKNOWN_ARGUMENT = "unused arguments"


def shown(url: str) -> str:
    """Return the server's address for messages, without the user and password that a proxy may need."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


class RestAdmin:
    """Implements ``protocols.CephAdmin`` over HTTP. Threads may share it: the session is stateless.

    Args:
        url: of the server, with its version: ``http://mon1:5000/api/v0.1``.
        timeout_seconds: limit for the connection and for each command.

    Raises:
        LackingError: python-cephclient is not installed.
    """

    def __init__(self, url: str, *, timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # it compares strings by `is`
            wrapper = optional_module("cephclient.wrapper", where="--admin rest")
        self._url = url.rstrip("/") + "/"
        self._wrapper: Any = wrapper.CephWrapper(endpoint=self._url)
        self._wrapper.timeout = timeout_seconds  # given to the constructor, it would be lost
        self._changes: set[str] = set()
        self._closed = False

    def command(self, prefix: str, /, **arguments: Any) -> Any:
        return self._ask("mon", prefix.replace(" ", "/"), prefix, arguments)

    def tell(self, daemon: str, prefix: str, /, **arguments: Any) -> Any:
        if not daemon.startswith("osd."):
            typed = spelled(prefix, arguments)
            raise refusal(
                daemon, typed, errno.EOPNOTSUPP, "ceph-rest-api reaches only OSDs and the monitors as one"
            )
        path = f"tell/{quote(daemon)}/{prefix.replace(' ', '/')}"
        return self._ask(daemon, path, prefix, arguments)

    def exchange(self, prefix: str, payload: bytes = b"", /, **arguments: Any) -> bytes:
        response = self._send(prefix.replace(" ", "/"), "mon", prefix, arguments, body="binary", data=payload)
        if not response.ok:
            raise self._refused("mon", prefix, arguments, response.status_code, response.text)
        return bytes(response.content)

    def close(self) -> None:
        self._closed = True
        self._wrapper.http.close()

    def _ask(self, whom: str, path: str, prefix: str, arguments: Mapping[str, Any]) -> Any:
        response = self._send(path, whom, prefix, arguments, body="json")
        text = response.text
        if text.startswith(_NO_JSON):  # a command that answers prose although JSON was requested
            return text.removeprefix(_NO_JSON).strip()
        try:
            answer = json.loads(text)
            output, status = answer["output"], answer["status"]
        except (ValueError, KeyError, TypeError):
            output, status = None, text
        if not response.ok:
            if _UNKNOWN_ARGUMENT in status and (older := as_before_nautilus(prefix, arguments)) != arguments:
                return self._ask(whom, path, prefix, older)
            raise self._refused(whom, prefix, arguments, response.status_code, status)
        # The server turns an empty answer into an empty list; for a change, that means no answer.
        return None if output == [] and path in self._changes else output

    def _send(
        self, path: str, whom: str, prefix: str, arguments: Mapping[str, Any], *, body: str, data: bytes = b""
    ) -> Any:
        """Return a response. The server refuses to GET a command that changes something, which has no effect."""
        if self._closed:
            raise ClusterError("the connection is closed", where=shown(self._url))
        query = urlencode({k: _spelled(v) for k, v in arguments.items() if v is not False}, doseq=True)
        import requests

        address = path + (f"?{query}" if query else "")
        more = {"data": data} if data else {}
        typed = spelled(prefix, dict(arguments))
        try:
            if path not in self._changes and not data:
                response, _ = self._wrapper.get(address, body=body)
                if response.status_code != _METHOD_NOT_ALLOWED:
                    return response
                self._changes.add(path)
            response, _ = self._wrapper.put(address, body=body, **more)
            return response
        except requests.Timeout:
            raise refusal(whom, typed, errno.ETIMEDOUT, "ceph-rest-api does not answer") from None
        except requests.RequestException as error:
            raise ClusterError(
                f"no connection to ceph-rest-api: {type(error).__name__}",
                where=shown(self._url),
                remedy="check that it runs, and that the address has its version, such as /api/v0.1",
            ) from None

    def _refused(
        self, whom: str, prefix: str, arguments: Mapping[str, Any], http_status: int, status: str
    ) -> ClusterError:
        match = _ERROR.search(status)
        code, words = (
            (abs(int(match[2])), match[1]) if match else (errno.EINVAL, status.strip() or f"HTTP {http_status}")
        )
        return refusal(whom, spelled(prefix, dict(arguments)), code, words)


def _spelled(value: Any) -> Any:
    if value is True:
        return "true"
    return [str(v) for v in value] if isinstance(value, (list, tuple)) else str(value)
