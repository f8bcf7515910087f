"""Kernel values that are files of a host (/sys, /proc/sys): journalled, set, read back, restored."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath

from cephfit.ceph.hosts.host import HostRefusedError
from cephfit.ceph.hosts.host_access import Hosts
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.journal import Entry, Journal

_FILE = "host file"


@dataclass(frozen=True, slots=True, order=True)
class HostFile:
    """One value of the kernel on one host.

    Attributes:
        host: name in ``Hosts``.
        path: absolute.
    """

    host: str
    path: str

    @property
    def is_of_a_disk(self) -> bool:
        """Whether it belongs to one disk, and so to one cluster; the whole host shares all others."""
        return self.path.startswith("/sys/block/")

    @property
    def place(self) -> str:
        return f"{self.host}:{self.path}"

    @classmethod
    def of_place(cls, place: str) -> "HostFile":
        host, _, path = place.partition(":")
        return cls(host, path)


_SCHEDULER = "/queue/scheduler"
_RESET_BY_SCHEDULER = ("nr_requests", "wbt_lat_usec")
"""Values of a disk's queue that the kernel resets when another I/O scheduler takes over."""


def _companions(file: HostFile) -> list[HostFile]:
    """Files with values that change when this one does."""
    if not file.path.endswith(_SCHEDULER):
        return []
    queue = file.path.removesuffix("scheduler")
    return [HostFile(file.host, queue + key) for key in _RESET_BY_SCHEDULER]


def _group(file: HostFile) -> HostFile:
    """Files of one group are restored and set together, because some change others: a disk's queue."""
    folder = file.path.rpartition("/")[0]
    return HostFile(file.host, folder) if folder.endswith("/queue") else file


def _order(file: HostFile) -> tuple[bool, HostFile]:
    """Sort the scheduler first: it resets the other values of the queue."""
    return not file.path.endswith(_SCHEDULER), file


