"""The contract of ``TraceReader``: one suite, run against the reader of every format."""

import gzip
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from fuzz_formats import Family, families

from cephfit.core.errors import InputError
from cephfit.traces import formats, stream
from cephfit.traces.columns import OP_READ, OP_WRITE, UNKNOWN, AccessBatch
from cephfit.traces.lines import plain_lines
from cephfit.traces.readers import oracle_general, parquet, rbd_replay, vscsi_trace
from cephfit.traces.readers.blktrace import blktrace_reader
from cephfit.traces.readers.block_events.block_layer import Action
from cephfit.traces.readers.reader import TraceReader
from cephfit.traces.stream import HEAD_NBYTES

ONLY_BY_NAME = {"columns", "blkparse-f"}
"""Formats that only the user can name."""

BY_ACTION = {"blktrace", "blkparse", "block-events"}
"""Formats of which the traces here contain accesses of either action."""

READ_FROM_ITS_END = {"parquet"}
"""Formats that are not read from a stream: they cannot be compressed, and damage has no position."""

COLUMNS = {"time_ns": np.int64, "op": np.uint8, "lbn": np.int64, "nbytes": np.int64, "disk": np.int32}
SOMETIMES = {"latency_ns": np.int64, "outstanding": np.int32}

NO_TRACE = {
    "nothing": b"",
    "text": b"hello\nworld\n" * 99,
    "a line without end": b"x" * 5000,
    "numbers": b"1 2 3\n4 5 6\n" * 20,
    "a table": b"name,age\nada,36\ngrace,85\n",
    "empty lines": b"\n" * 200,
    "zeros": bytes(4800),
    "ones": b"\xff" * 4800,
    "all bytes": bytes(range(256)) * 3,
    "chance": random.Random(1).randbytes(4800),
    "a program": b"\x7fELF" + bytes(range(256)),
}

PLACE = re.compile(r", (line|record|row|byte|decompressed byte) \d+")


FORMATS = [*(name for name, family in families().items() if family.format_name != formats.HISTOGRAM), "parquet"]


@cache
def traces() -> dict[str, Family]:
    """Whole traces of every format with accesses; none of Parquet if pyarrow is missing."""
    found = {name: family for name, family in families().items() if name in FORMATS}
    seeds: list[bytes] = []
    if find_spec("pyarrow"):
        with TemporaryDirectory() as folder:
            source, made = Path(folder) / "source", Path(folder) / "made"
            for name in ("alibaba", "vscsi-binary", "block-events"):
                source.write_bytes(found[name].seeds[-1])
                parquet.write_parquet(reader_of(found[name], Action.QUEUE).batches(source), made)
                seeds.append(made.read_bytes())
    return {**found, "parquet": Family("parquet", tuple(seeds), "parquet")}


def reader_of(family: Family, action: Action) -> TraceReader:
    return next(r for r in formats.readers(action, family.options) if r.name == family.format_name)


@dataclass(frozen=True, slots=True)
class Case:
    reader: TraceReader
    contents: tuple[bytes, ...]

    def files(self, folder: Path) -> Iterator[Path]:
        for i, content in enumerate(self.contents):
            path = folder / f"trace-{i}"
            path.write_bytes(content)
            yield path


@pytest.fixture(
    params=[(name, action) for name in FORMATS for action in (Action if name in BY_ACTION else [Action.QUEUE])],
    ids=lambda param: f"{param[0]}-{param[1].value}",
)
def case(request: pytest.FixtureRequest) -> Case:
    name, action = request.param
    if not traces()[name].seeds:
        pytest.skip("pyarrow is not installed")
    return Case(reader_of(traces()[name], action), traces()[name].seeds)


def rows_of(batch: AccessBatch) -> list[tuple[Any, ...]]:
    """Return the accesses of a batch, by the names of their disks; unknown values are the same in all batches."""
    disks = [batch.disks[d] for d in batch.disk]
    unknown = np.full(len(batch), UNKNOWN)
    columns = [batch.time_ns, batch.op, batch.lbn, batch.nbytes]
    columns += [unknown if c is None else c for c in (batch.latency_ns, batch.outstanding)]
    return list(zip(disks, *(c.tolist() for c in columns), strict=True))


def contents_of(batches: Iterable[AccessBatch]) -> tuple[Any, ...]:
    """Return the complete content of the batches of a file."""
    rows: list[tuple[Any, ...]] = []
    skipped: Counter[str] = Counter()
    events: Counter[str] = Counter()
    stacked: set[tuple[str, str]] = set()
    lost = 0
    for batch in batches:
        rows += rows_of(batch)
        skipped.update(batch.skipped)
        events.update(batch.events)
        stacked.update(batch.stacked)
        lost += batch.lost
    return rows, skipped, events, stacked, lost


