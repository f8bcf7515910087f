"""The process that measures a run, recorded so that the run is not deleted meanwhile.

The process records itself in the store when it begins, and removes the record when it ends. A killed process
leaves its record. It is therefore looked up by process id and start time, which together are unique on a machine.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cephfit.core.errors import StoreError
from cephfit.core.values.sample import MEASURING_DOCUMENT

if TYPE_CHECKING:
    from cephfit.results.store.sample_store import Store

_START_TIME = 19
"""Field of /proc/PID/stat after the name in brackets: field 22 of proc(5)."""


@dataclass(frozen=True, slots=True)
class MeasuringProcess:
    """A process that began to measure a run and has not ended, as far as this machine can see.

    Attributes:
        pid: its process id.
        host: its machine.
        is_seen: it runs on this machine; else it may have been killed, which cannot be seen from here.
    """

    pid: int
    host: str
    is_seen: bool

    def __str__(self) -> str:
        return f"process {self.pid}" if self.is_seen else f"process {self.pid} on {self.host}"

    def refusal(self, run_id: str, store: str) -> StoreError:
        """Return the error for deleting the run."""
        if self.is_seen:
            what, remedy = f"{self} measures run {run_id}", "wait until it ends, or stop it with Ctrl-C"
        else:
            what = f"{self} began to measure run {run_id} and did not record its end"
            remedy = "check on that machine whether it still runs; if it does not, add --force"
        return StoreError(what, where=store, remedy=remedy)


@contextmanager
def measured_by_this_process(store: "Store", run_id: str) -> Iterator[None]:
    """Record in the store that this process measures the run, while the block runs."""
    store.put_document(run_id, MEASURING_DOCUMENT, _this_process())
    try:
        yield
    finally:
        with suppress(StoreError):  # a full disk or a lost server: the end of the process is visible as well
            store.put_document(run_id, MEASURING_DOCUMENT, {})


def measuring_process(recorded: Mapping[str, Any] | None) -> MeasuringProcess | None:
    """Return the process that a store records for a run; None if there is none, or it has ended."""
    if not recorded:
        return None
    here, pid = _this_process(), int(recorded["pid"])
    if recorded["host"] != here["host"]:
        return MeasuringProcess(pid, recorded["host"], is_seen=False)
    if recorded["boot"] != here["boot"]:
        return None  # the machine was restarted
    if recorded["pid_namespace"] != here["pid_namespace"]:
        return MeasuringProcess(pid, f"{recorded['host']}, in another container", is_seen=False)
    return MeasuringProcess(pid, recorded["host"], is_seen=True) if _started(pid) == recorded["started"] else None


def _this_process() -> dict[str, Any]:
    boot = Path("/proc/sys/kernel/random/boot_id")
    return {
        "host": socket.gethostname(),
        "boot": boot.read_text("ascii").strip(),
        "pid_namespace": str(Path("/proc/self/ns/pid").readlink()),
        "pid": os.getpid(),
        "started": _started(os.getpid()),
    }


def _started(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if there is none, or it is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[_START_TIME])
