"""Settings around Ceph on this machine: the kernel's queues of its own OSD disks and of the clients' disks."""

from collections.abc import Callable, Sequence
from pathlib import Path

from cephfit.configuration import Configuration, Partition, Setting
from cephfit.protocols import Client
from cephfit.sweep.disk_queues import DiskQueues
from cephfit.sweep.targets.surroundings import ReadValues


class LocalDisks:
    """Implements ``GreaterEnvironment``.

    Args:
        queues: sets and restores.
        osd_disks: block devices of this machine that belong to OSDs; asked whenever a configuration is applied.
        client_disk_like: a device whose queue has the values that the clients' disks have; None where clients
            have no disks here (fio opens their images by itself).
    """

    def __init__(
        self,
        queues: DiskQueues,
        *,
        osd_disks: Callable[[], Sequence[Path]] = tuple,
        client_disk_like: Callable[[], Path] | None = None,
    ) -> None:
        self._queues = queues
        self._osd_disks = osd_disks
        self._client_disk_like = client_disk_like

    def why_not(self, setting: Setting) -> str:
        if setting.scope == "osd_disk":
            disks = self._osd_disks()
            if not disks:
                return f"no disk of an OSD can be reached from here to set {setting.key} on"
        elif self._client_disk_like is None:
            return f"fio opens the images by itself here, so no client has a disk to set {setting.key} on"
        else:
            disks = [self._client_disk_like()]
        missing = [disk for disk in disks if not self._queues.has(disk, setting.key)]
        return f"this kernel has no queue value {setting.key} on {missing[0].name}" if missing else ""

    def apply(self, configuration: Configuration, clients: Sequence[Client]) -> None:
        self._queues.apply(self._wanted(configuration, clients))

    def read_back(self, configuration: Configuration, clients: Sequence[Client]) -> ReadValues:
        return self._queues.read_back(self._wanted(configuration, clients))

    def release(self, clients: Sequence[Client]) -> None:
        for client in clients:
            if client.device is not None:
                self._queues.restore(client.device)

    def restore(self) -> None:
        self._queues.restore()

    def _wanted(self, configuration: Configuration, clients: Sequence[Client]) -> list[tuple[Setting, Path]]:
        settings = tuple(configuration.within(Partition.GREATER))
        disks = {
            "osd_disk": tuple(self._osd_disks()) if settings else (),
            "client_disk": tuple(c.device for c in clients if c.device is not None),
        }
        return [(setting, disk) for setting in settings for disk in disks[setting.scope]]
