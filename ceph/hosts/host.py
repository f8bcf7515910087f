"""A machine on which small files are read and replaced, and programs run: the protocol of all hosts.

A machine on which small things are read, set and run. One contract suite runs against every implementation.

Files of a host that are read to the last byte and replaced at once, such as a ceph.conf.
"""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Protocol

from cephfit.core.errors import HostError

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


_DRAFT = ".cephfit-new"


def read_bytes(host: Host, path: PurePosixPath) -> bytes:
    """The content of a file, whatever bytes it has.

    Raises:
        HostError: it is not there, or must not be read.
    """
    return base64.b64decode(checked(host, ["base64", "--wrap=0", "--", str(path)]))


def replace(host: Host, path: PurePosixPath, content: bytes) -> None:
    """Give a file that is there another content: whoever opens it gets the old or the new one, also after a crash.

    Owner, mode and extended attributes stay; a symbolic link goes on leading to the file. Called again after a
    kill at any instant, it leaves nothing beside the file.

    Raises:
        HostRefusedError: the host refuses.
        HostError: it cannot be reached.
    """
    real = PurePosixPath(
        checked(host, ["readlink", "--canonicalize-existing", "--verbose", "--", str(path)]).rstrip("\n")
    )
    draft = _draft(real)
    try:
        # The copy has the file's owner and mode before it has any content that others must not read.
        checked(host, ["cp", "--preserve=all", "--no-target-directory", "--", str(real), str(draft)])
        checked(host, ["dd", f"of={draft}", "conv=fsync", "status=none"], stdin=content)
        if read_bytes(host, draft) != content:
            raise HostRefusedError(
                "the host wrote something else than it was given", where=f"{host.name}: {draft}"
            )
        checked(host, ["mv", "--force", "--no-target-directory", "--", str(draft), str(real)])
        checked(host, ["sync", "--", str(real.parent)])
    except HostRefusedError:
        remove_draft(host, path)
        raise


def remove_draft(host: Host, path: PurePosixPath) -> None:
    """Remove what a killed ``replace`` left beside a file; nothing if it left nothing.

    Raises:
        HostError: it cannot be removed.
    """
    try:
        real = checked(host, ["readlink", "--canonicalize-existing", "--verbose", "--", str(path)]).rstrip("\n")
    except HostRefusedError:
        return  # without the file there is nothing beside it
    try:
        checked(host, ["rm", "--force", "--", str(_draft(PurePosixPath(real)))])
    except HostRefusedError as error:
        raise HostError(f"a draft cannot be removed: {error.what}", where=f"{host.name}: {path}") from None


def _draft(real: PurePosixPath) -> PurePosixPath:
    return real.with_name(real.name + _DRAFT)
