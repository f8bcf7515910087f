"""A block device: content and caches, the kernel's counters as an independent count, steadiness of the rate.

Independent count. ``/sys/class/block/DEVICE/stat`` counts the device's completed I/O in 512-byte sectors, for all
users. fio starts its measured time at the end of its ramp and does not report that moment. But fio ends when its
last I/O completes, which the counter shows, and it reports its run time. So the counter is sampled during the run:

    end   = moment of the counter's last change
    start = end - fio's runtime
    count = counter(end) - counter(start), linear between two samples

Known differences occur at the start only (at the end nothing is in flight):

- fio counts an I/O when all of it is complete, the kernel counts each part as it completes. The measured time
  begins when an I/O completes, with the other ``iodepth`` - 1 in flight. At depth 1 there are none: otherwise a
  run of few large I/Os would be allowed an error as large as its total.
- ``start`` is only as exact as the sampling interval and fio's milliseconds. Bytes that moved within that
  uncertainty around ``start`` may belong to either side. On a device that the kernel throttles in slices of
  100 ms this can be one slice.

So the allowed difference follows from the run: some per cent of 2 s, nearly nothing of 300 s.

Steadiness. The terms are those of SNIA's test specification for solid state storage (PTS, "steady state"). The
straight line through the rates changes by at most 10 % of their mean over the window, and no rate differs from the
mean by more than 20 %. The specification uses five rounds of a minute; here the window is split into ten parts.
"""

import bisect
import fcntl
import mmap
import os
import subprocess
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import numpy as np

from cephfit.core.errors import CephfitError, ClusterError, HostError, InputError
from cephfit.core.units import LBN_NBYTES, MIB, format_nbytes
from cephfit.core.values.cells import Op
from cephfit.measure.engine import IndependentCount, MovedBytes
from cephfit.measure.steady_runs import Halves, halves_of_counter

_BLOCK_NBYTES = 4096


