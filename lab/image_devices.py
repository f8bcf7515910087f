"""Volumes of any Ceph cluster as block devices of this machine, for targets."""

from pathlib import Path

from cephfit.lab import export
from cephfit.sweep.volumes import Volume


class ImageDevices:
    """Implements ``ExportsDevices`` by whatever this machine's kernel has."""

    def attach(self, volume: Volume, *, conf: Path, client_id: str, folder: Path) -> Path:
        return export.attach(
            volume.image,
            pool=volume.pool,
            conf=conf,
            client_id=client_id,
            folder=folder,
            nbytes=volume.nbytes,
            # All configurations are measured through one path, and it must be one that each of them can use.
            path=export.export_path(librbd=True),
        )

    def device_of(self, volume: Volume, *, folder: Path) -> Path | None:
        return export.device_of(volume.image, pool=volume.pool, folder=folder)

    def detach_all(self, folder: Path) -> None:
        export.detach_all(folder)
