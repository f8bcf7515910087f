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
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from cephfit.core.protocols import Applied
from cephfit.core.values.file_operations import FileCell, stored_cell
from cephfit.core.values.run import Run
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State, WorkloadSample

SCHEMA_VERSION = 2
"""Version that this program reads and writes. It grows with every change of a table. Each change has a step in
``database.py`` that upgrades older stores."""

TABLES = MetaData()

schema_version = Table(
    "cephfit_schema_version",
    TABLES,
    Column("id", Integer, primary_key=True, autoincrement=False),  # always 1: there is one version
    Column("version", Integer, nullable=False),
)

runs = Table(
    "cephfit_runs",
    TABLES,
    Column("id", Integer, primary_key=True),  # order of insertion, which the clock does not guarantee
    Column("run_id", String(200), nullable=False, unique=True),
    Column("sweep_name", Text, nullable=False),
    Column("sweep_text", Text, nullable=False),
    Column("sweep_digest", String(64), nullable=False, index=True),
    Column("target", Text, nullable=False),
    Column("seed", BigInteger, nullable=False),
    Column("created_ns", BigInteger, nullable=False),
    Column("facts", JSON, nullable=False),
    Column("finished", Boolean, nullable=False),
)


def _run_id() -> Column[str]:
    return Column("run_id", String(200), ForeignKey("cephfit_runs.run_id"), nullable=False, index=True)


applied = Table(
    "cephfit_applied",
    TABLES,
    Column("id", Integer, primary_key=True),
    _run_id(),
    Column("configuration", String(200), nullable=False),
    Column("repeat", Integer, nullable=False),
    Column("at_ns", BigInteger, nullable=False),
    Column("ok", Boolean, nullable=False),
    Column("mismatches", JSON, nullable=False),
    Column("read_back", JSON, nullable=False),
    Column("restarted", JSON, nullable=False),
    Column("seconds", Float, nullable=False),
)

fio_runs = Table(
    "cephfit_fio_runs",
    TABLES,
    Column("id", Integer, primary_key=True),
    _run_id(),
    Column("json_zlib", LargeBinary, nullable=False),  # one fio process serves all clients: kept once
)

samples = Table(
    "cephfit_samples",
    TABLES,
    Column("id", Integer, primary_key=True),
    _run_id(),
    Column("fio_run", Integer, ForeignKey("cephfit_fio_runs.id")),
    Column("configuration", String(200), nullable=False),
    Column("size", String(16), nullable=False),
    Column("pattern", String(16), nullable=False),
    Column("client", String(200), nullable=False),
    Column("repeat", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("load", String(200), nullable=False, server_default=""),  # since version 2
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("iops", Float),  # the metrics are null together: without a result there are none
    Column("nbytes_per_s", Float),
    Column("n_ios", BigInteger),
    Column("runtime_ns", BigInteger),
    Column("latency_mean_ns", Float),
    Column("latency_percentiles_ns", JSON(none_as_null=True)),
    Column("started_ns", BigInteger, nullable=False),
    Column("finished_ns", BigInteger, nullable=False),
    Column("evidence", JSON, nullable=False),
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
)

workload_samples = Table(
    "cephfit_workload_samples",
    TABLES,
    Column("id", Integer, primary_key=True),
    _run_id(),
    Column("workload", String(200), nullable=False),
    Column("configuration", String(200), nullable=False),
    Column("repeat", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("metric", String(200), nullable=False),
    Column("value", Float),
    Column("reason", Text, nullable=False),
    Column("started_ns", BigInteger, nullable=False),
    Column("finished_ns", BigInteger, nullable=False),
    Column("evidence", JSON, nullable=False),
    UniqueConstraint(
        "run_id", "workload", "configuration", "repeat", "attempt", name="cephfit_each_workload_sample_once"
    ),
)

documents = Table(
    "cephfit_documents",
    TABLES,
    Column("id", Integer, primary_key=True),
    _run_id(),
    Column("kind", String(64), nullable=False),
    Column("at_ns", BigInteger, nullable=False),
    Column("document", JSON, nullable=False),
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


def sample_of(row: Row) -> Sample:
    """Return the reverse of ``sample_row``."""
    metrics = None
    if row["iops"] is not None:
        metrics = Metrics(
            iops=row["iops"],
            nbytes_per_s=row["nbytes_per_s"],
            n_ios=row["n_ios"],
            runtime_ns=row["runtime_ns"],
            latency_mean_ns=row["latency_mean_ns"],
            latency_percentiles_ns={float(p): ns for p, ns in row["latency_percentiles_ns"].items()},
        )
    key = SampleKey(
        row["configuration"],
        stored_cell(row["size"], row["pattern"], where="store of results"),
        row["client"],
        row["repeat"],
        row["attempt"],
        row["load"],
    )
    return Sample(
        key,
        State(row["state"]),
        metrics,
        row["started_ns"],
        row["finished_ns"],
        row["reason"],
        row["evidence"],
    )


def workload_row(sample: WorkloadSample) -> dict[str, Any]:
    """Return the columns of a run of a real workload."""
    row = {name: getattr(sample, name) for name in WorkloadSample.__dataclass_fields__}
    return {**row, "state": sample.state.value}


def workload_of(row: Row) -> WorkloadSample:
    """Return the reverse of ``workload_row``."""
    values = {name: row[name] for name in WorkloadSample.__dataclass_fields__}
    return WorkloadSample(**{**values, "state": State(row["state"])})
