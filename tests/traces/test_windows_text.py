"""Text of Windows programs: UTF-16, byte order marks, quoted fields, thousands, hexadecimal numbers."""

import gzip
from pathlib import Path
from random import Random

import pytest
from test_delimited import DELIMITED
from test_more_formats import XPERF, counts, format_of, nbytes, profiled

from cephfit.core.errors import InputError
from cephfit.traces import profile_files
from cephfit.traces.recordings import ReadOptions
from cephfit.traces.stream import TraceStream

ENCODED = ["utf-8-sig", "utf-16", "utf-16-be"]
COLUMNS = "disk,time:us,op,offset,length,latency:us"
PLAIN = "Disk,Time,IO Type,Offset,Size,IO Time\n0,500,Read,4096,8192,100\n0,1000500,Write,12288,65536,1250\n"


def encoded(text: str, encoding: str) -> bytes:
    mark = "\ufeff" if encoding == "utf-16-be" else ""
    return (mark + text).encode(encoding)


@pytest.mark.parametrize("encoding", ENCODED)
def test_xperf(tmp_path: Path, encoding: str) -> None:
    found = profiled(tmp_path, encoded(XPERF.replace("\n", "\r\n"), encoding))
    assert format_of(found) == "xperf"
    assert (counts(found), nbytes(found)) == ((1, 1), (8192, 65536))


@pytest.mark.parametrize("encoding", ENCODED)
def test_a_compressed_large_file(tmp_path: Path, encoding: str) -> None:
    text = DELIMITED["alibaba"] * 100_000
    (tmp_path / "t").write_bytes(gzip.compress(encoded(text, encoding), compresslevel=1))
    assert counts(profile_files([tmp_path / "t"])) == (100_000, 100_000)


@pytest.mark.parametrize("encoding", ["utf-8", *ENCODED])
@pytest.mark.parametrize(
    "rows",
    [
        PLAIN,
        PLAIN.replace(",Read,", ',"Read",').replace(",Write,", ',"Write",').replace("\n0,", '\n"0",'),
        "\n".join(",".join(f'"{word}"' for word in line.split(",")) for line in PLAIN.split("\n")[:-1]) + "\n",
        PLAIN.replace("4096", "0x0000001000").replace(",8192", ',"8,192"'),
        PLAIN.replace("12288", '"12,288"').replace("1000500", '"1,000,500"').replace("1250", '"1,250"'),
        PLAIN.replace("65536", "0x10000").replace("1250", '"1,250.000"'),
    ],
)
def test_a_table_of_performance_analyzer(tmp_path: Path, encoding: str, rows: str) -> None:
    found = profiled(tmp_path, encoded(rows, encoding), options=ReadOptions(columns=COLUMNS))
    assert (counts(found), nbytes(found)) == ((1, 1), (8192, 65536))
    assert list(found.description["disks"]) == ["0"]
    assert found.description["duration_seconds"] == pytest.approx(1.0, abs=1e-9)
    assert found.description["percentiles"]["latency_us"]["write"]["p50"] == pytest.approx(1250, rel=0.04)
    distance = found.description["histograms"]["distance"]["all"]
    assert distance["counts"][distance["limits"].index(1)] == 1


def test_a_separator_in_a_quoted_name_separates_nothing(tmp_path: Path) -> None:
    text = '"1","a, b","Read","0x1000","4,096"\n'
    found = profiled(tmp_path, text, options=ReadOptions(columns="time,-,op,offset,length"))
    assert nbytes(found) == (4096, 0)


@pytest.mark.parametrize(("separator", "name"), [(",", "d, one"), (";", "a;b"), ("|", "x|y")])
def test_a_separator_in_a_quoted_name_stays_in_it(tmp_path: Path, separator: str, name: str) -> None:
    rows = [f'"{name}"', "4096", "8192", "R"], ["other", "4096", "8192", "W"], [f'"{name}"', "0", "512", "R"]
    sep = {",": "comma", ";": "semicolon", "|": "pipe"}[separator]
    found = profiled(
        tmp_path,
        "".join(separator.join(row) + "\n" for row in rows),
        options=ReadOptions(columns=f"disk,offset,length,op,sep={sep}"),
    )
    assert counts(found) == (2, 1)
    assert set(found.description["disks"]) == {name, "other"}


