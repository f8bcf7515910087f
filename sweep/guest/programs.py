"""Running the programs that build the image."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from cephfit.errors import HostError

_PACKAGES: Mapping[str, str] = {
    "apt-get": "apt",
    "apt-cache": "apt",
    "busybox": "busybox-static",
    "cpio": "cpio",
    "depmod": "kmod",
    "dpkg-deb": "dpkg",
    "dropbear": "dropbear-bin",
    "fio": "fio",
    "ldd": "libc-bin",
    "mkfs.ext4": "e2fsprogs",
    "modprobe": "kmod",
    "setpriv": "util-linux",
}
"""Program to the Debian package that has it."""

_SBIN = "/usr/sbin:/sbin:/usr/bin:/bin"


def find(name: str) -> Path:
    """The full path of a program.

    Raises:
        HostError: it is not installed; names Debian's package.
    """
    path = shutil.which(name, path=_SBIN)
    if path is None:
        raise HostError(f"the program {name} is missing", remedy=f"install it: apt install {_PACKAGES[name]}")
    return Path(path)


def require_all() -> None:
    """Raises:
    HostError: naming every package that is missing.
    """
    missing = {package for name, package in _PACKAGES.items() if shutil.which(name, path=_SBIN) is None}
    if missing:
        raise HostError(
            "programs for building the image are missing",
            where="programs on this machine",
            remedy=f"install the Debian packages that have them: apt install {' '.join(sorted(missing))}",
        )


def run(
    argv: Sequence[str], *, cwd: Path | None = None, stdin: bytes | None = None, seconds: float = 300.0
) -> bytes:
    """Run a program to its end and return what it printed. It dies with us: a killed build leaves nothing at work.

    Raises:
        HostError: it failed; with its last words.
    """
    try:
        done = subprocess.run(
            [str(find("setpriv")), "--pdeathsig", "KILL", "--", str(find(argv[0])), *argv[1:]],
            cwd=cwd,
            input=stdin,
            capture_output=True,
            timeout=seconds,
            check=False,
            env={"PATH": _SBIN, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        raise HostError(f"no end within {seconds:g} s", where=" ".join(argv)) from None
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()[-3:]
        raise HostError(f"failed with code {done.returncode}: {' / '.join(words)}", where=" ".join(argv))
    return done.stdout
