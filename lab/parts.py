"""The parts of one lab (journal, disks and daemons), and waiting until its cluster is healthy."""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from cephfit.ceph.admin.rados_admin import RadosAdmin
from cephfit.core.errors import ClusterError, HostError
from cephfit.core.protocols import CephAdmin
from cephfit.core.waiting import wait_until_clear
from cephfit.lab.daemons.ceph_daemons import MGR, MON, Daemons, osd_name
from cephfit.lab.daemons.ceph_programs import CephPrograms, root_of
from cephfit.lab.daemons.osd_creation import OsdDisks
from cephfit.lab.devices.throttle import Throttle, find_throttle
from cephfit.lab.lab_backend import LabBackends
from cephfit.lab.lab_status import active_checks
from cephfit.lab.network.client_network import ClientNetwork
from cephfit.lab.registry import Record

_POLL_SECONDS = 0.2
_WHOLE_SECONDS = 90.0


def _unready_pgs(pgs: Collection[Mapping[str, Any]], since: Mapping[int, int]) -> str:
    """Return why the PGs are not ready; empty if they are.

    A PG's state is as old as its last report: a report from before its OSD came up is ignored.
    """
    unclean = [pg for pg in pgs if pg["state"] != "active+clean"]
    if unclean:
        states = sorted({pg["state"] for pg in unclean})
        return f"{len(unclean)} of {len(pgs)} PGs are {', '.join(states)}"
    old = [
        pg
        for pg in pgs
        if any(int(pg["reported_epoch"]) < since.get(osd, 0) for osd in {*pg["up"], *pg["acting"]})
    ]
    return f"{len(old)} of {len(pgs)} PGs have not reported yet" if old else ""


def _unready(admin: CephAdmin, osds: Collection[int], before: Mapping[int, int]) -> str:
    osd_map = admin.command("osd dump")
    now = {o["osd"]: o["up_from"] for o in osd_map["osds"] if o["up"]}
    waiting = [osd for osd in osds if osd not in now or now[osd] <= before.get(osd, 0)]
    if waiting:
        return f"OSDs {', '.join(map(str, sorted(waiting)))} are not up"
    n_pgs = sum(pool["pg_num"] for pool in osd_map["pools"])
    pgs = admin.command("pg ls")["pg_stats"]
    pools = {str(pool["pool"]) for pool in osd_map["pools"]}
    if any(pg["pgid"].partition(".")[0] not in pools for pg in pgs):
        return "the manager does not know yet about deleted pools"
    if len(pgs) != n_pgs:
        return f"{len(pgs)} of {n_pgs} PGs are known to the manager"
    since = {osd: now[osd] for osd in before if osd in now}
    return _unready_pgs(pgs, since) or _unready_digest(admin.command("status"), n_pgs)


def _unready_digest(status: Mapping[str, Any], n_pgs: int) -> str:
    """Return what the monitors still report: they receive the PG states from the manager with a delay."""
    if checks := active_checks(status):
        return ", ".join(f"{name} ({message})" for name, message in checks.items())
    known = {state["state_name"]: int(state["count"]) for state in status["pgmap"].get("pgs_by_state", ())}
    clean = known.get("active+clean", 0)
    is_right = clean == n_pgs == sum(known.values())
    return "" if is_right else f"the monitors know {clean} of {n_pgs} PGs as active+clean"


def wait_whole(
    admin: CephAdmin,
    osds: Collection[int],
    *,
    before: Mapping[int, int] | None = None,
    alive: Callable[[], None] = lambda: None,
) -> None:
    """Wait until all OSDs are up, every PG is active+clean and the health is HEALTH_OK.

    Args:
        osds: all OSDs of the cluster.
        before: last epochs at which restarted OSDs came up; they must have come up again since.
        alive: called between polls; raises if a daemon died.

    Raises:
        ClusterError: it takes too long; states the remaining problems.
    """

    def look() -> str:
        alive()
        try:
            return _unready(admin, osds, before or {})
        except ClusterError as error:  # the manager is not up yet
            return error.what

    if why := wait_until_clear(look, seconds=_WHOLE_SECONDS, poll_seconds=_POLL_SECONDS):
        raise ClusterError(f"not active+clean within {_WHOLE_SECONDS:g} s: {why}", where="cluster")


