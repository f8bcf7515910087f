"""The guest's file system in memory (initramfs), with Debian's cloud kernel and optionally PostgreSQL.

The kernel comes from a package that is unpacked and never installed. PostgreSQL is a real workload for verifying
predictions inside guests.
"""

import gzip
import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from cephfit import templates
from cephfit.core.errors import HostError

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
"""Program to its Debian package."""

_SBIN = "/usr/sbin:/sbin:/usr/bin:/bin"


def find(name: str) -> Path:
    """Return the full path of a program.

    Raises:
        HostError: it is not installed; names Debian's package.
    """
    path = shutil.which(name, path=_SBIN)
    if path is None:
        raise HostError(f"the program {name} is missing", remedy=f"install it: apt install {_PACKAGES[name]}")
    return Path(path)


def require_all() -> None:
    """Require all programs for building the image.

    Raises:
        HostError: names every missing package.
    """
    missing = {package for name, package in _PACKAGES.items() if shutil.which(name, path=_SBIN) is None}
    if missing:
        raise HostError(
            "programs for building the image are missing",
            where="programs on this machine",
            remedy=f"install their Debian packages: apt install {' '.join(sorted(missing))}",
        )


def run(
    argv: Sequence[str], *, cwd: Path | None = None, stdin: bytes | None = None, seconds: float = 300.0
) -> bytes:
    """Run a program to its end and return its output. It dies with this process, so a killed build leaves none.

    Raises:
        HostError: it failed; with the end of its messages.
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
        """Return the files of modules and of all that they need, in the order in which they load."""
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
    if not (folder / "lib").exists():  # Debian 13's packages have all below /usr
        (folder / "lib").symlink_to("usr/lib")
    releases = [entry.name for entry in (folder / "lib" / "modules").iterdir()]
    if len(releases) != 1:
        raise HostError(f"not one kernel but {len(releases)}", where=str(package))
    run(["depmod", "-b", str(folder), releases[0]])
    return Kernel(releases[0], folder)


PROGRAMS = ("postgres", "initdb", "psql", "pgbench")
MODULES = ("ext4", "crc32c_generic")
"""Kernel modules in addition to those of the small image."""
ACCOUNTS: Mapping[str, str] = {
    "etc/passwd": "postgres:*:100:100:PostgreSQL:/tmp:/bin/sh\n",
    "etc/group": "postgres:x:100:\n",
}
"""PostgreSQL refuses to run as root."""

_INSTALLED = Path("/usr/lib/postgresql")
_LIBRARIES = ("plpgsql.so", "dict_snowball.so")
"""Libraries that ``initdb`` loads. The compiler for queries (llvmjit) is omitted: it needs 100 MiB."""


def find_binaries() -> Path:
    """Return Debian's folder with PostgreSQL's programs, of the newest installed version.

    Raises:
        HostError: no folder has all of the programs.
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
    """Return the files that the programs in a folder read; they find them relative to that folder."""
    version = binaries.parent.name
    share = Path("/usr/share/postgresql") / version
    wanted = [file for file in share.rglob("*") if file.is_file() and "man" not in file.relative_to(share).parts]
    # Of the extensions only the one that initdb creates.
    wanted = [f for f in wanted if f.parent.name != "extension" or f.name.startswith("plpgsql")]
    return wanted + [binaries.parent / "lib" / name for name in _LIBRARIES]


_PROGRAMS = ("fio", "dropbear")
_MODULES = (
    "virtio_pci",
    "virtio_blk",
    "virtio_net",
    "virtio_scsi",
    "virtio_rng",
    "sd_mod",
    "sr_mod",
    "ata_piix",
    "isofs",
)
_FOLDERS = (
    "bin",
    "dev",
    "etc/dropbear",
    "home/guest",
    "proc",
    "run",
    "sys",
    "tmp",
    "usr/share/udhcpc",
    "var/log",
    "var/run",
)
_FILES = {
    "etc/passwd": "root:*:0:0:root:/home/guest:/bin/sh\n",
    "etc/group": "root:x:0:\n",
    "etc/nsswitch.conf": "passwd: files\ngroup: files\n",
    "etc/shells": "/bin/sh\n",
}
_SCRIPTS = {
    "init": "init",
    "udhcpc.script": "usr/share/udhcpc/default.script",
    "volume-device": "bin/volume-device",
    "curl": "bin/curl",
}
"""Template below ``templates/guest`` to its place."""


