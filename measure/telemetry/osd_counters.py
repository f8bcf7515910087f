"""Performance counters of an OSD (``perf dump``): the few that show how it spends its time."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cephfit.core.protocols import CephAdmin


@dataclass(frozen=True, slots=True)
class Timed:
    """Number of operations of a kind, and their total time in seconds."""

    n: int = 0
    seconds: float = 0.0

    def since(self, before: "Timed") -> "Timed":
        return Timed(self.n - before.n, self.seconds - before.seconds)

    def plus(self, other: "Timed") -> "Timed":
        return Timed(self.n + other.n, self.seconds + other.seconds)

    @property
    def mean_seconds(self) -> float:
        """Mean time of an operation; 0 if there was none."""
        return self.seconds / self.n if self.n else 0.0


@dataclass(frozen=True, slots=True)
class OsdCounters:
    """Counters of one OSD since its start.

    Attributes:
        reads: clients' reads, from arrival to reply.
        writes: clients' writes, from arrival to reply; includes the replicas, which the primary waits for.
        read_nbytes: bytes sent to clients.
        written_nbytes: bytes received from clients.
        replica_writes: writes for other OSDs.
        commits: transactions of the object store, until they are safe on the disk.
        disk_reads: the object store's waits for reads of the disk.
        throttled: waits for a full queue.
    """

    reads: Timed = Timed()
    writes: Timed = Timed()
    read_nbytes: int = 0
    written_nbytes: int = 0
    replica_writes: Timed = Timed()
    commits: Timed = Timed()
    disk_reads: Timed = Timed()
    throttled: Timed = Timed()

    def since(self, before: "OsdCounters") -> "OsdCounters":
        """Return the difference to an earlier reading; all of it where the OSD was restarted in between."""
        if self.reads.n < before.reads.n or self.commits.n < before.commits.n:
            return self
        return self._combined(before, -1)

    def plus(self, other: "OsdCounters") -> "OsdCounters":
        return self._combined(other, 1)

    def _combined(self, other: "OsdCounters", sign: int) -> "OsdCounters":
        def timed(a: Timed, b: Timed) -> Timed:
            return a.plus(b) if sign > 0 else a.since(b)

        return OsdCounters(
            reads=timed(self.reads, other.reads),
            writes=timed(self.writes, other.writes),
            read_nbytes=self.read_nbytes + sign * other.read_nbytes,
            written_nbytes=self.written_nbytes + sign * other.written_nbytes,
            replica_writes=timed(self.replica_writes, other.replica_writes),
            commits=timed(self.commits, other.commits),
            disk_reads=timed(self.disk_reads, other.disk_reads),
            throttled=timed(self.throttled, other.throttled),
        )


def counters_of_osd(admin: CephAdmin, osd: int) -> OsdCounters:
    """Read the counters of an OSD.

    Raises:
        ClusterError: the OSD does not answer.
    """
    return parse(admin.tell(f"osd.{osd}", "perf dump"))


def parse(dump: Mapping[str, Any]) -> OsdCounters:
    """Parse the output of ``perf dump``; counters that a release lacks are 0. Pure."""
    osd = dump.get("osd", {})
    store = dump.get("bluestore", {}) or dump.get("filestore", {})
    throttles = [value["wait"] for name, value in dump.items() if name.startswith("throttle-") and "wait" in value]
    return OsdCounters(
        reads=_timed(osd.get("op_r_latency")),
        writes=_timed(osd.get("op_w_latency")).plus(_timed(osd.get("op_rw_latency"))),
        read_nbytes=int(osd.get("op_out_bytes", 0)),
        written_nbytes=int(osd.get("op_in_bytes", 0)),
        replica_writes=_timed(osd.get("subop_w_latency")),
        # The counter's name in BlueStore since Nautilus, in BlueStore before it, and in FileStore.
        commits=_timed(store.get("commit_lat") or store.get("txc_commit_lat") or store.get("journal_latency")),
        disk_reads=_timed(store.get("read_wait_aio_lat")),
        throttled=_sum(map(_timed, throttles)).plus(_timed(store.get("throttle_lat"))),
    )


def _timed(counter: Mapping[str, Any] | None) -> Timed:
    return Timed(int(counter["avgcount"]), float(counter["sum"])) if counter else Timed()


def _sum(timed: Any) -> Timed:
    total = Timed()
    for one in timed:
        total = total.plus(one)
    return total
