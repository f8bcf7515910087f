"""`cephfit assess`: from a store or an evaluation folder to tables, JSON, a page and another folder."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from evaluated_workloads import FACTORS, ROUNDS, WAITED, evaluated, profile, samples, write_folder
from tiny_sweep import SWEEP

import cephfit
from cephfit.cli.main import cephfit as command_line
from cephfit.core.errors import InputError
from cephfit.core.values.cells import CELLS, Cell, LoadedCell
from cephfit.core.values.sample import (
    PROFILE_DOCUMENT,
    WORKLOAD_PROFILE_DOCUMENT,
    Metrics,
    Run,
    Sample,
    SampleKey,
    State,
)
from cephfit.mapper.assessment.trivial_predictors import TRIVIAL
from cephfit.mapper.models import model_error
from cephfit.operations.evaluation_set import EvaluationSet, folder_files, read_folder
from cephfit.operations.model_assessment import ASSESSED
from cephfit.results.store.sample_store import Store, kind_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An evaluation folder in which every workload measured what ``time`` predicts for it."""
    return write_folder(tmp_path / "evaluation", evaluated("time"))


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store of a run with a twin of the default, on which two workloads ran."""
    path = tmp_path / "results.sqlite"
    text = SWEEP.replace("  A: {}\n", "  A: {}\n  twin: {}\n")
    with Store.open(path, create=True) as opened:
        opened.add_run(Run("r1", "tiny", text, "digest", "lab:default", 1, 1, finished=True))
        for name, speed in {"A": 1.0, "twin": 1.0, "ssd": 2.0}.items():
            for cell in CELLS:
                for repeat, wobble in enumerate((0.99, 1.01)):
                    opened.add_samples("r1", [_sample(name, cell, repeat, 1000 * speed * wobble)], fio_json=None)
        for workload, gain in {"database": 2.0, "backup": 1.6}.items():
            for sample in samples({"A": 100, "twin": 101, "ssd": 100 * gain}, noise=0.01):
                opened.add_workload_sample("r1", workload, sample)
    return path


def _sample(configuration: str, cell: Cell, repeat: int, iops: float) -> Sample:
    metrics = Metrics(iops, iops * cell.size.benchmark_nbytes, max(1, round(iops)), 10**9, 1e9 / iops)
    return Sample(SampleKey(configuration, cell, "c0", repeat), State.OK, metrics, 0, 1)


def give_profiles(store: Path) -> None:
    with Store.open(store, writing=True) as opened:
        for name, waited in WAITED.items():
            document = profile(name, *waited).to_json()
            opened.put_document("r1", kind_of(WORKLOAD_PROFILE_DOCUMENT, name), document)


def said(*arguments: object) -> str:
    result = CliRunner().invoke(command_line, ["assess", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: object) -> InputError:
    result = CliRunner().invoke(command_line, ["assess", *map(str, arguments)])
    assert isinstance(result.exception, InputError), result.output
    assert result.exception.where
    assert result.exception.remedy
    return result.exception


def answer(*arguments: object) -> dict[str, Any]:
    return dict(json.loads(said(*arguments, "--json")))


def test_a_true_model_is_perfect_in_every_figure(folder: Path) -> None:
    found = answer(folder)
    by_model = {figures["model"]: figures for figures in found["models"]}
    assert list(by_model) == list(ASSESSED)
    time = by_model["time"]
    assert time["median_error_pct"] == pytest.approx(0, abs=1e-6)
    assert time["spearman"] == pytest.approx(1)
    assert (time["mean_regret_pct"], time["best_in_top_1"], time["worst_named"]) == (0, 1, 1)
    assert time["meets"] == {**dict.fromkeys(found["goals"], True), "coverage": False}
    assert [name for name, figures in by_model.items() if figures["trivial"]] == list(TRIVIAL)
    assert by_model["always the default"]["median_error_pct"] > 20
    assert len(found["ratios"]) == len(by_model) * len(WAITED) * (len(FACTORS) - 1)
    assert found["noise_floor"]["again"] == 3
    assert set(found["errors"]) == set(by_model)


def test_the_table_has_goals_noise_and_the_largest_errors(folder: Path) -> None:
    text = said(folder)
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    assert {*ASSESSED, "goal", "the other rounds"} <= lines.keys()
    assert lines["goal"].split()[1:3] == ["<=", "5"]
    assert "3 workloads, 15 ratios to the default, 3 of them of the default's settings under another name" in text
    assert "Largest errors of" in text


@pytest.mark.slow
def test_a_folder_goes_through_the_python_api_too(folder: Path) -> None:
    accuracy = cephfit.assess(folder, confidence=0.9)
    by_model = {figures["model"]: figures for figures in answer(folder)["models"]}
    for found in accuracy.summary():
        assert found.median_error_pct == by_model[found.model]["median_error_pct"]
        assert found.coverage == by_model[found.model]["coverage"]
    left = cephfit.assess(folder, confidence=0.9, leave_out="workloads").summary().of("always the default")
    assert left.coverage is not None, "an error was estimated"
    with pytest.raises(InputError, match="is not a value of leave_out"):
        cephfit.assess(folder, leave_out="rounds")
    with pytest.raises(InputError, match="has no runs"):
        cephfit.assess(folder, "r1")


@pytest.mark.slow
def test_leaving_out_widens_the_intervals_of_a_wrong_model(folder: Path) -> None:
    """Nothing fits a model that says the default is as good as all: its interval is that of the others' errors."""

    def width(found: dict[str, Any]) -> float:
        ratio = next(r for r in found["ratios"] if r["model"] == "always the default")
        return float(ratio["predicted_high"] / ratio["predicted_low"])

    assert width(answer(folder)) == 1
    assert width(answer(folder, "--leave-out", "workloads")) > 2
    assert width(answer(folder, "--leave-out", "configurations")) > 1.5
    assert "estimated without the assessed workloads" in said(folder, "--leave-out", "workloads")


