"""The compiled loop reads from text exactly what the line-by-line reader reads."""

import os
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cephfit.core.errors import InputError
from cephfit.traces.columns import OP_BITS, SYNC
from cephfit.traces.description.recording import Counting
from cephfit.traces.lines import plain_lines
from cephfit.traces.matching import latency
from cephfit.traces.matching.completion_loop import COMPLETED, ISSUED
from cephfit.traces.readers import fio_iolog
from cephfit.traces.readers.block_events import blkparse_text, block_events_text
from cephfit.traces.readers.block_events.blkparse_text import BlkparseTextReader
from cephfit.traces.readers.block_events.block_events_text import BlockEventsTextReader
from cephfit.traces.readers.block_events.block_layer import Action, BlockEvents
from cephfit.traces.readers.delimited import delimited_reader
from cephfit.traces.readers.delimited.delimited_formats import FORMATS
from cephfit.traces.readers.delimited.delimited_reader import DelimitedFormat, DelimitedReader
from cephfit.traces.readers.delimited.named_columns import layout_of
from cephfit.traces.readers.fio_iolog import FioIologReader
from cephfit.traces.readers.reader import StreamReader
from cephfit.traces.stream import TraceStream

NAMED = {
    "tab": "time,disk,offset:lbn,length:sectors,op:0/1,sep=tab",
    "space": "-,op,length:kib,offset:pages,time:ms,disk,sep=space",
    "semicolon": "time:ns,op,offset,length,latency,sep=semicolon",
    "constants": "offset:lbn,op=write,length=4096",
    "further": "disk,offset:lbn,disk,op=read,length=512",
}
PLAIN = [
    *(f for f in FORMATS if f.plain is not None),
    *(replace(layout_of(columns).layout, name=name) for name, columns in NAMED.items()),
]

NO_NUMBERS = np.empty(0, np.int64)
UNCOUNTED_EVENTS = BlockEvents(
    NO_NUMBERS.astype(bool), NO_NUMBERS, NO_NUMBERS.astype(np.uint8), NO_NUMBERS, NO_NUMBERS, NO_NUMBERS
)

EXAMPLES = {
    "msr": b"128166372003061629,usr,0,Read,7014609920,24576,41286",
    "spc": b"0,303567,3584,w,0.026214",
    "alibaba": b"3,W,126703644672,4096,1577808000000062",
    "tencent": b"1538323200,12910952,128,0,1063",
    "systor17": b"1456095600.000097,0.000241,R,0,36208607744,8192",
    "fiu": b"4892441340987 4253 nfsd 508084552 8 W 6 0 3b1f3a6e8a1e4d1b",
    "mqsim": b"4802 0 1310720 8 1",
    "disksim": b"1.125000 0 1310720 8 1",
    "tab": b"0.25\tvda\t8\t16\t0",
    "space": b"  x READ 8   1 0.5 /dev/sdb",
    "semicolon": b"17;w; 12288;65536;5.5",
    "constants": b"1231232",
    "further": b"usr,7,1,more,",
    "blkreplay": b"0.000006521 ; 25704 ; 8 ; R ; 0.0 ; 0.000241",
}


def read(text: bytes, layout: DelimitedFormat, path: Path) -> Any:
    """All rows and counts, or the error's text."""
    path.write_bytes(text)
    try:
        batches = list(DelimitedReader(layout).batches(path))
    except InputError as error:
        return str(error)
    columns = [
        [getattr(b, name) for b in batches]
        for name in ("time_ns", "op", "lbn", "nbytes", "disk", "latency_ns", "outstanding")
    ]
    rows = [
        None if any(c is None for c in parts) else np.concatenate(parts).tolist() for parts in columns if parts
    ]
    return rows, [b.skipped for b in batches], [b.disks for b in batches][-1:]


@st.composite
def lines(draw: st.DrawFn, example: bytes) -> bytes:
    """The example with a few of its bytes changed: digits mostly, sometimes anything."""
    line = bytearray(example)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(line) - 1))
        if chr(line[at]).isdigit() and draw(st.integers(0, 3)):
            line[at] = draw(st.sampled_from(b"0123456789"))
        else:
            line[at : at + draw(st.integers(0, 2))] = draw(
                st.sampled_from([b"", b" ", b",", b".", b"9" * 12, b"\r", b"x"])
            )
    return bytes(line)


