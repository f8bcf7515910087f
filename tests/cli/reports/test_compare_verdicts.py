"""Verdicts of `cephfit compare`: corrected for the number of comparisons, and exit codes for scripts."""

import json
import math
import subprocess
from pathlib import Path

import numpy as np
import pytest
from command_in_process import run_in_process
from scipy import stats

from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS
from cephfit.results.statistics.comparison import Change, count_changes, rows_of, with_verdicts
from cephfit.results.statistics.summary_statistics import (
    Spread,
    holm_adjusted,
    welch_ratio_interval,
    welch_ratio_p_value,
)

SWEEP = """\
schema_version: 1
name: nightly
configurations:
  ssd: {pool: {crush_rule: ssd}}
measurement:
  sizes: [4K, 1M]
  patterns: [randread, randwrite]
  clients: 1
  volume_size: 4M
  repeats: 4
  run_seconds: 1
  seed: 7
"""


def drawn(seed: int, effects: dict[int, float], n: int = 4) -> Baselines:
    """Twenty cells of the default with a scatter of 3 %; ``effects``: factor by number of the cell."""
    random, rounds = np.random.default_rng(seed), tuple(range(n))
    cells = {
        ("A", cell): Baseline(
            "A",
            cell,
            tuple(1000 * effects.get(i, 1.0) * np.exp(random.normal(0, 0.03, n))),
            rounds=rounds,
        )
        for i, cell in enumerate(CELLS)
    }
    return Baselines(cells, "drawn")


def test_holm_multiplies_as_in_the_textbook() -> None:
    """Holm 1979; the same as R's p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm")."""
    assert holm_adjusted([0.01, 0.04, 0.03, 0.005]) == pytest.approx((0.03, 0.06, 0.06, 0.02))
    assert holm_adjusted([]) == ()
    assert holm_adjusted([0.9, 0.8]) == (1.0, 1.0)


def test_the_p_value_is_that_of_welch_on_logarithms() -> None:
    """With equal degrees of freedom and variances, it is Student's t with their sum."""
    values, reference = (90.0,) * 3, (100.0,) * 3
    spread = Spread(0.05, 2)
    t = np.log(100 / 90) / np.sqrt(2 * 0.05**2 / 3)
    assert welch_ratio_p_value(values, reference, spread, spread) == pytest.approx(2 * stats.t.sf(t, 4), rel=1e-6)
    assert welch_ratio_p_value(values, values, spread, spread) == 1.0
    assert welch_ratio_p_value(values, reference, None, spread) is None


def test_means_that_differ_by_rounding_only_are_not_different() -> None:
    spread = Spread(0.05, 5.3)
    assert welch_ratio_p_value((math.nextafter(100.0, 101.0),), (100.0,), spread, spread) == pytest.approx(1.0)
    assert welch_ratio_p_value((95.0,), (100.0,), spread, spread, tolerance=0.05) == pytest.approx(1.0)


def test_the_p_value_agrees_with_the_interval_at_every_level() -> None:
    values, reference = (95.0,) * 3, (100.0,) * 4
    spreads = Spread(0.02, 5.3, 0.01, 2), Spread(0.03, 8, 0.02, 3)
    p = welch_ratio_p_value(values, reference, *spreads)
    assert p is not None
    interval = welch_ratio_interval(values, reference, *spreads, confidence=1 - p)
    assert interval is not None and interval.high == pytest.approx(1.0)


def test_a_tolerance_forgives_differences_up_to_it() -> None:
    spread = Spread(0.001, 50)
    asked = ((96.0,) * 5, (100.0,) * 5, spread, spread)
    assert welch_ratio_p_value(*asked) < 1e-6
    assert welch_ratio_p_value(*asked, tolerance=0.05) == 1.0
    assert welch_ratio_p_value(*asked, tolerance=0.03) < 1e-3
    upward = ((100.0,) * 5, (96.0,) * 5, spread, spread)
    assert welch_ratio_p_value(*upward, tolerance=0.05) == 1.0


