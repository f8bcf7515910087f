"""Administration over librados: one connection, milliseconds per command."""

import errno
import json
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
            self._cluster.shutdown()
            raise ClusterError(
                f"no connection to the cluster in {timeout} s: {error}",
                where=self._where,
                remedy=f"check that the monitors run and the keyring has client.{client_id} of this cluster",
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
