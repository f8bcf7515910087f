"""Values of the kernel that are files of a host (/sys, /proc/sys): journalled, set, read back, put back."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from cephfit.errors import HostError
from cephfit.sweep.hosts.access import Hosts
from cephfit.sweep.hosts.host import Host
from cephfit.sweep.journal import Entry, Journal

_FILE = "host file"


@dataclass(frozen=True, slots=True, order=True)
class HostFile:
    """One value of the kernel on one host.

    Attributes:
        host: name, as ``Hosts`` knows it.
        path: absolute.
    """

    host: str
    path: str

    @property
    def place(self) -> str:
        return f"{self.host}:{self.path}"

    @classmethod
    def of_place(cls, place: str) -> "HostFile":
        host, _, path = place.partition(":")
        return cls(host, path)


_SCHEDULER = "/queue/scheduler"
_RESET_BY_SCHEDULER = ("nr_requests", "wbt_lat_usec")
"""Values of a disk's queue that the kernel sets anew when another I/O scheduler takes it over."""


def _companions(file: HostFile) -> list[HostFile]:
    """Files whose values change when this one does."""
    if not file.path.endswith(_SCHEDULER):
        return []
    queue = file.path.removesuffix("scheduler")
    return [HostFile(file.host, queue + key) for key in _RESET_BY_SCHEDULER]


def _group(file: HostFile) -> HostFile:
    """Files of one group are put back and set together, because some change others: a disk's queue."""
    folder = file.path.rpartition("/")[0]
    return HostFile(file.host, folder) if folder.endswith("/queue") else file


def _order(file: HostFile) -> tuple[bool, HostFile]:
    """The scheduler first: it resets what stands beside it."""
    return not file.path.endswith(_SCHEDULER), file


class HostFiles:
    """Brings values of hosts from whatever they are to what is wanted.

    Works from the journal and the hosts themselves, so that a process killed anywhere leaves a state from which
    the next one goes on.
    """

    def __init__(self, hosts: Hosts, journal: Journal) -> None:
        self._hosts = hosts
        self._journal = journal

    def apply(self, wanted: Mapping[HostFile, str]) -> None:
        """Set these; every value changed before and not wanted now gets its original.

        Raises:
            HostRefusedError: a kernel refuses a value.
            HostError: a host cannot be reached, or has no such value.
        """
        groups: defaultdict[HostFile, dict[HostFile, str]] = defaultdict(dict)
        for file, value in wanted.items():
            groups[_group(file)][file] = value
        changed = defaultdict(list)
        for entry in self._journal.entries(_FILE):
            changed[_group(HostFile.of_place(entry.place))].append(entry)
        for group in {**changed, **groups}:
            if not self._stands(groups.get(group, {}), changed.get(group, [])):
                for entry in sorted(changed.get(group, []), key=lambda e: _order(HostFile.of_place(e.place))):
                    self._put_back(entry)
                self._set(groups.get(group, {}))

    def _stands(self, wanted: Mapping[HostFile, str], changed: Sequence[Entry]) -> bool:
        """Whether a group is as it is wanted, and nothing else of it was changed; not asked of a scheduler."""
        places = {file.place for file in wanted}
        if any(_companions(file) for file in [*wanted, *(HostFile.of_place(e.place) for e in changed)]):
            return False
        return all(e.place in places for e in changed) and all(self.value(f) == v for f, v in wanted.items())

    def _set(self, wanted: Mapping[HostFile, str]) -> None:
        for file, value in wanted.items():
            was = self.value(file)
            if was != value:
                self._journal.note(_FILE, file.place, was)
                for companion in _companions(file):
                    if self.exists(companion):
                        self._journal.note(_FILE, companion.place, self.value(companion))
        for file in sorted(wanted, key=_order):
            if self.value(file) != wanted[file]:
                # Noted before as a companion, where another value of the group changed it just now.
                self._journal.note(_FILE, file.place, self.value(file))
                self._host(file).write(PurePosixPath(file.path), wanted[file])

    def restore(self, below: HostFile | None = None) -> None:
        """Everything as it was, or only what lies in one folder of a host."""
        entries = [(HostFile.of_place(e.place), e) for e in self._journal.entries(_FILE)]
        for file, entry in sorted(entries, key=lambda pair: _order(pair[0])):
            if below is None or (file.host == below.host and file.path.startswith(f"{below.path}/")):
                self._put_back(entry)

    def value(self, file: HostFile) -> str:
        """A value as it is now: of a choice such as ``none [mq-deadline] kyber`` the one in brackets.

        Raises:
            HostError: the host cannot be reached, or has no such value.
        """
        text = self._host(file).read(PurePosixPath(file.path))
        _, bracket, rest = text.partition("[")
        return rest.partition("]")[0] if bracket else " ".join(text.split())

    def choices(self, file: HostFile) -> tuple[str, ...]:
        """What a value may be, where the kernel lists it in the file; empty where it does not."""
        text = self._host(file).read(PurePosixPath(file.path))
        return tuple(word.strip("[]") for word in text.split()) if "[" in text else ()

    def exists(self, file: HostFile) -> bool:
        return self._host(file).exists(PurePosixPath(file.path))

    def words(self, file: HostFile) -> tuple[str, ...]:
        """The content of a file apart by blanks."""
        return tuple(self._host(file).read(PurePosixPath(file.path)).split())

    def _put_back(self, entry: Entry) -> None:
        file = HostFile.of_place(entry.place)
        # A disk that is gone took its queue with it.
        if self.exists(file) and self.value(file) != entry.was:
            self._host(file).write(PurePosixPath(file.path), str(entry.was))
            if self.value(file) != entry.was:
                raise HostError(f"is {self.value(file)} again after {entry.was!r} was put back", where=file.place)
        self._journal.forget(_FILE, entry.place)

    def _host(self, file: HostFile) -> Host:
        return self._hosts.named(file.host)
