"""Replay a trace on a device or file with fio's ``read_iolog``, and report the timing error.

A plan holds the planned time of each access, in a few dozen bytes, and is matched with fio's log of completions
(``write_lat_log``, ``log_offset``). The issue time of an access is its time in the log minus its latency. fio
writes that time in whole milliseconds, so lateness is known to within 1 ms.

fio waits from one issue to the next, not for an absolute time (iolog.c, ``iolog_delay``), so the duration of every
issue adds up. The lateness therefore grows over a long trace, but the error of a single gap does not; the report
contains both.
"""

import errno
import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import HostError, InputError
from cephfit.core.units import LBN_NBYTES, NS_PER_MS, NS_PER_US
from cephfit.traces.columns import AccessBatch
from cephfit.traces.description.locality import hashed
from cephfit.traces.readers.fio_iolog import whole_blocks, write_iolog

_DISKS_NAMED = 15
_LINES_AT_ONCE = 1 << 16
_MATCHED_AT_ONCE = 1 << 19


class Issues(NamedTuple):
    """Accesses, each column of shape (n,).

    Attributes:
        time_ms: float64, time of issue.
        place: int64, twice the first 512-byte block, plus one for a write.
        nbytes: int64.
    """

    time_ms: NDArray[np.float64]
    place: NDArray[np.int64]
    nbytes: NDArray[np.int64]


