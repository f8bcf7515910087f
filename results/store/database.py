"""Open the database of a store, upgrade its schema, and explain its errors.

Stores of earlier schema versions are upgraded with all of their samples, by the steps of ``migrations``. All steps
that a store needs, and the new version number, are one transaction (DDL is transactional in SQLite too). So a
killed process leaves the store unchanged. If two processes open the same old store, one upgrades it and the other
finds it upgraded.
"""

import json
import math
import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, insert, inspect, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DatabaseError,
    IntegrityError,
    InterfaceError,
    NoSuchModuleError,
    StatementError,
)

from cephfit.core.errors import MissingStoreError, StoreError
from cephfit.core.optional_modules import install_command
from cephfit.core.values.sample import from_json
from cephfit.results.store.schema import (
    FIRST_VERSION,
    SAME_TABLES_SINCE,
    SCHEMA_VERSION,
    TABLES,
    schema_version,
)

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
            json_deserializer=from_json,
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
        MissingStoreError: there is no store yet.
        StoreError: it is another database, or of a later version.
    """
    name = shown_as or name_of(url)
    if url.get_backend_name() == "sqlite" and not shown_as:
        _check_path(Path(str(url.database)), name, create=create)
    with transaction(engine, name, writing=create) as connection:
        tables = set(inspect(connection).get_table_names())
        if schema_version.name not in tables:
            _check_absence(tables, name, is_file=engine.dialect.name == "sqlite", create=create)
            TABLES.create_all(connection)
            connection.execute(insert(schema_version).values(id=1, version=SCHEMA_VERSION))
        found = connection.execute(select(schema_version.c.version)).scalar_one_or_none()
    if found is not None and FIRST_VERSION <= found < SCHEMA_VERSION:
        found = _upgraded(engine, name, found, is_read_only=bool(shown_as))
    if found != SCHEMA_VERSION:
        newer = isinstance(found, int) and found > SCHEMA_VERSION
        raise StoreError(
            f"the store is of schema version {found}, this cephfit reads {SCHEMA_VERSION}",
            where=name,
            remedy="use the newer cephfit that wrote it" if newer else "it was not written by a released cephfit",
        )
    if create and engine.dialect.name == "sqlite":
        _enable_wal(engine)


def _check_path(path: Path, name: str, *, create: bool) -> None:
    """Check that an SQLite file exists or, to create it, can; create its folder.

    Raises:
        MissingStoreError: there is no file.
        StoreError: it is no file, or the folder cannot be created.
    """
    if path.is_dir():
        raise StoreError("this is a folder", where=name, remedy="give the path of a file")
    if path.exists() and not path.is_file():
        raise StoreError("this is a device or a pipe, not a file", where=name, remedy="give the path of a file")
    if not path.exists() and not create:
        raise MissingStoreError(
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


def _check_absence(tables: Collection[str], name: str, *, is_file: bool, create: bool) -> None:
    """Check that a database without the tables of a store may get them.

    Raises:
        MissingStoreError: it may, but not now.
        StoreError: it is a file with other tables.
    """
    if is_file and not tables and not create:
        raise MissingStoreError(
            "this store of results is empty: nothing was written to it yet",
            where=name,
            remedy="`cephfit sweep run` and `cephfit import` write to it",
        )
    if not create or (is_file and tables):
        error = StoreError if is_file else MissingStoreError
        raise error(
            "this database is not a store of results",
            where=name,
            remedy="give the store that `cephfit sweep run` wrote, or a new name",
        )


def _upgraded(engine: Engine, name: str, version: int, *, is_read_only: bool) -> int:
    """Upgrade a store of an earlier version; return the version that it now can be used as.

    A store with today's tables lacks only indexes. If it cannot get them (read-only, no space, or the database
    user does not own the tables), it is used without them.

    Raises:
        StoreError: it has other tables and cannot be upgraded.
    """
    is_usable = version >= SAME_TABLES_SINCE
    if is_usable and is_read_only:
        return SCHEMA_VERSION
    if not is_usable and (reason := why_read_only(engine, name)):
        raise StoreError(
            f"the store is of schema version {version}, this cephfit reads {SCHEMA_VERSION}, and {reason}",
            where=name,
            remedy="ask a user with write permission to run `cephfit sweep status` on it, which upgrades it",
        )
    from cephfit.results.store.migrations import bring_up_to_date

    try:
        with transaction(engine, name, writing=True) as connection:
            return bring_up_to_date(connection)
    except StoreError:
        if not is_usable:
            raise
        return SCHEMA_VERSION


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
