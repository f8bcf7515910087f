"""The effects that a screening shows: the main effect of each factor with an interval.

The model of each cell is additive in logarithms: each setting changes the rate by a factor.

    ln(rate of row i in round r) = mean + round_r + sum over factors f of beta_f * x_if + error,   x_if = -1 or 1

The columns x_f are orthogonal and balanced. So beta_f is half the difference between two means: of the rows with f
at its second level, and of those with f at its first. The effect is exp(2 beta_f): the rate at the second level
divided by the rate at the first, averaged over all other factors.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from cephfit.core.errors import InputError
from cephfit.core.statistics.sample_columns import SampleColumns
from cephfit.core.values.cells import Cell
from cephfit.core.values.prediction import DEFAULT_CONFIDENCE
from cephfit.core.values.sample import OWN_LOAD, Sample
from cephfit.results.statistics.sample_baselines import baselines_of
from cephfit.sweep.factorial_design import Design, DesignKind
from cephfit.sweep.sweep_plan import Goal

_POOL_UNLESS = 0.25
"""Significance level of the test before pooling. The variance between rows that the factors do not explain is
pooled with the one between rounds, unless it is significantly larger (Bancroft 1944, preliminary tests)."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of one factor.

    Attributes:
        factor: name.
        percent: change of the rate from the factor's first to its second level.
        low: lower end of the interval, which holds jointly over all factors of one table.
        high: upper end.
        everywhere: whether the effect is significant jointly over all tables of the analysis.
    """

    factor: str
    percent: float
    low: float
    high: float
    everywhere: bool

    @property
    def matters(self) -> bool:
        """Whether the interval excludes 0."""
        return not self.low <= 0 <= self.high


@dataclass(frozen=True, slots=True)
class Effects:
    """The effects of all factors on one cell or one profile.

    Attributes:
        of: the cell, or the name of a profile.
        effects: in the design's order.
        deviation: standard deviation of one row's logarithm in one round, about the coefficient of variation.
        degrees: its degrees of freedom.
        lack: lack of fit: the rows differ by more than the main effects explain. Then some factors interact, and
            the intervals are wider.
        rows: number of rows with figures.
    """

    of: str
    effects: tuple[Effect, ...]
    deviation: float
    degrees: int
    lack: bool
    rows: int


def screening_of(designs: Iterable[Design], where: str = "") -> Design:
    """Return the first screening of a sweep's designs.

    Raises:
        InputError: no design is a screening.
    """
    for design in designs:
        if design.kind is DesignKind.SCREENING:
            return design
    raise InputError(
        "this sweep has no screening", where=where, remedy="effects are those of a design with `kind: screening`"
    )


def effects_on_cells(
    design: Design, samples: Sequence[Sample], cells: Sequence[Cell], *, confidence: float = DEFAULT_CONFIDENCE
) -> list[Effects]:
    """Return the effects on every cell's rate; a cell's intervals hold jointly over all factors (Bonferroni)."""
    rates = _by_round(samples)
    found = []
    for cell in cells:
        table = {(name, repeat): math.log(iops) for (name, other, repeat), iops in rates.items() if other == cell}
        effects = effects_of(str(cell), design, table, confidence=confidence, n_tables=len(cells))
        if effects is not None:
            found.append(effects)
    return found


def effects_on_profile(
    design: Design, samples: Sequence[Sample], goal: Goal, *, confidence: float = DEFAULT_CONFIDENCE
) -> Effects | None:
    """Return the effects on the predicted performance for a workload; intervals hold jointly over all factors.

    Each round's prediction of a row is compared with the default of the same round. The result is None where the
    samples are too few.
    """
    assert goal.profile is not None, "the caller's condition"
    predictor = goal.predictor(confidence)
    table: dict[tuple[str, int], float] = {}
    for repeat, of_round in _rounds(samples):
        try:
            predicted = predictor.predict(goal.profile, baselines_of(of_round, source=f"round {repeat + 1}"))
        except InputError:
            continue  # the default lacks a cell in this round
        table |= {(p.configuration, repeat): math.log(p.relative / 100) for p in predicted.predictions}
    return effects_of(goal.profile.name, design, table, confidence=confidence, n_tables=1)


def effects_of(
    what: str, design: Design, table: Mapping[tuple[str, int], float], *, confidence: float, n_tables: int
) -> Effects | None:
    """Fit the main effects.

    Args:
        what: name of the cell or profile, for people.
        design: a screening.
        table: logarithm of the rate by (configuration, round). Rounds that lack a row are omitted. A row that no
            round has is omitted too; the columns are then no longer orthogonal, which least squares allows for.
        confidence: joint level over the factors.
        n_tables: number of such fits in the analysis, for ``Effect.everywhere``.

    Returns:
        None where the remaining rows cannot separate the factors, or allow no estimate of the noise.
    """
    known = {name for name, _ in table}
    rows = [row for row in design.rows if row.configuration in known]
    rounds = [r for r in sorted({r for _, r in table}) if all((row.configuration, r) in table for row in rows)]
    if not rows or not rounds:
        return None
    signs = [
        [1.0 if level == f.levels[1] else -1.0 for f, level in zip(design.factors, row.levels, strict=True)]
        for row in rows
    ]
    y = np.array([[table[row.configuration, r] for r in rounds] for row in rows])
    y = y - y.mean(axis=0)
    fit = np.column_stack([np.ones(len(rows)), np.array(signs)])
    if np.linalg.matrix_rank(fit) < fit.shape[1]:
        return None
    inverse = np.linalg.inv(fit.T @ fit)
    beta = inverse @ fit.T @ y.mean(axis=1)
    noise = _noise(y, y.mean(axis=1) - fit @ beta, n_spare=len(rows) - fit.shape[1])
    if noise is None:
        return None
    variance, degrees, lack = noise
    errors = np.sqrt(variance / len(rounds) * np.diag(inverse))[1:]
    tail = (1 - confidence) / (2 * len(design.factors))
    t, t_all = (float(stats.t.ppf(1 - tail / n, degrees)) for n in (1, n_tables))
    effects = tuple(
        Effect(f.name, _percent(b), _percent(b - t * error), _percent(b + t * error), abs(b) > t_all * error)
        for f, b, error in zip(design.factors, beta[1:].tolist(), errors.tolist(), strict=True)
    )
    return Effects(what, effects, math.sqrt(variance), degrees, lack, len(rows))


def _percent(beta: float) -> float:
    return 100 * math.expm1(2 * beta)


def _noise(
    y: NDArray[np.float64], residual: NDArray[np.float64], *, n_spare: int
) -> tuple[float, int, bool] | None:
    """Return the variance of one figure, its degrees of freedom, and whether the fit lacks interactions.

    Args:
        y: logarithms, shape (rows, rounds), with each round's mean subtracted.
        residual: of the rows' means from the fit, shape (rows,).
        n_spare: number of rows minus number of fitted coefficients.
    """
    n_rows, n_rounds = y.shape
    between = n_rounds * float(residual @ residual)
    df_within = (n_rows - 1) * (n_rounds - 1)
    within = float(((y - y.mean(axis=1, keepdims=True)) ** 2).sum())
    if not df_within:
        return (between / n_spare, n_spare, False) if n_spare else None
    if not n_spare:
        return within / df_within, df_within, False
    ratio = (between / n_spare) / max(within / df_within, 1e-12)
    if float(stats.f.sf(ratio, n_spare, df_within)) < _POOL_UNLESS:
        return between / n_spare, n_spare, bool(stats.f.sf(ratio, n_spare, df_within) < 0.05)
    return (between + within) / (n_spare + df_within), n_spare + df_within, False


def _by_round(samples: Iterable[Sample]) -> dict[tuple[str, Cell, int], float]:
    """Return all clients' IOPS by configuration, cell and round, under the measurement's own load."""
    return {
        (name, cell, repeat): baseline.iops[0]
        for repeat, of_round in _rounds(samples)
        for (name, cell), baseline in baselines_of(of_round, source="").cells.items()
    }


def _rounds(samples: Iterable[Sample]) -> Iterator[tuple[int, SampleColumns]]:
    """Yield each round and its samples under the measurement's own load, ascending."""
    columns = SampleColumns.of(samples)
    rows = columns.rows_under(OWN_LOAD)
    for repeat in np.unique(columns.repeat[rows]).tolist():
        yield repeat, columns.take(rows[columns.repeat[rows] == repeat])