def test_every_workload_of_a_store_needs_its_own_profile(store: Path) -> None:
    missing = refused(store)
    assert "the profile of the workload is missing" in missing.what
    assert "workload database" in missing.where
    with Store.open(store, writing=True) as opened:
        opened.put_document("r1", PROFILE_DOCUMENT, profile("database", 1, 1).to_json())
    found = answer(store)
    assert {r["workload"] for r in found["ratios"]} == {"database"}, "the mapped profile is not that of the backup"
    assert any("workload backup" in note for note in found["notes"])
    give_profiles(store)
    assert {r["workload"] for r in answer(store)["ratios"]} == {"database", "backup"}


def test_profiles_are_given_as_files_or_as_a_folder(store: Path, folder: Path) -> None:
    files = [("--profile", folder / "profiles" / f"{name}.json") for name in ("database", "backup")]
    one_by_one = answer(store, *(word for pair in files for word in pair))
    assert one_by_one["ratios"] == answer(store, "--profile", folder / "profiles")["ratios"]
    ssd = [r for r in one_by_one["ratios"] if (r["model"], r["configuration"]) == ("time", "ssd")]
    assert [r["measured"] for r in ssd] == [pytest.approx(200, rel=0.03), pytest.approx(160, rel=0.03)]
    assert all(r["predicted"] == pytest.approx(200, rel=0.02) for r in ssd)


def test_a_twin_of_the_default_is_known_by_its_settings(store: Path) -> None:
    give_profiles(store)
    found = answer(store)
    assert {r["configuration"] for r in found["ratios"] if r["again"]} == {"twin"}
    assert found["noise_floor"]["again"] == 2


