"""oracleGeneral, the traces of libCacheSim (github.com/1a1a11a/libCacheSim, oracleGeneralBin.h).

Records of 24 bytes, little-endian: u32 second, u64 object, u32 bytes, i64 number of the next request of the object
(-1 or 2^63-1: never). In a trace that was created from a block trace, the object is the LBN of the source. There
is no op.
"""

from collections.abc import Iterator
from pathlib import PurePath

import numpy as np

from cephfit.core.errors import InputError
from cephfit.core.units import NS_PER_S
from cephfit.core.values.cells import Op
from cephfit.traces.columns import LBN_MAX, OP_READ, OP_WRITE, AccessBatch
from cephfit.traces.readers.reader import StreamReader
from cephfit.traces.stream import TraceStream

RECORD = np.dtype([("time", "<u4"), ("id", "<u8"), ("nbytes", "<u4"), ("next", "<i8")])
_NEVER = np.array([-1, np.iinfo(np.int64).max])
_BLOCK_RECORDS = 1 << 16
_NBYTES_LIKELY = 1 << 30


class OracleGeneralReader(StreamReader):
    """Reads oracleGeneral traces. All accesses count as the op that the user specifies."""

    name = "oracle-general"
    title = "oracleGeneral of libCacheSim (has no op: needs --assume-op)"
    note = "objects are read as LBN: if the trace was not created from block accesses, distances have no meaning"

    def __init__(self, assume_op: Op | None = None) -> None:
        self.assume_op = assume_op
        self.lacks = (
            f"op: every access counts as a {assume_op.value if assume_op else 'read'}, as --assume-op specifies",
            "time: whole seconds; inter-arrival below a second and bursts are unknown",
            "latency and outstanding accesses",
        )

    def sniff(self, head: bytes) -> bool:
        """Detect the format: the next request always comes later, and the clock never goes back. No other file
        has that."""
        n = len(head) // RECORD.itemsize
        if n < 2 or (len(head) < 1 << 16 and len(head) % RECORD.itemsize):
            return False
        if b"\0" not in head:
            return (
                False  # text also passes the test below; a record contains zeros, in the upper bytes of its size
            )
        rows = np.frombuffer(head[: n * RECORD.itemsize], RECORD)
        later = (rows["next"] > np.arange(n)) | np.isin(rows["next"], _NEVER)
        sized = (rows["nbytes"] > 0) & (rows["nbytes"] < _NBYTES_LIKELY)
        return bool(later.all() and sized.all() and (np.diff(rows["time"].astype(np.int64)) >= 0).all())

    def clock_ns(self, stream: TraceStream) -> int:
        return NS_PER_S

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        if self.assume_op is None:
            raise InputError(
                "an oracleGeneral trace does not distinguish reads from writes",
                where=stream.name,
                remedy="--assume-op read (or write) counts all accesses as one op. Sizes, randomness, footprint "
                "and the rate in whole seconds are then known; the mix of ops and the latency are not",
            )
        return self._batches(stream, OP_READ if self.assume_op is Op.READ else OP_WRITE)

    def _batches(self, stream: TraceStream, op: int) -> Iterator[AccessBatch]:
        disks = (PurePath(stream.name).name,)
        while block := stream.read(_BLOCK_RECORDS * RECORD.itemsize):
            begin = stream.offset - len(block)
            n = len(block) // RECORD.itemsize
            rows = np.frombuffer(block[: n * RECORD.itemsize], RECORD)
            index = np.arange(n, dtype=np.int64) + begin // RECORD.itemsize
            known = (rows["next"] > index) | np.isin(rows["next"], _NEVER)
            if not known.all():
                first = int(np.argmin(known))
                raise InputError(
                    "this is not an oracleGeneral record: the next request of the object would precede it",
                    where=f"{stream.name}, record {begin // RECORD.itemsize + first} "
                    f"(byte {begin + first * RECORD.itemsize})",
                    remedy="the file is damaged, has another byte order, or other data follows the trace",
                )
            place = rows["id"]
            if (place >= LBN_MAX).any():
                first = int(np.argmax(place >= LBN_MAX))
                raise InputError(
                    f"object {int(place[first])} is not an LBN: not a trace of a disk, or of another byte order",
                    where=f"{stream.name}, record {begin // RECORD.itemsize + first} "
                    f"(byte {begin + first * RECORD.itemsize})",
                    remedy="profile a trace that was created from block accesses; --format names another format",
                )
            fit = rows["nbytes"] > 0
            kept = rows[fit]
            yield AccessBatch(
                kept["time"].astype(np.int64) * NS_PER_S,
                np.full(len(kept), op, np.uint8),
                kept["id"].astype(np.int64),
                kept["nbytes"].astype(np.int64),
                np.zeros(len(kept), np.int32),
                disks,
                skipped={"zero length": int((~fit).sum())} if not fit.all() else {},
            )
            if len(block) % RECORD.itemsize:
                raise InputError(
                    f"the trace is cut off within its last record ({len(block) % RECORD.itemsize} of 24 bytes)",
                    where=f"{stream.name}, byte {begin + n * RECORD.itemsize}",
                    remedy="copy the file again",
                )
