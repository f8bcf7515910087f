"""Capture a block device's accesses with blktrace, or with the kernel's blk tracer where blktrace cannot work.

The record of a capture is a report for the user, and a small file next to the trace. This module also writes the
trace of a guest's volume: block tracepoints as compressed text.
"""

import glob
import gzip
import json
import os
import re
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

from cephfit.core.errors import HostError, InputError
from cephfit.core.protocols import KeepOnly, NullProgress, Progress
from cephfit.core.units import NS_PER_S
from cephfit.traces.capturing import blk_tracer

SCHEMA_VERSION = 1
SUFFIX = ".capture.json"


EVENTS_SUFFIX = ".events.gz"
"""Suffix of the file with a guest's events."""


@dataclass(slots=True)
class CaptureReport:
    """The report of a capture, completed when it ends.

    Attributes:
        device: Block device that was traced.
        method: ``blktrace``, ``tracefs`` (the kernel's blk tracer), or the method of a guest.
        why_method: Why blktrace was not used; empty if it was.
        seconds: Duration of the recording.
        files: Files of the trace, one for each CPU with events.
        nbytes: Total size of the files.
        lost_events: Number of events that did not fit into the kernel's buffers.
    """

    device: str
    method: str = ""
    why_method: str = ""
    seconds: float = 0.0
    files: tuple[str, ...] = field(default_factory=tuple)
    nbytes: int = 0
    lost_events: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"schema_version": SCHEMA_VERSION, **asdict(self), "files": list(self.files)}


@dataclass(frozen=True, slots=True)
class Captured:
    """What a reader of the trace must know about its capture."""

    method: str
    lost: int


def record_path(folder: Path, stem: str) -> Path:
    """Return the record's file, next to the trace files ``STEM.blktrace.N``."""
    return folder / f"{stem}{SUFFIX}"


def of_files(files: Sequence[Path]) -> Captured | None:
    """Return the record of the files of one recording; None if cephfit did not capture them.

    Raises:
        InputError: The record is damaged.
    """
    name = files[0].name
    stem = name.partition(".blktrace.")[0].removesuffix(EVENTS_SUFFIX)
    path = record_path(files[0].parent, stem)
    if stem == name or not path.is_file():
        return None
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return Captured(str(document["method"]), int(document["lost_events"]))
    except (ValueError, KeyError, TypeError, UnicodeDecodeError):
        raise InputError(
            "this is not the record of a capture",
            where=str(path),
            remedy="delete the file; lost events are then unknown",
        ) from None


def file_of(output: Path, client: str) -> Path:
    """Return the trace file of a client: ``CLIENT.events.gz`` in an existing folder, else ``OUTPUT.events.gz``.

    Raises:
        InputError: The file exists, or its folder does not.
    """
    file = (
        output / f"{client}{EVENTS_SUFFIX}" if output.is_dir() else output.with_name(output.name + EVENTS_SUFFIX)
    )
    if not file.parent.is_dir():
        raise InputError("this folder does not exist", where=str(file.parent), remedy="create it first")
    if file.exists():
        raise InputError(
            "a trace exists here already", where=str(file), remedy="choose another place, or delete it"
        )
    return file


def keep(text: str, lost_events: int, file: Path, *, volume: str, seconds: float) -> CaptureReport:
    """Write a guest's trace, and its record next to it.

    Args:
        text: Lines of events.
        lost_events: Number of events that did not fit into the guest's buffers.
        file: See ``file_of``.
        volume: The guest's name of its device.
        seconds: Duration of the recording.
    """
    file.write_bytes(gzip.compress(text.encode(), mtime=0))
    report = CaptureReport(
        device=volume,
        method="tracepoints in the guest",
        seconds=seconds,
        files=(str(file),),
        nbytes=file.stat().st_size,
        lost_events=lost_events,
    )
    place = record_path(file.parent, file.name.removesuffix(EVENTS_SUFFIX))
    place.write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")
    return report


_DROPPED = re.compile(r"^\s*Total:\s+\d+ events \(dropped (\d+)\)", re.MULTILINE)
_START_SECONDS = 5.0
_STOP_SECONDS = 30.0
_DEBUGFS = Path("/sys/kernel/debug/block")
_CHANNEL = re.compile(re.escape(str(_DEBUGFS)) + r"/.+/trace\d+")

