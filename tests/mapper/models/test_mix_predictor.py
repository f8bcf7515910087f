"""What the predictor says, and what it does when something is missing."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from cephfit.core.errors import InputError
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, SIZE_BINS, Cell, Op
from cephfit.core.values.prediction import PredictionSet, Verdict
from cephfit.core.values.profile import Profile
from cephfit.mapper import MODELS, predictor

SMALL_READ, LARGE_READ = Cell.parse("4K-randread"), Cell.parse("1M-read")


def baselines(table: dict[str, dict[Cell, tuple[float, ...]]], missing: dict | None = None) -> Baselines:
    cells = {(name, cell): Baseline(name, cell, v) for name, row in table.items() for cell, v in row.items()}
    return Baselines(cells, "by hand", missing or {})


def sweep(**factors: float) -> Baselines:
    """All cells, two repeats 1 % apart, up or down; every configuration is the default times its factor."""
    table: dict[str, dict[Cell, tuple[float, ...]]] = {}
    for j, (name, factor) in enumerate({"A": 1.0, **factors}.items()):
        up, down = (99.5 * factor, 100.5 * factor), (100.5 * factor, 99.5 * factor)
        table[name.replace("_", "-")] = {cell: up if (i + j) % 2 else down for i, cell in enumerate(CELLS)}
    return baselines(table)


def workload() -> Profile:
    """Nine 4K random reads for every 1M sequential read."""
    counts = {b.name: 0 for b in SIZE_BINS}
    return Profile(
        "mixed",
        {Op.READ: {**counts, "4K": 900, "1M": 100}, Op.WRITE: counts},
        {Op.READ: 0.9, Op.WRITE: 0.0},
        {Op.READ: {"4K": 1.0, "1M": 0.0}, Op.WRITE: {}},
    )


@pytest.mark.parametrize("model", MODELS)
def test_the_ranking_names_best_worst_and_the_indistinguishable(model: str) -> None:
    answer = predictor(model).predict(workload(), sweep(slow=0.8, A_again=1.001, fast=1.25, faster=1.5))
    assert [p.configuration for p in answer.predictions] == ["faster", "fast", "A-again", "A", "slow"]
    assert answer.best == "faster"
    assert answer.worst == "slow"
    assert answer.of("A-again").verdict is Verdict.INDISTINGUISHABLE
    assert answer.of("faster").relative == pytest.approx(150)
    assert answer.model == ("time" if model == "waiting" else model)


def test_the_default_is_100_without_an_interval() -> None:
    default = predictor("time").predict(workload(), sweep(fast=1.2)).of("A")
    assert (default.relative, default.low, default.high) == (100.0, 100.0, 100.0)
    assert default.verdict is Verdict.DEFAULT


def test_when_nothing_is_distinguishable_best_and_worst_are_the_default() -> None:
    answer = predictor("time").predict(workload(), sweep(A_again=1.0, nearly=1.004))
    assert (answer.best, answer.worst) == ("A", "A")
    assert answer.of("A-again").relative == 100.0


def test_no_verdict_below_the_noise_floor() -> None:
    answer = predictor("time").predict(workload(), sweep(B=1.3, C=0.7))
    floor = answer.noise_floor
    assert 0 < floor < 10
    below, above = 1 + 0.5 * floor / 100, 1 + 3 * floor / 100
    again = predictor("time").predict(workload(), sweep(B=below, C=above))
    assert again.of("B").verdict is Verdict.INDISTINGUISHABLE
    assert again.of("C").verdict is Verdict.BETTER


def test_a_difference_that_shows_is_never_below_the_floor() -> None:
    """Most of the default's time is in a cell that scatters; X is faster there, and the other cell shows it."""
    rows = {"A": (100, 1000), "A2": (100, 1000), "A3": (100, 1000), "A4": (100, 1000), "X": (1000, 106)}
    rng = np.random.default_rng(47)
    table = {
        name: {
            cell: tuple(float(v * np.exp(rng.normal(0, cv))) for _ in range(3))
            for cell, v, cv in zip((SMALL_READ, Cell.parse("1M-randread")), rates, (0.05, 0.004), strict=True)
        }
        for name, rates in rows.items()
    }
    counts = dict.fromkeys((b.name for b in SIZE_BINS), 0)
    profile = Profile(
        "w", {Op.READ: {**counts, "4K": 1000, "1M": 1000}, Op.WRITE: counts}, {Op.READ: 1, Op.WRITE: 0}
    )
    answer = predictor("time").predict(profile, baselines(table))
    different = [p for p in answer.predictions if p.verdict in (Verdict.BETTER, Verdict.WORSE)]
    assert different
    assert all(abs(p.relative - 100) >= answer.noise_floor for p in different)


