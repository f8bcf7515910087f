"""Percentiles of several latency distributions together, each known at a few percentiles. Pure.

Between two known percentiles of a distribution, and above its highest one, the logarithm of the share of accesses
that take longer falls linearly with the time; it starts at 0 for time 0. So exponential distributions are exact,
and a mixture of one distribution has its own percentiles.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from cephfit.core.statistics.variance import Floats

_RISE = 1e-12
"""Equal times are this share apart, so that their order is that of their percentiles."""
_MOST_STEPS = 200
"""Newton's method needs about 10: the logarithm of a sum of exponentials is convex, so no step goes too far."""


def mixture_percentiles(parts: Iterable[tuple[float, Mapping[float, float]]], wanted: Sequence[float]) -> Floats:
    """Return percentiles of a mixture of distributions.

    Each is between the fastest and the slowest distribution's own one.

    Args:
        parts: weight >= 0, and percentile (0 to 100) to time, of which one at least is positive. The weights need
            not sum to 1.
        wanted: percentiles above 0 and below 100.

    Returns:
        Shape (wanted,), in the unit of the times.
    """
    used = [(weight, *_survival_of(known)) for weight, known in parts if weight > 0]
    weights = np.log([weight for weight, _, _ in used])
    nodes = np.unique(np.concatenate([times for _, times, _ in used]))
    logs = np.array([_log_survival(nodes, times, own) for _, times, own in used])
    after = np.array([_log_survival(nodes[-1:] * 2, times, own) for _, times, own in used])
    slopes = np.diff(logs, append=after) / np.diff(nodes, append=2 * nodes[-1])
    shares = weights - _log_sum(weights)
    limits = np.log1p(-np.asarray(wanted) / 100)
    mixed = _log_sum(shares[:, None] + logs)
    begin = np.searchsorted(-mixed, -limits, side="right") - 1
    return nodes[begin] + _crossing(shares[:, None] + logs[:, begin], slopes[:, begin], limits)


def mixed_percentiles(
    quantiles: Floats, weights: Floats, percentiles: Sequence[float], wanted: Sequence[float]
) -> Floats:
    """Return percentiles of a mixture of distributions that are known at the same percentiles.

    Args:
        quantiles: times of K distributions, > 0 and not falling along a row, shape (K, P).
        weights: of the distributions, >= 0, shape (K,); they need not sum to 1.
        percentiles: at which they are known, between 0 and 100, P of them.
        wanted: percentiles to return.

    Returns:
        Shape (wanted,).
    """
    used = weights > 0
    if np.count_nonzero(used) == 1 and tuple(wanted) == tuple(percentiles):
        return np.asarray(quantiles[used][0])
    rows = (dict(zip(percentiles, row, strict=True)) for row in quantiles[used].tolist())
    return mixture_percentiles(zip(weights[used].tolist(), rows, strict=True), wanted)


def shares_above(quantiles: Floats, percentiles: Sequence[float], time: float) -> Floats:
    """Return the share of each distribution above a time.

    Args:
        quantiles: times, > 0, shape (..., P); those that fall along a row (by interpolation) count as equal.
        percentiles: at which they are known, ascending, above 0 and below 100, P of them.
        time: >= 0, in their unit.

    Returns:
        Shape (...).
    """
    times, logs = _survival(quantiles, percentiles)
    upper = np.clip((times <= time).sum(axis=-1), 1, len(percentiles))
    low, high = (np.take_along_axis(times, i[..., None], axis=-1)[..., 0] for i in (upper - 1, upper))
    return np.asarray(np.exp(logs[upper - 1] + (time - low) / (high - low) * (logs[upper] - logs[upper - 1])))


def _survival(quantiles: Floats, percentiles: Sequence[float]) -> tuple[Floats, Floats]:
    """Return rising times from 0, shape (..., 1 + P), and the logs of the shares that take longer, shape (1 + P,).

    Args: see ``shares_above``.
    """
    rising = np.maximum.accumulate(quantiles, axis=-1) * (1 + _RISE * np.arange(np.shape(quantiles)[-1]))
    times = np.concatenate([np.zeros((*rising.shape[:-1], 1)), rising], axis=-1)
    return times, np.concatenate([[0.0], np.log1p(-np.asarray(percentiles) / 100)])


def _survival_of(known: Mapping[float, float]) -> tuple[Floats, Floats]:
    """Return the same of one distribution, from its usable percentiles, of which one at least must be positive."""
    usable = sorted((p, time) for p, time in known.items() if 0 < p < 100 and time > 0)
    percentiles, times = zip(*usable, strict=True)
    return _survival(np.array(times), percentiles)


def _log_survival(at: Floats, times: Floats, logs: Floats) -> Floats:
    """Return the logs of the shares of one distribution above times."""
    slope = (logs[-1] - logs[-2]) / (times[-1] - times[-2])
    return np.asarray(np.interp(at, times, logs) + slope * np.maximum(at - times[-1], 0.0))


def _log_sum(logs: Floats) -> Floats:
    """Return the logarithm of the sum of exponentials, over the first axis."""
    top = logs.max(axis=0)
    return np.asarray(top + np.log(np.exp(logs - top).sum(axis=0)))


def _crossing(logs: Floats, slopes: Floats, limits: Floats) -> Floats:
    """Return where the log of a sum of falling exponentials reaches limits, by Newton's method from 0.

    Args:
        logs: of the K exponentials at 0, together at or above the limits, shape (K, N).
        slopes: of their logs, <= 0, shape (K, N); in each column one at least is negative.
        limits: shape (N,).
    """
    found = np.zeros(len(limits))
    for _ in range(_MOST_STEPS):
        terms = logs + slopes * found
        total = _log_sum(terms)
        step = (limits - total) / (np.exp(terms - total) * slopes).sum(axis=0)
        found += np.maximum(step, 0.0)
        if np.all(step <= 1e-12 * found):
            break
    return found
