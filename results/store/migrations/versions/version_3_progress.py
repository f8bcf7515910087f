"""Version 3: an index from which the progress of runs is counted without reading their samples."""

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_index(
        "ix_cephfit_samples_progress", "cephfit_samples", ["run_id", "configuration", "state", "attempt"]
    )
