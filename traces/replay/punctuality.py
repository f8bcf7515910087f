"""Which access was to be issued when, and which of those in fio's log it is: some dozen bytes for each access."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from cephfit.access import AccessBatch
from cephfit.errors import InputError
from cephfit.traces.description.block_hash import hashed
from cephfit.traces.replay.iolog_writer import whole_blocks
from cephfit.units import LBN_NBYTES, NS_PER_MS, NS_PER_US

_DISKS_NAMED = 15
_LINES_AT_ONCE = 1 << 16
_MATCHED_AT_ONCE = 1 << 19


class Issues(NamedTuple):
    """Accesses, each of shape (n,).

    Attributes:
        time_ms: float64, of issue.
        place: int64, twice the first 512-byte block, and one more for a write.
        nbytes: int64.
    """

    time_ms: NDArray[np.float64]
    place: NDArray[np.int64]
    nbytes: NDArray[np.int64]


class Plan:
    """What is to be issued, noted while it is written into the log that fio replays.

    Attributes:
        rounded: accesses whose size is no multiple of 512 bytes.
    """

    def __init__(self, nbytes: int, *, wrap: bool) -> None:
        """For a target of ``nbytes``; ``wrap``: places beyond its end begin again at its start."""
        self.rounded = 0
        self._nbytes = nbytes
        self._wrap = wrap
        self._parts: list[Issues] = []
        self._disks: dict[str, None] = {}
        self._latest_ns: int | None = None

    def noted(self, batches: Iterable[AccessBatch]) -> Iterator[AccessBatch]:
        """The batches, their sizes rounded up to whole blocks.

        Raises:
            InputError: they are of several disks, or do not fit on the target.
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
                    remedy="name a larger target, or let places beyond its end begin again at 0: --wrap",
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
                "one target they would overwrite each other's places",
                where="the trace",
                remedy=f"replay one disk, each on a target of its own: --disk {first}",
            )

    def whole(self) -> Issues:
        """All of them, in order; nothing may be noted afterwards."""
        parts, self._parts = self._parts, []
        return _joined(parts)


def read_log(path: Path) -> tuple[Issues, NDArray[np.float64]]:
    """fio's log of completions (``write_lat_log`` with ``log_offset``): what was issued when, in the order of
    completion, and float64 latencies in us."""
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
    """int64 (planned,): which row of the log is the same access, -1 where none is.

    The k-th of its op, place and size in the plan is the k-th issued one of them in the log.
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
    """Rows of both that belong together, of the rows ``a`` and ``b``."""
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
    # Of each group those of the plan come first; the k-th of the log stands n_planned behind the k-th of them.
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
