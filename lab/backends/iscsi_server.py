"""tgt, an iSCSI server in user space, with one logical unit on a disk of the lab (tgtadm(8))."""

import os
import re
from collections.abc import Mapping
from typing import ClassVar

from cephfit.ceph.environment.scopes import ISCSI
from cephfit.lab.backends.lab_server import LabServer, why_not_answering
from cephfit.lab.daemons import processes
from cephfit.lab.machine import run

_PORTAL = "127.0.0.1:3260"
_IQN = "iqn.2026-01.io.github.cephfit:lab"
_LUN = 1

_PARAMETERS = {
    "header_digest": "HeaderDigest",
    "queue_depth": "MaxQueueCmd",
    "immediate_data": "ImmediateData",
    "initial_r2t": "InitialR2T",
    "first_burst_length": "FirstBurstLength",
    "max_burst_length": "MaxBurstLength",
}
"""Option to the name of tgt's parameter (RFC 7143, section 13, except for MaxQueueCmd)."""
_WORDS = {"true": "Yes", "false": "No", "none": "None", "crc32c": "CRC32C"}
_SERVER_CACHE = "server_cache"


class IscsiServer(LabServer):
    """tgtd with one target and one logical unit. Without ``server_cache`` it writes past its page cache."""

    protocol = ISCSI
    daemons = ("tgtd",)
    needs: ClassVar = {"tgtd": "tgt", "tgtadm": "tgt", "blkdiscard": "util-linux"}

    @property
    def address(self) -> str:
        return f"iscsi://{_PORTAL}/{_IQN}/{_LUN}"

    @property
    def _environment(self) -> dict[str, str]:
        return {"TGT_IPC_SOCKET": str(self._network.folder / "run" / "tgtd")}

    def _ask(self, mode: str, operation: str, *words: str) -> str:
        return run(
            ["tgtadm", "--lld", "iscsi", "--mode", mode, "--op", operation, *words],
            environment={**os.environ, **self._environment},
        )

    def start(self) -> None:
        self._network.start(
            "tgtd",
            ["tgtd", "-f", "-C", "0", "--iscsi", f"portal={_PORTAL}"],
            environment=self._environment,
        )
        self._network.await_ready("tgtd", lambda: why_not_answering(lambda: self._ask("target", "show")))
        if _IQN in self._ask("target", "show"):
            return
        self._ask("target", "new", "--tid", "1", "-T", _IQN)
        self.configure(self.defaults())
        self._ask("target", "bind", "--tid", "1", "-I", "ALL")

    def stop(self) -> None:
        """Kill tgtd, which ignores SIGTERM while it has a target; all data is on disk or in the kernel."""
        processes.kill([pid for name in self.daemons if (pid := self._network.pid(name)) is not None])

    def configure(self, options: Mapping[str, str]) -> None:
        wanted = {**self.defaults(), **options}
        now = self.read_back()
        for key, name in _PARAMETERS.items():
            if now[key] != wanted[key]:
                value = _WORDS.get(wanted[key], wanted[key])
                self._ask("target", "update", "--tid", "1", "--name", name, "--value", value)
        if now.get(_SERVER_CACHE) == wanted[_SERVER_CACHE]:
            return
        unit = ("--tid", "1", "--lun", str(_LUN))
        if _SERVER_CACHE in now:
            self._ask("logicalunit", "delete", *unit)
        flags = () if wanted[_SERVER_CACHE] == "true" else ("--bsoflags", "direct")
        self._ask("logicalunit", "new", *unit, "--bstype", "rdwr", "-b", str(self._device()), *flags)

    def read_back(self) -> Mapping[str, str]:
        said = dict(
            line.split("=", 1) for line in self._ask("target", "show", "--tid", "1").splitlines() if "=" in line
        )
        words = {word: text for text, word in _WORDS.items()}
        values = {key: words.get(said[name], said[name]) for key, name in _PARAMETERS.items()}
        unit = re.search(rf"LUN: {_LUN}\n.*?Backing store flags:([^\n]*)", self._ask("target", "show"), re.DOTALL)
        if unit is not None:
            values[_SERVER_CACHE] = "false" if "direct" in unit[1] else "true"
        return values

    def drop_caches(self) -> None:
        run(["blockdev", "--flushbufs", str(self._device())])

    def clear(self) -> None:
        self._discard()

    def _version(self) -> str:
        return f"tgt {run(['tgtd', '--version']).strip()}"
