"""Predictions for many workloads at once equal those for one."""

import math
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cephfit.core.errors import InputError
from cephfit.core.statistics.round_effects import Floats
from cephfit.core.statistics.variance import Table, spread_of
from cephfit.core.values.baseline import Baseline, Baselines, MeasuredLoad
from cephfit.core.values.cells import CELLS, SIZE_BINS, Cell, LoadedCell, Op, Pattern
from cephfit.core.values.demand import Commits, Demand
from cephfit.core.values.profile import Profile
from cephfit.mapper import MODELS, predictor
from cephfit.mapper.models import model_error
from cephfit.mapper.models.many_profiles import predict_many
from cephfit.mapper.models.model_error import ModelError

K = 1024
FACTORS = {"A": 1.0, "slow": 0.7, "nearly": 1.002, "fast": 1.3, "mixed": 1.1, "erratic": 1.2, "slowest": 0.2}


def noise(name: str, draws: np.random.Generator, n: int) -> Floats:
    return np.exp(draws.normal(0, 0.3 if name == "erratic" else 0.02, n))


def by_cells(rounds: int = 3, *, absent: Sequence[tuple[str, Cell]] = ()) -> Baselines:
    """All cells; ``mixed`` is faster in some only, ``erratic`` scatters; applications shift all cells."""
    draws = np.random.default_rng(7)
    shifts = {name: noise(name, draws, rounds) for name in FACTORS}
    cells = {}
    for name, factor in FACTORS.items():
        for number, cell in enumerate(CELLS):
            own = factor if name != "mixed" or number % 3 else 1 / factor
            iops = own * (100 + 10 * number) * noise(name, draws, rounds) * shifts[name]
            if (name, cell) not in absent:
                cells[name, cell] = Baseline(name, cell, tuple(iops))
    return Baselines(cells, "run r1")


def test_the_measurements_have_every_part_of_a_spread() -> None:
    """Else the comparisons below would not notice a part that is missing."""
    tables = [Table.of(by_cells(5), tuple(FACTORS)), Table.of_loaded(by_loads(), tuple(FACTORS))]
    for spread in map(spread_of, tables):
        assert spread is not None
        assert spread.alone is not None
        assert spread.applied > 0
        assert (spread.alone > 0).tolist() == [name == "erratic" for name in FACTORS]


def counted(
    name: str, draws: np.random.Generator, *, bins: Sequence[str] = ("4K", "32K", "128K", "1M")
) -> Profile:
    accesses = {op: {b.name: int(draws.integers(0, 900)) * (b.name in bins) for b in SIZE_BINS} for op in Op}
    return Profile(name, accesses, {Op.READ: float(draws.uniform(0, 1)), Op.WRITE: 0.4})


def by_loads(*, sync: bool = True) -> Baselines:
    draws = np.random.default_rng(3)
    loaded = {}
    for name, factor in FACTORS.items():
        shifts = noise(name, draws, 3)
        for nbytes in (4 * K, 64 * K, 1024 * K):
            for pattern in Pattern:
                for depth, align, commit in ((1, 0, ""), (8, 0, ""), (1, 4096, ""), (1, 0, "fsync")):
                    cell = LoadedCell.measured(nbytes, pattern, iodepth=depth, align_nbytes=align, sync=commit)
                    speed = factor ** (1.0 if pattern.is_random else -0.5) / (2 if align or commit else 1)
                    rate = speed * min(depth, 3) / (0.005 * (1 + pattern.is_random) + nbytes / 1e8)
                    if (sync or not commit) and (name, cell) not in loaded:
                        loaded[name, cell] = Baseline(
                            name, cell.bin_cell, tuple(rate * shifts * noise(name, draws, 3))
                        )
    return Baselines({}, "run r2", loaded=loaded)


def demanded(name: str, draws: np.random.Generator, *, idle: float, waiting: bool = True) -> Profile:
    """Demands of all kinds, some in the background, with flushes and idle time."""
    demands = tuple(
        Demand(
            list(Pattern)[int(draws.integers(4))],
            float(draws.uniform(512, 3e6)),
            [True, False, None][int(draws.integers(3))],
            [None, 1.0, float(draws.uniform(1, 20))][int(draws.integers(3))],
            [True, False, None][int(draws.integers(3))],
            float(draws.integers(1, 1000)),
            float(draws.uniform(0, 3)) if waiting else None,
        )
        for _ in range(int(draws.integers(1, 12)))
    )
    commits = Commits(int(draws.integers(0, 500)), float(draws.uniform(0, 1)), fua_writes=3)
    return replace(counted(name, draws), demands=demands, idle_seconds=idle, commits=commits)


def assert_same_as_one_by_one(profiles: list[Profile], baselines: Baselines, model: str) -> None:
    found = predict_many(profiles, baselines, model, 0.9, with_error=True)
    assert found.profiles == tuple(p.name for p in profiles)
    assert found.configurations[0] == baselines.default
    for i, profile in enumerate(profiles):
        single = predictor(model, confidence=0.9, with_error=True).predict(profile, baselines)
        predicted = {p.configuration: p for p in single.predictions}
        assert found.models[i] == single.model
        assert found.best[i] == single.best
        for k, name in enumerate(found.configurations):
            if name not in predicted:
                assert np.isnan([found.relative[i, k], found.low[i, k], found.high[i, k]]).all()
                continue
            one = predicted[name]
            assert found.relative[i, k] == pytest.approx(one.relative, rel=1e-9)
            for end, own in ((found.low[i, k], one.low), (found.high[i, k], one.high)):
                assert end == pytest.approx(own, rel=1e-6), (profile.name, name)


