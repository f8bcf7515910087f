"""The largest multiple of a fleet of virtual machines that a pool serves within a latency limit. Pure.

Machines ask for a known rate of accesses, and wait for those outstanding before the next ones. Samples show how
long an access takes with n I/Os in flight at full speed. The number of busy machines, k, is a Markov chain: each
idle machine becomes busy at the same rate, and the pool serves as many accesses per second as were measured with
the I/Os of k machines in flight. This is the machine-repair model with a flow-equivalent server (K. M. Chandy,
U. Herzog and L. Woo, "Parametric analysis of queuing networks", IBM J. Res. Dev. 19 (1), 1975). An access finds
the other machines as they are at a random moment without its own one (the arrival theorem). Its latency is the
one measured with the I/Os that are then in flight, those of its own machine included. This is exact for M/M/1,
M/M/c and machine-repair queues.

Machines that do not wait (``is_open``) begin at random times, whatever is outstanding: a Poisson process. The open
fleet has the longer queues, and needs no depths.

Accesses of several kinds wait for each other: in addition to its latency among the I/Os of its own machine, an
access waits as much longer as the others lengthen the time of the mix. The measured distribution with that mean
counts.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq

from cephfit.core.statistics.latency_mixture import shares_above
from cephfit.core.statistics.round_effects import Floats
from cephfit.mapper.absolute_rates.load_curve import P99, Limit, LoadCurve
from cephfit.mapper.models.access_weights import neighbours

_TAIL = 1 - P99 / 100
_BEYOND = 16.0
"""Loads are considered up to this multiple of the largest measured one."""
_MOST_STATES = 2048
_WIDEST = 1e6
_SPREAD = ((-math.sqrt(3), 1 / 6), (0.0, 2 / 3), (math.sqrt(3), 1 / 6))
"""Points in standard deviations, and weights, of the Gauss-Hermite rule with three points."""
_RISE = 1e-9
"""Of a time per I/O in flight: a time that stays has an inverse."""


@dataclass(frozen=True, slots=True)
class FleetPart:
    """Machines with the same workload.

    Attributes:
        curve: of their workload on the pool.
        n_machines: above 0.
        per_s: accesses per second of each.
    """

    curve: LoadCurve
    n_machines: float
    per_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What a fleet of some size experiences.

    Attributes:
        excess: the largest of the classes' shares of slower accesses over the allowed 1 %, and of their mean
            latencies over the limit; above 1 the limit is exceeded; infinite if the rate is not served.
        beyond: the largest share of a class's accesses that find more in flight than was measured.
        in_flight: mean I/Os in flight while any are.
    """

    excess: float
    beyond: float
    in_flight: float