def test_an_exported_store_gives_the_same_figures(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # This store does not tell its load, a CSV does, and known errors of models are those of loads.
    monkeypatch.setattr(model_error, "ERRORS", {})
    give_profiles(store)
    exported = tmp_path / "exported"
    assert f"Evaluation folder: {exported}" in said(store, "--export", exported)
    assert sorted(path.name for path in (exported / "profiles").iterdir()) == ["backup.json", "database.json"]
    rows = list(csv.DictReader((exported / "measured.csv").open()))
    assert len(rows) == 2 * 3 * ROUNDS
    assert all(len(row["value"].replace(".", "")) <= 5 for row in rows)
    assert sum(path.stat().st_size for path in exported.rglob("*.*")) < 20_000
    before, after = answer(store), answer(exported)
    for one, other in zip(before["models"], after["models"], strict=True):
        assert one["median_error_pct"] == pytest.approx(other["median_error_pct"], abs=0.05)
        assert (one["coverage"], one["best_in_top_1"]) == (other["coverage"], other["best_in_top_1"])


def test_exported_baselines_keep_their_loads_apart(tmp_path: Path) -> None:
    """The sweep's own load has a depth of 4; another one has a depth of 1 and half the rates."""
    first, *others = evaluated("time")
    own = {
        (n, LoadedCell(c.size.benchmark_nbytes, c.pattern, 4)): b for (n, c), b in first.baselines.cells.items()
    }
    shallow = {
        (n, replace(c, iodepth=1)): replace(b, iops=tuple(rate / 2 for rate in b.iops))
        for (n, c), b in own.items()
    }
    baselines = replace(first.baselines, loaded={**own, **shallow})
    files = folder_files(EvaluationSet("s", tuple(replace(one, baselines=baselines) for one in (first, *others))))
    (tmp_path / "baselines.csv").write_text(files["baselines.csv"])
    back = cephfit.read_baselines(tmp_path / "baselines.csv")
    assert back.cells.keys() == baselines.cells.keys()
    for key, found in back.cells.items():
        assert found.iops == pytest.approx(baselines.cells[key].iops, rel=1e-4)
    rows = list(csv.DictReader(files["baselines.csv"].splitlines()))
    assert {(row["load"] == "", row["iodepth"]) for row in rows} == {(True, "4"), (False, "1")}
    assert len(rows) == 2 * len(FACTORS) * len(CELLS) * ROUNDS


@pytest.mark.slow
def test_volumes_of_one_round_are_repeats_that_stay_comparable(folder: Path) -> None:
    """Each configuration has volumes of other names; the second volume of each is 30 % slower."""
    rows = list(csv.DictReader((folder / "measured.csv").open()))
    with (folder / "measured.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        for row in rows:
            for number, factor in enumerate((1.0, 0.7)):
                volume = f"{row['configuration']}-{number}"
                writer.writerow({**row, "volume": volume, "value": factor * float(row["value"])})
    found = {one.workload: one for one in read_folder(folder).workloads}
    assert {s.repeat for s in found["mixed"].samples} == set(range(2 * ROUNDS))
    assert found["mixed"].placed["fast", 1] == (0, "fast-1")
    time = next(figures for figures in answer(folder)["models"] if figures["model"] == "time")
    assert time["median_error_pct"] == pytest.approx(0, abs=1e-6), "slow volumes cancel"
    again = answer(folder, "--export", folder.parent / "again")
    assert (folder.parent / "again" / "measured.csv").read_text().count("fast-1") == len(WAITED) * ROUNDS
    assert again["models"] == answer(folder)["models"]


def test_the_page_shows_the_figures_without_loading_anything(folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert f"Page: {page}" in said(folder, "-o", page)
    html = page.read_text()
    assert html.count('<figure class="scatter') == len(ASSESSED)
    assert html.count('<g class="ratio">') == len(ASSESSED) * len(WAITED) * (len(FACTORS) - 1)
    assert html.count('class="heat errors"') == len(ASSESSED)
    assert "database on reads: predicted" in html
    assert "http" not in html.split("</style>")[1]
    assert "The largest errors of" in html


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def replaced(name: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new, 1))

    return change


@pytest.mark.parametrize(
    ("spoil", "what", "where"),
    [
        (remove("baselines.csv"), "the evaluation folder has no baselines.csv", "evaluation"),
        (remove("measured.csv"), "the evaluation folder has no measured.csv", "evaluation"),
        (remove("profiles/mixed.json"), "there is no profile of the workload 'mixed'", "profiles/mixed.json"),
        (replaced("measured.csv", "fast", "faster"), "no baselines of the configuration 'faster'", "measured.csv"),
        (replaced("measured.csv", "value", "tps"), "there is no column 'value'", "measured.csv:1"),
        (replaced("measured.csv", "metric,", "value,"), "there is no column 'metric'", "measured.csv:1"),
        (replaced("measured.csv", ",0,,", ",first,,"), "'first' is not a round", "measured.csv:2, column round"),
        (replaced("measured.csv", ",0,,", f",{'1' * 5000},,"), "is not a round", "measured.csv:2, column round"),
        (replaced("measured.csv", "A,0,,7", "A,0,,-7"), "is not a value that can be compared", "column value"),
        (replaced("measured.csv", "A,1,,", "A,0,,"), "round 0, volume (none) is in line", "measured.csv"),
        (
            replaced("measured.csv", "database,", "a/b,"),
            "cannot be the name of a profile's file",
            "measured.csv:2",
        ),
        (replaced("measured.csv", "database,ops/s", "database,"), "this field is empty", "column metric"),
        (replaced("measured.csv", "ops/s", "tps"), "database has two metrics, tps and ops/s", "measured.csv:3"),
    ],
)
def test_a_wrong_folder_is_refused_with_place_and_remedy(
    folder: Path, spoil: Callable[[Path], None], what: str, where: str
) -> None:
    spoil(folder)
    error = refused(folder)
    assert what in error.what
    assert where in error.where


def test_an_empty_table_and_a_missing_folder_are_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "measured.csv").write_text("workload,metric,configuration,round,volume,value\n")
    assert "the file has no values" in refused(folder).what
    with pytest.raises(InputError, match="no such folder"):
        read_folder(tmp_path / "nothing")


def test_wrong_profiles_and_runs_are_refused(folder: Path, store: Path, tmp_path: Path) -> None:
    twice = tmp_path / "twice.json"
    twice.write_text(profile("mixed", 1, 1).dumps())
    assert "the same name, mixed" in refused(folder, "--profile", folder / "profiles", "--profile", twice).what
    (tmp_path / "empty").mkdir()
    assert "there is no profile in this folder" in refused(folder, "--profile", tmp_path / "empty").what
    assert "a folder has no runs" in refused(folder, "--run", "r1").what
    with Store.open(store, writing=True) as opened:
        opened.add_workload_sample("r1", "database", samples({"unmeasured": 100})[0])
    give_profiles(store)
    found = answer(store)
    assert any("no baselines of the configuration 'unmeasured'" in note for note in found["notes"])


def test_a_store_without_workloads_says_what_to_do(tmp_path: Path) -> None:
    with Store.open(tmp_path / "empty.sqlite", create=True) as opened:
        opened.add_run(Run("r1", "tiny", SWEEP, "digest", "lab:default", 1, 1, finished=True))
    assert "cephfit verify" in refused(tmp_path / "empty.sqlite").remedy
