"""Capture by the kernel's blk tracer, for kernels with a lockdown that denies blktrace its debugfs channel.

The binary output of the tracer is the stream of records that blktrace writes (kernel: kernel/trace/blktrace.c,
options ``bin`` and ``nocontext-info``). The tracer is not allowed in instances; it runs only in the top-level
trace buffer, which must not be in use by another program.

The kernel's tracing folder is found or mounted, and its values are changed during the capture. A journal in /run
keeps the old values before any change. If a capture is killed, the next one finds the journal and restores the
values first.
"""

import json
import os
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from cephfit.core.errors import HostError

_PLACES = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
_JOURNAL = Path("/run/cephfit-tracefs.json")
_MOUNTED = Path("/run/cephfit-tracefs.mounted.json")
"""The process that mounted the tracing folder, while a capture has it mounted."""


@contextmanager
def mounted_tracefs() -> Iterator[Path]:
    """Yield the tracing folder; mount it during the context if it is not mounted.

    Raises:
        HostError: The kernel has no tracing folder, or mounting is not allowed.
    """
    place = next((p for p in _PLACES if (p / "current_tracer").exists()), None)
    if place is not None and not _mounted_by_killed_capture():
        yield place
        return
    place = place or _mount()
    _MOUNTED.write_text(json.dumps(_this_process()), encoding="utf-8")
    try:
        yield place
    finally:
        subprocess.run(["umount", str(place)], capture_output=True, check=False)
        _MOUNTED.unlink(missing_ok=True)


def _mount() -> Path:
    place = _PLACES[0]
    command = ["mount", "-t", "tracefs", "nodev", str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HostError(
            f"the kernel's tracing folder cannot be mounted: {done.stderr.strip()}",
            where=str(place),
            remedy="use a kernel with CONFIG_FTRACE and CONFIG_BLK_DEV_IO_TRACE, and run as root",
        )
    return place


def _mounted_by_killed_capture() -> bool:
    try:
        mounter = json.loads(_MOUNTED.read_text(encoding="utf-8"))
        return not _is_alive(mounter)
    except FileNotFoundError:
        return False
    except (ValueError, KeyError, TypeError):
        return True  # the capture was killed while it wrote this file


@contextmanager
def temporary_values(files: Mapping[Path, str]) -> Iterator[None]:
    """Write values to kernel files, in order; restore the old values afterwards, in reverse order.

    Raises:
        HostError: The kernel refuses a value.
    """
    before = {path: _setting(path) for path in files}
    _JOURNAL.write_text(
        json.dumps({**_this_process(), "was": {str(p): value for p, value in before.items()}}), encoding="utf-8"
    )
    try:
        for path, value in files.items():
            write(path, value)
        yield
    finally:
        _restore(before)
        _JOURNAL.unlink(missing_ok=True)


def restore_after_kill() -> None:
    """Restore the values that a killed capture left changed.

    Raises:
        HostError: Another capture by cephfit is running.
    """
    try:
        journal = json.loads(_JOURNAL.read_text(encoding="utf-8"))
        alive = _is_alive(journal)
        before = {Path(path): str(value) for path, value in journal["was"].items()}
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError):
        # The capture was killed while it wrote the journal, before any change.
        _JOURNAL.unlink(missing_ok=True)
        return
    if alive:
        raise HostError(
            f"process {journal['pid']} is capturing: the kernel has only one blk tracer",
            remedy="wait until that capture ends",
        )
    _restore(before)
    _JOURNAL.unlink(missing_ok=True)


def write(path: Path, value: str) -> None:
    """Write a value to a kernel file.

    Raises:
        HostError: The kernel refuses the value.
    """
    try:
        path.write_text(value, encoding="ascii")
    except OSError as error:
        raise HostError(f"the kernel refuses {value!r}: {error.strerror}", where=str(path)) from None


def _restore(before: Mapping[Path, str]) -> None:
    refused: list[HostError] = []
    for path, value in reversed(list(before.items())):
        try:
            if path.exists():
                write(path, value)
        except HostError as error:
            refused.append(error)  # the other files must still be restored
    if refused:
        raise refused[0]


def _setting(path: Path) -> str:
    """Return the value to restore: ``7 (expanded: 1408)`` is a buffer of 1408 KiB that was not used yet."""
    text = path.read_text(encoding="ascii").strip()
    return text.partition("expanded:")[2].strip(" )") or text


def _this_process() -> dict[str, Any]:
    return {"pid": os.getpid(), "start": _start_time(os.getpid())}


def _is_alive(process: Mapping[str, Any]) -> bool:
    return process["start"] is not None and _start_time(int(process["pid"])) == process["start"]


def _start_time(pid: int) -> str | None:
    """Return the clock ticks since boot at which a process began; it distinguishes processes with a reused pid."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


_BUFFER_KB = 16 * 1024
"""Size of the kernel's ring buffer per CPU: 300,000 events; the reader drains it many times a second."""

_READ_NBYTES = 1 << 20
_IDLE_SECONDS = 0.01


