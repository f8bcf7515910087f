"""NFS-Ganesha with one export on a disk of the lab (ganesha-config(8), ganesha-core-config(8))."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from cephfit.ceph.environment.scopes import NFS
from cephfit.lab.backends.lab_server import LabServer, why_not_answering
from cephfit.lab.daemons.bootstrap import render
from cephfit.lab.machine import run
from cephfit.targets.backends.nfs_files import NfsFiles

_HOST = "127.0.0.1"
_EXPORT = "/cephfit"
_MKFS = ("mkfs.ext4", "-q", "-m", "0", "-E", "lazy_itable_init=1,nodiscard")
_MODULE = "/usr/lib/*/ganesha/libfsalvfs.so"


class NfsServer(LabServer):
    """Ganesha, rpcbind, and ext4 on the disk, mounted only in the servers' namespace.

    With ``sync`` the file system is mounted so that a write is on the disk when it returns, as on Ceph. Otherwise
    the server answers from its memory, and a client must commit (RFC 1813, section 3.3.7).
    """

    protocol = NFS
    daemons = ("rpcbind", "ganesha")
    needs: ClassVar = {
        "ganesha.nfsd": "nfs-ganesha",
        _MODULE: "nfs-ganesha-vfs",
        "rpcbind": "rpcbind",
        "mkfs.ext4": "e2fsprogs",
        "blkdiscard": "util-linux",
    }

    @property
    def address(self) -> str:
        return f"nfs://{_HOST}{_EXPORT}"

    @property
    def _folder(self) -> Path:
        return self._network.folder / "nfs"

    @property
    def _mounted_at(self) -> Path:
        return self._folder / "export"

    def start(self) -> None:
        self._mounted_at.mkdir(parents=True, exist_ok=True)
        if self._mount_options() is None:
            self._mount(_MKFS, "sync,noatime", self._mounted_at)
        self._network.start("rpcbind", ["rpcbind", "-f"])
        self._serve(self._transfer_sizes() or self.defaults())

    def _serve(self, sizes: Mapping[str, str]) -> None:
        """Start Ganesha unless it runs."""
        conf, log = self._folder / "ganesha.conf", self._network.folder / "log" / "ganesha.log"
        if self._network.pid("ganesha") is None:
            text = render(
                "ganesha.conf.j2",
                folder=self._folder,
                path=self._mounted_at,
                export=_EXPORT,
                rsize=sizes["rsize"],
                wsize=sizes["wsize"],
            )
            conf.write_text(text)
        argv = ["ganesha.nfsd", "-F", "-f", str(conf), "-L", str(log), "-N", "EVENT"]
        self._network.start("ganesha", [*argv, "-p", str(self._folder / "ganesha.pid")])
        self._network.await_ready("ganesha", lambda: why_not_answering(self._files.limits))

    @property
    def _files(self) -> NfsFiles:
        return NfsFiles(_HOST, _EXPORT, enter=self._network.enter_network())

    def _transfer_sizes(self) -> dict[str, str] | None:
        """Return the sizes in the configuration file; None before the first start."""
        try:
            words = (self._folder / "ganesha.conf").read_text().replace(";", " ").split()
        except OSError:
            return None
        return {key: words[words.index(name) + 2] for key, name in (("rsize", "MaxRead"), ("wsize", "MaxWrite"))}

    def configure(self, options: Mapping[str, str]) -> None:
        wanted = {**self.defaults(), **options}
        now = self.read_back()
        if now["sync"] != wanted["sync"]:
            word = "sync" if wanted["sync"] == "true" else "async"
            self._network.call(["mount", "-o", f"remount,{word}", str(self._mounted_at)])
        if any(now[key] != wanted[key] for key in ("rsize", "wsize")):
            self._network.stop(["ganesha"])
            self._serve(wanted)

    def read_back(self) -> Mapping[str, str]:
        limits = self._files.limits()
        is_sync = "sync" in (self._mount_options() or ())
        return {"sync": str(is_sync).lower(), "rsize": str(limits["rsize"]), "wsize": str(limits["wsize"])}

    def drop_caches(self) -> None:
        for file in filter(Path.is_file, self._network.path(self._mounted_at).rglob("*")):
            descriptor = os.open(file, os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)

    def clear(self) -> None:
        self._network.call(["fstrim", str(self._mounted_at)])

    def _version(self) -> str:
        return run(["ganesha.nfsd", "-v"]).splitlines()[0]
