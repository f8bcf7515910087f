"""The product's own evaluation: its constants and documents say what its data give."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from cephfit.mapper import MODELS
from cephfit.mapper.assessment.accuracy import VerifiedPrediction, is_inside
from cephfit.mapper.assessment.model_evaluation import (
    LeaveOut,
    assessed_predictor,
    error_of,
    residuals_of,
    verified,
)
from cephfit.mapper.models.model_error import ERRORS, ModelError
from cephfit.operations.evaluation_set import read_folder
from cephfit.operations.model_assessment import (
    ASSESSED,
    FIGURES,
    ModelAssessment,
    assess_models,
    figure_text,
)

ROOT = Path(__file__).resolve().parents[3]
SHOWN = [figure for figure, _ in FIGURES]


KEPT = "evaluation-kept-volumes"
"""Of the same workloads, with earlier baselines."""
SETS = ("evaluation", "evaluation-equal-work", KEPT, "evaluation-reef", "evaluation-two-classes")
"""Those to which the models' errors are fitted, together."""


UNSEEN = "evaluation-unseen"
"""Programs and configurations that nothing was fitted to."""
DIRECT = "evaluation-direct"
"""On a lab whose throttle counts contiguous writes once; nothing was fitted to it."""
SERVED = "evaluation-served"
"""The same workloads on disks that take time for each I/O; nothing was fitted to it."""

TIMED = "evaluation-timed"
"""Ten workloads on the twelve configurations of `evaluation`, on the lab of today; nothing was fitted to it."""

OF_THE_PAGE = ("waiting", "time", "learned")


def assessed(
    leave_out: LeaveOut | None = None, folder: str = "evaluation", models: tuple[str, ...] = ASSESSED
) -> ModelAssessment:
    return _assessed(leave_out, folder, models)


@cache
def _assessed(leave_out: LeaveOut | None, folder: str, models: tuple[str, ...]) -> ModelAssessment:
    return assess_models(read_folder(ROOT / "benchmarks" / "data" / folder), leave_out=leave_out, models=models)


def test_it_has_ten_workloads_on_ten_configurations_and_the_default() -> None:
    first = assessed(LeaveOut.WORKLOADS).accuracy[0]
    assert first.model == "waiting"
    assert first.n_runs >= 10
    assert first.n_configurations >= 10 * first.n_runs


def test_the_errors_of_the_models_are_those_of_the_evaluation_sets() -> None:
    assert set(ERRORS) == set(MODELS)
    for model in MODELS:
        found = [v for folder in SETS for v in assessed(folder=folder, models=MODELS).of(model)]
        assert_alike(ERRORS[model], error_of(residuals_of(found)))


def test_the_error_of_answers_from_counts_is_that_of_the_evaluation_sets() -> None:
    residuals = [replace(r, from_cells=True) for folder in SETS for r in residuals_of(of_counts(folder))]
    for model in ("waiting", "time"):
        assert_alike(ERRORS[model].of_answer(by_load=False), error_of(residuals))


def of_counts(folder: str) -> tuple[VerifiedPrediction, ...]:
    evaluation = read_folder(ROOT / "benchmarks" / "data" / folder)
    counted = tuple(
        replace(w, profile=replace(w.profile, demands=(), commits=None), baselines=replace(w.baselines, loaded={}))
        for w in evaluation.workloads
    )
    return assess_models(replace(evaluation, workloads=counted), models=["time"]).verified


@pytest.mark.parametrize("folder", [*SETS, UNSEEN, SERVED, TIMED])
def test_intervals_hold_on_a_set_that_their_errors_were_not_fitted_to(folder: str) -> None:
    """What a new cluster sees. At least 80 %, because a set of 16 ratios may miss two more by chance."""
    others = [v for other in SETS if other != folder for v in assessed(folder=other, models=MODELS).of("waiting")]
    errors = {"waiting": error_of(residuals_of(others))}
    inside = []
    for one in read_folder(ROOT / "benchmarks" / "data" / folder).workloads:
        predictions = assessed_predictor("waiting", 0.9, errors).predict(one.profile, one.baselines)
        inside += [is_inside(row) for row in verified(one, "waiting", predictions).compared]
    known = [found for found in inside if found is not None]
    assert sum(known) >= 0.8 * len(known)


