"""Text that Windows' programs wrote: UTF-16, byte order marks, quoted fields, thousands, hexadecimal numbers."""

import gzip
from pathlib import Path

import pytest
from test_delimited import DELIMITED
from test_more_formats import XPERF, counts, format_of, nbytes, profiled

from cephfit.errors import InputError
from cephfit.traces import profile_files
from cephfit.traces.read_options import ReadOptions

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


@pytest.mark.parametrize("time", ["1,500", "1.500,5", "0,5"])
def test_a_comma_that_may_be_a_decimal_point_is_refused(tmp_path: Path, time: str) -> None:
    """Where semicolons separate fields, as in countries that write one and a half as 1,5."""
    text = f"1.5;Read;4096;8192\n{time};Read;12288;8,192\n"
    with pytest.raises(InputError) as caught:
        profiled(tmp_path, text, options=ReadOptions(columns="time,op,offset,length,sep=semicolon"))
    assert caught.value.where.endswith("line 2")


def test_what_is_no_utf_16_is_refused_by_its_line(tmp_path: Path) -> None:
    content = encoded(DELIMITED["alibaba"], "utf-16") + b"\x00\xd8\n"
    with pytest.raises(InputError) as caught:
        profiled(tmp_path, content)
    assert caught.value.where.startswith(f"{tmp_path / 't'}, line 3")
