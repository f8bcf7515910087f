"""Values of the kernel's tracing folder that a capture changes, and their restoration.

The folder is found or mounted. A journal in /run keeps the old values before any change. If a capture is killed,
the next one finds the journal and restores the values first.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

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


class TemporaryValues:
    """Values that kernel files have during a context; afterwards they have their old values again.

    The old values are in a journal before any change.
    """

    def __init__(self) -> None:
        self._before: dict[Path, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        _restore(self._before)
        _JOURNAL.unlink(missing_ok=True)

    def change(self, files: Mapping[Path, str]) -> None:
        """Write values to files, in order.

        Raises:
            HostError: The kernel refuses a value.
        """
        self._before |= {path: _setting(path) for path in files if path not in self._before}
        self._keep_journal()
        for path, value in files.items():
            write(path, value)

    def restore(self, path: Path) -> None:
        """Write the old value of one file before the context ends.

        Raises:
            HostError: The kernel refuses the value.
        """
        _restore({path: self._before[path]})
        del self._before[path]
        self._keep_journal()

    def _keep_journal(self) -> None:
        """Replace the journal as a whole: a capture that is killed here must not leave half of it."""
        old = {str(path): value for path, value in self._before.items()}
        fresh = _JOURNAL.with_suffix(".new")
        fresh.write_text(json.dumps({**_this_process(), "was": old}), encoding="utf-8")
        fresh.replace(_JOURNAL)


def restore_after_kill() -> None:
    """Restore the values that a killed capture left changed. No capture of this process may be running.

    Raises:
        HostError: Another process of cephfit is capturing.
    """
    try:
        journal = json.loads(_JOURNAL.read_text(encoding="utf-8"))
        alive = _is_alive(journal) and journal["pid"] != os.getpid()
        before = {Path(path): str(value) for path, value in journal["was"].items()}
    except FileNotFoundError:
        return
    except (ValueError, KeyError, TypeError):
        # Not a journal of this version: what it says cannot be restored.
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
    """Return the value to restore.

    ``7 (expanded: 1408)`` is a buffer of 1408 KiB that was not used yet; of ``[local] global mono`` it is local.
    """
    text = path.read_text(encoding="ascii").strip()
    chosen = text.partition("[")[2].partition("]")[0]
    return chosen or text.partition("expanded:")[2].strip(" )") or text


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