@pytest.mark.parametrize("layout", PLAIN, ids=lambda f: f.name)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_both_ways_read_the_same(layout: DelimitedFormat, data: st.DataObject, tmp_path: Path) -> None:
    example = EXAMPLES[layout.name]
    found = data.draw(st.lists(st.one_of(st.just(example), lines(example)), min_size=1, max_size=12))
    end = data.draw(st.sampled_from([b"\n", b"\r\n"]))
    text = end.join(found) + data.draw(st.sampled_from([end, b""]))
    plainly = read(text, layout, tmp_path / "trace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DelimitedFormat, "fields", lambda *_: None)
        assert plainly == read(text, layout, tmp_path / "trace")


@pytest.mark.parametrize("layout", PLAIN, ids=lambda f: f.name)
def test_the_common_line_is_plain(
    layout: DelimitedFormat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the loop would be useless: only lines that name a new disk are read by Python."""
    looked_at = []
    slow = delimited_reader._Lines.any_line

    def counted(lines: delimited_reader._Lines, block: Any) -> Any:
        looked_at.extend(block.lines)
        return slow(lines, block)

    monkeypatch.setattr(delimited_reader._Lines, "any_line", counted)
    read((EXAMPLES[layout.name] + b"\n") * 1000, layout, tmp_path / "trace")
    assert len(looked_at) == (2 if layout.disk else 0)


def test_thousands_of_disks_keep_their_numbers(tmp_path: Path) -> None:
    layout = next(f for f in FORMATS if f.name == "alibaba")
    text = b"".join(b"%d,W,%d,4096,%d\n" % (i * i % 3001, 4096 * i, 1577808000000062 + i) for i in range(20_000))
    plainly = read(text, layout, tmp_path / "trace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DelimitedFormat, "fields", lambda *_: None)
        assert plainly == read(text, layout, tmp_path / "trace")


@pytest.mark.parametrize("n_cores", [1, 2])
@pytest.mark.parametrize("layout", PLAIN, ids=lambda f: f.name)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_blocks_do_not_matter(layout: DelimitedFormat, n_cores: int, data: st.DataObject, tmp_path: Path) -> None:
    """Read in one block, or in many by threads that read ahead: the same rows, or the same error."""
    example = EXAMPLES[layout.name]
    found = data.draw(st.lists(st.one_of(st.just(example), lines(example)), min_size=20, max_size=60))
    text = b"\n".join([example] * 20 + found)
    whole = read(text, layout, tmp_path / "trace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_lines, "BLOCK_NBYTES", 300)
        patch.setattr(os, "sched_getaffinity", lambda _: range(n_cores))
        in_blocks = read(text, layout, tmp_path / "trace")
    if isinstance(whole, str) or isinstance(in_blocks, str):
        assert whole == in_blocks
        return
    assert whole[0] == in_blocks[0]
    assert sum(map(Counter, whole[1]), Counter()) == sum(map(Counter, in_blocks[1]), Counter())


BLKPARSE = [
    b"  8,0    3        1     0.000000000   697  Q  WS 223490 + 8 [kjournald]",
    b"  8,0    3        2     0.000001829   697  G   R 223490 + 8 [a b]",
    b"253,1    0       12     1.000004000     0  C   W 223490 + 8 [0]",
    b"  8,0    3        3     0.000003000   697  A   W 223490 + 8 <- (253,1) 1024",
    b"  8,0    3        4     0.000003100   697  Q  FN [kworker/1:1]",
    b"  8,0    3        5     0.000003200   697  Q  DS 2048 + 64 [fstrim]",
    b"  8,0    3        6     0.000003300   697  Q   R 36 (12 00 00 00 24 00 ..) [udevd]",
    b"  8,0    3        7     0.000003400   697  C   R (12 00 00) [0]",
    b"  8,0    3        8     0.000003500   697  U   N [x] 1",
    b"  8,0    3        9     0.000003600     0  m   N cfq697 insert",
    b"  8,0    3       10     0.000003700   697 UT   N [x] 1",
    b"  8,0    3       11     0.000003800   697  C  WS 223490 [0]",
    b"  8,0    3       12     0.000003900   697  Q   W 223490 + 0 [x]",
]


def read_events(reader: StreamReader, path: Path) -> Any:
    """All rows and counts of a block layer's text, or the error's text."""
    try:
        found = list(reader.batches(path))
    except InputError as error:
        return str(error)
    rows = [
        np.concatenate([np.empty(0), *(getattr(b, name) for b in found)]).tolist()
        for name in ("time_ns", "op", "lbn", "nbytes", "disk")
    ]
    return rows, [(b.skipped, b.events, b.stacked, b.disks) for b in found]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_blkparse_both_ways(data: st.DataObject, tmp_path: Path) -> None:
    usual = st.sampled_from(BLKPARSE)
    found = data.draw(st.lists(st.one_of(usual, usual.flatmap(lines)), min_size=1, max_size=12))
    path = tmp_path / "trace"
    path.write_bytes(b"\n".join(found) + data.draw(st.sampled_from([b"\n", b""])))
    plainly = read_events(BlkparseTextReader(), path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blkparse_text, "_plain_events", lambda text, at, stop, action: (0, at, UNCOUNTED_EVENTS))
        assert plainly == read_events(BlkparseTextReader(), path)


def test_common_lines_of_blkparse_are_plain(tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes(b"".join(line + b"\n" for line in BLKPARSE))
    with TraceStream(tmp_path / "trace") as stream:
        (lines,) = plain_lines.TextBuffers(stream).blocks()
    n_lines, end, _ = blkparse_text._plain_events(lines.text, lines.begin, lines.end, ord("Q"))
    assert (n_lines, end) == (len(BLKPARSE), lines.end)


BLOCK_EVENTS = [
    b"fio  6012 [001]   812.000100:          block:block_bio_queue: 8,0 WS 16573296 + 8 [fio]",
    b"            fio-6012  [001] d..1.   812.000101: block_rq_issue: 8,0 WS 4096 () 16573296 + 8 [fio]",
    b"            fio-6012  [001]   812.000100: block_rq_insert: 8,0 R 65536 () 2048 + 128 be,0,4 [kworker/1:1H]",
    b"swapper     0 [000]   812.000400123:  1000 block:block_rq_complete: 8,0 WS () 16573296 + 8 [0]",
    b"fio-6012 [11] ..... 1.5: block_bio_complete: 259,0 RA 7 + 16 [0]",
    b"fio-6012 [11] ..... 1.5: block_bio_queue: 259,0 RA 7 + 16 [a b]",
    b"fio-6012 [11] ..... 1.5: block_rq_issue: 8,0 FF 0 () 0 + 0 [x]",
    b"fio-6012 [11] ..... 1.5: block_bio_queue: 8,0 DS 64 + 64 [x]",
    b"fio-6012 [11] ..... 1.5: block_rq_issue: 8,0 R 36 (12 00 00) 0 + 0 [x]",
    b"fio-6012 [11] ..... 1.5: block_bio_remap: 8,0 W 16 + 8 <- (253,0) 8",
    b"fio-6012 [11] ..... 1.5: block_plug: [x]",
    b"fio-6012 [11] ..... 1.5: sched_switch: prev_comm=x",
    b"# comment",
]
STRANGE_EVENTS = [
    b"fio-6012 [11] .\r.... 1.5: block_bio_queue: 259,0 RA 7 + 16 [a b]",
    b"fio-6012 [11] ..... 1.5: block_bio_queue: 259,0 RA 7 + 16 [a\x0bb]",
]


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_block_events_both_ways(data: st.DataObject, tmp_path: Path) -> None:
    usual = st.sampled_from(BLOCK_EVENTS + STRANGE_EVENTS)
    found = data.draw(st.lists(st.one_of(usual, usual.flatmap(lines)), min_size=1, max_size=12))
    action = data.draw(st.sampled_from(Action))
    path = tmp_path / "trace"
    path.write_bytes(b"\n".join(found) + data.draw(st.sampled_from([b"\n", b""])))
    plainly = read_events(BlockEventsTextReader(action), path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block_events_text._Lines, "plain", lambda _, text, at, stop: (0, at, UNCOUNTED_EVENTS))
        assert plainly == read_events(BlockEventsTextReader(action), path)


def test_common_block_events_are_plain(tmp_path: Path) -> None:
    (tmp_path / "trace").write_bytes(b"".join(line + b"\n" for line in BLOCK_EVENTS))
    with TraceStream(tmp_path / "trace") as stream:
        (block,) = plain_lines.TextBuffers(stream).blocks()
        found = block_events_text._Lines(stream, Action.QUEUE).plain(block.text, block.begin, block.end)
    n_lines, _, events = found
    assert n_lines == 7
    assert events.time_ns.tolist() == [812_000_100_000, 812_000_400_123, 1_500_000_000, 1_500_000_000]
    assert events.kind.tolist() == [ISSUED, COMPLETED, COMPLETED, ISSUED]
    assert events.nbytes.tolist() == [4096, 4096, 8192, 8192]
    assert events.op.tolist() == [1 | SYNC << OP_BITS, 1 | SYNC << OP_BITS, 0, 0]
    assert events.events == {"Q": 2, "D": 2, "C": 2, "block_rq_insert": 1}


def counted(reader: StreamReader, path: Path) -> Any:
    """What a profile is made of, or the error's text."""
    counting = Counting(None)
    try:
        for batch in reader.batches(path):
            counting.add(batch)
    except InputError as error:
        return str(error)
    found = counting.partial()
    disks = {name: [a.tolist() for a in tally.counts] for name, tally in found.disks.items()}
    return disks, found.skipped, found.events, found.stacked


@pytest.mark.parametrize(
    "reader", [BlkparseTextReader(), BlockEventsTextReader(Action.ISSUE)], ids=lambda r: r.name
)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_blocks_of_events_do_not_matter(reader: StreamReader, data: st.DataObject, tmp_path: Path) -> None:
    usual = st.sampled_from(BLKPARSE if reader.name == "blkparse" else BLOCK_EVENTS)
    found = data.draw(st.lists(st.one_of(usual, usual, usual.flatmap(lines)), min_size=10, max_size=80))
    path = tmp_path / "trace"
    path.write_bytes(b"\n".join(found) + b"\n")
    whole = counted(reader, path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plain_lines, "BLOCK_NBYTES", 300)
        patch.setattr(latency, "_FEWEST_READY", data.draw(st.integers(1, 9)))
        patch.setattr(os, "sched_getaffinity", lambda _: range(2))
        assert counted(reader, path) == whole


IOLOG = [
    b"18 /dev/vdb add",
    b"123 /dev/vdb open",
    b"126 /dev/vdb read 4096 8192",
    b"200 /dev/vdb write 12288 65536",
    b"210 /dev/vdb sync 0 0",
    b"215 /dev/vdb trim 0 4096",
    b"220 /srv/a\x0cb write 512 512",
]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_io_logs_of_fio_both_ways(data: st.DataObject, tmp_path: Path) -> None:
    usual = st.sampled_from(IOLOG)
    found = data.draw(st.lists(st.one_of(usual, usual.flatmap(lines)), min_size=1, max_size=12))
    path = tmp_path / "trace"
    path.write_bytes(b"fio version 3 iolog\n" + b"\n".join(found) + data.draw(st.sampled_from([b"\n", b""])))

    def rows() -> Any:
        try:
            batches = list(FioIologReader().batches(path))
        except InputError as error:
            return str(error)
        columns = [
            np.concatenate([np.empty(0), *(getattr(b, name) for b in batches)]).tolist()
            for name in ("time_ns", "op", "lbn", "nbytes", "disk")
        ]
        return columns, sum((Counter(b.skipped) for b in batches), Counter()), [b.disks for b in batches][-1:]

    plainly = rows()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fio_iolog, "_FIELDS", fio_iolog._FIELDS._replace(most_digits=np.zeros(5, np.int64)))
        assert plainly == rows()
