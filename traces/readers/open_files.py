"""Which file is behind a descriptor, and where in it the next read or write goes: for traces of system calls."""

import re
from dataclasses import dataclass, field

_NOT_ON_A_DISK = re.compile(
    r"^(/proc/|/sys/|/dev/(null|zero|full|random|urandom|tty|pts|ptmx|std|fd/|shm/|console|kmsg)|pipe:|socket:|"
    r"anon_inode:|/memfd:|(TCP|UDP|UNIX|NETLINK)\w*:)"
)


@dataclass(slots=True)
class OpenFile:
    """What ``open`` made; shared by all descriptors that were duplicated from it.

    Attributes:
        path: as the program named it.
        position: where the next read or write goes; None: not known.
        on_disk: it is a file or block device, as far as its name tells.
        closed_by_exec: O_CLOEXEC.
    """

    path: str
    position: int | None = 0
    on_disk: bool = True
    closed_by_exec: bool = False

    @classmethod
    def named(cls, path: str, position: int | None = 0, *, closed_by_exec: bool = False) -> "OpenFile":
        return cls(path, position, _NOT_ON_A_DISK.match(path) is None, closed_by_exec)


@dataclass(slots=True)
class Descriptors:
    """The descriptors of one process; its threads share them."""

    files: dict[int, OpenFile] = field(default_factory=dict)

    def copied(self) -> "Descriptors":
        """As fork does: other descriptors of the same open files."""
        return Descriptors(dict(self.files))


class Processes:
    """All processes of a trace. A thread whose creator's call has not yet returned shares with the process that
    called last."""

    _MAX = 1 << 16

    def __init__(self) -> None:
        self._tables: dict[int, Descriptors] = {}
        self._latest = Descriptors()

    def of(self, pid: int) -> Descriptors:
        table = self._tables.get(pid)
        if table is None:
            table = self._latest
            if len(self._tables) < self._MAX:
                self._tables[pid] = table
        self._latest = table
        return table

    def begun(self, parent: int, child: int, *, shares: bool) -> None:
        table = self.of(parent)
        if len(self._tables) >= self._MAX:
            return
        if shares:
            self._tables[child] = table
        elif self._tables.get(child, table) is table:  # its first lines may have come before
            self._tables[child] = table.copied()
