"""Formats that the user describes: named columns, and the ``-f`` that blkparse was given."""

import shutil
import subprocess
from pathlib import Path

import pytest
import trace_maker as made
from click.testing import CliRunner
from test_more_formats import counts, nbytes, profiled
from trace_maker import Event

from cephfit.cli.trace.trace_commands import command
from cephfit.core.errors import InputError
from cephfit.traces.recordings import ReadOptions


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("time:us,op,offset:bytes,length:bytes", "0,R,4096,8192\n1000000,W,12288,65536\n"),
        ("time,disk,offset:lbn,length:sectors,op:0/1,sep=tab", "0.0\tvda\t8\t16\t0\n1.0\tvda\t24\t128\t1\n"),
        ("-,op,length:kib,offset:pages,time:ms,sep=space", "x read 8 1 0\ny write 64 3 1000.0 more\n"),
        (
            "time:ns,op,offset,length,latency,sep=semicolon",
            "t;op;o;l;x\n0;r;4096;8192;\n1000000000;w;12288;65536;5\n",
        ),
        (
            "time:filetime,op,offset,length,sep=pipe",
            "128166372003061629|R|4096|8192\n128166372013061629|W|12288|65536",
        ),
    ],
)
def test_named_columns(tmp_path: Path, columns: str, text: str) -> None:
    found = profiled(tmp_path, text, options=ReadOptions(columns=columns))
    assert counts(found) == (1, 1)
    assert nbytes(found) == (8192, 65536)
    assert found.description["duration_seconds"] == pytest.approx(1.0)
    distance = found.description["histograms"]["distance"]["all"]
    assert distance["counts"][distance["limits"].index(1)] == 1


def test_constants_apply_to_every_line_of_a_large_file(tmp_path: Path) -> None:
    text = "\n".join(f"{8 * i}" + "\n" * (i % 7 == 0) for i in range(400_000))
    found = profiled(tmp_path, text, options=ReadOptions(columns="offset:lbn,op=write,length=4096"))
    assert counts(found) == (0, 400_000)


@pytest.mark.parametrize("end", ["\n", "", "\r\n"])
def test_options_supply_what_a_file_lacks(tmp_path: Path, end: str) -> None:
    found = profiled(tmp_path, "8\n16\n24" + end, options=ReadOptions(columns="offset:lbn,op=write,length=4096"))
    assert counts(found) == (0, 3)
    assert nbytes(found) == (0, 3 * 4096)
    assert [missing.partition(":")[0] for missing in found.description["lacks"]] == [
        *("op", "length", "time", "latency and outstanding accesses")
    ]


@pytest.mark.parametrize(
    ("columns", "wrong"),
    [
        ("time:us,op,offset", "the column length is missing"),
        ("time:weeks,op,offset,length", "must be one of ns, us"),
        ("time,op,offset,length,colour", "'colour' is not a column name"),
        ("time,op:x,offset,length", "the words for a read and a write"),
        ("time,op,offset,length,op=read", "the file also has this column"),
        ("time,op,offset,length,sep=dash", "must be one of comma"),
    ],
)
def test_wrong_columns_are_explained(tmp_path: Path, columns: str, wrong: str) -> None:
    with pytest.raises(InputError, match=wrong) as caught:
        profiled(tmp_path, "1,R,2,3\n", options=ReadOptions(columns=columns))
    assert caught.value.where == "--columns"