_STARTING = threading.Lock()
"""Held while a tracer is chosen: a blktrace that fails writes records into the buffer of the kernel's tracer."""


class BlktraceUnavailableError(HostError):
    """blktrace cannot trace on this machine; the kernel's tracer may work."""


@contextmanager
def tracing(device: str, folder: Path, stem: str) -> Iterator[list[int]]:
    """Record a device's events to ``FOLDER/STEM.blktrace.N`` with blktrace during the context.

    Yields:
        A list to which the number of lost events is appended when the context ends, also after an exception. It
        stays empty if blktrace does not state the number.

    Raises:
        BlktraceUnavailableError: blktrace is not installed, or the kernel denied its channel.
        HostError: blktrace failed later.
    """
    program = shutil.which("blktrace") or shutil.which("blktrace", path="/usr/sbin:/sbin")
    if program is None:
        raise BlktraceUnavailableError("the program blktrace is not installed")
    if not _DEBUGFS.is_dir():
        raise BlktraceUnavailableError(f"the kernel has no {_DEBUGFS}, which blktrace needs")
    if not _switch(device).exists():
        raise BlktraceUnavailableError(f"the kernel has no {_switch(device)}, which blktrace needs")
    command = [program, "-d", f"/dev/{device.replace('!', '/')}", "-D", str(folder), "-o", stem]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        lost: list[int] = []
        try:
            _wait_until_started(process, device)
            yield lost
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            try:
                text, _ = process.communicate(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                text, _ = process.communicate()
            if dropped := _DROPPED.search(text):
                lost.append(int(dropped[1]))
        if process.returncode != 0 or not lost:
            raise HostError(f"blktrace failed: {text.strip()[-300:]}", where=f"/dev/{device}")


def _switch(device: str) -> Path:
    """Return the kernel's switch of a device's tracing."""
    return Path("/sys/class/block") / device / "trace" / "enable"


def _wait_until_started(process: "subprocess.Popen[str]", device: str) -> None:
    """Wait until the device's switch is on and blktrace has the kernel's channels open.

    The switch alone is not enough: a locked-down kernel turns it on and then refuses the channels.
    """
    switch = _switch(device)
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            text, _ = process.communicate()
            raise BlktraceUnavailableError(f"blktrace reports: {text.strip()[-300:]}")
        if switch.read_text(encoding="ascii").strip() == "1" and _has_channel(process.pid):
            return
        time.sleep(0.02)
    raise HostError("blktrace did not begin to trace within 5 s", where=f"/dev/{device}")


def _has_channel(pid: int) -> bool:
    """Return whether a process has one of the kernel's trace channels, ``.../block/DEVICE/traceN``, open."""
    try:
        opened = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    for descriptor in opened:
        with suppress(OSError):
            if _CHANNEL.fullmatch(str(descriptor.readlink())):
                return True
    return False


def capture(device: Path, seconds: float, output: Path, *, progress: Progress | None = None) -> CaptureReport:
    """Record a device's accesses for ``seconds``, as ``capturing`` does."""
    progress = progress or NullProgress()
    with capturing(device, output) as report:
        progress.start(f"tracing {device}", seconds)
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.5))
            progress.advance(min(left, 0.5))
        progress.done()
    return report


@contextmanager
def capturing(device: Path, output: Path) -> Iterator[CaptureReport]:
    """Record a device's accesses during the context.

    All changes to the kernel are reverted afterwards, also after an exception, SIGINT or SIGTERM. Threads of one
    process may capture several devices at once.

    Args:
        device: Block device, a whole disk or a partition.
        output: An existing folder: the files are ``DEVICE.blktrace.N`` in it. Otherwise the base name of the
            files, ``OUTPUT.blktrace.N``. A file ``.capture.json`` next to them records the method and the lost
            events.

    Yields:
        The report, completed when the context ends.

    Raises:
        InputError: The block device does not exist, or the output exists.
        HostError: The user is not root, the kernel has no tracer, or it is in use.
    """
    name = _kernel_name(device)
    if os.geteuid() != 0:
        raise HostError("tracing a block device needs root", where=str(device), remedy="run it with sudo")
    folder, stem = place_of(output, name)
    report = CaptureReport(device=str(device))
    with _sigterm_as_interrupt(), ExitStack() as afterwards, ExitStack() as tracer:
        with _STARTING:
            lost = _start(tracer, name, folder, stem, report)
        # Also after an interrupt: the records are kept, together with the number of lost events.
        afterwards.callback(_fill_in, report, folder, stem, lost)
        begun = time.monotonic()
        try:
            yield report
        finally:
            report.seconds = time.monotonic() - begun