class Plan:
    """The accesses to issue, recorded while they are written into the log that fio replays.

    Attributes:
        rounded: Number of accesses with a size that is not a multiple of 512 bytes.
    """

    def __init__(self, nbytes: int, *, wrap: bool) -> None:
        """Create an empty plan.

        Args:
            nbytes: Size of the target.
            wrap: Offsets beyond the end of the target restart at its beginning.
        """
        self.rounded = 0
        self._nbytes = nbytes
        self._wrap = wrap
        self._parts: list[Issues] = []
        self._disks: dict[str, None] = {}
        self._latest_ns: int | None = None

    def recorded(self, batches: Iterable[AccessBatch]) -> Iterator[AccessBatch]:
        """Record the batches, and yield them with sizes rounded up to whole blocks.

        Raises:
            InputError: The accesses are of several disks, or do not fit on the target.
        """
        for batch in batches:
            self._refuse_others(batch)
            sizes = whole_blocks(batch.nbytes)
            self.rounded += int((sizes != batch.nbytes).sum())
            batch = replace(batch, nbytes=sizes)
            offset = batch.lbn * LBN_NBYTES
            if self._wrap:
                wrapped = offset % max(self._nbytes, LBN_NBYTES)
                offset = np.where(wrapped + sizes <= self._nbytes, wrapped, 0)
            beyond = np.flatnonzero(offset + sizes > self._nbytes)
            if len(beyond):
                end = int(offset[beyond[0]] + sizes[beyond[0]])
                raise InputError(
                    f"it touches byte {end - 1}, the target has {self._nbytes} bytes",
                    where="the trace",
                    remedy="name a larger target, or let offsets beyond its end restart at 0: --wrap",
                )
            if len(batch):
                time_ns = np.maximum.accumulate(batch.time_ns)  # fio issues in the order of the lines
                if self._latest_ns is not None:
                    time_ns = np.maximum(time_ns, self._latest_ns)
                self._latest_ns = int(time_ns[-1])
                self._parts.append(Issues(time_ns // NS_PER_US / 1e3, _place(offset, batch.op), sizes))
            yield batch

    def _refuse_others(self, batch: AccessBatch) -> None:
        self._disks.update(dict.fromkeys(batch.disks[d] for d in np.unique(batch.disk)))
        if len(self._disks) > 1:
            first, *others = self._disks
            raise InputError(
                f"the trace has accesses of several disks, {first} and {', '.join(others[:_DISKS_NAMED])}: on "
                "one target they would overwrite each other",
                where="the trace",
                remedy=f"replay each disk separately, on its own target: --disk {first}",
            )

    def whole(self) -> Issues:
        """Return all accesses, in order; nothing may be recorded afterwards."""
        parts, self._parts = self._parts, []
        return _joined(parts)


def read_log(path: Path) -> tuple[Issues, NDArray[np.float64]]:
    """Read fio's log of completions (``write_lat_log`` with ``log_offset``).

    Returns:
        The issued accesses in the order of completion, and their float64 latencies in us.
    """
    parts: list[Issues] = []
    latencies: list[NDArray[np.float64]] = [np.empty(0)]
    with path.open(encoding="ascii") as file:
        while lines := list(islice(file, _LINES_AT_ONCE)):
            done_ms, latency_ns, op, nbytes, offset = np.loadtxt(
                lines, delimiter=",", usecols=(0, 1, 2, 3, 4), dtype=np.int64, ndmin=2
            ).T
            parts.append(Issues(done_ms - latency_ns / NS_PER_MS, _place(offset, op), nbytes.copy()))
            latencies.append(latency_ns / NS_PER_US)
    return _joined(parts), np.concatenate(latencies)


def matched(planned: Issues, logged: Issues) -> NDArray[np.int64]:
    """Match the accesses of the plan with those of the log.

    The k-th access of an op, offset and size in the plan is the k-th issued one of these in the log.

    Returns:
        int64 (planned,): the row of the log with the same access, -1 if there is none.
    """
    found = np.full(len(planned.place), -1, np.int64)
    n_parts = 1 + (len(planned.place) + len(logged.place)) // _MATCHED_AT_ONCE
    for part in range(n_parts):
        a, b = (np.flatnonzero(hashed(issues.place) % np.uint64(n_parts) == part) for issues in (planned, logged))
        mine, theirs = _pairs(planned, a, logged, b)
        found[mine] = theirs
    return found


def _pairs(
    planned: Issues, a: NDArray[np.int64], logged: Issues, b: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the matching rows of both, among the rows ``a`` and ``b``."""
    place = np.concatenate([planned.place[a], logged.place[b]])
    nbytes = np.concatenate([planned.nbytes[a], logged.nbytes[b]])
    is_logged = np.arange(len(place)) >= len(a)
    turn = np.concatenate([np.arange(len(a), dtype=np.float64), logged.time_ms[b]])
    order = np.lexsort((turn, is_logged, nbytes, place))
    if not len(order):
        return order, order
    place, nbytes = place[order], nbytes[order]
    begins = np.flatnonzero(np.append(True, (place[1:] != place[:-1]) | (nbytes[1:] != nbytes[:-1])))
    sizes = np.diff(np.append(begins, len(order)))
    n_planned = np.add.reduceat(~is_logged[order], begins, dtype=np.int64)
    # In each group the planned accesses come first; the k-th of the log is n_planned after the k-th of the plan.
    k = np.arange(len(order)) - np.repeat(begins, sizes)
    both = np.repeat(np.minimum(n_planned, sizes - n_planned), sizes)
    at = np.flatnonzero(k < both)
    partner = at + np.repeat(n_planned, sizes)[at]
    return a[order[at]], b[order[partner] - len(a)]


def _place(offset: NDArray[np.int64], op: NDArray[np.int64] | NDArray[np.uint8]) -> NDArray[np.int64]:
    return offset // LBN_NBYTES * 2 + op


def _joined(parts: list[Issues]) -> Issues:
    if not parts:
        return Issues(np.empty(0), np.empty(0, np.int64), np.empty(0, np.int64))
    return Issues(
        np.concatenate([p.time_ms for p in parts]),
        np.concatenate([p.place for p in parts]),
        np.concatenate([p.nbytes for p in parts]),
    )


RESOLUTION_MS = 1.0
"""Resolution of the times in fio's log."""

_PERCENTILES = (50, 90, 99, 100)
_GRACE_SECONDS = 120.0
_LINK = "target"
# Runs after setpriv has asked the kernel to kill this process with its parent: is the parent still alive?
_ONLY_WITH_PARENT = 'test "$PPID" = "$1" || exit 1; shift; exec "$@"'


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """The result of a replay and its timing error.

    Attributes:
        accesses: Number of planned accesses.
        replayed: Number of accesses found in fio's log.
        rounded: Number of accesses with a size rounded up to a multiple of 512 bytes.
        planned_seconds, actual_seconds: From the first issue to the last one.
        late_ms: Percentile to lateness of an issue compared with the plan, both counted from the first issue; to
            within 1 ms. None at full speed.
        late_share: Share of accesses issued more than 2 ms late. None at full speed.
        gap_error_ms: Percentile to the absolute error of the time between two issues. None at full speed.
        latency_us: Percentile to latency of the replayed accesses.
        fio: Version of fio.
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
    """Return the size in bytes of a device or file that is not in use.

    Raises:
        InputError: The target does not exist, is neither a device nor a file, is in use, or is not writable.
    """
    try:
        kind = target.stat().st_mode
    except OSError as error:
        raise InputError(
            f"there is no such device or file: {error.strerror}",
            where=str(target),
            remedy="name an existing one; create a file that is large enough for the offsets of the trace",
        ) from None
    if not (stat.S_ISBLK(kind) or stat.S_ISREG(kind)):
        raise InputError(
            "this is neither a block device nor a file", where=str(target), remedy="name one of these"
        )
    try:
        # The kernel grants exclusive use of a device only if it, its partitions and the devices above it are free.
        handle = os.open(target, os.O_RDWR | (os.O_EXCL if stat.S_ISBLK(kind) else 0))
    except OSError as error:
        busy = error.errno == errno.EBUSY
        raise InputError(
            "the device is in use: mounted, swap, or part of another device" if busy else f"{error.strerror}",
            where=str(target),
            remedy="name a device with unneeded content" if busy else "run as root, or name a writable one",
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
        batches: In order of issue, of one disk.
        target: Device or file for the replay; its content is overwritten.
        iodepth: Maximum number of accesses in flight; a workload with more is issued late.
        wrap: Offsets beyond the end of the target restart at its beginning; otherwise they are an error.
        paced: False: as fast as fio can.

    Raises:
        InputError: The target is in use or too small, or the trace is of several disks or cannot be replayed.
        HostError: fio is not installed, or it failed.
    """
    nbytes = refuse_unless_free(target)
    program = shutil.which("fio")
    setpriv = shutil.which("setpriv")
    if program is None or setpriv is None:
        raise HostError("fio and setpriv are needed", remedy="apt-get install fio util-linux")
    version = subprocess.run(
        [program, "--version"], capture_output=True, text=True, check=False, timeout=30
    ).stdout
    nbytes = nbytes // LBN_NBYTES * LBN_NBYTES  # direct I/O uses whole blocks
    plan = Plan(nbytes, wrap=wrap)
    with tempfile.TemporaryDirectory(prefix="cephfit-replay-") as name:
        folder = Path(name)
        log = folder / "trace.iolog"
        with log.open("w", encoding="utf-8") as output:
            write_iolog(plan.recorded(batches), output, file=_LINK, wrap_nbytes=nbytes if wrap else None)
        planned = plan.whole()
        # A line of the log consists of UTF-8 words between blanks; fio reads 256 bytes. Many paths do not fit.
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
        limit = _seconds(planned) * 4 + len(planned.time_ms) * 0.1 + _GRACE_SECONDS
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
        return _report(planned, log, version.strip(), rounded=plan.rounded, paced=paced)


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
