"""Capture by the kernel's blk tracer, for kernels with a lockdown that denies blktrace its debugfs channel.

The binary output of the tracer is the stream of records that blktrace writes (kernel: kernel/trace/blktrace.c,
options ``bin`` and ``nocontext-info``). The tracer is not allowed in instances; it runs only in the top-level
trace buffer, which must not be in use by another program.

The kernel has one tracer, and it records every device whose switch is on. So the captures of one process share it:
the first one starts it, the last one stops it, and each record goes to the files of its device's capture.
"""

import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from struct import Struct
from typing import BinaryIO

from cephfit.core.errors import HostError
from cephfit.traces.capturing.kernel_settings import (
    TemporaryValues,
    mounted_tracefs,
    restore_after_kill,
    write,
)

_BUFFER_KB = 16 * 1024
"""Size of the kernel's ring buffer per CPU: 300,000 events; the reader drains it many times a second."""

_READ_NBYTES = 1 << 20
_IDLE_SECONDS = 0.01
_READ_TO_END_SECONDS = 60.0

_MAGIC = 0x65617400
_HEADERS = {_MAGIC | 7: Struct("=8xQ20xI6xH"), _MAGIC | 8: Struct("=8xQ24xI6xH12x")}
"""Time, device and length of the payload in the header of a record, by the header's first word.

Layout: ``struct blk_io_trace`` and ``struct blk_io_trace2`` of the kernel's include/uapi/linux/blktrace_api.h.
"""
_MINOR_BITS = 20
"""Width of the minor number in the kernel's own device numbers (include/linux/kdev_t.h)."""

_Files = Mapping[int, BinaryIO]
"""The files of a capture, by CPU."""


def by_device(block: bytes, devices: Iterable[int]) -> dict[int, bytearray]:
    """Return the records of each device.

    Text between two records is the kernel's note on lost events. It is returned for every device.

    Args:
        block: Whole records in the byte order of this machine.
        devices: Numbers of the devices. The records of other devices are left out.
    """
    parts = {device: bytearray() for device in devices}
    for record, _, device in _records(block):
        if device is None:
            for part in parts.values():
                part += record
        elif device in parts:
            parts[device] += record
    return parts


def of_time(block: bytes, begin_ns: int, end_ns: int) -> bytes:
    """Return the records of a time, and the kernel's notes on lost events.

    Args:
        block: As for ``by_device``.
        begin_ns, end_ns: By the monotonic clock.
    """
    records = _records(block)
    return b"".join(record for record, time_ns, _ in records if time_ns is None or begin_ns <= time_ns <= end_ns)


def _records(block: bytes) -> Iterator[tuple[bytes, int | None, int | None]]:
    """Yield records with their time and device; both are None for text between records."""
    at = 0
    while at < len(block):
        header = _HEADERS.get(int.from_bytes(block[at : at + 4], sys.byteorder))
        if header is None or at + header.size > len(block):
            end = block.find(b"\n", at) + 1 or len(block)
            yield block[at:end], None, None
        else:
            time_ns, device, payload_nbytes = header.unpack_from(block, at)
            end = at + header.size + payload_nbytes
            yield block[at:end], time_ns, device
        at = end


