"""The lab's Ceph daemons: cephx keys, start, stop and state."""

import base64
import os
import struct
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from cephfit.core.errors import ClusterError, HostError
from cephfit.lab.daemons import processes
from cephfit.lab.daemons.ceph_programs import CephPrograms
from cephfit.lab.devices.disk_times import DiskTimes


def new_key() -> str:
    """A cephx key: type 1 (AES), creation time, length, 16 random bytes (Ceph's src/auth/Crypto.cc)."""
    return base64.b64encode(struct.pack("<hiih", 1, int(time.time()), 0, 16) + os.urandom(16)).decode()


def keyring_entry(entity: str, key: str, caps: Mapping[str, str]) -> str:
    """One section of a keyring file."""
    lines = [f"[{entity}]", f"\tkey = {key}", *(f'\tcaps {who} = "{what}"' for who, what in caps.items())]
    return "\n".join(lines) + "\n"


def write_secret(file: Path, text: str) -> None:
    """Write a file that only its owner can read at any time."""
    with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as stream:  # noqa: PTH123
        stream.write(text)


MON = "mon.a"
MGR = "mgr.x"
_START_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class DaemonState:
    """One daemon, as this machine sees it.

    Attributes:
        name: ``osd.0``.
        pid: None if it does not run.
        memory_nbytes: resident, 0 if it does not run.
    """

    name: str
    pid: int | None
    memory_nbytes: int

    @property
    def alive(self) -> bool:
        return self.pid is not None


def osd_name(osd: int) -> str:
    """``osd.3``: as Ceph calls the daemon."""
    return f"osd.{osd}"


class Daemons:
    """Starts and stops the daemons of one lab.

    Args:
        folder: the lab's.
        conf: its ceph.conf.
        programs: of its release.
    """

    def __init__(self, folder: Path, conf: Path, programs: CephPrograms) -> None:
        self._folder = folder
        self._conf = conf
        self._programs = programs

    def pid(self, name: str) -> int | None:
        return processes.from_pid_file(self._folder / "run" / f"{name}.pid", self._folder)

    def start(self, name: str) -> None:
        """Start a daemon in the background unless it runs; return when it has read its files.

        Raises:
            ClusterError: it does not start; with the last line of its log.
        """
        if self.pid(name) is not None:
            return
        kind, _, number = name.partition(".")
        try:
            self._programs.run(
                [f"ceph-{kind}", "-c", str(self._conf), "-i", number],
                seconds=_START_SECONDS,
                environment=DiskTimes(self._folder).environment() if kind == "osd" else None,
            )
        except HostError as error:
            raise ClusterError(
                f"{name} does not start: {error.what}{self._last_error(name)}",
                where=str(self._folder),
                remedy=f"its log is {self._folder / 'log' / name}.log",
            ) from None

    def start_all(self, names: Sequence[str]) -> None:
        """Start daemons concurrently."""
        with ThreadPoolExecutor(max_workers=max(1, len(names))) as pool:
            list(pool.map(self.start, names))

    def stop_all(self, names: Iterable[str]) -> None:
        """Stop daemons concurrently; those that do not run are ignored."""
        processes.stop([pid for name in names if (pid := self.pid(name)) is not None], seconds=20.0)

    def kill_strays(self, name: str) -> None:
        """Kill processes of this daemon without a pid file, which a killed start of it may have left."""
        kind, _, number = name.partition(".")
        lines = {pid: processes.command_line(pid) for pid in processes.of_folder(self._folder)}
        processes.kill(
            pid
            for pid, argv in lines.items()
            if f"ceph-{kind}" in {Path(argument).name for argument in argv} and ("-i", number) in pairwise(argv)
        )

    def state(self, name: str) -> DaemonState:
        pid = self.pid(name)
        memory_nbytes = 0
        if pid is not None:
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                return DaemonState(name, None, 0)
            memory_nbytes = next(
                (int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:")), 0
            )
        return DaemonState(name, pid, memory_nbytes)

    def _last_error(self, name: str) -> str:
        try:
            lines = (self._folder / "log" / f"{name}.log").read_text(errors="replace").splitlines()
        except OSError:
            return ""
        errors = [line for line in lines if " -1 " in line]
        return f"; {errors[-1].split(' -1 ', 1)[1]}" if errors else ""
