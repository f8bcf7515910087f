"""Predictions and assessments through JSON."""

import json
import math

import pytest
from example_run import example_assessment, example_predictions
from hypothesis import given
from hypothesis import strategies as st

from cephfit.core.errors import InputError
from cephfit.core.values.assessment import Assessment, AssessmentRow
from cephfit.core.values.cells import CELLS
from cephfit.core.values.prediction import CellReason, Prediction, PredictionSet, Verdict

finite = st.floats(min_value=0, max_value=1e6)
name = st.text(min_size=1, max_size=5)


@st.composite
def predictions(draw: st.DrawFn) -> Prediction:
    low, centre, high = sorted([draw(finite), draw(finite), draw(finite)])
    if draw(st.booleans()):
        low, high = -math.inf, math.inf
    reasons = st.lists(st.builds(CellReason, st.sampled_from(CELLS), finite, finite, finite), max_size=3)
    return Prediction(draw(name), centre, low, high, draw(st.sampled_from(Verdict)), tuple(draw(reasons)))


@given(st.lists(predictions(), max_size=4), st.one_of(finite, st.just(math.inf)))
def test_predictions_read_back_the_same(rows: list[Prediction], noise_floor: float) -> None:
    whole = PredictionSet("time", "p", "b", tuple(rows), "A", "B", 0.95, noise_floor, ("a note",))
    assert PredictionSet.from_json(json.loads(json.dumps(whole.to_json(), allow_nan=False))) == whole


@given(
    st.lists(
        st.builds(
            AssessmentRow,
            name,
            finite,
            *[st.one_of(st.none(), finite)] * 5,
            st.lists(finite, max_size=3).map(tuple),
        ),
        max_size=3,
    )
)
def test_assessments_read_back_the_same(rows: list[AssessmentRow]) -> None:
    whole = Assessment("pgbench", "tps", "time", tuple(rows), None, None, 0.95, ("a note",))
    assert Assessment.from_json(json.loads(json.dumps(whole.to_json(), allow_nan=False))) == whole


def test_the_error_is_predicted_minus_measured() -> None:
    row = AssessmentRow("B", 190.0, 180.0, 200.0, 200.0, None, None, (1.0, 2.0))
    assert (row.n, row.error_points) == (2, -10.0)
    document = Assessment("w", "tps", "time", (row,), True, 0.0).to_json()["rows"][0]
    assert (document["n"], document["error_points"], document["measured"]["relative"]) == (2, -10.0, 200.0)
    assert AssessmentRow("B", 190.0, None, None, None, None, None, ()).error_points is None


def test_what_was_measured_beside_its_predicted_interval_is_said() -> None:
    rows = (
        AssessmentRow("ssd", 580.0, 514.0, 653.0, 467.0, 454.0, 480.0, (1.0,)),
        AssessmentRow("met", 120.0, 110.0, 130.0, 105.0, 99.0, 111.0, (1.0,)),
        AssessmentRow("A", 100.0, 100.0, 100.0, 100.0, 100.0, 100.0, (1.0,)),
        AssessmentRow("unknown", 90.0, None, None, 50.0, None, None, (1.0,)),
        AssessmentRow("slow", 50.0, 45.0, 54.0, 60.0, 57.0, 63.0, (1.0,)),
    )
    assert [row.outside for row in rows] == ["below", "", "", "", "above"]
    below, above = Assessment("w", "tps", "time", rows, True, 0.0).missed()
    assert below == "Measured below the predicted interval: ssd."
    assert above == "Measured above the predicted interval: slow."


@pytest.mark.parametrize("read", [PredictionSet.from_json, Assessment.from_json])
def test_documents_that_are_none_are_refused_with_the_part_that_is_wrong(read: object) -> None:
    assert callable(read)
    for document, said in (
        ([], "JSON object"),
        ({"schema_version": 99}, "schema_version is 99"),
        ({"schema_version": 1}, "is missing"),
    ):
        with pytest.raises(InputError, match=said):
            read(document)
    with pytest.raises(InputError, match="not predictions"):
        PredictionSet.from_json({**example_predictions().to_json(), "predictions": [3]})
    with pytest.raises(InputError, match="not a verification"):
        Assessment.from_json({**example_assessment().to_json(), "rows": [3]})
