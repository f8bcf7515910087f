"""One target at a time changes the kernel values that a whole machine shares: sysctl, CPU governors, network.

Each would keep the other's value as the original, measure under it, and leave it for good. The lock is a symbolic
link on the host itself, made at once or not at all, whose text says who has it, with a token of its own. It stays
as long as the values do that were changed: past the end of the process, until they are put back, or until the host
boots.
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
"""Only root makes files in /run; it is empty after a boot."""
_ATTEMPTS = 3
_REMOVING_SECONDS = 10
"""For one who removes a lock at the same moment to be done; that takes as long as starting a program."""
_UNKNOWN = "unknown"


class HostLockedError(HostError):
    """A host was reached, and somebody else has its lock."""


class KernelLocks:
    """The locks of one target, by its journal.

    A container with a /run of its own, and programs other than cephfit, are not seen.

    Args:
        hosts: of the target.
        journal: of the target; a lock is in it before it is taken.
        target: its name, for the one who is refused. One target may be given several names (``ceph``,
            ``ceph:prod``), and a machine too: a lock is ours by the token that is in our journal.
        link: where the lock is.
    """

    def __init__(self, hosts: Hosts, journal: Journal, *, target: str, link: PurePosixPath = LINK) -> None:
        self._hosts = hosts
        self._journal = journal
        self._link = link
        self._mine = f" on {socket.gethostname()}, {journal.path.absolute()}"
        self._who = f"{target}{self._mine}, {_files_seen()}"

    def hosts(self) -> tuple[str, ...]:
        """Those that are locked, or may be, by the journal; the first one first."""
        return tuple(entry.place for entry in self._journal.entries(_LOCK))

    def take(self, names: Iterable[str]) -> None:
        """Take the locks of these hosts, and of those that were locked before; what is ours already stays so.

        Raises:
            HostLockedError: somebody else has one of them.
            HostRefusedError: the host makes no lock.
            HostError: the host cannot be reached; a lock whose making got no answer may be there, and stays in the
                journal.
        """
        for name in dict.fromkeys([*names, *self.hosts()]):
            self.take_again(name)

    def take_again(self, name: str) -> None:
        """The lock of one host: if that has booted since it was taken, it may be somebody else's now.

        Raises:
            HostError: as ``take``.
        """
        is_new = self._journal.note(_LOCK, name, secrets.token_hex(8))
        try:
            self._take_noted(name)
        except (HostLockedError, HostRefusedError):  # the host says that no lock of ours is there
            if is_new:
                self._journal.forget(_LOCK, name)
            raise

    def _take_noted(self, name: str) -> None:
        entry = self._journal.get(_LOCK, name)
        assert entry is not None, "it is in the journal"
        if entry.was is None:
            if self._is_ours(self._holder(self._hosts.named(name))):
                return
            self._journal.forget(_LOCK, name)  # no lock of ours is there
            self._journal.note(_LOCK, name, token := secrets.token_hex(8))
        else:
            token = str(entry.was)
        self._take(name, token)

    def give_up(self, names: Collection[str]) -> None:
        """What is ours on these hosts, whose values are as they were; one that fails keeps no other back."""
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
            if not holder:  # it was given up in between, or cannot be made at all
                refused = f"no lock can be made: {made.words}"
                continue
            if not _is_over(holder):
                raise self._locked(host, holder)
            self._remove(host, holder)
        raise HostRefusedError(refused, where=f"{host.name}: {self._link}")

    def _locked(self, host: Host, holder: str) -> HostLockedError:
        said = _parts(holder)
        who, journal = (said["who"], f"its journal {said['journal']}") if said else (holder, "its journal")
        return HostLockedError(
            f"the kernel's values here are changed by another cephfit: {who}",
            where=host.name,
            remedy="wait until it is done, or put back what it left: `cephfit restore` of that target; "
            f"if {journal} is lost, delete {self._link} there",
        )

    def _is_ours(self, holder: str) -> bool:
        """Earlier versions of cephfit told locks by machine and journal, and noted no token."""
        said, tokens = _parts(holder), {entry.was for entry in self._journal.entries(_LOCK)}
        if said is None or said["token"] not in tokens:
            return False
        return said["token"] is not None or holder.endswith(self._mine)

    def _holder(self, host: Host) -> str:
        """What the lock says; empty where there is none."""
        return host.run(["readlink", "--", str(self._link)]).stdout.rstrip("\n")

    def _remove(self, host: Host, holder: str) -> None:
        """Remove the lock if it still says this: another may have removed it since, and made its own.

        Looking and removing are one step among all who do so.
        """
        as_it_is = re.sub(r"([*?\[\]\\])", r"\\\1", holder)  # find(1) takes a pattern
        find = ["find", str(self._link), "-maxdepth", "0", "-lname", as_it_is, "-delete"]
        done = host.run(["flock", f"--timeout={_REMOVING_SECONDS}", str(self._link.parent), *find])
        if self._holder(host) == holder:
            raise HostRefusedError(f"the lock cannot be removed: {done.words}", where=f"{host.name}: {self._link}")


def _parts(holder: str) -> re.Match[str] | None:
    """What a lock says; those of earlier versions of cephfit end with the journal: no files, no token."""
    form = r"(?P<who>.* on (?P<machine>\S+)), (?P<journal>/.*?)(?:, (?P<files>[^,\s]+):(?P<token>\w+))?"
    return re.fullmatch(form, holder, re.DOTALL)


def _files_seen() -> str:
    """This boot of this machine and the mounts that this process sees, as one word.

    Machines may share a name, and even ``/etc/machine-id`` where a disk was copied; a container shares the kernel
    and has files of its own. Only who has the same word and name finds a holder's journal by its path.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/mnt').readlink()}"
    except OSError:
        return _UNKNOWN


def _is_over(holder: str) -> bool:
    """Whether a holder has put back everything, or was deleted: only who sees its files can tell."""
    said = _parts(holder)
    here = (socket.gethostname(), _files_seen())
    if said is None or (said["machine"], said["files"]) != here or _UNKNOWN in here:
        return False
    try:
        entries = Journal(Path(said["journal"]), read_only=True).entries(_LOCK)
    except (CephfitError, OSError):
        return False
    return all(entry.was != said["token"] for entry in entries)
