"""A logical unit of an iSCSI server as a target; client i has the bytes from i times the volume's size."""

import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cephfit.ceph.environment.scopes import ISCSI
from cephfit.core.errors import InputError, LackingError
from cephfit.core.protocols import Client
from cephfit.core.units import format_nbytes
from cephfit.measure.block_device import device_nbytes, read_directly, remove_signatures, require_empty
from cephfit.targets.backends.backend_target import BackendTarget, ExportsVolumes, NbdServer, ServerPlace, qemu_nbd

_URL = re.compile(r"(?://)?(?P<host>\[[0-9a-fA-F:]+\]|[^/:@\s]+)(:(?P<port>\d+))?/(?P<iqn>[^/\s]+)/(?P<lun>\d+)")
_PORT = 3260
_PROBE = "probe"
_UNIT = "unit"
_N_READS = 10
_TRIES = 3
_COMMAND_NBYTES = 48
"""Header of a SCSI command (RFC 7143, section 11.2)."""
_WITH_DIGEST_NBYTES = _COMMAND_NBYTES + 4


@dataclass(frozen=True, slots=True)
class IscsiAddress:
    """The address of a logical unit.

    Attributes:
        portal: ``host:port``.
        iqn: the iSCSI target's name.
        lun: number of the logical unit.
    """

    portal: str
    iqn: str
    lun: int

    def __str__(self) -> str:
        return f"iscsi://{self.portal}/{self.iqn}/{self.lun}"


def parse_iscsi(text: str) -> IscsiAddress:
    """Read ``//host:port/iqn/lun``; the slashes in front and the port may be missing.

    Raises:
        InputError: it is something else.
    """
    if "@" in text or "%" in text:
        raise InputError(
            "CHAP is missing in cephfit's iSCSI client: it logs in without user and password",
            where="--target iscsi",
            remedy="allow this machine's address on the server without CHAP",
        )
    match = _URL.fullmatch(text)
    if match is None:
        raise InputError(
            f"{text!r} is not the address of a logical unit",
            where="--target iscsi",
            remedy="write it like iscsi://192.0.2.7:3260/iqn.2026-01.org.example:disk/1, or iscsi:lab for the "
            "server of a lab",
        )
    return IscsiAddress(f"{match['host']}:{match['port'] or _PORT}", match["iqn"], int(match["lun"]))


class IscsiTarget(BackendTarget):
    """One logical unit.

    It is refused if blkid recognises its content, unless cephfit wrote it. A unit is recognised by its target's
    name, which is unique in the world (RFC 7143, section 4.2.7), and its number: ``reset`` ends that.
    """

    protocol = ISCSI
    client_side = "QEMU's driver iscsi (libiscsi)"

    def __init__(
        self,
        name: str,
        address: IscsiAddress,
        place: ServerPlace,
        devices: ExportsVolumes,
        *,
        for_change: bool = True,
    ) -> None:
        super().__init__(name, place, devices, for_change=for_change)
        self._address = address

    def why_not_by_client(self, key: str, value: str) -> str:
        if key == "data_digest" and value != "none":
            return "data digests are missing in libiscsi, QEMU's iSCSI client: it offers only DataDigest=None"
        if key == "sessions" and value != "1":
            return (
                "several sessions for one volume need a client with multipath, the kernel's iSCSI initiator; "
                "QEMU's driver opens one session for each client"
            )
        return ""

    def in_effect(self, key: str, wanted: str, client: Client) -> str:
        """As ``BackendTarget.in_effect``; of a header digest, by what the connection sends for each read."""
        if key != "header_digest" or client.device is None:
            return wanted
        for _ in range(_TRIES):
            before = self._sent_nbytes()
            read_directly(client.device, _N_READS)
            sent = self._sent_nbytes() - before
            # Other commands, such as the driver's regular NOP, have the same size.
            if sent and (sent % _COMMAND_NBYTES == 0) != (sent % _WITH_DIGEST_NBYTES == 0):
                return "none" if sent % _COMMAND_NBYTES == 0 else "crc32c"
        return "unknown"

    def _sent_nbytes(self) -> int:
        """Return what all connections from this machine to the portal have sent."""
        argv = [*self._server.enter, "ss", "-tinHO", "dst", self._address.portal]
        try:
            sockets = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=10).stdout
        except FileNotFoundError:
            raise LackingError("ss: not found", remedy="apt install iproute2") from None
        return sum(map(int, re.findall(r"bytes_sent:(\d+)", sockets)))

    def _unit(self, options: Mapping[str, str]) -> dict[str, Any]:
        return {
            "driver": "iscsi",
            "transport": "tcp",
            "portal": self._address.portal,
            "target": self._address.iqn,
            "lun": self._address.lun,
            "header-digest": options["header_digest"],
            "cache": {"direct": True, "no-flush": False},
        }

    def _nbd_server(self, index: int, nbytes: int, options: Mapping[str, str]) -> NbdServer:
        return qemu_nbd(self._unit(options), offset=index * nbytes, size=nbytes)

    def _volume(self, index: int, nbytes: int) -> str:
        return f"{index * nbytes}+{nbytes}"

    def _require_volumes(self, n_clients: int, nbytes: int, options: Mapping[str, str]) -> None:
        known = self._journal.get(_UNIT, str(self._address))
        needed = n_clients * nbytes
        if known is not None and int(known.was) >= needed:
            return
        with self._whole_unit() as device:
            size = device_nbytes(device)
            if size < needed:
                raise InputError(
                    f"the logical unit has {format_nbytes(size)}, but {format_nbytes(needed)} are needed",
                    where=self.name,
                    remedy="use a larger unit, smaller volumes or fewer clients",
                )
            if known is None:
                require_empty(device, where=self.name)
                self._journal.note(_UNIT, str(self._address), size)

    @contextmanager
    def _whole_unit(self) -> Iterator[Path]:
        """Attach the whole unit: QEMU refuses a part beyond its end with the same error as an unknown unit."""
        device = self._attach_server(_PROBE, qemu_nbd(self._unit({"header_digest": "none"})))
        try:
            yield device
        finally:
            self._devices.detach(_PROBE, folder=self._folder)

    def _remove_volumes(self) -> None:
        """Remove the signatures of what workloads wrote, so that the unit counts as empty for the next sweep."""
        if self._journal.get(_UNIT, str(self._address)) is not None and not self._server.problem():
            with self._whole_unit() as device:
                remove_signatures(device)
        self._journal.forget(_UNIT, str(self._address))
