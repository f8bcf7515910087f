"""The binary command trace of VMware's vscsiStats, versions 1 and 2.

Layout: libCacheSim (traceReader/customizedReader/vscsi.h) and PyMimircache (vscsiReader.py), which agree.
"""

from collections.abc import Iterator
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from cephfit.access import OP_READ, OP_WRITE, AccessBatch
from cephfit.errors import InputError
from cephfit.traces.columns import Accesses
from cephfit.traces.files.part_stream import PartStream
from cephfit.traces.files.stream import TraceStream
from cephfit.traces.limits import LBN_MAX, TIME_US_MAX
from cephfit.traces.matching.latency import InFlight
from cephfit.traces.readers import vscsi_loop
from cephfit.traces.readers.no_record import no_record
from cephfit.traces.readers.part_reader import PartReader
from cephfit.traces.readers.vscsi_loop import Record

VERSION_1 = np.dtype(
    [("sn", "<u4"), ("len", "<u4"), ("nsg", "<u4"), ("cmd", "<u2"), ("ver", "<u2"), ("lbn", "<u8"), ("ts", "<u8")]
)
VERSION_2 = np.dtype(
    [
        *[("cmd", "<u2"), ("ver", "<u2"), ("sn", "<u4"), ("len", "<u4"), ("nsg", "<u4")],
        *[("lbn", "<u8"), ("ts", "<u8"), ("rt", "<u8")],
    ]
)

_UNIT_OF_RESPONSE = "response times are taken as microseconds: no source states their unit"
_RECORDS_AT_ONCE = 1 << 16

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

_OP_OF = np.full(256, -1, np.int8)
_OP_OF[list(_READS)], _OP_OF[list(_WRITES)] = OP_READ, OP_WRITE


class VscsiBinaryReader(PartReader):
    """One record of 32 (version 1) or 40 bytes (version 2) for each SCSI command, one disk in a file."""

    name = "vscsi-binary"
    title = "vscsiStats command trace, binary version 1 or 2"

    def __init__(self) -> None:
        self.notes: tuple[str, ...] = ()

    def sniff(self, head: bytes) -> bool:
        return _dtype_of(head) is not None

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        return self.read_part(stream, InFlight())

    def read_part(self, stream: TraceStream, in_flight: InFlight) -> Iterator[AccessBatch]:
        dtype = _dtype_of(_head_of_file(stream))
        if dtype is None:
            raise no_record("vscsiStats", stream, 0)
        record, size = _record(dtype), dtype.itemsize
        self.notes = (_UNIT_OF_RESPONSE,) if record.response >= 0 else ()
        disks = (PurePath(stream.name).name,)
        block = np.empty(_RECORDS_AT_ONCE * size, np.uint8)
        while nbytes := stream.readinto(memoryview(block.data)):
            start = stream.offset - nbytes
            whole = nbytes // size * size
            if whole < nbytes:
                raise InputError(
                    f"the trace is cut off within a record ({nbytes - whole} of its {size} bytes are there)",
                    where=f"{stream.name}, byte {start + whole}",
                    remedy="copy the file again, or cut it at this byte and profile what is there",
                )
            end, batch = _batch(block[:nbytes], record, disks, in_flight)
            if end < nbytes:
                raise no_record("vscsiStats", stream, start + end)
            yield batch


def _head_of_file(stream: TraceStream) -> bytes:
    if not isinstance(stream, PartStream):
        return stream.head()
    with TraceStream(stream.path) as whole:
        return whole.head()


def _record(dtype: np.dtype[np.void]) -> Record:
    at = {name: offset for name, (_, offset, *_) in (dtype.fields or {}).items()}
    return Record(
        version=_version(dtype),
        nbytes=dtype.itemsize,
        command=at["cmd"],
        ver=at["ver"],
        length=at["len"],
        lbn=at["lbn"],
        time=at["ts"],
        response=at.get("rt", -1),
        lbn_max=LBN_MAX,
        time_us_max=TIME_US_MAX,
    )


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


def _batch(
    block: NDArray[np.uint8], record: Record, disks: tuple[str, ...], in_flight: InFlight
) -> tuple[int, AccessBatch]:
    """The first byte of a block of records that is none of this version (or its end), and what stands before."""
    most = len(block) // record.nbytes
    rows = Accesses(
        np.empty(most, np.int64),
        np.empty(most, np.uint8),
        np.empty(most, np.int64),
        np.empty(most, np.int64),
        np.zeros(most, np.int32),
        np.empty(most, np.int64),
    )
    commands, unfit = np.zeros(256, np.int64), np.zeros(len(vscsi_loop.UNFIT), np.int64)
    n, end = vscsi_loop.scanner(record)(
        block, _OP_OF, rows.time_ns, rows.op, rows.lbn, rows.nbytes, rows.latency_ns, commands, unfit
    )
    rows = rows.cut(0, n)
    skipped: dict[str, int] = {}
    for code in np.flatnonzero(commands):
        reason = _OTHERS.get(int(code), f"SCSI command 0x{int(code):02x}")
        skipped[reason] = skipped.get(reason, 0) + int(commands[code])
    skipped |= {reason: int(k) for reason, k in zip(vscsi_loop.UNFIT, unfit, strict=True) if k}
    outstanding = in_flight.count(rows) if record.response >= 0 else None
    return end, rows.batch(disks, outstanding=outstanding, skipped=skipped)
