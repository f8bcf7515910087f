"""The error of a model beyond the scatter of its measurements.

The constants come from real workloads that ran on every configuration of a sweep (docs/evidence.md). They were
fitted to the log errors of the predictions. `cephfit assess --leave-out workloads` shows how well such a fit
covers workloads that it has not seen.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, ndtri, stdtrit

from cephfit.core.errors import InputError
from cephfit.core.statistics.round_effects import Floats


@dataclass(frozen=True, slots=True)
class ModelError:
    """Distribution of the log of predicted over true performance: Student's, around 0.

    Attributes:
        floor: its scale where a configuration is predicted to perform like the default, in log units.
        slope: increase of the scale with the distance of the prediction from the default, both in log units.
        df: degrees of freedom; few mean heavy tails, infinite is the normal distribution.
        by_cells: the error of answers from the 20 cells alone, where it differs from that of answers from sizes,
            depths, alignment and commits; None: the same.
        by_spread: increase of the scale with the spread of the ratios over the cells (``Prediction.spread``).
    """

    floor: float
    slope: float
    df: float = math.inf
    by_cells: "ModelError | None" = None
    by_spread: float = 0.0

    def of_answer(self, *, by_load: bool) -> "ModelError":
        """The error of an answer; ``by_load``: from sizes, depths, alignment and commits."""
        return self if by_load or self.by_cells is None else self.by_cells

    def scale(self, relative: float, spread: float) -> float:
        """The scale for a prediction, default = 100; the standard deviation of a normal distribution."""
        return math.hypot(self.floor, self.slope * math.log(relative / 100), self.by_spread * spread)

    def half_width(self, relative: float, confidence: float, spread: float) -> float:
        """Half the interval of the log of one prediction that comes from the model alone."""
        return self._quantile(confidence) * self.scale(relative, spread)

    def squared_half_widths(
        self, logs: NDArray[np.floating], confidence: float, spread: NDArray[np.floating] | float
    ) -> NDArray[np.floating]:
        """Squares of ``half_width`` of predictions of any shape, by the logs of their ratios to the default."""
        squares = (self.slope * logs) ** 2
        squares += self.floor**2
        if self.by_spread:
            squares += (self.by_spread * spread) ** 2
        squares *= self._quantile(confidence) ** 2
        return squares

    def _quantile(self, confidence: float) -> float:
        level = (1 + confidence) / 2
        return float(ndtri(level) if math.isinf(self.df) else stdtrit(self.df, level))

    def to_json(self) -> dict[str, Any]:
        """The constants; ``df`` is null for the normal distribution."""
        df = None if math.isinf(self.df) else self.df
        return {"floor": self.floor, "slope": self.slope, "df": df, "by_spread": self.by_spread}


NO_ERROR = ModelError(0.0, 0.0)

_OF_COUNTS = ModelError(0.031, 0.0, 4.0, by_spread=0.851)
"""Of ``time`` with counts in the 20 cells."""

ERRORS: Mapping[str, ModelError] = {
    "waiting": ModelError(0.0432, 0.1486, 4.0, by_cells=_OF_COUNTS),
    "time": ModelError(0.0357, 0.1644, 4.0, by_cells=_OF_COUNTS),
    "meyer": ModelError(0.0, 0.0, 6.0, by_spread=1.151),
    "meyer-random": ModelError(0.0359, 0.0, 6.0, by_spread=1.110),
    "meyer-sequential": ModelError(0.0575, 0.0, 6.0, by_spread=1.339),
}
"""By model: fitted to all five evaluation sets together, as `benchmarks/model_errors.py` prints them.

