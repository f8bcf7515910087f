"""The published cross-check is the independent count's, and nothing that merely has a name alike."""

import pytest

from cephfit.core.values.cells import CELLS
from cephfit.core.values.sample import INDEPENDENT_COUNT, Metrics, Sample, SampleKey, State, counted, not_counted
from cephfit.results.report.method_facts import deviation_of

MOVED = Metrics(iops=100.0, nbytes_per_s=4096.0 * 100, n_ios=200, runtime_ns=2 * 10**9, latency_mean_ns=1e7)
OTHERS = {"window_nbytes": 7, "source": "a trace of the other direction"}


def sample(**evidence: object) -> Sample:
    return Sample(SampleKey("A", CELLS[0], "c0", 0), State.OK, MOVED, 0, 1, evidence=evidence)


def test_the_count_of_somebody_else_is_held_against_fios_bytes() -> None:
    count = counted(source="kernel", window_nbytes=827_392, total_nbytes=900_000, allowed_nbytes=4096)
    assert deviation_of(sample(other_direction=OTHERS, **{INDEPENDENT_COUNT: count})) == pytest.approx(0.01)


def test_where_nobody_counted_there_is_none() -> None:
    assert deviation_of(sample(other_direction=OTHERS, **{INDEPENDENT_COUNT: not_counted("no counters")})) is None
    assert deviation_of(sample(other_direction=OTHERS)) is None, "of a version that counted nothing"
