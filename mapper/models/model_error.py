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
    """

    floor: float
    slope: float
    df: float = math.inf
    by_cells: "ModelError | None" = None

    def of_answer(self, *, by_load: bool) -> "ModelError":
        """The error of an answer; ``by_load``: from sizes, depths, alignment and commits."""
        return self if by_load or self.by_cells is None else self.by_cells

    def scale(self, relative: float) -> float:
        """The scale for a prediction, default = 100; the standard deviation of a normal distribution."""
        return math.hypot(self.floor, self.slope * math.log(relative / 100))

    def half_width(self, relative: float, confidence: float) -> float:
        """Half the interval of the log of one prediction that comes from the model alone."""
        return self._quantile(confidence) * self.scale(relative)

    def half_widths(self, relative: Floats, confidence: float) -> Floats:
        """``half_width`` of predictions of any shape."""
        scales = np.hypot(self.floor, self.slope * np.log(relative / 100))
        return np.asarray(self._quantile(confidence) * scales)

    def _quantile(self, confidence: float) -> float:
        level = (1 + confidence) / 2
        return float(ndtri(level) if math.isinf(self.df) else stdtrit(self.df, level))

    def to_json(self) -> dict[str, Any]:
        """The constants; ``df`` is null for the normal distribution."""
        return {"floor": self.floor, "slope": self.slope, "df": None if math.isinf(self.df) else self.df}


NO_ERROR = ModelError(0.0, 0.0)

_OF_COUNTS = ModelError(0.16, 0.0, 3.0)
"""Of ``time`` with counts in the 20 cells."""

ERRORS: Mapping[str, ModelError] = {
    "waiting": ModelError(0.0574, 0.3039, 4.0, by_cells=_OF_COUNTS),
    "time": ModelError(0.0700, 0.1872, 4.0, by_cells=_OF_COUNTS),
    "meyer": ModelError(0.29, 0.0, 3.0),
    "meyer-random": ModelError(0.17, 0.0, 3.0),
    "meyer-sequential": ModelError(0.31, 0.0, 3.0),
}
"""By model: fitted to `benchmarks/data/evaluation-kept-volumes`, as `cephfit assess --json` prints them.

Sweeps that keep their volumes do not have the luck of placement in their scatter: it is a part of these errors.
For answers from the 20 cells alone none is known; it is larger.
"""

WITHOUT_MODEL_ERROR = (
    "the intervals hold the noise of the benchmarks only, not the error of the model: of real workloads on the lab, "
    "about 6 in 10 of such 90 % intervals held. Trace with times and sizes (blktrace), or verify"
)
"""Note on answers from counts in the 20 cells, and on those of Formula 2.1 (docs/evidence.md, *What each part earns*)."""

LEAST_RESIDUALS = 4
"""Fewest residuals from which an error is fitted: it has three parameters."""
_DFS = (3.0, 4.0, 6.0, 10.0, 30.0)
_SMALLEST = 1e-4
"""Lower limit of a fitted floor: predictions are not shown to more than a hundredth of a per cent."""


def fitted(
    residuals: Sequence[float], predicted_logs: Sequence[float], scatter_sds: Sequence[float]
) -> ModelError:
    """Fit a model's error to predictions of workloads that were really run, by maximum likelihood.

    Residuals have Student's distribution, with the squared scale ``floor^2 + (slope x predicted_log)^2 +
    scatter_sd^2``. Its heavy tails keep a few gross errors from widening all intervals. The degrees of freedom are
    the most likely of 3, 4, 6, 10 and 30.

    Args:
        residuals: log measured - log predicted, N of them, in log units.
        predicted_logs: log of predicted performance over the default's, N of them.
        scatter_sds: standard deviations of the residuals' parts that intervals contain anyway, such as the scatter
            of the benchmarks, N of them, in log units.

    Raises:
        InputError: fewer than ``LEAST_RESIDUALS`` residuals.
    """
    r, x, s = (np.asarray(values, dtype=np.float64) for values in (residuals, predicted_logs, scatter_sds))
    if len(r) < LEAST_RESIDUALS:
        raise InputError(
            f"{len(r)} measured ratios are too few to estimate a model's error",
            remedy=f"measure at least {LEAST_RESIDUALS} on other workloads or configurations",
        )
    from scipy.optimize import minimize

    best: tuple[float, ModelError] | None = None
    typical = max(float(np.median(np.abs(r))), 10 * _SMALLEST)
    for df in _DFS:

        def loss(logs: Floats, df: float = df) -> float:
            floor, slope = np.exp(np.clip(logs, -20, 5))
            return _minus_log_likelihood(r, np.sqrt(floor**2 + (slope * x) ** 2 + s**2 + _SMALLEST**2), df)

        for start in ((typical, 0.05), (typical / 3, 0.5)):
            found = minimize(loss, np.log(start), method="Nelder-Mead", options={"maxiter": 2000})
            if best is None or found.fun < best[0]:
                floor, slope = (float(value) for value in np.exp(np.clip(found.x, -20, 5)))
                slope = slope if slope > _SMALLEST and x.any() else 0.0  # the search is over logarithms
                best = float(found.fun), ModelError(math.hypot(floor, _SMALLEST), slope, df)
    assert best is not None, "there are degrees of freedom to try"
    return best[1]


def _minus_log_likelihood(residuals: Floats, scales: Floats, df: float) -> float:
    constant = gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * math.log(df * math.pi)
    logs = constant - np.log(scales) - (df + 1) / 2 * np.log1p((residuals / scales) ** 2 / df)
    return -float(logs.sum())
