"""Connections to stores, also to SQLite stores that this user may read but not write.

Such are another user's, an archive's, or in a read-only folder. SQLite reads a store in WAL mode only if it finds
or creates a shared-memory file next to it. Creating one next to another user's store would keep that user from
writing, so no file is created there:

- While a writer has the store open, its files exist and SQLite reads with ``mode=ro``.
- Otherwise the file alone is the store and is read with ``immutable=1``. SQLite then does not notice a later
  writer, so size and time of the file are compared after each transaction.
- A killed writer's log, and stores with tables of earlier versions, need a writer: they are read in a temporary
  copy.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote

from sqlalchemy import Connection, Engine, bindparam, select
from sqlalchemy.engine import URL
from sqlalchemy.exc import IntegrityError

from cephfit.core.errors import StoreError
from cephfit.results.store import database, schema
from cephfit.results.store.schema import FIRST_VERSION, SAME_TABLES_SINCE

_OF_RUN_ID = select(schema.runs.c.id).where(schema.runs.c.run_id == bindparam("run_id"))
_WAL_AT, _WAL = 18, 2
"""Offset of the write version in an SQLite file, and its value in WAL mode (sqlite.org/fileformat2.html)."""


def why_file_is_read_only(url: URL) -> str:
    """Return why an SQLite file can be read but not written; empty if it can, or is missing, and for servers."""
    if url.get_backend_name() != "sqlite" or not url.database or "uri" in url.query:
        return ""
    path = Path(url.database)
    if not path.is_file() or not _may(path, os.R_OK):
        return ""  # opening it reports the error
    if not _may(path, os.W_OK):
        return "you have no permission to write to the file"
    sides = (_side_file(path, "-wal"), _side_file(path, "-shm"))
    if not _may(path.parent, os.W_OK) and not all(_may(side, os.W_OK) for side in sides):
        return f"you have no permission to write to the folder {path.resolve().parent}, which holds its log"
    return ""


def _may(path: Path, right: int) -> bool:
    return os.access(path, right, effective_ids=os.access in os.supports_effective_ids)


def _side_file(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)


class ReadOnlySource:
    """An SQLite file that is only read, or a temporary copy of it.

    Args:
        url: of the store.
        reason: why it is only read.

    Raises:
        StoreError: the log of a killed writer cannot be read, or there is no space for a copy.
    """

    def __init__(self, url: URL, reason: str) -> None:
        self.reason = reason
        self._path = Path(str(url.database)).resolve()
        self._copy: tempfile.TemporaryDirectory[str] | None = None
        self._seen: tuple[int, int, int] | None = None
        try:
            self.url = self._source()
        except (OSError, sqlite3.OperationalError) as error:
            self.close()
            raise StoreError(
                f"the store cannot be read: {error.strerror if isinstance(error, OSError) else error}",
                where=str(self._path),
                remedy=f"get permission to read {self._path.name}, and space for a copy in "
                f"{tempfile.gettempdir()} (TMPDIR selects another folder)",
            ) from None

    def _source(self) -> URL:
        log = self._log()
        if log is not None:
            self._copied(log)
        elif self._is_wal() and not _side_file(self._path, "-shm").exists():
            self._seen = self._signature()
        url = self._url()
        if self._copy is None and _has_older_tables(url):
            self._backed_up(url)
            url = self._url()
        return url

    def _log(self) -> Path | None:
        """Return the log that a killed writer left, if there is one."""
        if _side_file(self._path, "-shm").exists():
            return None
        for end in ("-wal", "-journal"):
            log = _side_file(self._path, end)
            if log.exists() and log.stat().st_size:
                return log
        return None

    def _is_wal(self) -> bool:
        with self._path.open("rb") as file:
            header = file.read(_WAL_AT + 1)
        return len(header) > _WAL_AT and header[_WAL_AT] == _WAL

    def _url(self) -> URL:
        """Return the SQLite URI of the file that is read."""
        if self._copy is not None:
            path, how = Path(self._copy.name) / "store.sqlite", ("mode", "rw")
        else:
            path, how = self._path, ("immutable", "1") if self._seen else ("mode", "ro")
        return URL.create("sqlite", database=f"file:{quote(str(path))}", query=dict([how, ("uri", "true")]))

    def _folder(self) -> Path:
        self._copy = tempfile.TemporaryDirectory(prefix="cephfit-store-", ignore_cleanup_errors=True)
        return Path(self._copy.name)

    def _copied(self, log: Path) -> None:
        """Copy file and log, so that SQLite can recover them."""
        target = self._folder() / "store.sqlite"
        shutil.copyfile(self._path, target)
        shutil.copyfile(log, _side_file(target, log.name.removeprefix(self._path.name)))

    def _backed_up(self, url: URL) -> None:
        """Copy the current content, to upgrade its schema version."""
        target = self._folder() / "store.sqlite"
        with closing(_connected(url)) as source, closing(sqlite3.connect(target)) as copy:
            source.backup(copy)
        self._seen = None

    def _signature(self) -> tuple[int, int, int]:
        found, log = self._path.stat(), _side_file(self._path, "-wal")
        return found.st_size, found.st_mtime_ns, log.stat().st_size if log.exists() else 0

    def require_unchanged(self) -> None:
        """Check that no writer changed the file meanwhile.

        Raises:
            StoreError: a writer changed the file while it was read as immutable.
        """
        if self._seen is not None and self._signature() != self._seen:
            raise StoreError(
                "the store was written while it was read", where=str(self._path), remedy="run the command again"
            )

    def close(self) -> None:
        """Delete the copy. Safe to call twice."""
        if self._copy is not None:
            self._copy.cleanup()


def _connected(url: URL) -> sqlite3.Connection:
    words = "&".join(f"{key}={value}" for key, value in url.query.items() if key != "uri")
    return sqlite3.connect(f"{url.database}?{words}", uri=True)


def _has_older_tables(url: URL) -> bool:
    """Return whether it is a store that can only be read after an upgrade; other files are reported on opening."""
    try:
        with closing(_connected(url)) as connection:
            found = connection.execute("SELECT version FROM cephfit_schema_version").fetchone()
    except sqlite3.DatabaseError:
        return False
    return found is not None and FIRST_VERSION <= int(found[0]) < SAME_TABLES_SINCE


class StoreConnection:
    """A store's database: opened, perhaps only to be read, and used in transactions."""

    def __init__(self, engine: Engine, url: URL, source: ReadOnlySource | None = None) -> None:
        """Use ``open``."""
        self._engine = engine
        self._source = source
        self.name = database.name_of(url)
        """Location of the store for display, without a password."""

    @classmethod
    def open(
        cls,
        location: str | Path,
        *,
        create: bool = False,
        writing: bool = False,
        patience_seconds: float = 30.0,
    ) -> Self:
        """Open a store. One that this user may only read is opened read-only; see ``why_read_only``.

        Args:
            location: path of an SQLite file, or an SQLAlchemy URL.
            create: create it if it does not exist.
            writing: refuse a read-only store at once, before any other work is done.
            patience_seconds: how long to wait for another process's transaction (SQLite).

        Raises:
            StoreError: it does not exist, is not a store, has another schema version, is locked, or is read-only.
        """
        url = database.location_of(location)
        reason = why_file_is_read_only(url)
        if reason:
            if create or writing:
                raise database.refusal(reason, database.name_of(url))
            return cls._open_read_only(url, reason, patience_seconds=patience_seconds)
        engine = database.engine_for(url, patience_seconds=patience_seconds)
        try:
            try:
                database.prepare(engine, url, create=create)
            except (IntegrityError, StoreError) as refused:
                if not create:
                    raise
                # Another process may have created the tables at this moment; then they exist now.
                try:
                    database.prepare(engine, url, create=False)
                except StoreError:
                    if isinstance(refused, StoreError):
                        raise refused from None
                    raise
        except BaseException:
            engine.dispose()
            raise
        store = cls(engine, url)
        if (create or writing) and (reason := store.why_read_only()):
            store.close()
            raise database.refusal(reason, store.name)
        return store

    @classmethod
    def _open_read_only(cls, url: URL, reason: str, *, patience_seconds: float) -> Self:
        source = ReadOnlySource(url, reason)
        try:
            engine = database.engine_for(source.url, patience_seconds=patience_seconds)
            store = cls(engine, url, source)
            try:
                database.prepare(engine, source.url, create=False, shown_as=store.name)
            except BaseException:
                engine.dispose()
                raise
        except BaseException:
            source.close()
            raise
        return store

    def why_read_only(self) -> str:
        """Return why this store can be read but not written; empty if it can be written.

        It is another user's file or database, in a read-only folder, or an archive. Writing raises StoreError.
        """
        if self._source is not None:
            return self._source.reason
        return database.why_read_only(self._engine, self.name)

    def close(self) -> None:
        """Close the database. Safe to call twice."""
        self._engine.dispose()
        if self._source is not None:
            self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _writing(self) -> Any:
        if self._source is not None:
            raise database.refusal(self._source.reason, self.name)
        return database.transaction(self._engine, self.name, writing=True)

    @contextmanager
    def _reading(self) -> Iterator[Any]:
        with database.transaction(self._engine, self.name, writing=False) as connection:
            yield connection
        if self._source is not None:
            self._source.require_unchanged()

    def _must_know(self, connection: Connection, run_id: str) -> None:
        if connection.execute(_OF_RUN_ID, {"run_id": run_id}).scalar_one_or_none() is None:
            raise self._unknown(connection, run_id)

    def _unknown(self, connection: Connection, run_id: str) -> StoreError:
        query = select(schema.runs.c.run_id).order_by(schema.runs.c.created_ns.desc())
        return self._not_among(run_id, list(connection.execute(query).scalars()))

    def _not_among(self, run_id: str, known: Sequence[str]) -> StoreError:
        remedy = f"there are: {', '.join(known)}" if known else "the store has no runs yet"
        return StoreError(f"there is no run {run_id!r}", where=self.name, remedy=remedy)
