"""Baselines as CSV."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cephfit.core.errors import InputError, StoreError
from cephfit.core.protocols import NullProgress
from cephfit.core.values.cells import CELLS, Cell, LoadedCell, Pattern
from cephfit.core.values.sample import State
from cephfit.results import open_baselines
from cephfit.results.statistics.sample_baselines import Measured, baselines_of, group
from cephfit.results.store.sample_store import Store
from cephfit.results.tables import baseline_csv
from cephfit.results.tables.sample_tables import samples_csv
from cephfit.sweep.declaration.sweep_file import parse_sweep
from cephfit.sweep.execution.runner import run_sweep
from cephfit.targets.simulated import SimulatedTarget, Simulation

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
        ("A,5000,read,c0,0,7", "CSV:2, column size", "'5000' is not a multiple of 512 bytes"),
        ("A,0,read,c0,0,7", "CSV:2, column size", "'0' is not a multiple of 512 bytes"),
        ("A,big,read,c0,0,7", "CSV:2, column size", "'big' is not a size"),
        ("A,4K,sideways,c0,0,7", "CSV:2, column pattern", "'sideways' is not a pattern"),
        ("A,4K,read,c0,-1,7", "CSV:2, column run", "'-1' is not a run number"),
        ("A,4K,read,c0,0,7\nA,4K,read,c0,1,-7", "CSV:3, column iops", "'-7' is not a rate"),
        ("A,4K,read,c0,0,0", "CSV:2, column iops", "'0' is not a rate"),
        ("A,4K,read,c0,0,nan", "CSV:2, column iops", "'nan' is not a rate"),
        ("A,4K,read,c0,0,1e300", "CSV:2, column iops", "'1e300' is not a rate"),
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


DEPTHS, ALIGNMENTS, SYNCS = (1, 4, 16), (0, 4096, 65536), ("", "fsync", "every 8")


@st.composite
def measurements(draw: st.DrawFn) -> list[Measured]:
    """Rates of one or two clients: the own load in whole, and others of any size."""
    names = st.sampled_from(["A", "B", "größer, kleiner", 'with "quotes"'])
    own = (draw(st.sampled_from(DEPTHS)), draw(st.sampled_from(ALIGNMENTS)), draw(st.sampled_from(SYNCS)))
    clients = ("c0", "c1")[: draw(st.integers(1, 2))]
    cells = draw(st.sets(st.tuples(names, st.sampled_from(CELLS)), min_size=1, max_size=6))
    places = {(name, under(cell.size.benchmark_nbytes, cell.pattern, *own)): "" for name, cell in cells}
    further = st.builds(
        under,
        st.integers(1, 10**6).map(lambda n: 512 * n),
        st.sampled_from(Pattern),
        st.sampled_from(DEPTHS),
        st.sampled_from(ALIGNMENTS),
        st.sampled_from(SYNCS),
    )
    for place in draw(st.sets(st.tuples(names, further), max_size=6)):
        places.setdefault(place, "other")
    iops = st.floats(min_value=1e-6, max_value=1e12)
    return [
        Measured(name, found.bin_cell, client, repeat, draw(iops), found, load, len(clients))
        for (name, found), load in places.items()
        for repeat in draw(st.sets(st.integers(0, 50), min_size=1, max_size=3))
        for client in clients
    ]


def under(nbytes: int, pattern: Pattern, iodepth: int, align: int, sync: str) -> LoadedCell:
    return LoadedCell.measured(nbytes, pattern, iodepth=iodepth, align_nbytes=align, sync=sync)


@given(measurements())
def test_what_is_written_reads_back_the_same(measured: list[Measured]) -> None:
    assert baseline_csv.loads(baseline_csv.dumps(measured)) == group(measured, source="CSV")


SIZES = ("4K", "16K", "24K", "64K", "128K", "512K", "1M")


def several_loads() -> str:
    """Seven sizes at three depths, two configurations and runs; 128K-randwrite also aligned to 4K or committed."""
    lines = [HEADER.strip() + ",iodepth,clients,sync,align"]
    for number, (name, size, depth, run) in enumerate(itertools.product("AB", SIZES, (1, 4, 16), (0, 1))):
        lines += [f"{name},{size},{pattern},vm1,{run},{100 + number},{depth},1,,own" for pattern in Pattern]
    lines += [f"{name},128K,randwrite,vm1,{run},{21 + run},1,1,,4K" for name in "AB" for run in (0, 1)]
    lines += [f"{name},128K,randwrite,vm1,{run},{12 + run},1,1,every 8,own" for name in "AB" for run in (0, 1)]
    return "\n".join(lines)


def test_rows_of_any_size_and_load_are_loaded_and_cells_are_those_of_the_own_load() -> None:
    found = baseline_csv.loads(several_loads())
    assert len(found.loaded) == 2 * (7 * 3 * 4 + 2)
    assert len(found.cells) == 2 * 3 * 4, "of 4K, 128K and 1M at depth 1"
    assert found.configurations == ("A", "B")
    assert found.of("A", Cell.parse("4K-read")).iops == (100.0, 101.0)
    assert found.of("A", LoadedCell(4096, Pattern.READ, 16)).iops == (104.0, 105.0)
    assert found.of("A", LoadedCell(24576, Pattern.READ)).iops == (112.0, 113.0)
    assert found.of("A", LoadedCell(24576, Pattern.READ)).cell == Cell.parse("32K-read")
    large = Cell.parse("128K-randwrite")
    assert found.of("B", large) == found.of("B", LoadedCell(131072, Pattern.RANDWRITE))
    assert found.of("B", LoadedCell(131072, Pattern.RANDWRITE, align_nbytes=4096)).iops == (21.0, 22.0)
    assert found.of("B", LoadedCell(131072, Pattern.RANDWRITE, sync="every 8")).iops == (12.0, 13.0)
    with pytest.raises(InputError, match=r"24K-read \(depth 2\) under configuration A"):
        found.of("A", LoadedCell(24576, Pattern.READ, 2))


def test_without_columns_of_loads_depth_1_and_own_alignment_are_assumed() -> None:
    found = baseline_csv.loads(HEADER + "A,4K,randread,vm1,0,100\nA,24K,read,vm1,0,50\n")
    assert set(found.loaded) == {("A", LoadedCell(4096, Pattern.RANDREAD)), ("A", LoadedCell(24576, Pattern.READ))}
    assert set(found.cells) == {("A", Cell.parse("4K-randread"))}


def test_a_file_without_the_sizes_of_the_bins_has_only_loaded_cells() -> None:
    found = baseline_csv.loads(HEADER + "A,24K,randread,vm1,0,100\nB,24K,randread,vm1,0,90\n")
    assert not found.cells
    assert found.configurations == ("A", "B")
    assert found.of("B", LoadedCell(24576, Pattern.RANDREAD)).iops == (90.0,)
    assert "only models that interpolate" in " ".join(found.notes)
    with pytest.raises(InputError, match="no rate has one of the sizes 4K, 32K, 128K, 1M, 32M"):
        found.of("A", Cell.parse("32K-randread"))


def test_a_file_of_other_sizes_without_the_default_says_which_configurations_there_are() -> None:
    found = baseline_csv.loads(HEADER + "B,24K,randread,vm1,0,90\n")
    with pytest.raises(InputError, match="there are no figures of A") as caught:
        found.of("A", Cell.parse("32K-randread"))
    assert "there are B" in caught.value.remedy


LOADED = HEADER.strip() + ",iodepth,clients,sync,align\n"


@pytest.mark.parametrize(
    ("row", "column", "what", "remedy"),
    [
        ("0,1,,", "iodepth", "'0' is not a number from 1", "in flight"),
        (f"{'9' * 400},1,,", "iodepth", "is not a number from 1 to 999999", "in flight"),
        (f"1,1,every {'9' * 400},", "sync", "is not a way to commit writes", "every N"),
        (f"1,1,,{'9' * 400}", "align", "is not a size", "4096"),
        ("deep,1,,", "iodepth", "'deep' is not a number from 1", "in flight"),
        ("1,0,,", "clients", "'0' is not a number from 1", "ran together"),
        ("1,1,flush,", "sync", "'flush' is not a way to commit writes", "fsync, dsync or every N"),
        ("1,1,every 0,", "sync", "'every 0' is not a way to commit writes", "every N"),
        ("1,1,,3000", "align", "'3000' is not a multiple of 512 bytes", "own is the block size"),
        ("1,1,,aligned", "align", "'aligned' is not a size", "4096"),
    ],
)
def test_what_is_wrong_about_a_load_is_said(row: str, column: str, what: str, remedy: str) -> None:
    with pytest.raises(InputError) as caught:
        baseline_csv.loads(f"{LOADED}A,4K,randwrite,c0,0,7,1,1,,\nA,24K,randwrite,c0,0,7,{row}\n")
    assert caught.value.where == f"CSV:3, column {column}"
    assert what in caught.value.what
    assert remedy in caught.value.remedy


def test_rows_that_differ_in_the_load_are_not_duplicates() -> None:
    rows = ["1,1,,", "4,1,,", "1,1,fsync,", "1,1,,4K"]
    text = LOADED + "".join(f"A,64K,randwrite,c0,0,{i + 1},{row}\n" for i, row in enumerate(rows))
    assert [b.iops for b in baseline_csv.loads(text).loaded.values()] == [(1.0,), (2.0,), (3.0,), (4.0,)]
    with pytest.raises(InputError, match=r"64K-randwrite \(depth 4\), client c0, run 0 is in line 3 already"):
        baseline_csv.loads(text + "A,64K,randwrite,c0,0,9,4,1,,own\n")


def test_ways_that_do_the_same_count_once_and_the_own_load_first() -> None:
    """Aligned to 8K a 4K block is aligned to its size, and reads have nothing to commit."""
    text = LOADED + (
        "A,4K,randread,c0,0,1,1,1,fsync,\nA,4K,randread,c0,0,2,1,1,,8K\nA,4K,randread,c0,0,3,1,1,,own\n"
        "A,4K,randwrite,c0,0,4,1,1,,own\n"
    )
    found = baseline_csv.loads(text)
    assert found.of("A", Cell.parse("4K-randread")).iops == (3.0,)
    assert {under: b.iops for (_, under), b in found.loaded.items()} == {
        LoadedCell(4096, Pattern.RANDREAD): (3.0,),
        LoadedCell(4096, Pattern.RANDWRITE): (4.0,),
    }


def test_the_alignment_of_most_cells_is_that_of_the_own_load() -> None:
    rows = [(size, "4K", 1) for size in ("4K", "32K", "128K")] + [("128K", "own", 2), ("1M", "64K", 3)]
    text = LOADED + "".join(f"A,{size},randwrite,c0,0,{iops},1,1,,{align}\n" for size, align, iops in rows)
    found = baseline_csv.loads(text)
    assert {str(cell): b.iops for (_, cell), b in found.cells.items()} == {
        "4K-randwrite": (1.0,),
        "32K-randwrite": (1.0,),
        "128K-randwrite": (1.0,),
    }
    assert len(found.loaded) == 5


def test_rates_with_another_number_of_clients_are_not_mixed_in() -> None:
    text = LOADED + (
        "A,4K,read,c0,0,10,1,2,,\nA,4K,read,c1,0,11,1,2,,\nA,32K,read,all,0,40,1,2,,\n"
        "A,4K,read,c0,0,15,4,1,,\nB,4K,read,c0,0,9,1,1,,\n"
    )
    found = baseline_csv.loads(text)
    assert {str(under): (b.iops, b.n_clients) for (_, under), b in found.loaded.items()} == {
        "4K-read": ((21.0,), 2),
        "32K-read": ((40.0,), 2),
    }
    assert found.cells["B", Cell.parse("4K-read")].n_clients == 1, "predictions omit B by name"
    assert found.notes == ("omitted: the rates with 1 clients; the others are with 2 clients",)
    with pytest.raises(InputError, match="rows of 2 clients, and this field is 4"):
        baseline_csv.loads(LOADED + "A,4K,read,c0,0,10,1,4,,\nA,4K,read,c1,0,11,1,4,,\n")


def test_rows_of_other_named_loads_are_read_if_their_depth_is_known() -> None:
    rows = "A,4K,read,c0,0,10,{},1\nA,4K,read,c0,0,40,{},4\n".format("", "deep")
    header = HEADER.strip() + ",load,iodepth\n"
    own, deep = baseline_csv.loads(header + rows), baseline_csv.loads(header + rows, load="deep")
    assert own.loaded == deep.loaded
    assert [b.iops for b in own.cells.values()] == [(10.0,)]
    assert [b.iops for b in deep.cells.values()] == [(40.0,)]
    unknown = baseline_csv.loads(HEADER.strip() + ",load\nA,4K,read,c0,0,10,\nA,4K,read,c0,0,40,deep\n")
    assert [b.iops for b in unknown.loaded.values()] == [(10.0,)]


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


@pytest.mark.parametrize("text", ["", "\n", "abc\0def,\n", "x" * 200_000])
def test_a_file_of_another_kind_is_called_so(text: str) -> None:
    with pytest.raises(InputError, match="neither a store nor a CSV of baselines"):
        baseline_csv.loads(text)


def test_exported_samples_of_all_loads_give_the_same_rates_as_their_store(small_text: str, store: Store) -> None:
    """Also samples that were tried again, and loads that are no baselines."""
    loads = "  loads:\n    deep: {iodepth: 16}\n    durable: {sync: fsync, patterns: [randwrite]}\n"
    loads += "    slow: {rate_iops: 5}\n"
    sweep = parse_sweep(small_text + loads, file="small.yaml")
    run = run_sweep(sweep, SimulatedTarget(Simulation(failing=0.1)), store, NullProgress(), resume=None)
    samples = store.samples(run.run_id)
    assert any(s.state is not State.OK for s in samples)
    stored, exported = baselines_of(samples, source=""), baseline_csv.loads(samples_csv(samples, run))
    assert exported.cells == stored.cells
    assert {place: found.iops for place, found in exported.loaded.items()} == {
        place: found.iops for place, found in stored.loaded.items()
    }
    assert {cell.iodepth for _, cell in exported.loaded} == {4, 16}


RATES = "A,4K,randread,c,0,1000.5\nA,4K,randread,c,1,990\nB,4K,randread,c,0,1500\nB,4K,randread,c,1,1510\n"


@pytest.mark.parametrize("separator", [";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_tables_of_spreadsheets_give_the_same_rates(tmp_path: Path, separator: str, encoding: str) -> None:
    path = tmp_path / "rates.csv"
    path.write_text((HEADER + RATES).replace(",", separator), encoding=encoding)
    assert baseline_csv.read(path).cells == baseline_csv.loads(HEADER + RATES).cells


def test_a_mark_of_simulated_figures_is_seen_with_every_separator(tmp_path: Path) -> None:
    path = tmp_path / "rates.csv"
    path.write_text("configuration;size;pattern;client;run;iops;simulated\nA;4K;randread;c;0;1000;true\n")
    assert baseline_csv.is_marked_simulated(path)


def test_a_thousands_separator_is_not_read_as_the_end_of_the_number() -> None:
    with pytest.raises(InputError) as refused:
        baseline_csv.loads(HEADER + "A,4K,randread,c,0,1,000\n")
    assert refused.value.where == "CSV:2" and "7 fields" in refused.value.what
    assert "1000, not 1,000" in refused.value.remedy
    assert baseline_csv.loads(HEADER + "A,4K,randread,c,0,1000,,\n").cells, "empty fields at the end are no values"


def test_a_decimal_comma_is_refused_with_the_right_form() -> None:
    with pytest.raises(InputError) as refused:
        baseline_csv.loads((HEADER + "A,4K,randread,c,0,1000.5\n").replace(",", ";").replace(".", ","))
    assert "'1000,5' is not a rate" in refused.value.what and "decimal point" in refused.value.remedy


def test_ignored_columns_are_named_because_they_may_be_misspelt() -> None:
    notes = baseline_csv.loads("io_depth," + HEADER + "16,A,4K,randread,c,0,1000\n").notes
    assert [note for note in notes if note.startswith("ignored: the columns io_depth;")]
    assert not baseline_csv.loads(HEADER + RATES).notes
