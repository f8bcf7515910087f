"""Baselines as CSV."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cephfit.core.errors import InputError, StoreError
from cephfit.core.values.cells import CELLS, Cell
from cephfit.results import open_baselines
from cephfit.results.statistics.sample_baselines import Measured, baselines_of, group
from cephfit.results.store.sample_store import Store
from cephfit.results.tables import baseline_csv

HEADER = "configuration,size,pattern,client,run,iops\n"


def test_a_small_file() -> None:
    text = HEADER + "A,4K,randread,vm1,0,100\nA,4K,randread,vm2,0,110\nB,4K,randread,vm1,0,300.5\n"
    baselines = baseline_csv.loads(text)
    cell = Cell.parse("4K-randread")
    assert baselines.of("A", cell).iops == (210.0,)
    assert baselines.of("A", cell).n_clients == 2
    assert baselines.of("B", cell).iops == (300.5,)


def test_order_and_case_of_columns_further_columns_and_blank_lines_do_not_matter() -> None:
    header = "IOPS, Run,client,PATTERN,Size,note,Configuration\n"
    text = header + "100,0,c0,RandRead,4096,x,A\n\n 50 ,1,c0,randread,4k,,A\n"
    assert baseline_csv.loads(text).of("A", Cell.parse("4K-randread")).iops == (100.0, 50.0)


def test_a_byte_order_mark_and_windows_line_ends_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "figures.csv"
    path.write_bytes(b"\xef\xbb\xbf" + (HEADER + "A,4K,read,c0,0,7\n").replace("\n", "\r\n").encode())
    assert baseline_csv.read(path).of("A", Cell.parse("4K-read")).iops == (7.0,)


@pytest.mark.parametrize(
    ("rows", "where", "what"),
    [
        ("A,5K,read,c0,0,7", "CSV:2, column size", "'5K' is not a size bin"),
        ("A,big,read,c0,0,7", "CSV:2, column size", "'big' is not a size"),
        ("A,4K,sideways,c0,0,7", "CSV:2, column pattern", "'sideways' is not a pattern"),
        ("A,4K,read,c0,-1,7", "CSV:2, column run", "'-1' is not a run number"),
        ("A,4K,read,c0,0,7\nA,4K,read,c0,1,-7", "CSV:3, column iops", "'-7' is not a rate"),
        ("A,4K,read,c0,0,0", "CSV:2, column iops", "'0' is not a rate"),
        ("A,4K,read,c0,0,nan", "CSV:2, column iops", "'nan' is not a rate"),
        ("A,4K,read,c0,0,many", "CSV:2, column iops", "'many' is not a rate"),
        ("A,4K,read,c0,0,7\n\nA,4K,read,c0,0,8", "CSV:4, column run", "is in line 2 already"),
        ("A,4K,read,c0,0", "CSV:2, column iops", "this field is empty"),
        (
            "A,4K,read,c0,0,7\nA,4K,read,c1,0,7\nA,4K,read,c0,1,7",
            "CSV, column client",
            "run 1 of A 4K-read has no",
        ),
        ("", "CSV", "the file has no figures"),
    ],
)
def test_what_is_wrong_is_said_with_line_and_column(rows: str, where: str, what: str) -> None:
    with pytest.raises(InputError) as caught:
        baseline_csv.loads(HEADER + rows + "\n")
    assert caught.value.where == where
    assert what in caught.value.what
    assert caught.value.remedy


@pytest.mark.parametrize("header", ["", "configuration,size,pattern,client,run\n", HEADER.replace("run", "iops")])
def test_a_header_that_lacks_a_column_is_refused(header: str) -> None:
    with pytest.raises(InputError, match="column"):
        baseline_csv.loads(header + "A,4K,read,c0,0,7\n")


measurements = st.lists(
    st.builds(
        Measured,
        configuration=st.text(st.characters(codec="utf-8", categories=("L", "N", "P")), min_size=1, max_size=6),
        cell=st.sampled_from(CELLS),
        client=st.just("c0"),
        repeat=st.integers(min_value=0, max_value=50),
        iops=st.floats(min_value=1e-6, max_value=1e12),
    ),
    min_size=1,
    max_size=20,
    unique_by=lambda m: (m.configuration, m.cell, m.repeat),
)


@given(measurements)
def test_what_is_written_reads_back_the_same(measured: list[Measured]) -> None:
    assert baseline_csv.loads(baseline_csv.dumps(measured)) == group(measured, source="CSV")


def test_open_baselines_tells_a_store_from_a_csv_by_content(tmp_path: Path, finished_store: Path) -> None:
    csv_file = tmp_path / "looks_like.db"
    csv_file.write_text(HEADER + "A,4K,read,c0,0,7\n")
    assert open_baselines(csv_file).of("A", Cell.parse("4K-read")).iops == (7.0,)
    from_store = open_baselines(finished_store)
    with Store.open(finished_store) as store:
        run = store.run()
        assert from_store == baselines_of(store.samples(run.run_id), source=f"{finished_store}, run {run.run_id}")
    assert open_baselines(finished_store, run.run_id) == from_store
    with pytest.raises(StoreError, match="there is no run"):
        open_baselines(finished_store, "other")
    with pytest.raises(InputError, match="no runs to choose from"):
        open_baselines(csv_file, "other")
    with pytest.raises(InputError, match="No such file"):
        open_baselines(tmp_path / "none")
