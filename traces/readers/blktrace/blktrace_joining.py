"""Parts of a blktrace recording, followed in parallel and joined as if it had never been cut.

Each part is followed twice. A thread follows all of it, as if nothing preceded it. The joiner, which knows the
accesses that wait at the end of the previous part, follows only its beginning. As soon as both wait for the same
accesses, all later results are the same for both, and the counts of the thread are used from there. Usually that
happens after some KB.

If it never happens, because an access is never completed, the joiner continues to the end of the part, as in a
whole recording. Nothing is ever counted by guess.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.description.recording import Counting, PartialProfile
from cephfit.traces.readers.blktrace.blktrace_loop import (
    MAX_CPUS,
    MAX_NUMBERED,
    NO_DEVICE,
    Found,
    Layout,
    numbers_by_device,
    row_of,
)
from cephfit.traces.readers.blktrace.blktrace_parts import (
    Checkpoint,
    FollowedPart,
    Part,
    count_on,
    follow_alone,
    parts_of,
)
from cephfit.traces.readers.blktrace.blktrace_reader import BlktraceReader, RecordFollower, layout_of
from cephfit.traces.stream import TraceStream, n_cores, read_ahead

MAX_UNJOINED = 4
"""Consecutive parts in which the two never agreed. The rest is then read as a whole."""


def count_in_parts(
    streams: Sequence[TraceStream], reader: BlktraceReader, advance: Callable[[float], None]
) -> PartialProfile | None:
    """Count a recording with all cores; None if it must be read as a whole.

    Args:
        streams: the files, unread.
        reader: defines which events count as an access.
        advance: called with the number of additional bytes read.

    Raises:
        InputError: a record is cut off or invalid.
    """
    if n_cores() == 1 or not all(stream.is_plain_file() for stream in streams):
        return None
    layout = layout_of(streams)
    if layout is None:
        return None
    parts = parts_of([stream.path for stream in streams], layout, reader.counted_action)
    first = next(parts)
    if first.is_last:
        return None
    return joined_parts(chain([first], parts), layout, reader.counted_action, n_cores(), advance)


def joined_parts(
    parts: Iterator[Part], layout: Layout, counted_action: int, n_threads: int, advance: Callable[[float], None]
) -> PartialProfile:
    """Follow parts in ``n_threads`` threads, and join them; ``advance`` as in ``count_in_parts``.

    Raises:
        InputError: a record is cut off or invalid.
    """
    joining = PartJoiner(layout, counted_action)
    begun: deque[tuple[Part, Future[FollowedPart | None]]] = deque()
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            while True:
                while len(begun) < 2 * n_threads and (part := next(parts, None)):
                    begun.append((part, pool.submit(follow_alone, part)))
                if not begun:
                    return joining.finish()
                part, future = begun.popleft()
                followed = future.result()
                if followed is None or joining.n_unjoined == MAX_UNJOINED:
                    for _, other in begun:
                        other.cancel()
                    joining.read_rest(part)
                    return joining.finish()
                joining.add(part, followed)
                advance(part.nbytes)
        finally:
            pool.shutdown(cancel_futures=True)


class PartJoiner:
    """Joins the parts of a recording in order, as if it was read as a whole.

    Attributes:
        total: the counts so far.
        n_unjoined: consecutive parts, up to now, that had to be followed to their ends.
    """

    def __init__(self, layout: Layout, counted_action: int) -> None:
        self.total = PartialProfile()
        self.n_unjoined = 0
        self._following = RecordFollower(layout, counted_action)
        self._at_beginning = True

    def add(self, part: Part, followed: FollowedPart) -> None:
        """Add the next part, which was followed alone."""
        if self._at_beginning:
            self._at_beginning = False
            self._join(followed, 0)
            return
        with ExitStack() as stack:
            reading, counting = part.opened(stack), Counting(None)
            for n, checkpoint in enumerate(followed.checkpoints, 1):
                count_on(self._following, reading, counting, n)
                counting.add(self._following.settled())
                if checkpoint.same_as(Checkpoint.of(self._following, reading)) and self._can_track_sequences(
                    followed
                ):
                    self._follow_up(counting.partial())
                    self._join(followed, n)
                    return
            count_on(self._following, reading, counting)
            self._follow_up(counting.partial())
        self.n_unjoined += 1

    def read_rest(self, part: Part) -> None:
        """Read everything from the beginning of a part as a whole.

        Raises:
            InputError: a record is cut off or invalid.
        """
        counting = Counting(None)
        with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
            whole = replace(part, ends=(None,) * len(part.files))
            for batch in read_ahead(self._following.follow(whole.opened(stack, pool))):
                counting.add(batch)
        self._follow_up(counting.partial())

    def finish(self) -> PartialProfile:
        """Return the counts of all parts."""
        counting = Counting(None)
        counting.add(self._following.finished())
        self._follow_up(counting.partial())
        return self.total

    def _follow_up(self, counted: PartialProfile) -> None:
        self.total = self.total.followed_by(counted)

    def _join(self, followed: FollowedPart, n_again: int) -> None:
        """Add the counts of a part except for its first sections, and continue from its end."""
        for counted in followed.counted[n_again:]:
            self._follow_up(counted)
        before, after = self._following.found, followed.following.found
        if n_again:
            self._follow_up(
                PartialProfile(lost=_lost_between(before, after, followed.checkpoints[n_again - 1].cpus))
            )
            _carry_sequences(before, after)
        self._following, self.n_unjoined = followed.following, 0

    def _can_track_sequences(self, followed: FollowedPart) -> bool:
        """Return whether the sequence numbers of all devices can be tracked further."""
        before, after = self._following.found.numbered, followed.following.found.numbered
        return len(np.union1d(before[before != NO_DEVICE], after[after != NO_DEVICE])) < MAX_NUMBERED


def _lost_between(before: Found, after: Found, again: Mapping[int, NDArray[np.int64]]) -> int:
    """Return the events lost before the first record of each CPU in a part, over all devices.

    CPUs in ``again`` are excluded: their records were followed again.
    """
    lost, last_of = 0, {device: last for device, _, last in numbers_by_device(before)}
    for device, first, _ in numbers_by_device(after):
        if device in last_of:
            n = min(len(first), len(last_of[device]))
            first, last = first[:n].copy(), last_of[device][:n]
            first[[cpu for cpu in again.get(device, ()) if cpu < n]] = 0
            steps = first - last - 1
            lost += int(steps[(first > 0) & (last > 0) & (steps > 0)].sum())
    return lost


def _carry_sequences(before: Found, after: Found) -> None:
    """Copy to ``after`` the sequence numbers of devices and CPUs that only ``before`` has records of."""
    after.n_cpus[0] = max(before.n_cpus[0], after.n_cpus[0])
    for device, _, last in numbers_by_device(before):
        begin = row_of(device, after.numbered) * MAX_CPUS
        mine = after.last_sequence[begin : begin + len(last)]
        np.copyto(mine, last, where=mine == 0)
