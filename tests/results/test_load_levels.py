"""Figures by load, from samples."""

from dataclasses import replace

import pytest
from queue_samples import queue_samples
from scipy.special import gammaincinv

from cephfit.core.values.cells import LoadedCell, Pattern
from cephfit.core.values.sample import State
from cephfit.results.statistics.scaling import levels_of

KIND = LoadedCell.measured(4096, Pattern.RANDREAD)


def test_the_clients_of_a_load_are_added_and_their_latencies_pooled() -> None:
    levels = levels_of(queue_samples({"A": {"4K-randread": 1000.0}}, repeats=2))
    assert {n for _, _, n in levels.figures} == {1, 2, 4, 8, 32, 128}
    found = levels.figures["A", KIND, 8]
    assert sorted(found) == [0, 1]
    assert found[0].iops == pytest.approx(1000)
    p99 = found[0].quantiles_ns[levels.percentiles.index(99.0)]
    assert p99 == pytest.approx(1e9 * gammaincinv(8, 0.99) / 1000, rel=1e-4), "the sum of eight services"


def test_of_loads_with_as_many_in_flight_the_one_with_more_clients_counts() -> None:
    deep = list(queue_samples({"A": {"4K-randread": 900.0}}, levels={"deep": (1, 8)}))
    wide = list(queue_samples({"A": {"4K-randread": 1000.0}}, levels={"wide": (8, 1)}))
    for samples in (deep + wide, wide + deep):
        figures = levels_of(samples).figures["A", KIND, 8]
        assert figures[0].iops == pytest.approx(1000)


def test_limited_and_mixed_loads_and_failed_repeats_do_not_count() -> None:
    samples = list(queue_samples({"A": {"4K-randread": 1000.0}}, levels={"": (1, 1), "c2": (2, 1)}, repeats=2))
    changed = []
    for sample in samples:
        if sample.key.load == "c2":
            limited = {"load": {**sample.evidence["load"], "rate_iops": 20}}
            sample = replace(sample, evidence=limited)
        elif sample.key.repeat == 1:
            sample = replace(sample, state=State.FAILED, reason="no result", metrics=None)
        changed.append(sample)
    levels = levels_of(changed)
    assert set(levels.figures) == {("A", KIND, 1)}
    assert set(levels.figures["A", KIND, 1]) == {0}


def test_only_percentiles_that_all_samples_have_are_used() -> None:
    one = list(queue_samples({"A": {"4K-randread": 1000.0}}, percentiles=(50.0, 99.0)))
    other = list(queue_samples({"B": {"4K-randread": 1000.0}}, percentiles=(50.0, 90.0, 99.0)))
    none = list(queue_samples({"C": {"4K-randread": 1000.0}}, percentiles=()))
    assert levels_of(one + other).percentiles == (50.0, 99.0)
    assert levels_of(one + none).percentiles == ()