def fill_with_random(path: Path, nbytes: int) -> None:
    """Write random bytes, which cannot be compressed, from the beginning, and flush them to the disk.

    Args:
        path: a block device, or a file, which is created if it is missing.
        nbytes: how many.

    Raises:
        HostError: they cannot be written.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | (0 if path.is_block_device() else os.O_CREAT), 0o600)
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            for start in range(0, nbytes, MIB):
                block = memoryview(os.urandom(min(MIB, nbytes - start)))
                while block:
                    block = block[file.write(block) :]
            os.fsync(file.fileno())
    except OSError as error:
        raise HostError(
            f"cannot fill {format_nbytes(nbytes)}: {error.strerror}",
            where=str(path),
            remedy="free disk space or use smaller volumes, then run the same command again",
        ) from None


def device_nbytes(device: Path) -> int:
    """Return the size of a block device."""
    with device.open("rb") as stream:
        return stream.seek(0, os.SEEK_END)


def read_directly(device: Path, n_blocks: int) -> None:
    """Read blocks of 4K from the beginning of a device, one after the other, past the page cache."""
    descriptor = os.open(device, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, _BLOCK_NBYTES) as block:  # aligned, as direct I/O requires
            for index in range(n_blocks):
                os.preadv(descriptor, [block], index * _BLOCK_NBYTES)
    finally:
        os.close(descriptor)


def require_empty(device: Path, *, where: str) -> None:
    """Check that nothing uses a block device, and that blkid recognises no content on it.

    Args:
        device: of this machine.
        where: for messages.

    Raises:
        InputError: it is in use, cannot be read, or has content.
    """
    try:
        # An exclusive open of a device fails if it is mounted, or a part of another one.
        os.close(os.open(device, os.O_RDONLY | os.O_EXCL))
    except OSError as error:
        raise InputError(
            f"whether the device is empty cannot be seen: {device}: {error.strerror}",
            where=where,
            remedy="a sweep overwrites it: it must be unmounted, unused, and readable",
        ) from None
    probe = subprocess.run(
        ("blkid", "--probe", str(device)), capture_output=True, text=True, check=False, timeout=60
    )
    # 2 means that blkid found nothing; any other code forbids overwriting.
    if probe.returncode != 2:
        raise InputError(
            f"the device is not empty: {probe.stdout.strip() or probe.stderr.strip()}",
            where=where,
            remedy="a sweep overwrites it: if its content is not needed, run wipefs --all on it first",
        )


def remove_signatures(device: Path) -> None:
    """Remove the signatures of file systems from a block device, so that it counts as empty.

    Raises:
        HostError: the device is in use.
    """
    done = subprocess.run(
        ("wipefs", "--all", "--quiet", str(device)), capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode:
        raise HostError(
            f"the signatures of its content cannot be removed: {done.stderr.strip()}",
            where=str(device),
            remedy="unmount it, and end the programs that use it; then run `cephfit restore` with this target",
        )


_BLKFLSBUF = 0x1261
"""From linux/fs.h."""


def flush_buffers(descriptor: int) -> None:
    """Write out and drop the page cache of an open block device.

    Raises:
        OSError: it is no block device, or writing to it fails.
    """
    fcntl.ioctl(descriptor, _BLKFLSBUF, 0)


def read_through(device: Path) -> int:
    """Read a whole device once, bypassing this machine's page cache.

    Returns:
        Number of bytes read.

    Raises:
        ClusterError: it cannot be read.
    """
    nbytes = 0
    try:
        # An anonymous mapping is aligned to pages, which direct reads require.
        direct = os.open(device, os.O_RDONLY | os.O_DIRECT)
        with mmap.mmap(-1, 4 * MIB) as block, os.fdopen(direct, "rb", 0) as file:
            while n := file.readinto(block):
                nbytes += n
    except OSError as error:
        raise ClusterError(f"the device could not be read: {error.strerror}", where=str(device)) from None
    return nbytes


N_PARTS = 10
MOST_DRIFT = 0.10
MOST_EXCURSION = 0.20
LEAST_CHANGES_PER_PART = 5.0
"""With fewer steps of the counter in a part, the parts differ by the position of the steps, not by the rate."""


@dataclass(frozen=True, slots=True)
class Steadiness:
    """Change of a rate over the measured time, relative to its mean.

    Attributes:
        drift: change of the straight line through the parts' rates from the window's start to its end.
        excursion: largest difference of a part's rate from the mean.
    """

    drift: float
    excursion: float

    @property
    def is_steady(self) -> bool:
        return abs(self.drift) <= MOST_DRIFT and self.excursion <= MOST_EXCURSION

    def to_json(self) -> dict[str, Any]:
        return {"steady": self.is_steady, "drift": round(self.drift, 4), "excursion": round(self.excursion, 4)}


def steadiness_of(times: Sequence[float], values: Sequence[int], *, runtime_ns: int) -> Steadiness | None:
    """Return how steadily the counter rose over the last ``runtime_ns`` before its last change.

    Args:
        times: seconds, rising, shape (n,), n >= 2.
        values: the counter, never falling, shape (n,).
        runtime_ns: length of the window.

    Returns:
        The steadiness; None where the counter has too few steps for it, as with few large blocks.
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
"""Time between the last completion and fio's reading of its clock; below 10 ms on a busy machine."""


@dataclass(frozen=True, slots=True)
class DeviceTotals:
    """What a device has completed since its creation, as the kernel counts.

    Attributes:
        n_reads: reads, after merging.
        read_nbytes: bytes of them.
        n_writes: writes, after merging.
        written_nbytes: bytes of them.
    """

    n_reads: int
    read_nbytes: int
    n_writes: int
    written_nbytes: int


