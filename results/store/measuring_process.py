"""Which process measures a run, so that the run is not deleted meanwhile.

The process writes itself into the store when it begins and its end when it ends. A killed one writes no end; it is
looked for by its id and its start time, which on one machine no two processes share.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cephfit.core.errors import StoreError
from cephfit.core.values.run import MEASURING_DOCUMENT

if TYPE_CHECKING:
    from cephfit.results.store.sample_store import Store

_START_TIME = 19
"""Field of /proc/PID/stat after the name in brackets: field 22 of proc(5)."""


@dataclass(frozen=True, slots=True)
class MeasuringProcess:
    """A process that began to measure a run and has not ended, as far as can be seen from here.

    Attributes:
        pid: its id there.
        host: its machine.
        is_seen: it runs on this machine; else it may have been killed, and nothing here can say so.
    """

    pid: int
    host: str
    is_seen: bool

    def __str__(self) -> str:
        return f"process {self.pid}" if self.is_seen else f"process {self.pid} on {self.host}"

    def refusal(self, run_id: str, store: str) -> StoreError:
        """The error of who would delete the run."""
        if self.is_seen:
            what, remedy = f"{self} measures run {run_id}", "wait until it ends, or stop it with Ctrl-C"
        else:
            what = f"{self} began to measure run {run_id} and did not say that it ended"
            remedy = "look there whether it still runs; if it does not, add --force"
        return StoreError(what, where=store, remedy=remedy)


@contextmanager
def measured_by_this_process(store: "Store", run_id: str) -> Iterator[None]:
    """While the block runs, the store says that this process measures the run."""
    store.put_document(run_id, MEASURING_DOCUMENT, _this_process())
    try:
        yield
    finally:
        with suppress(StoreError):  # a full disk or a lost server: the process ends, which is seen as well
            store.put_document(run_id, MEASURING_DOCUMENT, {})


def measuring_process(said: Mapping[str, Any] | None) -> MeasuringProcess | None:
    """The process that a store names for a run; None if it names none, or one that has ended."""
    if not said:
        return None
    here, pid = _this_process(), int(said["pid"])
    if said["host"] != here["host"]:
        return MeasuringProcess(pid, said["host"], is_seen=False)
    if said["boot"] != here["boot"]:
        return None  # the machine was restarted since
    if said["pid_namespace"] != here["pid_namespace"]:
        return MeasuringProcess(pid, f"{said['host']}, in another container", is_seen=False)
    return MeasuringProcess(pid, said["host"], is_seen=True) if _started(pid) == said["started"] else None


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
    """When a process started, in clock ticks since boot; None if there is none, or only its remains."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[_START_TIME])
