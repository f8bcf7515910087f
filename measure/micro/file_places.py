"""Where the files of a client lie, and counters of the traffic behind them."""

from __future__ import annotations

import os
import stat
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from cephfit.core.errors import InputError
from cephfit.core.protocols import Client

VOLUME, NFS, S3, FOLDER = "volume", "nfs", "s3", "folder"
MOUNTED = (VOLUME, S3)
"""Kinds that the program mounts, in a namespace of its own."""


@dataclass(frozen=True, slots=True)
class FilePlace:
    """Where the files of a client lie.

    Attributes:
        kind: ``volume`` (a file system is made on it), ``nfs`` (an export), ``s3`` (a bucket, through s3fs) or
            ``folder`` (an existing one).
        path: of the device, file or folder; of an export, its path on the server; the name of a bucket.
        offset: of the volume in the device or file, bytes.
        nbytes: of the volume.
        host: of the NFS server; ``host:port`` of the S3 server.
        folder: of the client in the export or bucket.
        enter: command line that enters the server's network; empty for none.
        secrets: names and values of environment variables, which are on no command line.
    """

    kind: str
    path: str
    offset: int = 0
    nbytes: int = 0
    host: str = ""
    folder: str = ""
    enter: tuple[str, ...] = ()
    secrets: tuple[tuple[str, str], ...] = field(default=(), repr=False)


def volume_of(client: Client) -> FilePlace:
    """Return the volume of a client, on which a file system is made.

    Raises:
        InputError: the volume is no device or file of this machine.
    """
    if client.address is not None or (client.device is None and "filename" not in client.fio_options):
        raise InputError(
            f"client {client.name} has no volume that this machine can mount",
            where="measurement.engine: micro",
            remedy="choose a target whose clients have devices here, such as the lab or ceph",
        )
    path = str(client.device or client.fio_options["filename"].replace(r"\:", ":"))
    return FilePlace(VOLUME, path, int(client.fio_options.get("offset", 0)), client.nbytes)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes since the counters began; None where nothing counts.

    Attributes:
        wire_nbytes: sent over the network between all hosts, clients included. Each byte counts once.
        disk_read_nbytes: by all disks of the storage.
        disk_written_nbytes: likewise.
    """

    wire_nbytes: int | None = None
    disk_read_nbytes: int | None = None
    disk_written_nbytes: int | None = None

    def since(self, before: Traffic) -> Traffic:
        """Return the difference to an earlier reading."""

        def moved(now: int | None, then: int | None) -> int | None:
            return None if now is None or then is None else now - then

        return Traffic(
            moved(self.wire_nbytes, before.wire_nbytes),
            moved(self.disk_read_nbytes, before.disk_read_nbytes),
            moved(self.disk_written_nbytes, before.disk_written_nbytes),
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


TrafficCounter = Callable[[], Traffic]
"""Reads the counters of now; raises HostError or ClusterError if they cannot be read."""


def traffic_of(disk: Path | None, interfaces: Path | None, *, both_ways: bool = False) -> Traffic:
    """Return the traffic of one disk and one host of this machine.

    Args:
        disk: block device; None: unknown.
        interfaces: file like /proc/net/dev, of the network namespace of the server; None: no network. What its
            interfaces sent is counted, so that a byte between two processes of the namespace counts once.
        both_ways: count also what they received, where all traffic is with another namespace.

    Raises:
        HostError: the device has no counters.
    """
    # Imported here because it needs NumPy, without which the command line starts.
    from cephfit.measure.block_device import counters_of

    moved = None if disk is None else counters_of(disk)
    return Traffic(
        None if interfaces is None else _carried_nbytes(interfaces.read_text(), both_ways=both_ways),
        None if moved is None else moved.read_nbytes,
        None if moved is None else moved.written_nbytes,
    )


def _carried_nbytes(text: str, *, both_ways: bool) -> int:
    """Return the bytes that all interfaces of a file like /proc/net/dev have sent, or sent and received."""
    fields = [line.partition(":")[2].split() for line in text.splitlines() if ":" in line]
    return sum(int(one[8]) + (int(one[0]) if both_ways else 0) for one in fields)


def disk_below(path: Path) -> Path | None:
    """Return the block device of a device, or of the file system of a file; None for one in memory."""
    about = path.stat()
    number = about.st_rdev if stat.S_ISBLK(about.st_mode) else about.st_dev
    place = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    return Path("/dev") / place.resolve().name if place.exists() else None


@runtime_checkable
class CountsTraffic(Protocol):
    """Counts the bytes on the network and on the disks of the storage.

    Asked: by ``preflight.engine_of``, for the engine ``micro``. Without it: samples have no amplification.
    """

    @abstractmethod
    def traffic_counter(self) -> TrafficCounter:
        """Return what reads the counters."""


@runtime_checkable
class ExportsFiles(Protocol):
    """Its storage has files itself, so that no file system is made on a client's volume.

    Asked: by ``preflight.engine_of``, for the engine ``micro``. Without it: files are on a file system on the
    client's volume.
    """

    @abstractmethod
    def files_of(self, client: Client) -> FilePlace:
        """Return the place of a client's files; ``reset`` deletes it."""
