"""The tables of the store, and the conversion of values to rows and back.

The SQL works in SQLite and PostgreSQL. Every table's name begins with ``cephfit_``, so that a database may hold
other tables too. Times are wall clock in ns since the epoch. Statistics are computed from samples on request.
Stored conclusions (``documents``) record what a command reported at that time; a report computes them again.
"""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    cast,
    func,
)

from cephfit.core.protocols import Applied
from cephfit.core.values.cells import FileCell
from cephfit.core.values.sample import Run, Sample, SampleKey, State, WorkloadSample

SCHEMA_VERSION = 3
"""Version that this program writes. It grows with every change of a table or index. Each change has a step in
``migrations/versions/`` that upgrades older stores."""
FIRST_VERSION = 1
"""Oldest version that can be upgraded."""
SAME_TABLES_SINCE = 2
"""Oldest version with today's tables. Stores from it on lack only indexes, and can be used without an upgrade."""

TABLES = MetaData()

DESCRIPTION = "description"
"""Key of a table's ``info`` with one sentence for docs/store.md. A column has its text in ``doc``."""

schema_version = Table(
    "cephfit_schema_version",
    TABLES,
    Column("id", Integer, primary_key=True, autoincrement=False, doc="always 1"),
    Column("version", Integer, nullable=False, doc="of the tables"),
    info={DESCRIPTION: "The version of the tables, in one row."},
)

runs = Table(
    "cephfit_runs",
    TABLES,
    Column("id", Integer, primary_key=True, doc="order of insertion, which the clock does not guarantee"),
    Column(
        "run_id",
        String(200),
        nullable=False,
        unique=True,
        doc="name of the run, such as `quick-20261121T101500-3f9a`",
    ),
    Column("sweep_name", Text, nullable=False, doc="name in the sweep file"),
    Column("sweep_text", Text, nullable=False, doc="the sweep file, unchanged"),
    Column("sweep_digest", String(64), nullable=False, index=True, doc="SHA-256 of the file's meaning, hex"),
    Column("target", Text, nullable=False, doc="such as `lab:default`"),
    Column("seed", BigInteger, nullable=False, doc="of the order of measuring"),
    Column("created_ns", BigInteger, nullable=False, doc="wall clock, ns since the epoch"),
    Column("facts", JSON, nullable=False, doc="versions, machine, layout of the cluster, clocks"),
    Column("finished", Boolean, nullable=False, doc="whether every planned sample is in a terminal state"),
    info={DESCRIPTION: "One measurement of a sweep on one target."},
)


def _run_id() -> Column[str]:
    return Column(
        "run_id", String(200), ForeignKey("cephfit_runs.run_id"), nullable=False, index=True, doc="of the run"
    )


applied = Table(
    "cephfit_applied",
    TABLES,
    Column("id", Integer, primary_key=True, doc="row"),
    _run_id(),
    Column("configuration", String(200), nullable=False, doc="name"),
    Column("repeat", Integer, nullable=False, doc="round, from 0"),
    Column("at_ns", BigInteger, nullable=False, doc="wall clock, ns since the epoch"),
    Column("ok", Boolean, nullable=False, doc="whether every setting took effect"),
    Column("mismatches", JSON, nullable=False, doc="list of texts: settings that did not"),
    Column("read_back", JSON, nullable=False, doc="values by daemon and option"),
    Column("restarted", JSON, nullable=False, doc="list of the daemons that were restarted"),
    Column("seconds", Float, nullable=False, doc="how long it took"),
    info={DESCRIPTION: "Each time that a configuration was applied, and what was read back."},
)

fio_runs = Table(
    "cephfit_fio_runs",
    TABLES,
    Column("id", Integer, primary_key=True, doc="row"),
    _run_id(),
    Column("json_zlib", LargeBinary, nullable=False, doc="the JSON text, compressed with zlib"),
    info={DESCRIPTION: "Complete outputs of fio or of another engine. One output serves all clients of a run."},
)