def test_the_page_says_what_the_programs_own_errors_hold_on_the_corrected_lab() -> None:
    page = " ".join((ROOT / "docs" / "evidence.md").read_text().split())
    direct, served = (
        [is_inside(row) for v in assessed(folder=folder).of("waiting") for row in v.compared]
        for folder in (DIRECT, SERVED)
    )
    shares = [f"{100 * sum(map(bool, held)) / len(held):.0f} %" for held in (served, direct)]
    assert f"ships hold {shares[0]} of these ratios ({shares[1]} of those above)" in page


@pytest.mark.parametrize("model", ["waiting", "time"])
def test_the_page_says_what_the_programs_own_errors_hold_on_the_lab_of_today(model: str) -> None:
    page = " ".join((ROOT / "docs" / "evidence.md").read_text().split())
    held = [is_inside(row) for v in assessed(folder=TIMED).of(model) for row in v.compared]
    share = f"{100 * sum(map(bool, held)) / len(held):.0f} %"
    assert f"ships hold {share} of these ratios**, those of `waiting` and of `time`" in page


def assert_alike(one: ModelError, other: ModelError) -> None:
    of_both = [(e.floor, e.slope, e.by_spread) for e in (one, other)]
    assert of_both[0] == pytest.approx(of_both[1], rel=0.02, abs=1e-3)
    assert one.df == other.df


def test_the_model_for_waiting_times_beats_the_thesis_and_its_intervals_hold_for_workloads_left_out() -> None:
    by_model = {a.model: a for a in assessed(LeaveOut.WORKLOADS).accuracy}
    waiting, meyer = by_model["waiting"], by_model["meyer"]
    assert waiting.median_error_pct is not None
    assert meyer.median_error_pct is not None
    assert waiting.median_error_pct < meyer.median_error_pct
    assert waiting.coverage is not None
    assert 0.85 <= round(waiting.coverage, 2) <= 0.95


@pytest.mark.parametrize(
    ("folder", "baselines", "what", "name", "models"),
    [
        pytest.param("evaluation", "new volumes", LeaveOut.WORKLOADS, "workload", ASSESSED, id="new-volumes"),
        pytest.param(
            *("evaluation", "new volumes", LeaveOut.CONFIGURATIONS, "configuration", OF_THE_PAGE),
            id="new-volumes-configurations",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            KEPT, "kept volumes", LeaveOut.WORKLOADS, "workload", ASSESSED, id="kept", marks=pytest.mark.slow
        ),
        pytest.param(
            *(KEPT, "kept volumes", LeaveOut.CONFIGURATIONS, "configuration", OF_THE_PAGE),
            id="kept-configurations",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_the_page_says_where_what_is_learned_helps_and_where_it_does_not(
    folder: str, baselines: str, what: LeaveOut, name: str, models: tuple[str, ...]
) -> None:
    page = (ROOT / "docs" / "evidence.md").read_text()
    found = [a for a in assessed(what, folder, models).accuracy if a.model in OF_THE_PAGE]
    assert len(found) == len(OF_THE_PAGE)
    for accuracy in found:
        figures = " | ".join(figure_text(accuracy, figure) for figure in SHOWN[:3])
        assert f"| {baselines} | each {name} | {accuracy.model} | {figures} |" in page


@pytest.mark.slow
def test_what_is_learned_helps_where_large_gains_are_underestimated() -> None:
    by_model = {a.model: a.median_error_pct or 0.0 for a in assessed(LeaveOut.WORKLOADS, KEPT).accuracy}
    assert by_model["learned"] < by_model["waiting"]


@pytest.mark.parametrize(
    "folder",
    [
        "evaluation",
        pytest.param("evaluation-equal-work", marks=pytest.mark.slow),
        *(UNSEEN, DIRECT, SERVED, TIMED),
    ],
)
def test_the_table_of_the_evidence_is_what_the_evaluation_gives(folder: str) -> None:
    page = (ROOT / "docs" / "evidence.md").read_text()
    for accuracy in assessed(LeaveOut.WORKLOADS, folder).accuracy:
        row = f"| {accuracy.model} | {' | '.join(figure_text(accuracy, figure) for figure in SHOWN)} |"
        assert row in page
