"""Cells that were not measured, repeats that gave no figure, and figures that scatter beyond all numbers."""

import math

import pytest

from cephfit.core.errors import InputError
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import SIZE_BINS, Cell, Op
from cephfit.core.values.prediction import PredictionSet, Verdict
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State
from cephfit.mapper import predictor
from cephfit.results.statistics.sample_baselines import baselines_of

SMALL, LARGE = Cell.parse("4K-randread"), Cell.parse("1M-randread")


def reads(**counts: int) -> Profile:
    """Random reads of each size."""
    accesses = {op: {b.name: counts.get(f"b{b.name}", 0) * (op is Op.READ) for b in SIZE_BINS} for op in Op}
    return Profile("w", accesses, {Op.READ: 1.0, Op.WRITE: 0.0})


def swept(**small: float) -> Baselines:
    """IOPS of 4K random reads, three repeats; of 1M a tenth of it."""
    cells = {}
    for name, iops in small.items():
        cells[name, SMALL] = Baseline(name, SMALL, (iops, iops * 1.01, iops * 0.99))
        cells[name, LARGE] = Baseline(name, LARGE, (iops / 10, iops * 0.101, iops * 0.099))
    return Baselines(cells, "by hand")


@pytest.mark.parametrize("model", ["time", "meyer"])
def test_next_to_nothing_in_a_cell_that_was_not_measured_is_left_out_and_said(model: str) -> None:
    """One 32M access among a million of 4K takes at most what 32 of 1M take: 0.032 % of the default's time."""
    workload, baselines = reads(b4K=1_000_000, b32M=1), swept(A=100.0, fast=300.0)
    whole = predictor(model).predict(reads(b4K=1_000_000), baselines).of("fast")
    found = predictor(model).predict(workload, baselines)
    (note,) = [note for note in found.notes if note.startswith("omitted")]
    assert "32M-randread (it was not measured), with 0.0001 % of the accesses" in note
    assert ("at most 0.032 % of the default's time" in note) is (model == "time")
    fast = found.of("fast")
    assert fast.relative == pytest.approx(whole.relative)
    assert fast.low < whole.low
    assert fast.high > whole.high
    # Whatever the 32M access does between a tenth of the default's rate and tenfold, the interval holds it.
    for ratio in (0.1, 1.0, 10.0):
        cells = dict(baselines.cells)
        for name, iops in (("A", 10 / 32), ("fast", 10 / 32 * ratio)):
            cell = Cell.parse("32M-randread")
            cells[name, cell] = Baseline(name, cell, (iops, iops * 1.01, iops * 0.99))
        assert (
            fast.low < predictor(model).predict(workload, Baselines(cells, "all")).of("fast").relative < fast.high
        )


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        (reads(b4K=1_000, b32M=1), "too much of the time"),
        (reads(b4K=1_000_000, b128K=2_000), "too many accesses"),
        (reads(b32M=1), "all there is"),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)
def test_more_than_that_is_refused(workload: Profile, why: str) -> None:
    with pytest.raises(InputError, match=r"no baseline for (32M|128K)-randread under configuration A"):
        predictor().predict(workload, swept(A=100.0, fast=300.0))


def test_what_nothing_measured_tells_anything_about_is_refused_however_little_it_is() -> None:
    accesses = {Op.READ: {b.name: 10**6 * (b.name == "4K") for b in SIZE_BINS}}
    accesses[Op.WRITE] = {b.name: int(b.name == "4K") for b in SIZE_BINS}
    with pytest.raises(InputError, match="no baseline for 4K-randwrite"):
        predictor().predict(Profile("w", accesses, {Op.READ: 1.0, Op.WRITE: 1.0}), swept(A=100.0, fast=300.0))


def test_a_configuration_that_failed_more_often_than_not_does_not_look_as_sound_as_one_that_never_did() -> None:
    samples = [sample("A", repeat, 100.0 + repeat) for repeat in range(3)]
    samples += [sample("frail", 0, 300.0), sample("frail", 1, None), sample("frail", 2, None)]
    samples += [sample("idle", 0, 200.0), sample("idle", 1, 201.0), sample("idle", 2, 0.0)]
    notes = predictor().predict(reads(b4K=10), baselines_of(samples, source="x")).notes
    assert (
        "frail: 1 of 3 repeats in the workload's cells gave a figure; only these count (2 x failed: fio died)"
        in notes
    )
    assert any(n.startswith("idle: 2 of 3 repeats") and "1 x a client completed no I/O" in n for n in notes)
    assert not any(note.startswith("A:") for note in notes)


def test_a_repeat_that_a_later_attempt_gave_is_not_lost() -> None:
    samples = [sample(name, repeat, 100.0 + repeat) for name in ("A", "B") for repeat in range(2)]
    samples.append(sample("B", 2, None))
    samples += [sample("B", 2, 110.0, attempt=1), sample("A", 2, 101.0)]
    assert not baselines_of(samples, source="x").lost


def sample(name: str, repeat: int, iops: float | None, attempt: int = 0) -> Sample:
    key = SampleKey(name, SMALL, "c0", repeat, attempt)
    if iops is None:
        return Sample(key, State.FAILED, None, 0, 1, "fio died")
    metrics = Metrics(iops, iops * 4096, round(iops), 10**9, 1e9 / max(iops, 1))
    return Sample(key, State.OK, metrics, 0, 1)


def test_a_scatter_beyond_all_numbers_gives_an_interval_without_end() -> None:
    cells = {
        ("A", SMALL): Baseline("A", SMALL, (100.0, 200.0)),
        ("B", SMALL): Baseline("B", SMALL, (300.0,)),
    }
    found = predictor(confidence=0.9999).predict(reads(b4K=10), Baselines(cells, "by hand"))
    b = found.of("B")
    assert (b.low, b.high, b.verdict) == (0.0, math.inf, Verdict.INDISTINGUISHABLE)
    assert PredictionSet.from_json(found.to_json()).of("B").high == math.inf
