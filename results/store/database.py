"""Open the database of a store, upgrade its schema, and explain its errors.

Stores of earlier schema versions are upgraded with all of their samples. Each step upgrades by one version. All
steps that a store needs, and the new version number, are one transaction (DDL is transactional in SQLite too). So
a killed process leaves the store unchanged. If two processes open the same old store, one upgrades it and the
other finds it upgraded.
"""

import json
import math
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, select, text, update
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    StatementError,
)

from cephfit.core.errors import StoreError
from cephfit.core.optional_modules import install_command
from cephfit.results.store.schema import SCHEMA_VERSION, TABLES, schema_version

_OLD_SAMPLES = "cephfit_samples_of_version_1"


def bring_up_to_date(connection: Connection) -> int:
    """Apply every step from the store's version on; inside a transaction that writes.

    Returns:
        The new version of the store.
    """
    # PostgreSQL: a second process waits here until the first has committed, and then reads the new version.
    version = connection.execute(select(schema_version.c.version).with_for_update()).scalar_one()
    while version in STEPS:
        STEPS[version](connection)
        version += 1
        connection.execute(update(schema_version).values(version=version))
    return int(version)


def _samples_have_loads(connection: Connection) -> None:
    """Upgrade 1 to 2: a sample's key gains ``load``, which is empty (the own load) in older samples."""
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
    # SQLite cannot change a constraint, so the table is created again (sqlite.org, "Making Other Kinds Of Table
    # Schema Changes"). Nothing refers to it. The SQL is that of version 2: later versions may differ.
    kept = ", ".join(column["name"] for column in inspect(connection).get_columns("cephfit_samples"))
    connection.execute(text("DROP INDEX IF EXISTS ix_cephfit_samples_run_id"))
    connection.execute(text(f"ALTER TABLE cephfit_samples RENAME TO {_OLD_SAMPLES}"))
    connection.execute(text(_SAMPLES_OF_VERSION_2))
    connection.execute(text(f"INSERT INTO cephfit_samples ({kept}) SELECT {kept} FROM {_OLD_SAMPLES}"))
    connection.execute(text(f"DROP TABLE {_OLD_SAMPLES}"))
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
"""Upgrade steps by the version from which they start."""

WRITING = "cephfit_writing"
"""Execution option of connections with writing transactions."""

_FREE_NBYTES = 64 << 10
"""Free space that an SQLite store needs for the index of its log and a few pages."""


def location_of(location: str | Path) -> URL:
    """Return the URL of a store: an SQLAlchemy URL unchanged, else that of an SQLite file.

    Raises:
        StoreError: the URL is invalid, or names a database in memory.
    """
    if not str(location):
        raise StoreError(
            "the location of the store is empty",
            remedy="give the path of a file; if it comes from a shell variable, set the variable first",
        )
    url = URL.create("sqlite", database=str(location))
    if isinstance(location, str) and "://" in location:
        try:
            url = make_url(location)
        except (ArgumentError, ValueError):  # ValueError: the port is not a number
            raise StoreError(
                "the location of the store is not a database URL",
                remedy="give the path of a file, or a URL such as postgresql+psycopg://user@host/database",
            ) from None
    if url.get_backend_name() == "sqlite" and _is_memory(url):
        raise StoreError(
            "this is a database in memory, which is lost when the command ends",
            where=str(location),
            remedy="give the path of a file, such as results.sqlite or sqlite:///results.sqlite",
        )
    return url


def _is_memory(url: URL) -> bool:
    path = (url.database or "").removeprefix("file:")
    return path in ("", ":memory:") or "memory" in url.query.get("mode", "")


def name_of(url: URL) -> str:
    """Return the store's name for display: the file's path, or the URL without password and options.

    PostgreSQL's drivers accept a password as an option too (``?password=``, ``?sslpassword=``).
    """
    if url.get_backend_name() == "sqlite" and url.database:
        return url.database
    return url.set(query={}).render_as_string(hide_password=True)


