"""Parquet, as `trace convert` writes it: its columns are documented, and errors name the cause."""

import contextlib
import gzip
import json
import random
import time
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from test_demands import merged_events
from test_formats import WHOLE
from test_more_formats import ORACLE
from test_trace_views import run
from trace_maker import Event, write

from cephfit.cli.trace.trace_commands import command
from cephfit.core.errors import InputError
from cephfit.traces import profile_files
from cephfit.traces.columns import AccessBatch
from cephfit.traces.readers.parquet import write_parquet

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
    """As documented: written by another program, without cephfit's metadata."""
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


def test_a_compressed_file_is_not_reported_as_damaged(converted: Path, tmp_path: Path) -> None:
    (tmp_path / "t.parquet.gz").write_bytes(gzip.compress(converted.read_bytes()))
    refused = run("profile", tmp_path / "t.parquet.gz", check=False)
    assert refused.returncode == 2
    assert "a compressed Parquet file cannot be read" in refused.stderr
    assert "decompress it first" in refused.stderr
    assert "damaged" not in refused.stderr


def test_the_help_names_it() -> None:
    assert "parquet" in CliRunner().invoke(command, ["profile", "--help"]).output


def test_the_lacks_of_the_trace_are_preserved(tmp_path: Path) -> None:
    """Every access counts as a read, by option. A file without that lack would present it as a fact."""
    (tmp_path / "t").write_bytes(ORACLE)
    run("convert", tmp_path / "t", "--assume-op", "read", "-o", tmp_path / "t.parquet")
    original, found = (
        json.loads(run("profile", tmp_path / name, *how, "--json").stdout)["description"]["lacks"]
        for name, how in (("t", ("--assume-op", "read")), ("t.parquet", ()))
    )
    assert found == original
    assert found[0].startswith("op: every access counts as a read")


@pytest.mark.parametrize("name", ["block-events", "biosnoop", "xperf", "qemu", "strace", "vscsi-binary"])
def test_lacks_and_notes_of_the_trace_are_preserved(tmp_path: Path, name: str) -> None:
    """Converted twice: the second file preserves the metadata of the first one."""
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


def test_a_trace_of_many_disks_is_written_in_linear_time(tmp_path: Path) -> None:
    """As many files as a strace may have. To search the list of names for each took minutes for every batch."""
    n, n_batches = 1 << 16, 8
    disks = tuple(f"/home/user/file{i}" for i in range(n))
    each = np.arange(n_batches * 1000, dtype=np.int64).reshape(n_batches, 1000)
    batches = [
        AccessBatch(rows, np.zeros(1000, np.uint8), rows, rows + 1, (n - 1 - rows).astype(np.int32), disks)
        for rows in each
    ]
    begun = time.monotonic()
    assert write_parquet(batches, tmp_path / "t.parquet") == n_batches * 1000
    assert time.monotonic() - begun < 5
    table = pq.read_table(tmp_path / "t.parquet", columns=["lbn", "disk"])
    assert table["disk"].to_pylist() == [disks[n - 1 - lbn] for lbn in table["lbn"].to_pylist()]


def test_demands_of_a_converted_trace_are_of_the_accesses_in_it(tmp_path: Path) -> None:
    """The metadata counts issued events too, but the file has no such accesses: the profile must not claim it."""
    trace = write(tmp_path / "t", merged_events())
    for action, expected in (("Q", (4096, 80)), ("D", (8192, 40))):
        run("convert", trace, "--action", action, "-o", tmp_path / f"{action}.parquet")
        found = profile_files([tmp_path / f"{action}.parquet"], demands=True)
        assert (found.description["events"]["Q"], found.description["events"]["D"]) == (80, 40)
        assert "demands_action" not in found.description
        demands = found.demands or ()
        assert (round(sum(d.nbytes * d.accesses for d in demands)), sum(d.accesses for d in demands)) == (
            expected[0] * expected[1],
            expected[1],
        )


def test_events_that_a_capture_lost_and_missing_files_are_preserved(tmp_path: Path) -> None:
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


FIVE = {"time_ns": [0, 1000], "op": ["read", "write"], "lbn": [8, 16], "nbytes": [4096, 512], "disk": ["a"] * 2}


@pytest.mark.parametrize("kind", ["large_string", "string_view"])
@pytest.mark.parametrize("as_words", [False, True])
def test_text_of_any_type_is_read(tmp_path: Path, kind: str, as_words: bool) -> None:
    """pandas 3 writes large_string where its predecessors wrote string, and so do polars and DuckDB."""
    table = pa.table(FIVE)
    for name in ("op", "disk"):
        text = table[name].cast(getattr(pa, kind)())
        if as_words and kind == "large_string":
            text = text.dictionary_encode()
        table = table.set_column(table.column_names.index(name), name, text)
    pq.write_table(table, tmp_path / "x.parquet")
    found = json.loads(run("profile", tmp_path / "x.parquet", "--json").stdout)
    assert (found["accesses"]["read"]["4K"], found["accesses"]["write"]["4K"]) == (1, 1)
    assert list(found["description"]["disks"]) == ["a"]