def test_more_confidence_is_a_wider_interval() -> None:
    sure, surer = (predictor("time", confidence=c).predict(workload(), sweep(B=1.1)).of("B") for c in (0.9, 0.99))
    assert surer.low < sure.low < sure.high < surer.high


@pytest.mark.parametrize("model", MODELS)
def test_another_unit_of_rate_changes_nothing(model: str) -> None:
    original = sweep(B=1.1, C=0.9)
    scaled = Baselines(
        {k: Baseline(b.configuration, b.cell, tuple(v * 1024 for v in b.iops)) for k, b in original.cells.items()},
        original.source,
    )
    ours, theirs = (predictor(model).predict(workload(), b) for b in (original, scaled))
    for p in ours.predictions:
        q = theirs.of(p.configuration)
        assert (p.relative, p.verdict) == (q.relative, q.verdict)
        assert (p.low, p.high) == pytest.approx((q.low, q.high), rel=1e-9)


def test_the_same_question_gets_the_same_answer() -> None:
    once = predictor("time").predict(workload(), sweep(B=1.1, C=0.9)).to_json()
    assert predictor("time").predict(workload(), sweep(B=1.1, C=0.9)).to_json() == once


def test_points_say_which_cell_moved_the_prediction() -> None:
    rates = {
        "A": {SMALL_READ: (100.0, 101.0), LARGE_READ: (10.0, 10.1)},
        "B": {SMALL_READ: (200.0, 202.0), LARGE_READ: (10.0, 10.1)},
    }
    answer = predictor("meyer").predict(workload(), baselines(rates))
    reasons = answer.of("B").reasons
    assert reasons[0].cell == SMALL_READ
    assert reasons[0].weight == pytest.approx(0.9)
    assert reasons[0].points == pytest.approx(90)
    assert sum(r.points for r in reasons) == pytest.approx(answer.of("B").relative - 100)


def test_a_cell_the_default_lacks_is_an_error_that_names_it() -> None:
    table = {"A": {SMALL_READ: (100.0, 101.0)}, "B": {SMALL_READ: (100.0, 101.0), LARGE_READ: (10.0, 10.1)}}
    with pytest.raises(InputError, match="1M-read under configuration A"):
        predictor("time").predict(workload(), baselines(table))


def test_a_configuration_measured_with_another_number_of_clients_is_omitted_by_name() -> None:
    """Two clients of the default against one of B would make B look half as fast."""
    measured = sweep(B=0.5, C=1.2)
    cells = {
        place: replace(baseline, n_clients=1 if place[0] == "B" else 2)
        for place, baseline in measured.cells.items()
    }
    answer = predictor("time").predict(workload(), replace(measured, cells=cells))
    assert [p.configuration for p in answer.predictions] == ["C", "A"]
    assert any("B is omitted: measured with another number of clients" in note for note in answer.notes)


def test_a_configuration_that_lacks_a_cell_is_omitted_by_name_with_the_reason() -> None:
    whole = {SMALL_READ: (100.0, 101.0), LARGE_READ: (10.0, 10.1)}
    table = {"A": whole, "B": {SMALL_READ: (150.0, 151.0)}, "C": whole}
    why = {("B", LARGE_READ): "failed: osd.2 died", ("D", SMALL_READ): "skipped: no such option"}
    answer = predictor("time").predict(workload(), baselines(table, why))
    assert {p.configuration for p in answer.predictions} == {"A", "C"}
    notes = "\n".join(answer.notes)
    assert "configuration B is omitted: no baseline for 1M-read (failed: osd.2 died)" in notes
    assert "configuration D is omitted" in notes
    assert "skipped: no such option" in notes


