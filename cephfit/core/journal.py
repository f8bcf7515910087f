"""The lock of the one process that may change a target, and the journal from which all changes can be undone."""

import fcntl
import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cephfit.core.errors import ClusterError, StoreError

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One change, recorded before it is applied.

    Attributes:
        kind: type of the changed object; selects the code that undoes the change.
        place: identifier of the object, unique within its kind.
        was: its value before the first change; None where it did not exist. JSON values only.
    """

    kind: str
    place: str
    was: Any


class Journal:
    """A journal in a file, one JSON object per line, each on disk before its change is applied.

    The first entry of a (kind, place) holds the original value; later changes of the same place add nothing.
    A program that is killed while it writes leaves a torn last line. That change was not applied yet, so the line
    is dropped. Only one process at a time may open a journal for writing; the target's lock ensures this.

    Args:
        path: created when the first entry is written.
        read_only: do not write; a torn line is left for the process that owns the journal.

    Raises:
        StoreError: a line in the middle is damaged, or another version wrote the file.
    """

    def __init__(self, path: Path, *, read_only: bool = False) -> None:
        self.path = path
        self._read_only = read_only
        self._entries: dict[tuple[str, str], Entry] = {}
        if path.exists():
            self._read()

    def note(self, kind: str, place: str, was: Any) -> bool:
        """Record the current value of ``place`` unless it is recorded already. Return when it is on disk.

        Returns:
            True if this is the first entry of the place.

        Raises:
            StoreError: the disk is full; the place must not be changed.
        """
        if (kind, place) in self._entries:
            return False
        entry = Entry(kind, place, was)
        self._append({"version": SCHEMA_VERSION, "kind": kind, "place": place, "was": was})
        self._entries[kind, place] = entry
        return True

    def forget(self, kind: str, place: str) -> None:
        """Remove an entry: the place has its original value again."""
        if (kind, place) in self._entries:
            self._append({"version": SCHEMA_VERSION, "kind": kind, "place": place, "forget": True})
            del self._entries[kind, place]

    def entries(self, kind: str | None = None) -> tuple[Entry, ...]:
        """Changes that are not undone yet, oldest first."""
        return tuple(e for e in self._entries.values() if kind in (None, e.kind))

    def get(self, kind: str, place: str) -> Entry | None:
        return self._entries.get((kind, place))

    def finish(self) -> None:
        """Delete the file, because everything is undone.

        Raises:
            StoreError: changes are not undone yet; names them.
        """
        if self._entries:
            names = ", ".join(f"{kind} {place}" for kind, place in self._entries)
            raise StoreError(
                f"{len(self._entries)} changes are not undone yet: {names}",
                where=str(self.path),
                remedy="run `cephfit restore` with the options of the target that the sweep was given; the flag "
                "noout of an OSD that is down stays until it is up",
            )
        self.path.unlink(missing_ok=True)

    def _append(self, line: Mapping[str, Any]) -> None:
        if self._read_only:
            raise ValueError("this journal was opened for reading only")
        is_new = not self.path.exists()
        with self.path.open("ab", buffering=0) as file:
            end = file.tell()
            try:
                left = json.dumps(line).encode() + b"\n"
                while left:
                    left = left[file.write(left) :]
                os.fsync(file.fileno())
            except OSError as error:
                # The next line would be appended to half a line, and its original value would be lost.
                with suppress(OSError):
                    file.truncate(end)
                raise StoreError(
                    f"the journal cannot be written, so no further change is applied: {error.strerror}",
                    where=str(self.path),
                    remedy="free disk space, then start again or restore: earlier changes are in the journal",
                ) from None
        if is_new:
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)

    def _read(self) -> None:
        content = self.path.read_bytes()
        whole, _, torn = content.rpartition(b"\n")
        if torn and not self._read_only:
            with self.path.open("r+b") as file:
                file.truncate(len(content) - len(torn))
                os.fsync(file.fileno())
        for number, text in enumerate(whole.splitlines(), start=1):
            where = f"{self.path}:{number}"
            try:
                line = json.loads(text)
                version, kind, place = line["version"], line["kind"], line["place"]
                was = None if line.get("forget") else line["was"]
            except (ValueError, KeyError, TypeError):
                raise StoreError(
                    "this line of the journal is damaged",
                    where=where,
                    remedy="the lines after it are needed: correct it by hand, then run `cephfit restore`",
                ) from None
            if version != SCHEMA_VERSION:
                raise StoreError(
                    f"the journal has version {version}, this cephfit reads {SCHEMA_VERSION}",
                    where=where,
                    remedy="run `cephfit restore` with the version of cephfit that wrote it",
                )
            if line.get("forget"):
                self._entries.pop((kind, place), None)
            else:
                self._entries.setdefault((kind, place), Entry(kind, place, was))


class TargetLock:
    """An advisory lock on a file; the kernel releases it when its process ends, also when that is killed.

    Raises:
        ClusterError: another process holds it; names that process.
    """

    def __init__(self, path: Path, target: str) -> None:
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(self._descriptor, 32, 0).decode().strip()
            os.close(self._descriptor)
            raise ClusterError(
                f"another cephfit{f' (process {holder})' if holder else ''} is using this target",
                where=target,
                remedy="wait for it, or stop it with Ctrl-C: concurrent sweeps would disturb each other's results",
            ) from None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, str(os.getpid()).encode(), 0)

    def release(self) -> None:
        os.close(self._descriptor)
