"""The guest image: building it into a folder, and reading it again."""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from platformdirs import user_cache_path

from cephfit.cloud.guests import initramfs
from cephfit.core.errors import HostError, InputError
from cephfit.core.protocols import NullProgress, Progress

SCHEMA_VERSION = 1
N_STEPS = 3
_DISK_NBYTES = 8 << 20

PROPERTIES: Mapping[str, str] = {
    "os_command_line": "console=ttyS0 quiet",
    "hw_rng_model": "virtio",
    "hw_disk_bus": "virtio",
    "hw_vif_model": "virtio",
    "os_shutdown_timeout": "1",
}
"""Glance properties of the image, in addition to kernel and RAM disk. The guest ignores shutdown requests and
has no data to save: without the last property Nova waits a minute for it before every rebuild."""

MIN_RAM_MIB = 256


@dataclass(frozen=True, slots=True)
class GuestImage:
    """A built image: three files, because it boots without a boot loader.

    Attributes:
        folder: of the files.
        kernel_release: ``6.1.0-44-cloud-amd64``.
        fio_version: ``fio-3.33``.
        postgresql: ``15``; empty without.
    """

    folder: Path
    kernel_release: str
    fio_version: str
    postgresql: str = ""

    @property
    def kernel(self) -> Path:
        return self.folder / "vmlinuz"

    @property
    def ramdisk(self) -> Path:
        return self.folder / "initrd.gz"

    @property
    def disk(self) -> Path:
        """The root disk that Nova requires: empty, never read."""
        return self.folder / "disk.raw"

    @property
    def nbytes(self) -> int:
        return sum(file.stat().st_size for file in (self.kernel, self.ramdisk, self.disk))

    @classmethod
    def read(cls, folder: Path) -> "GuestImage":
        """Read a built image.

        Raises:
            InputError: the folder has no image, or an incomplete one.
        """
        file = folder / "image.json"
        try:
            document = json.loads(file.read_text())
            if document.pop("schema_version") != SCHEMA_VERSION:
                raise InputError("built by another version of cephfit", where=str(file), remedy="build it again")
            image = cls(**{**document, "folder": folder})
        except FileNotFoundError:
            raise InputError(
                "no benchmark image in this folder",
                where=str(folder),
                remedy=f"build one: cephfit image build {folder}",
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"not the description of an image: {error!r}", where=str(file)) from None
        missing = [part.name for part in (image.kernel, image.ramdisk, image.disk) if not part.exists()]
        if missing:
            raise InputError(f"{', '.join(missing)} missing", where=str(folder), remedy="build the image again")
        return image


def cache_folder() -> Path:
    """Return the folder of fetched packages: ``$XDG_CACHE_HOME/cephfit/packages``."""
    return user_cache_path("cephfit") / "packages"


def build(folder: Path, *, database: bool = False, progress: Progress | None = None) -> GuestImage:
    """Build the image from this machine's Debian packages and the kernel of its mirror.

    The description is written last: a folder with one has a complete image.

    Args:
        folder: created if it is missing; an image in it is replaced.
        database: whether to add this machine's PostgreSQL and pgbench, for `cephfit verify`.
        progress: receives each step.

    Raises:
        HostError: a program is missing or fails, or the folder cannot be created.
    """
    progress = progress or NullProgress()
    initramfs.require_all()
    version = initramfs.find_binaries().parent.name if database else ""
    progress.start("guest image", N_STEPS)
    folder = folder.resolve()  # the programs run in other folders
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(
            f"the folder cannot be created: {error.strerror}", where=str(folder), remedy="name another one"
        ) from None
    (folder / "image.json").unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=folder) as work:
        package = initramfs.fetch(cache_folder())
        progress.advance(detail="kernel fetched")
        unpacked = initramfs.unpack(package, Path(work) / "kernel")
        fio_version = initramfs.run(["fio", "--version"]).decode().strip()
        image = GuestImage(folder, unpacked.release, fio_version, version)
        progress.advance(detail="kernel unpacked")
        initramfs.build(unpacked, Path(work) / "tree", image.ramdisk, database=database)
        image.kernel.write_bytes(unpacked.image.read_bytes())
    with image.disk.open("wb") as disk:
        disk.truncate(_DISK_NBYTES)
    document = {**asdict(image), "folder": ".", "schema_version": SCHEMA_VERSION}
    (folder / "image.json").write_text(json.dumps(document, indent=1) + "\n")
    progress.advance(detail="file system packed")
    progress.done()
    return image
