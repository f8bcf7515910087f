"""The guests' image: what is in it, and that half of one is not taken for whole. The lab's tests boot it."""

import gzip
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cephfit.cloud.guests import guest_image, initramfs
from cephfit.cloud.guests.guest_image import GuestImage
from cephfit.core.errors import HostError, InputError


def made(folder: Path) -> GuestImage:
    """An image's files without an image in them."""
    document = {"folder": ".", "kernel_release": "6.1.0-1", "fio_version": "fio-3.33", "schema_version": 1}
    (folder / "image.json").write_text(json.dumps(document))
    for name in ("vmlinuz", "initrd.gz", "disk.raw"):
        (folder / name).write_bytes(b"x")
    return GuestImage(folder, "6.1.0-1", "fio-3.33")


def test_an_image_is_read_back_as_it_was_built(tmp_path: Path) -> None:
    built = made(tmp_path)
    assert GuestImage.read(tmp_path) == built


def test_a_folder_without_an_image_or_with_half_of_one_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no benchmark image in this folder"):
        GuestImage.read(tmp_path)
    made(tmp_path).ramdisk.unlink()
    with pytest.raises(InputError, match=r"initrd\.gz missing"):
        GuestImage.read(tmp_path)
    (tmp_path / "image.json").write_text("{")
    with pytest.raises(InputError, match="not the description of an image"):
        GuestImage.read(tmp_path)


def test_libraries_are_taken_from_what_ldd_prints() -> None:
    shown = (
        "\tlinux-vdso.so.1 (0x00007ffc5b7f2000)\n"
        "\tlibaio.so.1 => /lib/x86_64-linux-gnu/libaio.so.1 (0x00007f0d5c0b5000)\n"
        "\tlibmissing.so.2 => not found\n"
        "\t/lib64/ld-linux-x86-64.so.2 (0x00007f0d5c7a3000)\n"
    )
    assert [str(library) for library in initramfs._libraries(shown)] == [
        "/lib/x86_64-linux-gnu/libaio.so.1",
        "/lib64/ld-linux-x86-64.so.2",
    ]


def test_missing_programs_are_named_by_their_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        initramfs.shutil, "which", lambda name, path: None if name == "dropbear" else f"/bin/{name}"
    )
    with pytest.raises(HostError, match=r"apt install dropbear-bin$"):
        initramfs.require_all()


@pytest.mark.slow
def test_the_command_builds_an_image_with_fio_the_drivers_and_no_password(tmp_path: Path) -> None:
    """From Debian's mirror, or from the cache that the first build filled."""
    try:
        initramfs.require_all()
    except HostError as error:
        pytest.skip(str(error))
    argv = [sys.executable, "-m", "cephfit.cli.main", "image", "build", "image", "--json"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    if "apt-get download" in done.stderr or "apt-cache" in done.stderr:
        pytest.skip(f"needs Debian's mirror: {done.stderr}")
    assert done.returncode == 0, done.stderr
    built = GuestImage.read(tmp_path / "image")
    shown = json.loads(done.stdout)
    assert (shown["kernel"], shown["nbytes"]) == (built.kernel_release, built.nbytes)
    assert sorted(p.name for p in built.folder.iterdir()) == ["disk.raw", "image.json", "initrd.gz", "vmlinuz"]
    tree = tmp_path / "tree"
    tree.mkdir()
    argv = ["cpio", "--extract", "--make-directories", "--quiet", "--no-absolute-filenames"]
    subprocess.run(argv, cwd=tree, input=gzip.decompress(built.ramdisk.read_bytes()), check=True)
    modules = {file.name.removesuffix(".ko") for file in tree.rglob("*.ko")}
    assert {"virtio_blk", "virtio_net", "isofs"} <= modules
    assert (tree / "init").stat().st_mode & 0o777 == 0o755
    (account,) = (tree / "etc/passwd").read_text().splitlines()
    user, password, *_, home, shell = account.split(":")
    assert (user, password, shell) == ("root", "*", "/bin/sh")
    assert (tree / home.removeprefix("/")).is_dir()
    version = subprocess.run(
        [shutil.which("chroot") or "/usr/sbin/chroot", str(tree), "/bin/fio", "--version"],
        capture_output=True,
        text=True,
        check=False,
    )
    if version.returncode == 125:
        pytest.skip("chroot needs root")
    assert version.stdout.strip() == built.fio_version, "it starts with the libraries that came along"
    assert built.disk.stat().st_size == guest_image._DISK_NBYTES
