"""This machine."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath

from cephfit.ceph.hosts.host import SEARCH_PATH, Finished, HostRefusedError
from cephfit.core.errors import HostError, LackingError


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