samples = Table(
    "cephfit_samples",
    TABLES,
    Column("id", Integer, primary_key=True, doc="row, in the order of measuring"),
    _run_id(),
    Column(
        "fio_run",
        Integer,
        ForeignKey("cephfit_fio_runs.id"),
        doc="the output in `cephfit_fio_runs`; null without one",
    ),
    Column("configuration", String(200), nullable=False, doc="name"),
    Column("size", String(16), nullable=False, doc="size bin or block size, such as `4K`"),
    Column("pattern", String(16), nullable=False, doc="`read`, `write`, `randread` or `randwrite`"),
    Column("client", String(200), nullable=False, doc="name, such as `c0`"),
    Column("repeat", Integer, nullable=False, doc="round, from 0"),
    Column("attempt", Integer, nullable=False, doc="which try of this repeat, from 0"),
    Column(
        "load",
        String(200),
        nullable=False,
        server_default="",
        doc="name of the load; empty for the measurement's own",
    ),  # since version 2
    Column("state", String(16), nullable=False, doc="`ok`, `failed`, `invalid` or `skipped`"),
    Column("reason", Text, nullable=False, doc="why it is not `ok`; empty if it is"),
    Column("iops", Float, doc="I/Os per second; the metrics are null together"),
    Column("nbytes_per_s", Float, doc="bytes per second"),
    Column("n_ios", BigInteger, doc="completed I/Os"),
    Column("runtime_ns", BigInteger, doc="measured time, ns"),
    Column("latency_mean_ns", Float, doc="mean completion latency, ns"),
    Column("latency_percentiles_ns", JSON(none_as_null=True), doc="percentile to latency in ns"),
    Column("started_ns", BigInteger, nullable=False, doc="wall clock, ns since the epoch"),
    Column("finished_ns", BigInteger, nullable=False, doc="wall clock, ns since the epoch"),
    Column("evidence", JSON, nullable=False, doc="load, health, counters, checks"),
    UniqueConstraint(
        "run_id",
        "configuration",
        "size",
        "pattern",
        "client",
        "repeat",
        "attempt",
        "load",
        name="cephfit_each_sample_once",
    ),
    Index("ix_cephfit_samples_progress", "run_id", "configuration", "state", "attempt"),  # since version 3
    info={DESCRIPTION: "One run of one cell under one load on one client, written once, in a terminal state."},
)

workload_samples = Table(
    "cephfit_workload_samples",
    TABLES,
    Column("id", Integer, primary_key=True, doc="row"),
    _run_id(),
    Column("workload", String(200), nullable=False, doc="name"),
    Column("configuration", String(200), nullable=False, doc="name"),
    Column("repeat", Integer, nullable=False, doc="round, from 0"),
    Column("attempt", Integer, nullable=False, doc="which try of this repeat, from 0"),
    Column("state", String(16), nullable=False, doc="as of samples"),
    Column("metric", String(200), nullable=False, doc="what the value is, such as `tps`"),
    Column("value", Float, doc="more is better; null without a result"),
    Column("reason", Text, nullable=False, doc="why it is not `ok`; empty if it is"),
    Column("started_ns", BigInteger, nullable=False, doc="wall clock, ns since the epoch"),
    Column("finished_ns", BigInteger, nullable=False, doc="wall clock, ns since the epoch"),
    Column("evidence", JSON, nullable=False, doc="output of the program, clients, checks"),
    UniqueConstraint(
        "run_id", "workload", "configuration", "repeat", "attempt", name="cephfit_each_workload_sample_once"
    ),
    info={DESCRIPTION: "One run of a real workload on one configuration, by `verify`, `evaluate` or `probe`."},
)

documents = Table(
    "cephfit_documents",
    TABLES,
    Column("id", Integer, primary_key=True, doc="row"),
    _run_id(),
    Column("kind", String(64), nullable=False, doc="of the document, such as `predictions`"),
    Column("at_ns", BigInteger, nullable=False, doc="wall clock, ns since the epoch"),
    Column("document", JSON, nullable=False, doc="the content"),
    info={DESCRIPTION: "What commands concluded about a run, such as predictions, at the time."},
)

