"""Protocol of all hosts (read and replace small files, run programs), and this machine as one of them.

One contract suite tests every implementation. Functions here read and atomically replace whole files of a host,
such as a ceph.conf.
"""

import base64
import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from cephfit.core.errors import HostError, LackingError

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Search path for programs: sysctl, tc and ethtool are in folders that a user's PATH often lacks."""


class HostRefusedError(HostError):
    """A host was reached and refused: its kernel rejected a value, or a program failed there."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The result of a program.

    Attributes:
        code: its exit code; negative for a signal.
        stdout: its output, as UTF-8 (other bytes replaced).
        stderr: its error output, likewise.
    """

    code: int
    stdout: str
    stderr: str

    @property
    def words(self) -> str:
        """The last lines of its output, for a message."""
        reported = self.stderr.strip() or self.stdout.strip() or "no output"
        return " / ".join(reported.splitlines()[-3:])


class Host(Protocol):
    """One machine. Safe to use from several threads; every call is complete when it returns.

    Paths are absolute. Files are small: values of the kernel, configuration.
    """

    name: str
    """The name that users see; part of a journal's entries."""

    def run(self, argv: Sequence[str], *, seconds: float = 30.0, stdin: str | bytes = "") -> Finished:
        """Run a program to its end, in the C locale, whatever its exit code.

        Args:
            argv: program and arguments; no shell interprets them.
            seconds: time limit; the program is ended then.
            stdin: standard input of the program; text as UTF-8.

        Raises:
            HostError: the machine is unreachable, does not have the program, or the program took too long.
        """

    def read(self, path: PurePosixPath) -> str:
        """Read a file.

        Raises:
            HostError: it does not exist, or is not readable.
        """

    def read_all(self, paths: Sequence[PurePosixPath]) -> Mapping[PurePosixPath, str]:
        """Read many files at once; those that do not exist, are unreadable or empty are omitted.

        Raises:
            HostError: the machine is unreachable.
        """

    def write(self, path: PurePosixPath, text: str) -> None:
        """Write an existing file (a value of the kernel) or create it.

        Raises:
            HostRefusedError: it cannot be written, or the kernel refuses the value.
            HostError: the machine is unreachable.
        """

    def exists(self, path: PurePosixPath) -> bool:
        """Return whether there is such a file or folder.

        Raises:
            HostError: the machine is unreachable.
        """

    def close(self) -> None:
        """Close the connection; a later call connects again. Safe to call twice."""


def checked(host: Host, argv: Sequence[str], *, seconds: float = 30.0, stdin: str | bytes = "") -> str:
    """Run a program that must succeed, and return its output.

    Raises:
        HostRefusedError: its exit code was not 0; the message has its last lines.
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
    """Read a file as bytes.

    Raises:
        HostError: it does not exist, or is not readable.
    """
    return base64.b64decode(checked(host, ["base64", "--wrap=0", "--", str(path)]))


def replace(host: Host, path: PurePosixPath, content: bytes) -> None:
    """Replace the content of an existing file atomically: readers get the old or the new one, also after a crash.

    Owner, mode and extended attributes stay; a symbolic link still leads to the file. After a kill at any instant,
    a second call removes the temporary file.

    Raises:
        HostRefusedError: the host refuses.
        HostError: it is unreachable.
    """
    real = PurePosixPath(
        checked(host, ["readlink", "--canonicalize-existing", "--verbose", "--", str(path)]).rstrip("\n")
    )
    draft = _draft(real)
    try:
        # The copy gets the file's owner and mode before any content that others must not read.
        checked(host, ["cp", "--preserve=all", "--no-target-directory", "--", str(real), str(draft)])
        checked(host, ["dd", f"of={draft}", "conv=fsync", "status=none"], stdin=content)
        if read_bytes(host, draft) != content:
            raise HostRefusedError("the host wrote other bytes than those sent", where=f"{host.name}: {draft}")
        checked(host, ["mv", "--force", "--no-target-directory", "--", str(draft), str(real)])
        checked(host, ["sync", "--", str(real.parent)])
    except HostRefusedError:
        remove_draft(host, path)
        raise


def remove_draft(host: Host, path: PurePosixPath) -> None:
    """Remove the temporary file that a killed ``replace`` left, if there is one.

    Raises:
        HostError: it cannot be removed.
    """
    try:
        real = checked(host, ["readlink", "--canonicalize-existing", "--verbose", "--", str(path)]).rstrip("\n")
    except HostRefusedError:
        return  # without the file there is no temporary file
    try:
        checked(host, ["rm", "--force", "--", str(_draft(PurePosixPath(real)))])
    except HostRefusedError as error:
        raise HostError(
            f"a temporary file cannot be removed: {error.what}", where=f"{host.name}: {path}"
        ) from None


def _draft(real: PurePosixPath) -> PurePosixPath:
    return real.with_name(real.name + _DRAFT)


class LocalHost:
    """Implements ``Host`` on the machine that cephfit runs on.

    Args:
        name: in messages and journals.
    """

    def __init__(self, name: str = "localhost") -> None:
        self.name = name

    def run(self, argv: Sequence[str], *, seconds: float = 30.0, stdin: str | bytes = "") -> Finished:
        path = f"{os.environ.get('PATH', os.defpath)}:{SEARCH_PATH}"
        try:
            done = subprocess.run(
                argv,
                input=stdin.encode() if isinstance(stdin, str) else stdin,
                capture_output=True,
                check=False,
                timeout=seconds,
                env={**os.environ, "PATH": path, "LC_ALL": "C"},
            )
        except FileNotFoundError:
            raise no_such_program(argv[0], where=self.name) from None
        except subprocess.TimeoutExpired:
            raise HostError(f"no answer within {seconds:g} s", where=f"{self.name}: {' '.join(argv)}") from None
        except OSError as error:
            raise HostError(f"{argv[0]} cannot be run: {error.strerror}", where=self.name) from None
        return Finished(
            done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        )

    def read(self, path: PurePosixPath) -> str:
        try:
            return Path(path).read_text(errors="replace")
        except OSError as error:
            raise HostError(f"cannot be read: {error.strerror}", where=f"{self.name}: {path}") from None

    def read_all(self, paths: Sequence[PurePosixPath]) -> Mapping[PurePosixPath, str]:
        found = {}
        for path in paths:
            with suppress(HostError):
                if text := self.read(path):
                    found[path] = text
        return found

    def write(self, path: PurePosixPath, text: str) -> None:
        try:
            Path(path).write_text(text)
        except OSError as error:
            raise HostRefusedError(
                f"{text.strip()!r} cannot be written: {error.strerror}", where=f"{self.name}: {path}"
            ) from None

    def exists(self, path: PurePosixPath) -> bool:
        return os.path.lexists(path)

    def close(self) -> None:
        pass


def no_such_program(program: str, *, where: str) -> HostError:
    """Return the error for a program that a host lacks."""
    return LackingError(f"{program}: there is no such program", where=where, remedy="install its package there")
