"""This lab's processes: who they are, and stopping them by id."""

import os
import re
import signal
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

_PROGRAMS = frozenset(
    {
        "ceph-mon",
        "ceph-mgr",
        "ceph-osd",
        "monmaptool",
        "crushtool",
        "qemu-storage-daemon",
        "rbd-nbd",
        "rbd",
        "fio",
        "losetup",
        "mkfs.ext4",
        "postgres",
        "pgbench",
        "initdb",
        "psql",
        "qemu-system-x86_64",
    }
)
"""Only these can be a lab's; an editor or `tail -f` with a file of the lab open is somebody's own."""

_GONE_SECONDS = 10.0
_EXEC_SECONDS = 2.0

MARK = "CEPHFIT_LAB"
"""Environment variable with the lab's folder. Its OpenStack runs dozens of programs, many of them in Python, and
their children: they are known by what they inherit, not by what they are called."""


def command_line(pid: int) -> tuple[str, ...]:
    """The arguments of a process; empty if it is gone or a zombie."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(raw.decode(errors="replace").split("\0")[:-1])


def is_alive(pid: int) -> bool:
    """Whether any thread of the process still runs.

    A leader that exited while other threads still run is shown as a zombie, yet its files are still open.
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        n_threads = len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 (no stat of each entry)
    except OSError:
        return False
    return state not in "ZX" or n_threads > 1


def mentions(argv: Sequence[str], folder: Path) -> bool:
    """Whether an argument names ``folder`` or something below it."""
    # Within an argument (`--pidfile=/a/b`, JSON) the path is bounded, so that /a/lab is not /a/lab2 or /x/a/lab.
    bounded = re.compile(rf"(?<![^\s=:,\"']){re.escape(str(folder))}(?=[/\s,\"']|$)")
    return any(bounded.search(argument) for argument in argv)


def owned(pid: int, folder: Path) -> bool:
    """Whether the process is one of the programs a lab starts and was started for this folder."""
    argv = command_line(pid)
    return (bool(argv) and Path(argv[0]).name in _PROGRAMS and mentions(argv, folder)) or is_marked(pid, folder)


def is_marked(pid: int, folder: Path) -> bool:
    """Whether the process was given, or inherited, the mark of ``folder`` or of something below it."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    prefix = f"{MARK}=".encode()
    marks = [Path(os.fsdecode(entry.removeprefix(prefix))) for entry in environment if entry.startswith(prefix)]
    return any(mark == folder or folder in mark.parents for mark in marks)


def from_pid_file(pid_file: Path, folder: Path) -> int | None:
    """The id in a pid file if that process lives and belongs to ``folder``; ids are used again after a crash."""
    try:
        pid = int(pid_file.read_text())
    except (OSError, ValueError):
        return None
    # In the middle of exec(2), which takes long on a busy machine, it has neither arguments nor environment.
    until = time.monotonic() + _EXEC_SECONDS
    while is_alive(pid) and not command_line(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return pid if is_alive(pid) and owned(pid, folder) else None


def of_folder(folder: Path) -> list[int]:
    """All living processes that belong to ``folder``, with or without a pid file."""
    ids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in ids if pid != os.getpid() and owned(pid, folder) and is_alive(pid)]


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to those of the processes that are still there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def wait_gone(pids: Iterable[int], seconds: float) -> list[int]:
    """Wait until all are gone; the ones that are still there after ``seconds``."""
    left = list(pids)
    until = time.monotonic() + seconds
    while True:
        for pid in left:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # one of our own children stays a zombie until it is waited for
        left = [pid for pid in left if is_alive(pid)]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.02)


def stop(pids: Iterable[int], *, seconds: float = 10.0) -> None:
    """Ask politely, then not."""
    pids = list(pids)
    send(pids, signal.SIGTERM)
    left = wait_gone(pids, seconds)
    send(left, signal.SIGKILL)
    wait_gone(left, seconds)


def kill(pids: Iterable[int]) -> None:
    """End them at once."""
    pids = list(pids)
    send(pids, signal.SIGKILL)
    wait_gone(pids, _GONE_SECONDS)