@pytest.fixture
def errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """The models err, each by its own scale."""
    for number, model in enumerate(MODELS):
        monkeypatch.setitem(model_error.ERRORS, model, ModelError(0.01 * (1 + number), 0.1, 4.0))  # type: ignore[arg-type]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_workloads_by_cells(model: str, rounds: int, errors: None) -> None:
    draws = np.random.default_rng(1)
    profiles = [counted(f"w{i}", draws, bins=("4K", "1M") if i % 2 else ("32K",)) for i in range(12)]
    assert_same_as_one_by_one(profiles, by_cells(rounds), model)


@pytest.mark.parametrize("model", ["waiting", "time", "meyer"])
@pytest.mark.parametrize("idle", [0.0, 1.0, 300.0])
def test_workloads_by_demands(model: str, idle: float, errors: None) -> None:
    """Idle time hides the background of some of them under some configurations."""
    draws = np.random.default_rng(2)
    profiles = [demanded(f"w{i}", draws, idle=idle, waiting=i % 3 > 0) for i in range(30)]
    baselines = replace(by_loads(), cells=by_cells().cells)
    assert_same_as_one_by_one(profiles, baselines, model)


def test_counts_are_interpolated_where_their_cell_was_not_measured() -> None:
    draws = np.random.default_rng(5)
    assert_same_as_one_by_one([counted(f"w{i}", draws) for i in range(4)], by_loads(sync=False), "time")


def test_a_configuration_without_a_rate_is_compared_where_it_is_not_needed() -> None:
    draws = np.random.default_rng(6)
    profiles = [counted(f"w{i}", draws, bins=("4K", "1M") if i % 2 else ("32K",)) for i in range(6)]
    lacking = by_cells(absent=[("fast", Cell(SIZE_BINS[3], Pattern.READ))])
    assert_same_as_one_by_one(profiles, lacking, "time")
    found = predict_many(profiles, lacking, "time")
    fast = found.configurations.index("fast")
    assert np.isnan(found.relative[:, fast]).tolist() == [False, True] * 3


def test_other_rounds_limits_and_omitted_cells_are_predicted_one_by_one() -> None:
    draws = np.random.default_rng(8)
    profiles = [counted(f"w{i}", draws, bins=("4K", "1M") if i % 2 else ("32K",)) for i in range(4)]
    whole = by_cells()
    cell = Cell(SIZE_BINS[0], Pattern.RANDREAD)
    shorter = replace(whole.cells["fast", cell], iops=whole.cells["fast", cell].iops[:2], rounds=(0, 2))
    assert_same_as_one_by_one(profiles, replace(whole, cells={**whole.cells, ("fast", cell): shorter}), "time")
    limited = MeasuredLoad(limit="250 IOPS", at_limit=frozenset({("fast", cell), ("A", cell)}))
    assert_same_as_one_by_one(profiles, replace(whole, measured_load=limited), "time")
    few = replace(profiles[0], accesses={op: {**profiles[0].accesses[op], "32M": 1} for op in Op})
    few = replace(few, accesses={op: {**few.accesses[op], "32K": 100_000} for op in Op})
    without = {key: b for key, b in whole.cells.items() if key[1].size.name != "32M"}
    assert_same_as_one_by_one([few, *profiles], replace(whole, cells=without), "time")


def test_cells_measured_in_different_rounds() -> None:
    """All configurations have a cell in the same rounds, but two cells in different ones."""
    whole = by_cells(4)
    cells = {
        key: replace(b, iops=b.iops[1:], rounds=(1, 2, 3)) if CELLS.index(key[1]) % 3 else b
        for key, b in whole.cells.items()
    }
    draws = np.random.default_rng(9)
    profiles = [counted(f"w{i}", draws) for i in range(4)]
    for model in ("time", "meyer"):
        assert_same_as_one_by_one(profiles, replace(whole, cells=cells), model)


def test_no_workloads_and_only_the_default() -> None:
    assert predict_many([], by_cells()).relative.shape == (0, len(FACTORS))
    alone = {key: b for key, b in by_cells().cells.items() if key[0] == "A"}
    found = predict_many([counted("w", np.random.default_rng(1))], Baselines(alone, "run r1"))
    assert found.relative.tolist() == found.low.tolist() == found.high.tolist() == [[100.0]]


def test_a_workload_without_accesses_is_named() -> None:
    empty = Profile("idle", {op: {b.name: 0 for b in SIZE_BINS} for op in Op}, dict.fromkeys(Op, 0.0))
    for baselines in (by_cells(), by_loads()):
        with pytest.raises(InputError) as caught:
            predict_many([counted("w", np.random.default_rng(1)), empty], baselines)
        assert "idle" in caught.value.where


def test_the_best_of_each_workload_is_the_table() -> None:
    draws = np.random.default_rng(4)
    found = predict_many([counted("w0", draws), counted("w1", draws)], by_cells())
    rows = found._table().rows
    assert [row[:3] for row in rows] == [("w0", "time", "fast"), ("w1", "time", "fast")]
    assert all(math.isclose(row[3], found.relative[i, 3]) for i, row in enumerate(rows))  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [[], ["--demands"], ["--model", "meyer"]])
@pytest.mark.slow
def test_the_benchmark_runs(options: list[str]) -> None:
    script = Path(__file__).resolve().parents[3] / "benchmarks" / "many_predictions.py"
    size = ["--profiles", "4", "--configurations", "3"]
    command = [sys.executable, str(script), *size, *options]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    assert "4 workloads x 3 configurations" in printed
    assert [line.split("  ")[0] for line in printed.splitlines()[1:]] == ["at once", "one by one", "ratio"]
