"""A wrong path after -o never overwrites an input or a results store."""

import sqlite3
from pathlib import Path

import pytest
from click.testing import CliRunner

from cephfit.cli.main import cephfit
from cephfit.cli.output import write_whole
from cephfit.core.errors import InputError
from cephfit.core.profile_files import read_profile
from cephfit.core.values.cells import SIZE_BINS, Op
from cephfit.core.values.profile import Profile
from cephfit.results.store.sample_store import Store

TRACE = "".join(f"{100 * i},{i % 2},{40960 * i},4096\n" for i in range(20))
COLUMNS = ("--columns", "time:us,op:0/1,offset:bytes,length:bytes")


def a_profile(name: str) -> Profile:
    counts = dict.fromkeys((b.name for b in SIZE_BINS), 5)
    return Profile(name, dict.fromkeys(Op, counts), dict.fromkeys(Op, 0.5), None, {"disks": {name: {"n": 1}}})


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("t.csv", ("trace", "profile", "{it}", *COLUMNS, "-o", "{output}")),
        ("p.json", ("trace", "jobs", "{it}", "-o", "{output}")),
        ("t.svg", ("trace", "plot", "{it}", *COLUMNS, "-o", "{output}")),
        ("t.parquet", ("trace", "convert", "{it}", *COLUMNS, "-o", "{output}")),
        ("s.sqlite", ("report", "--store", "{it}", "--format", "csv", "-o", "{output}")),
        ("s.csv", ("compare", "--store", "{it}", "-o", "{output}")),
        ("p.csv", ("compare", "--store", "none", "--profile", "{it}", "-o", "{output}")),
    ],
)
def test_a_command_does_not_replace_its_inputs(
    tmp_path: Path, name: str, words: tuple[str, ...], link: bool
) -> None:
    it = tmp_path / name
    if "--store" in words and "none" not in words:
        Store.open(it, create=True).close()
    else:
        it.write_text(a_profile("x").dumps() if "--profile" in words or "jobs" in words else TRACE)
    before = it.read_bytes()
    output = it.with_name(f"link{it.suffix}") if link else it
    if link:
        output.symlink_to(it)
    with pytest.raises(InputError, match="would be lost") as caught:
        CliRunner().invoke(cephfit, [w.format(it=it, output=output) for w in words], catch_exceptions=False)
    assert (caught.value.where, caught.value.remedy) == (str(output), "give another path with -o")
    assert it.read_bytes() == before


@pytest.mark.parametrize("words", ["{folder}", "{folder}/sda"])
def test_output_does_not_replace_one_of_several_blktrace_files(tmp_path: Path, words: str) -> None:
    file = tmp_path / "sda.blktrace.0"
    file.write_bytes(b"a trace")
    arguments = ["trace", "profile", words.format(folder=tmp_path), "-o", str(file)]
    with pytest.raises(InputError, match="would be lost"):
        CliRunner().invoke(cephfit, arguments, catch_exceptions=False)
    assert file.read_bytes() == b"a trace"


def test_no_output_replaces_a_store_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "july.html"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE mine (it)")
    database.close()
    before = path.read_bytes()
    with pytest.raises(InputError, match="SQLite database, and would be lost"):
        write_whole(path, "report", what="the report")
    assert path.read_bytes() == before


def test_an_earlier_output_is_replaced(tmp_path: Path) -> None:
    trace, output = tmp_path / "p.json", tmp_path / "p.fio"
    trace.write_text(a_profile("x").dumps())
    output.write_text("of yesterday")
    done = CliRunner().invoke(
        cephfit, ["trace", "jobs", str(trace), "--pace", "full-speed", "--size", "1G", "-o", str(output)]
    )
    assert done.exit_code == 0, done.output
    assert "of yesterday" not in output.read_text()


def test_characters_that_are_not_utf_8_are_replaced_in_profiles(tmp_path: Path) -> None:
    """Such as a trace's in a file n\\xff: a store would take it, and every report of it would fail."""
    path = tmp_path / "p.json"
    path.write_text(a_profile("n\udcff").dumps())
    assert "udcff" not in path.read_text()
    path.write_text(a_profile("n#").dumps().replace("n#", "n\\udcff"))  # as earlier versions wrote it
    found = read_profile(path)
    assert found.name == "n\ufffd"
    assert list(found.description["disks"]) == ["n\ufffd"]


def test_a_report_with_a_name_that_is_not_utf_8_is_written(tmp_path: Path) -> None:
    write_whole(tmp_path / "r.html", "of n\udcff\n", what="the report")
    assert (tmp_path / "r.html").read_text() == "of n\ufffd\n"


def test_a_profile_comes_through_a_pipe() -> None:
    done = CliRunner().invoke(cephfit, ["map", "-", "--baselines", "none.csv"], input=a_profile("x").dumps())
    assert isinstance(done.exception, InputError)
    assert done.exception.where == "none.csv", "the profile was read"
    done = CliRunner().invoke(cephfit, ["map", "-", "--baselines", "none.csv"], input=b"\xff")
    assert isinstance(done.exception, InputError)
    assert "standard input: this is not text in UTF-8" in str(done.exception)
