"""The programs of Ceph that a lab runs: the machine's, or those of another release in a root of its Debian suite.

A root is made once, in the cache folder. It is never changed afterwards, so all labs of a release share it.
"""

import fcntl
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_cache_path

from cephfit.core.errors import HostError, InputError
from cephfit.core.protocols import Progress
from cephfit.core.units import GIB, about
from cephfit.lab import registry
from cephfit.lab.daemons.processes import MARK
from cephfit.lab.machine import require_free_disk, require_programs, run

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
of the lab are unmounted there: a copy in this namespace would keep their devices busy."""


_MANAGER_MODULES = Path("/usr/share/ceph/mgr")
"""As the manager sees it, in its mount namespace."""


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

    A program of a root runs in its own mount namespace, which ends with it: nothing is mounted on the machine. All
    programs start in /, because osd_class_dir of Debian's Ceph 18.2 and later is relative to it: OSDs that start
    elsewhere do not find the classes of RBD.

    Args:
        folder: the lab's.
        root: with the release's ``usr`` and ``etc``; None for the machine's own programs.
    """

    def __init__(self, folder: Path, root: Path | None) -> None:
        self._folder = folder
        self._root = root

    def run(
        self, argv: Sequence[str], *, seconds: float = 60.0, environment: Mapping[str, str] | None = None
    ) -> str:
        """Run a program and return its standard output.

        Args:
            argv: program and arguments.
            seconds: time limit.
            environment: additional variables.

        Raises:
            HostError: it is missing, failed or took longer than ``seconds``.
        """
        if self._root is None:
            return run(
                argv, seconds=seconds, environment={**os.environ, **(environment or {})}, directory=Path("/")
            )
        if not self._root.is_dir():
            raise HostError(
                f"the root of Ceph {self._root.name} is missing",
                where=str(self._root),
                remedy="`cephfit lab start` makes it again; check XDG_CACHE_HOME if you moved it",
            )
        enter = ["unshare", "--mount", "sh", "-c", _ENTER, "sh", str(self._folder), str(self._root)]
        # The mark identifies the shell until it has become the program.
        return run(
            [*enter, *argv],
            seconds=seconds,
            environment={**os.environ, **(environment or {}), MARK: str(self._folder)},
        )

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

    def manager_modules(self) -> Path:
        """Return the folder with the manager's modules, which is in the lab's folder if they import bcrypt.

        Reef's modules all import it, and its current versions (PyO3) refuse the manager's several interpreters.
        Only the dashboard's passwords need it, so a lab loads the modules without it.
        """
        source = (self._root or Path("/")) / _MANAGER_MODULES.relative_to("/")
        shared = source / "mgr_util.py"
        text = shared.read_text() if shared.exists() else ""
        without = re.sub(r"^import bcrypt$", "bcrypt = None", text, flags=re.MULTILINE)
        if without == text:
            return _MANAGER_MODULES
        folder = self._folder / "mgr_modules"
        folder.mkdir()
        for module in source.iterdir():
            if module.name != shared.name:
                (folder / module.name).symlink_to(_MANAGER_MODULES / module.name)
        (folder / shared.name).write_text(without)
        return folder


SUITES: Mapping[str, str] = {"pacific": "bookworm", "reef": "trixie", "tentacle": "unstable"}
"""Ceph release to the Debian suite that packages it."""

_PACKAGES = "ceph-mon,ceph-mgr,ceph-osd,ceph-common,python3-rados,python3-rbd"
_MORE_PACKAGES: Mapping[str, str] = {"tentacle": "libqatzip3"}
"""The compressors zlib and lz4 of Debian's 20.2.4 need it, but no package depends on it: pools that use them would
get another compressor, and the health warning BLUESTORE_NO_COMPRESSION."""
_NEEDED_NBYTES = 2 * GIB
"""Of a root while it is made: 0.6 GiB installed, and the downloaded packages."""

_MIRROR = re.compile(r"^Debian\|Debian\|(\S+)\|main$", re.MULTILINE)


def roots_folder() -> Path:
    """``$XDG_CACHE_HOME`` (else ``~/.cache``) ``/cephfit/releases``."""
    return user_cache_path("cephfit") / "releases"


def root_of(release: str) -> Path | None:
    """Return the root of a release, which may not exist; None for the machine's own programs (empty name)."""
    return roots_folder() / release if release else None


def nbytes_of(folder: Path) -> int:
    """Disk space of a folder; hard links count each time."""
    return sum((Path(base) / name).lstat().st_blocks * 512 for base, _, names in os.walk(folder) for name in names)


def chosen_release(name: str) -> str:
    """Return the release whose root a lab needs; empty if the machine's own Ceph is of this release."""
    try:
        own = CephPrograms(Path("/"), None).version()
    except HostError:
        return name
    return "" if own.name == name else name