def test_columns_that_fit_no_line(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        profiled(tmp_path, "a,b,c\nd,e,f\n", options=ReadOptions(columns="time,op,offset,length"))


@pytest.mark.parametrize(
    ("layout", "text", "n"),
    [
        ("%d %a %S %n\\n", "R Q 8 16\nR G 8 16\nWS Q 24 128\nDS Q 0 8\n", 1),
        ("%T.%t,%d,%a,%S,%n\\n", "0.000000000,R,Q,8,16\n1.5,W,Q,24,128\n1.9,R,C,8,16\n", 2),
        (
            "%5T.%9t %D %2c %a %3d %N %S [%C]\\n",
            "    0.000000000   8,0   1 Q   R 8192 8 [a b]\n    1.000000005   8,0 \
  0 Q  WS 65536 24 [x]\nCPU0 (sda):\n Reads Queued:           1\n",
            2,
        ),
    ],
)
def test_user_defined_blkparse_formats(tmp_path: Path, layout: str, text: str, n: int) -> None:
    found = profiled(tmp_path, text, options=ReadOptions(blkparse_format=layout))
    assert counts(found) == (1, 1)
    assert nbytes(found) == (8192, 65536)
    assert (found.description["duration_seconds"] > 0) == (n == 2)
    assert any(missing.startswith("time") for missing in found.description["lacks"]) == (n == 1)


@pytest.mark.parametrize(
    ("layout", "wrong"), [("%a %S %n", "no %d"), ("%d %S", "neither %n nor %N"), ("%q", "not a directive")]
)
def test_wrong_blkparse_formats_are_explained(tmp_path: Path, layout: str, wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        profiled(tmp_path, "R 1 2\n", options=ReadOptions(blkparse_format=layout))


def test_completions_alone_count_without_times(tmp_path: Path) -> None:
    """As of ``blktrace -a complete``. They were skipped as completions of nothing."""
    text = "R C 8 16\nWS C 24 128\n"
    found = profiled(tmp_path, text, options=ReadOptions(blkparse_format="%d %a %S %n\\n"))
    assert (counts(found), found.description["action"]) == ((1, 1), "C")


def test_nanoseconds_without_seconds_are_no_time(tmp_path: Path) -> None:
    """They begin again every second."""
    text = "900000000 R Q 8 16\n100000000 R Q 24 16\n"
    found = profiled(tmp_path, text, options=ReadOptions(blkparse_format="%t %d %a %S %n\\n")).description
    assert (found["duration_seconds"], found["clock_steps_back"]) == (0, 0)
    assert found["lacks"][0].startswith("time (%T)")


def test_seconds_without_nanoseconds_are_a_coarse_clock(tmp_path: Path) -> None:
    text = "".join(f"{i // 100} R Q {8 * i} 8\n" for i in range(500))
    found = profiled(tmp_path, text, options=ReadOptions(blkparse_format="%T %d %a %S %n\\n")).description
    assert found["clock_seconds"] == 1
    assert any(missing.startswith("time: in steps of 1 s") for missing in found["lacks"])


def test_columns_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("0,4096,8192\n")
    shown = CliRunner().invoke(
        command, ["profile", str(tmp_path / "t"), "--columns", "time:us,offset,length,op=read"]
    )
    assert shown.exit_code == 0, shown.output
    assert "1 accesses" in shown.output


@pytest.mark.skipif(shutil.which("blkparse") is None, reason="blkparse is not installed")
@pytest.mark.parametrize("layout", ["%T.%t,%d,%a,%S,%n\\n", "%D %2c %8s %5T.%9t %5p %2a %3d %S + %n\\n"])
def test_messages_of_the_kernel_are_in_the_default_format(tmp_path: Path, layout: str) -> None:
    """An I/O scheduler (bfq, cfq) writes thousands of them; blkparse's -f does not apply to them."""
    message = Event(2, 0, 0, 2, made.NOTIFY, payload=b"bfq0 async dispatched a request")
    made.write(tmp_path / "sda.blktrace.0", [Event(1), message, Event(3, 8), message])
    text = subprocess.run(
        ["blkparse", "-i", "sda", "-f", layout], cwd=tmp_path, capture_output=True, check=True, timeout=60
    ).stdout.decode()
    assert text.count(" m   N bfq0") == 2
    found = profiled(tmp_path, text, options=ReadOptions(blkparse_format=layout))
    assert counts(found) == (2, 0)
    assert found.description["events"] == {"Q": 2, "m": 2}


OWN_UNITS = "op,lbn,len,ms,us\nR,8,4096,0,250\nWSM,16,4096,2,\ndiscard,0,4096,3,1\nFWFS,16,4096,1000,1000\n"


def test_time_and_latency_have_units_of_their_own(tmp_path: Path) -> None:
    columns = "op,offset:lbn,length,time:ms,latency:us"
    found = profiled(tmp_path, OWN_UNITS, options=ReadOptions(columns=columns))
    assert counts(found) == (1, 2)
    assert found.description["duration_seconds"] == pytest.approx(1.0)
    assert found.description["percentiles"]["latency_us"]["all"]["p50"] == pytest.approx(250, rel=0.02)
    assert found.description["percentiles"]["latency_us"]["all"]["p99"] == pytest.approx(1000, rel=0.02)
    assert found.description["skipped"] == {"discard": 1}


def test_a_flush_in_the_letters_of_the_kernel_is_a_commit(tmp_path: Path) -> None:
    """An application's flush is a write without bytes (FWS), the kernel's own a flush before a flush (FF)."""
    text = "0,W,8,4096\n1,FWS,0,0\n2,FF,0,0\n3,FWFS,8,4096\n4,R,0,0\n5,FN,0,0\n6,DS,0,4096\n"
    found = profiled(tmp_path, text, options=ReadOptions(columns="time:ms,op,offset:lbn,length"), demands=True)
    assert counts(found) == (0, 2)
    assert found.description["skipped"] == {"flush": 3, "zero length": 1, "discard": 1}
    assert found.commits is not None
    assert found.commits.flushes == 3


def test_units_of_their_own_in_a_file_that_the_loop_reads(tmp_path: Path) -> None:
    text = "".join(f"R,{8 * i},4096,{i},{100 + i % 2}\n" for i in range(50_000))
    found = profiled(tmp_path, text, options=ReadOptions(columns="op,offset:lbn,length,time:ms,latency:us"))
    assert found.description["duration_seconds"] == pytest.approx(49.999)
    assert found.description["percentiles"]["latency_us"]["all"]["p50"] == pytest.approx(100, rel=0.02)


def test_latency_without_time(tmp_path: Path) -> None:
    found = profiled(tmp_path, OWN_UNITS, options=ReadOptions(columns="op,offset:lbn,length,-,latency:us"))
    assert found.description["percentiles"]["latency_us"]["all"]["n"] == 2
    assert "iops" not in found.description
    assert "outstanding" not in found.description["histograms"]


def test_rows_of_one_action_count(tmp_path: Path) -> None:
    text = "".join(f"{action},{op},{8 * i},4096\n" for i, op in enumerate("RRW") for action in ("Q", "G", "C"))
    found = profiled(tmp_path, text, options=ReadOptions(columns="action:C,op,offset:lbn,length"))
    assert counts(found) == (2, 1)
    assert found.description["skipped"] == {"action G": 3, "action Q": 3}


@pytest.mark.parametrize(("op", "line"), [("WRITE_SYNC", 3), ("0", 3), ("", 3)])
def test_unknown_words_of_the_op_are_errors(tmp_path: Path, op: str, line: int) -> None:
    text = f"op,lbn,len\nR,8,4096\n{op},16,4096\n"
    with pytest.raises(InputError, match="column op") as caught:
        profiled(tmp_path, text, options=ReadOptions(columns="op,offset:lbn,length"))
    assert f"line {line}" in caught.value.where
    assert "op:READ/WRITE/SKIP" in caught.value.remedy


def test_several_words_for_an_op_and_words_to_skip(tmp_path: Path) -> None:
    text = "in,8,4096\nfetch,16,4096\nout,24,4096\nsync,0,0\n"
    found = profiled(tmp_path, text, options=ReadOptions(columns="op:in|fetch/out/sync,offset:lbn,length"))
    assert counts(found) == (2, 1)
    assert found.description["skipped"] == {"op sync": 1}


@pytest.mark.parametrize("op", ["op:r", "op:r/", "op:r/w|r", "op:r/w/x/y"])
def test_words_of_the_op_with_two_meanings_or_none_are_refused(tmp_path: Path, op: str) -> None:
    with pytest.raises(InputError, match="must be the words"):
        profiled(tmp_path, OWN_UNITS, options=ReadOptions(columns=f"{op},offset:lbn,length"))
