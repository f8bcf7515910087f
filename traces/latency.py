"""Which completion belongs to which access, and how many accesses were in flight."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cephfit.traces import latency_loop
from cephfit.traces.columns import PENDING, UNKNOWN_LATENCY, Accesses, n_blocks
from cephfit.units import NS_PER_S

MAX_LATENCY_NS = 120 * NS_PER_S
"""An access that is not completed after this long is taken to have no completion in the trace. Linux itself
reports a task that waits this long as hung (kernel.hung_task_timeout_secs)."""

MAX_HELD = 1 << 20
"""Accesses held back at most while their completion is awaited: memory stays constant."""

_MAX_CANDIDATES = 1 << 23


@dataclass(frozen=True, slots=True)
class Completions:
    """Completion events, all arrays of shape (n,); ``position`` says after how many accesses each one came."""

    time_ns: NDArray[np.int64]
    lbn: NDArray[np.int64]
    nbytes: NDArray[np.int64]
    disk: NDArray[np.int32]
    position: NDArray[np.int64]


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

    @property
    def completions_seen(self) -> bool:
        """Whether the trace records completions at all."""
        return self._completions_seen

    def push(self, accesses: Accesses, completions: Completions) -> Accesses:
        """Take the next events of the stream; return the accesses that are ready.

        Args:
            accesses: issued ones, latency PENDING.
            completions: those among them, ``position`` counted within ``accesses``.
        """
        n_held = len(self._held)
        rows = Accesses.joined([self._held, accesses]) if n_held else accesses
        latency = rows.latency_ns.copy()
        if len(completions.time_ns):
            self._completions_seen = True
            moved = replace(completions, position=completions.position + n_held)
            _match_ends(rows, latency, moved)
            _match_covered(rows, latency, moved)
        rows = replace(rows, latency_ns=latency)
        if len(rows):
            latest = int(rows.time_ns[-1])
            given_up = (latency == PENDING) & (rows.time_ns < latest - MAX_LATENCY_NS)
            latency[given_up] = UNKNOWN_LATENCY
            if len(rows) > MAX_HELD:
                oldest = latency[: len(rows) - MAX_HELD // 2]
                oldest[oldest == PENDING] = UNKNOWN_LATENCY
        waiting = np.flatnonzero(latency == PENDING)
        ready = int(waiting[0]) if len(waiting) else len(rows)
        self._held = rows.cut(ready, len(rows))
        return rows.cut(0, ready)

    def finish(self) -> Accesses:
        """The accesses that were still held back; those without a completion have an unknown latency."""
        rows, self._held = self._held, Accesses.none()
        latency = np.where(rows.latency_ns == PENDING, UNKNOWN_LATENCY, rows.latency_ns)
        return replace(rows, latency_ns=latency)


def _match_ends(rows: Accesses, latency: NDArray[np.int64], completions: Completions) -> None:
    """Give each completion to the latest waiting access before it that ends at the same block."""
    latency_loop.match_ends(
        rows.time_ns,
        rows.lbn + n_blocks(rows.nbytes),
        rows.disk,
        latency,
        PENDING,
        completions.time_ns,
        completions.lbn + n_blocks(completions.nbytes),
        completions.disk,
        completions.position,
        2 << len(rows).bit_length(),
    )


def _match_covered(rows: Accesses, latency: NDArray[np.int64], completions: Completions) -> None:
    """Complete what was merged into a larger request: the first later completion that covers the access."""
    waiting = np.flatnonzero(latency == PENDING)
    if not len(waiting) or not len(completions.time_ns):
        return
    waiting = waiting[np.lexsort((rows.lbn[waiting], rows.disk[waiting]))]
    for disk in np.unique(rows.disk[waiting]):
        mine = waiting[rows.disk[waiting] == disk]
        theirs = np.flatnonzero(completions.disk == disk)
        starts = completions.lbn[theirs]
        ends = starts + n_blocks(completions.nbytes[theirs])
        low = np.searchsorted(rows.lbn[mine], starts, side="left")
        n_candidates = np.searchsorted(rows.lbn[mine], ends, side="left") - low
        total = int(n_candidates.sum())
        if total == 0 or total > _MAX_CANDIDATES:
            continue
        completion = np.repeat(np.arange(len(theirs)), n_candidates)
        within = np.arange(total) - np.repeat(np.cumsum(n_candidates) - n_candidates, n_candidates)
        access = mine[np.repeat(low, n_candidates) + within]
        fits = (completions.position[theirs][completion] > access) & (
            rows.lbn[access] + n_blocks(rows.nbytes[access]) <= ends[completion]
        )
        access, completion = access[fits], completion[fits]
        # Completions come in order of time: written backwards, the first one stays.
        latency[access[::-1]] = np.maximum(
            completions.time_ns[theirs][completion[::-1]] - rows.time_ns[access[::-1]], 0
        )


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
            is_known = latency >= 0
            carried = self._ends.get(int(disk), np.empty(0, np.int64))
            ends = np.concatenate([carried, (begun + latency)[is_known]])
            ends.sort(kind="stable")  # nearly in order already, which this kind makes use of
            counted = np.empty(len(begun), np.int32)
            latency_loop.count_in_flight(begun, is_known, len(carried), ends, counted)
            depth[mine] = counted
            self._ends[int(disk)] = ends[ends > begun[-1]]
        return depth