class LabJournal:
    """The journal of one lab, as this process last wrote or read it. Changes are on disk before they are applied.

    Args:
        folder: of the lab.
        record: content of the journal.
    """

    def __init__(self, folder: Path, record: Record) -> None:
        self._folder = folder
        self.record = record

    def change(self, **fields: Any) -> None:
        """Write new values of fields of ``Record``."""
        self.record = replace(self.record, **fields)
        self.record.write(self._folder)

    def read_again(self) -> Record:
        """Read again what another process may have written; return the known record if the journal is deleted."""
        self.record = Record.read(self._folder) or self.record
        return self.record


class LabParts:
    """The parts of a lab. Like ``Lab``, it holds no process and no connection.

    Args:
        folder: of the lab.
        record: current content of its journal.
    """

    def __init__(self, folder: Path, record: Record) -> None:
        self.name = record.name
        self.spec = record.spec
        self.folder = folder
        self.conf = folder / "ceph.conf"
        self.journal = LabJournal(folder, record)
        self.programs = CephPrograms(folder, root_of(record.spec.release))
        self.daemons = Daemons(folder, self.conf, self.programs)
        self.disks = OsdDisks(record.name, folder, record.spec)
        self.client_network = ClientNetwork(folder, record.mon_port) if record.spec.client_network else None
        self.backends = LabBackends(record.name, folder, record.spec, self.disks)

    @property
    def record(self) -> Record:
        return self.journal.record

    def osd_ids(self) -> tuple[int, ...]:
        return tuple(range(len(self.spec.osds)))

    def daemon_names(self) -> tuple[str, ...]:
        """Monitor, manager and OSDs, in this order."""
        return (MON, MGR, *map(osd_name, self.osd_ids()))

    def connection(self) -> AbstractContextManager[RadosAdmin]:
        """Connect to the lab's Ceph as its administrator; closed at the end of the block."""
        return closing(RadosAdmin(self.conf))

    # The disks and their limits.

    def attach_disks(self, throttle: Throttle) -> None:
        """Attach the disks of the OSDs, including side disks of existing OSDs."""
        known = {*self.record.former, *self.record.devices.values()}
        devices = self.disks.attach(throttle)
        attached = {osd: str(device) for osd, device in devices.items()}
        self.journal.change(devices=attached, former=tuple(sorted(known.difference(attached.values()))))
        for osd in devices:
            if self.record.ready and osd not in self.record.unmade:
                self.disks.reconnect(osd, self.record.store(osd), throttle)

    def place(self, throttle: Throttle) -> None:
        """Move the running OSDs and servers of back ends into the control group of the limits."""
        names = (*map(osd_name, self.osd_ids()), *self.backends.daemon_names())
        throttle.place(pid for name in names if (pid := self.daemons.pid(name)) is not None)

    def slow_down(self, throttle: Throttle) -> None:
        """Set all limits."""
        self.disks.slow_down(throttle)
        self.place(throttle)

    def full_speed(self) -> AbstractContextManager[None]:
        """Lift the limits of the disks within the block.

        Raises:
            HostError: another process has lifted them.
        """
        return self.disks.full_speed(find_throttle(self.folder))

    @contextmanager
    def full_speed_if_free(self) -> Iterator[None]:
        """As ``full_speed``, but do nothing if a process, perhaps this one, has lifted the limits already."""
        with ExitStack() as stack:
            with suppress(HostError):
                stack.enter_context(self.full_speed())
            yield

    # The cluster as a whole.

    def require_alive(self) -> None:
        """Check that all daemons run.

        Raises:
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
        """Wait until all OSDs are up and all PGs active+clean.

        Args:
            admin: of the lab.
            before: last epochs at which restarted OSDs came up.

        Raises:
            ClusterError: a daemon died, or it takes too long.
        """
        wait_whole(admin, self.osd_ids(), before=before, alive=self.require_alive)
