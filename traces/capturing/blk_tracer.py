"""Capture by the kernel's own blk tracer, for kernels whose lockdown forbids blktrace its debugfs channel.

The tracer's binary output is the same stream of records that blktrace writes (kernel: kernel/trace/blktrace.c,
options ``bin`` and ``nocontext-info``). It runs only in the top-level trace buffer: the tracer is not allowed in
instances, so it must not be in use by anybody else.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from cephfit.errors import HostError
from cephfit.traces.capturing import tracefs

_BUFFER_KB = 16 * 1024
"""Of the kernel's ring buffer for each CPU: 300,000 events, while the reader drains it many times a second."""

_READ_NBYTES = 1 << 20
_IDLE_SECONDS = 0.01


class _Drain(threading.Thread):
    """Copies what the CPUs' pipes give to one file each, until told to stop and the pipes are empty."""

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
    """Record a device's events to ``FOLDER/STEM.blktrace.N`` while the context lasts.

    Args:
        device: kernel name, such as ``sda`` or ``loop3``.
        folder: exists.
        stem: of the files.

    Yields:
        a list to which the number of lost events is appended when the context ends.

    Raises:
        HostError: no tracer in this kernel, or it is in use.
    """
    with tracefs.mounted_tracefs() as root:
        tracefs.restore_after_a_kill()
        switch = Path("/sys/class/block") / device / "trace" / "enable"
        _refuse_if_in_use(root, switch)
        settings = {
            root / "tracing_on": "0",
            root / "current_tracer": "blk",
            root / "options" / "bin": "1",
            root / "options" / "context-info": "0",
            root / "options" / "overwrite": "0",  # what finds no room is dropped and counted, no note in between
        }
        buffers = {path / "buffer_size_kb": str(_BUFFER_KB) for path in _cpus(root).values()}
        with tracefs.kept_as_it_was({**buffers, **settings, switch: "1"}):
            before = _lost(root)
            lost: list[int] = []
            with _drained(root, folder, stem):
                tracefs.write(root / "tracing_on", "1")
                try:
                    yield lost
                finally:
                    tracefs.write(root / "tracing_on", "0")
            lost.append(_lost(root) - before)


def _refuse_if_in_use(root: Path, switch: Path) -> None:
    tracers = (root / "available_tracers").read_text(encoding="ascii").split()
    if "blk" not in tracers or not switch.exists():
        raise HostError(
            "this kernel has no blk tracer",
            where=str(root),
            remedy="a kernel with CONFIG_BLK_DEV_IO_TRACE is needed",
        )
    current = (root / "current_tracer").read_text(encoding="ascii").strip()
    events = (root / "set_event").read_text(encoding="ascii").strip()
    if current != "nop" or events:
        user = f"the tracer {current!r}" if current != "nop" else f"the trace event {events.splitlines()[0]}"
        raise HostError(
            f"the kernel's trace buffer is in use by {user}",
            where=str(root),
            remedy="end the other tracing first (`trace-cmd reset` where nobody uses it any more)",
        )
    if switch.read_text(encoding="ascii").strip() != "0":
        raise HostError(
            "the device is being traced already",
            where=str(switch),
            remedy="end the other tracing first (`blktrace -k DEVICE` where nobody uses it any more)",
        )


@contextmanager
def _drained(root: Path, folder: Path, stem: str) -> Iterator[None]:
    """Copy all CPUs' records to files while the context lasts."""
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
            remedy="another program reads trace_pipe: end it first",
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
    """Events that found no room, over all CPUs, since the buffers were made."""
    total = 0
    for path in _cpus(root).values():
        for line in (path / "stats").read_text(encoding="ascii").splitlines():
            name, _, value = line.partition(":")
            if name in ("overrun", "dropped events"):
                total += int(value)
    return total
