"""Rates that follow from the same measurements share their errors."""

import math
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import SIZE_BINS, LoadedCell, Op, Pattern
from cephfit.core.values.demand import Demand
from cephfit.core.values.profile import Profile
from cephfit.mapper import predictor
from cephfit.mapper.completed_rates import completed
from cephfit.mapper.joint_prediction import JointPrediction
from cephfit.mapper.many_profiles import predict_many
from cephfit.mapper.mix_predictor import MixPredictor
from cephfit.mapper.supply import supply_set

K = 1024
ROUNDS = (0, 1, 2)
NOISE = 0.03
SIZES = (4 * K, 16 * K, 32 * K, 64 * K, 128 * K, 512 * K)
LARGE = (4 * K, 32 * K, 128 * K, 1024 * K)
RANDOM = (Pattern.RANDREAD, Pattern.RANDWRITE)
WRITES = (Pattern.WRITE, Pattern.RANDWRITE)
UNALIGNED = (Pattern.RANDREAD, Pattern.WRITE, Pattern.RANDWRITE)

DEPTH_AT_ONE_SIZE = (
    *(LoadedCell(n, Pattern.RANDWRITE) for n in SIZES),
    LoadedCell(32 * K, Pattern.RANDWRITE, 16),
)
LIKE_THE_EVALUATION = (
    *(LoadedCell(n, pattern) for n, pattern in product(LARGE, Pattern)),
    *(LoadedCell(n, pattern, 1, 4 * K) for n, pattern in product(LARGE[1:], UNALIGNED)),
    *(LoadedCell(n, pattern, 4) for n, pattern in product(LARGE[:3], RANDOM)),
    *(LoadedCell(n, pattern, 16) for n, pattern in product(LARGE[:2], RANDOM)),
    LoadedCell(128 * K, Pattern.RANDWRITE, 16, 4 * K),
    *(LoadedCell(n, pattern, 1, 0, "fsync") for n, pattern in product(LARGE[:2], WRITES)),
)


def rate(cell: LoadedCell) -> float:
    found = cell.iodepth**0.5 / (2e-3 + cell.nbytes / 1e8)
    return found * (0.7 if cell.align_nbytes else 1.0) * (0.5 if cell.sync else 1.0)


def swept(cells: tuple[LoadedCell, ...], draws: np.random.Generator | None, n: int = 8) -> Baselines:
    """Configurations that are all alike, with noise in each measurement by itself, or without any."""
    loaded = {}
    for name, cell in product(("A", *(f"C{j}" for j in range(1, n))), cells):
        logs = np.zeros(len(ROUNDS)) if draws is None else draws.normal(0, NOISE, len(ROUNDS))
        loaded[name, cell] = Baseline(name, cell.bin_cell, tuple(rate(cell) * np.exp(logs)), 1, ROUNDS)
    return Baselines({}, "drawn", loaded=loaded)


def workload(sizes: tuple[int, ...], patterns: tuple[Pattern, ...], *, is_aligned: bool) -> Profile:
    """A workload whose kinds of accesses wait equally long, with 16 outstanding."""
    demands = tuple(
        Demand(pattern, float(n), is_aligned, 16.0, None, 10.0 * 128 * K / n, 1.0)
        for n, pattern in product(sizes, patterns)
    )
    accesses = {op: {size.name: 1.0 for size in SIZE_BINS} for op in Op}
    return Profile("w", accesses, dict.fromkeys(Op, 0.5), demands=demands)


DEEP = workload((4 * K, 16 * K, 64 * K, 128 * K, 512 * K), (Pattern.RANDWRITE,), is_aligned=True)
DEEP_UNALIGNED = workload(LARGE[1:], UNALIGNED, is_aligned=False)
CASES = [(DEPTH_AT_ONE_SIZE, DEEP), (LIKE_THE_EVALUATION, DEEP_UNALIGNED)]


@pytest.mark.parametrize(("cells", "profile"), CASES)
def test_intervals_hold_as_often_as_promised_where_rates_follow_from_the_same_measurements(
    cells: tuple[LoadedCell, ...], profile: Profile
) -> None:
    """As if each such rate were measured by itself, all predictions were in 45 % of the sweeps in their intervals
    at once, and 76 % and 83 % of the supplies."""
    draws, model = np.random.default_rng(1), predictor("waiting", with_error=False)
    truth = supply_set(profile, swept(cells, None)).supplies[0].own_depth.value
    together, served = [], []
    for _ in range(150):
        baselines = swept(cells, draws)
        together.append(all(p.low <= 100 <= p.high for p in model.predict(profile, baselines).predictions))
        served += [s.own_depth.low <= truth <= s.own_depth.high for s in supply_set(profile, baselines).supplies]
    assert 0.92 <= np.mean(together) <= 0.995
    assert 0.92 <= np.mean(served) <= 0.995


