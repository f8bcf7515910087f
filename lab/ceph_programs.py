"""The programs of Ceph that a lab runs: the machine's, or those of another release in a root of its own."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cephfit.core.errors import HostError
from cephfit.lab.machine import run
from cephfit.lab.processes import MARK

_ENTER = """
set -e
folder=$1 root=$2
shift 2
while read -r _ point _; do
    case $point in "$folder"/*) umount --lazy "$point" ;; esac
done </proc/self/mounts
mount --bind "$root/etc" /etc
mount --bind "$root/usr" /usr
cd /
exec "$@"
"""
"""Run in a mount namespace of the program: /usr and /etc are those of the root, all else is the machine's. Mounts
of the lab are unmounted there: a copy in this namespace would keep their devices busy. Debian's osd_class_dir is
relative to /."""


@dataclass(frozen=True, slots=True)
class CephVersion:
    """A version of Ceph.

    Attributes:
        number: ``18.2.7``.
        name: of the release, ``reef``.
    """

    number: str
    name: str

    @property
    def major(self) -> int:
        return int(self.number.partition(".")[0])

    def __str__(self) -> str:
        return f"{self.number} ({self.name})"


class CephPrograms:
    """Runs Ceph's programs for one lab.

    A program of a root runs in its own mount namespace, which ends with it: nothing is mounted on the machine.

    Args:
        folder: the lab's.
        root: with the release's ``usr`` and ``etc``; None for the machine's own programs.
    """

    def __init__(self, folder: Path, root: Path | None) -> None:
        self._folder = folder
        self._root = root

    def run(self, argv: Sequence[str], *, seconds: float = 60.0) -> str:
        """Run a program and return its standard output.

        Raises:
            HostError: it is missing, failed or took longer than ``seconds``.
        """
        if self._root is None:
            return run(argv, seconds=seconds)
        if not self._root.is_dir():
            raise HostError(
                f"the root of Ceph {self._root.name} is missing",
                where=str(self._root),
                remedy="`cephfit lab start` makes it again; check XDG_CACHE_HOME if you moved it",
            )
        enter = ["unshare", "--mount", "sh", "-c", _ENTER, "sh", str(self._folder), str(self._root)]
        # The mark identifies the shell until it has become the program.
        return run([*enter, *argv], seconds=seconds, environment={**os.environ, MARK: str(self._folder)})

    def version(self) -> CephVersion:
        """Return the version of these programs.

        Raises:
            HostError: there are none.
        """
        words = self.run(["ceph-osd", "--version"])
        found = re.match(r"ceph version (\S+) \S+ (\w+)", words)
        if found is None:
            raise HostError(f"not a version of Ceph: {words.strip()!r}", where="ceph-osd --version")
        return CephVersion(found[1], found[2])
