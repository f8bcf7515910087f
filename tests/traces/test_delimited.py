"""The delimited formats: the rows contain the same two accesses, in the units of each format."""

import lzma
from pathlib import Path

import pytest

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op
from cephfit.traces import profile_files
from cephfit.traces.readers.delimited.delimited_formats import FORMATS
from cephfit.traces.recordings import ReadOptions

DELIMITED = {
    "msr": "128166372003061629,hm,1,Read,4096,8192,500\n128166372013061629,hm,1,Write,12288,65536,700\n",
    "spc": "0,8,8192,R,0.000000\n0, 24, 65536, w, 1.000000, extra\n",
    "alibaba": "419,R,4096,8192,1577808144360767\n419,W,12288,65536,1577808145360767\n",
    "tencent": "1538323200,8,16,0,1063\n1538323201,24,128,1,1063\n",
    "systor17": (
        "Timestamp,Response,IOType,LUN,Offset,Size\n"
        "1455592845.005000000,0.000050000,R,0,4096,8192\n1455592846.005000000,,W,0,12288,65536\n"
    ),
    "fiu": ("89966019793584 2559 my proc 8 16 R 6 0 3b1f7a\n89967019793584 2559 kjournald 24 128 W 6 0 00ff\n"),
    "mqsim": "1000000000 0 8 16 1\n2000000000 0 24 128 0\n",
    "disksim": "0.000000 0 8 16 1\n1000.000000 0 24 128 0\n",
    "blkreplay": (
        "PLEASE DO NOT EDIT\nstart ; sector; length ; op ;  replay_delay=0 ; replay_duration=0\n"
        " 0.000000000 ; 8 ; 16 ; R ; 0.0 ; 0.000050\n 1.000000000 ; 24 ; 128 ; W ; 0.0 ; 0.0\n"
    ),
}
"""A read of 8 KiB at LBN 8, and a second later a write of 64 KiB at LBN 24."""


def test_every_declared_format_is_tested() -> None:
    assert set(DELIMITED) == {layout.name for layout in FORMATS}


@pytest.mark.parametrize("name", DELIMITED)
def test_units_and_columns(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t"
    path.write_text(DELIMITED[name])
    found = profile_files([path])
    assert found.description["sources"][0]["format"] == name
    assert (found.accesses[Op.READ]["4K"], found.accesses[Op.WRITE]["128K"]) == (1, 1)
    assert found.description["nbytes"] == {"read": 8192, "write": 65536}
    assert found.description["duration_seconds"] == pytest.approx(1.0)
    distance = found.description["histograms"]["distance"]["all"]
    assert distance["counts"][distance["limits"].index(1)] == 1  # the write begins where the read ended


@pytest.mark.parametrize("name", ["msr", "systor17", "blkreplay"])
def test_latency_where_the_format_has_it(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t"
    path.write_text(DELIMITED[name])
    latency = profile_files([path]).description["percentiles"]["latency_us"]
    assert latency["read"]["p50"] == pytest.approx(50, rel=0.04)
    assert latency["all"]["n"] == (2 if name == "msr" else 1)  # an empty or zero latency is not known


def test_disks_are_separate(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(DELIMITED["msr"] + DELIMITED["msr"].replace(",hm,1,", ",usr,1,"))
    assert list(profile_files([path]).description["disks"]) == ["hm/1", "usr/1"]


def test_parts_of_one_trace_join_on_the_same_disk(tmp_path: Path) -> None:
    rows = DELIMITED["alibaba"].splitlines(keepends=True)
    for i, row in enumerate(rows):
        (tmp_path / f"part{i}").write_text(row)
    (tmp_path / "whole").write_text("".join(rows))
    joined = profile_files([tmp_path / "part0", tmp_path / "part1"], parts=True)
    whole = profile_files([tmp_path / "whole"])
    assert joined.description["histograms"] == whole.description["histograms"]


def test_a_missing_op_is_counted_as_skipped(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(DELIMITED["systor17"] + "1455592847.005000000,0.1,,0,12288,65536\n")
    assert profile_files([path]).description["skipped"] == {"no op": 1}


def test_whole_times_of_disksim_are_read_as_those_of_mqsim_with_a_note(tmp_path: Path) -> None:
    """The options in the note read them correctly."""
    path = tmp_path / "t"
    path.write_text("0 0 8 16 1\n1000 0 24 128 0\n")
    (note,) = [n for n in profile_files([path]).description["notes"] if "MQSim" in n]
    columns = note.rpartition("--columns ")[2]
    found = profile_files([path], format_name="columns", options=ReadOptions(columns=columns))
    assert found.description["duration_seconds"] == pytest.approx(1.0)
    assert found.description["nbytes"] == {"read": 8192, "write": 65536}


@pytest.mark.parametrize(
    ("name", "row", "reason"),
    [
        ("msr", "128166372023061629,hm,1,Flush,0,0,300", "flush"),
        ("blkreplay", " 1.500000000 ; 8 ; 16 ; D ; 0.0 ; 0.000050", "discard"),
        ("blkreplay", " 1.500000000 ; 8 ; 16 ; X ; 0.0 ; 0.000050", "op x"),
    ],
)
def test_a_row_of_another_op_is_skipped_by_its_name(tmp_path: Path, name: str, row: str, reason: str) -> None:
    path = tmp_path / "t"
    path.write_text(f"{DELIMITED[name]}{row}\n{DELIMITED[name].splitlines()[-1]}\n")
    found = profile_files([path])
    assert found.n_accesses == 3
    assert found.description["skipped"] == {reason: 1}


def test_fiu_in_lower_case(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(DELIMITED["fiu"] + "89968019793584 2559 my proc 8 16 r 6 0 3b1f7a\n")
    assert sum(profile_files([path]).accesses[Op.READ].values()) == 2


def test_a_clock_of_whole_seconds_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(DELIMITED["tencent"])
    assert "whole seconds" in profile_files([path]).description["notes"][0]


@pytest.mark.parametrize("name", DELIMITED)
def test_an_invalid_row_is_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t"
    path.write_text(DELIMITED[name] + "and then the disk was full\n")
    with pytest.raises(InputError, match="not a row of") as caught:
        profile_files([path])
    assert caught.value.where == f"{path}, line {DELIMITED[name].count(chr(10)) + 1}"


def test_concatenated_files_repeat_their_header(tmp_path: Path) -> None:
    path = tmp_path / "t"
    path.write_text(DELIMITED["systor17"] * 2)
    assert profile_files([path]).n_accesses == 4


def test_xz(tmp_path: Path) -> None:
    path = tmp_path / "t.xz"
    path.write_bytes(lzma.compress(DELIMITED["msr"].encode()))
    assert profile_files([path]).n_accesses == 2