The sets are of three machines and two releases, with and without new volumes in each round. The script also judges
each set by a fit to the others: that is what a new cluster will see. Answers from the 20 cells alone do not know
which sizes, depths and alignments the accesses in a cell have. What that costs depends on how differently a
configuration changes the cells: one that makes all of them twice as fast makes every mix of them twice as fast.
"""

BETWEEN_TARGETS = ModelError(0.47, 0.0)
"""Of the ratio of what two targets serve, for the speed of a workload on them: the root mean square of the log
errors of twelve ratios, of three workloads on five back ends (docs/back-ends.md)."""

LEAST_RESIDUALS = 4
"""Fewest residuals from which an error is fitted: it has three parameters."""
_DFS = (3.0, 4.0, 6.0, 10.0, 30.0)
_SMALLEST = 1e-4
"""Lower limit of a fitted floor: predictions are not shown to more than a hundredth of a per cent."""


def fitted(
    residuals: Sequence[float],
    predicted_logs: Sequence[float],
    scatter_sds: Sequence[float],
    spreads: Sequence[float] = (),
) -> ModelError:
    """Fit a model's error to predictions of workloads that were really run, by maximum likelihood.

    Residuals have Student's distribution. Its squared scale is ``floor^2 + (slope x predicted_log)^2 +
    scatter_sd^2``; with ``spreads`` it is ``floor^2 + (by_spread x spread)^2 + scatter_sd^2``. Its heavy tails
    keep a few gross errors from widening all intervals. The degrees of freedom are the most likely of 3, 4, 6, 10
    and 30.

    Args:
        residuals: log measured - log predicted, N of them, in log units.
        predicted_logs: log of predicted performance over the default's, N of them.
        scatter_sds: standard deviations of the residuals' parts that intervals contain anyway, such as the scatter
            of the benchmarks, N of them, in log units.
        spreads: ``Prediction.spread`` of the predictions, N of them, for answers from the 20 cells.

    Raises:
        InputError: fewer than ``LEAST_RESIDUALS`` residuals.
    """
    columns = (residuals, predicted_logs, scatter_sds, spreads)
    r, x, s, h = (np.asarray(values, dtype=np.float64) for values in columns)
    if len(r) < LEAST_RESIDUALS:
        raise InputError(
            f"{len(r)} measured ratios are too few to estimate a model's error",
            remedy=f"measure at least {LEAST_RESIDUALS} on other workloads or configurations",
        )
    floor, slope, df = _most_likely(r, h if len(h) else x, s)
    return ModelError(floor, 0.0, df, by_spread=slope) if len(h) else ModelError(floor, slope, df)


def _most_likely(r: Floats, x: Floats, s: Floats) -> tuple[float, float, float]:
    """Return floor, slope over ``x`` and degrees of freedom; all arrays have the shape (N,)."""
    from scipy.optimize import minimize

    best: tuple[float, tuple[float, float, float]] | None = None
    typical = max(float(np.median(np.abs(r))), 10 * _SMALLEST)
    squares = r**2, x**2, s**2 + _SMALLEST**2
    for df in _DFS:
        for start in ((typical, 0.05), (typical / 3, 0.5)):
            found = minimize(
                _minus_log_likelihood,
                np.log(start),
                args=(*squares, df),
                jac=True,
                method="L-BFGS-B",
                bounds=[(-20, 5)] * 2,
                options={"gtol": 1e-7, "ftol": 1e-14},
            )
            if best is None or found.fun < best[0]:
                floor, slope = (float(value) for value in np.exp(found.x))
                slope = slope if slope > _SMALLEST and x.any() else 0.0  # the search is over logarithms
                best = float(found.fun), (math.hypot(floor, _SMALLEST), slope, df)
    assert best is not None, "there are degrees of freedom to try"
    return best[1]


def _minus_log_likelihood(
    logs: Floats, residuals: Floats, predicted_logs: Floats, scatter: Floats, df: float
) -> tuple[float, Floats]:
    """Return minus the log likelihood, and its gradient.

    Args:
        logs: of floor and slope, shape (2,).
        residuals, predicted_logs, scatter: the squares of these, shape (N,).
        df: degrees of freedom.
    """
    floor, slope = np.exp(2 * logs)
    scales = floor + slope * predicted_logs + scatter
    ratios = residuals / (df * scales)
    constant = gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * math.log(df * math.pi)
    terms = 0.5 * np.log(scales) + (df + 1) / 2 * np.log1p(ratios) - constant
    by_scale = (0.5 - (df + 1) / 2 * ratios / (1 + ratios)) / scales
    return float(terms.sum()), 2 * np.array([floor * by_scale.sum(), slope * (by_scale @ predicted_logs)])
