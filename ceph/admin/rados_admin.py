"""Administration over librados: one connection, milliseconds per command."""

import base64
import binascii
import errno
import json
import re
from pathlib import Path
from typing import Any

from cephfit.ceph.admin.answers import (
    DEFAULT_TIMEOUT_SECONDS,
    as_before_nautilus,
    parse_answer,
    refusal,
    require_conf,
    spelled,
)
from cephfit.core.errors import ClusterError
from cephfit.core.optional_modules import optional_module

_AES256K = 2
"""Type of a cephx key, in its first two bytes: the only one of new clusters since 20.2.4. Older keys have 1."""
_SEPARATORS = re.compile(r"[,; \t]+")


class RadosAdmin:
    """Implements ``protocols.CephAdmin`` over one librados connection.

    librados is thread safe and its Python binding releases the interpreter lock while it waits, so threads may
    share one instance.

    Args:
        conf: the cluster's ceph.conf; it names the keyring with the key.
        client_id: such as ``admin`` for ``client.admin``.
        keyring: with its key; None for that of ``conf`` or of Ceph's defaults.
        timeout_seconds: limit for the connection and for each command.

    Raises:
        ClusterError: no monitor answers, or the key is refused.
        LackingError: the Python binding of librados is not installed.
    """

    def __init__(
        self,
        conf: Path,
        *,
        client_id: str = "admin",
        keyring: Path | None = None,
        timeout_seconds: float = DEFAULT_TIMEOUT_SECONDS,
    ) -> None:
        self._binding = optional_module("rados")
        require_conf(conf)
        self._where = f"cluster of {conf}"
        timeout = str(max(1, round(timeout_seconds)))
        self._cluster: Any = self._binding.Rados(
            conffile=str(conf),
            rados_id=client_id,
            # Without these, librados waits forever for a monitor, a manager or an OSD that is gone.
            conf={
                "client_mount_timeout": timeout,
                "rados_mon_op_timeout": timeout,
                "rados_osd_op_timeout": timeout,
                "admin_socket": "",
                "log_to_stderr": "false",
                "err_to_stderr": "false",
                **({"keyring": str(keyring)} if keyring else {}),
            },
        )
        try:
            self._cluster.connect()
        except self._binding.Error as error:
            keyrings = str(self._cluster.conf_get("keyring") or "")
            self._cluster.shutdown()
            raise ClusterError(
                f"no connection to the cluster in {timeout} s: {error}",
                where=self._where,
                remedy=_remedy(keyrings, f"client.{client_id}"),
            ) from None

    @property
    def cluster(self) -> Any:
        """The librados handle, for pools and images; this object closes it."""
        return self._cluster

    def command(self, prefix: str, /, **arguments: Any) -> Any:
        return self._send("mon", prefix, arguments)

    def tell(self, daemon: str, prefix: str, /, **arguments: Any) -> Any:
        return self._send(daemon, prefix, arguments)

    def exchange(self, prefix: str, payload: bytes = b"", /, **arguments: Any) -> bytes:
        text = json.dumps({"prefix": prefix, **arguments})
        try:
            code, answer, words = self._cluster.mon_command(text, payload)
        except self._binding.Error as error:
            raise refusal("mon", spelled(prefix, arguments), abs(error.errno or 0), str(error)) from None
        if code != 0:
            raise refusal("mon", spelled(prefix, arguments), abs(code), words)
        return bytes(answer)

    def close(self) -> None:
        self._cluster.shutdown()

    def _send(self, whom: str, prefix: str, arguments: dict[str, Any]) -> Any:
        text = json.dumps({"prefix": prefix, **arguments, "format": "json"})
        kind, _, name = whom.partition(".")
        try:
            if kind == "osd":
                code, answer, words = self._cluster.osd_command(int(name), text, b"")
            elif kind == "mgr":
                code, answer, words = self._cluster.mgr_command(text, b"", target=name or None)
            elif kind == "mon" and name:
                code, answer, words = self._cluster.mon_command(text, b"", target=name)
            elif kind == "mon":
                code, answer, words = self._cluster.mon_command(text, b"")
                older = as_before_nautilus(prefix, arguments)
                if code == -errno.EPERM and older != arguments:
                    # They miss the confirmation, which has a different name there; they ignore unknown arguments.
                    text = json.dumps({"prefix": prefix, **older, "format": "json"})
                    again = self._cluster.mon_command(text, b"")
                    code, answer, words = again if again[0] == 0 else (code, answer, words)
                if code == -errno.EINVAL and "command not known" in words:
                    # Commands that the manager serves (`pg dump`, `osd df`) on releases that do not proxy them.
                    code, answer, words = self._cluster.mgr_command(text, b"")
            else:
                raise ClusterError(f"{whom!r} is not a daemon that takes commands", where=self._where)
        except (self._binding.Error, ValueError) as error:
            code = -(getattr(error, "errno", None) or 0)
            raise refusal(whom, spelled(prefix, arguments), abs(code), str(error)) from None
        if code != 0:
            raise refusal(whom, spelled(prefix, arguments), abs(code), words)
        return parse_answer(answer.decode(errors="replace"))


def _remedy(keyrings: str, entity: str) -> str:
    """Return what to check after a refused connection, from the type of the key that librados would use.

    Args:
        keyrings: value of the option ``keyring``: paths, of which librados uses the first that exists.
        entity: such as ``client.admin``.
    """
    check = f"check that the monitors run and the keyring has {entity} of this cluster"
    found = next((Path(path) for path in _SEPARATORS.split(keyrings) if path and Path(path).is_file()), None)
    if found is None or _key_type(found, entity) != _AES256K:
        return check
    return (
        f"the key of {entity} is of type aes256k, which librados before 20.2.4 does not know: if this machine's "
        f"is older, install python3-rados of the cluster's release; else {check}"
    )


def _key_type(keyring: Path, entity: str) -> int | None:
    """Return the type of an entity's key; None if the keyring has none that can be read."""
    try:
        section = keyring.read_text().partition(f"[{entity}]")[2].partition("\n[")[0]
        found = re.search(r"^\s*key\s*=\s*(\S+)", section, re.MULTILINE)
        return int.from_bytes(base64.b64decode(found[1])[:2], "little") if found else None
    except (OSError, UnicodeDecodeError, binascii.Error):
        return None
