"""Traces as Parquet: a compact columnar file that preserves the trace. Needs pyarrow (extra ``parquet``).

Columns: time_ns int64, op ("read", "write"), lbn int64 (512 bytes), nbytes int64, disk, and where known latency_ns
int64 and outstanding int32. Counts, lacks and notes of the trace are JSON in the metadata of the file.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.core.optional_modules import optional_module
from cephfit.traces.columns import LBN_MAX, NBYTES_MAX, TIME_NS_MAX, UNKNOWN, AccessBatch, Accesses
from cephfit.traces.matching.latency import InFlight
from cephfit.traces.readers.reader import LOSSES_STATED, StreamReader
from cephfit.traces.stream import TraceStream

KEY = "cephfit.trace"
"""The key of the metadata."""

_VERSION = 1


@dataclass(frozen=True, slots=True)
class ParquetMetadata:
    """Metadata of a trace, as its reader reported it. All values are empty for a file of another program.

    Attributes:
        skipped, events, stacked, lost: as in AccessBatch, of the whole trace.
        losses_known: whether the trace would show lost events.
        lacks: what the trace does not contain.
        notes: what the reader of a profile must know.
        clock_ns: the resolution of its clock in ns.
    """

    skipped: dict[str, int] = field(default_factory=dict)
    events: dict[str, int] = field(default_factory=dict)
    stacked: tuple[tuple[str, str], ...] = ()
    lost: int = 0
    losses_known: bool = False
    lacks: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    clock_ns: int = 1

    def dumps(self) -> str:
        return json.dumps(
            {
                "version": _VERSION,
                "skipped": dict(sorted(self.skipped.items())),
                "events": dict(sorted(self.events.items())),
                "stacked": sorted(self.stacked),
                "lost": self.lost,
                "losses_known": self.losses_known,
                "lacks": list(self.lacks),
                "notes": list(self.notes),
                "clock_ns": self.clock_ns,
            }
        )


def metadata_of(metadata: dict[bytes, bytes] | None, where: str) -> ParquetMetadata:
    """Read the metadata of a file.

    Raises:
        InputError: the metadata was changed to another form.
    """
    try:
        found = json.loads((metadata or {}).get(KEY.encode(), b"{}"))
        return ParquetMetadata(
            _counts(found.get("skipped", {})),
            _counts(found.get("events", {})),
            tuple((_text(upper), _text(lower)) for upper, lower in found.get("stacked", [])),
            _count(found.get("lost", 0)),
            bool(found.get("losses_known", False)),
            tuple(_text(words) for words in found.get("lacks", [])),
            tuple(_text(words) for words in found.get("notes", [])),
            max(_count(found.get("clock_ns", 1)), 1),
        )
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise InputError(
            f"the metadata {KEY} of the Parquet file is not what cephfit writes",
            where=where,
            remedy="convert the trace again, or remove this metadata",
        ) from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return value


def _count(value: Any) -> int:
    if not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise ValueError("no count")
    return value


def _counts(value: Any) -> dict[str, int]:
    return {_text(name): _count(n) for name, n in value.items()}


_MAGIC = b"PAR1"
_ROWS = 1 << 18
_NOTHING = ParquetMetadata()
_OPS = ["read", "write"]
_NEEDED = {"time_ns": "int64", "op": "string", "lbn": "int64", "nbytes": "int64", "disk": "string"}
_WORDS = ("string", "large_string", "string_view")
"""The types of text, which differ only in their memory layout."""


def _pyarrow() -> tuple[Any, Any]:
    return optional_module("pyarrow"), optional_module("pyarrow.parquet")


def write_parquet(
    batches: Iterable[AccessBatch],
    path: Path,
    *,
    lacks: Callable[[], Sequence[str]] = tuple,
    notes: Callable[[], Sequence[str]] = tuple,
    losses_known: Callable[[], bool] = bool,
    clock_ns: Callable[[], int] = lambda: 1,
) -> int:
    """Write accesses in row groups of 262,144; return how many.

    Args:
        batches: of one trace.
        path: the file to write.
        lacks: returns what the trace does not contain; called after the last batch.
        notes: returns notes on the trace; called after the last batch.
        losses_known: returns whether the trace would show lost events; called after the last batch.
        clock_ns: returns the resolution of the clock in ns; called after the last batch.

    Raises:
        InputError: the file cannot be written.
        HostError: pyarrow is missing.
    """
    pa, pq = _pyarrow()
    words = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema(
        [
            pa.field("time_ns", pa.int64(), nullable=False),
            pa.field("op", words, nullable=False),
            pa.field("lbn", pa.int64(), nullable=False),
            pa.field("nbytes", pa.int64(), nullable=False),
            pa.field("disk", words, nullable=False),
            pa.field("latency_ns", pa.int64()),
            pa.field("outstanding", pa.int32()),
        ]
    )
    skipped: Counter[str] = Counter()
    events: Counter[str] = Counter()
    stacked: set[tuple[str, str]] = set()
    written = lost = 0
    try:
        with pq.ParquetWriter(path, schema, compression="zstd") as writer:
            for batch in batches:
                skipped.update(batch.skipped)
                events.update(batch.events)
                stacked.update(batch.stacked)
                lost += batch.lost
                written += len(batch)
                if len(batch):
                    writer.write_table(_table(pa, schema, batch), row_group_size=_ROWS)
            metadata = ParquetMetadata(
                skipped,
                events,
                tuple(stacked),
                lost,
                losses_known(),
                tuple(lacks()),
                tuple(notes()),
                clock_ns(),
            )
            writer.add_key_value_metadata({KEY: metadata.dumps()})
    except OSError as error:
        raise InputError(
            f"the file cannot be written: {error.strerror or error}", where=str(path), remedy="choose another path"
        ) from None
    return written


def _table(pa: Any, schema: Any, batch: AccessBatch) -> Any:
    def known(values: Any, kind: Any) -> Any:
        if values is None:
            return pa.nulls(len(batch), kind)
        return pa.array(values, kind, mask=values == UNKNOWN)

    present, place = np.unique(batch.disk, return_inverse=True)
    # Two disks may have the same name as text; a dictionary holds each name once.
    number_of: dict[str, int] = {}
    numbers = np.array([number_of.setdefault(batch.disks[d], len(number_of)) for d in present], np.int32)
    columns = [
        pa.array(batch.time_ns, pa.int64()),
        pa.DictionaryArray.from_arrays(batch.op.astype(np.int32), _OPS),
        pa.array(batch.lbn, pa.int64()),
        pa.array(batch.nbytes, pa.int64()),
        pa.DictionaryArray.from_arrays(numbers[place.reshape(-1)], list(number_of)),
        known(batch.latency_ns, pa.int64()),
        known(batch.outstanding, pa.int32()),
    ]
    return pa.Table.from_arrays(columns, schema=schema)


class ParquetReader(StreamReader):
    """Reads files of ``write_parquet``, and any Parquet file with the same first five columns."""

    name = "parquet"
    title = "Parquet, as `cephfit trace convert` writes it"
    names_disks = True

    def __init__(self) -> None:
        self.lacks: tuple[str, ...] = ()
        self.notes: tuple[str, ...] = ()

    def sniff(self, head: bytes) -> bool:
        return head.startswith(_MAGIC)

    def clock_ns(self, stream: TraceStream) -> int:
        pa, pq = _pyarrow()
        if not stream.is_plain_file():
            return 1
        try:
            with pq.ParquetFile(stream.path) as file:
                return metadata_of(file.metadata.metadata, stream.name).clock_ns
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            return 1  # reading reports the error

    def read(self, stream: TraceStream) -> Iterator[AccessBatch]:
        pa, pq = _pyarrow()
        if not stream.path.is_file():
            raise InputError(
                "Parquet is read from its end: it cannot be a stream",
                where=stream.name,
                remedy="name a local file",
            )
        if not stream.is_plain_file():
            raise InputError(
                "a compressed Parquet file cannot be read: Parquet is read from its end",
                where=stream.name,
                remedy="decompress it first; Parquet is compressed internally",
            )
        try:
            with pq.ParquetFile(stream.path) as file:
                columns = _columns(pa, file.schema_arrow, stream.name)
            with pq.ParquetFile(stream.path, read_dictionary=["op", "disk"]) as file:
                metadata = metadata_of(file.metadata.metadata, stream.name)
                self.lacks, self.notes = metadata.lacks, metadata.notes
                if metadata.losses_known:
                    metadata = replace(metadata, events=metadata.events | {LOSSES_STATED: 1})
                yield from _batches(pa, file, columns, stream.name, metadata)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"the Parquet file is damaged: {str(error).splitlines()[0]}",
                where=stream.name,
                remedy="convert the trace again",
            ) from None


def _columns(pa: Any, schema: Any, where: str) -> list[str]:
    """Return the columns to read.

    Raises:
        InputError: a required column is missing.
    """
    kinds = {field.name: field.type for field in schema}
    for name, kind in _NEEDED.items():
        found = kinds.get(name)
        if found is not None and pa.types.is_dictionary(found):
            found = found.value_type
        if str(found) not in (_WORDS if kind == "string" else (kind,)):
            shown = "missing" if found is None else f"of type {found}"
            raise InputError(
                f"column {name!r} is {shown}; {kind} is required",
                where=where,
                remedy="write it with `cephfit trace convert`",
            )
    return [c for c in (*_NEEDED, "latency_ns", "outstanding") if c in kinds]


def _batches(
    pa: Any, file: Any, columns: list[str], where: str, metadata: ParquetMetadata
) -> Iterator[AccessBatch]:
    numbers: dict[str, int] = {}
    in_flight = InFlight() if _is_empty(file, "outstanding", columns) else None
    unsent, n_read = metadata, 0
    for group in range(file.num_row_groups):  # one call for all groups needs memory in proportion to the file
        for rows in file.iter_batches(batch_size=_ROWS, row_groups=[group], columns=columns, use_threads=False):
            batch = _accesses(pa, rows, numbers, where, n_read)
            if in_flight is not None and batch.latency_ns is not None:
                batch = replace(batch, outstanding=in_flight.count(_columns_of(batch, batch.latency_ns)))
            yield replace(
                batch, skipped=unsent.skipped, events=unsent.events, stacked=unsent.stacked, lost=unsent.lost
            )
            unsent, n_read = _NOTHING, n_read + len(rows)


def _is_empty(file: Any, name: str, columns: list[str]) -> bool:
    """Return whether a file has no such column, or no value in it."""
    if name not in columns:
        return True
    stretches = file.iter_batches(batch_size=_ROWS, columns=[name], use_threads=False)
    return all(rows.column(name).null_count == len(rows) for rows in stretches)


def _columns_of(batch: AccessBatch, latency_ns: NDArray[np.int64]) -> Accesses:
    return Accesses(batch.time_ns, batch.op, batch.lbn, batch.nbytes, batch.disk, latency_ns)


def _accesses(pa: Any, rows: Any, numbers: dict[str, int], where: str, n_before: int) -> AccessBatch:
    def wrong(row: int, what: str) -> InputError:
        return InputError(
            what,
            where=f"{where}, row {n_before + row + 1}",
            remedy="correct or drop the row where the file was created, or convert the trace again",
        )

    def column(name: str) -> Any:
        values = rows.column(name)
        if values.null_count:
            row = int(values.is_null().to_numpy(zero_copy_only=False).argmax())
            raise wrong(row, f"column {name!r} has an empty value")
        return values

    def words(name: str) -> tuple[list[str], Any]:
        values = column(name)
        values = values if isinstance(values, pa.DictionaryArray) else values.dictionary_encode()
        values.validate(full=True)  # in a damaged file an index may exceed the dictionary
        return values.dictionary.to_pylist(), values.indices.to_numpy(zero_copy_only=False)

    def optional(name: str, kind: Any) -> Any:
        if name not in rows.schema.names or rows.column(name).null_count == len(rows):
            return None
        return rows.column(name).fill_null(UNKNOWN).to_numpy(zero_copy_only=False).astype(kind)

    ops, op_places = words("op")
    op_of = np.array([_OPS.index(op) if op in _OPS else UNKNOWN for op in ops] or [0])[op_places]
    if (op_of < 0).any():
        row = int((op_of < 0).argmax())
        raise wrong(row, f"op {ops[op_places[row]]!r} is neither read nor write")
    names, disk_places = words("disk")
    for name in names:
        numbers.setdefault(name, len(numbers))
    time_ns, lbn, nbytes = (column(c).to_numpy().astype(np.int64) for c in ("time_ns", "lbn", "nbytes"))
    impossible = (lbn < 0) | (nbytes <= 0) | (lbn >= LBN_MAX) | (nbytes >= NBYTES_MAX)
    if impossible.any():
        row = int(impossible.argmax())
        raise wrong(row, f"an access cannot have {nbytes[row]} bytes at LBN {lbn[row]}")
    impossible = (time_ns <= -TIME_NS_MAX) | (time_ns >= TIME_NS_MAX)
    if impossible.any():
        row = int(impossible.argmax())
        raise wrong(row, f"{time_ns[row]} ns is not the time of an access")
    latency_ns = optional("latency_ns", np.int64)
    return AccessBatch(
        time_ns,
        op_of.astype(np.uint8),
        lbn,
        nbytes,
        np.array([numbers[name] for name in names] or [0], np.int32)[disk_places],
        tuple(numbers),
        latency_ns=None if latency_ns is None else np.clip(latency_ns, UNKNOWN, TIME_NS_MAX),
        outstanding=optional("outstanding", np.int32),
    )
