"""Parquet, as `trace convert` writes it: its columns are documented, what it is not is said."""

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from test_formats import WHOLE
from test_more_formats import ORACLE
from test_trace_views import run
from trace_maker import Event, write

from cephfit.cli.trace import command

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

ALIBABA = "1,R,4096,8192,0\n2,W,12288,65536,1000000\n"
DOCUMENTS = Path(__file__).parents[2] / "docs"


@pytest.fixture
def converted(tmp_path: Path) -> Path:
    (tmp_path / "t.csv").write_text(ALIBABA)
    run("convert", tmp_path / "t.csv", "-o", tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


def test_the_columns_are_documented_with_their_units(converted: Path) -> None:
    page = (DOCUMENTS / "formats.md").read_text()
    (row,) = (line for line in page.splitlines() if line.startswith("| `parquet`"))
    schema = pq.read_schema(converted)
    for field in schema:
        assert f"`{field.name}`" in row
    assert "512" in row
    assert "bytes" in row


def test_any_file_with_the_five_columns_is_read(tmp_path: Path) -> None:
    """As documented: written by somebody else's program, without cephfit's words beside it."""
    columns = {
        "time_ns": [0, 1000],
        "op": ["read", "write"],
        "lbn": [8, 16],
        "nbytes": [4096, 512],
        "disk": ["a"] * 2,
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    found = json.loads(run("profile", tmp_path / "x.parquet", "--json").stdout)
    assert (found["accesses"]["read"]["4K"], found["accesses"]["write"]["4K"]) == (1, 1)


def test_a_compressed_file_is_called_so_and_not_damaged(converted: Path, tmp_path: Path) -> None:
    (tmp_path / "t.parquet.gz").write_bytes(gzip.compress(converted.read_bytes()))
    refused = run("profile", tmp_path / "t.parquet.gz", check=False)
    assert refused.returncode == 2
    assert "a compressed Parquet file is not read" in refused.stderr
    assert "decompress it first" in refused.stderr
    assert "damaged" not in refused.stderr


def test_the_help_names_it() -> None:
    assert "parquet" in CliRunner().invoke(command, ["profile", "--help"]).output


def test_what_the_trace_did_not_say_goes_with_it(tmp_path: Path) -> None:
    """Every access counted as a read, as was asked for: a file that did not say so would claim it as a fact."""
    (tmp_path / "t").write_bytes(ORACLE)
    run("convert", tmp_path / "t", "--assume-op", "read", "-o", tmp_path / "t.parquet")
    original, found = (
        json.loads(run("profile", tmp_path / name, *how, "--json").stdout)["description"]["lacks"]
        for name, how in (("t", ("--assume-op", "read")), ("t.parquet", ()))
    )
    assert found == original
    assert found[0].startswith("op: every access is counted as a read")


@pytest.mark.parametrize("name", ["block-events", "biosnoop", "xperf", "qemu", "strace", "vscsi-binary"])
def test_lacks_and_notes_of_the_trace_go_with_it(tmp_path: Path, name: str) -> None:
    """In a row of two: what one file says of another one is passed on by the next."""
    (tmp_path / "t").write_bytes(WHOLE[name])
    run("convert", tmp_path / "t", "-o", tmp_path / "t.parquet")
    run("convert", tmp_path / "t.parquet", "-o", tmp_path / "again.parquet")
    original, once, twice = (
        json.loads(run("profile", tmp_path / file, "--json").stdout)["description"]
        for file in ("t", "t.parquet", "again.parquet")
    )
    assert original["lacks"] or original["notes"]
    for found in (once, twice):
        assert (found["lacks"], found["notes"]) == (original["lacks"], original["notes"])


def test_events_that_a_capture_lost_and_files_that_are_missing_go_with_the_trace(tmp_path: Path) -> None:
    source = write(tmp_path / "sda.blktrace.0", [Event(1000 * i, 8 * i) for i in range(4)])
    write(tmp_path / "sda.blktrace.1", [Event(10_000, 8, cpu=1)])
    (tmp_path / "sda.capture.json").write_text(
        json.dumps({"schema_version": 1, "method": "tracefs", "lost_events": 7})
    )
    run("convert", source, "-o", tmp_path / "t.parquet")
    original, found = (
        json.loads(run("profile", file, "--json").stdout)["description"]
        for file in (source, tmp_path / "t.parquet")
    )
    assert original["lost_events"] == found["lost_events"] == 7
    assert found["notes"] == original["notes"]
    assert [note[:10] for note in found["notes"]] == ["other CPUs", "the tracer"]
