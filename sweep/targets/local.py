"""A file or block device of this machine, without any Ceph: for trying fio and the sweep on it."""

import fcntl
import hashlib
import os
import platform
import stat
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from platformdirs import user_state_path

from cephfit import __version__
from cephfit.configuration import Configuration, Partition, Setting
from cephfit.errors import ClusterError, HostError, InputError
from cephfit.protocols import Applied, Client, Health, Target
from cephfit.sweep.abilities import JudgesConfigurations
from cephfit.sweep.engines.block_device import flush_buffers
from cephfit.sweep.engines.fio_job import escaped_filename
from cephfit.sweep.greater.disk_queues import DiskQueues
from cephfit.sweep.journal import Journal
from cephfit.sweep.target_lock import TargetLock
from cephfit.sweep.targets.disk_identity import identity_of
from cephfit.units import MIB, format_nbytes

_CREATED = "created"
_FILLED = "filled"
_BLKGETSIZE64 = 0x80081272


def local_target(text: str, *, for_change: bool = True) -> "LocalTarget":
    """Open ``local:/path/of/file``.

    Raises:
        InputError: no absolute path, or that of a folder.
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
    """Where journal and lock of a local target are kept: not beside the file, whose folder may be anybody's."""
    return user_state_path("cephfit") / "local" / hashlib.sha256(str(path).encode()).hexdigest()[:16]