def test_cells_that_the_workload_does_not_use_may_be_missing() -> None:
    table = {name: {SMALL_READ: (100.0, 101.0), LARGE_READ: (10.0, 10.1)} for name in ("A", "B")}
    assert predictor("time").predict(workload(), baselines(table)).of("B").relative == 100


def test_one_repeat_everywhere_has_no_spread_and_gives_no_verdict() -> None:
    table = {"A": dict.fromkeys(CELLS, (100.0,)), "B": dict.fromkeys(CELLS, (900.0,))}
    answer = predictor("time").predict(workload(), baselines(table))
    assert answer.of("B").verdict is Verdict.INDISTINGUISHABLE
    assert (answer.of("B").low, answer.of("B").high) == (0.0, math.inf)
    assert answer.noise_floor == math.inf
    assert any("measured once" in note for note in answer.notes)
    document = json.loads(json.dumps(answer.to_json(), allow_nan=False))
    assert PredictionSet.from_json(document) == answer


def test_a_cell_measured_once_borrows_the_widest_spread_and_says_so() -> None:
    table = {
        name: {**dict.fromkeys(CELLS[8:], (50.0, 50.1)), SMALL_READ: (100.0,), LARGE_READ: (10.0, 11.0)}
        for name in ("A", "B", "C")
    }
    answer = predictor("time").predict(workload(), baselines(table))
    assert any("measured only once" in note and "4K-randread" in note for note in answer.notes)
    assert answer.of("B").high - answer.of("B").low > 5


def test_repeats_equal_to_the_last_digit_are_not_believed_to_be_without_noise() -> None:
    table = {
        "A": dict.fromkeys(CELLS, (300.0, 300.0)),
        "B": dict.fromkeys(CELLS, (300.01, 300.01)),
        "C": dict.fromkeys(CELLS, (310.0, 310.0)),
    }
    answer = predictor("time").predict(workload(), baselines(table))
    assert answer.of("B").verdict is Verdict.INDISTINGUISHABLE
    assert answer.of("C").verdict is Verdict.BETTER


def test_a_sweep_of_the_default_alone_is_said_to_compare_nothing() -> None:
    answer = predictor("time").predict(workload(), sweep())
    assert [p.configuration for p in answer.predictions] == ["A"]
    assert answer.notes == ("no configuration could be compared with the default",)


def test_the_json_has_the_keys_that_programs_rely_on() -> None:
    document = predictor("meyer").predict(workload(), sweep(B=1.2)).to_json()
    assert {"model", "predictions", "best", "worst"} <= set(document)
    assert {"configuration", "relative", "low", "high", "verdict"} <= set(document["predictions"][0])
    assert document["model"] == "meyer"


def test_an_unknown_model_is_named_with_the_known_ones() -> None:
    with pytest.raises(InputError, match="'meier'") as error:
        predictor("meier")
    assert "meyer-random" in error.value.remedy


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, math.nan])
def test_an_impossible_confidence_is_refused(confidence: float) -> None:
    with pytest.raises(InputError, match="not a confidence level"):
        predictor("time", confidence=confidence)


def test_an_op_of_which_nothing_was_judged_is_said_to_count_as_sequential() -> None:
    lone = replace(
        workload(), accesses={**workload().accesses, Op.WRITE: {**workload().accesses[Op.WRITE], "4K": 1}}
    )
    said = "the trace does not show which writes are random: all count as sequential"
    assert said in predictor("time").predict(lone, sweep(fast=1.2)).notes
    assert said not in predictor("time").predict(workload(), sweep(fast=1.2)).notes
    assert said not in predictor("meyer-random").predict(lone, sweep(fast=1.2)).notes
