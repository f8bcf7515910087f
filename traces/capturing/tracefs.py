"""The kernel's tracing folder: found or mounted, changed for a while, and put back as it was.

What the kernel had is written to a journal in /run before anything is changed. A capture that was killed leaves
the journal behind, and the next one puts everything back first.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cephfit.errors import HostError

_PLACES = (Path("/sys/kernel/tracing"), Path("/sys/kernel/debug/tracing"))
_JOURNAL = Path("/run/cephfit-tracefs.json")
_MOUNTED = Path("/run/cephfit-tracefs.mounted.json")
"""Who mounted the tracing folder, while it is mounted by a capture."""


@contextmanager
def mounted_tracefs() -> Iterator[Path]:
    """The tracing folder; mounted for the time of the context where it is not mounted.

    Raises:
        HostError: the kernel has none, or mounting is not allowed.
    """
    place = next((p for p in _PLACES if (p / "current_tracer").exists()), None)
    if place is not None and not _mounted_by_a_killed_capture():
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
            remedy="a kernel with CONFIG_FTRACE and CONFIG_BLK_DEV_IO_TRACE, and root, are needed",
        )
    return place


def _mounted_by_a_killed_capture() -> bool:
    try:
        mounter = json.loads(_MOUNTED.read_text(encoding="utf-8"))
        return not _is_alive(mounter)
    except FileNotFoundError:
        return False
    except (ValueError, KeyError, TypeError):
        return True  # killed while it wrote this


@contextmanager
def kept_as_it_was(files: Mapping[Path, str]) -> Iterator[None]:
    """Write values to kernel files, in order; put the old ones back afterwards, in reverse.

    Raises:
        HostError: the kernel refuses a value.
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
        _put_back(before)
        _JOURNAL.unlink(missing_ok=True)


def restore_after_a_kill() -> None:
    """Put back what a capture that was killed left changed.

    Raises:
        HostError: another capture of ours is running.
    """
    try:
        journal = json.loads(_JOURNAL.read_text(encoding="utf-8"))
        alive = _is_alive(journal)
        before = {Path(path): str(value) for path, value in journal["was"].items()}
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError):
        # Written in the instant of the kill, before anything was changed.
        _JOURNAL.unlink(missing_ok=True)
        return
    if alive:
        raise HostError(
            f"process {journal['pid']} is capturing: the kernel has one blk tracer only",
            remedy="wait until that capture ends",
        )
    _put_back(before)
    _JOURNAL.unlink(missing_ok=True)


def write(path: Path, value: str) -> None:
    """Raises: HostError: the kernel refuses the value."""
    try:
        path.write_text(value, encoding="ascii")
    except OSError as error:
        raise HostError(f"the kernel refuses {value!r}: {error.strerror}", where=str(path)) from None


def _put_back(before: Mapping[Path, str]) -> None:
    refused: list[HostError] = []
    for path, value in reversed(list(before.items())):
        try:
            if path.exists():
                write(path, value)
        except HostError as error:
            refused.append(error)  # the other files must be put back all the same
    if refused:
        raise refused[0]


def _setting(path: Path) -> str:
    """The value to write back: ``7 (expanded: 1408)`` is a buffer of 1408 KiB that nobody has used yet."""
    text = path.read_text(encoding="ascii").strip()
    return text.partition("expanded:")[2].strip(" )") or text


def _this_process() -> dict[str, Any]:
    return {"pid": os.getpid(), "start": _start_time(os.getpid())}


def _is_alive(process: Mapping[str, Any]) -> bool:
    return process["start"] is not None and _start_time(int(process["pid"])) == process["start"]


def _start_time(pid: int) -> str | None:
    """Clock ticks since boot at which a process began: a pid that is used again has another one."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None