@pytest.mark.parametrize("has_column", [False, True])
def test_outstanding_is_counted_where_the_file_has_latencies_only(tmp_path: Path, has_column: bool) -> None:
    """Ten accesses a microsecond apart that take 5.5 us each: from the sixth on six are in flight. Those of the
    other disk do not count there, and neither does where row groups begin. A column without a value is none."""
    n = 20
    columns = {
        "time_ns": [1000 * (i // 2) for i in range(n)],
        "op": ["read"] * n,
        "lbn": [8 * i for i in range(n)],
        "nbytes": [512] * n,
        "disk": ["a", "b"] * 10,
        "latency_ns": [5500, 100] * 10,
    }
    if has_column:
        columns["outstanding"] = pa.nulls(n, pa.int32())
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", row_group_size=7)
    about = json.loads(run("show", tmp_path / "x.parquet", "--json").stdout)["description"]
    counted = about["histograms"]["outstanding"]["all"]
    depths = {limit: n for limit, n in zip(counted["limits"], counted["counts"], strict=False) if n}
    assert depths == {1: 10 + 1, 2: 1, 4: 2, 6: 6}
    assert about["lacks"] == []
    assert about["behaviour"]["disks"]["a"]["busy_share"] == 1
    assert about["behaviour"]["disks"]["b"]["busy_share"] == pytest.approx(10 * 100 / 9100)


def test_the_column_outstanding_of_a_file_is_used(tmp_path: Path) -> None:
    columns = {**FIVE, "latency_ns": [10, 10], "outstanding": pa.array([3, 3], pa.int32())}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    about = json.loads(run("profile", tmp_path / "x.parquet", "--json").stdout)["description"]
    assert about["histograms"]["outstanding"]["all"]["counts"][2] == 2


@pytest.mark.parametrize(
    "words", ["{", "[]", '{"lost": "7"}', '{"stacked": [["a"]]}', '{"skipped": {"flush": -1}}']
)
def test_changed_metadata_is_named(tmp_path: Path, words: str) -> None:
    pq.write_table(pa.table(FIVE).replace_schema_metadata({"cephfit.trace": words}), tmp_path / "x.parquet")
    refused = run("profile", tmp_path / "x.parquet", check=False)
    assert refused.returncode == 2
    assert "x.parquet: the metadata cephfit.trace" in refused.stderr


@pytest.mark.parametrize(("time_ns", "latency_ns", "is_read"), [(1 << 62, 1, False), (1000, (1 << 63) - 1, True)])
def test_impossible_times_are_named_by_row(tmp_path: Path, time_ns: int, latency_ns: int, is_read: bool) -> None:
    columns = {**FIVE, "time_ns": [0, time_ns], "latency_ns": [1, latency_ns]}
    pq.write_table(pa.table(columns), tmp_path / "x.parquet")
    done = run("profile", tmp_path / "x.parquet", "--describe", "full", check=False)
    assert done.returncode == (0 if is_read else 2), done.stderr
    assert is_read or "row 2: 4611686018427387904 ns is not the time of an access" in done.stderr


def test_the_output_may_be_named_in_capitals(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text(ALIBABA)
    run("convert", tmp_path / "t.csv", "-o", tmp_path / "T.PARQUET")
    assert "2 accesses" in run("profile", tmp_path / "T.PARQUET").stdout


@pytest.mark.parametrize("seed", range(3))
def test_damaged_files_give_an_error_and_never_a_traceback(tmp_path: Path, seed: int) -> None:
    """Bytes changed, removed and inserted, most of them in the footer of the file."""
    n, chance = 200, random.Random(seed)
    columns = {
        "time_ns": [1000 * i for i in range(n)],
        "op": ["read", "write"] * (n // 2),
        "lbn": [8 * i for i in range(n)],
        "nbytes": [4096] * n,
        "disk": ["a"] * n,
        "latency_ns": [500] * n,
    }
    pq.write_table(pa.table(columns), tmp_path / "x.parquet", compression="none", row_group_size=70)
    whole = (tmp_path / "x.parquet").read_bytes()
    for _ in range(300):
        damaged = bytearray(whole)
        place = chance.randrange(len(damaged) - chance.choice([3000, len(damaged)]), len(damaged))
        what = bytes(chance.randrange(256) for _ in range(chance.choice([0, 1, 3])))
        damaged[place : place + chance.choice([0, 1, 3])] = what
        (tmp_path / "x.parquet").write_bytes(damaged)
        with contextlib.suppress(InputError):
            profile_files([tmp_path / "x.parquet"])


def test_text_that_is_not_utf_8_is_damaged(tmp_path: Path) -> None:
    pq.write_table(pa.table(FIVE), tmp_path / "x.parquet", compression="none")
    whole = (tmp_path / "x.parquet").read_bytes()
    (tmp_path / "x.parquet").write_bytes(whole.replace(b"read", b"\xffead"))
    refused = run("profile", tmp_path / "x.parquet", check=False)
    assert refused.returncode == 2
    assert "x.parquet: the Parquet file is damaged" in refused.stderr
