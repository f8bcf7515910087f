"""Ways to estimate the variance of a sweep's measurements that lost against ``core/statistics/variance.py``.

Each is a function that ``MixPredictor`` takes in place of ``spread_of``. They suppose a sweep in which every
configuration was measured in every cell equally often, as the synthetic ones are. J configurations, C cells.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import digamma, ndtr, polygamma, stdtrit
from scipy.stats import chi2

from cephfit.core.statistics.round_effects import Floats
from cephfit.core.statistics.variance import Spread, Table, spread_of

Construction = Callable[[Table], Spread | None]

_NONE, _ALL = 1e-9, 1e9
"""Prior degrees of freedom with which a cell keeps its own variance, or takes the pooled one. (Not 0 and infinity,
which would divide 0 by 0.)"""
_LEAST_PRIOR, _MOST_PRIOR = 4.0, 30.0


def own_variance(table: Table) -> Spread:
    """Each cell's own variance under each configuration, and so Welch's interval."""
    residuals = _residuals(table)
    return _spread(residuals, prior_df=_NONE)


def pooled_only(table: Table) -> Spread:
    """Each cell's variance pooled over the configurations, the same for all of them."""
    residuals = _residuals(table)
    return _spread(residuals, prior_df=_ALL)


def moderated_with_tau2(table: Table) -> Spread:
    """Steps 2, 4 and 5: rounds are not taken out, and all configurations are held to be equally steady."""
    residuals = _residuals(table)
    n_configurations, _, n_repeats = residuals.shape
    pooled = (residuals**2).sum(axis=(0, 2)) / (n_configurations * (n_repeats - 1))
    weights = (1 / pooled) / (1 / pooled).sum()
    shifts = np.einsum("c,jcr->jr", weights, residuals)
    df = n_configurations * (n_repeats - 1)
    mean_square = float((shifts**2).sum()) / df
    applied = max(0.0, mean_square - float(weights**2 @ pooled))
    return _spread(
        residuals, prior_df=4.0, applied=applied, applied_raw=mean_square if applied else 0.0, applied_df=df
    )


def prior_of_8(table: Table) -> Spread | None:
    """All five steps; the pooled variance counts for 8 degrees of freedom."""
    return spread_of(table, prior_df=8.0)


def prior_estimated(table: Table) -> Spread | None:
    """All five steps; the prior degrees of freedom from the sweep itself, as Smyth (2004, section 6.2) does.

    The log of an own variance over what it is drawn towards varies by trigamma(d / 2) + trigamma(prior / 2), with
    d its degrees of freedom. The estimate is held between 4 and 30.
    """
    first = spread_of(table)
    if first is None:
        return None
    df = np.maximum(first.n - 1, 1)
    ratios = np.log(first.own / first.target) - digamma(df / 2) + np.log(df / 2)
    wanted = float(np.var(ratios, ddof=1) - polygamma(1, df / 2).mean())
    if wanted >= polygamma(1, _LEAST_PRIOR / 2):
        prior = _LEAST_PRIOR
    elif wanted <= polygamma(1, _MOST_PRIOR / 2):
        prior = _MOST_PRIOR
    else:
        prior = float(brentq(lambda d: polygamma(1, d / 2) - wanted, _LEAST_PRIOR, _MOST_PRIOR))
    return spread_of(table, prior_df=prior)


class _IndependentParts(Spread):
    """The chosen spread, but Satterthwaite's formula forgets that an own variance is also a part of the pool."""

    def variance_of(self, weights: Floats, rows: NDArray[np.intp] | None = None) -> tuple[float, float]:
        if rows is not None:
            every = np.zeros((len(self.n), *weights.shape[1:]))
            every[rows] = weights
            weights = every
        variance, degrees = super().variance_of(weights)
        df = np.maximum(self.n - 1, 1).astype(np.float64)
        drawn = self.prior_df / (self.prior_df + df)
        weight = (weights**2).sum(axis=2)
        through_pool = (drawn * weight * self.unsteadiness[:, None]).sum(axis=0)
        through_own = (1 - drawn) * weight
        by_pool = through_pool * df / df.sum(axis=0)
        # ((a + b) m)^2 is what the chosen one adds up, (a m)^2 + (b m)^2 what it would if both were independent.
        forgotten = float((2 * by_pool * through_own * self.moderated**2 / df).sum())
        return variance, max(1.0, variance**2 / (variance**2 / degrees - forgotten))


def parts_held_independent(table: Table) -> Spread | None:
    """All five steps, with the pooled and the own part of a variance taken as independent."""
    chosen = spread_of(table)
    if chosen is None:
        return None
    return _IndependentParts(**{field: getattr(chosen, field) for field in Spread.__dataclass_fields__})


def bonferroni_over_max_t(n_compared: int, df: float) -> float:
    """How much wider Bonferroni's joint 95 % intervals are than those from the quantile of the largest |t|.

    For comparisons with one default, all means of equal variance, which is estimated with ``df`` degrees of
    freedom (Dunnett 1955). With x the default's mean and s the estimate, the others are independent:
    P(largest |t| <= q) = E[(Phi(x + q s sqrt 2) - Phi(x - q s sqrt 2))^k].
    """
    x, weights = np.polynomial.hermite_e.hermegauss(80)
    s = np.sqrt(chi2.ppf((np.arange(2000) + 0.5) / 2000, df) / df)

    def probability(q: float) -> float:
        reach = q * s[:, None] * 2**0.5
        within = (ndtr(x + reach) - ndtr(x - reach)) ** n_compared
        return float((within @ weights).mean() / weights.sum())

    bonferroni = float(stdtrit(df, 1 - 0.05 / (2 * n_compared)))
    return bonferroni / float(brentq(lambda q: probability(q) - 0.95, 1.0, 2 * bonferroni))


def _residuals(table: Table) -> Floats:
    """Log IOPS less their mean over repeats, shape (J, C, repeats)."""
    residuals: Floats = table.logs - table.logs.mean(axis=2, keepdims=True)
    return residuals


def _spread(
    residuals: Floats, *, prior_df: float, applied: float = 0.0, applied_raw: float = 0.0, applied_df: int = 0
) -> Spread:
    """A spread without rounds and with equally steady configurations."""
    n_configurations, n_cells, n_repeats = residuals.shape
    df = n_repeats - 1
    own = (residuals**2).sum(axis=2) / df
    target = np.broadcast_to(own.mean(axis=0), own.shape)
    return Spread(
        n=np.full((n_configurations, n_cells), n_repeats),
        own=own,
        target=target,
        moderated=(prior_df * target + df * own) / (prior_df + df),
        unsteadiness=np.ones(n_configurations),
        applied=applied,
        applied_raw=applied_raw,
        applied_df=applied_df,
        prior_df=prior_df,
        steady_df=_ALL,
    )
