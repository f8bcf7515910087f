"""pgbench on PostgreSQL on ext4 on a client's block device: a real workload that verifies predictions."""

import re
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cephfit.core.cleanup import cleaned_up_by
from cephfit.core.errors import ClusterError, InputError
from cephfit.core.protocols import Client, Workload
from cephfit.core.units import MIB, format_nbytes
from cephfit.lab.workloads.postgres import PostgresServer, server_version

_NBYTES_PER_SCALE = 16 * MIB
"""Tables and indexes of one unit of scale: 100,000 accounts are 15.0 MiB in PostgreSQL 15."""

_SEGMENT_NBYTES = 16 * MIB
"""Segment size of PostgreSQL's write-ahead log."""

_OVERHEAD_NBYTES = 128 * MIB
"""Space for an empty database cluster, file system metadata, and a margin."""


@dataclass(frozen=True, slots=True)
class PgBenchSpec:
    """How pgbench runs.

    Attributes:
        scale: database size in units of 100,000 accounts, about 15 MiB each.
        clients: connections.
        warmup_seconds: run before the measured run, from the same cold start, as fio's ramp time.
        memory_limit_nbytes: of the server including its page cache; less than the database, so that the disk is
            measured instead of the memory.
        shared_buffers_nbytes: PostgreSQL's cache, within the limit.
        max_wal_nbytes: limit of the write-ahead log.
        script: pgbench's built-in script: ``tpcb-like``, ``simple-update`` or ``select-only``.
        settings: further settings of PostgreSQL.
    """

    scale: int = 30
    clients: int = 8
    warmup_seconds: float = 4.0
    memory_limit_nbytes: int = 256 * MIB
    shared_buffers_nbytes: int = 16 * MIB
    max_wal_nbytes: int = 768 * MIB
    script: str = "tpcb-like"
    settings: Mapping[str, str] = field(
        default_factory=lambda: {
            # No background work may run in one run and not in another.
            "autovacuum": "off",
            "bgwriter_lru_maxpages": "0",
            "checkpoint_timeout": "1h",
            "jit": "off",
            "huge_pages": "off",
        }
    )

    @property
    def database_nbytes(self) -> int:
        """Required space on the volume."""
        return self.scale * _NBYTES_PER_SCALE + self.max_wal_nbytes + _OVERHEAD_NBYTES

    def require_room(self, client: Client) -> None:
        """Check the size of the client's volume.

        Raises:
            InputError: the database would fill it.
        """
        if client.nbytes < self.database_nbytes:
            raise InputError(
                f"pgbench at scale {self.scale} needs {self.database_nbytes / MIB:.0f} MiB, the volume has "
                f"{format_nbytes(client.nbytes)}",
                where=f"client {client.name}",
                remedy="make the volumes larger or the scale smaller",
            )

    def description(self) -> dict[str, Any]:
        """See ``protocols.Workload``. Version 1; stored descriptions have these names, also in older stores."""
        return {
            "version": 1,
            "scale": self.scale,
            "clients": self.clients,
            "warmup_seconds": self.warmup_seconds,
            "memory_limit_nbytes": self.memory_limit_nbytes,
            "shared_buffers_nbytes": self.shared_buffers_nbytes,
            "max_wal_nbytes": self.max_wal_nbytes,
            "script": self.script,
            "settings": dict(self.settings),
        }

    def server_settings(self) -> dict[str, str]:
        return {
            "shared_buffers": f"{self.shared_buffers_nbytes // MIB}MB",
            "max_wal_size": f"{self.max_wal_nbytes // MIB}MB",
            # Segments of the log are kept and reused, because creating one costs more.
            "min_wal_size": f"{self.max_wal_nbytes // MIB}MB",
            "max_connections": str(self.clients + 10),
            **self.settings,
        }


def parse_tps(output: str) -> float:
    """Transactions per second without the time to connect, from pgbench's output (before and after version 14).

    Raises:
        ClusterError: there is no such line.
    """
    found = re.search(
        r"^tps = ([0-9.]+) \((?:without initial connection time|excluding connections establishing)\)",
        output,
        re.M,
    )
    if found is None:
        raise ClusterError(f"no tps in the output of pgbench: {output.strip()[-300:]!r}", where="pgbench")
    return float(found[1])


