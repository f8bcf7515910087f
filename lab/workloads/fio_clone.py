"""A clone of a workload, run by fio on a client's volume: what `cephfit probe` measures."""

import hashlib
import json
import math
import os
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from cephfit.core.child_process import find_program, run_to_end
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Client, Workload
from cephfit.core.units import MIB
from cephfit.core.values.demand import PASSES_PER_SECOND, ClonePhase, WorkloadClone
from cephfit.core.values.sample import PROBE_PREFIX
from cephfit.lab.workloads.program_workload import device_of, require_nbytes

LEAST_PHASE_SECONDS = 1.0
"""Least time of a phase: fio's rates of shorter runs are mostly their beginning."""

_LABEL_NBYTES = MIB
"""After the used part; its first block holds the label, a hash of what the volume was filled for."""
_BLOCK_NBYTES = 4096

_FILL_SECONDS = 4 * 3600.0
_AROUND_RUN_SECONDS = 300.0
"""Allowed time of a run in addition to the measured seconds: start, end, and a storage that answers late."""


class FioClone(Workload):
    """The phases of a clone, one after the other; a run's value is the passes through the profile per second.

    Args:
        clone: what to run.
        unmeasured: context manager around the filling of a volume.
    """

    metric = PASSES_PER_SECOND

    def __init__(
        self,
        clone: WorkloadClone,
        *,
        unmeasured: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._clone = clone
        self._unmeasured = unmeasured
        self.name = f"{PROBE_PREFIX}{clone.profile}"
        self.volume_nbytes = -(-clone.nbytes // MIB) * MIB + _LABEL_NBYTES

    def description(self) -> Mapping[str, Any]:
        text = json.dumps(self._clone.to_json(), sort_keys=True)
        return {
            "version": 1,
            "clone": hashlib.sha256(text.encode()).hexdigest(),
            "notes": list(self._clone.notes),
        }

    def prepare(self, client: Client) -> None:
        """Fill the used part of the volume with incompressible data: reads of unwritten blocks use no disk."""
        device = device_of(client, what="a clone")
        require_nbytes(client, self.volume_nbytes, name=self.name, remedy="a smaller part of it: --size")
        self._write_label(device, bytes(_BLOCK_NBYTES))
        with self._unmeasured():
            _fio(fill_job(device, self._clone.nbytes), seconds=_FILL_SECONDS)
        self._write_label(device, self._label())

    def run(self, client: Client, seconds: float, *, seed: int) -> tuple[float, Mapping[str, Any]]:
        device = device_of(client, what="a clone")
        with device.open("rb") as file:
            file.seek(self._label_offset)
            if file.read(_BLOCK_NBYTES) != self._label():
                raise ClusterError(
                    "the volume was not filled for this clone", where=f"client {client.name}, {device}"
                )
        text = job_text(self._clone, device, seconds, seed=seed)
        started_ns = time.time_ns()
        document = _fio(text, seconds=seconds + _AROUND_RUN_SECONDS)
        finished_ns = time.time_ns()
        seconds_each = {p.name: _seconds_per_access(document, p, device) for p in self._clone.phases}
        value = 1 / self._clone.seconds_of_pass(seconds_each)
        return value, {
            "seed": seed,
            "started_ns": started_ns,
            "finished_ns": finished_ns,
            "output": f"{value!r} {PASSES_PER_SECOND}",
            "seconds_per_access": seconds_each,
            "job": text,
            "notes": list(self._clone.notes),
        }

    def cleanup(self, client: Client) -> None:
        """Do nothing: nothing is mounted, and fio ends with each call."""

    @property
    def _label_offset(self) -> int:
        return self.volume_nbytes - _LABEL_NBYTES

    def _label(self) -> bytes:
        text = f"cephfit clone, filled with {self._clone.nbytes} bytes"
        return text.encode().ljust(_BLOCK_NBYTES, b"\0")

    def _write_label(self, device: Path, label: bytes) -> None:
        handle = os.open(device, os.O_WRONLY)
        try:
            os.pwrite(handle, label, self._label_offset)
            os.fsync(handle)
        except OSError as error:
            raise ClusterError(f"cannot be written: {error.strerror}", where=str(device)) from None
        finally:
            os.close(handle)


def phase_seconds(phases: Sequence[ClonePhase], seconds: float) -> dict[str, float]:
    """Return the run time of each phase: its share of the time of a pass, and at least a second."""
    total = math.fsum(phase.seconds for phase in phases)
    shares = {p.name: p.seconds / total if total else 1 / len(phases) for p in phases}
    return {name: max(round(seconds * share, 1), LEAST_PHASE_SECONDS) for name, share in shares.items()}


def job_text(clone: WorkloadClone, device: Path, seconds: float, *, seed: int) -> str:
    """Return the job file of a run.

    Args:
        clone: what to run.
        device: the volume.
        seconds: of all phases together, approximately.
        seed: of fio's random choices.
    """
    lines = _global(device, clone.nbytes)
    lines += ["time_based=1", f"randseed={seed + 1}"]  # fio takes 0 as no seed
    durations = phase_seconds(clone.phases, seconds)
    for phase in clone.phases:
        lines += ["", f"[{phase.name}]", "stonewall", f"runtime={round(1000 * durations[phase.name])}ms"]
        lines += phase.options
    return "\n".join(lines) + "\n"


def fill_job(device: Path, nbytes: int) -> str:
    """Return the job file that fills a volume."""
    lines = [*_global(device, nbytes), "", "[fill]", "rw=write", "bs=4M", "iodepth=4", "refill_buffers=1"]
    return "\n".join([*lines, "end_fsync=1"]) + "\n"


def _global(device: Path, nbytes: int) -> list[str]:
    name = str(device).replace(":", "\\:")
    return ["[global]", f"filename={name}", f"size={nbytes}", "ioengine=libaio", "direct=1", "thread=1"]


def _seconds_per_access(document: Mapping[str, Any], phase: ClonePhase, device: Path) -> float:
    """Return the elapsed time per access of a phase, pauses and flushes included."""
    jobs = [job for job in document.get("jobs", ()) if job.get("jobname") == phase.name]
    n = sum(job[op]["total_ios"] for job in jobs for op in ("read", "write"))
    elapsed_ms = max((job[op]["runtime"] for job in jobs for op in ("read", "write")), default=0)
    if not n or not elapsed_ms or any(job["error"] for job in jobs):
        raise ClusterError(f"{phase.name} of the clone has no result from fio", where=str(device))
    return float(elapsed_ms / 1000 / n)


def _fio(text: str, *, seconds: float) -> Mapping[str, Any]:
    """Run fio with a job file; return its JSON output.

    Raises:
        ClusterError: it failed, or took longer than ``seconds``.
        LackingError: it is not installed.
    """
    program = find_program("fio", package="fio")
    with tempfile.TemporaryDirectory(prefix="cephfit-clone-") as name:
        job = Path(name) / "clone.fio"
        job.write_text(text)
        command = [program, "--output-format=json", str(job)]
        code, printed, complained = run_to_end(command, seconds=seconds, where="fio", folder=Path(name))
    if code:
        words = " / ".join((complained or printed).strip().splitlines()[:3])[:500] or "no output"
        raise ClusterError(f"fio ended with code {code}: {words}", where="clone")
    try:
        document = json.loads(printed[printed.index("{") :])  # fio may note something before it
    except ValueError:
        raise ClusterError("the output of fio is not JSON", where="clone") from None
    assert isinstance(document, dict)
    return document
