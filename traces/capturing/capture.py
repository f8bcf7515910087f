"""Capture a block device's accesses with blktrace, or with the kernel's blk tracer where blktrace cannot work."""

import json
import os
import re
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType

from cephfit.core.errors import HostError, InputError
from cephfit.core.protocols import NullProgress, Progress
from cephfit.traces.capturing import blk_tracer
from cephfit.traces.capturing.capture_record import CaptureReport, record_path

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
        A list to which the number of lost events is appended when the context ends.

    Raises:
        BlktraceUnavailableError: blktrace is not installed, or the kernel denied its channel.
        HostError: blktrace failed later.
    """
    program = shutil.which("blktrace") or shutil.which("blktrace", path="/usr/sbin:/sbin")
    if program is None:
        raise BlktraceUnavailableError("the program blktrace is not installed")
    if not _DEBUGFS.is_dir():
        raise BlktraceUnavailableError(f"the kernel has no {_DEBUGFS}, which blktrace needs")
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
        dropped = _DROPPED.search(text)
        if process.returncode != 0 or dropped is None:
            raise HostError(f"blktrace failed: {text.strip()[-300:]}", where=f"/dev/{device}")
        lost.append(int(dropped[1]))


def _wait_until_started(process: "subprocess.Popen[str]", device: str) -> None:
    """Wait until the device's switch is on and blktrace has the kernel's channels open.

    The switch alone is not enough: a locked-down kernel turns it on and then refuses the channels.
    """
    switch = Path("/sys/class/block") / device / "trace" / "enable"
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
    folder, stem = _place(output, name)
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
    for file in sorted(folder.glob(f"{stem}.blktrace.*"), key=lambda f: (len(f.name), f.name)):
        if file.stat().st_size:
            files.append(file)
        else:
            file.unlink()
    report.files = tuple(str(f) for f in files)
    report.nbytes = sum(f.stat().st_size for f in files)
    report.lost_events = sum(lost)
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


def _place(output: Path, device: str) -> tuple[Path, str]:
    """Return folder and stem of the files.

    Raises:
        InputError: The files exist, or their folder does not.
    """
    folder, stem = (output, device) if output.is_dir() else (output.parent, output.name)
    if not folder.is_dir():
        raise InputError("this folder does not exist", where=str(folder), remedy="create it first")
    taken = [*folder.glob(f"{stem}.blktrace.*"), *folder.glob(f"{stem}.capture.json")]
    if taken:
        raise InputError(
            "a trace exists here already", where=str(taken[0]), remedy="choose another place, or delete it"
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