def build(kernel: Kernel, tree: Path, target: Path, *, database: bool = False) -> None:
    """Create the file system in the new folder ``tree``, and pack it into ``target``.

    Args:
        kernel: of the guest.
        tree: folder of the file system.
        target: the packed file.
        database: whether to add PostgreSQL, pgbench, and the modules and programs for their file system.

    Raises:
        HostError: a program is missing or fails.
    """
    for folder in _FOLDERS:
        (tree / folder).mkdir(parents=True, exist_ok=True)
    (tree / "sbin").symlink_to("bin")
    _add_busybox(tree)
    for program in _PROGRAMS:
        _add_program(tree, find(program))
    _add_modules(tree, kernel, (*_MODULES, *(MODULES if database else ())))
    for name, text in _FILES.items():
        (tree / name).write_text(text + (ACCOUNTS.get(name, "") if database else ""))
    if database:
        _add_database(tree)
    for template, place in _SCRIPTS.items():
        (tree / place).write_text((resources.files(templates) / "guest" / template).read_text())
        (tree / place).chmod(0o755)
    _pack(tree, target)


def _add_busybox(tree: Path) -> None:
    busybox = find("busybox")
    shutil.copy2(busybox, tree / "bin" / "busybox")
    for name in run(["busybox", "--list"]).decode().split():
        link = tree / "bin" / name
        if not link.exists():
            link.symlink_to("busybox")


def _add_database(tree: Path) -> None:
    _add_program(tree, find("mkfs.ext4"))
    binaries = find_binaries()
    for file in files(binaries):
        copy = tree / file.relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)
    for name in PROGRAMS:
        _add_program(tree, binaries / name, place=tree / (binaries / name).relative_to("/"))
        (tree / "bin" / name).symlink_to(binaries / name)


def _add_program(tree: Path, program: Path, *, place: Path | None = None) -> None:
    """Copy a program, to ``bin`` or another place, and the libraries that the loader loads with it."""
    place = place or tree / "bin" / program.name
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    shutil.copy2(program, place)
    for library in _libraries(run(["ldd", str(program)]).decode()):
        copy = tree / library.relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        if not copy.exists():
            shutil.copy2(library, copy)


def _libraries(shown: str) -> Iterable[Path]:
    """Parse the files in ``ldd``'s output: ``libm.so.6 => /lib/libm.so.6 (0x...)``, ``/lib64/ld.so (0x...)``."""
    return [Path(found[1]) for line in shown.splitlines() if (found := re.search(r"(?:=>|^)\s*(/\S+) \(", line))]


def _add_modules(tree: Path, kernel: Kernel, names: tuple[str, ...]) -> None:
    for module in kernel.modules(names):
        copy = tree / module.relative_to(kernel.root)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(module, copy)
    home = Path("lib/modules") / kernel.release
    for name in ("modules.order", "modules.builtin"):
        shutil.copy2(kernel.root / home / name, tree / home / name)
    run(["depmod", "-b", str(tree), kernel.release])


def _pack(tree: Path, target: Path) -> None:
    """Pack the tree in the kernel's format: a compressed cpio archive of the kind newc, owned by root."""
    names = [b"."]
    for folder, folders, files in os.walk(os.fsencode(tree)):
        names += [os.path.relpath(os.path.join(folder, name), os.fsencode(tree)) for name in (*folders, *files)]  # noqa: PTH118
    names.sort()
    archive = run(
        ["cpio", "--create", "--format=newc", "--null", "--quiet", "--reproducible", "--owner=0:0"],
        cwd=tree,
        stdin=b"\0".join(names) + b"\0",
    )
    # Level 1: the build takes a second, and an emulated guest does not unpack it more slowly.
    target.write_bytes(gzip.compress(archive, compresslevel=1, mtime=0))