@pytest.mark.slow
def test_equal_runs_are_seldom_called_different_in_any_cell() -> None:
    """Of 200 pairs of equal runs with 20 cells, at most 5 % may have a false verdict (here within 3 sigma)."""
    wrong, alone = 0, 0
    for seed in range(200):
        rows, _ = with_verdicts(rows_of([drawn(2 * seed, {}), drawn(2 * seed + 1, {})]), [])
        counts = count_changes(row.by_target for row in rows)
        wrong += counts[Change.WORSE] + counts[Change.BETTER] > 0
        alone += any(row.by_target[1].differs for row in rows)
    assert wrong <= 200 * 0.05 + 3 * np.sqrt(200 * 0.05 * 0.95)
    assert alone > 2 * wrong  # without the correction, most of such pairs have a cell that appears to differ


def test_a_real_loss_is_found_in_its_cell_only() -> None:
    rows, _ = with_verdicts(rows_of([drawn(1, {}), drawn(2, {3: 0.6, 7: 1.5})]), [])
    found = {
        i: row.by_target[1].change for i, row in enumerate(rows) if row.by_target[1].change is not Change.NONE
    }
    assert found == {3: Change.WORSE, 7: Change.BETTER}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Two runs of equal clusters, and one of a single repeat."""
    folder = tmp_path_factory.mktemp("verdicts")
    (folder / "nightly.yaml").write_text(SWEEP)
    (folder / "once.yaml").write_text(SWEEP.replace("repeats: 4", "repeats: 1"))
    runs = {}
    for name, file, target in (
        ("before", "nightly.yaml", "sim:noise=0.01"),
        ("after", "nightly.yaml", "sim:noise=0.01,seed=5"),
        ("once", "once.yaml", "sim:noise=0.01"),
    ):
        words = ("sweep", "run", file, "--target", target, "--store", "s.sqlite", "--json")
        done = run_in_process(*words, folder=folder)
        assert done.returncode == 0, done.stderr
        runs[name] = json.loads(done.stdout)["run"]
    return folder, runs


def compared(store: tuple[Path, dict[str, str]], *words: str) -> subprocess.CompletedProcess[str]:
    folder, runs = store
    found = (runs.get(word, word) for word in words)
    return run_in_process("compare", "--store", "s.sqlite", *found, folder=folder)


def slowed(store: tuple[Path, dict[str, str]], to: Path, factor: float) -> tuple[Path, dict[str, str]]:
    """A copy of the store in which the later run's writes of 4K are slower by a factor."""
    import shutil
    import sqlite3

    folder, runs = store
    shutil.copy(folder / "s.sqlite", to / "s.sqlite")
    with sqlite3.connect(to / "s.sqlite") as database:
        database.execute(
            "UPDATE cephfit_samples SET iops = iops * ? "
            "WHERE run_id = ? AND size = '4K' AND pattern = 'randwrite'",
            (factor, runs["after"]),
        )
    database.close()
    return to, runs


def test_equal_runs_end_with_exit_code_0(store: tuple[Path, dict[str, str]]) -> None:
    done = compared(store, "--run", "before", "--run", "after", "--fail-on", "worse", "--fail-on", "missing")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("Target 2 against target 1, of 8 cells: 0 worse, 8 not distinguishable.\n")


def test_a_loss_ends_with_exit_code_1_and_names_its_cells(
    store: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    worse = slowed(store, tmp_path, 0.7)
    words = ("--run", "before", "--run", "after")
    done = compared(worse, *words, "--fail-on", "worse", "--json")
    document = json.loads(done.stdout)
    assert (done.returncode, document["failed"]) == (1, ["worse"])
    found = {(row["cell"], row["there"][1]["verdict"]) for row in document["rows"]}
    assert ("4K-randwrite", "worse") in found and ("4K-randread", "not distinguishable") in found
    assert all(row["there"][1]["adjusted_p"] >= row["there"][1]["p_value"] for row in document["rows"])
    assert compared(worse, *words).returncode == 0  # without --fail-on it only shows
    assert compared(worse, *words, "--fail-on", "worse", "--tolerance", "50").returncode == 0
    assert compared(worse, "--run", "after", "--run", "before", "--fail-on", "worse").returncode == 0  # better
    assert compared(worse, "--run", "after", "--run", "before", "--fail-on", "different").returncode == 1


def test_runs_that_cannot_be_compared_are_an_error_not_a_success(store: tuple[Path, dict[str, str]]) -> None:
    done = compared(store, "--run", "once", "--run", "once")
    assert done.returncode == 2
    done = compared(store, "--run", "before", "--run", "once", "--fail-on", "worse")
    assert done.returncode == 2 and "no rate of these runs can be compared" in done.stderr
