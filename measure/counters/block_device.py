"""A block device: its caches, the kernel's counters as an independent count, and steadiness of the rate.

A block device's caches: emptied by ioctl, and warmed behind it by reading.

Whether the rate was steady over the measured time, from a counter that was sampled during it. Pure.

The terms are those of SNIA's test specification for solid state storage (PTS, "steady state"): the slope of a
straight line through the rates moves by no more than 10 % of their mean over the window, and no rate is further
than 20 % from it. The specification looks at five rounds of a minute; here the window is cut into ten parts.

The kernel's own counters of a block device, as the independent count of what fio did.

``/sys/class/block/DEVICE/stat`` counts what the device completed, in 512-byte sectors, whoever asked. fio starts
its measured time at the end of its ramp and does not say when that was; but it ends when its last I/O is back,
which the counter shows, and it says how long it took. So the counter is sampled during the run:

    end   = moment of the counter's last change
    start = end - fio's runtime
    count = counter(end) - counter(start), linear between two samples

What can differ for known reasons, all of it at the start (at the end nothing is in flight):

- fio counts an I/O when it is whole, the kernel each part of it as it completes. The measured time begins when an
  I/O is back, with the other ``iodepth`` - 1 under way: none at depth 1, where a run of few large I/Os would
  otherwise be allowed to be wrong by as much as it moved;
- ``start`` is known only as well as the counter is sampled (and fio's milliseconds allow). Whatever moved within
  that uncertainty around ``start`` may belong to either side. On a device that the kernel throttles in slices
  of 100 ms this can be one slice's worth.

So the allowed difference follows from the run itself: some per cent of 2 s, nearly nothing of 300 s.
"""

import bisect
import fcntl
import mmap
import os
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import numpy as np

from cephfit.core.errors import CephfitError, ClusterError, HostError
from cephfit.core.units import LBN_NBYTES, MIB
from cephfit.core.values.cells import Op
from cephfit.measure.engine import IndependentCount, MovedBytes

_BLKFLSBUF = 0x1261
"""Of linux/fs.h."""


def flush_buffers(descriptor: int) -> None:
    """Write out and drop the page cache of an open block device.

    Raises:
        OSError: it is none, or it does not take what is written.
    """
    fcntl.ioctl(descriptor, _BLKFLSBUF, 0)


def read_through(device: Path) -> int:
    """Read a device once from its begin to its end, past the page cache of this machine; the bytes read.

    Raises:
        ClusterError: it cannot be read.
    """
    nbytes = 0
    try:
        # An anonymous mapping lies on the borders of pages, as direct reads want it.
        direct = os.open(device, os.O_RDONLY | os.O_DIRECT)
        with mmap.mmap(-1, 4 * MIB) as block, os.fdopen(direct, "rb", 0) as file:
            while n := file.readinto(block):
                nbytes += n
    except OSError as error:
        raise ClusterError(f"it could not be read once through: {error.strerror}", where=str(device)) from None
    return nbytes


N_PARTS = 10
MOST_DRIFT = 0.10
MOST_EXCURSION = 0.20
LEAST_CHANGES_PER_PART = 5.0
"""With fewer steps of the counter in a part, the parts differ by where the steps fall, not by the rate."""


@dataclass(frozen=True, slots=True)
class Steadiness:
    """How a rate moved over the measured time, relative to its mean.

    Attributes:
        drift: change of the straight line through the parts' rates from the window's start to its end.
        excursion: largest distance of a part's rate from the mean.
    """

    drift: float
    excursion: float

    @property
    def is_steady(self) -> bool:
        return abs(self.drift) <= MOST_DRIFT and self.excursion <= MOST_EXCURSION

    def to_json(self) -> dict[str, Any]:
        return {"steady": self.is_steady, "drift": round(self.drift, 4), "excursion": round(self.excursion, 4)}


def steadiness_of(times: Sequence[float], values: Sequence[int], *, runtime_ns: int) -> Steadiness | None:
    """How steady the counter rose over the last ``runtime_ns`` before its last change.

    Args:
        times: seconds, rising, shape (n,), n >= 2.
        values: the counter, never falling, shape (n,).
        runtime_ns: length of the window.

    Returns:
        None where the counter moved in too few steps to tell, as with few large blocks.
    """
    moved = [i for i in range(1, len(values)) if values[i] != values[i - 1]]
    if not moved:
        return None
    end = times[moved[-1]]
    start = end - runtime_ns / 1e9
    if len(moved) - bisect.bisect_right([times[i] for i in moved], start) < N_PARTS * LEAST_CHANGES_PER_PART:
        return None
    edges = np.interp(np.linspace(start, end, N_PARTS + 1), times, np.asarray(values, dtype=float))
    rates = np.diff(edges)
    mean = float(rates.mean())
    slope = float(np.polyfit(np.arange(N_PARTS), rates, 1)[0])
    return Steadiness(drift=slope * N_PARTS / mean, excursion=float(np.abs(rates / mean - 1).max()))


_Key = TypeVar("_Key", bound=Hashable)

SAMPLING_SECONDS = 0.02
_SYSFS = Path("/sys/class/block")
_FIO_ROUNDING_SECONDS = 0.002
_FIO_REAPING_SECONDS = 0.02
"""Between the last completion and fio's look at its clock; seen below 10 ms on a busy machine."""


def counters_of(device: Path) -> MovedBytes:
    """The counters now: bytes that a device has completed since it is there.

    Raises:
        HostError: it is no block device, or the kernel does not count (``queue/iostats`` is 0).
    """
    folder = _SYSFS / device.resolve().name
    try:
        fields = [int(word) for word in (folder / "stat").read_text().split()]
    except (OSError, ValueError) as error:
        raise HostError(
            f"the kernel has no counters for {device}: {error}", where=str(folder), remedy="is it a block device?"
        ) from None
    # Documentation/block/stat.rst: field 3 is sectors read, field 7 sectors written.
    return MovedBytes(fields[2] * LBN_NBYTES, fields[6] * LBN_NBYTES)


