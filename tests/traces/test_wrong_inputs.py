"""Concatenated formats, cut off files, the other byte order: each error names the file and the position."""

import re
import struct
from pathlib import Path

import pytest
from test_formats import WHOLE
from test_more_formats import ORACLE, rbd_replay
from test_trace_views import run
from test_vscsi import record_1

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op
from cephfit.traces import profile_files
from cephfit.traces.recordings import ReadOptions

LONG = b"".join(struct.pack("<IQIq", 100 + i, 8 * i, 4096, -1) for i in range(4000))
"""oracleGeneral is detected only by the plausibility of all of the first 64 KiB."""

ALL = {**WHOLE, "oracle-general": LONG}
BINARY = {"blktrace", "blktrace-8", "vscsi-binary", "vscsi-binary-2", "rbd-replay", "oracle-general"}
OP = ReadOptions(assume_op=Op.READ)
A_BYTE = re.compile(r"byte \d+|record \d+ \(byte \d+\)")
LINE_END = b"\n"


def refused(tmp_path: Path, content: bytes) -> InputError:
    path = tmp_path / "t"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        profile_files([path], options=OP)
    assert caught.value.where.startswith(str(path))
    assert caught.value.remedy
    return caught.value


def refused_at(tmp_path: Path, content: bytes) -> str:
    """Return the position in the file that the error names; the name of the file may contain any words."""
    return refused(tmp_path, content).where.removeprefix(f"{tmp_path / 't'}, ")


@pytest.mark.parametrize("name", ALL)
def test_another_text_after_the_trace(tmp_path: Path, name: str) -> None:
    other = (WHOLE["xperf" if name == "msr" else "msr"] + b"\n") * 150
    place = refused_at(tmp_path, ALL[name] + other)
    assert A_BYTE.fullmatch(place) if name in BINARY else place == f"line {ALL[name].count(LINE_END) + 1}"


@pytest.mark.parametrize("name", ALL)
def test_a_binary_trace_after_the_trace(tmp_path: Path, name: str) -> None:
    other = WHOLE["vscsi-binary" if name.startswith("blktrace") else "blktrace"] * 20
    place = refused_at(tmp_path, ALL[name] + other)
    assert A_BYTE.fullmatch(place) if name in BINARY else place == f"line {ALL[name].count(LINE_END) + 1}"


@pytest.mark.parametrize("name", sorted(BINARY))
def test_a_binary_trace_that_is_cut_off(tmp_path: Path, name: str) -> None:
    assert A_BYTE.fullmatch(refused_at(tmp_path, ALL[name][:-3]))


@pytest.mark.parametrize(
    "name",
    ["msr", "spc", "alibaba", "systor17", "fiu", "biosnoop", "block-events", "strace", "xperf", "fio-iolog"],
)
def test_a_text_trace_that_is_cut_off_within_a_number_or_word(tmp_path: Path, name: str) -> None:
    """Cut where the rest cannot be a line. (Digits missing at the very end cannot be detected.)"""
    begin = ALL[name].rstrip(b"\n").rfind(b"\n") + 1
    blanks = len(ALL[name][begin:]) - len(ALL[name][begin:].lstrip())
    error = refused(tmp_path, ALL[name][: begin + blanks + 7])
    assert f"line {ALL[name][:begin].count(bytes([10])) + 1}" in error.where


HISTOGRAMS = WHOLE["vscsi-histogram"].decode()


@pytest.mark.parametrize(
    "content",
    [
        WHOLE["msr"] + b"128166372003061629,hm,1,Read,%d,8192,500\n" % (1 << 70),
        WHOLE["vscsi-csv"] + b"2147483692,4096,1,write,%d,2756778716647\n" % (1 << 60),
        WHOLE["blkparse"] + b"  8,0 1 9 9.000000000 99 Q WS %d + 8 [x]\n" % (1 << 60),
        WHOLE["fio-iolog"].replace(b"version 3", b"version 4"),
        b"fio version 2 iolog\nf add\nf wait %d 0\nf read 0 512\n" % (1 << 60),
        WHOLE["alibaba"] + b"4" * 200_000,
        WHOLE["biosnoop"] + b"4" * 200_000,
        LONG[:-24] + struct.pack("<IQIq", 9999, 1 << 60, 4096, -1),
        HISTOGRAMS.replace("IO lengths of Read", "IO widths of Read").encode(),
        HISTOGRAMS.replace("\ncount,", "\ncount,9", 1).encode(),
    ],
)
def test_every_error_names_position_and_remedy(tmp_path: Path, content: bytes) -> None:
    where = refused(tmp_path, content).where
    assert any(word in where for word in ("line", "byte", "record"))


@pytest.mark.parametrize(
    ("column", "value", "what"),
    [
        ("nbytes", 0, "an access cannot have 0 bytes at LBN 16"),
        ("lbn", -8, "an access cannot have 4096 bytes at LBN -8"),
        ("op", "trim", "op 'trim' is neither read nor write"),
        ("time_ns", None, "column 'time_ns' has an empty value"),
    ],
)
def test_a_row_of_a_parquet_file_is_named(tmp_path: Path, column: str, value: object, what: str) -> None:
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    n = 600_000
    columns = {
        "time_ns": [*range(n)],
        "op": ["read"] * n,
        "lbn": [16] * n,
        "nbytes": [4096] * n,
        "disk": ["a"] * n,
    }
    columns[column][n - 7] = value
    pq.write_table(pa.table(columns), tmp_path / "t", row_group_size=250_000)
    with pytest.raises(InputError) as caught:
        profile_files([tmp_path / "t"])
    assert (caught.value.what, caught.value.where) == (what, f"{tmp_path / 't'}, row {n - 6}")
    assert caught.value.remedy


def test_a_vscsi_trace_of_the_other_byte_order(tmp_path: Path) -> None:
    swapped = b"".join(
        struct.pack(">IIIHHQQ", *struct.unpack("<IIIHHQQ", record_1(0x28, 8 * i))) for i in range(20)
    )
    assert "looks like binary data" in refused(tmp_path, swapped).what


def test_an_oracle_general_trace_of_the_other_byte_order(tmp_path: Path) -> None:
    swapped = b"".join(struct.pack(">IQIq", *row) for row in struct.iter_unpack("<IQIq", ORACLE))
    assert "other byte order" in refused(tmp_path, swapped).what


def test_an_rbd_replay_trace_cut_at_every_byte(tmp_path: Path) -> None:
    """Its last two actions begin at bytes 153 and 212; cut between them it is a whole, shorter trace."""
    whole, path = rbd_replay(), tmp_path / "t"
    for n in range(len(whole) - 1, len(whole) - 60, -1):
        if n == 212:
            path.write_bytes(whole[:n])
            assert profile_files([path]).n_accesses == 2
        else:
            assert refused_at(tmp_path, whole[:n]) == f"byte {212 if n > 212 else 153}"


@pytest.mark.parametrize("command", ["show", "jobs"])
def test_all_commands_reject_a_damaged_profile_alike(tmp_path: Path, command: str) -> None:
    file = tmp_path / "p.json"
    file.write_bytes(b'{"schema_version": 1, "name": "\xff"}')
    done = run(command, file, check=False)
    assert done.returncode == 2
    assert "this is not a text file" in done.stderr
    assert "p.json" in done.stderr
