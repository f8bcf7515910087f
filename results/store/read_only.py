"""SQLite stores that this user may read and not write: another user's, an archive's, in a read-only folder.

SQLite reads a store in WAL mode only where it finds or makes a shared-memory file next to it. Making one next to
another user's store would keep that user from writing, so nothing is ever made there:

- While a writer has the store open, its files are there and SQLite reads along (``mode=ro``).
- Else the file alone is the store, and it is read as it is (``immutable=1``). After each transaction its size and
  time are compared, because SQLite then does not notice a writer that comes later.
- What a killed writer left in its log, and stores of earlier schema versions, need a writer: a temporary copy.
"""

import os
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from sqlalchemy.engine import URL

from cephfit.core.errors import StoreError
from cephfit.results.store.database import STEPS

_WAL_AT, _WAL = 18, 2
"""Where the header of an SQLite file has its write version, and that of WAL mode (sqlite.org/fileformat2.html)."""


def why_file_is_read_only(url: URL) -> str:
    """Why an SQLite file can be read and not written; empty where it can, where there is none, and for others."""
    if url.get_backend_name() != "sqlite" or not url.database or "uri" in url.query:
        return ""
    path = Path(url.database)
    if not path.is_file() or not _may(path, os.R_OK):
        return ""  # there is another error, which opening it gives
    if not _may(path, os.W_OK):
        return "you have no right to write into the file"
    sides = (_side_file(path, "-wal"), _side_file(path, "-shm"))
    if not _may(path.parent, os.W_OK) and not all(_may(side, os.W_OK) for side in sides):
        return f"you have no right to write into the folder {path.resolve().parent}, where its log goes"
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
        StoreError: what a killed writer left cannot be read, or there is no room for a copy.
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
                remedy=f"get the right to read {self._path.name}, and space for a copy in {tempfile.gettempdir()} "
                "(TMPDIR names another folder)",
            ) from None

    def _source(self) -> URL:
        log = self._log()
        if log is not None:
            self._copied(log)
        elif self._is_wal() and not _side_file(self._path, "-shm").exists():
            self._seen = self._signature()
        url = self._url()
        if self._copy is None and _version(url) in STEPS:
            self._backed_up(url)
            url = self._url()
        return url

    def _log(self) -> Path | None:
        """The log that a killed writer left behind, if there is one."""
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
        """Of what is read, as SQLite's own URI."""
        if self._copy is not None:
            path, how = Path(self._copy.name) / "store.sqlite", ("mode", "rw")
        else:
            path, how = self._path, ("immutable", "1") if self._seen else ("mode", "ro")
        return URL.create("sqlite", database=f"file:{quote(str(path))}", query=dict([how, ("uri", "true")]))

    def _folder(self) -> Path:
        self._copy = tempfile.TemporaryDirectory(prefix="cephfit-store-", ignore_cleanup_errors=True)
        return Path(self._copy.name)

    def _copied(self, log: Path) -> None:
        """File and log, for SQLite to put together."""
        wanted = self._folder() / "store.sqlite"
        shutil.copyfile(self._path, wanted)
        shutil.copyfile(log, _side_file(wanted, log.name.removeprefix(self._path.name)))

    def _backed_up(self, url: URL) -> None:
        """What is in the store now, for the steps to a newer schema version."""
        wanted = self._folder() / "store.sqlite"
        with closing(_connected(url)) as source, closing(sqlite3.connect(wanted)) as copy:
            source.backup(copy)
        self._seen = None

    def _signature(self) -> tuple[int, int, int]:
        found, log = self._path.stat(), _side_file(self._path, "-wal")
        return found.st_size, found.st_mtime_ns, log.stat().st_size if log.exists() else 0

    def require_unchanged(self) -> None:
        """Raises:
        StoreError: a writer came while the file was read as if there was none.
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


def _version(url: URL) -> int | None:
    """The schema version; None where it is no store, which opening it says."""
    try:
        with closing(_connected(url)) as connection:
            found = connection.execute("SELECT version FROM cephfit_schema_version").fetchone()
    except sqlite3.DatabaseError:
        return None
    return None if found is None else int(found[0])
