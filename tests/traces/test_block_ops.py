"""Operations of the block layer other than reads and writes have names, in raw records and in texts."""

from pathlib import Path

import pytest
import trace_maker as made
from test_more_formats import counts, nbytes, profiled
from trace_maker import Event, write

from cephfit.core.values.profile import Profile
from cephfit.traces import profile_files
from cephfit.traces.recordings import ReadOptions

MIB = 1 << 20
WRITE_ZEROES, APPEND = made.WRITE | 1 << 22, made.WRITE | 1 << 16
OPS = {
    "write zeroes": (WRITE_ZEROES, "WZ"),
    "zone reset": (made.WRITE | 1 << 17, "ZR"),
    "zone reset all": (made.WRITE | 1 << 18, "ZRA"),
    "zone finish": (1 << 19, "ZF"),
    "zone open": (1 << 20, "ZO"),
    "zone close": (1 << 21, "ZC"),
    "discard": (made.WRITE | made.DISCARD, "DS"),
}
"""By category (include/uapi/linux/blktrace_api.h) and in letters (blk_fill_rwbs): each with a length of 1 MiB."""

LINES = {
    "blkparse": "8,0 1 {number} {number}.000000000 99 Q {kind} {sector} + {n} [x]\n",
    "block-events": " x-9 [001] {number}.000000: block_bio_queue: 8,0 {kind} {sector} + {n} [x]\n",
    "biosnoop": "{number}.000000 x 99 sda {kind} {sector} {bytes} 0.700\n",
    "blkparse -f": "{number} Q {kind} {sector} {n}\n",
}


def text_of(name: str) -> str:
    """A read, two zone appends, and each of the others twice."""
    kinds = ["R", "ZA", "ZAS", *(f"{letters}{flags}" for _, letters in OPS.values() for flags in ("", "S"))]
    line = LINES[name]
    return "".join(
        line.format(number=i + 1, kind=kind, sector=2048 * i, n=2048, bytes=MIB) for i, kind in enumerate(kinds)
    )


def test_raw_records(tmp_path: Path) -> None:
    """Zone append carries data: it is a write."""
    ops = [Event(9 + i, 2048 * i, MIB, category=category) for i, (category, _) in enumerate(OPS.values())]
    data = [Event(1, 0, 4096), Event(2, 8, 4096, category=APPEND)]
    found = profile_files([write(tmp_path / "t", data + ops, version=8)])
    assert counts(found) == (1, 1)
    assert nbytes(found) == (4096, 4096)
    assert found.description["skipped"] == dict.fromkeys(OPS, 1)


@pytest.mark.parametrize("name", LINES)
def test_texts(tmp_path: Path, name: str) -> None:
    own_format = "%T %a %d %S %n" if name == "blkparse -f" else None
    found = profiled(tmp_path, text_of(name), options=ReadOptions(blkparse_format=own_format))
    assert counts(found) == (1, 2)
    assert found.description["skipped"] == dict.fromkeys(OPS, 2)


def found_in(tmp_path: Path, name: str, lines: list[str]) -> Profile:
    own_format = "%T %a %d %S %n" if name == "blkparse -f" else None
    return profiled(tmp_path, "".join(lines), options=ReadOptions(blkparse_format=own_format))


@pytest.mark.parametrize("name", ["blkparse", "blkparse -f", "block-events"])
def test_a_missing_sector_is_skipped_as_in_raw_records(tmp_path: Path, name: str) -> None:
    """The kernel writes -1 for it."""
    lines = [
        LINES[name].format(number=i + 1, kind="W", sector=s, n=8) for i, s in enumerate((0, (1 << 64) - 1, 8))
    ]
    found = found_in(tmp_path, name, lines)
    assert counts(found) == (0, 2)
    assert found.description["skipped"] == {"no valid sector": 1}


@pytest.mark.parametrize("name", ["blkparse", "blkparse -f", "block-events"])
def test_a_flush_has_no_sector(tmp_path: Path, name: str) -> None:
    line = LINES[name]
    lines = [line.format(number=1, kind="FN", sector=(1 << 64) - 1, n=0)]
    lines += [line.format(number=i + 2, kind="R", sector=8 * i, n=8) for i in range(3)]
    found = found_in(tmp_path, name, lines)
    assert counts(found) == (3, 0)
    assert found.description["skipped"] == {"flush": 1}


@pytest.mark.parametrize("name", ["blkparse", "blkparse -f", "block-events"])
@pytest.mark.parametrize("n_before", [0, 30])
def test_an_op_without_a_name_is_not_a_read(tmp_path: Path, name: str, n_before: int) -> None:
    """Also where a loop was reading accesses before it."""
    kinds = [*("R" for _ in range(n_before)), "N", "NS", "RA", "FWS"]
    lines = [LINES[name].format(number=i + 1, kind=k, sector=8 * i, n=8) for i, k in enumerate(kinds)]
    found = found_in(tmp_path, name, lines)
    assert counts(found) == (n_before + 1, 1)
    assert found.description["skipped"] == {"op N": 1, "op NS": 1}


def test_bios_complete_separately_on_a_device_without_requests(tmp_path: Path) -> None:
    """dm on a disk: block_bio_complete is of dm, block_rq_complete of the disk; raw blktrace calls both C. The
    last one is not plain, so that both ways of reading a line have one."""
    events = [
        *(".000100: block_bio_queue: 253,0 W 0 + 8 [x]", ".000110: block_bio_remap: 8,0 W 2048 + 8 <- (253,0) 0"),
        *(".000120: block_bio_queue: 8,0 W 2048 + 8 [x]", ".000130: block_rq_issue: 8,0 W 4096 () 2048 + 8 [x]"),
        *(".000520: block_rq_complete: 8,0 W () 2048 + 8 [0]", ".000600: block_bio_complete: 253,0 W 0 + 8 [0]"),
        *(".000700: block_bio_queue: 253,0 R 8 + 8 [x]", ".000\v900: block_bio_complete: 253,0 R 8 + 8 [0]"),
    ]
    trace = tmp_path / "t"
    trace.write_text("".join(f" x-9 [001] 1{event}\n" for event in events).replace("\v900: ", "900:\v "))
    about = profile_files([trace]).description
    assert about["events"] == {"A": 1, "C": 3, "D": 1, "Q": 3}
    latency = about["percentiles"]["latency_us"]
    assert latency["write"]["p50"] == pytest.approx(500, rel=0.04)
    assert latency["read"]["p50"] == pytest.approx(200, rel=0.04)
    assert list(about["left_out"]) == ["8,0"]
