"""An NFS export as a target; each client has a file in it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cephfit.ceph.environment.scopes import NFS
from cephfit.core.errors import InputError
from cephfit.core.protocols import Client
from cephfit.core.units import about
from cephfit.measure.micro.file_places import NFS as FILES_BY_NFS
from cephfit.measure.micro.file_places import FilePlace
from cephfit.targets.abilities import ExportsFiles
from cephfit.targets.backends.backend_target import BackendTarget, ExportsVolumes, NbdServer, ServerPlace, qemu_nbd
from cephfit.targets.backends.nfs_files import NfsFiles

_URL = re.compile(r"(?://)?(?P<host>[^/:@?\s]+)(?P<port>:\d+)?(?P<export>/[^?\s]*)")
_CREATED = "file"
_COMPLETE = "complete"
"""A created file that has its size."""
_FOLDER = "folder"


@dataclass(frozen=True, slots=True)
class NfsAddress:
    """The address of an export.

    Attributes:
        host: name or address of the server.
        export: path on the server.
    """

    host: str
    export: str

    def __str__(self) -> str:
        return f"nfs://{self.host}{self.export}"


def parse_nfs(text: str) -> NfsAddress:
    """Read ``//host/export``; the slashes in front may be missing.

    Raises:
        InputError: it is something else.
    """
    match = _URL.fullmatch(text)
    if match is None or match["export"] == "/":
        raise InputError(
            f"{text!r} is not the address of an export",
            where="--target nfs",
            remedy="write it like nfs://192.0.2.7/srv/export, or nfs:lab for the server of a lab",
        )
    if match["port"]:
        raise InputError(
            "a port of the server is missing in QEMU's NFS driver: it asks the server's rpcbind (port 111)",
            where=f"--target nfs:{text}",
            remedy="omit the port",
        )
    return NfsAddress(match["host"], match["export"].rstrip("/"))


class NfsTarget(BackendTarget, ExportsFiles):
    """One export. The target creates files and folders there, and ``reset`` deletes them; it touches no others."""

    protocol = NFS
    client_side = "QEMU's driver nfs (libnfs)"

    def __init__(
        self,
        name: str,
        address: NfsAddress,
        place: ServerPlace,
        devices: ExportsVolumes,
        *,
        for_change: bool = True,
    ) -> None:
        super().__init__(name, place, devices, for_change=for_change)
        self._address = address
        self._files = NfsFiles(address.host, address.export, enter=place.server.enter)

    def why_not_by_client(self, key: str, value: str) -> str:
        if key == "version" and value != "3":
            return (
                f"NFS version {value} is missing in QEMU's NFS driver, which mounts with version 3; it needs the "
                "kernel's NFS client"
            )
        return ""

    def files_of(self, client: Client) -> FilePlace:
        folder = f"cephfit-{self._tag}-{client.name}-files"
        self._journal.note(_FOLDER, folder, None)
        return FilePlace(
            FILES_BY_NFS,
            self._address.export,
            host=self._address.host,
            folder=folder,
            enter=tuple(self._server.enter),
        )

    def _nbd_server(self, index: int, nbytes: int, options: Mapping[str, str]) -> NbdServer:
        file = {
            "driver": "nfs",
            "server": {"type": "inet", "host": self._address.host},
            "path": f"{self._address.export}/{self._volume(index, nbytes)}",
            "cache": {"direct": True, "no-flush": False},
        }
        return qemu_nbd(file)

    def _volume(self, index: int, nbytes: int) -> str:
        return f"cephfit-{self._tag}-c{index}-{nbytes}.img"

    def _require_volumes(self, n_clients: int, nbytes: int, options: Mapping[str, str]) -> None:
        volumes = [self._volume(index, nbytes) for index in range(n_clients)]
        begun = [volume for volume in volumes if self._journal.get(_CREATED, volume) is not None]
        missing_nbytes = (len(volumes) - len(begun)) * nbytes
        if missing_nbytes and (free := self._files.limits()["free"]) < missing_nbytes:
            raise InputError(
                f"the volumes need {about(missing_nbytes)}, the export has {about(free)} free",
                where=self.name,
                remedy="use smaller volumes or fewer clients, or free space on the server",
            )
        for volume in volumes:
            if self._journal.get(_COMPLETE, volume) is not None:
                continue
            if volume in begun:  # by a process that was killed, or the server did not answer
                self._files.complete(volume, nbytes)
            else:
                self._create(volume, nbytes)
            self._journal.note(_COMPLETE, volume, None)

    def _create(self, volume: str, nbytes: int) -> None:
        self._journal.note(_CREATED, volume, None)
        if not self._files.create(volume, nbytes):
            self._journal.forget(_CREATED, volume)
            raise InputError(
                f"{volume} already exists in the export, and no journal on this machine knows it",
                where=self.name,
                remedy="delete it on the server if it is left from an earlier sweep",
            )

    def _remove_volumes(self) -> None:
        for entry in self._journal.entries(_FOLDER):
            self._files.delete_folder(entry.place)
            self._journal.forget(_FOLDER, entry.place)
        for entry in self._journal.entries(_CREATED):
            self._files.delete(entry.place)
            self._journal.forget(_COMPLETE, entry.place)
            self._journal.forget(_CREATED, entry.place)
