"""Samples as columns: the same samples come out, whatever their metrics, percentiles and evidence."""

import json
import random

import numpy as np

from cephfit.core.statistics.sample_columns import SampleColumns, Tails, objects, parsed
from cephfit.core.values.cells import CELLS
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State


def some_samples(n: int = 60) -> list[Sample]:
    """Two engines with other percentiles, whole and broken numbers of ns, samples without metrics."""
    drawn = random.Random(4)
    found = []
    for i in range(n):
        tails: dict[float, float] = drawn.choice([{}, {50.0: 1000, 99.0: 2000}, {50.0: 1000.5, 99.9: 4e6}])
        metrics = Metrics(drawn.uniform(1, 9), 4096.0, drawn.randrange(9), 10**9, 1e6, tails)
        state = drawn.choice(list(State))
        key = SampleKey(
            drawn.choice("BA"), drawn.choice(CELLS), f"c{i % 3}", i // 3, i % 2, drawn.choice(["", "deep"])
        )
        reason = "" if state is State.OK else f"why {i}"
        found.append(
            Sample(
                key, state, None if reason and i % 2 else metrics, i, i + 1, reason, {"cache": "cold", f"k{i}": i}
            )
        )
    return found


def test_samples_come_out_of_columns_as_they_went_in() -> None:
    samples = some_samples()
    columns = SampleColumns.of(samples)
    assert list(columns) == samples
    assert columns == samples and samples == columns
    assert columns[7] == samples[7] and columns[-1] == samples[-1]
    assert list(columns[10:20]) == samples[10:20]
    assert columns.take(np.array([5, 3])) == [samples[5], samples[3]]
    assert [repr(s.metrics) for s in columns] == [repr(s.metrics) for s in samples], "whole numbers stay whole"
    assert SampleColumns.of(()) == []


def test_evidence_is_found_by_its_key_and_not_by_its_text() -> None:
    texts = ['{"used": 1}', '{"note": "used"}', '{"halves": {"used": 2}}', '{"steady": {}, "used": null}']
    columns = SampleColumns.of(some_samples(4))
    columns.evidence[:] = texts
    assert list(columns.evidence_with("used")) == [(0, {"used": 1}), (3, {"steady": {}, "used": None})]
    assert [row for row, _ in columns.evidence_with("halves", "steady", rows=np.array([3, 2, 1]))] == [3, 2]
    assert list(columns.evidence_with("absent")) == []


def test_percentiles_of_texts_are_those_of_the_values() -> None:
    documents: list[dict[str, float] | None] = [
        {"50.0": 10, "99.0": 20}, None, {"99.9": 5.5, "50.0": 1.0}, {}, {"50.0": 10, "99.0": 30}
    ]  # fmt: skip
    tails = Tails.of(objects([None if one is None else json.dumps(one) for one in documents]))
    assert tails.percentiles == (50.0, 99.0, 99.9)
    own = [{} if one is None else {float(p): ns for p, ns in one.items()} for one in documents]
    assert list(tails.documents()) == own


def test_a_half_of_a_surrogate_pair_does_not_stop_the_reading() -> None:
    assert list(parsed(['{"a": "\\ud800"}', '{"a": 1}'])) == [{"a": "\ud800"}, {"a": 1}]