def engine_for(url: URL, *, patience_seconds: float) -> Engine:
    """Return an engine whose committed transactions survive SIGKILL and loss of power.

    SQLite runs in WAL mode with ``synchronous = FULL``: a commit returns after the log is on the disk. A writing
    transaction takes the write lock when it begins, and waits up to ``patience_seconds`` for another process. A
    transaction that takes the lock at its first INSERT cannot wait (SQLite, "Isolation").

    Raises:
        StoreError: the database's driver is not installed.
    """
    arguments: dict[str, Any] = {"timeout": patience_seconds} if url.get_backend_name() == "sqlite" else {}
    try:
        engine = create_engine(
            url,
            connect_args=arguments,
            json_serializer=partial(_strict_json, where=name_of(url)),
            pool_pre_ping=not arguments,
        )
    except (NoSuchModuleError, ModuleNotFoundError) as error:
        raise StoreError(
            f"the driver of this database is not installed: {error}",
            where=name_of(url),
            remedy=f"install it; for PostgreSQL: {install_command('postgres')}, with postgresql+psycopg://...",
        ) from None
    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", _configure_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _strict_json(value: Any, *, where: str) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        found = next(_non_finite_values(value), "")
        raise StoreError(
            f"a value cannot be stored: {found or error}",
            where=where,
            remedy="nothing was written; if the value comes from a file, such as a profile, correct it there",
        ) from error


def _non_finite_values(value: Any, place: str = "") -> Iterator[str]:
    """Yield where a document has NaN or an infinite number, which JSON cannot represent."""
    if isinstance(value, float) and not math.isfinite(value):
        yield f"{place or 'it'} is {value}"
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _non_finite_values(inner, f"{place}.{key}" if place else str(key))
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            yield from _non_finite_values(inner, f"{place}[{i}]")


def _configure_sqlite(connection: sqlite3.Connection, _record: object) -> None:
    connection.isolation_level = None  # _begin_sqlite begins the transactions, not the driver
    cursor = connection.cursor()
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    writing = connection.get_execution_options().get(WRITING, False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writing else "BEGIN")


def why_read_only(engine: Engine, name: str) -> str:
    """Return why this user cannot write to a server's store; empty if it can, and for SQLite."""
    if engine.dialect.name != "postgresql":
        return ""
    with transaction(engine, name, writing=False) as connection:
        if connection.execute(text("SELECT pg_is_in_recovery()")).scalar_one():
            return "the server is a standby"
        if connection.execute(text("SHOW default_transaction_read_only")).scalar_one() == "on":
            return "the server makes every transaction of this user read-only"
        asked = "SELECT bool_and(has_table_privilege(:t, p)) FROM unnest(ARRAY['INSERT', 'UPDATE', 'DELETE']) AS p"
        for table in TABLES.tables:
            if not connection.execute(text(asked), {"t": table}).scalar_one():
                return f"the database user has no permission to write to {table}"
    return ""


@contextmanager
def transaction(engine: Engine, name: str, *, writing: bool) -> Iterator[Connection]:
    """Run one transaction: committed when the block ends, rolled back when it raises.

    Raises:
        StoreError: the database refused; the error states why in the user's terms. Integrity errors are passed
            on, because only the caller knows their meaning.
    """
    try:
        options: dict[str, Any] = {WRITING: writing}
        if engine.dialect.name == "postgresql":
            options["postgresql_readonly"] = not writing
        with engine.connect().execution_options(**options) as connection, connection.begin():
            yield connection
    except IntegrityError:
        raise
    except (DatabaseError, InterfaceError) as error:
        raise _explained(error, name, writing=writing) from error
    except StatementError as error:
        if isinstance(error.orig, StoreError):  # _strict_json's, which some drivers' dialects wrap
            raise error.orig from None
        raise


def _explained(error: DatabaseError | InterfaceError, name: str, *, writing: bool) -> StoreError:
    said = str(error.orig).strip()
    if "file is not a database" in said or "malformed" in said:
        return StoreError(
            "this file is not a store of results, or it is damaged",
            where=name,
            remedy="give the file that `cephfit sweep run` wrote; a damaged one: `sqlite3 FILE .recover`",
        )
    if "database is locked" in said:
        return StoreError(
            "another process has locked the store",
            where=name,
            remedy="wait until it ends, or stop it; nothing was written and nothing is lost",
        )
    if "disk is full" in said or "No space left" in said or ("disk I/O error" in said and _disk_is_full(name)):
        return StoreError(
            "no space left on the disk of the store",
            where=name,
            remedy="free some space and run the command again: what is stored is complete, and the run continues",
        )
    if "readonly" in said or "unable to open" in said:
        return StoreError(
            f"the store cannot be opened or written: {said}",
            where=name,
            remedy="check that the folder exists and that you have permission to read and write the file",
        )
    if writing and ("permission denied" in said or "read-only transaction" in said):
        return refusal(said.partition("\n")[0], name)
    return StoreError(f"the database reports: {said}", where=name, remedy="check the location and the server")


