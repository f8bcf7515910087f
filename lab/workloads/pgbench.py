"""pgbench on PostgreSQL, on a client's block device or inside a guest: a real workload that verifies predictions.

A guest is rebooted for every run, so that its memory holds no data of earlier runs. It runs the script
``heat/pgbench.sh``, which ``heat/verification.yaml`` also runs.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cephfit.cloud.guests import guest_tracing
from cephfit.cloud.guests.guest_tracing import GuestTrace
from cephfit.core.cleanup import cleaned_up_by
from cephfit.core.errors import ClusterError, InputError, LackingError
from cephfit.core.protocols import Client, CountsOperations, Observe, RunsTogether, WarmsCaches, Workload
from cephfit.core.units import MIB, format_nbytes
from cephfit.lab.workloads.postgres import PostgresServer, server_version
from cephfit.targets.abilities import RunsGuestJobs

if TYPE_CHECKING:
    from cephfit.cloud.guests.guest_jobs import Answers


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
        shared_buffers_nbytes: the server's cache, within the limit; by default PostgreSQL's own. Pages that
            a run of some thousand transactions changes stay in it.
        max_wal_nbytes: limit of the write-ahead log.
        script: pgbench's built-in script: ``tpcb-like``, ``simple-update`` or ``select-only``.
        settings: further settings of PostgreSQL.
    """

    scale: int = 30
    clients: int = 8
    warmup_seconds: float = 4.0
    memory_limit_nbytes: int = 256 * MIB
    shared_buffers_nbytes: int = 128 * MIB
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
            # Changed pages that leave the cache are written now. The kernel would write them when they are 30 s
            # old or many: that halved the rate of those runs that happened to see it.
            "backend_flush_after": "64kB",
        }
    )

    @property
    def database_nbytes(self) -> int:
        """Required space on the volume."""
        return self.scale * _NBYTES_PER_SCALE + self.max_wal_nbytes + _OVERHEAD_NBYTES

    def require_capacity(self, client: Client) -> None:
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
        """See ``protocols.Workload``; stored descriptions have these names, also in older stores.

        Version 2 keeps the pages that it changes; in version 1 the kernel wrote them in some runs.
        """
        return {
            "version": 2,
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


@dataclass(frozen=True, slots=True)
class _Length:
    """How long one call of pgbench goes on.

    Attributes:
        options: of pgbench.
        most_seconds: after which it is ended.
        n_transactions: of all clients; 0: as many as the time allows.
    """

    options: tuple[str, str]
    most_seconds: float
    n_transactions: int = 0

    @classmethod
    def of_time(cls, seconds: float) -> _Length:
        """Return a length in whole seconds."""
        whole_seconds = max(1, round(seconds))
        return cls(("--time", str(whole_seconds)), whole_seconds + 300)

    @classmethod
    def of_transactions(cls, n: float, clients: int, seconds: float) -> _Length:
        """Return a length in transactions, as many for each client, that take so many seconds on the default."""
        each = max(1, round(n / clients))
        return cls(("--transactions", str(each)), _SLOWEST_RUN * seconds + 300, each * clients)


_SLOWEST_RUN = 100
"""Times as long as on the default that as many transactions may take."""


class PgBench(Workload, CountsOperations):
    """pgbench on this machine.

    Every run has the same steps: start the server (with empty buffers), checkpoint so that all data is on disk,
    drop the database from the page cache, warm up, then measure. Between runs no process runs and nothing is
    mounted.

    Args:
        spec: how it runs.
        unmeasured: context manager around all steps that are not measured (loading, starting, stopping): the lab
            lifts the limits of its disks there, which would only cost time.
        observe: records each measured run.
    """

    name = "pgbench"
    metric = "tps"

    def __init__(
        self,
        spec: PgBenchSpec | None = None,
        *,
        unmeasured: Callable[[], AbstractContextManager[object]] = nullcontext,
        observe: Observe | None = None,
    ) -> None:
        self.spec = spec or PgBenchSpec()
        self._unmeasured = unmeasured
        self._observe = observe

    def description(self) -> Mapping[str, Any]:
        return self.spec.description()

    def prepare(self, client: Client) -> None:
        spec, server = self.spec, PostgresServer(_device(client))
        spec.require_capacity(client)
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
        return self._run(client, _Length.of_time(self.spec.warmup_seconds), _Length.of_time(seconds), seed=seed)

    def run_operations(
        self, client: Client, n_operations: int, seconds: float, *, seed: int
    ) -> tuple[float, Mapping[str, Any]]:
        """See ``CountsOperations``; the run before, which warms up, has its share of the transactions."""
        warmup, measured = (
            _Length.of_transactions(n_operations * part / seconds, self.spec.clients, part)
            for part in (self.spec.warmup_seconds, seconds)
        )
        value, evidence = self._run(client, warmup, measured, seed=seed)
        return value, {**evidence, "operations": measured.n_transactions}

    def _run(
        self, client: Client, warmup: _Length, measured: _Length, *, seed: int
    ) -> tuple[float, dict[str, Any]]:
        spec, server = self.spec, PostgresServer(_device(client))
        server.remove()
        with cleaned_up_by(server.remove):
            with self._unmeasured():
                server.mount(spec.memory_limit_nbytes)
                server.start(spec.server_settings())
                server.query("CHECKPOINT")
                server.drop_page_cache()
            warmup_output = self._bench(server, warmup, seed) if spec.warmup_seconds > 0 else ""
            with self._observe(_device(client)) if self._observe else nullcontext():
                started_ns = time.time_ns()
                output = self._bench(server, measured, seed + 1)
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
            "warmup_output": warmup_output,
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

    def _bench(self, server: PostgresServer, length: _Length, seed: int) -> str:
        """Run pgbench once and return its output.

        By default pgbench first truncates the history and vacuums the two small tables, so that all runs start
        with tables of the same size.
        """
        threads = min(self.spec.clients, 2)
        return server.call(
            "pgbench",
            *("--host", str(server.socket), "--username", "postgres", "--builtin", self.spec.script),
            *(*length.options, "--client", str(self.spec.clients), "--jobs", str(threads)),
            *("--random-seed", str(seed), "--protocol", "prepared", "--report-per-command"),
            seconds=length.most_seconds,
        )


def _device(client: Client) -> Path:
    if client.device is None:
        raise InputError(
            "pgbench needs a block device to put a file system on",
            where=f"client {client.name}",
            remedy="choose a target whose clients have devices, such as the lab",
        )
    return client.device


_LEAST_MEMORY_NBYTES = 64 * MIB
_LEAST_BUFFERS_NBYTES = 16 * MIB
_LEAST_WAL_NBYTES = 128 * MIB
_WAL_SEGMENT_NBYTES = 32 * MIB
_SLOWEST_LOADING_NBYTES_PER_S = MIB // 4
_PREPARING_SECONDS = 600.0
_WITHOUT_POSTGRESQL = 3
"""Exit code of the script if PostgreSQL is missing."""


def spec_of(scale: int | None) -> PgBenchSpec:
    """Return the specification for guests: as on a cluster, with memory and log scaled to a smaller database.

    The database is larger than the memory at every scale, so that the volume is measured.
    """
    spec = PgBenchSpec(warmup_seconds=10)
    if scale is None or scale >= spec.scale:
        return spec if scale is None else replace(spec, scale=scale)
    part = scale / spec.scale
    wal_nbytes = round(spec.max_wal_nbytes * part / _WAL_SEGMENT_NBYTES) * _WAL_SEGMENT_NBYTES
    return replace(
        spec,
        scale=scale,
        clients=4,
        memory_limit_nbytes=max(_LEAST_MEMORY_NBYTES, round(spec.memory_limit_nbytes * part)),
        shared_buffers_nbytes=max(_LEAST_BUFFERS_NBYTES, round(spec.shared_buffers_nbytes * part / MIB) * MIB),
        max_wal_nbytes=max(_LEAST_WAL_NBYTES, wal_nbytes),
    )


class GuestPgBench(Workload, WarmsCaches, RunsTogether):
    """pgbench inside guests.

    Args:
        guests: where scripts are run.
        spec: how pgbench runs.
        collect: receives a trace of the volume's accesses in the guest for each run; None: no traces are recorded.
    """

    name = "pgbench"
    metric = "tps"

    def __init__(
        self, guests: RunsGuestJobs, spec: PgBenchSpec, *, collect: Callable[[GuestTrace], None] | None = None
    ) -> None:
        self.spec = spec
        self._collect = collect
        self._results_by = ""
        self._guests = guests
        self._to_be_warmed: set[str] = set()

    def description(self) -> Mapping[str, Any]:
        return self.spec.description()

    def warm(self, client: Client) -> None:
        """See ``WarmsCaches``."""
        self._to_be_warmed.add(client.name)

    def prepare(self, client: Client) -> None:
        self.spec.require_capacity(client)
        seconds = _PREPARING_SECONDS + self.spec.database_nbytes / _SLOWEST_LOADING_NBYTES_PER_S
        script = script_of(self.spec, client, "prepare", run_seconds=0, seed=0)
        output = self._answers([client], {client.name: script}, seconds=seconds).results[client.name].output
        if "CEPHFIT-PREPARED" not in output:
            raise ClusterError(f"the database was not created: {_end_of(output)}", where=f"client {client.name}")

    def run(self, client: Client, seconds: float, *, seed: int) -> tuple[float, Mapping[str, Any]]:
        (result,) = self.run_together([client], seconds, seeds=[seed])
        return result

    def run_together(
        self, clients: Sequence[Client], seconds: float, *, seeds: Sequence[int]
    ) -> list[tuple[float, Mapping[str, Any]]]:
        """See ``protocols.RunsTogether``: one job per guest, which all begin at the same moment."""
        whole_seconds = max(1, round(seconds))
        steps = {c.name: "warm run" if c.name in self._to_be_warmed else "run" for c in clients}
        self._to_be_warmed -= steps.keys()
        scripts = {
            client.name: script_of(self.spec, client, steps[client.name], run_seconds=whole_seconds, seed=seed)
            for client, seed in zip(clients, seeds, strict=True)
        }
        answers = self._answers(clients, scripts, seconds=whole_seconds + _PREPARING_SECONDS)
        return [self._result(client, answers, seed=seed) for client, seed in zip(clients, seeds, strict=True)]

    def _result(self, client: Client, answers: Answers, *, seed: int) -> tuple[float, Mapping[str, Any]]:
        result, clock = answers.results[client.name], answers.offsets[client.name]
        output = result.output
        if self._collect is not None:
            output, trace = guest_tracing.taken_apart(output)
            self._collect(trace)
        return parse_tps(measured_part(output)), {
            "results_by": result.by,
            "clock": clock.to_json() if clock is not None else None,
            "spec": {**asdict(self.spec), "settings": self.spec.server_settings()},
            "server_version": _marked(output, "SERVER"),
            "database_nbytes": int(_marked(output, "DATABASE-NBYTES")),
            "seed": seed,
            "started_ns": round(float(_marked(output, "STARTED")) * 1e9),
            "finished_ns": round(float(_marked(output, "FINISHED")) * 1e9),
            "output": output,
        }

    def cleanup(self, client: Client) -> None:
        """Do nothing: the script unmounts the file system, and a reboot removes the rest after a failure."""

    def _answers(self, clients: Sequence[Client], scripts: Mapping[str, str], *, seconds: float) -> Answers:
        """Run a script in each guest, all at once, and return the answers.

        Raises:
            LackingError: a guest has no PostgreSQL.
            ClusterError: a script failed.
        """
        before = ""
        if self._collect is not None:
            before = f"CEPHFIT_TRACED=yes\n{guest_tracing.functions(self._results_by)}\n"
        texts = {name: before + script for name, script in scripts.items()}
        answers = self._guests.run_guest_jobs(clients, texts, seconds=seconds)
        for client in clients:
            result = answers.results[client.name]
            self._results_by = result.by
            if result.code == _WITHOUT_POSTGRESQL:
                raise LackingError(
                    "the guests' image has no PostgreSQL",
                    where=f"client {client.name}",
                    remedy="build an image with it: cephfit image build --with postgresql",
                )
            if result.code != 0:
                raise ClusterError(
                    f"pgbench ended with {result.code}: {result.errors or _end_of(result.output)}",
                    where=f"client {client.name}",
                )
        return answers


def script_of(spec: PgBenchSpec, client: Client, steps: str, *, run_seconds: int, seed: int) -> str:
    """Return the shell script of one step: variables for ``heat/pgbench.sh``, and that script."""
    settings = {
        key: value
        for key, value in spec.server_settings().items()
        if key not in ("max_wal_size", "min_wal_size", "max_connections")
    }
    wanted = {
        "DEVICE": _device_in_guest(client),
        "STEPS": steps,
        "SCALE": spec.scale,
        "CLIENTS": spec.clients,
        "SCRIPT": spec.script,
        "SEED": seed,
        "WARMUP": max(0, round(spec.warmup_seconds)),
        "SECONDS": run_seconds,
        "MEMORY": spec.memory_limit_nbytes,
        "WAL": spec.max_wal_nbytes // MIB,
        "SETTINGS": " ".join(f"{key}={value}" for key, value in settings.items()),
    }
    lines = [f"export CEPHFIT_{key}={shlex.quote(str(value))}" for key, value in wanted.items()]
    text = resources.files("cephfit.heat_templates").joinpath("pgbench.sh").read_text()
    return "\n".join([*lines, text])


def _device_in_guest(client: Client) -> str:
    if "filename" not in client.fio_options:
        raise InputError(
            "pgbench needs a block device to put a file system on",
            where=f"client {client.name}",
            remedy="choose a target whose clients have devices, such as guests with volumes",
        )
    return client.fio_options["filename"]


def measured_part(output: str) -> str:
    """Return pgbench's output of the measured run, without the warm-up.

    Raises:
        ClusterError: it was not run.
    """
    found = re.search(r"^CEPHFIT-STARTED .*?$(.*)^CEPHFIT-FINISHED ", output, re.M | re.S)
    if found is None:
        raise ClusterError(f"pgbench was not run to its end: {_end_of(output)}")
    return found[1]


def _marked(output: str, mark: str) -> str:
    found = re.search(rf"^CEPHFIT-{mark} (.*)$", output, re.M)
    if found is None:
        raise ClusterError(f"the guest did not report its {mark.lower()}: {_end_of(output)}")
    return found[1].strip()


def _end_of(output: str) -> str:
    return " / ".join(output.strip().splitlines()[-3:]) or "no output"
