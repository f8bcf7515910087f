"""An RBD image as a block device by the kernel: its own rbd client, or librbd behind nbd.

Written after rbd(8) and rbd-nbd(8) of Ceph 16; the kernel at hand had neither module, so only the parsing of what
the programs print and the choice are tested.
"""

import json
from pathlib import Path
from typing import Any

from cephfit.errors import CephfitError, ClusterError, HostError
from cephfit.lab.export_path import ExportPath, ImageAddress
from cephfit.lab.machine import find_program, run


def mapped_device(listing: str, address: ImageAddress) -> Path | None:
    """The device of an image in what ``rbd device list --format json`` prints; a list of mappings."""
    mappings: list[dict[str, Any]] = json.loads(listing or "[]")
    for mapping in mappings:
        if (mapping["pool"], mapping.get("image", mapping.get("name"))) == (address.pool, address.image):
            return Path(mapping["device"])
    return None


class _MappedExport(ExportPath):
    """What ``rbd device`` can do for both kinds."""

    _device_type: str

    def _rbd(self, *arguments: str) -> str:
        address = self._address
        return run(["rbd", "--conf", str(address.conf), "--id", address.client_id, "device", *arguments])

    def device(self) -> Path | None:
        return mapped_device(
            self._rbd("list", "--device-type", self._device_type, "--format", "json"), self._address
        )

    def attach(self) -> Path:
        try:
            printed = self._rbd("map", "--device-type", self._device_type, str(self._address))
        except HostError as error:
            raise ClusterError(f"the image cannot be attached: {error.what}", where=str(self._address)) from None
        return Path(printed.strip().splitlines()[-1])

    def detach(self) -> None:
        try:
            device = self.device()
        except CephfitError:
            return  # no rbd program or no cluster: nothing can be mapped through it any more
        if device is not None:
            self._rbd("unmap", "--device-type", self._device_type, "--options", "force", str(device))


class KrbdExport(_MappedExport):
    """The kernel's rbd client. librbd and its options play no part."""

    name = "krbd"
    reads_client_options = False
    _device_type = "krbd"

    @classmethod
    def usable(cls) -> bool:
        return Path("/sys/bus/rbd").exists() and find_program("rbd") is not None


class NbdExport(_MappedExport):
    """librbd in rbd-nbd behind the kernel's nbd client."""

    name = "rbd-nbd"
    reads_client_options = True
    _device_type = "nbd"

    @classmethod
    def usable(cls) -> bool:
        return Path("/dev/nbd0").exists() and find_program("rbd-nbd") is not None