class _Drain(threading.Thread):
    """Copies the pipe of each CPU to the files of the captures, until it is stopped and the pipes are empty.

    Attributes:
        files: The files of each capture, by the number of its device. The thread uses it without a lock: replace
            the mapping, never change it.
        error: Why the thread ended early.
    """

    def __init__(self, pipes: Mapping[int, int]) -> None:
        super().__init__(name="cephfit-drain")
        self.files: Mapping[int, _Files] = {}
        self.error: OSError | None = None
        self._pipes = pipes
        self._n_rounds = 0
        self._last_round = threading.Event()

    def run(self) -> None:
        try:
            while True:
                last = self._last_round.is_set()
                moved = sum(self._copy(cpu) for cpu in self._pipes)
                self._n_rounds += 1
                if not moved:
                    if last:
                        return
                    time.sleep(_IDLE_SECONDS)
        except OSError as error:
            self.error = error

    def _copy(self, cpu: int) -> int:
        try:
            block = os.read(self._pipes[cpu], _READ_NBYTES)
        except BlockingIOError:
            return 0
        files = self.files  # after the read: a device in this block was added before it was switched on
        if len(files) == 1:
            (own,) = files.values()
            own[cpu].write(block)
        else:
            for device, part in by_device(block, files).items():
                files[device][cpu].write(part)
        return len(block)

    def wait_for_round(self) -> None:
        """Wait until no block is being copied that was read before this call."""
        begun = self._n_rounds
        self.wait_until(lambda: self._n_rounds > begun + 1)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition is true, or the thread has ended.

        Raises:
            HostError: The condition did not become true in time.
        """
        end = time.monotonic() + _READ_TO_END_SECONDS
        while self.is_alive() and not condition():
            if time.monotonic() > end:
                raise HostError(f"the trace buffer was not read to its end within {_READ_TO_END_SECONDS:.0f} s")
            time.sleep(_IDLE_SECONDS / 2)

    def stop(self) -> None:
        self._last_round.set()
        self.join()


@dataclass(frozen=True, slots=True)
class _Capture:
    """A capture that uses the tracer.

    Attributes:
        device: The kernel's number of the device.
        switch: Switch of the device's tracing.
        folder: Folder of the files.
        files: Open files of the records.
        lost_before: Number of events that the kernel had lost when the capture began.
    """

    device: int
    switch: Path
    folder: Path
    files: _Files
    lost_before: int


class _Tracer:
    """The kernel's tracer during the captures of this process: from the start of the first to the end of the last.

    A caller must hold ``_LOCK``.
    """

    def __init__(self) -> None:
        """Start the tracer.

        Raises:
            HostError: The kernel has no tracer, or it is in use.
        """
        with ExitStack() as stack:
            self._root = stack.enter_context(mounted_tracefs())
            restore_after_kill()
            _refuse_if_in_use(self._root)
            self._values = stack.enter_context(TemporaryValues())
            self._values.change(
                {
                    **{path / "buffer_size_kb": str(_BUFFER_KB) for path in _cpus(self._root).values()},
                    self._root / "tracing_on": "0",
                    self._root / "trace_clock": "mono",  # as blktrace; the clock it has otherwise drifts from it
                    self._root / "current_tracer": "blk",
                    self._root / "options" / "bin": "1",
                    self._root / "options" / "context-info": "0",
                    self._root / "options" / "overwrite": "0",  # a full buffer drops and counts events
                }
            )
            self._drain = stack.enter_context(_draining(self._root))
            stack.callback(write, self._root / "tracing_on", "0")
            write(self._root / "tracing_on", "1")
            self._stack = stack.pop_all()

    @property
    def is_used(self) -> bool:
        return bool(self._drain.files)

    def begin(self, device: str, folder: Path, stem: str) -> _Capture:
        """Begin to record a device.

        Raises:
            HostError: The device cannot be traced, or is traced already.
        """
        place = Path("/sys/class/block") / device
        switch = place / "trace" / "enable"
        _refuse_if_traced(switch)
        major, minor = map(int, (place / "dev").read_text(encoding="ascii").split(":"))
        with ExitStack() as stack:
            files = {
                cpu: stack.enter_context((folder / f"{stem}.blktrace.{cpu}").open("wb"))
                for cpu in _cpus(self._root)
            }
            capture = _Capture(major << _MINOR_BITS | minor, switch, folder, files, _n_lost(self._root))
            self._drain.files = {**self._drain.files, capture.device: files}
            stack.callback(self._remove, capture)
            self._values.change({switch: "1"})
            stack.pop_all()
        return capture

    def end(self, capture: _Capture) -> int:
        """Stop recording a device when all its records are in the files; return the number of lost events.

        Raises:
            HostError: The trace could not be read or written.
        """
        try:
            with ExitStack() as stack:
                for file in capture.files.values():
                    stack.enter_context(file)
                stack.callback(self._remove, capture)
                self._values.restore(capture.switch)
                self._read_to_end()
                n_lost = _n_lost(self._root) - capture.lost_before
            if self._drain.error is not None:
                raise self._drain.error
        except OSError as error:
            raise HostError(f"the trace cannot be written: {error.strerror}", where=str(capture.folder)) from None
        return n_lost

    def _read_to_end(self) -> None:
        """Wait until all records that the buffers have now are in the files. Other devices may add new ones."""
        folders = _cpus(self._root).values()
        written = {folder: sum(_statistics(folder, "entries", "read events")) for folder in folders}
        self._drain.wait_until(
            lambda: all(sum(_statistics(folder, "read events")) >= n for folder, n in written.items())
        )
        self._drain.wait_for_round()

    def _remove(self, capture: _Capture) -> None:
        files = self._drain.files
        self._drain.files = {device: files[device] for device in files if device != capture.device}
        self._drain.wait_for_round()  # the thread does not use the files any more

    def stop(self) -> None:
        self._stack.close()


_LOCK = threading.Lock()
_tracer: _Tracer | None = None
"""The tracer while this process has captures. The kernel has only one."""


def is_running() -> bool:
    """Return whether a capture of this process uses the tracer."""
    return _tracer is not None


@contextmanager
def tracing(device: str, folder: Path, stem: str) -> Iterator[list[int]]:
    """Record a device's events to ``FOLDER/STEM.blktrace.N`` during the context.

    Threads of one process may record several devices at once.

    Args:
        device: Kernel name, such as ``sda`` or ``loop3``.
        folder: An existing folder.
        stem: Stem of the file names.

    Yields:
        A list to which the number of lost events is appended when the context ends. The kernel does not count them
        by device: if several devices are recorded, each number has the lost events of all.

    Raises:
        HostError: The kernel has no tracer, or it is in use.
    """
    capture = _begin(device, folder, stem)
    lost: list[int] = []
    try:
        yield lost
    finally:
        lost.append(_end(capture))


def _begin(device: str, folder: Path, stem: str) -> _Capture:
    global _tracer
    with _LOCK:
        tracer = _tracer or _Tracer()
        try:
            capture = tracer.begin(device, folder, stem)
            _tracer = tracer
            return capture
        finally:
            if not tracer.is_used:
                tracer.stop()


def _end(capture: _Capture) -> int:
    global _tracer
    with _LOCK:
        assert _tracer is not None
        try:
            return _tracer.end(capture)
        finally:
            if not _tracer.is_used:
                tracer, _tracer = _tracer, None
                tracer.stop()


def _refuse_if_in_use(root: Path) -> None:
    tracers = (root / "available_tracers").read_text(encoding="ascii").split()
    if "blk" not in tracers:
        raise _no_tracer(root)
    current = (root / "current_tracer").read_text(encoding="ascii").strip()
    events = (root / "set_event").read_text(encoding="ascii").strip()
    if current != "nop" or events:
        user = f"the tracer {current!r}" if current != "nop" else f"the trace event {events.splitlines()[0]}"
        raise HostError(
            f"the kernel's trace buffer is in use by {user}",
            where=str(root),
            remedy="end the other tracing first (`trace-cmd reset` if it is not needed any more)",
        )


def _refuse_if_traced(switch: Path) -> None:
    if not switch.exists():
        raise _no_tracer(switch)
    if switch.read_text(encoding="ascii").strip() != "0":
        raise HostError(
            "the device is being traced already",
            where=str(switch),
            remedy="end the other tracing first (`blktrace -k DEVICE` if it is not needed any more)",
        )


def _no_tracer(where: Path) -> HostError:
    return HostError(
        "this kernel has no blk tracer",
        where=str(where),
        remedy="use a kernel with CONFIG_BLK_DEV_IO_TRACE",
    )


@contextmanager
def _draining(root: Path) -> Iterator[_Drain]:
    """Copy the records of all CPUs during the context."""
    with ExitStack() as stack:
        pipes: dict[int, int] = {}
        try:
            for cpu, path in _cpus(root).items():
                pipes[cpu] = os.open(path / "trace_pipe", os.O_RDONLY | os.O_NONBLOCK)
                stack.callback(os.close, pipes[cpu])
        except OSError as error:
            raise HostError(
                f"the trace cannot be read: {error.strerror}",
                where=str(root),
                remedy="end the other program that reads trace_pipe",
            ) from None
        drain = _Drain(pipes)
        drain.start()
        stack.callback(drain.stop)
        yield drain


def _cpus(root: Path) -> dict[int, Path]:
    folders = {int(p.name[3:]): p for p in (root / "per_cpu").glob("cpu*") if p.name[3:].isdigit()}
    return dict(sorted(folders.items()))


def _n_lost(root: Path) -> int:
    """Return the number of events dropped by full buffers of all CPUs since the buffers were created."""
    return sum(sum(_statistics(path, "overrun", "dropped events")) for path in _cpus(root).values())


def _statistics(folder: Path, *names: str) -> list[int]:
    """Return numbers of a CPU's buffer by their names in the kernel's file ``stats``."""
    lines = (folder / "stats").read_text(encoding="ascii").splitlines()
    return [int(value) for name, _, value in (line.partition(":") for line in lines) if name in names]
