"""Traces for the benchmarks: a workload of mixed sizes, half of it sequential, 8 accesses in flight."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from cephfit.traces.blktrace_record import DTYPES
from cephfit.traces.vscsi_binary import VERSION_1

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


def write_blktrace(path: Path, n_events: int) -> int:
    """Records of version 7: Q, D and C of each access, of one CPU; returns how many there are."""
    sequence = 1
    with path.open("wb") as file:
        for a in _chunks(n_events // 3):
            n = len(a["time"])
            rows = np.zeros(3 * n, DTYPES[7])
            for k, (what, after) in enumerate(((1, 0), (7, 500), (8, a["latency"]))):
                part = rows[k * n : (k + 1) * n]
                part["time"], part["sector"], part["bytes"] = a["time"] + after, a["lbn"], a["nbytes"]
                part["action"] = (1 + a["is_write"]) << 16 | what
            rows["magic"], rows["device"], rows["pid"] = 0x65617407, 8 << 20, 99
            rows = rows[np.argsort(rows["time"], kind="stable")]
            rows["sequence"] = np.arange(sequence, sequence + len(rows))
            sequence += len(rows)
            file.write(rows.tobytes())
    return sequence - 1


def write_vscsi_binary(path: Path, n: int) -> int:
    with path.open("wb") as file:
        for a in _chunks(n):
            rows = np.zeros(len(a["time"]), VERSION_1)
            rows["ts"], rows["len"], rows["lbn"] = a["time"] // 1000, a["nbytes"], a["lbn"]
            rows["cmd"], rows["ver"] = np.where(a["is_write"], 0x2A, 0x28), 1 << 8
            file.write(rows.tobytes())
    return n


def write_lines(path: Path, n: int, line: str, *, ops: tuple[str, str]) -> int:
    """One line for each access; ``line`` is a format that names what stands in it."""
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
