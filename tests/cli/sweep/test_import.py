"""`cephfit import`: from files to a run that other commands use, and the commands of docs/how-to-import.md."""

import csv
import json
import math
import re
import shlex
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_outputs import CSV, FIO_2_TEXT, RADOS_READ, fio_2
from click.testing import CliRunner, Result

from cephfit.cli.main import cephfit
from cephfit.core.errors import InputError
from cephfit.core.values.cells import LoadedCell, Pattern
from cephfit.mapper.models.access_weights import interpolated_time
from cephfit.results import open_baselines
from cephfit.results.store.sample_store import Store

ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = (ROOT / "docs" / "how-to-import.md").read_text()
(MAPPING,) = re.findall(r"^```yaml\n(.*?)^```", DOCUMENT, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^cephfit (.*)$", DOCUMENT, re.MULTILINE)
SIZES = (4, 16, 64, 128, 256, 1024)
RATE = {"hdd": 100, "ssd": 300}


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cephfit, list(arguments))


def document(*arguments: str) -> Any:
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output + str(result.exception)
    return json.loads(result.stdout)


def output(path: Path, iops: int, *, at: int = 0, **options: str) -> None:
    """Write fio's JSON of a run of 100 s that ended at ``at``, with exactly these IOPS."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(fio_2(100, iops, **options) | {"timestamp": 1_700_000_000 + at}))


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two configurations in six sizes, both ops and two repeats; and files that a mapping must explain."""
    for name, iops in RATE.items():
        for kib in SIZES:
            for pattern in ("randread", "randwrite"):
                for repeat in range(2):
                    path = tmp_path / "results" / name / f"{pattern}-{kib}k-{repeat}.json"
                    options = {"bs": f"{kib}k", "rw": pattern, "iodepth": "1"}
                    output(path, max(1, iops * 64 // (kib + 60) + repeat), at=repeat, **options)
    for name, iops in (("old", 50), ("new", 60)):
        for host in (1, 2):
            output(tmp_path / "measured" / name / f"host{host}-run0.json", iops * host)
    output(tmp_path / "measured" / "old" / "warmup.json", 7)
    (tmp_path / "measured" / "rados-reads.txt").write_text(RADOS_READ)
    (tmp_path / "names.yaml").write_text(MAPPING)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_of_the_page_run_in_their_order() -> None:
    assert [c.split()[0] for c in COMMANDS] == ["import", "import", "map", "report", "runs", "import"]
    for line in COMMANDS:
        result = call(*shlex.split(line))
        assert result.exit_code == 0, (line, result.output, result.exception)
    assert Path("report.html").read_text().count("Imported figures")


def test_the_table_lists_the_cells_by_their_size() -> None:
    """Also sizes that are loads of their own, whose names begin with another digit."""
    lines = call("import", "results/ssd", "--preview").output.splitlines()
    sizes = [line.split()[1] for line in lines if line.startswith("A ")]
    assert sizes == [f"{kib}K" if kib < 1024 else "1M" for kib in SIZES for _ in range(2)]


def test_files_of_4k_are_not_enough_for_pgbench_as_the_page_says(tmp_path: Path) -> None:
    """The page says: most of the workload is larger, the report works all the same, larger sizes help."""
    for name in RATE:
        for pattern in ("randread", "randwrite"):
            output(tmp_path / "small" / name / f"{pattern}-4k.json", 100, bs="4k", rw=pattern, iodepth="1")
    assert call("import", "small", "--default", "hdd", "--store", "small.sqlite").exit_code == 0
    refused = call("map", "example:pgbench", "--baselines", "small.sqlite")
    assert isinstance(refused.exception, InputError)
    share = re.search(r"(\d+) % of the workload is in accesses more than 8 times larger", str(refused.exception))
    assert share is not None
    assert int(share[1]) > 50
    assert call("report", "--store", "small.sqlite", "-o", "small.html").exit_code == 0
    assert call("import", "results", "--default", "hdd", "--store", "all.sqlite").exit_code == 0
    assert call("map", "example:pgbench", "--baselines", "all.sqlite").exit_code == 0


def test_a_preview_stores_nothing_and_says_what_it_understood() -> None:
    text = call("import", "results", "--default", "hdd", "--preview", "--store", "s.sqlite").output
    assert text.startswith(
        "preview: 48 samples of 2 configurations from 48 files (48 fio's JSON); nothing is stored"
    )
    assert "hdd is called A here" in text
    assert not Path("s.sqlite").exists()


def test_rates_in_the_store_are_those_of_the_files() -> None:
    found = document("import", "results", "--default", "hdd", "--store", "s.sqlite")
    assert len(found["samples"]) == 48
    baselines = open_baselines("s.sqlite")
    assert baselines.configurations == ("A", "ssd")
    for kib in SIZES:
        rates = baselines.loaded["ssd", LoadedCell(kib * 1024, Pattern.RANDREAD)].iops
        expected = 300 * 64 // (kib + 60)
        assert rates == pytest.approx((max(1, expected), max(1, expected + 1)))
    # 4K, 128K and 1M are sizes of the 20 cells; 16K, 64K and 256K are kept next to them.
    assert {str(cell) for name, cell in baselines.cells} == {
        f"{size}-{pattern}" for size in ("4K", "128K", "1M") for pattern in ("randread", "randwrite")
    }


def test_what_other_commands_say_about_an_imported_run() -> None:
    assert call("import", "results", "--default", "hdd", "--store", "s.sqlite").exit_code == 0
    (run,) = document("runs", "list", "--store", "s.sqlite")
    assert run["imported"]
    assert run["samples"]["planned"] == run["samples"]["measured"] == 48
    assert "  imported  " in call("runs", "list", "--store", "s.sqlite").output
    assert "IMPORTED" in call("runs", "show", "latest", "--store", "s.sqlite").output
    mapped = document("map", "example:pgbench", "--baselines", "s.sqlite")
    assert mapped["measured"]["imported"]
    assert mapped["best"] == "ssd"
    assert "IMPORTED" in call("map", "example:pgbench", "--baselines", "s.sqlite").output
    placed = call(
        *("place", "example:pgbench", "--baselines", "s.sqlite", "--price", "hdd=1", "--price", "ssd=4"),
        *("--placement", "A=hdd:3", "--placement", "ssd=ssd:3"),
    )
    assert placed.exit_code == 0, placed.output
    assert "pgbench: ssd" in placed.output
    for file in Path("results").rglob("*.json"):
        file.write_text(file.read_text() + "\n")  # the same figures in other files
    assert call("import", "results", "--default", "hdd", "--store", "s.sqlite").exit_code == 0
    runs = [run["run"] for run in document("runs", "list", "--store", "s.sqlite")]
    compared = call("compare", "--store", "s.sqlite", "--run", runs[0], "--run", runs[1])
    assert compared.exit_code == 0, compared.output
    assert compared.output.count("is imported: cephfit did not measure it") == 2


def test_the_same_file_is_imported_once() -> None:
    assert call("import", "results/ssd", "--store", "s.sqlite").exit_code == 0
    again = call("import", "results/ssd", "--store", "s.sqlite")
    assert isinstance(again.exception, InputError)
    assert "imported already, in run imported-" in str(again.exception)
    Path("results/ssd/randread-4k-0.json").rename("results/hdd/renamed.json")
    found = document("import", "results/hdd", "--store", "s.sqlite")
    (lost,) = found["not_understood"]
    assert lost["file"] == "results/hdd/renamed.json"
    assert "imported already" in lost["reason"]
    assert len(document("runs", "list", "--store", "s.sqlite")) == 2


@pytest.mark.parametrize("store", ["empty.sqlite", "sqlite:///new.sqlite"])
def test_an_empty_file_and_a_new_url_are_new_stores(store: str) -> None:
    Path("empty.sqlite").touch()
    preview = call("import", "results/ssd", "--store", store, "--preview")
    assert preview.exit_code == 0 and "nothing is stored" in preview.output
    assert Path("empty.sqlite").stat().st_size == 0 and not Path("new.sqlite").exists()
    assert document("import", "results/ssd", "--store", store)["run"]
    (listed,) = document("runs", "list", "--store", store)
    assert listed["imported"]


def test_a_failed_import_leaves_the_store_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    from sqlalchemy.exc import OperationalError

    from cephfit.results.store import sample_store

    assert call("import", "results/ssd", "--store", "s.sqlite").exit_code == 0
    kept, calls = sample_store._kept_output, []

    def fail(*arguments: Any) -> int:
        calls.append(arguments)
        if len(calls) == 20:
            raise OperationalError("disk full", {}, Exception("disk full"))
        return kept(*arguments)

    monkeypatch.setattr(sample_store, "_kept_output", fail)
    assert call("import", "results/hdd", "--store", "s.sqlite").exit_code != 0
    assert len(calls) == 20
    with Store.open("s.sqlite") as store:
        (run,) = store.runs()
        assert len(store.samples(run.run_id)) == 24


def test_the_mapping_of_the_page_names_clients_repeats_and_configurations() -> None:
    found = document("import", "measured", "--mapping", "names.yaml", "--preview")
    of_fio = {(s["configuration"], s["client"], s["repeat"]) for s in found["samples"] if s["nbytes"] == 4096}
    assert of_fio == {("A", "1", 0), ("A", "2", 0), ("new", "1", 0), ("new", "2", 0)}
    (rados,) = [s for s in found["samples"] if s["nbytes"] == 4 << 20]
    assert (rados["configuration"], rados["pattern"]) == ("new", "randread")
    (lost,) = found["not_understood"]
    assert lost["reason"] == "left out by names.yaml:3"
    (note,) = found["notes"]
    assert note.startswith("names.yaml:6 of the mapping matches no")


def test_clients_of_a_repeat_are_summed() -> None:
    assert call("import", "measured", "--mapping", "names.yaml", "--store", "s.sqlite").exit_code == 0
    (baseline,) = [b for (name, _), b in open_baselines("s.sqlite").cells.items() if name == "A"]
    assert (baseline.iops, baseline.n_clients) == (pytest.approx((150.0,)), 2)


def test_reads_are_repeats_of_each_other_whatever_a_mapping_says_about_flushes() -> None:
    Path("synced.yaml").write_text("files: [{match: 'k-1', sync: fsync}]\n")
    found = document("import", "results/ssd", "--mapping", "synced.yaml", "--store", "s.sqlite")
    reads = {
        (s["load"], s["repeat"]) for s in found["samples"] if (s["nbytes"], s["pattern"]) == (4096, "randread")
    }
    assert reads == {("", 0), ("", 1)}


def test_a_repeat_that_two_files_state_is_named_and_not_counted_twice() -> None:
    Path("names.yaml").write_text("files: [{match: 'randread-4k', repeat: 3}]\n")
    found = document("import", "results/ssd", "--mapping", "names.yaml", "--preview")
    (lost,) = found["not_understood"]
    assert "repeat 3 of A 4K-randread on client is in results/ssd/randread-4k-0.json" in lost["reason"]


def test_sizes_of_no_bin_alone_can_be_mapped_by_interpolation() -> None:
    for file in Path("results").rglob("*.json"):
        if not any(f"-{kib}k-" in file.name for kib in (16, 64, 256)):
            file.unlink()
    assert call("import", "results", "--default", "hdd", "--store", "s.sqlite").exit_code == 0
    result = call("map", "example:pgbench", "--baselines", "s.sqlite")
    assert result.exit_code == 0, result.output + str(result.exception)
    assert "Best: ssd" in result.output
    assert call("report", "--store", "s.sqlite", "-o", "r.md").exit_code == 0


def test_a_table_of_cells_has_the_sizes_that_were_measured(tmp_path: Path) -> None:
    """Sizes of no bin are loads of their own; the folder of reports has a page for each."""
    assert call("import", "results/ssd", "--store", "s.sqlite").exit_code == 0
    found = call("report", "--store", "s.sqlite", "--folder", "pages")
    assert found.exit_code == 0, found.output + str(found.exception)
    with Path("pages/cells.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {(row["load"], row["size"]) for row in rows} == {
        ("" if kib in (4, 128, 1024) else f"{kib}K", "1M" if kib == 1024 else f"{kib}K") for kib in SIZES
    }
    (rate,) = [row["iops"] for row in rows if (row["size"], row["pattern"]) == ("64K", "randread")]
    assert float(rate) == pytest.approx(300 * 64 // 124 + 0.5)


def test_a_csv_of_rates_gives_the_same_baselines_as_the_file_itself() -> None:
    Path("rates.csv").write_text(CSV)
    assert call("import", "rates.csv", "--store", "s.sqlite").exit_code == 0
    assert dict(open_baselines("s.sqlite").cells) == dict(open_baselines("rates.csv").cells)
    Path("sums.csv").write_text(CSV.replace("iodepth", "clients"))
    assert call("import", "sums.csv", "--store", "t.sqlite").exit_code == 0
    assert {b.n_clients for b in open_baselines("t.sqlite").cells.values()} == {8}


def test_a_column_of_clients_is_the_same_with_a_row_for_each_of_them_and_with_their_sum() -> None:
    header = "configuration,size,pattern,client,run,iops,iodepth,clients"
    Path("each.csv").write_text(
        "\n".join([header, *(f"A,4K,randread,c{i},{r},50,2,4" for i in range(4) for r in (0, 1))])
    )
    Path("sums.csv").write_text("\n".join([header, *(f"A,4K,randread,all,{r},200,2,4" for r in (0, 1))]))
    for name in ("each", "sums"):
        assert call("import", f"{name}.csv", "--store", f"{name}.sqlite").exit_code == 0
        found = open_baselines(f"{name}.sqlite")
        assert [(b.iops, b.n_clients) for b in found.cells.values()] == [((200.0, 200.0), 4)]
        assert call("report", "--store", f"{name}.sqlite", "-o", "cells.csv", "--what", "cells").exit_code == 0
        (row,) = csv.DictReader(Path("cells.csv").read_text().splitlines())
        assert (row["clients"], float(row["iops"])) == ("4", 200.0)
        assert float(row["latency_ms"]) == pytest.approx(1000 * 4 * 2 / 200), "Little's law: 8 in flight"


def test_files_that_are_no_benchmark_are_named_and_the_others_are_imported() -> None:
    Path("results/hdd/notes.txt").write_text("we changed the cables\n")
    Path("results/hdd/picture.png").write_bytes(b"\x89PNG\0\0")
    Path("results/hdd/normal.txt").write_text(FIO_2_TEXT)
    text = call("import", "results", "--default", "hdd", "--store", "s.sqlite").output
    assert "49 samples" in text
    assert re.search(r"results/hdd/notes.txt +- +not the output of a benchmark that is known", text)
    assert re.search(r"results/hdd/picture.png +- +not a text file", text)


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("nowhere",), "there is no such file or folder"),
        (("results", "--default", "nvme"), "there is no configuration 'nvme'"),
        (("names.yaml",), "nothing in these files is the result of a benchmark"),
        (("results", "--name", "a b"), "cannot be a name"),
        (("results", "--format", "rbd-bench"), "there are no figures of rbd bench in it"),
    ],
)
def test_wrong_inputs_are_refused_in_words(arguments: tuple[str, ...], what: str) -> None:
    result = call("import", *arguments, "--store", "s.sqlite")
    assert isinstance(result.exception, InputError)
    assert what in str(result.exception)


