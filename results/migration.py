"""Stores of earlier schema versions are brought to this program's, with every sample they hold.

Each step takes a store from one version to the next. All steps that a store needs and the new version number are
one transaction, in SQLite too, whose DDL is transactional: a process killed in the middle leaves the store as it
was, and of two processes that open the same old store one does the work and the other finds it done.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from sqlalchemy import Connection, inspect, select, text, update

from cephfit.results.schema import schema_version

_ASIDE = "cephfit_samples_of_version_1"


def bring_up_to_date(connection: Connection) -> int:
    """Take every step from the store's version on; inside a transaction that writes.

    Returns:
        The store's version then.
    """
    # PostgreSQL: whoever comes second waits here until the first has committed, and then reads the new version.
    version = connection.execute(select(schema_version.c.version).with_for_update()).scalar_one()
    while version in STEPS:
        STEPS[version](connection)
        version += 1
        connection.execute(update(schema_version).values(version=version))
    return int(version)


def _samples_have_loads(connection: Connection) -> None:
    """1 to 2: a sample's key gains ``load``. Older samples have the own load, which is empty."""
    if connection.dialect.name != "sqlite":
        connection.execute(text("ALTER TABLE cephfit_samples ADD COLUMN load VARCHAR(200) DEFAULT '' NOT NULL"))
        connection.execute(text("ALTER TABLE cephfit_samples DROP CONSTRAINT cephfit_each_sample_once"))
        connection.execute(
            text(
                "ALTER TABLE cephfit_samples ADD CONSTRAINT cephfit_each_sample_once UNIQUE "
                "(run_id, configuration, size, pattern, client, repeat, attempt, load)"
            )
        )
        return
    # SQLite cannot change a constraint: the table is made anew (sqlite.org, "Making Other Kinds Of Table Schema
    # Changes"). Nothing refers to it. The table as version 2 had it is written out: later versions have another.
    kept = ", ".join(column["name"] for column in inspect(connection).get_columns("cephfit_samples"))
    connection.execute(text("DROP INDEX IF EXISTS ix_cephfit_samples_run_id"))
    connection.execute(text(f"ALTER TABLE cephfit_samples RENAME TO {_ASIDE}"))
    connection.execute(text(_SAMPLES_OF_VERSION_2))
    connection.execute(text(f"INSERT INTO cephfit_samples ({kept}) SELECT {kept} FROM {_ASIDE}"))
    connection.execute(text(f"DROP TABLE {_ASIDE}"))
    connection.execute(text("CREATE INDEX ix_cephfit_samples_run_id ON cephfit_samples (run_id)"))


_SAMPLES_OF_VERSION_2 = """
CREATE TABLE cephfit_samples (
    id INTEGER NOT NULL,
    run_id VARCHAR(200) NOT NULL,
    fio_run INTEGER,
    configuration VARCHAR(200) NOT NULL,
    size VARCHAR(16) NOT NULL,
    pattern VARCHAR(16) NOT NULL,
    client VARCHAR(200) NOT NULL,
    repeat INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    load VARCHAR(200) DEFAULT '' NOT NULL,
    state VARCHAR(16) NOT NULL,
    reason TEXT NOT NULL,
    iops FLOAT,
    nbytes_per_s FLOAT,
    n_ios BIGINT,
    runtime_ns BIGINT,
    latency_mean_ns FLOAT,
    latency_percentiles_ns JSON,
    started_ns BIGINT NOT NULL,
    finished_ns BIGINT NOT NULL,
    evidence JSON NOT NULL,
    PRIMARY KEY (id),
    CONSTRAINT cephfit_each_sample_once
        UNIQUE (run_id, configuration, size, pattern, client, repeat, attempt, load),
    FOREIGN KEY(run_id) REFERENCES cephfit_runs (run_id),
    FOREIGN KEY(fio_run) REFERENCES cephfit_fio_runs (id)
)
"""

STEPS: Mapping[int, Callable[[Connection], None]] = MappingProxyType({1: _samples_have_loads})
"""By the version that a step begins with."""