def refusal(reader: TraceReader, path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        list(reader.batches(path))
    assert_says_where(caught.value, path)
    return caught.value


def assert_says_where(error: InputError, path: Path) -> None:
    assert error.what
    assert error.remedy
    assert error.where.startswith(str(path))


def test_every_format_has_traces_here() -> None:
    assert {family.format_name for family in traces().values()} == {reader.name for reader in formats.readers()}


def test_a_reader_detects_its_own_traces(case: Case) -> None:
    for content in case.contents:
        assert case.reader.sniff(content[:HEAD_NBYTES]) is (case.reader.name not in ONLY_BY_NAME)


def test_a_reader_rejects_traces_of_other_formats(case: Case) -> None:
    for family in families().values():
        for content in family.seeds:
            assert family.format_name == case.reader.name or not case.reader.sniff(content[:HEAD_NBYTES])


@pytest.mark.parametrize("what", NO_TRACE)
def test_other_files_are_rejected(what: str) -> None:
    assert [reader.name for reader in formats.readers() if reader.sniff(NO_TRACE[what])] == []


def test_batches_are_columns_of_possible_accesses(case: Case, tmp_path: Path) -> None:
    n = 0
    for path in case.files(tmp_path):
        known: tuple[str, ...] = ()
        for batch in case.reader.batches(path):
            for name, dtype in (COLUMNS | SOMETIMES).items():
                column = getattr(batch, name)
                assert (column is None and name in SOMETIMES) or (
                    column.dtype == dtype and column.shape == (len(batch),)
                ), name
            assert np.isin(batch.op, (OP_READ, OP_WRITE)).all()
            assert (batch.nbytes > 0).all()
            assert (batch.lbn >= 0).all()
            assert (batch.disk >= 0).all()
            assert (batch.disk < len(batch.disks)).all()
            assert batch.disks[: len(known)] == known, "disks are added, never renumbered"
            for column in (batch.latency_ns, batch.outstanding):
                assert column is None or (column >= UNKNOWN).all()
            assert min([*batch.skipped.values(), *batch.events.values(), batch.lost], default=0) >= 0
            known = batch.disks
            n += len(batch)
    assert n > 0


def test_one_reader_reads_files_again_and_in_parallel(case: Case, tmp_path: Path) -> None:
    alone = {path: contents_of(case.reader.batches(path)) for path in case.files(tmp_path)}
    for path, expected in alone.items():
        pairs = list(zip_longest(case.reader.batches(path), case.reader.batches(path)))
        assert None not in [batch for pair in pairs for batch in pair]
        assert contents_of(first for first, _ in pairs) == contents_of(second for _, second in pairs) == expected


def test_other_data_after_the_trace_is_reported_with_its_position(case: Case, tmp_path: Path) -> None:
    text_behind = (traces()["xperf" if case.reader.name == "msr" else "msr"].seeds[0] + b"\n") * 150
    binary_behind = traces()["vscsi-binary" if case.reader.name == "blktrace" else "blktrace"].seeds[0] * 20
    for path in case.files(tmp_path):
        whole = path.read_bytes()
        for behind in (text_behind, binary_behind):
            path.write_bytes(whole + behind)
            place = refusal(case.reader, path).where.removeprefix(str(path))
            assert PLACE.match(place) or case.reader.name in READ_FROM_ITS_END


def test_a_file_that_ends_anywhere_gives_no_more_than_the_whole(case: Case, tmp_path: Path) -> None:
    refused = 0
    for path in case.files(tmp_path):
        whole = path.read_bytes()
        n_accesses = len(contents_of(case.reader.batches(path))[0])
        for end in [*range(0, len(whole), max(1, len(whole) // 7)), len(whole) - 3]:
            path.write_bytes(whole[:end])
            try:
                assert len(contents_of(case.reader.batches(path))[0]) <= n_accesses
            except InputError as error:
                assert_says_where(error, path)
                refused += 1
    assert refused > 0


def test_a_compressed_file_is_the_same_trace_until_it_is_cut_off(case: Case, tmp_path: Path) -> None:
    for path in case.files(tmp_path):
        plain, whole = contents_of(case.reader.batches(path)), path.read_bytes()
        compressed = gzip.compress(whole)
        path.write_bytes(compressed)
        if case.reader.name in READ_FROM_ITS_END:
            assert "decompress it first" in refusal(case.reader, path).remedy
            continue
        assert contents_of(case.reader.batches(path)) == plain
        path.write_bytes(compressed[:-9])
        assert "decompressed byte" in refusal(case.reader, path).where


def test_a_missing_file_is_named(case: Case, tmp_path: Path) -> None:
    refusal(case.reader, tmp_path / "absent")


@pytest.mark.parametrize("nbytes", [50, 300])
def test_the_size_of_blocks_does_not_matter(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nbytes: int
) -> None:
    whole = {path: contents_of(case.reader.batches(path)) for path in case.files(tmp_path)}
    monkeypatch.setattr(stream, "_BLOCK_NBYTES", nbytes)
    monkeypatch.setattr(plain_lines, "BLOCK_NBYTES", nbytes)
    monkeypatch.setattr(rbd_replay, "_BLOCK_NBYTES", nbytes)
    monkeypatch.setattr(blktrace_reader, "BLOCK_NBYTES", nbytes)
    monkeypatch.setattr(blktrace_reader, "MAX_PAYLOAD", 70)
    monkeypatch.setattr(oracle_general, "_BLOCK_RECORDS", nbytes // 20)
    monkeypatch.setattr(vscsi_trace, "_RECORDS_AT_ONCE", nbytes // 20)
    monkeypatch.setattr(parquet, "_ROWS", nbytes // 20)
    for path, expected in whole.items():
        assert contents_of(case.reader.batches(path)) == expected