def test_names_that_a_store_cannot_have_are_changed_and_never_merged() -> None:
    output(Path("odd/three copies/a.json"), 100)
    found = document("import", "odd", "results/hdd", "--default", "hdd", "--preview")
    assert {s["configuration"] for s in found["samples"]} == {"A", "three-copies"}
    output(Path("odd/three-copies/a.json"), 101)
    result = call("import", "odd", "results/hdd", "--default", "hdd", "--preview")
    assert "would both be called three-copies" in str(result.exception)


def test_a_folder_of_cbt(tmp_path: Path) -> None:
    """The layout of cbt's benchmark.py: ARCHIVE/results/ITERATION/id-HASH/.../output.N.HOST."""
    for archive, iops in (("three-copies", 100), ("erasure", 70)):
        for iteration in range(2):
            run = tmp_path / "cbt" / archive / "results" / f"{iteration:08}" / "id-1a2b3c4d" / "randread"
            for host in ("h1", "h2"):
                output(run / f"output.0.{host}", iops + iteration + (host == "h2"), at=iteration)
                (run / f"json_output.0.{host}").write_text((run / f"output.0.{host}").read_text())
            prefill = run.parent / "prefill" / "output.0.h1"
            output(prefill, 5)
    found = document("import", "cbt", "--default", "three-copies", "--store", "s.sqlite")
    assert {(s["configuration"], s["client"], s["repeat"]) for s in found["samples"]} == {
        (name, f"h{host}.0", repeat) for name in ("A", "erasure") for host in (1, 2) for repeat in range(2)
    }
    reasons = [lost["reason"] for lost in found["not_understood"]]
    assert sum("the same run as output.0" in reason for reason in reasons) == 8
    assert sum("prefill" in reason for reason in reasons) == 4
    (baseline,) = [b for (name, _), b in open_baselines("s.sqlite").cells.items() if name == "A"]
    assert (baseline.iops, baseline.n_clients) == (pytest.approx((201.0, 203.0)), 2)


