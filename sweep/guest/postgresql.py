"""PostgreSQL in the guest's file system: a real workload, for verifying predictions inside guests."""

import re
from collections.abc import Mapping
from pathlib import Path

from cephfit.errors import HostError

PROGRAMS = ("postgres", "initdb", "psql", "pgbench")
MODULES = ("ext4", "crc32c_generic")
"""Kernel modules beyond those of the small image."""
ACCOUNTS: Mapping[str, str] = {
    "etc/passwd": "postgres:*:100:100:PostgreSQL:/tmp:/bin/sh\n",
    "etc/group": "postgres:x:100:\n",
}
"""PostgreSQL refuses to run as root."""

_INSTALLED = Path("/usr/lib/postgresql")
_LIBRARIES = ("plpgsql.so", "dict_snowball.so")
"""What ``initdb`` loads. The compiler for queries (llvmjit) would bring 100 MiB along."""


def find_binaries() -> Path:
    """Debian's folder with PostgreSQL's programs, of the newest version that is installed.

    Raises:
        HostError: there is none with all of the programs.
    """

    def version(folder: Path) -> tuple[int, ...]:
        return tuple(int(n) for n in re.findall(r"\d+", folder.parent.name))

    for folder in sorted(_INSTALLED.glob("*/bin"), key=version, reverse=True):
        if all((folder / program).exists() for program in PROGRAMS):
            return folder
    raise HostError(
        f"PostgreSQL's programs {', '.join(PROGRAMS)} are not installed",
        where=str(_INSTALLED),
        remedy="install the Debian package: apt install postgresql",
    )


def files(binaries: Path) -> list[Path]:
    """What the programs in a folder read besides themselves: they find it from where they lie."""
    version = binaries.parent.name
    share = Path("/usr/share/postgresql") / version
    wanted = [file for file in share.rglob("*") if file.is_file() and "man" not in file.relative_to(share).parts]
    # Of the extensions only the one that initdb makes.
    wanted = [f for f in wanted if f.parent.name != "extension" or f.name.startswith("plpgsql")]
    return wanted + [binaries.parent / "lib" / name for name in _LIBRARIES]
