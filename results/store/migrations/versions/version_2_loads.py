"""Version 2: the key of a sample gains ``load``, which is empty (the own load) in older samples."""

from alembic import op
from sqlalchemy import Column, String

revision = "0002"
down_revision = None

_ONCE = "cephfit_each_sample_once"


def upgrade() -> None:
    # SQLite cannot change a constraint: there Alembic creates the table again, with all rows.
    order = [("attempt", "load", "state")]
    with op.batch_alter_table("cephfit_samples", partial_reordering=order) as samples:
        samples.add_column(Column("load", String(200), nullable=False, server_default=""))
        samples.drop_constraint(_ONCE, type_="unique")
        samples.create_unique_constraint(
            _ONCE, ["run_id", "configuration", "size", "pattern", "client", "repeat", "attempt", "load"]
        )
