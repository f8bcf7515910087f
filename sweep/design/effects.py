"""What a screening says of each factor: main effects with intervals.

The model, for each cell, is additive in logarithms, like settings that each make an I/O slower by some factor:

    ln(rate of row i in round r) = mean + round_r + sum over factors f of beta_f * x_if + error,   x_if = -1 or 1

The columns x_f are orthogonal and balanced, so beta_f is half the difference between the means of the rows in
which f is at its second and at its first level, and exp(2 beta_f) the effect: the rate at the second level over
that at the first, all other factors averaged over.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Cell
from cephfit.core.values.prediction_model import DEFAULT_CONFIDENCE
from cephfit.core.values.sample import OWN_LOAD, Sample
from cephfit.results.statistics.sample_baselines import baselines_of
from cephfit.sweep.design.factorial_design import Design, DesignKind
from cephfit.sweep.goal import Goal

_POOL_UNLESS = 0.25
"""The variance that the factors leave unexplained between rows is put together with the one between rounds unless
it is larger than chance explains at this level (Bancroft 1944 on pooling after a preliminary test)."""


@dataclass(frozen=True, slots=True)
class Effect:
    """What one factor does.

    Attributes:
        factor: name.
        percent: change of the rate from the factor's first to its second level.
        low: lower end of the interval, which holds jointly over all factors of one table.
        high: upper end.
        everywhere: whether the effect is told from none jointly over all tables that were looked at.
    """

    factor: str
    percent: float
    low: float
    high: float
    everywhere: bool

    @property
    def matters(self) -> bool:
        """Whether the interval leaves out 0."""
        return not self.low <= 0 <= self.high


@dataclass(frozen=True, slots=True)
class Effects:
    """All factors' effects on one thing.

    Attributes:
        of: the cell, or the name of a profile.
        effects: in the design's order.
        deviation: standard deviation of one row's logarithm in one round, about the coefficient of variation.
        degrees: of freedom behind it.
        lack: whether the rows differ by more than the factors one by one explain: some act together, and the
            intervals are wider for it.
        rows: that had figures.
    """

    of: str
    effects: tuple[Effect, ...]
    deviation: float
    degrees: int
    lack: bool
    rows: int


def screening_of(designs: Iterable[Design], where: str = "") -> Design:
    """The screening among a sweep's designs.

    Raises:
        InputError: there is none.
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
    """Effects on the rate of every cell; each cell's intervals hold jointly over all factors (Bonferroni)."""
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
    """Effects on the predicted performance for a workload; the intervals hold jointly over all factors.

    Each round's prediction of a row is held against the default of the same round. None where too little is known.
    """
    assert goal.profile is not None, "the caller's condition"
    predictor = goal.predictor(confidence)
    table: dict[tuple[str, int], float] = {}
    for repeat in sorted({s.key.repeat for s in samples}):
        of_round = [s for s in samples if s.key.repeat == repeat and s.key.load == OWN_LOAD]
        try:
            said = predictor.predict(goal.profile, baselines_of(of_round, source=f"round {repeat + 1}"))
        except InputError:
            continue  # the default lacks a cell in this round
        table |= {(p.configuration, repeat): math.log(p.relative / 100) for p in said.predictions}
    return effects_of(goal.profile.name, design, table, confidence=confidence, n_tables=1)


def effects_of(
    what: str, design: Design, table: Mapping[tuple[str, int], float], *, confidence: float, n_tables: int
) -> Effects | None:
    """Fit the main effects.

    Args:
        what: for people.
        design: a screening.
        table: logarithm by (configuration, round). Rounds that lack a row are left out whole; a row that no round
            has is left out, and then the columns are not orthogonal any more: least squares takes care of that.
        confidence: joint level over the factors.
        n_tables: how many such fits are looked at together, for ``Effect.everywhere``.

    Returns:
        None where the rows left cannot tell the factors apart, or there is nothing to judge the noise by.
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
    judged = _noise(y, y.mean(axis=1) - fit @ beta, n_spare=len(rows) - fit.shape[1])
    if judged is None:
        return None
    variance, degrees, lack = judged
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
    """Variance of one figure, its degrees of freedom, and whether rows differ by more than the factors explain.

    Args:
        y: logarithms, shape (rows, rounds), each round's mean taken out.
        residual: of the rows' means from the fit, shape (rows,).
        n_spare: rows less what was fitted.
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
    """IOPS of all clients together by configuration, cell and round, for rounds that count."""
    rounds: dict[int, list[Sample]] = {}
    for sample in samples:
        if sample.key.load == OWN_LOAD:
            rounds.setdefault(sample.key.repeat, []).append(sample)
    return {
        (name, cell, repeat): baseline.iops[0]
        for repeat, of_round in rounds.items()
        for (name, cell), baseline in baselines_of(of_round, source="").cells.items()
    }