def refusal(reason: str, name: str) -> StoreError:
    """Return the error of a command that writes to a store that this user can only read."""
    return StoreError(
        f"this store is read-only: {reason}",
        where=name,
        remedy="get write permission, or give another store; `cephfit runs export` copies a run into one",
    )


def _disk_is_full(name: str) -> bool:
    """Return whether the disk of an SQLite file is full, which SQLite may report only as a disk I/O error."""
    try:
        free = os.statvfs(Path(name).parent)
    except (OSError, ValueError):
        return False
    return free.f_bavail * free.f_frsize < _FREE_NBYTES


def prepare(engine: Engine, url: URL, *, create: bool, shown_as: str = "") -> None:
    """Check that the tables exist in this program's version; create them if ``create``.

    ``shown_as`` is the store's name in errors if the URL is that of a file opened read-only.

    A store of an earlier version is upgraded in one transaction, also when it is only to be read.

    Raises:
        StoreError: there is no store, it is another database, or of a later version.
    """
    name = shown_as or name_of(url)
    if url.get_backend_name() == "sqlite" and not shown_as:
        path = Path(str(url.database))
        if path.is_dir():
            raise StoreError("this is a folder", where=name, remedy="give the path of a file")
        if path.exists() and not path.is_file():
            raise StoreError(
                "this is a device or a pipe, not a file", where=name, remedy="give the path of a file"
            )
        if not path.exists() and not create:
            raise StoreError(
                "there is no store of results here",
                where=name,
                remedy="`cephfit sweep run` creates one; give its path with --store",
            )
        if create:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise StoreError(
                    f"the folder of the store cannot be created: {error.strerror}",
                    where=name,
                    remedy="give another path with --store",
                ) from None
    with transaction(engine, name, writing=create) as connection:
        tables = set(inspect(connection).get_table_names())
        if schema_version.name not in tables:
            one_file = engine.dialect.name == "sqlite"
            if one_file and not tables and not create:  # its writer was killed before its first transaction
                raise StoreError(
                    "this store of results is empty: nothing was written to it yet",
                    where=name,
                    remedy="`cephfit sweep run` continues it",
                )
            if not create or (one_file and tables):
                raise StoreError(
                    "this database is not a store of results",
                    where=name,
                    remedy="give the store that `cephfit sweep run` wrote, or a new name",
                )
            TABLES.create_all(connection)
            connection.execute(insert(schema_version).values(id=1, version=SCHEMA_VERSION))
        found = connection.execute(select(schema_version.c.version)).scalar_one_or_none()
    if found in STEPS:
        if reason := why_read_only(engine, name):
            raise StoreError(
                f"the store is of schema version {found}, this cephfit reads {SCHEMA_VERSION}, and {reason}",
                where=name,
                remedy="ask a user with write permission to run `cephfit sweep status` on it, which upgrades it",
            )
        with transaction(engine, name, writing=True) as connection:
            found = bring_up_to_date(connection)
    if found != SCHEMA_VERSION:
        newer = isinstance(found, int) and found > SCHEMA_VERSION
        raise StoreError(
            f"the store is of schema version {found}, this cephfit reads {SCHEMA_VERSION}",
            where=name,
            remedy="use the newer cephfit that wrote it" if newer else "it was not written by a released cephfit",
        )
    if create and engine.dialect.name == "sqlite":
        _enable_wal(engine)


def _enable_wal(engine: Engine) -> None:
    """Put an SQLite store into WAL mode, which the file then keeps.

    This is done after its tables were checked, so that no other database is changed. If another process is in a
    transaction at this moment, the mode does not change. That is equally safe, but readers then wait for writers.
    """
    raw = engine.raw_connection()
    try:
        with suppress(sqlite3.OperationalError):
            raw.cursor().execute("PRAGMA journal_mode = WAL")
    finally:
        raw.close()