class LocalTarget(Target, JudgesConfigurations):
    """One file or block device.

    The clients share it side by side: client i has the bytes from i times the volume's size. A file that is not
    there is made, and deleted by ``reset``; one that is there already and was not made by this target is refused,
    and so is a device that is mounted or holds anything that blkid knows. A device that was filled is known again
    by what its disk says of itself, not by its path: after a reboot the path may be another disk's.

    Args:
        path: absolute.
        for_change: take the lock; needed by all but ``facts``, ``health`` and ``unsupported``.

    Raises:
        ClusterError: another process uses this target.
    """

    def __init__(self, path: Path, *, for_change: bool = True) -> None:
        self.name = f"local:{path}"
        self._path = path
        self._folder = state_folder(path)
        self._lock: TargetLock | None = None
        if for_change:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = TargetLock(self._folder / "lock", self.name)
        self._journal = Journal(self._folder / "journal.jsonl", read_only=not for_change)
        self._queues = DiskQueues(self._journal)
        self._clients: tuple[Client, ...] = ()

    def facts(self) -> Mapping[str, Any]:
        return {
            "local": str(self._path),
            "block_device": self._is_device(),
            "versions": {"cephfit": __version__, "kernel": platform.release()},
            "machine": {"cpus": os.cpu_count(), "architecture": platform.machine()},
        }

    def unsupported(self, configurations: Iterable[Configuration]) -> Mapping[str, tuple[str, ...]]:
        """Queue values that this kernel lacks.

        Raises:
            InputError: a setting of Ceph: there is none here.
        """
        reasons: dict[str, tuple[str, ...]] = {}
        for configuration in configurations:
            for setting in configuration.settings:
                self._refuse_ceph(configuration, setting)
            missing = [s.key for s in configuration.settings if not self._queues.has(self._device(), s.key)]
            if missing:
                reasons[configuration.name] = tuple(f"{self._path} has no queue value {key}" for key in missing)
        return reasons

    def apply(
        self, configuration: Configuration, *, n_clients: int, volume_nbytes: int, fill: bool = True
    ) -> Applied:
        started = time.monotonic()
        if self._lock is None:
            raise ClusterError("this target was opened for reading only", where=self.name)
        for setting in configuration.settings:
            self._refuse_ceph(configuration, setting)
        self._ensure(n_clients * volume_nbytes, fill=fill)
        self._clients = tuple(
            Client(
                name=f"c{i}",
                fio_options={"filename": escaped_filename(self._path), "offset": str(i * volume_nbytes)},
                nbytes=volume_nbytes,
                # One counter cannot tell two clients apart.
                device=self._path if n_clients == 1 and self._is_device() else None,
            )
            for i in range(n_clients)
        )
        wanted = [(setting, self._device()) for setting in configuration.settings]
        self._queues.apply(wanted)
        read_back, mismatches = self._queues.read_back(wanted)
        return Applied(
            configuration=configuration.name,
            ok=not mismatches,
            mismatches=tuple(mismatches),
            read_back=read_back,
            seconds=time.monotonic() - started,
        )

    def clients(self) -> Sequence[Client]:
        return self._clients

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
            return Health(ok=False, reasons=(f"{self._path} is gone",))
        return Health(ok=True)

    def reset(self) -> None:
        self._clients = ()
        self._queues.restore()
        self._journal.forget(_FILLED, str(self._path))
        if self._journal.get(_CREATED, str(self._path)) is not None:
            self._path.unlink(missing_ok=True)
            self._journal.forget(_CREATED, str(self._path))
        self._journal.finish()

    def is_changed(self) -> bool:
        """Whether the journal on this machine knows of anything that ``reset`` would undo."""
        return bool(self._journal.entries())

    def close(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _ensure(self, nbytes: int, *, fill: bool) -> None:
        """The file or device is there, large enough, ours to write, and filled."""
        if self._is_device():
            self._require_free_device(nbytes)
        elif self._path.exists():
            if self._journal.get(_CREATED, str(self._path)) is None:
                raise InputError(
                    f"{self._path} already exists, and cephfit did not create it",
                    where=self.name,
                    remedy="a sweep overwrites it: name a path that is free, or delete it yourself",
                )
        else:
            if not self._path.parent.is_dir():
                raise InputError(
                    f"the folder {self._path.parent} does not exist", where=self.name, remedy="create it first"
                )
            self._journal.forget(_FILLED, str(self._path))
            self._journal.note(_CREATED, str(self._path), None)
        if not fill and not self._path.exists():
            self._fill(0)
            os.truncate(self._path, nbytes)
        elif fill and self._filled_nbytes() < nbytes:
            self._journal.forget(_FILLED, str(self._path))
            self._fill(nbytes)
            self._journal.note(_FILLED, str(self._path), {"nbytes": nbytes, "disk": self._identity()})

    def _filled_nbytes(self) -> int:
        """How much of the file, or of this very disk, is filled."""
        entry = self._journal.get(_FILLED, str(self._path))
        if entry is None or not isinstance(entry.was, dict):
            return 0
        identity = self._identity()
        known = entry.was["disk"] == identity and (identity or not self._is_device())
        return int(entry.was["nbytes"]) if known else 0

    def _identity(self) -> str:
        return identity_of(self._path) if self._is_device() else ""

    def _fill(self, nbytes: int) -> None:
        """Write random bytes, which nothing can compress, and have them on the disk."""
        try:
            descriptor = os.open(self._path, os.O_WRONLY | (0 if self._is_device() else os.O_CREAT), 0o600)
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                for start in range(0, nbytes, MIB):
                    block = memoryview(os.urandom(min(MIB, nbytes - start)))
                    while block:
                        block = block[file.write(block) :]
                os.fsync(file.fileno())
        except OSError as error:
            raise HostError(
                f"cannot fill {format_nbytes(nbytes)}: {error.strerror}",
                where=str(self._path),
                remedy="make room or use smaller volumes, then run the same command again",
            ) from None

    def _require_free_device(self, nbytes: int) -> None:
        try:
            # For block devices O_EXCL means: nobody has it mounted or otherwise in use.
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
        if not self._filled_nbytes():
            probe = subprocess.run(
                ("blkid", "--probe", str(self._path)), capture_output=True, text=True, check=False, timeout=60
            )
            # 2 says that nothing was found; anything else is no leave to overwrite.
            if probe.returncode != 2:
                raise InputError(
                    f"the device is not empty: {probe.stdout.strip() or probe.stderr.strip()}",
                    where=self.name,
                    remedy="a sweep overwrites it: if nobody needs its content, run wipefs --all on it first",
                )

    def _refuse_ceph(self, configuration: Configuration, setting: Setting) -> None:
        if setting.partition is not Partition.GREATER or setting.scope != "client_disk" or not self._is_device():
            kind = "a block device" if self._is_device() else "a file"
            raise InputError(
                f"configuration {configuration.name} sets {setting}, and {self._path} is only {kind}",
                where=self.name,
                remedy="a local target takes greater/client_disk settings of a block device; use --target lab",
            )

    def _is_device(self) -> bool:
        try:
            return stat.S_ISBLK(self._path.stat().st_mode)
        except OSError:
            return False

    def _device(self) -> Path:
        return self._path.resolve()
