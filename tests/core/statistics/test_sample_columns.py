"""Samples as columns: the same samples come out, whatever their metrics, percentiles and evidence."""

import json
import random
from typing import Any

import numpy as np
import pytest

from cephfit.core.statistics.sample_columns import SampleColumns, Tails, objects, parsed
from cephfit.core.values.cells import CELLS
from cephfit.core.values.sample import (
    INDEPENDENT_COUNT,
    Metrics,
    Sample,
    SampleKey,
    State,
    counted,
    not_counted,
    window_nbytes_of,
    windows_nbytes_of,
)


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


def test_the_99th_percentile_is_that_of_all_percentiles() -> None:
    documents = [
        '{"50.0": 10, "99.0": 20}',
        None,
        '{"99": 7.5}',
        "{}",
        '{"99.9": 5.5}',
        '{"99.0": 30, "99.9": 31.5}',
    ]
    texts = SampleColumns.of(some_samples(len(documents)))
    texts.percentile_documents[:] = documents
    np.testing.assert_array_equal(texts.p99_ns, [20, np.nan, 7.5, np.nan, np.nan, 30])
    for columns in (SampleColumns.of(some_samples()), texts.take(slice(None))):
        tails = columns.take(slice(None)).tails
        np.testing.assert_array_equal(columns.p99_ns, tails.ns[:, tails.percentiles.index(99.0)])
    read = texts.take(slice(None))
    assert read.tails is not None
    np.testing.assert_array_equal(read.p99_ns, texts.p99_ns)


@pytest.mark.parametrize(
    "others", [[], [{}], [{INDEPENDENT_COUNT: {"window_nbytes": "4"}}], [{INDEPENDENT_COUNT: "x"}]]
)
def test_counts_of_many_samples_are_those_of_each(others: list[dict[str, Any]]) -> None:
    counts = [
        counted(source="kernel", window_nbytes=n, total_nbytes=5000, allowed_nbytes=0) for n in (4096.0, 1.5)
    ]
    evidence = [*({INDEPENDENT_COUNT: count} for count in counts), *others]
    assert windows_nbytes_of(evidence) == [window_nbytes_of(own) for own in evidence]
    assert windows_nbytes_of(evidence)[0] == 4096


def test_facts_of_evidence_are_those_of_each_sample() -> None:
    count = counted(source="kernel", window_nbytes=4096.0, total_nbytes=5000, allowed_nbytes=0)
    evidence = [
        {"cache": "cold", INDEPENDENT_COUNT: count},
        {},
        {INDEPENDENT_COUNT: not_counted("no counters")},
        {"cache": "warm", "used": {"cache": 1}},
        {"cache": "cold", INDEPENDENT_COUNT: {"window_nbytes": "4"}},
    ]
    columns = SampleColumns.of(some_samples(len(evidence)))
    columns.evidence[:] = list(map(json.dumps, evidence))
    facts = columns.evidence_facts
    assert facts.keys == {"cache", INDEPENDENT_COUNT, "used"}
    assert [facts.caches[code] for code in facts.cache] == ["cold", None, None, "warm", "cold"]
    np.testing.assert_array_equal(facts.window_nbytes, [4096, np.nan, np.nan, np.nan, np.nan])
    assert [row for row, _ in columns.evidence_with("used", "absent")] == [3], "also when the keys are known"
    assert list(columns.evidence_with("absent")) == []


def test_a_half_of_a_surrogate_pair_does_not_stop_the_reading() -> None:
    assert list(parsed(['{"a": "\\ud800"}', '{"a": 1}'])) == [{"a": "\ud800"}, {"a": 1}]
