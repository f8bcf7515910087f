"""Percentiles of several latency distributions together, each known at a few percentiles. Pure."""

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtr, ndtri

from cephfit.core.variance import Floats

_STEPS = 129
"""Points of the grid besides the known percentiles."""
_LEAST_SLOPE = 1e-9
"""Of log latency over the normal quantile: equal percentiles stay in order."""


def mixed_percentiles(
    quantiles: Floats, weights: Floats, percentiles: Sequence[float], wanted: Sequence[float]
) -> Floats:
    """Return percentiles of a mixture of distributions.

    Between known percentiles, the logarithm of latency is linear in the normal quantile; outside, the outermost
    part continues. The result is between the fastest and the slowest distribution's own percentile. With a single
    known percentile it is the slowest one's.

    Args:
        quantiles: latencies of K distributions, > 0 and not falling along a row, shape (K, P).
        weights: of the distributions, >= 0, shape (K,); they need not sum to 1.
        percentiles: at which they are known, ascending, between 0 and 100, P of them.
        wanted: percentiles to return.

    Returns:
        Shape (wanted,).
    """
    used = weights > 0
    logs, shares = np.log(quantiles[used]), weights[used] / weights[used].sum()
    if len(logs) == 1 and tuple(wanted) == tuple(percentiles):
        return np.asarray(quantiles[used][0])
    if len(percentiles) == 1:
        return np.full(len(wanted), float(np.exp(logs.max())))
    known, asked = (ndtri(np.asarray(of) / 100) for of in (percentiles, wanted))
    logs = logs + _LEAST_SLOPE * known
    own = np.array([_continued(asked, known, row) for row in logs])
    low, high = own.min(axis=0), own.max(axis=0)
    grid = np.unique(np.concatenate([logs.ravel(), low, high, np.linspace(low.min(), high.max(), _STEPS)]))
    below = shares @ np.array([ndtr(_continued(grid, row, known)) for row in logs])
    # The mixture's own normal quantile is nearly linear between grid points.
    scores = ndtri(np.clip(below, 1e-12, 1 - 1e-12))
    found = np.interp(asked, np.maximum.accumulate(scores), grid)
    return np.asarray(np.exp(np.clip(found, low, high)))


def _continued(x: Floats, nodes: Floats, values: Floats) -> Floats:
    """Interpolate linearly between ascending nodes; outside, continue the first and the last part."""
    found = np.interp(x, nodes, values)
    for end, next_end, is_outside in ((0, 1, x < nodes[0]), (-1, -2, x > nodes[-1])):
        slope = (values[end] - values[next_end]) / (nodes[end] - nodes[next_end])
        found = np.where(is_outside, values[end] + slope * (x - nodes[end]), found)
    return found
