"""A Debian image as clouds have them, with cloud-init and the distribution's own kernel; and a mirror with fio."""

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from openstack.connection import Connection

MIRROR_PORT = 8099
_DEBIAN = "http://deb.debian.org/debian"
_PACKAGES = (
    "systemd-sysv",
    "udev",
    "dbus",
    "linux-image-cloud-amd64",
    "cloud-init",
    "netplan.io",
    "iproute2",
    "ca-certificates",
    "curl",
)
_LEFT_OUT = ("/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*")
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}


@dataclass(frozen=True, slots=True)
class DebianImage:
    """What was built.

    Attributes:
        kernel: of the distribution.
        ramdisk: the one that it made for this kernel.
        bare: root disk without fio.
        with_fio: the same with fio.
        mirror: folder of packages, fio and what it needs.
    """

    kernel: Path
    ramdisk: Path
    bare: Path
    with_fio: Path
    mirror: Path


def build(folder: Path, *, mirror_host: str) -> DebianImage:
    """Build both images, from Debian's mirror, in some minutes; skips the test where that cannot be.

    Args:
        folder: has 3 GiB of room.
        mirror_host: address at which guests will find the mirror.
    """
    if missing := [name for name in ("mmdebstrap", "dpkg-scanpackages", "qemu-img") if shutil.which(name) is None]:
        pytest.skip(f"needs {', '.join(missing)}")
    tree, mirror = folder / "tree", folder / "mirror"
    left_out = [f"--dpkgopt=path-exclude={pattern}" for pattern in _LEFT_OUT]
    _run(
        "mmdebstrap",
        "--mode=root",
        "--variant=minbase",
        "--skip=cleanup/apt/lists",
        f"--include={','.join(_PACKAGES)}",
        *left_out,
        "bookworm",
        str(tree),
        _DEBIAN,
    )
    (tree / "etc" / "machine-id").write_text("")  # each guest makes its own
    mirror.mkdir()
    shutil.copy("/etc/resolv.conf", tree / "etc" / "resolv.conf")
    _run(
        "chroot", str(tree), "apt-get", "install", "-y", "-qq", "--no-install-recommends", "--download-only", "fio"
    )
    (tree / "etc" / "resolv.conf").unlink()
    for package in (tree / "var" / "cache" / "apt" / "archives").glob("*.deb"):
        shutil.move(package, mirror)
    (mirror / "Packages").write_bytes(_run("dpkg-scanpackages", ".", cwd=mirror))
    shutil.rmtree(tree / "var" / "lib" / "apt" / "lists")
    sources = tree / "etc" / "apt" / "sources.list.d"
    (sources / "mirror.list").write_text(f"deb [trusted=yes] http://{mirror_host}:{MIRROR_PORT} ./\n")
    image = DebianImage(folder / "vmlinuz", folder / "initrd", folder / "bare.qcow2", folder / "fio.qcow2", mirror)
    shutil.copy(next((tree / "boot").glob("vmlinuz-*")), image.kernel)
    shutil.copy(next((tree / "boot").glob("initrd.img-*")), image.ramdisk)
    _pack(tree, image.bare)
    shutil.copytree(mirror, tree / "mirror")
    packages = [f"/mirror/{package.name}" for package in sorted(mirror.glob("*.deb"))]
    _run("chroot", str(tree), "dpkg", "--install", *packages)
    shutil.rmtree(tree / "mirror")
    _pack(tree, image.with_fio)
    shutil.rmtree(tree)
    return image


@contextmanager
def uploaded(cloud: Connection, image: DebianImage, name: str) -> Iterator[tuple[str, str]]:
    """Both images in Glance for all projects: the names of the one without fio, and the one with it."""
    common: dict[str, Any] = {"visibility": "public", "use_import": False, "wait": True}
    made = []

    def bring(suffix: str, file: Path, disk_format: str, container_format: str, **more: Any) -> Any:
        kind = {"disk_format": disk_format, "container_format": container_format}
        made.append(cloud.create_image(f"{name}{suffix}", filename=str(file), **kind, **common, **more))
        return made[-1]

    try:
        parts = {
            "kernel_id": bring("-kernel", image.kernel, "aki", "aki").id,
            "ramdisk_id": bring("-ramdisk", image.ramdisk, "ari", "ari").id,
            "os_command_line": "root=/dev/vda rw console=ttyS0",
        }
        bring("-bare", image.bare, "qcow2", "bare", **parts)
        bring("-fio", image.with_fio, "qcow2", "bare", **parts)
        yield f"{name}-bare", f"{name}-fio"
    finally:
        for one in made:
            cloud.image.delete_image(one)


@contextmanager
def serving(mirror: Path, host: str) -> Iterator[None]:
    """The mirror, as guests reach it."""
    handler = partial(_Quiet, directory=str(mirror))
    with ThreadingHTTPServer((host, MIRROR_PORT), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing among the tests' words."""


def _pack(tree: Path, disk: Path) -> None:
    raw = disk.with_suffix(".raw")
    with raw.open("wb") as file:
        file.truncate(1000 << 20)
    _run("mkfs.ext4", "-q", "-L", "root", "-d", str(tree), str(raw))
    _run("qemu-img", "convert", "-O", "qcow2", str(raw), str(disk))
    raw.unlink()


def _run(*argv: str, cwd: Path | None = None) -> bytes:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, check=False, env={**os.environ, **_ENVIRONMENT})
    if done.returncode and b"mmdebstrap" in argv[0].encode() and b"apt-get update" in done.stderr:
        pytest.skip("needs Debian's mirror")
    assert done.returncode == 0, f"{argv}: {done.stderr.decode(errors='replace')[-2000:]}"
    return done.stdout
