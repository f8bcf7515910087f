"""Which configurations a probe runs on, and how its runs and the prediction are combined."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import ndtri

from cephfit.core.errors import InputError
from cephfit.core.values.assessment import AssessmentRow
from cephfit.core.values.prediction import Prediction, PredictionSet, Verdict
from cephfit.mapper.decisions.probe import (
    combined,
    log_half_width,
    probe_candidates,
)

QUANTILE = float(ndtri(0.975))


def predicted(name: str, low: float, relative: float, high: float) -> Prediction:
    verdict = Verdict.BETTER if low > 100 else Verdict.WORSE if high < 100 else Verdict.INDISTINGUISHABLE
    return Prediction(name, relative, low, high, verdict)


def predictions(*others: Prediction) -> PredictionSet:
    default = Prediction("A", 100.0, 100.0, 100.0, Verdict.DEFAULT)
    ranked = tuple(sorted([default, *others], key=lambda p: -p.relative))
    best = next((p.configuration for p in ranked if p.verdict is Verdict.BETTER), "A")
    worst = next((p.configuration for p in reversed(ranked) if p.verdict is Verdict.WORSE), "A")
    return PredictionSet("time", "work", "here", ranked, best, worst, 0.95, 1.0)


def row(name: str, relative: float | None, low: float | None, high: float | None) -> AssessmentRow:
    return AssessmentRow(name, 100.0, None, None, relative, low, high, () if relative is None else (1.0, 1.0))


def test_those_that_may_be_the_best_are_candidates_and_no_others() -> None:
    found = probe_candidates(
        predictions(
            predicted("best", 120, 150, 180),
            predicted("close", 110, 130, 150),
            predicted("far", 105, 110, 115),
            predicted("slow", 40, 50, 60),
        )
    )
    assert found.names == ("A", "best", "close")
    assert found.reason == "2 configurations may be the best"


def test_the_lowest_is_a_candidate_if_it_may_be_no_worse_than_the_default() -> None:
    found = probe_candidates(predictions(predicted("best", 120, 150, 180), predicted("low", 70, 90, 110)))
    assert found.names == ("A", "low")
    assert found.reason == "low may be worse than A or not"


def test_a_clear_answer_needs_no_candidates() -> None:
    found = probe_candidates(predictions(predicted("best", 120, 150, 180), predicted("slow", 70, 80, 90)))
    assert found.names == ()
    assert found.reason == "best is the best: its interval is above all others"


def test_the_default_may_be_the_best_itself() -> None:
    """Nothing is better; the default's interval is a point, which only ``near`` reaches."""
    found = probe_candidates(predictions(predicted("near", 90, 96, 102), predicted("slow", 60, 70, 80)))
    assert found.names == ("A", "near")


def test_the_limit_counts_the_default_and_keeps_the_highest() -> None:
    close = [predicted(f"c{i}", 100.5, 150 - i, 200) for i in range(6)]
    found = probe_candidates(predictions(*close, predicted("low", 80, 90, 101)), 3)
    assert found.names == ("A", "c0", "c1", "low")
    assert (
        found.reason
        == "7 configurations may be the best, 5 of them are not probed; low may be worse than A or not"
    )


def test_predictions_without_an_interval_are_all_candidates() -> None:
    found = probe_candidates(predictions(predicted("x", 0, 300, math.inf), predicted("y", 0, 50, math.inf)))
    assert found.names == ("A", "x", "y")


def test_one_configuration_cannot_be_compared() -> None:
    with pytest.raises(InputError, match="cannot be compared"):
        probe_candidates(predictions(predicted("x", 90, 100, 110)), 1)
    assert probe_candidates(predictions()).names == ()


logs = st.floats(-1.5, 1.5)
widths = st.floats(0.005, 1.5)


@given(prior=logs, prior_width=widths, probe=logs, probe_width=widths, clone_error=st.floats(0, 0.5))
def test_the_combination_is_between_both_and_narrower_than_each(
    prior: float, prior_width: float, probe: float, probe_width: float, clone_error: float
) -> None:
    p, m = 100 * math.exp(prior), 100 * math.exp(probe)
    before = predictions(predicted("x", p * math.exp(-prior_width), p, p * math.exp(prior_width)))
    measured = row("x", m, m * math.exp(-probe_width), m * math.exp(probe_width))
    after = combined(before, [measured], clone_error=clone_error).of("x")
    assert min(p, m) * (1 - 1e-12) <= after.relative <= max(p, m) * (1 + 1e-12)
    runs = math.hypot(probe_width, QUANTILE * clone_error)
    assert log_half_width(after) < min(log_half_width(before.of("x")), runs)


def test_the_weights_are_the_precisions() -> None:
    """Half intervals of 0.3 and 0.6 have weights of 4 to 1."""
    before = predictions(predicted("x", 100 * math.exp(-0.3), 100, 100 * math.exp(0.3)))
    m = 100 * math.exp(0.5)
    runs = math.sqrt(0.6**2 - (QUANTILE * 0.1) ** 2)
    after = combined(before, [row("x", m, m * math.exp(-runs), m * math.exp(runs))], clone_error=0.1).of("x")
    assert math.log(after.relative / 100) == pytest.approx(0.1)
    assert log_half_width(after) == pytest.approx(0.3 * 0.6 / math.hypot(0.3, 0.6))


def test_the_runs_alone_count_where_the_prediction_has_no_interval() -> None:
    before = predictions(predicted("x", 0, 300, math.inf))
    after = combined(before, [row("x", 80, 78, 82.1)], clone_error=0.01).of("x")
    assert after.relative == pytest.approx(80)
    assert after.verdict is Verdict.WORSE


def test_what_was_not_run_keeps_its_prediction() -> None:
    before = predictions(predicted("x", 90, 120, 150), predicted("y", 90, 110, 130), predicted("z", 90, 105, 120))
    after = combined(before, [row("A", 100, 100, 100), row("x", None, None, None), row("y", 100, None, None)])
    assert after.predictions == before.predictions


def test_best_and_worst_follow_the_combination() -> None:
    before = predictions(predicted("x", 105, 140, 190), predicted("y", 101, 130, 170), predicted("z", 70, 90, 115))
    rows = [row("x", 104, 103, 105), row("y", 160, 158, 162), row("z", 70, 69, 71)]
    after = combined(before, rows, clone_error=0.02)
    assert (before.best, before.worst) == ("x", "A")
    assert (after.best, after.worst) == ("y", "z")
    assert [p.configuration for p in after.predictions] == ["y", "x", "A", "z"]
    assert after.model == "time+probe"
    assert after.as_good == ()


def test_those_whose_interval_overlaps_the_best_are_as_good() -> None:
    before = predictions(predicted("x", 105, 140, 190), predicted("y", 101, 130, 170))
    after = combined(before, [row("x", 140, 135, 145), row("y", 139, 134, 144)], clone_error=0.05)
    assert after.best == "x"
    assert after.as_good == ("y",)