def totals_of(device: Path) -> DeviceTotals:
    """Read what a device has completed since its creation.

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
    # Documentation/block/stat.rst: read I/Os, merges, sectors and ms, then the same of writes.
    return DeviceTotals(fields[0], fields[2] * LBN_NBYTES, fields[4], fields[6] * LBN_NBYTES)


def counters_of(device: Path) -> MovedBytes:
    """Read the bytes that a device has completed since its creation.

    Raises:
        HostError: it is no block device, or the kernel does not count (``queue/iostats`` is 0).
    """
    totals = totals_of(device)
    return MovedBytes(totals.read_nbytes, totals.written_nbytes)


def why_uncounted(device: Path) -> str:
    """Return why the kernel does not count for this device; empty if it does."""
    try:
        counters_of(device)
        # A partition has no queue; the queue of its disk is one level up.
        folder = (_SYSFS / device.resolve().name).resolve()
        queue = folder / "queue" if (folder / "queue").is_dir() else folder.parent / "queue"
        if (queue / "iostats").read_text().strip() == "0":
            return f"the kernel does not count I/O of {device} (queue/iostats is 0)"
    except HostError as error:
        return error.what
    except OSError as error:
        return f"unknown whether the kernel counts I/O of {device}: {error}"
    return ""


class CounterWatch(Generic[_Key]):
    """Samples counters while a ``with`` block runs.

    Args:
        readers: key to a function that reads its counter; each may raise CephfitError.
        op: the measured direction.
        source: returns the name of a key's source, for people.
        sampling_seconds: sampling interval.
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
        # seconds, bytes in the measured direction, bytes in both
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
        """Return the bytes completed within fio's measured time. Call it after the ``with`` block.

        Args:
            key: of a counter.
            runtime_ns: fio's measured time.
            in_flight_nbytes: upper limit of the bytes in flight when the measured time began.
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
        """Return the rate's steadiness over fio's measured time; None where there are too few steps."""
        times, values, _ = self._series[key]
        return steadiness_of(times, values, runtime_ns=runtime_ns)

    def halves(self, key: _Key, *, runtime_ns: int, block_nbytes: int) -> Halves | None:
        """Return the I/Os in both halves of fio's measured time; None where the counter never changed."""
        times, values, _ = self._series[key]
        return halves_of_counter(times, values, runtime_ns=runtime_ns, block_nbytes=block_nbytes)

    def _sample_until_over(self) -> None:
        while not self._over.wait(self._sampling_seconds):
            try:
                self._sample()
            except CephfitError:
                return  # The counter no longer exists; fio reports the error.

    def _sample(self) -> None:
        for key, read in self._readers.items():
            counters = read()
            times, values, moved = self._series[key]
            times.append(time.monotonic())
            values.append(counters.of(self._op))
            moved.append(counters.read_nbytes + counters.written_nbytes)


class DeviceWatch(CounterWatch[Path]):
    """Samples the kernel's counters of devices while a ``with`` block runs."""

    def __init__(self, devices: Iterable[Path], op: Op) -> None:
        readers = {device: partial(counters_of, device) for device in devices}
        super().__init__(readers, op, source=lambda device: f"the kernel ({device})")


def in_flight_nbytes(iodepth: int, block_nbytes: int) -> int:
    """Return the bytes that may be in flight, partly counted by the kernel, at the begin of the measured time."""
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
    """Return the count over the last ``runtime_ns`` before the counter's last change. Pure.

    Args:
        times: seconds, rising, shape (n,), n >= 2.
        values: bytes, never falling, shape (n,).
        source: of the count, for people.
        runtime_ns: length of the window.
        in_flight_nbytes: upper limit of the bytes in flight when it began.
        moved: bytes in both directions, shape (n,): in a mix the last I/O may be in the other direction.
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
    """Return the counter at a moment, linear between samples."""
    if moment <= times[0]:
        return float(values[0])
    if moment >= times[-1]:
        return float(values[-1])
    after = bisect.bisect_right(times, moment)
    share = (moment - times[after - 1]) / (times[after] - times[after - 1])
    return values[after - 1] + share * (values[after] - values[after - 1])