class HostFiles:
    """Brings values of hosts from any state to the required one.

    It reads its state from the journal and the hosts, so that the next process can continue after a kill at any
    point. All files of a host are read with one command.
    """

    def __init__(self, hosts: Hosts, journal: Journal) -> None:
        self._hosts = hosts
        self._journal = journal

    def apply(self, required: Mapping[HostFile, str]) -> None:
        """Set these values; restore every other value that was changed before.

        Raises:
            HostRefusedError: a kernel refuses a value, or does not have it.
            HostError: a host is unreachable.
        """
        groups: defaultdict[HostFile, dict[HostFile, str]] = defaultdict(dict)
        for file, value in required.items():
            groups[_group(file)][file] = value
        changed: defaultdict[HostFile, list[Entry]] = defaultdict(list)
        for entry in self._journal.entries(_FILE):
            changed[_group(HostFile.of_place(entry.place))].append(entry)
        now = self.values([*required, *(HostFile.of_place(e.place) for group in changed.values() for e in group)])
        moved = [g for g in {**changed, **groups} if not _stands(groups.get(g, {}), changed.get(g, []), now)]
        self._put_back([entry for group in moved for entry in changed.get(group, [])], now)
        self._set({file: value for group in moved for file, value in groups.get(group, {}).items()})

    def hosts(self) -> set[str]:
        """Return the hosts with a changed value that the whole host shares, by the journal."""
        files = (HostFile.of_place(entry.place) for entry in self._journal.entries(_FILE))
        return {file.host for file in files if not file.is_of_a_disk}

    def restore(
        self, below: HostFile | None = None, *, without: Collection[str] = (), with_disks: bool = True
    ) -> None:
        """Restore everything, or only the files of one folder of a host.

        An unreachable host does not prevent the others.

        Args:
            below: the folder.
            without: hosts that stay unchanged and in the journal.
            with_disks: False leaves the values of disks too.
        """
        by_host: defaultdict[str, list[Entry]] = defaultdict(list)
        for entry in self._journal.entries(_FILE):
            file = HostFile.of_place(entry.place)
            is_there = below is None or entry.place.startswith(f"{below.place}/")
            if is_there and (with_disks or not file.is_of_a_disk):
                by_host[file.host].append(entry)
        tried = ErrorCollector()
        for host, entries in by_host.items():
            if host not in without:
                tried.make(partial(self._restore, entries))
        tried.end()

    def _restore(self, entries: Sequence[Entry]) -> None:
        self._put_back(entries, self.values([HostFile.of_place(entry.place) for entry in entries]))

    def contents(self, files: Iterable[HostFile]) -> dict[HostFile, str]:
        """Read the files; those that do not exist are omitted.

        Raises:
            HostError: a host is unreachable.
        """
        by_host: defaultdict[str, list[HostFile]] = defaultdict(list)
        for file in dict.fromkeys(files):
            by_host[file.host].append(file)
        found = {}
        for host, ours in by_host.items():
            texts = self._hosts.named(host).read_all([PurePosixPath(file.path) for file in ours])
            found.update({f: texts[p] for f in ours if (p := PurePosixPath(f.path)) in texts})
        return found

    def values(self, files: Iterable[HostFile]) -> dict[HostFile, str]:
        """Read the present values: of a choice such as ``none [mq-deadline] kyber`` the one in brackets."""
        return {file: _value(text) for file, text in self.contents(files).items()}

    def _put_back(self, entries: Sequence[Entry], now: Mapping[HostFile, str]) -> None:
        """Restore journal entries.

        Args:
            entries: of the journal.
            now: values of their files, without those of detached disks.
        """
        files = {HostFile.of_place(entry.place): entry for entry in entries}
        reset = {_group(f) for f, e in files.items() if _companions(f) and now.get(f, e.was) != e.was}
        tried = ErrorCollector()
        for file in sorted(files, key=_order):
            if file in now and (now[file] != files[file].was or _group(file) in reset):
                tried.make(partial(self._write, file, str(files[file].was)))
        back = self.values(files)
        for file, entry in files.items():
            tried.make(partial(self._forget, entry, back.get(file, entry.was)))
        tried.end()

    def _forget(self, entry: Entry, now: str) -> None:
        if now != entry.was:
            raise HostRefusedError(f"is {now} again after {entry.was!r} was restored", where=entry.place)
        self._journal.forget(_FILE, entry.place)

    def _set(self, required: Mapping[HostFile, str]) -> None:
        others_of = {file: _companions(file) for file in required}
        was = self.values([*required, *(c for companions in others_of.values() for c in companions)])
        for file, value in required.items():
            if file not in was:
                raise HostRefusedError("this kernel does not have this value", where=file.place)
            if was[file] != value:
                for changing in (file, *(c for c in others_of[file] if c in was)):
                    self._journal.note(_FILE, changing.place, was[changing])
        reset = {_group(file) for file, others in others_of.items() if others and was[file] != required[file]}
        for file in sorted(required, key=_order):
            if was[file] != required[file] or _group(file) in reset:
                self._journal.note(_FILE, file.place, was[file])
                self._write(file, required[file])

    def _write(self, file: HostFile, value: str) -> None:
        self._hosts.named(file.host).write(PurePosixPath(file.path), value)


def _value(text: str) -> str:
    _, bracket, rest = text.partition("[")
    return rest.partition("]")[0] if bracket else " ".join(text.split())


def choices(text: str) -> tuple[str, ...]:
    """Return the choices of a value that the kernel lists in the file; empty without a list."""
    return tuple(word.strip("[]") for word in text.split()) if "[" in text else ()


def _stands(required: Mapping[HostFile, str], changed: Sequence[Entry], now: Mapping[HostFile, str]) -> bool:
    """Return whether a group has the required values and no other change; schedulers are not compared."""
    places = {file.place for file in required}
    if any(_companions(file) for file in [*required, *(HostFile.of_place(e.place) for e in changed)]):
        return False
    return all(e.place in places for e in changed) and all(now.get(f) == v for f, v in required.items())
