"""A file or block device of this machine as a target, for trying fio and sweeps without Ceph.

The target sets queue values of the device (``/sys/block/DISK/queue``). It identifies disks by their serial
numbers, because the kernel may give a disk another name after a reboot.
"""

import fcntl
import hashlib
import os
import platform
import stat
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from platformdirs import user_state_path

from cephfit import __version__
from cephfit.ceph.environment.scopes import PROTOCOL_OPTIONS
from cephfit.ceph.host import HostRefusedError
from cephfit.ceph.options.option import as_ceph_writes
from cephfit.core.errors import ClusterError, HostError, InputError
from cephfit.core.journal import Entry, Journal, TargetLock
from cephfit.core.protocols import Applied, Client, Health, Target
from cephfit.core.units import format_nbytes
from cephfit.core.values.configuration import Configuration, Partition, Setting, Value
from cephfit.measure.block_device import fill_with_random, flush_buffers, remove_signatures, require_empty
from cephfit.measure.fio.fio_files import escaped_filename
from cephfit.measure.micro.file_places import TrafficCounter, disk_below, traffic_of
from cephfit.targets.abilities import CountsTraffic, JudgesConfigurations

_SYSFS = "sysfs"
_SYS_BLOCK = Path("/sys/block")
_DEV = Path("/dev")


class DiskQueues:
    """Sets queue values of disks, journalled first, and reads them back."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    def apply(self, settings: Iterable[tuple[Setting, Path]]) -> None:
        """Set each setting on its device; restore all other values that were changed before.

        Raises:
            HostError: the kernel has no such queue value, or refuses the new one.
        """
        values = {
            str(self._file(device, setting.key)): as_ceph_writes(setting.value) for setting, device in settings
        }
        for entry in self._journal.entries(_SYSFS):
            if entry.place not in values:
                self._restore(entry)
        for place, value in values.items():
            path = Path(place)
            if not path.is_file():
                raise HostError("this kernel has no such queue value", where=place)
            was = read_queue_value(path)
            if was != value:
                self._journal.note(_SYSFS, place, was)
                _write(path, value)

    def restore(self, device: Path | None = None) -> None:
        """Restore the original queue values of all devices, or of one device."""
        for entry in reversed(self._journal.entries(_SYSFS)):
            if device is None or _SYS_BLOCK / device.name in Path(entry.place).parents:
                self._restore(entry)

    def read_back(self, settings: Iterable[tuple[Setting, Path]]) -> tuple[dict[str, dict[str, Value]], list[str]]:
        """Return setting as text to device to value, and one sentence per value that did not take effect."""
        values: dict[str, dict[str, Value]] = {}
        mismatches = []
        for setting, device in settings:
            got = read_queue_value(self._file(device, setting.key))
            values.setdefault(str(setting), {})[device.name] = got
            if got != as_ceph_writes(setting.value):
                mismatches.append(f"{device.name} has {setting.key} = {got}, not {setting.value}")
        return values, mismatches

    def has(self, device: Path, key: str) -> bool:
        """Return whether the kernel has this queue value."""
        return self._file(device, key).is_file()

    def _file(self, device: Path, key: str) -> Path:
        if "/" in key or key.startswith("."):
            raise ClusterError(f"{key!r} is not the name of a queue value", where=str(_SYS_BLOCK / device.name))
        return _SYS_BLOCK / device.name / "queue" / key

    def _restore(self, entry: Entry) -> None:
        path = Path(entry.place)
        # A loop device that no longer exists has no queue to restore.
        if path.is_file() and read_queue_value(path) != entry.was:
            _write(path, str(entry.was))
        self._journal.forget(_SYSFS, entry.place)


def read_queue_value(path: Path) -> str:
    """Return a queue value; of a choice such as ``none [mq-deadline] kyber`` the one in brackets."""
    text = path.read_text().strip()
    _, bracket, rest = text.partition("[")
    return rest.partition("]")[0] if bracket else text


def _write(path: Path, value: str) -> None:
    try:
        path.write_text(value)
    except OSError as error:
        raise HostRefusedError(f"the kernel refuses {value!r}: {error.strerror}", where=str(path)) from None


_SYS_DEV_BLOCK = Path("/sys/dev/block")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_OF_DISK = ("wwid", "device/wwid", "serial", "device/serial", "dm/uuid", "md/uuid")
"""Files with a disk's identity below /sys/block/DISK: NVMe, SCSI and SATA, virtio, MMC, device mapper, MD."""


