"""Version 2: the key of a sample gains ``load``, which is empty (the own load) in older samples."""

from alembic import op
from sqlalchemy import Column, String

revision = "0002"
down_revision = None

_KEY = ("run_id", "configuration", "size", "pattern", "client", "repeat", "attempt", "load")
_METRICS = ("iops", "nbytes_per_s", "n_ios", "runtime_ns", "latency_mean_ns", "latency_percentiles_ns")
_TIMES = ("started_ns", "finished_ns")
_ORDER: tuple[str, ...] = ("id", "run_id", "fio_run", *_KEY[1:], "state", "reason", *_METRICS, *_TIMES, "evidence")
_ONCE = "cephfit_each_sample_once"


def upgrade() -> None:
    # SQLite cannot change a constraint: there Alembic creates the table again, with all rows.
    with op.batch_alter_table("cephfit_samples", partial_reordering=[_ORDER]) as samples:
        samples.add_column(Column("load", String(200), nullable=False, server_default=""))
        samples.drop_constraint(_ONCE, type_="unique")
        samples.create_unique_constraint(_ONCE, list(_KEY))
