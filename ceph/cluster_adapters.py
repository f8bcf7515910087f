"""What differs from one Ceph cluster to another, behind narrow protocols: who restarts OSDs, who makes block
devices of images, which settings around Ceph can be reached, and how the disks are freed of limits."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cephfit.ceph.delivery.option_delivery import OptionDelivery
from cephfit.ceph.hosts.host_access import Hosts
from cephfit.ceph.volumes import Volume
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Client
from cephfit.core.values.configuration import Configuration, Setting

ReadValues = tuple[Mapping[str, Mapping[str, Any]], Sequence[str]]
"""Setting as text to place to value, and one sentence per setting that did not take effect."""


class OsdsDownError(ClusterError):
    """OSDs were to be restarted, and do not run anew.

    Attributes:
        osds: which.
        down: those of them that are down: restarted and not up again, or down before and not restarted.
    """

    def __init__(
        self, what: str, *, osds: Sequence[int] = (), down: Sequence[int] = (), where: str = "", remedy: str = ""
    ) -> None:
        super().__init__(what, where=where, remedy=remedy)
        self.osds = tuple(osds)
        self.down = tuple(down)


class RestartsOsds(Protocol):
    """Makes OSDs read their configuration anew."""

    def why_not(self, osds: Sequence[int]) -> str:
        """Why these OSDs cannot be restarted from here at all; empty if they can. Changes nothing."""

    def restart(self, osds: Sequence[int], done: Callable[[int], None]) -> None:
        """Restart them, and start those that are down; back when each is up and every PG is active+clean.

        Called again after a kill at any instant: an OSD that was restarted twice has lost nothing.

        Args:
            osds: which.
            done: told of each OSD as soon as it runs with what its configuration says now.

        Raises:
            OsdsDownError: some were not restarted, or do not come back.
            ClusterError: it is not safe now.
        """


class ExportsDevices(Protocol):
    """Makes block devices of this machine from RBD images."""

    def attach(self, volume: Volume, *, conf: Path, client_id: str, folder: Path) -> Path:
        """The device of a volume, made from ``conf`` as it is now. What must be kept lies in ``folder``.

        Raises:
            HostError: this machine lacks something.
            ClusterError: the image cannot be opened.
        """

    def device_of(self, volume: Volume, *, folder: Path) -> Path | None:
        """The device if everything behind it lives; None otherwise."""

    def detach_all(self, folder: Path) -> None:
        """Detach all that was attached with this folder, also by a process that was killed."""


class GreaterEnvironment(Protocol):
    """Settings around Ceph (partition ``greater``) on the hosts within reach, journalled before each change."""

    def why_not(self, setting: Setting) -> str:
        """Why a setting cannot be made; empty if it can. Changes nothing."""

    def apply(self, configuration: Configuration, clients: Sequence[Client]) -> None:
        """Make what the configuration says; what was changed before and is not wanted now gets its original.

        Raises:
            HostError: a host refuses.
        """

    def read_back(self, configuration: Configuration, clients: Sequence[Client]) -> ReadValues:
        """What is so now."""

    def release(self, clients: Sequence[Client]) -> None:
        """The clients' devices go away: what was set on them is put back while they are there."""

    def restore(self) -> None:
        """Everything as it was."""


class RemakesOsds(Protocol):
    """Makes OSDs anew with another layout of their disks; only where all they hold may be lost."""

    def why_not(self, configuration: Configuration) -> tuple[str, ...]:
        """Why the settings of the scope ``osd_store`` cannot be made; empty if they can. Changes nothing."""

    def due(self, configuration: Configuration) -> tuple[int, ...]:
        """OSDs that are not as a configuration wants them; one that says nothing wants what was there first."""

    def remake(self, configuration: Configuration) -> None:
        """Make those anew; the caller has deleted its pools. Journalled; back when the cluster is healthy.

        Raises:
            ClusterError: something would be lost that is not ours.
            HostError: a host lacks something.
        """

    def objectstores(self, configuration: Configuration) -> frozenset[str]:
        """The object stores that OSDs have under a configuration, such as ``bluestore``."""

    def read_back(self, configuration: Configuration) -> ReadValues:
        """What the OSDs and their hosts say."""

    def clear_up(self) -> None:
        """Finish what a process that was killed in ``remake`` had begun. May be called any time."""

    def restore(self) -> None:
        """All OSDs as they were first; the caller's pools are gone."""


def no_limit_on_room(_nbytes: int) -> None:
    """For clusters whose disks lie elsewhere: what their pools report is all that is to be asked."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a target has around its cluster.

    Attributes:
        greater: reaches the settings around Ceph.
        restarts: restarts OSDs; None where nobody can, so that settings that need it are skipped.
        devices: makes block devices; None where fio opens the images by itself (``ioengine=rbd``).
        full_speed: lifts limits on the disks inside the block, for what is not measured.
        require_room: raises ClusterError where the disks behind the pool have no room for so many bytes, all
            copies counted.
        pool_defaults: settings of every pool that a configuration does not set otherwise.
        patience_seconds: how long all PGs may take to be active+clean after a change.
        remedy: what a person can look at when the cluster does not become healthy.
        hosts: of the cluster's daemons, those that may be reached: for what they did during a run.
        stores: makes OSDs anew; None where nobody may.
        drop_page_caches: makes OSDs' kernels forget the files of FileStore, which `cache drop` leaves alone.
        why_page_caches_stay: why it cannot; empty if it can.
        delivery: by which way options reach the daemons.
    """

    greater: GreaterEnvironment
    restarts: RestartsOsds | None = None
    devices: ExportsDevices | None = None
    full_speed: Callable[[], AbstractContextManager[None]] = nullcontext
    require_room: Callable[[int], None] = no_limit_on_room
    pool_defaults: Mapping[str, str | int] = field(default_factory=dict)
    patience_seconds: float = 600.0
    remedy: str = "see `ceph health detail`"
    hosts: Hosts = field(default_factory=Hosts)
    stores: RemakesOsds | None = None
    drop_page_caches: Callable[[], None] = lambda: None
    why_page_caches_stay: Callable[[], str] = lambda: ""
    delivery: OptionDelivery = field(default_factory=OptionDelivery)