def identity_of(device: Path, *, sys_dev_block: Path = _SYS_DEV_BLOCK, boot_id: Path = _BOOT_ID) -> str:
    """Return the identity of a disk or partition: World Wide Name, serial number, position and size.

    A disk without such an identity (a loop device, a virtual disk without serial number) is known only until the
    next boot, by the kernel's sequence number of disks (``diskseq``, since Linux 5.15).

    Args:
        device: an existing block device.

    Returns:
        Text to compare; empty where nothing identifies the disk.

    Raises:
        OSError: the device does not exist.
    """
    number = device.stat().st_rdev
    place = (sys_dev_block / f"{os.major(number)}:{os.minor(number)}").resolve()
    is_partition = (place / "partition").exists()
    disk = place.parent if is_partition else place
    names = [f"{key.rpartition('/')[2]}={text}" for key in _OF_DISK if (text := _text(disk / key))]
    if not names and (sequence := _text(disk / "diskseq")) and (boot := _text(boot_id)):
        names = [f"boot={boot}", f"diskseq={sequence}"]
    if not names:
        return ""
    where = [f"{key}={_text(place / key)}" for key in ("partition", "start") if is_partition]
    return "; ".join([*names, *where, f"sectors={_text(place / 'size')}"])


def _text(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:
        return ""


_CREATED = "created"
_FILLED = "filled"
_LENT = "lent"
"""A device that a workload writes its own content to."""
_BLKGETSIZE64 = 0x80081272


def local_target(text: str, *, for_change: bool = True) -> "LocalTarget":
    """Open ``local:/path/of/file``.

    Raises:
        InputError: the path is not absolute, or is that of a folder.
    """
    _, _, path = text.partition(":")
    if not path.startswith("/"):
        raise InputError(
            f"{path!r} is not an absolute path" if path else "the path of a file or block device is missing",
            where=f"--target {text.removesuffix(':')}",
            remedy="write the target like local:/var/tmp/try.img",
        )
    if Path(path).is_dir():
        raise InputError(
            "this is a folder, not a file", where=f"--target {text}", remedy="name a file in it, or a block device"
        )
    return LocalTarget(Path(path), for_change=for_change)


def state_folder(path: Path) -> Path:
    """Return the folder of a local target's journal and lock.

    It is not the folder of the file, which may belong to another user.
    """
    return user_state_path("cephfit") / "local" / hashlib.sha256(str(path).encode()).hexdigest()[:16]


class MachineTarget(Target, JudgesConfigurations):
    """Base of targets whose volumes are files or block devices of this machine.

    Args:
        name: of the target, as ``--target`` takes it.
        folder: of its journal.
        lock: taken; None to open it for reading only.
    """

    def __init__(self, name: str, folder: Path, lock: TargetLock | None) -> None:
        self.name = name
        self._folder = folder
        self._lock = lock
        self._journal = Journal(folder / "journal.jsonl", read_only=lock is None)
        self._queues = DiskQueues(self._journal)
        self._clients: tuple[Client, ...] = ()

    def clients(self) -> Sequence[Client]:
        return self._clients

    def is_changed(self) -> bool:
        """Return whether the journal on this machine has changes that ``reset`` would undo."""
        return bool(self._journal.entries())

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _must_be_for_change(self) -> None:
        if self._lock is None:
            raise ClusterError("this target was opened for reading only", where=self.name)


class LocalTarget(MachineTarget, CountsTraffic):
    """One file or block device.

    The clients share it: client i has the bytes from i times the volume's size. The target creates a missing file,
    and ``reset`` deletes it. It refuses a file that it did not create, and a device that is mounted or has content
    that blkid recognises. It recognises a device that it filled, or that a workload of cephfit wrote, by the
    identity of its disk, not by its path: after a reboot the path may be that of another disk. ``reset`` removes
    the signatures of a workload's file systems.

    Args:
        path: absolute.
        for_change: take the lock; all methods except ``facts``, ``health`` and ``unsupported`` require it.

    Raises:
        ClusterError: another process uses this target.
    """

    def __init__(self, path: Path, *, for_change: bool = True) -> None:
        name, folder = f"local:{path}", state_folder(path)
        if for_change:
            folder.mkdir(parents=True, exist_ok=True)
        super().__init__(name, folder, TargetLock(folder / "lock", name) if for_change else None)
        self._path = path

    def facts(self) -> Mapping[str, Any]:
        return {
            "local": str(self._path),
            "block_device": self._is_device(),
            "versions": {"cephfit": __version__, "kernel": platform.release()},
            "machine": {"cpus": os.cpu_count(), "architecture": platform.machine()},
        }

    def unsupported(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """Return configurations with queue values that this kernel lacks, or with options of a storage protocol.

        Raises:
            InputError: a setting is one of Ceph, which this target does not have.
        """
        reasons: dict[str, tuple[str, ...]] = {}
        for configuration in configurations:
            why = []
            for setting in configuration.settings:
                if setting.scope in PROTOCOL_OPTIONS:
                    why.append(f"{self._path} is of this machine: {setting.key} of {setting.scope} is not used")
                    continue
                self._refuse_ceph(configuration, setting)
                if not self._queues.has(self._device(), setting.key):
                    why.append(f"{self._path} has no queue value {setting.key}")
            if why:
                reasons[configuration.name] = tuple(why)
        return reasons

    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        started = time.monotonic()
        self._must_be_for_change()
        for setting in configuration.settings:
            self._refuse_ceph(configuration, setting)
        self._ensure(n_clients * volume_nbytes, fill=fill)
        self._clients = tuple(
            Client(
                name=f"c{i}",
                fio_options={"filename": escaped_filename(self._path), "offset": str(i * volume_nbytes)},
                nbytes=volume_nbytes,
                # The device's counter cannot separate two clients.
                device=self._path if n_clients == 1 and self._is_device() else None,
            )
            for i in range(n_clients)
        )
        settings = [(setting, self._device()) for setting in configuration.settings]
        self._queues.apply(settings)
        read_back, mismatches = self._queues.read_back(settings)
        return Applied.as_read(configuration, read_back, mismatches, seconds=time.monotonic() - started)

    def traffic_counter(self) -> TrafficCounter:
        """Return what reads the disk's counters, which contain all other I/O of the disk."""
        return lambda: traffic_of(disk_below(self._path), None)

    def drop_caches(self) -> None:
        descriptor = os.open(self._path, os.O_RDWR)
        try:
            os.fsync(descriptor)
            if self._is_device():
                flush_buffers(descriptor)
            else:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)

    def health(self) -> Health:
        if self._clients and not self._path.exists():
            return Health(ok=False, reasons=(f"{self._path} no longer exists",))
        return Health(ok=True)

    def reset(self) -> None:
        self._clients = ()
        self._queues.restore()
        self._journal.forget(_FILLED, str(self._path))
        if self._is_lent():
            remove_signatures(self._path)
        self._journal.forget(_LENT, str(self._path))
        if self._journal.get(_CREATED, str(self._path)) is not None:
            self._path.unlink(missing_ok=True)
            self._journal.forget(_CREATED, str(self._path))
        self._journal.finish()

    def _ensure(self, nbytes: int, *, fill: bool) -> None:
        """Ensure that the file or device exists, is large enough, may be written, and is filled."""
        if self._is_device():
            self._require_free_device(nbytes)
            if not fill and not self._is_lent():
                self._journal.forget(_LENT, str(self._path))  # of another disk
                self._journal.note(_LENT, str(self._path), self._identity())
        elif self._path.exists():
            if self._journal.get(_CREATED, str(self._path)) is None:
                raise InputError(
                    f"{self._path} already exists, and cephfit did not create it",
                    where=self.name,
                    remedy="a sweep overwrites it: name a path that does not exist, or delete the file yourself",
                )
        else:
            if _DEV in self._path.parents:
                raise InputError(
                    f"there is no device {self._path}", where=self.name, remedy="`lsblk` lists the devices"
                )
            if not self._path.parent.is_dir():
                raise InputError(
                    f"the folder {self._path.parent} does not exist", where=self.name, remedy="create it first"
                )
            self._journal.forget(_FILLED, str(self._path))
            self._journal.note(_CREATED, str(self._path), None)
        if not fill:
            # A workload writes its own content, and its file system may discard what was there.
            self._journal.forget(_FILLED, str(self._path))
            if not self._is_device():
                fill_with_random(self._path, 0)  # creates it
                os.truncate(self._path, max(nbytes, self._path.stat().st_size))
        elif self._filled_nbytes() < nbytes:
            self._journal.forget(_FILLED, str(self._path))
            fill_with_random(self._path, nbytes)
            self._journal.note(_FILLED, str(self._path), {"nbytes": nbytes, "disk": self._identity()})

    def _filled_nbytes(self) -> int:
        """Return how many bytes of the file, or of this disk, are filled."""
        entry = self._journal.get(_FILLED, str(self._path))
        if entry is None or not isinstance(entry.was, dict):
            return 0
        identity = self._identity()
        known = entry.was["disk"] == identity and (identity or not self._is_device())
        return int(entry.was["nbytes"]) if known else 0

    def _is_lent(self) -> bool:
        entry = self._journal.get(_LENT, str(self._path))
        return entry is not None and bool(entry.was) and entry.was == self._identity()

    def _identity(self) -> str:
        return identity_of(self._path) if self._is_device() else ""

    def _require_free_device(self, nbytes: int) -> None:
        try:
            # For block devices O_EXCL means: the device is not mounted or otherwise in use.
            descriptor = os.open(self._path, os.O_RDWR | os.O_EXCL)
        except OSError as error:
            raise HostError(
                f"cannot open the device exclusively: {error.strerror}",
                where=str(self._path),
                remedy="a sweep overwrites it: it must be unmounted, unused, and writable by you",
            ) from None
        try:
            size = int.from_bytes(fcntl.ioctl(descriptor, _BLKGETSIZE64, bytes(8)), "little")
        finally:
            os.close(descriptor)
        if size < nbytes:
            raise InputError(
                f"the device has {format_nbytes(size)}, but {format_nbytes(nbytes)} are needed",
                where=self.name,
                remedy="use a larger device, smaller volumes or fewer clients",
            )
        if not self._filled_nbytes() and not self._is_lent():
            require_empty(self._path, where=self.name)

    def _refuse_ceph(self, configuration: Configuration, setting: Setting) -> None:
        if setting.partition is not Partition.GREATER or setting.scope != "client_disk" or not self._is_device():
            kind = "a block device" if self._is_device() else "a file"
            raise InputError(
                f"configuration {configuration.name} sets {setting}, and {self._path} is only {kind}",
                where=self.name,
                remedy="a local target supports greater/client_disk settings of a block device; use --target lab",
            )

    def _is_device(self) -> bool:
        try:
            return stat.S_ISBLK(self._path.stat().st_mode)
        except OSError:
            return False

    def _device(self) -> Path:
        return self._path.resolve()
