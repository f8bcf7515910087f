"""Percentiles of several latency distributions together, each known at a few percentiles. Pure.

Between two known percentiles of a distribution, and above its highest one, the logarithm of the share of accesses
that take longer falls linearly with the time; it starts at 0 for time 0. So exponential distributions are exact,
and a mixture of one distribution has its own percentiles.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cephfit.core.statistics.round_effects import Floats

_DROP = 1 - 1e-9
"""Equal times are this factor apart, so that their order is that of their percentiles."""
_MOST_STEPS = 200
"""Newton's method needs about 10: the logarithm of a sum of exponentials is convex, so no step goes too far."""


def mixed_percentiles(
    quantiles: Floats, weights: Floats, percentiles: Sequence[float], wanted: Sequence[float]
) -> Floats:
    """Return percentiles of mixtures of distributions.

    Each is between the fastest and the slowest distribution's own one. Memory is proportional to the number of
    distributions, whatever the number of their different times.

    Args:
        quantiles: times of K distributions, shape (..., K, P); not falling along a row. NaN, 0, and percentiles of
            0 and 100 are ignored; of each distribution with a weight, one at least is left.
        weights: of the distributions, >= 0, shape (..., K); they need not sum to 1.
        percentiles: at which they are known, P of them, ascending.
        wanted: percentiles to return, above 0 and below 100, W of them.

    Returns:
        Shape (..., W), in the unit of the times.
    """
    used = weights > 0
    if tuple(wanted) == tuple(percentiles) and (np.count_nonzero(used, axis=-1) == 1).all():
        return np.take_along_axis(quantiles, used.argmax(axis=-1)[..., None, None], axis=-2)[..., 0, :]
    n_groups, size = math.prod(weights.shape[:-1]), math.prod(quantiles.shape[-2:]) * len(wanted)
    by_group, group_weights = quantiles.reshape(n_groups, *quantiles.shape[-2:]), weights.reshape(n_groups, -1)
    at_once = max(1, _VALUES_AT_ONCE // max(size, 1))
    found = [
        _mixed(by_group[first : first + at_once], group_weights[first : first + at_once], percentiles, wanted)
        for first in range(0, n_groups, at_once)
    ]
    return np.concatenate(found).reshape(*weights.shape[:-1], len(wanted))


_VALUES_AT_ONCE = 1 << 20
"""Bound on quantiles times wanted percentiles of the mixtures that are computed together."""


def _mixed(quantiles: Floats, weights: Floats, percentiles: Sequence[float], wanted: Sequence[float]) -> Floats:
    """Return percentiles of G mixtures, shape (G, W), of quantiles of shape (G, K, P)."""
    parts = _Survival.of(quantiles, percentiles)
    with np.errstate(divide="ignore"):
        logs = np.log(weights)
    shares = (logs - _log_sum(np.moveaxis(logs, -1, 0))[:, None])[..., None]  # (G, K, 1)
    limits = np.log1p(-np.asarray(wanted) / 100)
    nodes = np.sort(parts.times.reshape(len(quantiles), -1), axis=1)
    last = np.isfinite(nodes).sum(axis=1)
    # The largest time of a node at which the share above it is not below the limit, by bisection.
    low, high = np.zeros((len(nodes), len(limits)), np.int64), np.repeat(last[:, None], len(limits), axis=1)
    while (high - low > 1).any():
        middle = (low + high) // 2
        above = _log_sum(np.moveaxis(shares + parts.at(np.take_along_axis(nodes, middle, axis=1)), 1, 0))
        is_begin = above >= limits
        low, high = np.where(is_begin, middle, low), np.where(is_begin | (high - low <= 1), high, middle)
    ends = np.concatenate([nodes, np.full((len(nodes), 1), np.inf)], axis=1)
    begin, end = (np.take_along_axis(ends, i, axis=1) for i in (low, low + 1))
    end = np.where(np.isfinite(end), end, 2 * begin)
    at_begin = parts.at(begin)
    slopes = (parts.at(end) - at_begin) / (end - begin)[:, None]
    return begin + _crossing(np.moveaxis(shares + at_begin, 1, 0), np.moveaxis(slopes, 1, 0), limits)


@dataclass(frozen=True, slots=True)
class _Survival:
    """The logarithm of the share above a time, of K distributions in G groups, linear between M times.

    Attributes:
        times: rising from 0, infinite after the last one; shape (G, K, M).
        logs, slopes: at the times, and after each; shape (G, K, M).
    """

    times: Floats
    logs: Floats
    slopes: Floats

    @classmethod
    def of(cls, quantiles: Floats, percentiles: Sequence[float]) -> "_Survival":
        inner = [i for i, p in enumerate(percentiles) if 0 < p < 100]
        known = np.asarray(quantiles[..., inner], dtype=np.float64)
        times = np.zeros((*known.shape[:-1], len(inner) + 1))
        logs = np.zeros(times.shape)
        times[..., 1:] = known
        logs[..., 1:] = np.log1p(-np.array([percentiles[i] for i in inner]) / 100)
        for at in map(tuple, np.argwhere(~(np.diff(times, axis=-1) > 0).all(axis=-1)).tolist()):
            own, own_logs = _rising(dict(zip((percentiles[i] for i in inner), known[at].tolist(), strict=True)))
            times[at], logs[at] = np.inf, 0.0
            times[at][: len(own)], logs[at][: len(own)] = own, own_logs
        slopes = np.zeros(times.shape)
        with np.errstate(invalid="ignore"):
            slopes[..., :-1] = np.diff(logs, axis=-1) / np.diff(times, axis=-1)
        for m in range(1, times.shape[-1]):  # the last slope goes on
            ended = ~np.isfinite(times[..., m + 1]) if m + 1 < times.shape[-1] else np.isfinite(times[..., m])
            slopes[..., m] = np.where(ended, slopes[..., m - 1], slopes[..., m])
        return cls(times, logs, slopes)

    def at(self, times: Floats) -> Floats:
        """Return the logarithms, shape (G, K, W), at times of shape (G, W), >= 0."""
        wanted = times[:, None, :]
        segment = np.zeros(np.broadcast_shapes(wanted.shape, (*self.times.shape[:-1], 1)), np.int64)
        for m in range(1, self.times.shape[-1]):
            segment += self.times[..., m, None] <= wanted
        begin, logs, slopes = (
            np.take_along_axis(a, segment, axis=-1) for a in (self.times, self.logs, self.slopes)
        )
        return np.asarray(logs + slopes * (wanted - begin))


def shares_above(quantiles: Floats, percentiles: Sequence[float], time: float) -> Floats:
    """Return the share of each distribution above a time.

    Args:
        quantiles: times, > 0, shape (..., P); those that fall along a row (by interpolation) count as equal.
        percentiles: at which they are known, ascending, above 0 and below 100, P of them.
        time: >= 0, in their unit.

    Returns:
        Shape (...).
    """
    rising = np.maximum.accumulate(quantiles, axis=-1) * (1 + (1 - _DROP) * np.arange(quantiles.shape[-1]))
    times = np.concatenate([np.zeros((*rising.shape[:-1], 1)), rising], axis=-1)
    logs = np.concatenate([[0.0], np.log1p(-np.asarray(percentiles) / 100)])
    upper = np.clip((times <= time).sum(axis=-1), 1, len(percentiles))
    low, high = (np.take_along_axis(times, i[..., None], axis=-1)[..., 0] for i in (upper - 1, upper))
    return np.asarray(np.exp(logs[upper - 1] + (time - low) / (high - low) * (logs[upper] - logs[upper - 1])))


def _rising(known: Mapping[float, float]) -> tuple[list[float], list[float]]:
    """Return rising times, and the logs of the shares that take longer; at least two points."""
    times, logs = [0.0], [0.0]
    for percentile in sorted(known):
        time = known[percentile]
        if not time > 0:
            continue
        log = math.log1p(-percentile / 100)
        if time > times[-1]:
            times.append(time)
            logs.append(log)
        elif times[-2] < _DROP * times[-1]:  # many accesses took this time: a vertical drop
            times[-1:] = [_DROP * times[-1], times[-1]]
            logs.append(log)
        else:
            logs[-1] = log
    return times, logs


def _log_sum(logs: Floats) -> Floats:
    """Return the logarithm of the sum of exponentials, over the first axis."""
    top = logs.max(axis=0)
    return np.asarray(top + np.log(np.exp(logs - top).sum(axis=0)))


def _crossing(logs: Floats, slopes: Floats, limits: Floats) -> Floats:
    """Return where the log of a sum of falling exponentials reaches limits, by Newton's method from 0.

    Args:
        logs: of the K exponentials at 0, together at or above the limits, shape (K, ..., N).
        slopes: of their logs, <= 0, shape (K, ..., N); at each place one at least is negative.
        limits: shape (N,).
    """
    found = np.zeros(logs.shape[1:])
    for _ in range(_MOST_STEPS):
        terms = logs + slopes * found
        total = _log_sum(terms)
        step = (limits - total) / (np.exp(terms - total) * slopes).sum(axis=0)
        found += np.maximum(step, 0.0)
        if np.all(step <= 1e-12 * found):
            break
    return found
