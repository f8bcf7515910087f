"""Which completion belongs to which access, and how many accesses were in flight."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cephfit.traces import latency_loop
from cephfit.traces.columns import PENDING, UNKNOWN_LATENCY, Accesses
from cephfit.units import NS_PER_S

MAX_LATENCY_NS = 120 * NS_PER_S
"""An access that is not completed after this long is taken to have no completion in the trace. Linux itself
reports a task that waits this long as hung (kernel.hung_task_timeout_secs)."""

MAX_HELD = 1 << 18
"""Accesses held back at most while their completion is awaited: memory stays constant."""

_MAX_CANDIDATES = 1 << 23
_MOVES_PER_ACCESS = 64
"""Accesses end nearly in the order in which they began: moving the few to their places is the fastest sort."""


class CompletionMatcher:
    """Joins completions to accesses of a stream, batch by batch.

    An access is complete when the request that ends at its last block completes, or, where the kernel merged it
    into a larger request, the first later request that covers it. (Split requests end with the access too, so
    the end tells more than the start.) Accesses leave in the order in which they came, as soon as all before
    them are complete or given up.
    """

    def __init__(self) -> None:
        self._held = Accesses.none()
        self._completions_seen = False
        self._put_off: list[tuple[NDArray[Any], ...]] = []
        self._n_put_off = 0

    @property
    def completions_seen(self) -> bool:
        """Whether the trace records completions at all."""
        return self._completions_seen

    def push(
        self,
        is_completion: NDArray[np.bool_],
        time_ns: NDArray[np.int64],
        op: NDArray[np.uint8],
        lbn: NDArray[np.int64],
        nbytes: NDArray[np.int64],
        disk: NDArray[np.int32],
    ) -> Accesses:
        """Take the next events of the stream; return the accesses that are ready.

        Args:
            is_completion: whether an event is a completion or an access.
            time_ns ... disk: as in AccessBatch, of the events; a disk of -1 is none that has accesses.
        """
        self._put_off.append((is_completion, time_ns, op, lbn, nbytes, disk))
        self._n_put_off += len(time_ns)
        # Many that wait are not gone through again for a few that are new: a trace may have no completions at all.
        if 4 * self._n_put_off < len(self._held):
            return Accesses.none()
        return self._match()

    def _match(self) -> Accesses:
        """Join what was put off; return the accesses that are ready."""
        is_completion, time_ns, op, lbn, nbytes, disk = (
            self._put_off[0]
            if len(self._put_off) == 1
            else [np.concatenate(parts) for parts in zip(*self._put_off, strict=True)]
        )
        self._put_off, self._n_put_off = [], 0
        held = self._held
        rows = held.with_room(len(time_ns))
        events = (is_completion, time_ns, lbn, nbytes, disk)
        n, n_completions, n_waiting = latency_loop.match_ends(
            is_completion, time_ns, op, lbn, nbytes, disk, PENDING, len(held),
            rows.time_ns, rows.op, rows.lbn, rows.nbytes, rows.disk, rows.latency_ns,
        )  # fmt: skip
        rows = rows.cut(0, n)
        self._completions_seen |= n_completions > 0
        if not n_waiting:
            self._held = Accesses.none()
            return rows
        waiting = np.flatnonzero(rows.latency_ns == PENDING)
        if n_completions:
            latency_loop.match_covered(
                *events, PENDING, len(held), waiting[np.lexsort((rows.lbn[waiting], rows.disk[waiting]))],
                _MAX_CANDIDATES, rows.time_ns, rows.lbn, rows.nbytes, rows.disk, rows.latency_ns,
            )  # fmt: skip
        # Given up: what is too old, and the older half where too many wait.
        latency = rows.latency_ns[waiting]
        too_old = rows.time_ns[waiting] < int(rows.time_ns[-1]) - MAX_LATENCY_NS
        too_many = waiting < (n - MAX_HELD // 2 if n > MAX_HELD else 0)
        latency[(latency == PENDING) & (too_old | too_many)] = UNKNOWN_LATENCY
        rows.latency_ns[waiting] = latency
        waiting = waiting[latency == PENDING]
        ready = int(waiting[0]) if len(waiting) else n
        self._held = rows.cut(ready, n)
        return rows.cut(0, ready)

    def finish(self) -> Accesses:
        """The accesses that were still held back; those without a completion have an unknown latency."""
        ready = self._match() if self._put_off else Accesses.none()
        rows, self._held = self._held, Accesses.none()
        latency = np.where(rows.latency_ns == PENDING, UNKNOWN_LATENCY, rows.latency_ns)
        return Accesses.joined([ready, replace(rows, latency_ns=latency)])


class InFlight:
    """Counts, for each access of a stream, the accesses of the same disk that were in flight at its issue."""

    def __init__(self) -> None:
        self._ends: dict[int, NDArray[np.int64]] = {}

    def count(self, rows: Accesses) -> NDArray[np.int32]:
        """int32, shape (n,): accesses issued before and not complete yet, those of known latency."""
        depth = np.zeros(len(rows), np.int32)
        alone = bool(len(rows)) and bool((rows.disk == rows.disk[0]).all())
        for disk in [rows.disk[0]] if alone else np.unique(rows.disk):
            mine = slice(None) if alone else np.flatnonzero(rows.disk == disk)
            begun, latency = rows.time_ns[mine], rows.latency_ns[mine]
            carried = self._ends.get(int(disk), np.empty(0, np.int64))
            ends = np.empty(len(carried) + len(begun), np.int64)
            ends[: len(carried)] = carried
            ends = ends[: latency_loop.known_ends(begun, latency, len(carried), ends)]
            if not latency_loop.sort_nearly_sorted(ends, _MOVES_PER_ACCESS * len(ends)):
                ends.sort()
            counted = np.empty(len(begun), np.int32)
            latency_loop.count_in_flight(begun, latency, len(carried), ends, counted)
            depth[mine] = counted
            self._ends[int(disk)] = ends[np.searchsorted(ends, begun[-1], side="right") :].copy()
        return depth
