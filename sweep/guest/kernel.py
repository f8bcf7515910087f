"""Debian's kernel for clouds: fetched as a package, unpacked and never installed."""

import re
from dataclasses import dataclass
from pathlib import Path

from cephfit.errors import HostError
from cephfit.sweep.guest.programs import run

_META_PACKAGE = "linux-image-cloud-amd64"


@dataclass(frozen=True, slots=True)
class Kernel:
    """An unpacked kernel package.

    Attributes:
        release: ``6.1.0-44-cloud-amd64``.
        root: below it ``boot`` and ``lib/modules``.
    """

    release: str
    root: Path

    @property
    def image(self) -> Path:
        return self.root / "boot" / f"vmlinuz-{self.release}"

    def modules(self, names: tuple[str, ...]) -> list[Path]:
        """The files of modules and of all that they need, in the order in which they load."""
        found: dict[Path, None] = {}
        at = ("-S", self.release, "-d", str(self.root))
        for name in names:
            shown = run(["modprobe", *at, "--show-depends", name]).decode()
            found |= {Path(line.split()[1]): None for line in shown.splitlines() if line.startswith("insmod ")}
        return list(found)


def fetch(cache: Path) -> Path:
    """The package of the newest cloud kernel, from the distribution's mirror; not again if the cache has it.

    Raises:
        HostError: apt does not find it.
    """
    shown = run(["apt-cache", "depends", "--important", _META_PACKAGE]).decode()
    found = re.search(r"Depends: (linux-image-\S+)", shown)
    if found is None:
        raise HostError(
            f"apt knows no package {_META_PACKAGE}", where="apt-cache", remedy="run `apt-get update` and try again"
        )
    cache.mkdir(parents=True, exist_ok=True)
    run(["apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", found[1]], cwd=cache)
    return max(cache.glob(f"{found[1]}_*.deb"), key=lambda file: file.stat().st_mtime)


def unpack(package: Path, folder: Path) -> Kernel:
    """Unpack a kernel package into a folder that is new.

    Raises:
        HostError: there is not exactly one kernel in it, or a program failed.
    """
    run(["dpkg-deb", "-x", str(package), str(folder)])
    releases = [entry.name for entry in (folder / "lib" / "modules").iterdir()]
    if len(releases) != 1:
        raise HostError(f"not one kernel but {len(releases)}", where=str(package))
    run(["depmod", "-b", str(folder), releases[0]])
    return Kernel(releases[0], folder)
