"""Kernel values that are files of a host (/sys, /proc/sys): locked, journalled, set, read back, restored.

Values that a whole machine shares (sysctl, CPU governors, network) are locked: one target at a time. Two targets
would each record the other's value as the original, measure under it, and leave it there. The lock is a symbolic
link on the host, created atomically; its text states the holder and a unique token. It stays as long as the
changed values do: past the end of the process, until they are restored or the host boots.
"""

import re
import secrets
import socket
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath

from cephfit.ceph.host import Host, HostRefusedError
from cephfit.ceph.host_access import Hosts
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.errors import CephfitError, HostError
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
        moved = [g for g in {**changed, **groups} if not _is_in_effect(groups.get(g, {}), changed.get(g, []), now)]
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


def _is_in_effect(required: Mapping[HostFile, str], changed: Sequence[Entry], now: Mapping[HostFile, str]) -> bool:
    """Return whether a group has the required values and no other change; schedulers are not compared."""
    places = {file.place for file in required}
    if any(_companions(file) for file in [*required, *(HostFile.of_place(e.place) for e in changed)]):
        return False
    return all(e.place in places for e in changed) and all(now.get(f) == v for f, v in required.items())


_LOCK = "lock on kernel values of"
LINK = PurePosixPath("/run/cephfit-kernel-values")
"""Only root creates files in /run; it is empty after a boot."""
_ATTEMPTS = 3
_REMOVING_SECONDS = 10
"""Time for a concurrent removal of a lock to finish, which takes as long as starting a program."""
_UNKNOWN = "unknown"


class HostLockedError(HostError):
    """A host was reached, but another target has its lock."""