Row = Mapping[str, Any]


def run_row(run: Run) -> dict[str, Any]:
    """Return the columns of a run."""
    return {
        "run_id": run.run_id,
        "sweep_name": run.sweep_name,
        "sweep_text": run.sweep_text,
        "sweep_digest": run.sweep_digest,
        "target": run.target,
        "seed": run.seed,
        "created_ns": run.created_ns,
        "facts": dict(run.facts),
        "finished": run.finished,
    }


def run_of(row: Row) -> Run:
    """Return the reverse of ``run_row``."""
    return Run(**{name: row[name] for name in Run.__dataclass_fields__})


def applied_row(applied: Applied) -> dict[str, Any]:
    """Return the columns of an applied configuration."""
    return {
        "configuration": applied.configuration,
        "ok": applied.ok,
        "mismatches": list(applied.mismatches),
        "read_back": dict(applied.read_back),
        "restarted": list(applied.restarted),
        "seconds": applied.seconds,
    }


def applied_of(row: Row) -> Applied:
    """Return the reverse of ``applied_row``."""
    return Applied(
        row["configuration"],
        row["ok"],
        tuple(row["mismatches"]),
        row["read_back"],
        tuple(row["restarted"]),
        row["seconds"],
    )


def key_row(key: SampleKey) -> dict[str, Any]:
    """Return the columns that identify a sample in its run."""
    cell = key.cell
    return {
        "configuration": key.configuration,
        "size": cell.size.name,
        "pattern": cell.operation.value if isinstance(cell, FileCell) else cell.pattern.value,
        "client": key.client,
        "repeat": key.repeat,
        "attempt": key.attempt,
        "load": key.load,
    }


def sample_row(sample: Sample) -> dict[str, Any]:
    """Return the columns of a sample; those of its metrics are None where it has none."""
    metrics = sample.metrics
    return {
        **key_row(sample.key),
        "state": sample.state.value,
        "reason": sample.reason,
        "iops": metrics and metrics.iops,
        "nbytes_per_s": metrics and metrics.nbytes_per_s,
        "n_ios": metrics and metrics.n_ios,
        "runtime_ns": metrics and metrics.runtime_ns,
        "latency_mean_ns": metrics and metrics.latency_mean_ns,
        "latency_percentiles_ns": metrics and {repr(p): ns for p, ns in metrics.latency_percentiles_ns.items()},
        "started_ns": sample.started_ns,
        "finished_ns": sample.finished_ns,
        "evidence": sample.evidence,
    }


SAMPLE_COLUMNS = (
    *(
        samples.c[name]
        for name in ("configuration", "size", "pattern", "load", "client", "repeat", "attempt", "state")
    ),
    *(samples.c[name] for name in ("iops", "nbytes_per_s")),
    *(func.coalesce(samples.c[name], 0) for name in ("n_ios", "runtime_ns")),
    samples.c.latency_mean_ns,
    cast(samples.c.latency_percentiles_ns, Text),
    *(samples.c[name] for name in ("started_ns", "finished_ns", "reason")),
    cast(samples.c.evidence, Text),
)
"""The columns of ``sample_row``, in the order of ``SampleColumns``. Documents are texts that are parsed on use."""


def workload_row(sample: WorkloadSample) -> dict[str, Any]:
    """Return the columns of a run of a real workload."""
    row = {name: getattr(sample, name) for name in WorkloadSample.__dataclass_fields__}
    return {**row, "state": sample.state.value}


def workload_of(row: Row) -> WorkloadSample:
    """Return the reverse of ``workload_row``."""
    values = {name: row[name] for name in WorkloadSample.__dataclass_fields__}
    return WorkloadSample(**{**values, "state": State(row["state"])})