@pytest.mark.parametrize(("cells", "profile"), CASES)
def test_predictions_are_those_as_if_all_rates_were_measured(
    cells: tuple[LoadedCell, ...], profile: Profile
) -> None:
    baselines = swept(cells, np.random.default_rng(2))
    every = completed(baselines).baselines
    assert not completed(every).sources
    for model in ("waiting", "time"):
        found, expected = (predictor(model).predict(profile, of) for of in (baselines, every))
        for p in found.predictions:
            assert p.relative == pytest.approx(expected.of(p.configuration).relative, rel=1e-12)
    for one, other in zip(
        supply_set(profile, baselines).supplies, supply_set(profile, every).supplies, strict=True
    ):
        assert one.own_depth.value == pytest.approx(other.own_depth.value, rel=1e-12)
        assert one.most.value == pytest.approx(other.most.value, rel=1e-12)


@pytest.mark.parametrize(("cells", "profile"), CASES)
def test_weights_are_the_derivatives_by_each_measurement(cells: tuple[LoadedCell, ...], profile: Profile) -> None:
    """C1 was measured itself in a kind that follows from others under the other configurations."""
    sweep = swept(cells, None, 3)
    kind = max(completed(sweep).sources, key=lambda cell: (cell.iodepth, -cell.nbytes, cell.align_nbytes))
    of_kind = Baseline("C1", kind.bin_cell, (1.3 * rate(kind),) * len(ROUNDS), 1, ROUNDS)
    sweep = replace(sweep, loaded={**sweep.loaded, ("C1", kind): of_kind})
    model = predictor("waiting")
    assert isinstance(model, MixPredictor)
    joint = JointPrediction.of(model, profile, sweep)
    weights, before, names = joint.weights(), joint.logs(), [place.name for place in joint.places]
    assert set(joint.table.cells) == {cell for _, cell in sweep.loaded}
    step = 1e-5
    for (name, cell), measured in sweep.loaded.items():
        values = (measured.iops[0], measured.iops[1] * math.exp(step), measured.iops[2])
        moved = replace(sweep, loaded={**sweep.loaded, (name, cell): replace(measured, iops=values)})
        slopes = (JointPrediction.of(model, profile, moved).logs() - before) / step
        at = joint.table.cells.index(cell)
        assert weights[:, names.index(name), at, 1] == pytest.approx(slopes, abs=1e-4), (name, cell)


def test_many_workloads_have_the_intervals_of_one_also_where_one_configuration_has_other_rounds() -> None:
    sweep = swept(LIKE_THE_EVALUATION, np.random.default_rng(3))
    first = LoadedCell(32 * K, Pattern.RANDWRITE, 1, 4 * K)
    short = replace(sweep.loaded["C1", first], iops=sweep.loaded["C1", first].iops[1:], rounds=ROUNDS[1:])
    # Under all configurations a source has fewer rounds than the others.
    fewer = {
        key: replace(b, iops=b.iops[:2], rounds=ROUNDS[:2]) if key[1] == first else b
        for key, b in sweep.loaded.items()
    }
    own = LoadedCell(32 * K, Pattern.RANDWRITE, 16, 4 * K)
    measured_itself = {("C2", own): Baseline("C2", own.bin_cell, (900.0, 950.0, 930.0), 1, ROUNDS)}
    plain = workload(LARGE, RANDOM, is_aligned=True)
    for loaded in ({}, {("C1", first): short}, fewer, measured_itself):
        baselines = replace(sweep, loaded={**sweep.loaded, **loaded})
        for model in ("waiting", "time"):
            found = predict_many([DEEP_UNALIGNED, plain, DEEP], baselines, model)
            for i, profile in enumerate((DEEP_UNALIGNED, plain, DEEP)):
                for p in predictor(model).predict(profile, baselines).predictions:
                    at = i, found.configurations.index(p.configuration)
                    assert found.relative[at] == pytest.approx(p.relative, rel=1e-9)
                    assert found.low[at] == pytest.approx(p.low, rel=1e-6)
                    assert found.high[at] == pytest.approx(p.high, rel=1e-6)
