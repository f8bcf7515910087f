"""The processes of a lab: find them, and stop them by id."""

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
"""Only these programs belong to a lab, not an editor or `tail -f` with a file of the lab open."""

_GONE_SECONDS = 10.0
_EXEC_SECONDS = 2.0

MARK = "CEPHFIT_LAB"
"""Environment variable with the lab's folder. Its OpenStack runs dozens of programs, many of them in Python, with
child processes. They are identified by this inherited variable, not by their names."""


def command_line(pid: int) -> tuple[str, ...]:
    """Return the arguments of a process; empty if it has ended or is a zombie."""
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ()
    return tuple(raw.decode(errors="replace").split("\0")[:-1])


def is_alive(pid: int) -> bool:
    """Return whether any thread of the process still runs.

    A leader that exited while other threads still run is shown as a zombie, yet its files are still open.
    """
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        n_threads = len(os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208 (no stat of each entry)
    except OSError:
        return False
    return state not in "ZX" or n_threads > 1


def mentions(argv: Sequence[str], folder: Path) -> bool:
    """Return whether an argument names ``folder`` or a path below it."""
    # Within an argument (`--pidfile=/a/b`, JSON) the match ends at a path boundary, so that /a/lab is not /a/lab2
    # or /x/a/lab.
    bounded = re.compile(rf"(?<![^\s=:,\"']){re.escape(str(folder))}(?=[/\s,\"']|$)")
    return any(bounded.search(argument) for argument in argv)


def owned(pid: int, folder: Path) -> bool:
    """Return whether the process is one of the programs a lab starts and was started for this folder."""
    argv = command_line(pid)
    return (bool(argv) and Path(argv[0]).name in _PROGRAMS and mentions(argv, folder)) or is_marked(pid, folder)


def is_marked(pid: int, folder: Path) -> bool:
    """Return whether the process has, or inherited, the mark of ``folder`` or of a path below it."""
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return False
    prefix = f"{MARK}=".encode()
    marks = [Path(os.fsdecode(entry.removeprefix(prefix))) for entry in environment if entry.startswith(prefix)]
    return any(mark == folder or folder in mark.parents for mark in marks)


def from_pid_file(pid_file: Path, folder: Path) -> int | None:
    """The id in a pid file if that process lives and belongs to ``folder``; ids may be reused after a crash."""
    try:
        pid = int(pid_file.read_text())
    except (OSError, ValueError):
        return None
    # During exec(2), which takes long on a busy machine, a process has neither arguments nor environment.
    until = time.monotonic() + _EXEC_SECONDS
    while is_alive(pid) and not command_line(pid) and time.monotonic() < until:
        time.sleep(0.01)
    return pid if is_alive(pid) and owned(pid, folder) else None


def of_folder(folder: Path) -> list[int]:
    """Return all living processes of ``folder``, with or without a pid file."""
    ids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return [pid for pid in ids if pid != os.getpid() and owned(pid, folder) and is_alive(pid)]


def send(pids: Iterable[int], number: signal.Signals) -> None:
    """Send a signal to the processes that still exist."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def wait_gone(pids: Iterable[int], seconds: float) -> list[int]:
    """Wait until all have ended; return those that still run after ``seconds``."""
    left = list(pids)
    until = time.monotonic() + seconds
    while True:
        for pid in left:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)  # a child process stays a zombie until it is waited for
        left = [pid for pid in left if is_alive(pid)]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.02)


def stop(pids: Iterable[int], *, seconds: float = 10.0) -> None:
    """Send SIGTERM, then SIGKILL."""
    pids = list(pids)
    send(pids, signal.SIGTERM)
    left = wait_gone(pids, seconds)
    send(left, signal.SIGKILL)
    wait_gone(left, seconds)


def kill(pids: Iterable[int]) -> None:
    """Send SIGKILL."""
    pids = list(pids)
    send(pids, signal.SIGKILL)
    wait_gone(pids, _GONE_SECONDS)