class FleetLoad:
    """A fleet on one pool."""

    def __init__(self, parts: Sequence[FleetPart], limit: Limit, *, is_open: bool) -> None:
        """Args:
        parts: of the fleet, at least one.
        limit: of the latency of each class.
        is_open: whether machines begin accesses without waiting for those outstanding.
        """
        self._parts = parts
        self._limit = limit
        self._is_open = is_open
        self._measured = min(float(part.curve.in_flight[-1]) for part in parts)
        self._loads = _loads(self._measured)
        times = [part.curve.at(self._loads) for part in parts]
        self._seconds = [_rising(of[:, :, 0], self._loads) for of in times]
        demands = np.array([part.n_machines * part.per_s for part in parts])
        self._per_s = float(demands.sum())
        shares = demands / self._per_s
        self._mix = np.asarray(
            sum(s * (p.curve.shares @ own) for s, p, own in zip(shares, parts, self._seconds, strict=True))
        )
        served = np.maximum.accumulate(self._loads / self._mix)
        self._others = np.concatenate([[0.0], self._loads])
        self._depth, deviation = self._depths(shares)
        n_states = min(math.ceil(float(self._loads[-1]) / self._depth), _MOST_STATES)
        self._busy = np.arange(1.0, n_states + 1)
        self._rates = np.interp(self._busy * self._depth, self._loads, served)
        self._logs = -np.cumsum(np.log(self._rates))
        self._excesses, self._beyonds = self._by_state(times, deviation)

    @cached_property
    def most(self) -> float:
        """The largest multiple of the fleet within the limit; 0 if one machine alone exceeds it."""
        highest = float(self._rates[-1]) / self._per_s
        return self.most_between(highest / _WIDEST, highest)

    def most_between(self, low: float, high: float, precision: float = 2e-5) -> float:
        """Return the largest multiple within the limit; 0 if ``low`` exceeds it, at most ``high``.

        Args:
            low: above 0.
            high: above ``low``.
            precision: of the logarithm.
        """
        if self.at(low).excess > 1:
            return 0.0
        if self.at(high).excess <= 1:
            return high
        for _ in range(math.ceil(math.log2(math.log(high / low) / precision))):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if self.at(middle).excess <= 1 else (low, middle)
        return low

    def alone(self) -> Answer:
        """Return what a machine of each class experiences without any other."""
        return Answer(float(self._excesses[:, 0].max()), float(self._beyonds[:, 0].max()), self._depth)

    def at(self, multiple: float) -> Answer:
        """Return what the fleet experiences at a multiple of its size, > 0; also a fraction of a machine."""
        per_s = multiple * self._per_s
        n_machines = multiple * math.fsum(part.n_machines for part in self._parts)
        n_states = len(self._busy)
        if not self._is_open:
            n_states = min(n_states, math.ceil(n_machines * (1 - 1e-12)))
        busy, rates, logs = self._busy[:n_states], self._rates[:n_states], self._logs[:n_states]
        if per_s >= rates[-1] * (1 - 1e-9):
            return Answer(math.inf, 1.0, float(self._loads[-1]))
        if self._is_open:
            logs = logs + busy * math.log(per_s)
        else:
            logs = logs + np.cumsum(np.log(np.maximum(n_machines - (busy - 1), 1e-12)))
            logs += busy * _log_rate_of_idle(logs, rates, per_s)
        weights = np.exp(logs - logs.max())
        served = weights * rates / (weights @ rates)
        excess, beyond = (float((of[:, :n_states] @ served).max()) for of in (self._excesses, self._beyonds))
        return Answer(excess, beyond, float(weights @ busy) * self._depth / float(weights.sum()))

    def _by_state(self, times: Sequence[Floats], deviation: float) -> tuple[Floats, Floats]:
        """Return the excess and the share beyond measured loads, of accesses with k busy machines.

        Args:
            times: of each part, at ``_loads``.
            deviation: of a busy machine's I/Os in flight.

        Returns:
            Shapes (limits of parts, K) and (parts, K).
        """
        found = self._found(deviation)
        excesses, beyonds = [], []
        for part, own, of in zip(self._parts, self._seconds, times, strict=True):
            excesses += [found @ (part.curve.shares @ table) for table in self._by_others(part, own, of)]
            is_beyond = part.curve.depths[:, None] + self._others > self._measured * (1 + 1e-9)
            beyonds.append(found @ (part.curve.shares @ is_beyond))
        return np.array(excesses), np.array(beyonds)

    def _depths(self, shares: Floats) -> tuple[float, float]:
        """Return the mean and the standard deviation of a busy machine's I/Os in flight over time."""
        depths = np.concatenate([part.curve.depths for part in self._parts])
        seconds = []
        for share, part, own in zip(shares, self._parts, self._seconds, strict=True):
            of_depth = [np.interp(d, self._loads, row) for d, row in zip(part.curve.depths, own, strict=True)]
            seconds.append(share * part.curve.shares * np.array(of_depth) / part.curve.depths)
        times = np.concatenate(seconds)
        times /= times.sum()
        mean = float(times @ depths)
        return mean, math.sqrt(max(0.0, float(times @ (depths - mean) ** 2)))

    def _found(self, deviation: float) -> Floats:
        """Return the shares of accesses that find each number of others' I/Os with k machines busy.

        Args:
            deviation: of a busy machine's I/Os in flight.

        Returns:
            Shape (K, 1 + F); rows add up to 1.
        """
        others = self._busy - 1
        found = np.zeros((len(others), len(self._others)))
        for deviations, weight in _SPREAD if deviation > 0 else ((0.0, 1.0),):
            loads = others * self._depth + deviations * deviation * np.sqrt(others)
            found += weight * neighbours(np.clip(loads, others, self._others[-1]), self._others)
        return found

    def _by_others(self, part: FleetPart, seconds: Floats, times: Floats) -> list[Floats]:
        """Return the excess of each demand by others' I/Os in flight, shape (D, 1 + F), for each limit."""
        depths = part.curve.depths
        wait = np.interp(depths[:, None] + self._others, self._loads, self._mix)
        wait -= wait[:, :1]
        exceeding = []
        if self._limit.p99_seconds is not None:
            slower = shares_above(times[:, :, 2:], part.curve.percentiles, self._limit.p99_seconds)
            exceeding.append(slower / _TAIL)
        if self._limit.mean_seconds is not None:
            exceeding.append(times[:, :, 1] / self._limit.mean_seconds)
        found = [np.zeros(wait.shape) for _ in exceeding]
        for i, (depth, own) in enumerate(zip(depths, seconds, strict=True)):
            alike = np.interp(np.interp(depth, self._loads, own) + wait[i], own, self._loads)
            for table, of in zip(found, exceeding, strict=True):
                table[i] = np.interp(alike, self._loads, of[i])
        return found


def _loads(measured: float) -> Floats:
    """Return I/Os in flight from 1 to far beyond the largest measured load, closer where few are in flight."""
    return np.unique(np.concatenate([np.arange(1.0, 17.0), np.geomspace(16.0, _BEYOND * max(measured, 1.0), 56)]))


def _rising(seconds: Floats, loads: Floats) -> Floats:
    """Return times that rise with the load, if only by very little; shape (D, F)."""
    return np.asarray(np.maximum.accumulate(seconds, axis=1) * (1 + _RISE * loads))


def _log_rate_of_idle(logs: Floats, rates: Floats, per_s: float) -> float:
    """Return the log of the rate of an idle machine at which the pool serves ``per_s``.

    Args:
        logs: of the weight of each number of busy machines at a rate of 1, shape (K,); that of 0 is 0.
        rates: served with each, shape (K,).
        per_s: below the last of the rates.
    """
    busy = np.arange(1, len(logs) + 1)

    def surplus(log_rate: float) -> float:
        own = logs + busy * log_rate
        top = max(0.0, float(own.max()))
        weights = np.exp(own - top)
        return float(weights @ rates) / (math.exp(-top) + float(weights.sum())) - per_s

    low, high = math.log(per_s) - 50.0, math.log(per_s)
    while surplus(high) < 0 and high < 700:
        high += 5.0
    return high if surplus(high) < 0 else float(brentq(surplus, low, high, xtol=1e-10))
