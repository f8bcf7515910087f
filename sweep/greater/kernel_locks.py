"""One target at a time changes the kernel values that a whole machine shares: sysctl, CPU governors, network.

Each would keep the other's value as the original, measure under it, and leave it for good. The lock is a symbolic
link on the host itself, made at once or not at all, whose text says who has it. It stays as long as the values do
that were changed: past the end of the process, until they are put back, or until the host boots.
"""

import re
import socket
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path, PurePosixPath

from cephfit.errors import CephfitError, HostError
from cephfit.sweep.attempts import Attempts
from cephfit.sweep.hosts.access import Hosts
from cephfit.sweep.hosts.host import Host, HostRefusedError, checked
from cephfit.sweep.journal import Entry, Journal

_LOCK = "lock on kernel values of"
_LINK = PurePosixPath("/run/cephfit-kernel-values")
"""Only root makes files in /run; it is empty after a boot."""
_ATTEMPTS = 3


class HostLockedError(HostError):
    """A host was reached, and somebody else has its lock."""


class KernelLocks:
    """The locks of one target, by its journal.

    A container with a /run of its own, and programs other than cephfit, are not seen.

    Args:
        hosts: of the target.
        journal: of the target; a lock is in it before it is taken.
        target: its name, for the one who is refused. One target may be given several names (``ceph``,
            ``ceph:prod``), so a lock is ours by its machine and journal.
        link: where the lock is.
    """

    def __init__(self, hosts: Hosts, journal: Journal, *, target: str, link: PurePosixPath = _LINK) -> None:
        self._hosts = hosts
        self._journal = journal
        self._link = link
        self._mine = f" on {socket.gethostname()}, {journal.path.absolute()}"
        self._ours = f"{target}{self._mine}"

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
            host = self._hosts.named(name)
            is_new = self._journal.note(_LOCK, name, None)
            try:
                self._take(host)
            except (HostLockedError, HostRefusedError):  # the host says that no lock of ours is there
                if is_new:
                    self._journal.forget(_LOCK, name)
                raise

    def take_again(self, name: str) -> None:
        """The lock of a host that is in the journal: if it has booted since, it may be somebody else's now.

        Raises:
            HostError: as ``take``.
        """
        self._take(self._hosts.named(name))

    def give_up(self, names: Collection[str]) -> None:
        """What is ours on these hosts, whose values are as they were; one that fails keeps no other back."""
        tried = Attempts()
        for entry in reversed(self._journal.entries(_LOCK)):
            if entry.place in names:
                tried.make(partial(self._give_up, entry))
        tried.end()

    def _give_up(self, entry: Entry) -> None:
        host = self._hosts.named(entry.place)
        if self._is_ours(self._holder(host)):
            checked(host, ["rm", "--force", "--", str(self._link)])
        self._journal.forget(_LOCK, entry.place)

    def _take(self, host: Host) -> None:
        for _ in range(_ATTEMPTS):
            made = host.run(["ln", "--symbolic", "--no-target-directory", "--", self._ours, str(self._link)])
            holder = self._ours if made.code == 0 else self._holder(host)
            if self._is_ours(holder):
                return
            if not holder:
                raise HostRefusedError(f"no lock can be made: {made.words}", where=f"{host.name}: {self._link}")
            if not _is_over(holder):
                who, _, journal = holder.rpartition(", ")
                raise HostLockedError(
                    f"the kernel's values here are changed by another cephfit: {who}",
                    where=host.name,
                    remedy="wait until it is done, or put back what it left: `cephfit restore` of that target; "
                    f"if its journal {journal} is lost, delete {self._link} there",
                )
            checked(host, ["rm", "--force", "--", str(self._link)])
        raise HostRefusedError("the lock changes all the time", where=f"{host.name}: {self._link}")

    def _is_ours(self, holder: str) -> bool:
        return holder.endswith(self._mine)

    def _holder(self, host: Host) -> str:
        """What the lock says; empty where there is none."""
        return host.run(["readlink", "--", str(self._link)]).stdout.rstrip("\n")


def _is_over(holder: str) -> bool:
    """Whether a holder has put back everything, or was deleted: only its own machine can tell."""
    said = re.fullmatch(r".* on (?P<machine>\S+), (?P<journal>/.*)", holder, re.DOTALL)
    if said is None or said["machine"] != socket.gethostname():
        return False
    try:
        return not Journal(Path(said["journal"]), read_only=True).entries(_LOCK)
    except (CephfitError, OSError):
        return False
