"""The tables of the store, in SQL that SQLite and PostgreSQL both speak.

Every table's name begins with ``cephfit_``, so that a database may hold other things too. Times are wall clock in
ns since the epoch. Statistics are computed from samples when they are asked for. What is stored of conclusions
(``documents``) says what people were told at that time; a report works out anew what it shows.
"""

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

SCHEMA_VERSION = 2
"""Version that this program reads and writes. It grows with every change of a table, and each change has its step
in ``migration.py``, which brings older stores to it."""

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
    Column("id", Integer, primary_key=True),  # order of adding, which the clock does not promise
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
    Column("iops", Float),  # the metrics are null together: there is a result or there is none
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