def test_quoted_fields_between_blanks(tmp_path: Path) -> None:
    """A disk with blanks in its name, an op and numbers in quotation marks, thousands, hexadecimal numbers."""
    rows = [
        '"my  disk" 0.5 "R" "4,096" 0x2000 1000',
        'other\t1 w 12288 "65536" 2000 and more',
        '"my  disk" 1.5 R 0 512 "1000"',
        'a"b 2 R 0 512 1000',
        '"he said ""no""" 2 R 0 512 1000',
    ]
    found = profiled(
        tmp_path,
        "disk time op offset length\n" + "".join(row + "\n" for row in rows),
        options=ReadOptions(columns="disk,time:us,op,offset,length,latency,sep=space"),
    )
    assert (counts(found), nbytes(found)) == ((4, 1), (8192 + 3 * 512, 65536))
    assert set(found.description["disks"]) == {"my  disk", "other", 'a"b', 'he said "no"'}


@pytest.mark.parametrize(("separator", "name"), [(",", "comma"), (" ", "space"), (";", "semicolon")])
@pytest.mark.parametrize("n", [1, 3, 5000])
def test_numbers_within_a_quoted_field_are_not_columns(tmp_path: Path, separator: str, name: str, n: int) -> None:
    """Without its quotation marks, each line would have 7 and 8 where place and length are."""
    rows = separator.join(['"a', 'b"', "7", "8", "512", "0"]) + "\n"
    found = profiled(tmp_path, rows * n, options=ReadOptions(columns=f"-,-,offset:lbn,length,op=read,sep={name}"))
    assert (counts(found), nbytes(found)) == ((n, 0), (512 * n, 0))


@pytest.mark.parametrize("time", ["1,500", "1.500,5", "0,5"])
def test_a_comma_that_may_be_a_decimal_point_is_rejected(tmp_path: Path, time: str) -> None:
    """Where semicolons separate fields, as in countries that write one and a half as 1,5."""
    text = f"1.5;Read;4096;8192\n{time};Read;12288;8,192\n"
    with pytest.raises(InputError) as caught:
        profiled(tmp_path, text, options=ReadOptions(columns="time,op,offset,length,sep=semicolon"))
    assert caught.value.where.endswith("line 2")


@pytest.mark.parametrize("encoding", ENCODED)
@pytest.mark.parametrize("first", ["Öffset", "Смещение", "偏移", "O"])
def test_a_header_in_any_language(tmp_path: Path, encoding: str, first: str) -> None:
    text = f"{first},Größe,Typ\n4096,8192,R\n12288,65536,W\n"
    found = profiled(tmp_path, encoded(text, encoding), options=ReadOptions(columns="offset,length,op"))
    assert (counts(found), nbytes(found)) == ((1, 1), (8192, 65536))


@pytest.mark.parametrize("mark", [b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("records", [bytes(range(256)) * 2, b"\x01\0\0\0ab\0\0" * 64, Random(1).randbytes(600)])
def test_records_that_begin_as_a_byte_order_mark_stay_as_they_are(
    tmp_path: Path, mark: bytes, records: bytes
) -> None:
    (tmp_path / "t").write_bytes(mark + records)
    with TraceStream(tmp_path / "t") as stream:
        assert stream.read(1000) == mark + records


LONE_SURROGATE = b"\x00\xd8"


def damaged(before: str, damage: bytes, after: str) -> bytes:
    return before.encode("utf-16") + damage + after.encode("utf-16-le")


@pytest.mark.parametrize(
    ("content", "line", "byte"),
    [
        (damaged("0,0,R,a\n4096,4096,R,d", LONE_SURROGATE, "x\n"), 2, 44),
        (damaged("0,0,R,a\n" * 40_000 + "4096,4096,R,d", LONE_SURROGATE, "x\n"), 40_001, 640_028),
        (damaged("0,0,R,a\n4096,4096,R,d\n", b"9", ""), 3, 46),
    ],
)
def test_invalid_utf_16_is_reported_with_its_line(tmp_path: Path, content: bytes, line: int, byte: int) -> None:
    """Also in the name of a disk, which may be any text."""
    with pytest.raises(InputError, match="not UTF-16") as caught:
        profiled(tmp_path, content, options=ReadOptions(columns="offset,length,op,disk"))
    assert caught.value.where == f"{tmp_path / 't'}, line {line} (byte {byte})"
