"""Sweeps drawn from a known truth, to see how often the predictor's intervals hold."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, SIZE_BINS, Cell, Op
from cephfit.core.values.prediction import Verdict
from cephfit.core.values.profile import Profile
from cephfit.mapper import predictor
from cephfit.mapper.models.mixture import MIXERS, used_cells

# IOPS of a throttled lab's default, by size bin, in the order read, write, randread, randwrite.
TYPICAL_IOPS = np.array(
    [2000, 900, 1290, 140, 900, 400, 600, 120, 400, 150, 300, 90, 60, 26, 55, 20, 2, 1.2, 2, 1.0], dtype=np.float64
)


Kept = Callable[[int, int], Sequence[int]]
"""The rounds that a sweep has of a configuration (0 is the default) in a cell, rising."""


def lacking_a_round(j: int, c: int) -> Sequence[int]:
    """Three rounds and six compared; one of these could not be applied in the last."""
    return range(2 if j == 6 else 3)


def default_in_other_rounds(j: int, c: int) -> Sequence[int]:
    """As many repeats of all, the default's not of the same rounds."""
    return range(1, 3) if j == 0 else range(2)


def lacking_repeats_here_and_there(j: int, c: int) -> Sequence[int]:
    """Three rounds; every compared configuration lacks one repeat of each cell, not the same everywhere."""
    return [i for i in range(3) if j == 0 or i != (7 * j + 3 * c) % 3]


def race(j: int, c: int) -> Sequence[int]:
    """Nine rounds; all but the default and one are dropped after two, or four."""
    return range(9 if j < 2 else 4 if j == 2 else 2)


def search(j: int, c: int) -> Sequence[int]:
    """Twelve rounds of the default; six trials, each in two of its own."""
    return range(12) if j == 0 else range(2 * j - 2, 2 * j)


@dataclass(frozen=True)
class Noise:
    """How a sweep's measurements scatter. Standard deviations are of log IOPS.

    Attributes:
        lowest, highest: a cell's own is drawn between these, evenly on a log scale.
        uneven: of the log of the factor by which it differs between configurations.
        noisy: multiplies the first configuration's (the default's) by this.
        applied: of a shift common to all cells of one configuration in one round.
        drift: of a shift common to all of a round.
        heavy: noise with t-distributed outliers (4 degrees of freedom) of the same variance.
    """

    lowest: float = 0.01
    highest: float = 0.08
    uneven: float = 0.0
    noisy: float = 1.0
    applied: float = 0.0
    drift: float = 0.0
    heavy: bool = False


@dataclass(frozen=True)
class Found:
    """Shares over many synthetic sweeps.

    Attributes:
        any_false: sweeps in which a configuration equal to the default was called different.
        covered: intervals that hold the true value.
        all_covered: sweeps in which all intervals hold the true values.
        detected: configurations that differ and were called different, in the right direction.
    """

    any_false: float
    covered: float
    all_covered: float
    detected: float


def profiles() -> tuple[Profile, ...]:
    """Three mixes: many cells, few cells, one cell that carries nearly all."""
    read, write = Op.READ, Op.WRITE
    names = [b.name for b in SIZE_BINS]

    def of(name: str, reads: list[int], writes: list[int], random_read: float, random_write: float) -> Profile:
        counts = {read: dict(zip(names, reads, strict=True)), write: dict(zip(names, writes, strict=True))}
        return Profile(name, counts, {read: random_read, write: random_write})

    return (
        of("many cells", [676, 43, 257, 20, 1], [877, 161, 47, 21, 1], 0.70, 0.767),
        of("few cells", [0, 0, 0, 0, 0], [462, 75, 161, 0, 0], 0.0, 0.946),
        of("one cell", [1000, 0, 0, 0, 0], [0, 0, 0, 0, 0], 1.0, 0.0),
    )


def simulate(
    model: str,
    noise: Noise,
    *,
    n_sweeps: int,
    n_compared: int,
    repeats: int,
    effect: float,
    seed: int,
    workloads: Sequence[Profile] = (),
    kept: Kept | None = None,
) -> Found:
    """Predict many synthetic sweeps.

    Args:
        effect: standard deviation of the true log differences per cell; 0 makes every configuration the default.
        workloads: which take turns; none: those of ``profiles``.
        kept: which of the repeats there are; all unless given.
    """
    rng = np.random.default_rng(seed)
    mixes = tuple(workloads) or profiles()
    model_predictor = predictor(model)
    covered = all_covered = any_false = right = 0
    for index in range(n_sweeps):
        profile = mixes[index % len(mixes)]
        truth = np.log(TYPICAL_IOPS) + np.vstack(
            [np.zeros(len(CELLS)), rng.normal(0, effect, (n_compared, len(CELLS)))]
        )
        measured = baselines_of(np.exp(draw(rng, truth, noise, repeats)), kept)
        true_relative = _true_relative(model, profile, np.exp(truth))
        others = [
            p for p in model_predictor.predict(profile, measured).predictions if p.verdict is not Verdict.DEFAULT
        ]
        holds = [p.low <= true_relative[p.configuration] <= p.high for p in others]
        different = [p for p in others if p.verdict is not Verdict.INDISTINGUISHABLE]
        covered += sum(holds)
        all_covered += all(holds)
        any_false += any(math.isclose(true_relative[p.configuration], 100) for p in different)
        right += sum((p.verdict is Verdict.BETTER) == (true_relative[p.configuration] > 100) for p in different)
    total = n_sweeps * n_compared
    return Found(any_false / n_sweeps, covered / total, all_covered / n_sweeps, right / total)


def _true_relative(model: str, profile: Profile, iops: NDArray[np.float64]) -> dict[str, float]:
    counts = used_cells(profile, model)
    columns = [CELLS.index(cell) for cell in counts]
    weights = np.array(list(counts.values()))
    mix = MIXERS[model]
    return {f"C{j}": mix(weights, iops[0, columns], row[columns]).relative for j, row in enumerate(iops) if j}


def draw(rng: np.random.Generator, truth: NDArray[np.float64], noise: Noise, repeats: int) -> NDArray[np.float64]:
    """Log IOPS as a sweep would measure them, shape (configurations, cells, repeats).

    Args:
        truth: log IOPS, shape (configurations, cells), the default first.
    """
    n_configurations, n_cells = truth.shape
    deviation = np.exp(rng.uniform(np.log(noise.lowest), np.log(noise.highest), (1, n_cells)))
    deviation = deviation * np.exp(rng.normal(0, noise.uneven, truth.shape))
    deviation[0] *= noise.noisy
    shape = (n_configurations, n_cells, repeats)
    scatter = rng.standard_t(4, shape) / np.sqrt(2) if noise.heavy else rng.normal(size=shape)
    return (
        truth[..., None]
        + deviation[..., None] * scatter
        + noise.applied * rng.normal(size=(n_configurations, 1, repeats))
        + noise.drift * rng.normal(size=(1, 1, repeats))
    )


def baselines_of(iops: NDArray[np.float64], kept: Kept | None = None) -> Baselines:
    """A sweep of the default A and of C1, C2, ... from IOPS of shape (configurations, cells, repeats)."""
    every = range(iops.shape[2])

    def each() -> Iterator[tuple[tuple[str, Cell], Baseline]]:
        for j, row in enumerate(iops):
            name = "A" if j == 0 else f"C{j}"
            for c, (cell, values) in enumerate(zip(CELLS, row, strict=True)):
                rounds = tuple(kept(j, c) if kept else every)
                yield (name, cell), Baseline(name, cell, tuple(float(values[i]) for i in rounds), rounds=rounds)

    return Baselines(dict(each()), "synthetic")
