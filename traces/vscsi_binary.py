"""The binary command trace of VMware's vscsiStats, versions 1 and 2.

Layout: libCacheSim (traceReader/customizedReader/vscsi.h) and PyMimircache (vscsiReader.py), which agree.
"""

from collections.abc import Iterator
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from cephfit.access import OP_READ, OP_WRITE, AccessBatch
from cephfit.errors import InputError
from cephfit.traces.columns import UNKNOWN_LATENCY, Accesses
from cephfit.traces.latency import InFlight
from cephfit.traces.reader import StreamReader
from cephfit.traces.stream import TraceStream
from cephfit.units import NS_PER_US

VERSION_1 = np.dtype(
    [("sn", "<u4"), ("len", "<u4"), ("nsg", "<u4"), ("cmd", "<u2"), ("ver", "<u2"), ("lbn", "<u8"), ("ts", "<u8")]
)
VERSION_2 = np.dtype(
    [
        *[("cmd", "<u2"), ("ver", "<u2"), ("sn", "<u4"), ("len", "<u4"), ("nsg", "<u4")],
        *[("lbn", "<u8"), ("ts", "<u8"), ("rt", "<u8")],
    ]
)

_RECORDS_AT_ONCE = 1 << 17
_LBN_MAX = 1 << 54
_TIME_US_MAX = 1 << 52

_READS = (0x08, 0x28, 0xA8, 0x88)
_WRITES = (0x0A, 0x2A, 0xAA, 0x8A, 0x2E, 0xAE, 0x8E)
_OTHERS = {
    0x35: "flush",
    0x91: "flush",
    0x42: "discard",
    0x41: "write same",
    0x93: "write same",
    0x89: "compare and write",
    0x83: "extended copy",
}
"""SCSI operation codes: READ(6), (10), (12), (16); WRITE(6), (10), (12), (16) and WRITE AND VERIFY; the rest."""

_IS_READ = np.isin(np.arange(256), _READS)
_IS_WRITE = np.isin(np.arange(256), _WRITES)


class VscsiBinaryReader(StreamReader):
    """One record of 32 (version 1) or 40 bytes (version 2) for each SCSI command, one disk in a file."""

    name = "vscsi-binary"
    title = "vscsiStats command trace, binary version 1 or 2"

    def sniff(self, head: bytes) -> bool:
        return _dtype_of(head) is not None

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        dtype = _dtype_of(stream.head())
        if dtype is None:
            raise _not_a_record(stream, 0)
        size = dtype.itemsize
        in_flight = InFlight()
        disks = (PurePath(stream.name).name,)
        while block := stream.read(_RECORDS_AT_ONCE * size):
            start = stream.offset - len(block)
            whole = len(block) // size * size
            if whole < len(block):
                raise InputError(
                    f"the trace is cut off within a record ({len(block) - whole} of its {size} bytes are there)",
                    where=f"{stream.name}, byte {start + whole}",
                    remedy="copy the file again, or cut it at this byte and profile what is there",
                )
            rows = np.frombuffer(block, dtype)
            wrong = np.flatnonzero((rows["ver"] >> 8 != _version(dtype)) | (rows["cmd"] > 0xFF))
            if len(wrong):
                raise _not_a_record(stream, start + int(wrong[0]) * size)
            yield _batch(rows, disks, in_flight)


def record_nbytes(head: bytes, *, without_latency: bool = False) -> int:
    """Bytes of a record of the file that begins with ``head``; 0 where it is no such file, or has latencies and
    must not."""
    dtype = _dtype_of(head)
    return 0 if dtype is None or (without_latency and dtype is VERSION_2) else dtype.itemsize


def _version(dtype: np.dtype[np.void]) -> int:
    return 1 if dtype is VERSION_1 else 2


def _dtype_of(head: bytes) -> np.dtype[np.void] | None:
    """Told by the version field of the first two records, as the layouts have it in different places."""
    for dtype in (VERSION_2, VERSION_1):
        n = min(len(head) // dtype.itemsize, 2)
        rows = np.frombuffer(head, dtype, count=n)
        if n and (rows["ver"] >> 8 == _version(dtype)).all() and (rows["cmd"] <= 0xFF).all():
            return dtype
    return None


def _not_a_record(stream: TraceStream, offset: int) -> InputError:
    return InputError(
        "there is no vscsiStats record where one must begin",
        where=f"{stream.name}, byte {offset}",
        remedy="the file is damaged or something else was appended; cut it at this byte and profile the rest",
    )


def _batch(rows: NDArray[np.void], disks: tuple[str, ...], in_flight: InFlight) -> AccessBatch:
    command = rows["cmd"]
    counts = np.bincount(command, minlength=256)
    is_read, is_write = _IS_READ[command], _IS_WRITE[command]
    skipped: dict[str, int] = {}
    for code in np.flatnonzero(counts * ~(_IS_READ | _IS_WRITE)):
        n = counts[code]
        reason = _OTHERS.get(int(code), f"SCSI command 0x{int(code):02x}")
        skipped[reason] = skipped.get(reason, 0) + int(n)
    fit = is_read | is_write
    for reason, unfit in (
        ("zero length", rows["len"] == 0),
        ("no valid LBN", rows["lbn"] >= _LBN_MAX),
        ("no valid time", rows["ts"] >= _TIME_US_MAX),
    ):
        n_unfit = int((fit & unfit).sum())
        if n_unfit:
            skipped[reason] = n_unfit
        fit &= ~unfit
    kept = rows if fit.all() else rows[fit]
    timed = "rt" in (rows.dtype.names or ())
    latency = np.full(len(kept), UNKNOWN_LATENCY, np.int64)
    if timed:
        latency = np.where(kept["rt"] < _TIME_US_MAX, kept["rt"].astype(np.int64) * NS_PER_US, UNKNOWN_LATENCY)
    columns = Accesses(
        kept["ts"].astype(np.int64) * NS_PER_US,
        np.where(_IS_READ[kept["cmd"]], OP_READ, OP_WRITE).astype(np.uint8),
        kept["lbn"].astype(np.int64),
        kept["len"].astype(np.int64),
        np.zeros(len(kept), np.int32),
        latency,
    )
    return AccessBatch(
        columns.time_ns,
        columns.op,
        columns.lbn,
        columns.nbytes,
        columns.disk,
        disks,
        latency_ns=latency if timed else None,
        outstanding=in_flight.count(columns) if timed else None,
        skipped=skipped,
    )
