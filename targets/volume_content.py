"""The content of a file or block device that a sweep overwrites."""

import mmap
import os
import subprocess
from pathlib import Path

from cephfit.core.errors import HostError, InputError
from cephfit.core.units import MIB, format_nbytes

_BLOCK_NBYTES = 4096


def fill_with_random(path: Path, nbytes: int) -> None:
    """Write random bytes, which cannot be compressed, from the beginning, and flush them to the disk.

    Args:
        path: a block device, or a file, which is created if it is missing.
        nbytes: how many.

    Raises:
        HostError: they cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | (0 if path.is_block_device() else os.O_CREAT), 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            for start in range(0, nbytes, MIB):
                block = memoryview(os.urandom(min(MIB, nbytes - start)))
                while block:
                    block = block[file.write(block) :]
            os.fsync(file.fileno())
    except OSError as error:
        raise HostError(
            f"cannot fill {format_nbytes(nbytes)}: {error.strerror}",
            where=str(path),
            remedy="free disk space or use smaller volumes, then run the same command again",
        ) from None


def device_nbytes(device: Path) -> int:
    """Return the size of a block device."""
    with device.open("rb") as stream:
        return stream.seek(0, os.SEEK_END)


def read_directly(device: Path, n_blocks: int) -> None:
    """Read blocks of 4K from the beginning of a device, one after the other, past the page cache."""
    descriptor = os.open(device, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, _BLOCK_NBYTES) as block:  # aligned, as direct I/O requires
            for index in range(n_blocks):
                os.preadv(descriptor, [block], index * _BLOCK_NBYTES)
    finally:
        os.close(descriptor)


def require_empty(device: Path, *, where: str) -> None:
    """Check that blkid recognises no content on a block device.

    Args:
        device: not in use.
        where: for messages.

    Raises:
        InputError: it has content.
    """
    probe = subprocess.run(
        ("blkid", "--probe", str(device)), capture_output=True, text=True, check=False, timeout=60
    )
    # 2 means that blkid found nothing; any other code forbids overwriting.
    if probe.returncode != 2:
        raise InputError(
            f"the device is not empty: {probe.stdout.strip() or probe.stderr.strip()}",
            where=where,
            remedy="a sweep overwrites it: if its content is not needed, run wipefs --all on it first",
        )


def remove_signatures(device: Path) -> None:
    """Remove the signatures of file systems from a block device, so that it counts as empty.

    Raises:
        HostError: the device is in use.
    """
    done = subprocess.run(
        ("wipefs", "--all", "--quiet", str(device)), capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode:
        raise HostError(
            f"the signatures of its content cannot be removed: {done.stderr.strip()}",
            where=str(device),
            remedy="unmount it, and end the programs that use it; then run `cephfit restore` with this target",
        )
