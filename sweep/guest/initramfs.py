"""The guest's file system, which it keeps in memory."""

import gzip
import os
import re
import shutil
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from cephfit import templates
from cephfit.sweep.guest import postgresql
from cephfit.sweep.guest.kernel import Kernel
from cephfit.sweep.guest.programs import find, run

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
    """Lay out the file system in ``tree``, which is new, and pack it into ``target``.

    Args:
        kernel: that it is for.
        tree: where.
        target: the packed file.
        database: with PostgreSQL, pgbench, and what a file system for them needs.

    Raises:
        HostError: a program is missing or fails.
    """
    for folder in _FOLDERS:
        (tree / folder).mkdir(parents=True, exist_ok=True)
    (tree / "sbin").symlink_to("bin")
    _add_busybox(tree)
    for program in _PROGRAMS:
        _add_program(tree, find(program))
    _add_modules(tree, kernel, (*_MODULES, *(postgresql.MODULES if database else ())))
    for name, text in _FILES.items():
        (tree / name).write_text(text + (postgresql.ACCOUNTS.get(name, "") if database else ""))
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
    binaries = postgresql.find_binaries()
    for file in postgresql.files(binaries):
        copy = tree / file.relative_to("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(file, copy)
    for name in postgresql.PROGRAMS:
        _add_program(tree, binaries / name, place=tree / (binaries / name).relative_to("/"))
        (tree / "bin" / name).symlink_to(binaries / name)


def _add_program(tree: Path, program: Path, *, place: Path | None = None) -> None:
    """Copy a program, to ``bin`` or a place of its own, and the libraries that the loader would load with it."""
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
    """The files in what ``ldd`` prints: ``libm.so.6 => /lib/libm.so.6 (0x...)``, ``/lib64/ld.so (0x...)``."""
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
    """As the kernel wants it: a cpio archive of the kind newc, compressed; everything is root's."""
    names = [b"."]
    for folder, folders, files in os.walk(os.fsencode(tree)):
        names += [os.path.relpath(os.path.join(folder, name), os.fsencode(tree)) for name in (*folders, *files)]  # noqa: PTH118
    names.sort()
    archive = run(
        ["cpio", "--create", "--format=newc", "--null", "--quiet", "--reproducible", "--owner=0:0"],
        cwd=tree,
        stdin=b"\0".join(names) + b"\0",
    )
    # Level 1: a guest that is emulated unpacks it no slower, and the builder is done in a second.
    target.write_bytes(gzip.compress(archive, compresslevel=1, mtime=0))
