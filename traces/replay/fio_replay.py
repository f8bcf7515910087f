"""Replays a trace on a device or file through fio's ``read_iolog``, and says how punctual that was.

fio's log of completions (``write_lat_log``, ``log_offset``) tells when each access was issued: its time less its
latency. fio writes that time in whole milliseconds, so what is said of lateness is said to within 1 ms.

fio waits from one issue to the next, not for a time of its own clock (iolog.c, ``iolog_delay``): what every issue
takes adds up. So the lateness of the whole grows over a long trace, and the error of a single gap does not; the
report has both.
"""

import errno
import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cephfit.access import AccessBatch
from cephfit.errors import HostError, InputError
from cephfit.traces.replay.iolog_writer import write_iolog
from cephfit.traces.replay.punctuality import Issues, Plan, matched, read_log
from cephfit.units import LBN_NBYTES

RESOLUTION_MS = 1.0
"""Of the times in fio's log."""

_PERCENTILES = (50, 90, 99, 100)
_GRACE_SECONDS = 120.0
_LINK = "target"
# Asks, once the kernel has been told to kill this process with its parent, whether the parent is still there.
_ONLY_WITH_PARENT = 'test "$PPID" = "$1" || exit 1; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What was replayed and how punctually.

    Attributes:
        accesses: planned.
        replayed: those found in fio's log.
        rounded: those whose size was no multiple of 512 bytes, and was rounded up to one.
        planned_seconds, actual_seconds: from the first issue to the last one.
        late_ms: percentile to lateness of an issue against the plan, both counted from the first issue; to within
            1 ms.
        late_share: share of accesses issued more than 2 ms late. Both are None at full speed.
        gap_error_ms: percentile to the absolute error of the time between an issue and the one before; as above.
        latency_us: percentile to latency, of the replayed accesses.
        fio: its version.
    """

    accesses: int
    replayed: int
    rounded: int
    planned_seconds: float
    actual_seconds: float
    late_ms: dict[str, float] | None
    late_share: float | None
    gap_error_ms: dict[str, float] | None
    latency_us: dict[str, float]
    fio: str

    def to_json(self) -> dict[str, Any]:
        return {
            "accesses": self.accesses,
            "replayed": self.replayed,
            "rounded": self.rounded,
            "planned_seconds": self.planned_seconds,
            "actual_seconds": self.actual_seconds,
            "late_ms": self.late_ms,
            "late_share": self.late_share,
            "gap_error_ms": self.gap_error_ms,
            "late_resolution_ms": RESOLUTION_MS,
            "latency_us": self.latency_us,
            "fio": self.fio,
        }


def refuse_unless_free(target: Path) -> int:
    """The size in bytes of a device or file that nobody uses.

    Raises:
        InputError: there is none, it is neither, it is mounted or otherwise in use, or may not be written.
    """
    try:
        kind = target.stat().st_mode
    except OSError as error:
        raise InputError(
            f"there is no such device or file: {error.strerror}",
            where=str(target),
            remedy="name an existing one: for a file, make it as large as the places that the trace touches",
        ) from None
    if not (stat.S_ISBLK(kind) or stat.S_ISREG(kind)):
        raise InputError(
            "this is neither a block device nor a file", where=str(target), remedy="name one of these"
        )
    try:
        # The kernel grants exclusive use of a device only if it, its partitions and what lies above are free.
        handle = os.open(target, os.O_RDWR | (os.O_EXCL if stat.S_ISBLK(kind) else 0))
    except OSError as error:
        busy = error.errno == errno.EBUSY
        raise InputError(
            "the device is in use: mounted, swap, or part of another device" if busy else f"{error.strerror}",
            where=str(target),
            remedy="name a device whose content nobody needs" if busy else "be root, or name one you may write",
        ) from None
    try:
        return os.lseek(handle, 0, os.SEEK_END)
    finally:
        os.close(handle)


def replay(
    batches: Iterable[AccessBatch],
    target: Path,
    *,
    iodepth: int,
    wrap: bool = False,
    paced: bool = True,
) -> ReplayReport:
    """Replay accesses, reads and WRITES, at their recorded times.

    Args:
        batches: in order of issue, of one disk.
        target: what to replay on; its content is overwritten.
        iodepth: accesses in flight at most; a workload that had more is issued late.
        wrap: places beyond the end of the target begin again at its start, else they are an error.
        paced: False: as fast as fio can.

    Raises:
        InputError: the target is in use or too small, or the trace is of several disks or cannot be replayed.
        HostError: no fio, or it failed.
    """
    nbytes = refuse_unless_free(target)
    program = shutil.which("fio")
    setpriv = shutil.which("setpriv")
    if program is None or setpriv is None:
        raise HostError("fio and setpriv are needed", remedy="apt-get install fio util-linux")
    version = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False, timeout=30
    ).stdout
    nbytes = nbytes // LBN_NBYTES * LBN_NBYTES  # direct I/O touches whole blocks
    noted = Plan(nbytes, wrap=wrap)
    with tempfile.TemporaryDirectory(prefix="cephfit-replay-") as name:
        folder = Path(name)
        log = folder / "trace.iolog"
        with log.open("w", encoding="utf-8") as output:
            write_iolog(noted.noted(batches), output, file=_LINK, wrap_nbytes=nbytes if wrap else None)
        plan = noted.whole()
        # A log's line is UTF-8 words between blanks, of which fio reads 256 bytes: few paths are sure to fit.
        (folder / _LINK).symlink_to(target.absolute())
        command = [
            program,
            "--name=replay",
            f"--read_iolog={log.name}",
            "--ioengine=libaio",
            "--direct=1",
            f"--iodepth={iodepth}",
            "--write_lat_log=replay",
            "--log_offset=1",
            "--iodepth_batch_complete_min=0",
            "--output-format=json",
            *([] if paced else ["--replay_no_stall=1"]),
        ]
        guard = [setpriv, "--pdeathsig", "KILL", "sh", "-c", _ONLY_WITH_PARENT, "sh", str(os.getpid())]
        limit = _seconds(plan) * 4 + len(plan.time_ms) * 0.1 + _GRACE_SECONDS
        try:
            done = subprocess.run(
                [*guard, *command], capture_output=True, text=True, check=False, cwd=folder, timeout=limit
            )
        except subprocess.TimeoutExpired:
            raise HostError(
                f"fio did not end within {limit:.0f} s", where=str(target), remedy="replay on a faster device"
            ) from None
        _refuse_failure(done, target)
        log = folder / "replay_lat.1.log"
        return _report(plan, log, version.strip(), rounded=noted.rounded, paced=paced)


def _refuse_failure(done: "subprocess.CompletedProcess[str]", target: Path) -> None:
    try:
        document = json.loads(done.stdout[done.stdout.index("{") :])
        failed = document["jobs"][0]["error"]
    except (ValueError, KeyError, IndexError):
        failed = done.returncode or "no result"
    if done.returncode or failed:
        words = (done.stderr.strip() or done.stdout.strip()).splitlines()
        raise HostError(f"fio failed: {words[0] if words else failed}", where=str(target))


def _report(plan: Issues, log: Path, version: str, *, rounded: int, paced: bool) -> ReplayReport:
    logged, latency_us = read_log(log)
    theirs = matched(plan, logged)
    mine = np.flatnonzero(theirs >= 0)
    planned_ms = plan.time_ms[mine] - plan.time_ms[0]
    actual_ms = logged.time_ms[theirs[mine]] - logged.time_ms.min()
    late = actual_ms - planned_ms
    gap_error = np.abs(np.diff(actual_ms) - np.diff(planned_ms)) if len(late) > 1 else np.zeros(1)
    return ReplayReport(
        len(plan.time_ms),
        len(mine),
        rounded,
        _seconds(plan),
        float(np.ptp(logged.time_ms)) / 1e3,
        _percentiles(late) if paced else None,
        float((late > 2 * RESOLUTION_MS).mean()) if paced else None,
        _percentiles(gap_error) if paced else None,
        _percentiles(latency_us),
        version,
    )


def _seconds(plan: Issues) -> float:
    return float(plan.time_ms[-1] - plan.time_ms[0]) / 1e3 if len(plan.time_ms) else 0.0


def _percentiles(values: NDArray[np.float64]) -> dict[str, float]:
    found = np.percentile(values, _PERCENTILES)
    return {f"p{p}": round(float(v), 2) for p, v in zip(_PERCENTILES, found, strict=True)}