def ensure_root(release: str, progress: Progress) -> None:
    """Make the root of a release unless it exists. A killed attempt is continued with the packages it had loaded.

    Args:
        release: key of ``SUITES``; empty: nothing to do.
        progress: shows the steps.

    Raises:
        HostError: apt's sources name no Debian mirror, packages cannot be installed, or the suite has another
            release by now.
    """
    root = root_of(release)
    if root is None or root.exists():
        return
    require_programs("mmdebstrap", "setpriv", "unshare")
    require_free_disk(root.parent, _NEEDED_NBYTES)
    if not Path("/lib").is_symlink():
        raise HostError(
            "programs of another release replace /usr in their mount namespace, and /lib is not part of it here",
            where="/lib",
            remedy="use a system with a merged /usr (Debian 12, Ubuntu 20.04 or later)",
        )
    mirror = _mirror()
    root.parent.mkdir(parents=True, exist_ok=True)
    with _lock():
        if root.exists():  # another process made it meanwhile
            return
        part, packages = root.with_suffix(".part"), root.with_suffix(".packages")
        shutil.rmtree(part, ignore_errors=True)
        (packages / "partial").mkdir(parents=True, exist_ok=True)
        progress.start(f"Ceph {release} from Debian {SUITES[release]}")
        _install(part, packages, release, mirror, progress)
        version = CephPrograms(Path("/"), part).version()
        if version.name != release:
            shutil.rmtree(part)
            raise HostError(
                f"Debian {SUITES[release]} has Ceph {version} now, not {release}",
                where=mirror,
                remedy="choose another release",
            )
        part.replace(root)
        shutil.rmtree(packages)
        progress.note(f"Ceph {version} is in {root}, {about(nbytes_of(root))}; `cephfit lab clean` removes it")
        progress.done()


def _mirror() -> str:
    """Return the Debian mirror in apt's sources.

    Raises:
        HostError: there is none.
    """
    listed = run(["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)|$(COMPONENT)"])
    if found := _MIRROR.search(listed):
        return found[1]
    raise HostError(
        "apt's sources name no Debian mirror, or its lists were never loaded",
        where="/etc/apt/sources.list.d",
        remedy="run `apt-get update`; on another distribution, add a source of Debian with its keyring",
    )


def _install(part: Path, packages: Path, release: str, mirror: str, progress: Progress) -> None:
    """Install Ceph into a new root, with the packages kept in ``packages`` until the root is whole."""
    names = ",".join([_PACKAGES, *filter(None, [_MORE_PACKAGES.get(release)])])
    argv = [
        # All programs end with this process: the first of a process namespace ends with its parent.
        *("setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork", "--kill-child=KILL"),
        *("mmdebstrap", "--variant=apt", f"--include={names}", "--skip=essential/unlink"),
        # A frozen mirror has lists that have expired; they are signed nevertheless.
        '--aptopt=Acquire::Check-Valid-Until "false"',
        f'--setup-hook=mkdir -p "$1/var/cache/apt/archives"; mount --bind {packages} "$1/var/cache/apt/archives"',
        *(SUITES[release], str(part), mirror),
    ]
    words: list[str] = []
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as installer:
        assert installer.stderr is not None
        try:
            for line in installer.stderr:
                words = [*words, line.strip()][-3:]
                if line.startswith("I: "):
                    progress.advance(detail=line.removeprefix("I: ").strip())
        except BaseException:
            installer.kill()
            raise
    if installer.returncode:
        shutil.rmtree(part, ignore_errors=True)
        raise HostError(
            f"mmdebstrap failed: {' / '.join(words)}",
            where=f"{mirror} {SUITES[release]}",
            remedy="check the network and the mirror, then try again; loaded packages are kept",
        )


def remove_roots(release: str | None = None) -> dict[str, int]:
    """Delete the roots of releases and what killed attempts left; return the freed bytes by release.

    Args:
        release: only this one; None: all.

    Raises:
        InputError: a lab uses one of them.
        HostError: another process makes one.
    """
    folder = roots_folder()
    if not folder.is_dir():
        return {}
    freed: dict[str, int] = {}
    with _lock():
        places = [p for p in sorted(folder.iterdir()) if p.is_dir() and release in (None, p.stem)]
        for place in places:
            if users := [*_labs_with(place.name), *_processes_in(place)]:
                raise InputError(
                    f"Ceph {place.name} is in use by {', '.join(users)}; nothing was deleted",
                    where=str(place),
                    remedy="remove these labs first (`cephfit lab down`), or name another release with --release",
                )
        for place in places:
            freed[place.stem] = freed.get(place.stem, 0) + nbytes_of(place)
            shutil.rmtree(place)
    return freed


def _labs_with(release: str) -> list[str]:
    names = []
    for name in registry.lab_names():
        folder = registry.folder_of(name)
        record = registry.Record.read(folder) if folder else None
        if record is not None and record.spec.release == release:
            names.append(f"lab {name}")
    return names


def _processes_in(root: Path) -> list[str]:
    """Return the processes that have parts of a root mounted, also those of labs of other users."""
    found = []
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit() and f"{root}/usr /usr " in (process / "mountinfo").read_text():
                found.append(f"process {process.name}")
        except OSError:  # gone meanwhile
            continue
    return found


@contextmanager
def _lock() -> Iterator[None]:
    """One process at a time makes or deletes roots; the others wait."""
    with (roots_folder() / ".lock").open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield
