"""Traces built byte by byte from the layouts in the kernel's header, independently of the reader."""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cephfit.traces.columns import AccessBatch

Q, M, G, D, C, P, U, A = 1, 2, 4, 7, 8, 9, 10, 15
READ, WRITE, FLUSH, SYNC = 1 << 0, 1 << 1, 1 << 2, 1 << 3
QUEUE, PASSTHROUGH, NOTIFY, DISCARD = 1 << 4, 1 << 9, 1 << 10, 1 << 13
CGROUP = 0x100
SDA = 8 << 20
DM0 = 253 << 20


@dataclass
class Event:
    """One record; the defaults are a 4 KiB read that the application queued."""

    time: int
    sector: int = 0
    nbytes: int = 4096
    what: int = Q
    category: int = READ
    device: int = SDA
    cpu: int = 0
    payload: bytes = b""

    def packed(self, sequence: int, *, version: int = 7, order: str = "<") -> bytes:
        magic = 0x65617400 | version
        action = self.category << 16 | self.what
        tail = (self.device, self.cpu, 0, len(self.payload))
        if version == 7:
            head = struct.pack(
                f"{order}IIQQIIIIIHH", magic, sequence, self.time, self.sector, self.nbytes, action, 99, *tail
            )
        else:
            head = struct.pack(
                f"{order}IIQQIIQIIHH12x", magic, sequence, self.time, self.sector, self.nbytes, 99, action, *tail
            )
        return head + self.payload


def remap(origin: int, sector: int) -> bytes:
    """Payload of a remap record: always big-endian."""
    return struct.pack(">IIQ", origin, 0, sector)


def packed(events: list[Event], **layout: object) -> bytes:
    numbers: dict[int, int] = {}
    parts = []
    for event in events:
        numbers[event.cpu] = numbers.get(event.cpu, 0) + 1
        parts.append(event.packed(numbers[event.cpu], **layout))  # type: ignore[arg-type]
    return b"".join(parts)


def write(path: Path, events: list[Event], **layout: object) -> Path:
    path.write_bytes(packed(events, **layout))
    return path


def mixed_workload(n: int, seed: int = 1) -> list[Event]:
    """Reads and writes of many sizes with every event around them, on two CPUs: Q, G, D and C each."""
    rng = np.random.default_rng(seed)
    events: list[Event] = []
    time = 1000
    next_lbn = 0
    for i in range(n):
        nbytes = int(rng.choice([512, 4096, 16384, 65536, 524288]))
        sector = next_lbn if rng.random() < 0.5 else int(rng.integers(0, 1 << 30)) * 8
        next_lbn = sector + nbytes // 512
        way = {"sector": sector, "nbytes": nbytes, "category": WRITE if rng.random() < 0.4 else READ, "cpu": i % 2}
        time += int(rng.integers(10, 100_000))
        events += [Event(time, what=Q, **way), Event(time + 1, what=G, **way), Event(time + 2, what=D, **way)]
        events.append(Event(time + 3, 0, 0, what=U, category=QUEUE, cpu=i % 2, payload=struct.pack(">Q", 1)))
        events.append(Event(time + 5000 + int(rng.integers(0, 50_000)), what=C, **way))
    return sorted(events, key=lambda e: e.time)


def batch(
    accesses: list[tuple[int, str, int, int]],
    *,
    disk: list[int] | None = None,
    latency_ns: list[int] | None = None,
    outstanding: list[int] | None = None,
) -> AccessBatch:
    """Accesses as (time ns, "r" or "w", LBN, bytes)."""
    time, op, lbn, nbytes = zip(*accesses, strict=True) if accesses else ((), (), (), ())
    numbers = disk or [0] * len(accesses)
    return AccessBatch(
        np.array(time, np.int64),
        np.array([0 if o == "r" else 1 for o in op], np.uint8),
        np.array(lbn, np.int64),
        np.array(nbytes, np.int64),
        np.array(numbers, np.int32),
        tuple(f"disk{i}" for i in range(max(numbers, default=0) + 1)),
        latency_ns=None if latency_ns is None else np.array(latency_ns, np.int64),
        outstanding=None if outstanding is None else np.array(outstanding, np.int32),
    )
