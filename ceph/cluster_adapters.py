"""Protocols for what differs between Ceph clusters.

They cover the restart of OSDs, block devices for images, settings around Ceph, and limits on the disks.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cephfit.ceph.delivery.option_delivery import OptionDelivery
from cephfit.ceph.host_access import Hosts
from cephfit.ceph.volumes import Volume
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Client
from cephfit.core.values.configuration import Configuration, Setting

ReadValues = tuple[Mapping[str, Mapping[str, Any]], Sequence[str]]
"""Setting (as text) to place to value, and one sentence per setting that did not take effect."""


class OsdsDownError(ClusterError):
    """These OSDs did not come back after the restart.

    Attributes:
        osds: ids.
        down: ids of those that are down: restarted but not up, or down before and not restarted.
    """

    def __init__(
        self, what: str, *, osds: Sequence[int] = (), down: Sequence[int] = (), where: str = "", remedy: str = ""
    ) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.osds = tuple(osds)
        self.down = tuple(down)


class RestartsOsds(Protocol):
    """Restarts OSDs so that they read their configuration again."""

    def why_not(self, osds: Sequence[int]) -> str:
        """Return why these OSDs cannot be restarted from here; empty if they can. Changes nothing."""

    def restart(self, osds: Sequence[int], done: Callable[[int], None]) -> None:
        """Restart OSDs, and start those that are down. Return when each is up and every PG is active+clean.

        It is safe to call again after a kill at any instant: a second restart loses nothing.

        Args:
            osds: ids.
            done: called with each OSD as soon as it runs with its current configuration.

        Raises:
            OsdsDownError: some OSDs were not restarted, or did not come back.
            ClusterError: a restart is not safe now.
        """


class ExportsDevices(Protocol):
    """Attaches RBD images as block devices of this machine."""

    def attach(self, volume: Volume, *, conf: Path, client_id: str, folder: Path) -> Path:
        """Attach a volume with the present content of ``conf`` and return its device. State is kept in ``folder``.

        Raises:
            HostError: this machine lacks a program or a kernel feature.
            ClusterError: the image cannot be opened.
        """

    def device_of(self, volume: Volume, *, folder: Path) -> Path | None:
        """Return the device if everything behind it runs; None otherwise."""

    def detach_all(self, folder: Path) -> None:
        """Detach every device that was attached with this folder, also by a process that was killed."""


class GreaterEnvironment(Protocol):
    """Settings around Ceph (partition ``greater``) on the accessible hosts, journalled before each change."""

    def why_not(self, setting: Setting) -> str:
        """Return why a setting cannot be applied; empty if it can. Changes nothing."""

    def apply(self, configuration: Configuration, clients: Sequence[Client]) -> None:
        """Apply the configuration; restore what was changed before and is not part of it.

        Raises:
            HostError: a host refuses.
        """

    def read_back(self, configuration: Configuration, clients: Sequence[Client]) -> ReadValues:
        """Read the present values of a configuration's settings."""

    def release(self, clients: Sequence[Client]) -> None:
        """Restore the settings of the clients' devices before they are detached."""

    def restore(self) -> None:
        """Restore everything."""

    def release_locks(self) -> None:
        """Release the hosts: the present values are permanent now, and other targets may start from them."""


class RemakesOsds(Protocol):
    """Recreates OSDs with a different disk layout; only where all their data may be lost."""

    def why_not(self, configuration: Configuration) -> tuple[str, ...]:
        """Return why settings of the scope ``osd_store`` cannot be applied; empty if they can. Changes nothing."""

    def due(self, configuration: Configuration) -> tuple[int, ...]:
        """Return the OSDs that differ from a configuration; without a setting, the original layout is required."""

    def remake(self, configuration: Configuration) -> None:
        """Recreate those OSDs. The caller has deleted its pools. Journalled; returns when the cluster is healthy.

        Raises:
            ClusterError: data that cephfit did not write would be lost.
            HostError: a host lacks a program or a disk.
        """

    def objectstores(self, configuration: Configuration) -> frozenset[str]:
        """Return the object stores that OSDs have under a configuration, such as ``bluestore``."""

    def read_back(self, configuration: Configuration) -> ReadValues:
        """Read the present layout from the OSDs and their hosts."""

    def clean_up(self) -> None:
        """Finish what a process that was killed in ``remake`` began. Safe to call at any time."""

    def restore(self) -> None:
        """Give all OSDs their original layout. The caller has deleted its pools."""


def no_capacity_limit(_nbytes: int) -> None:
    """Do nothing: for clusters with disks on other machines, the pools' own report is enough."""


@dataclass(frozen=True, slots=True)
class ClusterAdapters:
    """The adapters of one cluster.

    Attributes:
        greater: applies the settings around Ceph.
        restarts: restarts OSDs; None where that is impossible, so that settings that need it are skipped.
        devices: attaches and detaches block devices; None: there are none, and fio opens the images by itself.
        librbd: fio opens the images by itself (``ioengine=rbd``). ``devices`` then detaches what earlier commands
            left: a program with an image that is deleted below it never flushes its cache.
        full_speed: lifts limits on the disks inside the block, for unmeasured work.
        require_capacity: raises ClusterError where the disks of the pool lack free space for so many bytes, all
            copies counted.
        pool_defaults: settings of every pool, unless a configuration sets them.
        patience_seconds: how long all PGs may take to be active+clean after a change.
        remedy: what to look at when the cluster does not become healthy.
        hosts: accessible hosts of the cluster's daemons, for the telemetry of a run.
        stores: recreates OSDs; None where that is not permitted.
        drop_page_caches: drops the page caches of OSD hosts with FileStore, which `cache drop` does not empty.
        why_page_caches_stay: why that is impossible; empty if it is possible.
        delivery: how options are delivered to the daemons.
        is_own_process: whether a Ceph program or client of this machine belongs to this cluster.
    """

    greater: GreaterEnvironment
    restarts: RestartsOsds | None = None
    devices: ExportsDevices | None = None
    librbd: bool = False
    full_speed: Callable[[], AbstractContextManager[None]] = nullcontext
    require_capacity: Callable[[int], None] = no_capacity_limit
    pool_defaults: Mapping[str, str | int] = field(default_factory=dict)
    patience_seconds: float = 600.0
    remedy: str = "see `ceph health detail`"
    hosts: Hosts = field(default_factory=Hosts)
    stores: RemakesOsds | None = None
    drop_page_caches: Callable[[], None] = lambda: None
    why_page_caches_stay: Callable[[], str] = lambda: ""
    delivery: OptionDelivery = field(default_factory=OptionDelivery)
    is_own_process: Callable[[int], bool] = lambda process: True

    @property
    def attaches(self) -> ExportsDevices | None:
        """What attaches the images of a configuration as block devices; None where fio opens them by itself."""
        return None if self.librbd else self.devices
