"""Traces for the benchmarks: a workload of mixed sizes, half of it sequential, 8 accesses in flight."""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.readers.blktrace.blktrace_reader import DTYPES
from cephfit.traces.readers.vscsi_trace import VERSION_1, VERSION_2

CHUNK = 1_000_000
"""Accesses made at a time."""

SIZES = [512, 4096, 4096, 16384, 65536, 524288]


class Workload:
    """Columns of accesses that go on where the last ones ended; times in ns."""

    def __init__(self, seed: int = 1) -> None:
        self._rng = np.random.default_rng(seed)
        self._clock = 0

    def next(self, n: int) -> dict[str, NDArray[np.int64]]:
        rng = self._rng
        time = self._clock + np.cumsum(rng.integers(1000, 20_000, n))
        self._clock = int(time[-1]) + 200_000
        nbytes = rng.choice(SIZES, n)
        lbn = rng.integers(0, 1 << 30, n) * 8
        follows = np.flatnonzero(rng.random(n) < 0.5)[1:]
        lbn[follows] = lbn[follows - 1] + nbytes[follows - 1] // 512
        return {
            "time": time,
            "nbytes": nbytes,
            "lbn": lbn,
            "is_write": (rng.random(n) < 0.4).astype(np.int64),
            "latency": rng.integers(5000, 150_000, n),
        }


def _chunks(n: int) -> Iterator[dict[str, NDArray[np.int64]]]:
    workload = Workload()
    for done in range(0, n, CHUNK):
        yield workload.next(min(CHUNK, n - done))


@dataclass(frozen=True, slots=True)
class Event:
    """A record that blktrace writes for every access.

    Attributes:
        what: the action.
        after_ns: the access's time of queueing; None: when it completes.
        payload: bytes behind the record.
        category: None: read or write, with place and length; else a record without them.
    """

    what: int
    after_ns: int | None
    payload: bytes = b""
    category: int | None = None


_QUEUE = 1 << 4
_REMAP_PAYLOAD = struct.pack(">IIQ", 8 << 20 | 1, 8 << 20, 0)

QUEUED, ISSUED, COMPLETED = Event(1, 0), Event(7, 500), Event(8, None)
FEWEST = (QUEUED, ISSUED, COMPLETED)
"""Q D C: what `blktrace -a queue -a issue -a complete` records."""
ALL = (
    Event(15, -100, _REMAP_PAYLOAD),
    QUEUED,
    Event(4, 200),
    Event(9, 250, category=_QUEUE),
    Event(10, 400, (1).to_bytes(8, "big"), category=_QUEUE),
    ISSUED,
    COMPLETED,
)
"""A Q G P U D C: what blktrace records by itself of accesses to a partition, as in the recording of a real disk
that the tests of conformance read."""


def write_blktrace(path: Path, n_events: int, events: tuple[Event, ...] = FEWEST) -> int:
    """Records of version 7, ``events`` for each access, of one CPU; returns how many there are."""
    sequence = 1
    with path.open("wb") as file:
        for a in _chunks(n_events // len(events)):
            parts = [_records(event, a) for event in events]
            time = np.concatenate([part["time"] for part in parts])
            order = np.argsort(time, kind="stable")
            number = np.empty(len(time), np.int64)
            number[order] = np.arange(len(time))
            nbytes = np.repeat([part.dtype.itemsize for part in parts], len(a["time"]))
            begin = np.zeros(len(time), np.int64)
            begin[order[1:]] = np.cumsum(nbytes[order])[:-1]
            content, first = np.empty(nbytes.sum(), np.uint8), 0
            for part in parts:
                own = slice(first, first + len(part))
                part["sequence"] = sequence + number[own]
                columns = part.view(np.uint8).reshape(len(part), -1)
                content[begin[own][:, None] + np.arange(columns.shape[1])] = columns
                first += len(part)
            sequence += len(time)
            file.write(content.tobytes())
    return sequence - 1


def _records(event: Event, a: dict[str, NDArray[np.int64]]) -> "NDArray[np.void]":
    """One record of each access, its payload behind it."""
    fields = [(name, DTYPES[7][name]) for name in DTYPES[7].names or ()]
    rows = np.zeros(len(a["time"]), [*fields, ("payload", f"V{len(event.payload)}")] if event.payload else fields)
    rows["magic"], rows["device"], rows["pid"] = 0x65617407, 8 << 20, 99
    rows["time"] = a["time"] + (a["latency"] if event.after_ns is None else event.after_ns)
    if event.payload:
        rows["pdu_len"], rows["payload"] = len(event.payload), event.payload
    if event.category is None:
        rows["sector"], rows["bytes"] = a["lbn"], a["nbytes"]
        rows["action"] = (1 + a["is_write"]) << 16 | event.what
    else:
        rows["action"] = event.category << 16 | event.what
    return rows


def write_vscsi_binary(path: Path, n: int, version: int = 1) -> int:
    """Records of vscsiStats' command trace; those of version 2 have latencies."""
    with path.open("wb") as file:
        for a in _chunks(n):
            rows = np.zeros(len(a["time"]), VERSION_1 if version == 1 else VERSION_2)
            rows["ts"], rows["len"], rows["lbn"] = a["time"] // 1000, a["nbytes"], a["lbn"]
            rows["cmd"], rows["ver"] = np.where(a["is_write"], 0x2A, 0x28), version << 8
            if version == 2:
                rows["rt"] = a["latency"] // 1000
            file.write(rows.tobytes())
    return n


def write_alibaba(path: Path, n: int, n_disks: int = 4) -> int:
    """Lines of Alibaba's CSV; by pyarrow, which writes as many as make gigabytes in minutes."""
    import pyarrow as pa
    from pyarrow import csv

    options = csv.WriteOptions(include_header=False, quoting_style="none")
    with path.open("wb") as file:
        for a in _chunks(n):
            columns = {
                "disk": np.arange(len(a["time"])) % n_disks,
                "op": np.array(["R", "W"])[a["is_write"]],
                "offset": 512 * a["lbn"],
                "nbytes": a["nbytes"],
                "time_us": a["time"] // 1000,
            }
            csv.write_csv(pa.table(columns), file, options)
    return n


def write_lines(path: Path, n: int, line: str, *, ops: tuple[str, str]) -> int:
    """One line for each access; ``line`` is a format that names its fields."""
    with path.open("w", encoding="ascii") as file:
        for a in _chunks(n):
            columns = zip(*(a[c].tolist() for c in ("time", "nbytes", "lbn", "is_write", "latency")), strict=True)
            file.writelines(
                line.format(
                    time=time,
                    time_us=time // 1000,
                    seconds=f"{time // 10**9}.{time % 10**9:09d}",
                    filetime=128_166_372_000_000_000 + time // 100,
                    op=ops[is_write],
                    offset=512 * lbn,
                    lbn=lbn,
                    nbytes=nbytes,
                    n_sectors=nbytes // 512,
                    latency=latency // 100,
                    i=i,
                    disk=i % 4,
                )
                for i, (time, nbytes, lbn, is_write, latency) in enumerate(columns)
            )
    return n
