"""Administration through the `ceph` program, for machines without the librados binding."""

import errno
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from cephfit.ceph.admin.answers import (
    DEFAULT_TIMEOUT_SECONDS,
    RefusedError,
    parse_answer,
    refusal,
    require_conf,
    spelled,
)
from cephfit.core.errors import ClusterError, HostError

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