def why_uncounted(device: Path) -> str:
    """Why the kernel does not count for this device; empty if it does."""
    try:
        counters_of(device)
        # A partition has no queue of its own; its disk's is one level up.
        folder = (_SYSFS / device.resolve().name).resolve()
        queue = folder / "queue" if (folder / "queue").is_dir() else folder.parent / "queue"
        if (queue / "iostats").read_text().strip() == "0":
            return f"the kernel's counting is off for {device} (queue/iostats is 0)"
    except HostError as error:
        return error.what
    except OSError as error:
        return f"the kernel does not say whether it counts for {device}: {error}"
    return ""


class CounterWatch(Generic[_Key]):
    """Samples some counters while a ``with`` block runs.

    Args:
        readers: ask for a counter, by what it belongs to; each may raise CephfitError.
        op: the direction that counts.
        source: who counts, for people.
        sampling_seconds: between two questions.
    """

    def __init__(
        self,
        readers: Mapping[_Key, Callable[[], MovedBytes]],
        op: Op,
        *,
        source: Callable[[_Key], str],
        sampling_seconds: float = SAMPLING_SECONDS,
    ) -> None:
        self._readers = dict(readers)
        self._op = op
        self._source = source
        self._sampling_seconds = sampling_seconds
        # seconds, bytes in the direction that counts, bytes in both
        self._series: dict[_Key, tuple[list[float], list[int], list[int]]]
        self._series = {key: ([], [], []) for key in self._readers}
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample_until_over, name="counters", daemon=True)

    def __enter__(self) -> Self:
        self._sample()
        if self._readers:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._over.set()
        if self._readers:
            self._thread.join()
        if kind is None:
            self._sample()

    def count(self, key: _Key, *, runtime_ns: int, in_flight_nbytes: int) -> IndependentCount:
        """What was completed within fio's measured time; to be asked after the ``with`` block.

        Args:
            key: one of those watched.
            runtime_ns: fio's measured time.
            in_flight_nbytes: at most so much was under way when the measured time began.
        """
        times, values, moved = self._series[key]
        return window_count(
            times,
            values,
            source=self._source(key),
            runtime_ns=runtime_ns,
            in_flight_nbytes=in_flight_nbytes,
            moved=moved,
        )

    def steadiness(self, key: _Key, *, runtime_ns: int) -> Steadiness | None:
        """How steady the device was busy over fio's measured time; None where too few steps tell."""
        times, values, _ = self._series[key]
        return steadiness_of(times, values, runtime_ns=runtime_ns)

    def _sample_until_over(self) -> None:
        while not self._over.wait(self._sampling_seconds):
            try:
                self._sample()
            except CephfitError:
                return  # What is counted has gone; fio's own error says so.

    def _sample(self) -> None:
        for key, read in self._readers.items():
            counters = read()
            times, values, moved = self._series[key]
            times.append(time.monotonic())
            values.append(counters.of(self._op))
            moved.append(counters.read_nbytes + counters.written_nbytes)


class DeviceWatch(CounterWatch[Path]):
    """Samples the kernel's counters of some devices while a ``with`` block runs."""

    def __init__(self, devices: Iterable[Path], op: Op) -> None:
        readers = {device: partial(counters_of, device) for device in devices}
        super().__init__(readers, op, source=lambda device: f"the kernel ({device})")


def in_flight_nbytes(iodepth: int, block_nbytes: int) -> int:
    """Bytes that may be under way, partly counted by the kernel already, when fio's measured time begins."""
    return (iodepth - 1) * block_nbytes


def window_count(
    times: list[float],
    values: list[int],
    *,
    source: str,
    runtime_ns: int,
    in_flight_nbytes: int,
    moved: list[int] | None = None,
) -> IndependentCount:
    """The count over the last ``runtime_ns`` before the counter's last change. Pure.

    Args:
        times: seconds, rising, shape (n,), n >= 2.
        values: bytes, never falling, shape (n,).
        source: who counted.
        runtime_ns: length of the window.
        in_flight_nbytes: at most so much was under way when it began.
        moved: bytes in both directions, shape (n,): of a mix the last I/O may be of the other one.
    """
    moved = moved or values
    last = next((i for i in range(len(moved) - 1, 0, -1) if moved[i] != moved[i - 1]), 0)
    start = times[last] - runtime_ns / 1e9
    after = min(max(bisect.bisect_right(times, start), 1), len(times) - 1)
    uncertain = (
        (times[after] - times[after - 1])
        + (times[last] - times[last - 1] if last else 0.0)
        + _FIO_ROUNDING_SECONDS
        + _FIO_REAPING_SECONDS
    )
    around = _at(times, values, start + uncertain) - _at(times, values, start - uncertain)
    return IndependentCount(
        source=source,
        window_nbytes=values[-1] - _at(times, values, start),
        total_nbytes=values[-1] - values[0],
        allowed_nbytes=in_flight_nbytes + around,
    )


def _at(times: list[float], values: list[int], moment: float) -> float:
    """The counter at a moment, linear between samples."""
    if moment <= times[0]:
        return float(values[0])
    if moment >= times[-1]:
        return float(values[-1])
    after = bisect.bisect_right(times, moment)
    share = (moment - times[after - 1]) / (times[after] - times[after - 1])
    return values[after - 1] + share * (values[after] - values[after - 1])
