"""Sizes that were not measured: interpolated, and the intervals are wider by the error seen at measured sizes."""

import math

import numpy as np
import pytest

from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import SIZE_BINS, LoadedCell, Op, Pattern
from cephfit.core.values.profile import Profile
from cephfit.mapper import predictor
from cephfit.mapper.completed_rates import SizeErrors
from cephfit.mapper.many_profiles import predict_many

KIB = 1024
SIZES = (4, 8, 16, 64, 128, 256, 1024)


def reads(**counts: int) -> Profile:
    """Random reads: the number of accesses in each bin."""
    accesses = {op: {b.name: counts.get(f"b{b.name}", 0) * (op is Op.READ) for b in SIZE_BINS} for op in Op}
    return Profile("w", accesses, {Op.READ: 1.0, Op.WRITE: 0.0})


def seconds(kib: int, name: str, bend: float) -> float:
    """A fixed part and bandwidth; with ``bend``, configuration X deviates from it at every other size."""
    if name == "A":
        return 1e-3 + kib * 1e-5
    return 0.5e-3 + kib * 0.8e-5 * (1 + bend * (SIZES.index(kib) % 2 if kib in SIZES else 0))


def swept(bend: float = 0.0, sizes: tuple[int, ...] = SIZES) -> Baselines:
    loaded = {}
    for name in ("A", "X"):
        for kib in sizes:
            cell = LoadedCell(kib * KIB, Pattern.RANDREAD)
            rate = 1 / seconds(kib, name, bend)
            loaded[name, cell] = Baseline(name, cell.bin_cell, (rate, rate * 1.001, rate * 0.999))
    cells = {
        (name, cell.bin_cell): b
        for (name, cell), b in loaded.items()
        if cell.nbytes == cell.bin_cell.size.benchmark_nbytes
    }
    return Baselines(cells, "by hand", loaded=loaded)


def test_times_that_are_linear_in_size_have_no_error_between_sizes() -> None:
    errors = SizeErrors.of(swept().loaded, "A", "X")
    assert len(errors.between) == len(SIZES) - 2
    assert np.allclose(errors.between, 0.0, atol=1e-9)
    assert len(errors.beyond) == 2
    assert max(map(abs, errors.beyond)) > 0.001  # below the smallest size the time is taken as constant


def test_the_error_is_that_of_the_ratio_computed_by_hand() -> None:
    """8K left out lies a third of the way from 4K to 16K."""
    errors = SizeErrors.of(swept(0.3).loaded, "A", "X")
    mean = {(n, k): 3 / (1 + 1.001 + 0.999) * seconds(k, n, 0.3) for n in ("A", "X") for k in (4, 8, 16)}
    left = {n: mean[n, 4] * 2 / 3 + mean[n, 16] / 3 for n in ("A", "X")}
    expected = math.log(left["X"] / left["A"]) - math.log(mean["X", 8] / mean["A", 8])
    assert errors.between[0] == pytest.approx(expected)


def test_a_cell_that_was_not_measured_is_interpolated_and_said_and_widens_the_interval() -> None:
    """32K is missing; the true ratio there lies in the interval, which grows with the error at other sizes."""
    workload = reads(b4K=1000, b32K=300)  # 1.04 s and 0.396 s under the default
    straight = predictor("time").predict(workload, swept())
    total = {n: 1000 * seconds(4, n, 0) + 300 * seconds(32, n, 0) for n in ("A", "X")}
    found = straight.of("X")
    assert found.relative == pytest.approx(100 * total["A"] / total["X"], rel=1e-3)
    (note,) = [n for n in straight.notes if n.startswith("interpolated")]
    assert "32K-randread with 28 % of the default's time, not measured" in note
    bent = predictor("time").predict(workload, swept(0.3)).of("X")
    assert math.log(bent.high / bent.low) > 3 * math.log(found.high / found.low)


def test_nothing_is_widened_where_every_cell_was_measured() -> None:
    found = predictor("time").predict(reads(b4K=1000, b128K=5), swept(0.3))
    assert not [n for n in found.notes if n.startswith("interpolated")]
    assert math.log(found.of("X").high / found.of("X").low) < 0.02


def test_with_two_sizes_the_error_is_unknown_and_the_interval_holds_a_factor_of_ten() -> None:
    workload = reads(b4K=1000, b32K=10)
    found = predictor("time").predict(workload, swept(sizes=(4, 128)))
    assert any("too few sizes were measured" in n for n in found.notes)
    x = found.of("X")
    slower = 1000 * seconds(4, "X", 0) + 10 * 10 * seconds(32, "X", 0)
    truth = 100 * (1000 * seconds(4, "A", 0) + 10 * seconds(32, "A", 0)) / slower
    assert x.low <= truth * 1.001


def test_many_workloads_at_once_have_the_same_intervals() -> None:
    workloads = [reads(b4K=1000, b32K=300), reads(b4K=1000)]
    many = predict_many(workloads, swept(0.3), "time")
    for i, workload in enumerate(workloads):
        one = predictor("time").predict(workload, swept(0.3)).of("X")
        assert (many.low[i, 1], many.high[i, 1]) == pytest.approx((one.low, one.high))
