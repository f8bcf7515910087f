"""`cephfit map` as a person and a program meet it."""

import csv
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from cephfit.cli.main import cephfit
from cephfit.cli.predict.map_output import print_predictions
from cephfit.core.errors import InputError
from cephfit.core.profile_files import read_profile
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, SIZE_BINS, Cell, LoadedCell, Op, Pattern
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import Metrics, Run, Sample, SampleKey, State
from cephfit.mapper import predictor
from cephfit.mapper.absolute_rates.supply import supply_or_reason
from cephfit.results import open_baselines
from cephfit.results.store.sample_store import Store

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
PGBENCH = str(EXAMPLES / "profiles" / "pgbench.json")


def call(*arguments: str) -> Result:
    return CliRunner().invoke(cephfit, ["map", *arguments], catch_exceptions=True)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A finished run of the default, the default again, and a configuration half as fast in every cell."""
    path = tmp_path / "results.sqlite"
    with Store.open(path, create=True) as opened:
        opened.add_run(Run("r1", "tiny", "", "0" * 64, "simulated", 1, 1))
        for name, factor in {"A": 1.0, "A-again": 1.0, "slow": 0.5}.items():
            for cell in CELLS:
                for repeat, wobble in enumerate((0.99, 1.01)):
                    opened.add_samples("r1", [_sample(name, cell, repeat, 100 * factor * wobble)], fio_json=None)
    return path


def _sample(configuration: str, cell: Cell, repeat: int, iops: float) -> Sample:
    nbytes_per_s = iops * cell.size.benchmark_nbytes
    metrics = Metrics(iops, nbytes_per_s, max(1, round(iops)), 10**9, 1e9 / iops)
    return Sample(SampleKey(configuration, cell, "c0", repeat), State.OK, metrics, 0, 1)


def test_a_csv_is_mapped_and_the_answer_comes_first() -> None:
    answer = call(str(EXAMPLES / "half-and-half.json"), "--baselines", str(EXAMPLES / "ranks-differ.csv"))
    assert answer.exit_code == 0, answer.output
    assert re.search(r"^Best: fast-large, \+28\.9 %", answer.output, re.MULTILINE)
    assert re.search(r"^Worst: fast-small, -24\.1 %", answer.output, re.MULTILINE)
    assert "adds up as time" in answer.output


def test_formula_2_1_ranks_the_same_csv_the_other_way_and_says_that_it_adds_rates() -> None:
    arguments = (str(EXAMPLES / "half-and-half.json"), "--baselines", str(EXAMPLES / "ranks-differ.csv"))
    answer = call(*arguments, "--model", "meyer")
    assert answer.exit_code == 0, answer.output
    assert re.search(r"^Best: fast-small, \+37\.5 %", answer.output, re.MULTILINE)
    assert "adds relative rates, not time" in answer.output


def test_a_prediction_by_a_model_of_a_later_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    baselines = open_baselines(str(EXAMPLES / "ranks-differ.csv"))
    profile = read_profile(EXAMPLES / "half-and-half.json")
    found = predictor().predict(profile, baselines)
    print_predictions(replace(found, model="later"), [], supply_or_reason(profile, baselines))
    assert "Model later: a model that this version of cephfit does not know" in capsys.readouterr().out


@pytest.mark.parametrize("model", ["time", "meyer", "meyer-random", "meyer-sequential"])
def test_json_is_one_document_with_the_promised_keys(store: Path, model: str) -> None:
    answer = call(PGBENCH, "--baselines", str(store), "--model", model, "--json")
    assert answer.exit_code == 0, answer.output
    document = json.loads(answer.output)
    assert document["model"] == model
    assert (document["best"], document["worst"]) == ("A", "slow")
    verdicts = {p["configuration"]: p["verdict"] for p in document["predictions"]}
    assert verdicts == {"A": "default", "A-again": "not distinguishable", "slow": "worse"}
    slow = document["predictions"][-1]
    assert slow["relative"] == pytest.approx(50)
    assert slow["low"] < slow["relative"] < slow["high"]


def test_profile_and_predictions_are_kept_in_the_store_for_the_report(store: Path) -> None:
    document = json.loads(call(PGBENCH, "--baselines", str(store), "--json").output)
    assert document.pop("measured")["run"] == "r1", "the origin of the figures is stored too"
    with Store.open(store) as opened:
        kept = {key: value for key, value in document.items() if key not in ("demand", "supply", "fit", "use")}
        assert opened.document("r1", "predictions") == kept
        assert opened.document("r1", "profile")["name"] == "pgbench"


def test_no_save_keeps_nothing(store: Path) -> None:
    assert call(PGBENCH, "--baselines", str(store), "--no-save").exit_code == 0
    with Store.open(store) as opened:
        assert opened.document("r1", "predictions") is None


def test_a_csv_cannot_keep_predictions() -> None:
    arguments = (str(EXAMPLES / "half-and-half.json"), "--baselines", str(EXAMPLES / "ranks-differ.csv"))
    answer = call(*arguments, "--save")
    assert answer.exit_code == 2
    assert "--save needs a store" in answer.output


def test_figures_without_the_default_are_refused_by_its_name(tmp_path: Path) -> None:
    text = (EXAMPLES / "ranks-differ.csv").read_text()
    (tmp_path / "b.csv").write_text(text.replace("\nA,", "\nbase,"))
    result = call(str(EXAMPLES / "half-and-half.json"), "--baselines", str(tmp_path / "b.csv"))
    assert isinstance(result.exception, InputError)
    assert "no figures of A, the default" in str(result.exception)
    assert "base" in str(result.exception), "it names those that are there"


def test_a_cell_without_baseline_is_named() -> None:
    answer = call(PGBENCH, "--baselines", str(EXAMPLES / "ranks-differ.csv"))
    assert isinstance(answer.exception, InputError)
    assert "no baseline for 4K-read under configuration A" in str(answer.exception)


COUNTED = (
    b'{"schema_version": 1, "accesses": {"read": {"4K": %s}, "write": {}}, "random": {"read": 1, "write": 0}}'
)


@pytest.mark.parametrize(
    "content",
    [
        *(b"\xff\xfe\x00", b"{", b"[]", b'{"schema_version": 99}', COUNTED % b"NaN", b"[" * 100_000),
        *(COUNTED % (b"1" + digits * b"0") for digits in (19, 400, 5000)),
    ],
    ids=range(9),
)
def test_a_file_that_is_no_profile_is_refused_by_name(tmp_path: Path, content: bytes, store: Path) -> None:
    path = tmp_path / "trace.bin"
    path.write_bytes(content)
    answer = call(str(path), "--baselines", str(store))
    assert isinstance(answer.exception, InputError)
    assert "trace.bin" in str(answer.exception)


def test_a_profile_that_is_not_there_is_named(store: Path) -> None:
    answer = call("absent.json", "--baselines", str(store))
    assert isinstance(answer.exception, InputError)
    assert "absent.json" in str(answer.exception)


def traced(tmp_path: Path, seconds: float) -> str:
    """The example workload, traced for so long."""
    profile = replace(read_profile(Path(PGBENCH)), description={"duration_seconds": seconds})
    path = tmp_path / "traced.json"
    path.write_text(profile.dumps())
    return str(path)


def test_the_first_line_says_whether_the_workload_fits(store: Path, tmp_path: Path) -> None:
    """All cells of the default serve 100/s, so every mix is served at 100/s."""
    n_accesses = read_profile(Path(PGBENCH)).n_accesses
    for mean, says in (
        (10.0, "pgbench: fits A 10 times over (mean 10.0/s; A serves 100/s, "),
        (5000.0, "pgbench: does not fit: needs 5,000/s, the best (A) serves 100/s ("),
    ):
        answer = call(traced(tmp_path, n_accesses / mean), "--baselines", str(store))
        assert answer.exit_code == 0, answer.output
        assert answer.output.startswith(says)
        assert "serves per second" in answer.output
    untimed = call(PGBENCH, "--baselines", str(store))
    assert untimed.output.startswith("pgbench: cannot tell whether it fits: the profile has no duration")
    (head,) = [line for line in untimed.output.splitlines() if line.startswith("configuration ")]
    assert "serves per second" in head and "headroom" not in head


def test_json_has_demand_and_supply(store: Path, tmp_path: Path) -> None:
    n_accesses = read_profile(Path(PGBENCH)).n_accesses
    profile = traced(tmp_path, n_accesses / 10)
    document = json.loads(call(profile, "--baselines", str(store), "--json").output)
    assert document["demand"]["accesses_per_s"] == pytest.approx(10)
    by_name = {row["configuration"]: row for row in document["supply"]}
    assert by_name["slow"]["most"]["value"] == pytest.approx(50)
    assert by_name["slow"]["headroom"]["value"] == pytest.approx(5)
    assert by_name["slow"]["most"]["low"] < 50 < by_name["slow"]["most"]["high"]
    assert document["fit"]["verdict"] == "fits"


def test_place_and_the_report_compare_demand_with_supply(store: Path, tmp_path: Path) -> None:
    n_accesses = read_profile(Path(PGBENCH)).n_accesses
    profile = traced(tmp_path, n_accesses / 10)
    page, table = tmp_path / "r.html", tmp_path / "p.csv"
    for file, what in ((page, ()), (table, ("--what", "predictions"))):
        arguments = ["report", "--store", str(store), "--profile", profile, "-o", str(file), *what]
        written = CliRunner().invoke(cephfit, arguments)
        assert written.exit_code == 0, written.output
    html = page.read_text()
    assert "<li>Fits A 10 times over (mean 10.0/s; A serves 100/s, " in html
    assert "headroom 5.0 x" in html
    with table.open() as file:
        rows = {row["configuration"]: row for row in csv.DictReader(file)}
    assert float(rows["slow"]["serves_per_s"]) == pytest.approx(50)
    assert float(rows["slow"]["headroom"]) == pytest.approx(5)
    assert float(rows["slow"]["needs_per_s"]) == pytest.approx(10)
    figures = EXAMPLES / "ranks-differ.csv"
    half = replace(read_profile(EXAMPLES / "half-and-half.json"), description={"duration_seconds": 1e6})
    (tmp_path / "half.json").write_text(half.dumps())
    placed = CliRunner().invoke(cephfit, ["place", str(tmp_path / "half.json"), "--baselines", str(figures)])
    assert placed.exit_code == 0, placed.output
    assert re.search(r"^  fits fast-large [\d,]+ times over", placed.output, re.MULTILINE)


def test_counts_alone_take_the_other_kind_of_offsets_where_loads_are_known() -> None:
    """A sweep of random patterns predicts a workload with sequential accesses, and names their share."""
    kinds = [LoadedCell(4096, pattern) for pattern in (Pattern.RANDREAD, Pattern.RANDWRITE)]
    loaded = {
        (name, kind): Baseline(name, kind.bin_cell, (iops, 1.01 * iops))
        for name, iops in (("A", 100.0), ("fast", 200.0))
        for kind in kinds
    }
    cells = {(name, kind.bin_cell): found for (name, kind), found in loaded.items()}
    counts = {op: {b.name: 100 * (b.name == "4K") for b in SIZE_BINS} for op in Op}
    profile = Profile("w", counts, {Op.READ: 0.5, Op.WRITE: 1.0})
    found = predictor().predict(profile, Baselines(cells, "by hand", loaded=loaded))
    assert found.of("fast").relative == pytest.approx(200)
    assert any(note.startswith("for 25 % of the workload the pattern was not measured") for note in found.notes)
    with pytest.raises(InputError, match="no baseline for 4K-read"):
        predictor().predict(profile, Baselines(cells, "without loads"))


def test_a_larger_distance_is_stated_first_and_nothing_is_saved(store: Path) -> None:
    """Cells of 100/s and 50/s: 10 and 20 ms. 10 ms farther: 20 and 30 ms, so A halves, and slow is at 2/3 of A."""
    answer = call(PGBENCH, "--baselines", str(store), "--one-way-ms", "5", "--model", "time")
    assert answer.exit_code == 0, answer.output
    assert answer.output.startswith("5 ms farther each way: A is at 50 % of its speed here")
    document = json.loads(call(PGBENCH, "--baselines", str(store), "--one-way-ms", "5", "--json").output)
    assert document["distance"]["default_relative_to_here"] == pytest.approx(50, rel=0.001)
    slow = next(p for p in document["predictions"] if p["configuration"] == "slow")
    assert slow["relative"] == pytest.approx(200 / 3, rel=0.001)
    with Store.open(store) as opened:
        assert opened.document("r1", "predictions") is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--loss-pct", "100"), "range"),
        (("--rtt-per-access", "2"), "needs a distance"),
        (("--one-way-ms", "1", "--save"), "--save cannot be combined with a distance"),
        (("--one-way-ms", "1", "--next"), "--next cannot be combined with a distance"),
        (("--one-way-ms", "1", "--clients", "2"), "--clients cannot be combined with a distance"),
    ],
)
def test_options_that_do_not_go_with_a_distance_are_refused(
    store: Path, options: tuple[str, ...], said: str
) -> None:
    answer = call(PGBENCH, "--baselines", str(store), *options)
    assert answer.exit_code == 2
    assert said in answer.output