class PgBench(Workload):
    """pgbench on this machine.

    Every run has the same steps: start the server (with empty buffers), checkpoint so that all data is on disk,
        drop
    the database from the page cache, warm up, then measure. Between runs no process runs and nothing is mounted.

    Args:
        spec: how it runs.
        unmeasured: context manager around all steps that are not measured (loading, starting, stopping): the lab
            lifts the limits of its disks there, which would only cost time.
        observe: context manager around the measured run, called with the client's device, for example to trace it.
    """

    name = "pgbench"
    metric = "tps"

    def __init__(
        self,
        spec: PgBenchSpec | None = None,
        *,
        unmeasured: Callable[[], AbstractContextManager[object]] = nullcontext,
        observe: Callable[[Path], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self.spec = spec or PgBenchSpec()
        self._unmeasured = unmeasured
        self._observe = observe

    def description(self) -> Mapping[str, Any]:
        return self.spec.description()

    def prepare(self, client: Client) -> None:
        spec, server = self.spec, PostgresServer(_device(client))
        spec.require_room(client)
        server.remove()
        with self._unmeasured():
            server.format()
            with cleaned_up_by(server.remove):
                server.mount(spec.memory_limit_nbytes)
                server.initialise()
                # Loading is not measured, so commits need not wait for the disk.
                server.start(
                    {**spec.server_settings(), "fsync": "off", "wal_level": "minimal", "max_wal_senders": "0"}
                )
                at = ("--host", str(server.socket), "--username", "postgres")
                server.call("pgbench", "--initialize", "--quiet", "--scale", str(spec.scale), *at, seconds=1800)
                server.query("CHECKPOINT", seconds=1800)
                server.stop()
                server.start(spec.server_settings())
                self._settle(server)
                server.query("CHECKPOINT", seconds=1800)
                server.stop()
                server.unmount()

    def run(self, client: Client, seconds: float, *, seed: int) -> tuple[float, Mapping[str, Any]]:
        spec, server = self.spec, PostgresServer(_device(client))
        server.remove()
        with cleaned_up_by(server.remove):
            with self._unmeasured():
                server.mount(spec.memory_limit_nbytes)
                server.start(spec.server_settings())
                server.query("CHECKPOINT")
                server.drop_page_cache()
            warmup = self._bench(server, spec.warmup_seconds, seed) if spec.warmup_seconds > 0 else ""
            with self._observe(_device(client)):
                started_ns = time.time_ns()
                output = self._bench(server, seconds, seed + 1)
                finished_ns = time.time_ns()
            database_nbytes = int(server.query("SELECT pg_database_size('postgres')"))
            with self._unmeasured():
                server.stop()
                server.unmount()
        evidence = {
            "spec": {**asdict(spec), "settings": spec.server_settings()},
            "server_version": server_version(),
            "database_nbytes": database_nbytes,
            "seed": seed,
            "started_ns": started_ns,
            "finished_ns": finished_ns,
            "warmup_output": warmup,
            "output": output,
        }
        return parse_tps(output), evidence

    def _settle(self, server: PostgresServer) -> None:
        """Write the log until all its segments exist, so that the first measured run equals later ones.

        Each step ends a segment with a transaction in it; a segment has 16 MiB.
        """
        for _ in range(self.spec.max_wal_nbytes // _SEGMENT_NBYTES // 2):
            server.query("CREATE TABLE settling (); DROP TABLE settling; SELECT pg_switch_wal()")

    def cleanup(self, client: Client) -> None:
        PostgresServer(_device(client)).remove()

    def _bench(self, server: PostgresServer, seconds: float, seed: int) -> str:
        """Run pgbench once and return its output.

        By default pgbench first truncates the history and vacuums the two small tables, so that all runs start
        with tables of the same size.
        """
        whole_seconds = max(1, round(seconds))
        threads = min(self.spec.clients, 2)
        return server.call(
            "pgbench",
            *("--host", str(server.socket), "--username", "postgres", "--builtin", self.spec.script),
            *("--time", str(whole_seconds), "--client", str(self.spec.clients), "--jobs", str(threads)),
            *("--random-seed", str(seed), "--protocol", "prepared", "--report-per-command"),
            seconds=whole_seconds + 300,
        )


def _device(client: Client) -> Path:
    if client.device is None:
        raise InputError(
            "pgbench needs a block device to put a file system on",
            where=f"client {client.name}",
            remedy="choose a target whose clients have devices, such as the lab",
        )
    return client.device
