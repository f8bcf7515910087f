"""Summary figures of predictions against verified runs, checked by hand."""

import pytest

from cephfit.core.values.assessment import Assessment, AssessmentRow
from cephfit.core.values.prediction import Prediction, PredictionSet, Verdict
from cephfit.mapper.assessment.accuracy import (
    VerifiedPrediction,
    accuracy_by_model,
    error_pct_of,
    is_inside,
    ratio_of,
)


def row(
    name: str, predicted: float, measured: float | None, low: float | None = None, high: float | None = None
) -> AssessmentRow:
    return AssessmentRow(name, predicted, low, high, measured, None, None, ())


DEFAULT = row("A", 100, 100, 100, 100)


def verified(
    *rows: AssessmentRow, best: str, worst: str, regret: float | None = None, model: str = "time"
) -> VerifiedPrediction:
    """The default A, and other configurations that were predicted and run."""
    predictions = tuple(
        Prediction(
            r.configuration,
            r.predicted_relative,
            r.predicted_relative,
            r.predicted_relative,
            Verdict.DEFAULT if r.configuration == "A" else Verdict.BETTER,
        )
        for r in rows
    )
    found = PredictionSet(model, "w", "b", predictions, best, worst, 0.95, 1.0)
    return VerifiedPrediction("r", "sim", True, found, Assessment("w", "tps", model, rows, None, regret))


def test_ratio_and_error_are_relative_to_what_was_measured() -> None:
    one = row("x", 150, 200)
    assert ratio_of(one) == pytest.approx(0.75)
    assert error_pct_of(one) == pytest.approx(25)
    assert ratio_of(row("x", 150, None)) is None
    assert error_pct_of(row("x", 150, None)) is None


@pytest.mark.parametrize(
    ("low", "high", "inside"),
    [
        (140, 160, False),
        (140, 200, True),
        (140, None, True),
        (None, 160, False),
        (None, None, None),
        (0, None, None),
    ],
)
def test_an_open_end_contains_everything_and_no_interval_says_nothing(
    low: float | None, high: float | None, inside: bool | None
) -> None:
    assert is_inside(row("x", 150, 200, low, high)) is inside
    assert is_inside(row("x", 150, None, low, high)) is None


def test_the_default_is_left_out_of_errors_and_coverage() -> None:
    runs = [
        verified(DEFAULT, row("b", 200, 250, 190, 260), row("c", 50, 40, 45, 55), best="b", worst="c", regret=0.0),
        verified(DEFAULT, row("b", 90, 100, 80, 99), best="b", worst="A", regret=10.0),
    ]
    (found,) = accuracy_by_model(runs)
    assert (found.model, found.n_runs, found.n_configurations) == ("time", 2, 3)
    assert found.median_error_pct == pytest.approx(20)  # of 10, 20, 25
    assert found.p90_error_pct == pytest.approx(24)  # four fifths of the way from 20 to 25
    assert found.spearman == 1  # of the first run; two configurations have no order worth a figure
    assert (found.mean_regret_pct, found.max_regret_pct) == (5, 10)
    assert found.coverage == pytest.approx(1 / 3)
    assert found.best_in_top_2 == 1


def test_the_best_and_the_worst_are_judged_by_what_was_measured() -> None:
    rows = (DEFAULT, row("b", 300, 90), row("c", 200, 150), row("d", 80, 120))
    named = verified(*rows, best="b", worst="d")
    assert named.best_in_top_2 is False  # c and d are ahead of b
    assert named.worst_named is False  # that is b
    assert named.spearman == pytest.approx(-0.4)  # ranks 2 4 3 1 against 2 1 4 3: 1 - 6 * 14 / 60
    assert verified(*rows, best="c", worst="b").best_in_top_2 is True
    assert verified(*rows, best="c", worst="b").worst_named is True
    assert verified(*rows, best="x", worst="y").best_in_top_2 is None
    assert verified(*rows, best="x", worst="y").worst_named is None


def test_equal_values_have_no_rank_correlation() -> None:
    assert verified(DEFAULT, row("b", 100, 90), row("c", 100, 80), best="A", worst="A").spearman is None


def test_models_are_summed_up_by_themselves_and_nothing_measured_gives_no_figures() -> None:
    one = verified(DEFAULT, row("b", 110, 100), best="b", worst="A")
    other = verified(DEFAULT, row("b", 110, None), best="b", worst="A", model="meyer")
    time, meyer = accuracy_by_model([one, other])
    assert time.median_error_pct == pytest.approx(10)
    assert (meyer.model, meyer.n_configurations) == ("meyer", 0)
    assert meyer.median_error_pct is None
    assert meyer.coverage is None
    assert accuracy_by_model([]) == ()
