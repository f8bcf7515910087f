"""Version 2: the key of a sample gains ``load``, which is empty (the own load) in older samples."""

from alembic import op
from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

revision = "0002"
down_revision = None

_KEY = ("run_id", "configuration", "size", "pattern", "client", "repeat", "attempt")
_ONCE = "cephfit_each_sample_once"

_SAMPLES_OF_VERSION_1 = Table(
    "cephfit_samples",
    MetaData(),
    Column("id", Integer, primary_key=True),
    Column("run_id", String(200), ForeignKey("cephfit_runs.run_id"), nullable=False, index=True),
    Column("fio_run", Integer, ForeignKey("cephfit_fio_runs.id")),
    Column("configuration", String(200), nullable=False),
    Column("size", String(16), nullable=False),
    Column("pattern", String(16), nullable=False),
    Column("client", String(200), nullable=False),
    Column("repeat", Integer, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text, nullable=False),
    Column("iops", Float),
    Column("nbytes_per_s", Float),
    Column("n_ios", BigInteger),
    Column("runtime_ns", BigInteger),
    Column("latency_mean_ns", Float),
    Column("latency_percentiles_ns", JSON),
    Column("started_ns", BigInteger, nullable=False),
    Column("finished_ns", BigInteger, nullable=False),
    Column("evidence", JSON, nullable=False),
    UniqueConstraint(*_KEY, name=_ONCE),
)


def upgrade() -> None:
    # SQLite cannot change a constraint: there Alembic creates the table again, with all rows.
    with op.batch_alter_table("cephfit_samples", copy_from=_SAMPLES_OF_VERSION_1) as samples:
        load = Column("load", String(200), nullable=False, server_default="")
        samples.add_column(load, insert_after="attempt")
        samples.drop_constraint(_ONCE, type_="unique")
        samples.create_unique_constraint(_ONCE, [*_KEY, "load"])
