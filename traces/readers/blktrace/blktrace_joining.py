"""Parts of a blktrace recording followed side by side, and joined as if it had never been cut.

Each part is followed twice: all of it by a thread of its own, as if nothing was before it, and its beginning once
more by who comes from the part before and knows what waits. As soon as both wait for the same accesses, whatever
comes is the same for both, and what the thread counted from there on counts. Mostly that is so after some KB.
Where it never is, because an access waits that is never completed, whoever knows goes on to the part's end, as in
a whole recording: nothing is ever counted by guess.
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
from cephfit.traces.files.read_ahead import n_cores, read_ahead
from cephfit.traces.files.stream import TraceStream
from cephfit.traces.readers.blktrace.blktrace_bytes import layout_of
from cephfit.traces.readers.blktrace.blktrace_loop import Layout
from cephfit.traces.readers.blktrace.blktrace_notes import (
    MAX_CPUS,
    MAX_NUMBERED,
    NO_DEVICE,
    Found,
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
from cephfit.traces.readers.blktrace.blktrace_reader import BlktraceReader, RecordFollower

MAX_UNJOINED = 4
"""Parts one after the other in which both never knew the same; the rest is then read as a whole."""


def count_in_parts(
    streams: Sequence[TraceStream], reader: BlktraceReader, advance: Callable[[float], None]
) -> PartialProfile | None:
    """Count a recording by all cores; None where it must be read as a whole.

    Args:
        streams: nothing is read of them.
        reader: for what counts as an access.
        advance: told how many more bytes were read.

    Raises:
        InputError: a record is cut off, or what stands there is no record.
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
    """Follow parts in so many threads and join them; ``advance`` as above.

    Raises:
        InputError: a record is cut off, or what stands there is no record.
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
    """Parts of a recording, one after the other, as if it was read at once.

    Attributes:
        total: what was counted so far.
        n_unjoined: parts before in a row that had to be followed to their ends.
    """

    def __init__(self, layout: Layout, counted_action: int) -> None:
        self.total = PartialProfile()
        self.n_unjoined = 0
        self._following = RecordFollower(layout, counted_action)
        self._at_beginning = True

    def add(self, part: Part, followed: FollowedPart) -> None:
        """The next part, which was followed alone."""
        if self._at_beginning:
            self._at_beginning = False
            self._join(followed, 0)
            return
        with ExitStack() as stack:
            reading, counting = part.opened(stack), Counting(None)
            for n, checkpoint in enumerate(followed.checkpoints, 1):
                count_on(self._following, reading, counting, n)
                counting.add(self._following.settled())
                if checkpoint.same_as(Checkpoint.of(self._following, reading)) and self._goes_on_numbering(
                    followed
                ):
                    self._follow_up(counting.partial())
                    self._join(followed, n)
                    return
            count_on(self._following, reading, counting)
            self._follow_up(counting.partial())
        self.n_unjoined += 1

    def read_rest(self, part: Part) -> None:
        """All from a part's beginning on, as a whole.

        Raises:
            InputError: a record is cut off, or what stands there is no record.
        """
        counting = Counting(None)
        with ExitStack() as stack, ThreadPoolExecutor(1) as pool:
            whole = replace(part, ends=(None,) * len(part.files))
            for batch in read_ahead(self._following.follow(whole.opened(stack, pool))):
                counting.add(batch)
        self._follow_up(counting.partial())

    def finish(self) -> PartialProfile:
        """The counts of all parts."""
        counting = Counting(None)
        counting.add(self._following.finished())
        self._follow_up(counting.partial())
        return self.total

    def _follow_up(self, counted: PartialProfile) -> None:
        self.total = self.total.followed_by(counted)

    def _join(self, followed: FollowedPart, n_again: int) -> None:
        """Take over what a part counted but for its first stretches, and go on from where it ended."""
        for counted in followed.counted[n_again:]:
            self._follow_up(counted)
        before, after = self._following.found, followed.following.found
        if n_again:
            self._follow_up(
                PartialProfile(lost=_lost_between(before, after, followed.checkpoints[n_again - 1].cpus))
            )
            _go_on_numbering(before, after)
        self._following, self.n_unjoined = followed.following, 0

    def _goes_on_numbering(self, followed: FollowedPart) -> bool:
        """Whether the numbers of all devices can be followed on."""
        before, after = self._following.found.numbered, followed.following.found.numbered
        return len(np.union1d(before[before != NO_DEVICE], after[after != NO_DEVICE])) < MAX_NUMBERED


def _lost_between(before: Found, after: Found, again: Mapping[int, NDArray[np.int64]]) -> int:
    """Events that the tracer lost of the CPUs that a part has for the first time, of each device, but for those
    ``again``, whose records were followed again."""
    lost, last_of = 0, {device: last for device, _, last in numbers_by_device(before)}
    for device, first, _ in numbers_by_device(after):
        if device in last_of:
            n = min(len(first), len(last_of[device]))
            first, last = first[:n].copy(), last_of[device][:n]
            first[[cpu for cpu in again.get(device, ()) if cpu < n]] = 0
            steps = first - last - 1
            lost += int(steps[(first > 0) & (last > 0) & (steps > 0)].sum())
    return lost


def _go_on_numbering(before: Found, after: Found) -> None:
    """Let ``after`` know of the devices and CPUs that only ``before`` had records of."""
    after.n_cpus[0] = max(before.n_cpus[0], after.n_cpus[0])
    for device, _, last in numbers_by_device(before):
        begin = row_of(device, after.numbered) * MAX_CPUS
        mine = after.last_sequence[begin : begin + len(last)]
        np.copyto(mine, last, where=mine == 0)
