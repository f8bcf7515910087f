"""An RBD image as a block device by the kernel: its own rbd client, or librbd behind nbd.

``rbd device list`` tells what the whole machine has mapped, without the cluster: two clusters may have pools and
images of the same names. So a device counts as an image's only if its mapping is of this cluster, and is worked on
only if it is the one that was printed, and written down, when the image was attached.

Written after rbd(8) and rbd-nbd(8) of Ceph 16; the kernel at hand had neither module, so this is tested with an
``rbd`` that answers as it does.
"""

import json
import re
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from cephfit.errors import CephfitError, ClusterError, HostError
from cephfit.lab import processes
from cephfit.lab.export_path import ExportPath, ImageAddress
from cephfit.lab.machine import find_program, run

_DEVICE = "device"
_RBD_BUS = Path("/sys/bus/rbd/devices")


def mappings_of(listing: str, address: ImageAddress) -> list[Mapping[str, Any]]:
    """What has the names of an image in what ``rbd device list --format json`` prints; of any cluster."""
    wanted = (address.pool, address.image)
    return [m for m in json.loads(listing or "[]") if (m["pool"], m.get("image", m.get("name"))) == wanted]


class _MappedExport(ExportPath):
    """What ``rbd device`` can do for both kinds."""

    _device_type: str

    def _rbd(self, *arguments: str) -> str:
        address = self._address
        return run(["rbd", "--conf", str(address.conf), "--id", address.client_id, "device", *arguments])

    @abstractmethod
    def _is_of_this_cluster(self, mapping: Mapping[str, Any]) -> bool:
        """Whether a mapping of this image's names is of the cluster that ``conf`` leads to."""

    def _mapped(self) -> list[Path]:
        """The devices of this image of this cluster."""
        listing = self._rbd("list", "--device-type", self._device_type, "--format", "json")
        return [Path(m["device"]) for m in mappings_of(listing, self._address) if self._is_of_this_cluster(m)]

    def device(self) -> Path | None:
        try:
            attached = Path((self._home / _DEVICE).read_text())
        except OSError:
            return None
        return attached if attached in self._mapped() else None

    def attach(self) -> Path:
        try:
            printed = self._rbd("map", "--device-type", self._device_type, str(self._address))
        except HostError as error:
            raise ClusterError(f"the image cannot be attached: {error.what}", where=str(self._address)) from None
        device = Path(printed.strip().splitlines()[-1])
        (self._home / _DEVICE).write_text(str(device))
        return device

    def detach(self) -> None:
        try:
            # Also one whose making was cut short before it was written down.
            mapped = self._mapped()
        except CephfitError:
            return  # no rbd program: nothing can be mapped through it any more
        for device in mapped:
            self._rbd("unmap", "--device-type", self._device_type, "--options", "force", str(device))


class KrbdExport(_MappedExport):
    """The kernel's rbd client. librbd and its options play no part."""

    name = "krbd"
    reads_client_options = False
    _device_type = "krbd"

    @classmethod
    def usable(cls) -> bool:
        return Path("/sys/bus/rbd").exists() and find_program("rbd") is not None

    def _is_of_this_cluster(self, mapping: Mapping[str, Any]) -> bool:
        """By the cluster's identifier, which the kernel keeps with the mapping, and the client's conf has."""
        with suppress(OSError):
            mapped = (_RBD_BUS / str(mapping["id"]) / "cluster_fsid").read_text().strip()
            said = re.search(r"^\s*fsid\s*=\s*(\S+)", self._address.conf.read_text(errors="replace"), re.MULTILINE)
            return said is not None and said[1] == mapped
        return False


class NbdExport(_MappedExport):
    """librbd in rbd-nbd behind the kernel's nbd client."""

    name = "rbd-nbd"
    reads_client_options = True
    _device_type = "nbd"

    @classmethod
    def usable(cls) -> bool:
        return Path("/dev/nbd0").exists() and find_program("rbd-nbd") is not None

    def _is_of_this_cluster(self, mapping: Mapping[str, Any]) -> bool:
        """By the conf that its rbd-nbd, whose process id the list gives, was started with."""
        return processes.mentions(processes.command_line(int(mapping["id"])), self._address.conf)