class _Drain(threading.Thread):
    """Copies the pipe of each CPU to a file, until it is stopped and the pipes are empty."""

    def __init__(self, pipes: dict[int, int], files: dict[int, Path]) -> None:
        super().__init__(name="cephfit-drain")
        self._pipes = pipes
        self._files = files
        self._last_round = threading.Event()
        self.error: OSError | None = None

    def run(self) -> None:
        try:
            with_data = {cpu: path.open("wb") for cpu, path in self._files.items()}
            try:
                while True:
                    last = self._last_round.is_set()
                    moved = sum(self._copy(cpu, file) for cpu, file in with_data.items())
                    if not moved:
                        if last:
                            return
                        time.sleep(_IDLE_SECONDS)
            finally:
                for file in with_data.values():
                    file.close()
        except OSError as error:
            self.error = error

    def _copy(self, cpu: int, file: BinaryIO) -> int:
        try:
            block = os.read(self._pipes[cpu], _READ_NBYTES)
        except BlockingIOError:
            return 0
        file.write(block)
        return len(block)

    def stop(self) -> None:
        self._last_round.set()
        self.join()


@contextmanager
def tracing(device: str, folder: Path, stem: str) -> Iterator[list[int]]:
    """Record a device's events to ``FOLDER/STEM.blktrace.N`` during the context.

    Args:
        device: Kernel name, such as ``sda`` or ``loop3``.
        folder: An existing folder.
        stem: Stem of the file names.

    Yields:
        A list to which the number of lost events is appended when the context ends.

    Raises:
        HostError: The kernel has no tracer, or it is in use.
    """
    with mounted_tracefs() as root:
        restore_after_kill()
        switch = Path("/sys/class/block") / device / "trace" / "enable"
        _refuse_if_in_use(root, switch)
        settings = {
            root / "tracing_on": "0",
            root / "current_tracer": "blk",
            root / "options" / "bin": "1",
            root / "options" / "context-info": "0",
            root / "options" / "overwrite": "0",  # a full buffer drops and counts events
        }
        buffers = {path / "buffer_size_kb": str(_BUFFER_KB) for path in _cpus(root).values()}
        with temporary_values({**buffers, **settings, switch: "1"}):
            before = _lost(root)
            lost: list[int] = []
            with _drained(root, folder, stem):
                write(root / "tracing_on", "1")
                try:
                    yield lost
                finally:
                    write(root / "tracing_on", "0")
            lost.append(_lost(root) - before)


def _refuse_if_in_use(root: Path, switch: Path) -> None:
    tracers = (root / "available_tracers").read_text(encoding="ascii").split()
    if "blk" not in tracers or not switch.exists():
        raise HostError(
            "this kernel has no blk tracer",
            where=str(root),
            remedy="use a kernel with CONFIG_BLK_DEV_IO_TRACE",
        )
    current = (root / "current_tracer").read_text(encoding="ascii").strip()
    events = (root / "set_event").read_text(encoding="ascii").strip()
    if current != "nop" or events:
        user = f"the tracer {current!r}" if current != "nop" else f"the trace event {events.splitlines()[0]}"
        raise HostError(
            f"the kernel's trace buffer is in use by {user}",
            where=str(root),
            remedy="end the other tracing first (`trace-cmd reset` if it is not needed any more)",
        )
    if switch.read_text(encoding="ascii").strip() != "0":
        raise HostError(
            "the device is being traced already",
            where=str(switch),
            remedy="end the other tracing first (`blktrace -k DEVICE` if it is not needed any more)",
        )


@contextmanager
def _drained(root: Path, folder: Path, stem: str) -> Iterator[None]:
    """Copy the records of all CPUs to files during the context."""
    pipes: dict[int, int] = {}
    files = {cpu: folder / f"{stem}.blktrace.{cpu}" for cpu in _cpus(root)}
    try:
        for cpu, path in _cpus(root).items():
            pipes[cpu] = os.open(path / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
    except OSError as error:
        for pipe in pipes.values():
            os.close(pipe)
        raise HostError(
            f"the trace cannot be read: {error.strerror}",
            where=str(root),
            remedy="end the other program that reads trace_pipe",
        ) from None
    drain = _Drain(pipes, files)
    drain.start()
    try:
        yield
    finally:
        drain.stop()
        for pipe in pipes.values():
            os.close(pipe)
    if drain.error is not None:
        raise HostError(f"the trace cannot be written: {drain.error.strerror}", where=str(folder))


def _cpus(root: Path) -> dict[int, Path]:
    folders = {int(p.name[3:]): p for p in (root / "per_cpu").glob("cpu*") if p.name[3:].isdigit()}
    return dict(sorted(folders.items()))


def _lost(root: Path) -> int:
    """Return the number of events dropped by full buffers of all CPUs since the buffers were created."""
    total = 0
    for path in _cpus(root).values():
        for line in (path / "stats").read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(":")
            if name in ("overrun", "dropped events"):
                total += int(value)
    return total
