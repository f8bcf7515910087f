"""Block nodes of QEMU, attached by name as block devices of this machine."""

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cephfit.lab.devices.qemu_export import QemuExport
from cephfit.lab.machine import require_root

_RECORD = "nodes.json"


class NodeDevices:
    """Implements ``ExportsNodes``; each export has a folder below ``exports`` in the target's folder."""

    def attach(
        self, name: str, nodes: Sequence[Mapping[str, Any]], *, storage: str, folder: Path, enter: Sequence[str]
    ) -> Path:
        require_root("attaching a volume")
        home = _home(folder, name)
        record = json.dumps({"nodes": nodes, "enter": enter})
        export = QemuExport(home)
        if (home / _RECORD).is_file() and (home / _RECORD).read_text() == record:
            device = export.device()
            if device is not None:
                return device
        self.detach(name, folder=folder)
        home.mkdir(parents=True)
        (home / _RECORD).write_text(record)
        try:
            return export.attach(
                nodes,
                what="the volume",
                where=storage,
                remedy="check that the server runs and serves it to this machine; if the driver is unknown, "
                "install qemu-block-extra",
                enter=enter,
            )
        except BaseException:
            self.detach(name, folder=folder)
            raise

    def device_of(self, name: str, *, folder: Path) -> Path | None:
        return QemuExport(_home(folder, name)).device()

    def detach(self, name: str, *, folder: Path) -> None:
        QemuExport(_home(folder, name)).detach()
        shutil.rmtree(_home(folder, name), ignore_errors=True)

    def detach_all(self, folder: Path) -> None:
        for home in (folder.resolve() / "exports").glob("*/"):
            self.detach(home.name, folder=folder)


def _home(folder: Path, name: str) -> Path:
    return folder.resolve() / "exports" / name
