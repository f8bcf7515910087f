"""A machine on which small things are read, set and run. One contract suite runs against every implementation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from cephfit.errors import HostError

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where programs are looked for: sysctl, tc and ethtool lie in folders that a user's PATH often lacks."""


class HostRefusedError(HostError):
    """A host was reached and did not do it: its kernel refused a value, or a program failed there."""


@dataclass(frozen=True, slots=True)
class Finished:
    """A program that ran to its end.

    Attributes:
        code: its exit code; negative for a signal.
        stdout: what it printed, as UTF-8 (other bytes replaced).
        stderr: the same of its errors.
    """

    code: int
    stdout: str
    stderr: str

    @property
    def words(self) -> str:
        """The last lines of what it said, for a message."""
        said = self.stderr.strip() or self.stdout.strip() or "it said nothing"
        return " / ".join(said.splitlines()[-3:])


class Host(Protocol):
    """One machine. Safe to call from several threads; every call is complete when it returns.

    Paths are absolute. Files are small: values of the kernel, configuration.
    """

    name: str
    """As people know it; part of a journal's entries."""

    def run(self, argv: Sequence[str], *, seconds: float = 30.0, stdin: str | bytes = "") -> Finished:
        """Run a program to its end, in the C locale, whatever its exit code.

        Args:
            argv: program and arguments; no shell looks at them.
            seconds: how long it may take; it is ended then.
            stdin: what it reads on standard input; text as UTF-8.

        Raises:
            HostError: the machine cannot be reached, has no such program, or it took too long.
        """

    def read(self, path: PurePosixPath) -> str:
        """The content of a file.

        Raises:
            HostError: it is not there, or must not be read.
        """

    def read_all(self, paths: Sequence[PurePosixPath]) -> Mapping[PurePosixPath, str]:
        """The contents of many files at once; those that are not there, cannot be read or are empty are left out.

        Raises:
            HostError: the machine cannot be reached.
        """

    def write(self, path: PurePosixPath, text: str) -> None:
        """Write a file that is there (a value of the kernel) or make it.

        Raises:
            HostRefusedError: it cannot be written, or the kernel refuses the value.
            HostError: the machine cannot be reached.
        """

    def exists(self, path: PurePosixPath) -> bool:
        """Whether there is such a file or folder.

        Raises:
            HostError: the machine cannot be reached.
        """

    def close(self) -> None:
        """Let go of the connection; a later call connects again. Safe to call twice."""


def checked(host: Host, argv: Sequence[str], *, seconds: float = 30.0, stdin: str | bytes = "") -> str:
    """Run a program that must succeed, and return what it printed.

    Raises:
        HostRefusedError: its exit code was not 0; with its own last words.
        HostError: as ``Host.run``.
    """
    done = host.run(argv, seconds=seconds, stdin=stdin)
    if done.code != 0:
        raise HostRefusedError(
            f"failed with code {done.code}: {done.words}", where=f"{host.name}: {' '.join(argv)}"
        )
    return done.stdout
