"""What the OSDs count for single images: ``rbd perf image counters``, of the manager's module ``rbd_support``.

`rbd perf image iostat` and `iotop` show its rates. Behind them are sums: since somebody began to ask (the manager
forgets a minute after the last question), every OSD counts what operations on an image's data objects moved and
sends that once per report period (``mgr_stats_period``: 5 s; a lab: 1 s), and the manager adds it up as often. So
nothing is sampled and nothing is lost: two periods after the last I/O the sum is exact. But *when* it happened is
known to two periods only, because OSDs report each at its own time; short runs are too short for that.

Operations are those of OSDs: a block over several objects makes several. So bytes are compared.
"""

import bisect
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from cephfit.cells import Op
from cephfit.sweep.engines.device_counters import window_count
from cephfit.sweep.engines.engine import IndependentCount

SOURCE = "the OSDs, for this image alone (rbd perf image counters)"
COMMAND = "rbd perf image counters"
"""To the manager itself: through a monitor it would not know whose key asks, and refuse."""


@dataclass(frozen=True, slots=True)
class ImageIo:
    """What was done to an image's data objects since the manager began to count.

    Attributes:
        written_nbytes, read_nbytes: that operations carried, whatever the number of copies.
        write_ops, read_ops: operations of OSDs.
    """

    write_ops: int = 0
    read_ops: int = 0
    written_nbytes: int = 0
    read_nbytes: int = 0

    def of(self, op: Op) -> int:
        return self.read_nbytes if op is Op.READ else self.written_nbytes

    def plus(self, other: "ImageIo") -> "ImageIo":
        return ImageIo(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    def since(self, before: "ImageIo") -> "ImageIo":
        return ImageIo(*(a - b for a, b in zip(astuple(self), astuple(before), strict=True)))


def parse(answer: Mapping[str, Any]) -> dict[tuple[str, str], ImageIo]:
    """(pool, image) to its counters, from the answer to ``rbd perf image counters``. Pure.

    An image that was deleted is listed for some minutes more: one that was made anew under its name counts on.

    Raises:
        KeyError, TypeError, ValueError: it is no such answer.
    """
    names = list(answer["counter_descriptors"])
    places = [names.index(word) for word in ("write_ops", "read_ops", "write_bytes", "read_bytes")]
    found: dict[tuple[str, str], ImageIo] = {}
    for counter in answer["counters"]:
        for key, values in counter.items():  # one entry, such as "0/volume": [...]
            number, _, image = str(key).partition("/")
            place = (str(answer["pool_descriptors"][number]), image)
            found[place] = found.get(place, ImageIo()).plus(ImageIo(*(int(values[p]) for p in places)))
    return found


def image_count(
    times: Sequence[float],
    values: Sequence[int],
    *,
    moved: Sequence[int],
    runtime_ns: int,
    in_flight_nbytes: int,
    period_seconds: float,
) -> IndependentCount:
    """The count over the measured time, which ends with the counter's last change. Pure.

    Counters rise in steps, each OSD's at its own time within a period, and the manager lies up to another one
    behind. Begin and end are behind alike, but for a period: so much of what moved around the begin may belong to
    either side.

    Args:
        times: seconds, rising, shape (n,), n >= 2.
        values: bytes, never falling, shape (n,).
        moved: bytes in both directions, shape (n,).
        runtime_ns: of the measured time.
        in_flight_nbytes: at most so much was under way when it began.
        period_seconds: of reports.
    """
    count = window_count(
        list(times),
        list(values),
        source=SOURCE,
        runtime_ns=runtime_ns,
        in_flight_nbytes=in_flight_nbytes,
        moved=list(moved),
    )
    last = next((i for i in range(len(moved) - 1, 0, -1) if moved[i] != moved[i - 1]), 0)
    start = times[last] - runtime_ns / 1e9
    before = values[max(0, bisect.bisect_right(times, start - period_seconds) - 1)]
    after = values[min(len(values) - 1, bisect.bisect_left(times, start + period_seconds))]
    return IndependentCount(
        source=count.source,
        window_nbytes=count.window_nbytes,
        total_nbytes=count.total_nbytes,
        allowed_nbytes=max(count.allowed_nbytes, in_flight_nbytes + after - before),
    )