@pytest.mark.takes(seconds=20)
def test_thousands_of_files_take_seconds(tmp_path: Path) -> None:
    for i in range(1000):
        output(tmp_path / "many" / f"c{i % 5}" / f"{i}.json", 100 + i, at=i)
    begun = time.monotonic()
    result = call("import", "many", "--store", "s.sqlite")
    assert result.exit_code == 0, result.output
    assert time.monotonic() - begun < 20
    with Store.open("s.sqlite") as store:
        assert len(store.samples(store.run().run_id)) == 1000


def test_seventeen_sizes_are_interpolated_as_time_per_access_linear_in_size() -> None:
    """Each size is left out in turn; the truth is a fixed part, bandwidth, and a step at 128K."""
    kibs = [2**i for i in range(2, 16)] + [12, 48, 192]
    for number, pattern in enumerate(Pattern):
        for kib in kibs:
            us = 400 * (1 + number) + 8 * kib * (1.1 if kib > 128 else 1.0)
            options = {"bs": f"{kib}k", "rw": pattern.value, "iodepth": "1"}
            output(Path(f"sizes/A/{pattern}-{kib}k.json"), max(1, round(1e6 / us)), **options)
    assert call("import", "sizes", "--store", "s.sqlite").exit_code == 0
    loaded = open_baselines("s.sqlite").loaded
    assert len(loaded) == 17 * 4
    factors = []
    for pattern in Pattern:
        cells = sorted(cell for _, cell in loaded if cell.pattern is pattern)
        for left in cells[1:-1]:
            rest = [cell for cell in cells if cell != left]
            sizes = np.array([cell.nbytes for cell in rest], dtype=np.float64)
            times = np.array([1 / loaded["A", cell].iops[0] for cell in rest])
            found = interpolated_time(left.nbytes, sizes, times)
            assert found == pytest.approx(np.interp(left.nbytes, sizes, times))
            factors.append(math.exp(abs(math.log(found * loaded["A", left].iops[0]))))
    assert len(factors) == 15 * 4
    assert np.median(factors) < 1.01
    assert max(factors) < 1.35
