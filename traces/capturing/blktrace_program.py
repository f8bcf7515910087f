"""Capture by the blktrace program."""

import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from cephfit.errors import HostError

_DROPPED = re.compile(r"^\s*Total:\s+\d+ events \(dropped (\d+)\)", re.MULTILINE)
_START_SECONDS = 5.0
_STOP_SECONDS = 30.0
_DEBUGFS = Path("/sys/kernel/debug/block")
_CHANNEL = re.compile(re.escape(str(_DEBUGFS)) + r"/.+/trace\d+")


class BlktraceUnavailableError(HostError):
    """blktrace cannot trace on this machine; the kernel's own tracer may."""


@contextmanager
def tracing(device: str, folder: Path, stem: str) -> Iterator[list[int]]:
    """Record a device's events to ``FOLDER/STEM.blktrace.N`` while the context lasts.

    Yields:
        a list to which the number of lost events is appended when the context ends.

    Raises:
        BlktraceUnavailableError: there is no blktrace, or it did not get its channel from the kernel.
        HostError: it failed later.
    """
    program = shutil.which("blktrace") or shutil.which("blktrace", path="/usr/sbin:/sbin")
    if program is None:
        raise BlktraceUnavailableError("the program blktrace is not installed")
    if not _DEBUGFS.is_dir():
        raise BlktraceUnavailableError(f"the kernel shows no {_DEBUGFS}, which blktrace needs")
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
                said, _ = process.communicate(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                said, _ = process.communicate()
        dropped = _DROPPED.search(said)
        if process.returncode != 0 or dropped is None:
            raise HostError(f"blktrace failed: {said.strip()[-300:]}", where=f"/dev/{device}")
        lost.append(int(dropped[1]))


def _wait_until_started(process: "subprocess.Popen[str]", device: str) -> None:
    """Events are recorded when the device's switch is on and blktrace has the kernel's channels open.

    The switch alone does not tell: a locked-down kernel turns it on and then refuses the channels.
    """
    switch = Path("/sys/class/block") / device / "trace" / "enable"
    end = time.monotonic() + _START_SECONDS
    while time.monotonic() < end:
        if process.poll() is not None:
            said, _ = process.communicate()
            raise BlktraceUnavailableError(f"blktrace says: {said.strip()[-300:]}")
        if switch.read_text(encoding="ascii").strip() == "1" and _has_channel(process.pid):
            return
        time.sleep(0.02)
    raise HostError("blktrace did not begin to trace within 5 s", where=f"/dev/{device}")


def _has_channel(pid: int) -> bool:
    """Whether a process has one of the kernel's trace channels, ``.../block/DEVICE/traceN``, open."""
    try:
        opened = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
    for descriptor in opened:
        with suppress(OSError):
            if _CHANNEL.fullmatch(str(descriptor.readlink())):
                return True
    return False
