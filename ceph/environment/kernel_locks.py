"""Lock on the kernel values that a whole machine shares (sysctl, CPU governors, network): one target at a time.

Two targets would each record the other's value as the original, measure under it, and leave it there. The lock is
a symbolic link on the host, created atomically; its text states the holder and a unique token. It stays as long as
the changed values do: past the end of the process, until they are restored or the host boots.
"""

import re
import secrets
import socket
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path, PurePosixPath

from cephfit.ceph.hosts.host import Host, HostRefusedError
from cephfit.ceph.hosts.host_access import Hosts
from cephfit.core.cleanup import ErrorCollector
from cephfit.core.errors import CephfitError, HostError
from cephfit.core.journal import Entry, Journal

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
            the
                journal.
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