class KernelLocks:
    """The locks of one target, by its journal.

    A container with a separate /run, and programs other than cephfit, are not detected.

    Args:
        hosts: of the target.
        journal: of the target; a lock is in it before it is taken.
        target: its name, for other targets' messages. A target may have several names (``ceph``, ``ceph:prod``),
            and a machine too: the token in our journal identifies our locks.
        link: path of the lock.
    """

    def __init__(self, hosts: Hosts, journal: Journal, *, target: str, link: PurePosixPath = LINK) -> None:
        self._hosts = hosts
        self._journal = journal
        self._link = link
        self._mine = f" on {socket.gethostname()}, {journal.path.absolute()}"
        self._who = f"{target}{self._mine}, {_files_seen()}"

    def hosts(self) -> tuple[str, ...]:
        """Return the hosts that are or may be locked, by the journal, oldest first."""
        return tuple(entry.place for entry in self._journal.entries(_LOCK))

    def take(self, names: Iterable[str]) -> None:
        """Take the locks of these hosts and of those that were locked before; locks that are ours stay.

        Raises:
            HostLockedError: another target has one of them.
            HostRefusedError: the host creates no lock.
            HostError: the host is unreachable; a lock without an answer to its creation may exist, and stays in
                the journal.
        """
        for name in dict.fromkeys([*names, *self.hosts()]):
            self.take_again(name)

    def take_again(self, name: str) -> None:
        """Take the lock of one host: after a boot of the host another target may have it.

        Raises:
            HostError: as ``take``.
        """
        is_new = self._journal.note(_LOCK, name, secrets.token_hex(8))
        try:
            self._take_noted(name)
        except (HostLockedError, HostRefusedError):  # the host reports that it has no lock of ours
            if is_new:
                self._journal.forget(_LOCK, name)
            raise

    def _take_noted(self, name: str) -> None:
        entry = self._journal.get(_LOCK, name)
        assert entry is not None, "it is in the journal"
        if entry.was is None:
            if self._is_ours(self._holder(self._hosts.named(name))):
                return
            self._journal.forget(_LOCK, name)  # it is not our lock
            self._journal.note(_LOCK, name, token := secrets.token_hex(8))
        else:
            token = str(entry.was)
        self._take(name, token)

    def give_up(self, names: Collection[str]) -> None:
        """Release our locks on these hosts with restored values; a failure does not prevent the others."""
        tried = ErrorCollector()
        for entry in reversed(self._journal.entries(_LOCK)):
            if entry.place in names:
                tried.make(partial(self._give_up, entry))
        tried.end()

    def _give_up(self, entry: Entry) -> None:
        host = self._hosts.named(entry.place)
        if self._is_ours(holder := self._holder(host)):
            self._remove(host, holder)
        self._journal.forget(_LOCK, entry.place)

    def _take(self, name: str, token: str) -> None:
        host = self._hosts.named(name)
        ours = f"{self._who}:{token}"
        refused = "the lock changes all the time"
        for _ in range(_ATTEMPTS):
            made = host.run(["ln", "--symbolic", "--no-target-directory", "--", ours, str(self._link)])
            holder = ours if made.code == 0 else self._holder(host)
            if self._is_ours(holder):
                return
            if not holder:  # it was released in between, or cannot be created at all
                refused = f"no lock can be created: {made.words}"
                continue
            if not _is_over(holder):
                raise self._locked(host, holder)
            self._remove(host, holder)
        raise HostRefusedError(refused, where=f"{host.name}: {self._link}")

    def _locked(self, host: Host, holder: str) -> HostLockedError:
        parts = _parts(holder)
        who, journal = (parts["who"], f"its journal {parts['journal']}") if parts else (holder, "its journal")
        return HostLockedError(
            f"the kernel values here are in use by another cephfit: {who}",
            where=host.name,
            remedy="wait until it is done, or undo its changes: `cephfit restore` of that target; "
            f"if {journal} is lost, delete {self._link} there",
        )

    def _is_ours(self, holder: str) -> bool:
        """Return whether a lock is ours; locks of earlier versions have machine and journal but no token."""
        parts, tokens = _parts(holder), {entry.was for entry in self._journal.entries(_LOCK)}
        if parts is None or parts["token"] not in tokens:
            return False
        return parts["token"] is not None or holder.endswith(self._mine)

    def _holder(self, host: Host) -> str:
        """Read the text of the lock; empty without one."""
        return host.run(["readlink", "--", str(self._link)]).stdout.rstrip("\n")

    def _remove(self, host: Host, holder: str) -> None:
        """Remove the lock if it still has this text: another target may have replaced it.

        The comparison and the removal are one atomic step.
        """
        as_it_is = re.sub(r"([*?\[\]\\])", r"\\\1", holder)  # find(1) takes a pattern
        find = ["find", str(self._link), "-maxdepth", "0", "-lname", as_it_is, "-delete"]
        done = host.run(["flock", f"--timeout={_REMOVING_SECONDS}", str(self._link.parent), *find])
        if self._holder(host) == holder:
            raise HostRefusedError(f"the lock cannot be removed: {done.words}", where=f"{host.name}: {self._link}")


def _parts(holder: str) -> re.Match[str] | None:
    """Parse a lock's text; those of earlier versions end with the journal, without files and token."""
    form = r"(?P<who>.* on (?P<machine>\S+)), (?P<journal>/.*?)(?:, (?P<files>[^,\s]+):(?P<token>\w+))?"
    return re.fullmatch(form, holder, re.DOTALL)


def _files_seen() -> str:
    """Identify this boot of this machine and the mounts of this process, as one word.

    Machines may share a name, and even ``/etc/machine-id`` if a disk was copied. A container shares the kernel but
    has separate files. Only a process with the same word and name finds a holder's journal by its path.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/mnt').readlink()}"
    except OSError:
        return _UNKNOWN


def _is_over(holder: str) -> bool:
    """Return whether a holder restored everything or was deleted; requires access to the same files."""
    parts = _parts(holder)
    here = (socket.gethostname(), _files_seen())
    if parts is None or (parts["machine"], parts["files"]) != here or _UNKNOWN in here:
        return False
    try:
        entries = Journal(Path(parts["journal"]), read_only=True).entries(_LOCK)
    except (CephfitError, OSError):
        return False
    return all(entry.was != parts["token"] for entry in entries)
