"""What a ``CompletionMatcher`` knows of the accesses that it holds, to tell whether two of them know the same."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.matching.completion_loop import N_ROWS
from cephfit.traces.matching.latency import CompletionMatcher


@dataclass(frozen=True, slots=True)
class WaitingRows:
    """The accesses from the first one on that waits, after a matcher has given out all before it.

    Two matchers with the same ones do the same with all events from there on, however different those before were:
    what is in flight at an access is what was issued before and is of known latency, less what was completed
    before, and what is not held counts in both or in neither.

    Attributes:
        completions_seen: whether accesses wait for completions already; until then none is looked for.
        columns: of ``completion_loop.Rows`` without the links; devices instead of numbers of disks, and instead of
            how many were completed before how many were since.
    """

    completions_seen: bool
    columns: tuple[NDArray[Any], ...]

    @classmethod
    def of(cls, matcher: CompletionMatcher, devices: Sequence[int]) -> "WaitingRows":
        """``devices``: number of each disk. The matcher must just have been settled."""
        n, rows = int(matcher.numbers[N_ROWS]), matcher.rows
        disk = rows.disk[:n]
        columns = (rows.time_ns, rows.op, rows.lbn, rows.nbytes, rows.latency_ns)
        since = matcher.ended_on[disk] - rows.ended[:n]
        return cls(
            matcher.completions_seen,
            (*(c[:n].copy() for c in columns), np.array(devices, np.int64)[disk], since),
        )

    def same_as(self, other: "WaitingRows") -> bool:
        """Whether what comes afterwards is the same. Only once completions were seen: before, it depends on how
        many accesses there were."""
        return (
            self.completions_seen
            and other.completions_seen
            and all(np.array_equal(a, b) for a, b in zip(self.columns, other.columns, strict=True))
        )
