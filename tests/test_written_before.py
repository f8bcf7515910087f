"""A store, a profile and a sweep file that version 0.1.0 wrote are read as it read them.

tests/golden/version_0_1_0 holds what that version wrote: a sweep file and the store of two sweeps on the simulated
cluster (as SQL), the profile of a trace, and its predictions for that profile.
"""

import gzip
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from command_in_process import run_in_process

from cephfit.core.values.sample import TARGETS_DOCUMENT
from cephfit.results.store.sample_store import Store
from cephfit.sweep.declaration.sweep_file import parse_sweep

GOLDEN = Path(__file__).parent / "golden" / "version_0_1_0"
Cephfit = Callable[..., str]


@pytest.fixture
def old_store(tmp_path: Path) -> Path:
    path = tmp_path / "store.sqlite"
    with sqlite3.connect(path) as database:
        database.executescript(gzip.decompress((GOLDEN / "store.sql.gz").read_bytes()).decode())
    database.close()
    return path


@pytest.fixture
def cephfit(old_store: Path) -> Cephfit:
    """Run a command in the folder of the old store, and return its standard output."""

    def run(*words: str) -> str:
        done = run_in_process(*words, folder=old_store.parent)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_the_predictions_are_those_of_the_old_version_with_the_error_of_the_model(cephfit: Cephfit) -> None:
    """Version 0.1.0 had the scatter of the benchmarks alone in the intervals of answers from the 20 cells."""
    new = json.loads(
        cephfit("map", "--json", str(GOLDEN / "profile.json"), "--baselines", "store.sqlite", "--no-save")
    )
    old = json.loads((GOLDEN / "predictions.json").read_text())
    assert (new["model"], new["best"], new["worst"]) == (old["model"], old["best"], old["worst"])
    for now, before in zip(new["predictions"], old["predictions"], strict=True):
        assert now["configuration"] == before["configuration"]
        assert now["relative"] == pytest.approx(before["relative"], rel=1e-9)
        assert now["low"] <= before["low"] * (1 + 1e-9)
        assert now["high"] >= before["high"] * (1 - 1e-9)


def test_the_runs_are_listed_and_a_report_is_written(cephfit: Cephfit, tmp_path: Path) -> None:
    runs = json.loads(cephfit("runs", "list", "--json", "--store", "store.sqlite"))
    assert {run["sweep"] for run in runs} == {"before-rooms", "quick"}
    cephfit("report", "--store", "store.sqlite", "-o", "report.html")
    assert "no-deferred" in (tmp_path / "report.html").read_text()


def test_the_sweep_file_has_the_digest_of_its_run(old_store: Path) -> None:
    """By its digest an interrupted run is found and continued."""
    sweep = parse_sweep((GOLDEN / "sweep.yaml").read_text(), file="sweep.yaml")
    with sqlite3.connect(old_store) as database:
        found = database.execute(
            "SELECT sweep_digest FROM cephfit_runs WHERE sweep_name = 'before-rooms'"
        ).fetchall()
    assert found == [(sweep.digest,)]


def test_the_profile_is_shown(cephfit: Cephfit) -> None:
    shown = json.loads(cephfit("trace", "show", "--json", str(GOLDEN / "profile.json")))
    assert shown["name"] == "ftrace"


def test_a_document_under_its_former_name_is_found(old_store: Path) -> None:
    with Store.open(old_store) as store:
        run = store.run()
        store.put_document(run.run_id, "beside", {"number": 1, "targets": ["lab", "sim"]})
        assert store.document(run.run_id, TARGETS_DOCUMENT) == {"number": 1, "targets": ["lab", "sim"]}
