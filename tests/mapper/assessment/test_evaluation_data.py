"""The product's own evaluation: its constants and documents say what its data give."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from cephfit.mapper import MODELS
from cephfit.mapper.assessment.model_evaluation import LeaveOut, error_of, residuals_of
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


OF_THE_PAGE = ("waiting", "time", "learned")


@cache
def assessed(
    leave_out: LeaveOut | None = None, folder: str = "evaluation", models: tuple[str, ...] = ASSESSED
) -> ModelAssessment:
    return assess_models(read_folder(ROOT / "benchmarks" / "data" / folder), leave_out=leave_out, models=models)


def test_it_has_ten_workloads_on_ten_configurations_and_the_default() -> None:
    first = assessed(LeaveOut.WORKLOADS).accuracy[0]
    assert first.model == "waiting"
    assert first.n_runs >= 10
    assert first.n_configurations >= 10 * first.n_runs


def test_the_errors_of_the_models_are_those_of_the_evaluation() -> None:
    found = assessed(folder=KEPT, models=MODELS).errors
    assert set(ERRORS) == set(found) == set(MODELS)
    for model, error in found.items():
        assert_alike(ERRORS[model], error)


def test_the_error_of_answers_from_counts_is_that_of_the_evaluation() -> None:
    kept = read_folder(ROOT / "benchmarks" / "data" / KEPT)
    counted = tuple(
        replace(w, profile=replace(w.profile, demands=(), commits=None), baselines=replace(w.baselines, loaded={}))
        for w in kept.workloads
    )
    found = assess_models(replace(kept, workloads=counted), models=["time"]).verified
    residuals = [replace(r, from_cells=True) for r in residuals_of(found)]
    for model in ("waiting", "time"):
        assert_alike(ERRORS[model].of_answer(by_load=False), error_of(residuals))


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
    ("folder", "baselines"),
    [("evaluation", "new volumes"), pytest.param(KEPT, "kept volumes", marks=pytest.mark.slow)],
)
def test_the_page_says_where_what_is_learned_helps_and_where_it_does_not(folder: str, baselines: str) -> None:
    page = (ROOT / "docs" / "evidence.md").read_text()
    for what, name, models in (
        (LeaveOut.WORKLOADS, "workload", ASSESSED),
        (LeaveOut.CONFIGURATIONS, "configuration", OF_THE_PAGE),
    ):
        found = [a for a in assessed(what, folder, models).accuracy if a.model in OF_THE_PAGE]
        assert len(found) == len(OF_THE_PAGE)
        for accuracy in found:
            figures = " | ".join(figure_text(accuracy, figure) for figure in SHOWN[:3])
            assert f"| {baselines} | each {name} | {accuracy.model} | {figures} |" in page


@pytest.mark.slow
def test_what_is_learned_helps_where_large_gains_are_underestimated() -> None:
    by_model = {a.model: a.median_error_pct or 0.0 for a in assessed(LeaveOut.WORKLOADS, KEPT).accuracy}
    assert by_model["learned"] < by_model["waiting"]


@pytest.mark.parametrize("folder", ["evaluation", "evaluation-equal-work"])
def test_the_table_of_the_evidence_is_what_the_evaluation_gives(folder: str) -> None:
    page = (ROOT / "docs" / "evidence.md").read_text()
    for accuracy in assessed(LeaveOut.WORKLOADS, folder).accuracy:
        row = f"| {accuracy.model} | {' | '.join(figure_text(accuracy, figure) for figure in SHOWN)} |"
        assert row in page