@contextmanager
def observing(device: Path, output: Path) -> Iterator[KeepOnly]:
    """Record a device's accesses as ``capturing`` does; yield what keeps only a time of them afterwards."""
    with capturing(device, output) as report:
        yield partial(keep_only, report)


def keep_only(report: CaptureReport, begin_ns: int, end_ns: int) -> None:
    """Keep only the events of a time in the files of a capture that has ended, and complete its report again.

    What a workload does before and after its measured time is not what its speed depends on.

    Args:
        report: With files in the byte order of this machine, whose times are of the monotonic clock.
        begin_ns, end_ns: Wall clock, ns since the epoch.
    """
    ahead_ns = time.time_ns() - time.monotonic_ns()
    nbytes = 0
    for file in map(Path, report.files):
        part = file.with_name(f"{file.name}.part")
        nbytes += part.write_bytes(blk_tracer.of_time(file.read_bytes(), begin_ns - ahead_ns, end_ns - ahead_ns))
        part.replace(file)
    report.seconds, report.nbytes = (end_ns - begin_ns) / NS_PER_S, nbytes
    if report.files:
        first = Path(report.files[0])
        record = record_path(first.parent, first.name.partition(".blktrace.")[0])
        if record.exists():
            record.write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")


def _start(tracer: ExitStack, device: str, folder: Path, stem: str, report: CaptureReport) -> list[int]:
    """Enter the context of the tracer that works on this machine; return its list of lost events."""
    if blk_tracer.is_running():
        why = "the kernel's blk tracer already records another device for this process"
    else:
        try:
            lost = tracer.enter_context(tracing(device, folder, stem))
            report.method = "blktrace"
            return lost
        except BlktraceUnavailableError as error:
            why = error.what
    report.method, report.why_method = "tracefs", why
    return tracer.enter_context(blk_tracer.tracing(device, folder, stem))


def _fill_in(report: CaptureReport, folder: Path, stem: str, lost: list[int]) -> None:
    files = []
    for file in sorted(folder.glob(f"{glob.escape(stem)}.blktrace.*"), key=lambda f: (len(f.name), f.name)):
        if file.stat().st_size:
            files.append(file)
        else:
            file.unlink()
    report.files = tuple(str(f) for f in files)
    report.nbytes = sum(f.stat().st_size for f in files)
    report.lost_events = sum(lost)
    if lost:  # without the record, a profile shows that the number is unknown
        record_path(folder, stem).write_text(json.dumps(report.to_json(), indent=1) + "\n", encoding="utf-8")


def _kernel_name(device: Path) -> str:
    """Return the kernel's name of a device.

    Raises:
        InputError: The block device does not exist.
    """
    try:
        status = device.stat()
    except OSError as error:
        raise InputError(f"no such device: {error.strerror}", where=str(device), remedy="see `lsblk`") from None
    if not stat.S_ISBLK(status.st_mode):
        raise InputError("this is not a block device", where=str(device), remedy="see `lsblk`")
    numbers = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    return (Path("/sys/dev/block") / numbers).resolve().name


def place_of(output: Path, device: str) -> tuple[Path, str]:
    """Return folder and stem of the files.

    Raises:
        InputError: The files exist, or their folder does not.
    """
    folder, stem = (output, device) if output.is_dir() else (output.parent, output.name)
    if not folder.is_dir():
        raise InputError("this folder does not exist", where=str(folder), remedy="create it first")
    traces = folder.glob(f"{glob.escape(stem)}.blktrace.*")
    taken = next((file for file in (*traces, record_path(folder, stem)) if file.exists()), None)
    if taken is not None:
        raise InputError(
            "a trace exists here already", where=str(taken), remedy="choose another place, or delete it"
        )
    return folder, stem


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM unwind the program as Ctrl-C does, so that all changes are reverted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
