"""The parts of one lab, and what takes several of them: the journal, the OSDs' disks, the daemons."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from pathlib import Path

from cephfit.errors import ClusterError, HostError
from cephfit.lab.daemons import MGR, MON, Daemons, osd_name
from cephfit.lab.journal import LabJournal
from cephfit.lab.osd_disks import OsdDisks
from cephfit.lab.readiness import wait_whole
from cephfit.lab.registry import Record
from cephfit.lab.throttle import Throttle, find_throttle
from cephfit.sweep.admin.rados_admin import RadosAdmin


class LabParts:
    """What a lab is made of. Like ``Lab`` it holds no process and no connection.

    Args:
        folder: the lab's.
        record: its journal as it is now.
    """

    def __init__(self, folder: Path, record: Record) -> None:
        self.name = record.name
        self.spec = record.spec
        self.folder = folder
        self.conf = folder / "ceph.conf"
        self.journal = LabJournal(folder, record)
        self.daemons = Daemons(folder, self.conf)
        self.disks = OsdDisks(record.name, folder, record.spec)

    @property
    def record(self) -> Record:
        return self.journal.record

    def osd_ids(self) -> tuple[int, ...]:
        return tuple(range(len(self.spec.osds)))

    def daemon_names(self) -> tuple[str, ...]:
        """Monitor, manager and OSDs, in this order."""
        return (MON, MGR, *map(osd_name, self.osd_ids()))

    def connection(self) -> AbstractContextManager[RadosAdmin]:
        """To the lab's Ceph, as its administrator; closed at the end of the block."""
        return closing(RadosAdmin(self.conf))

    # The disks and their limits.

    def attach_disks(self, throttle: Throttle) -> None:
        """Attach the disks of the OSDs, and what existing OSDs have of them."""
        devices = self.disks.attach(throttle)
        self.journal.change(devices={osd: str(device) for osd, device in devices.items()})
        for osd in devices:
            if self.record.ready and osd not in self.record.unmade:
                self.disks.reconnect(osd, self.record.store(osd), throttle)

    def place(self, throttle: Throttle) -> None:
        """Put the OSDs that run where their limits act."""
        throttle.place(pid for osd in self.osd_ids() if (pid := self.daemons.pid(osd_name(osd))) is not None)

    def slow_down(self, throttle: Throttle) -> None:
        """Put all limits in force."""
        self.disks.slow_down(throttle)
        self.place(throttle)

    def full_speed(self) -> AbstractContextManager[None]:
        """Without limits on the disks inside the block.

        Raises:
            HostError: another process is at it.
        """
        return self.disks.full_speed(find_throttle(self.folder))

    @contextmanager
    def full_speed_if_free(self) -> Iterator[None]:
        """``full_speed`` unless somebody, perhaps the caller, has lifted the limits already."""
        with ExitStack() as stack:
            with suppress(HostError):
                stack.enter_context(self.full_speed())
            yield

    # The cluster as a whole.

    def require_alive(self) -> None:
        """Raises:
        ClusterError: a daemon does not run.
        """
        dead = [name for name in self.daemon_names() if self.daemons.pid(name) is None]
        if dead:
            raise ClusterError(
                f"{', '.join(dead)} died",
                where=f"lab {self.name}",
                remedy=f"`cephfit lab start --name {self.name}` starts it; the logs are in {self.folder}/log",
            )

    def await_whole(self, admin: RadosAdmin, before: Mapping[int, int] | None = None) -> None:
        """Until all OSDs are up and all PGs active+clean.

        Args:
            admin: of the lab.
            before: epochs at which restarted OSDs had come up before.

        Raises:
            ClusterError: a daemon died, or it takes too long.
        """
        wait_whole(admin, self.osd_ids(), before=before, alive=self.require_alive)
