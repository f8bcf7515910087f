"""How many machines a pool serves within a latency limit, from samples of clients with a limited rate. Pure.

Storage at full speed waits for its caps and pays for deferred writes; storage with a moderate load often does
not. Loads with a limited rate show its latency there, so no queue has to be assumed. What full speed still
decides is the highest rate of each kind of access. The times of all kinds at their highest rates add up to the
share u of the pool's time.

Between measured rates, the mean latency and each percentile are linear in u / (1 - u). That is exact for the
mean of every queue with random arrivals and one server (the formula of Pollaczek and Khinchine; M/D/1 and M/M/1
are such), and for the percentiles of M/M/1. Below the lowest rate they stay. Above the highest one they grow as
between the last two, up to u = 1.

A machine with one I/O outstanding never waits for itself, so the accesses of n machines find the load of n - 1
(the approximation of Schweitzer to the arrival theorem). The few clients of a sample with one I/O in flight each
find less than random arrivals do: their u is the one at which M/M/1 has the mean latency of as many clients at
one exponential server (machine repair). Clients with more in flight count as random arrivals. Kinds of access
wait for each other: the wait in a mix is the mean of the waits that each kind measured alone has at the same u,
weighted by the times of the kinds. A machine with d I/Os outstanding at once makes the others wait d times as
long. Both follow from the same formula, with the second moment of the work that arrives at once. What an access
waits for the I/Os of its own machine is taken from full speed: the latency with d in flight less that with one.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq

from cephfit.core.statistics.latency_mixture import mixed_percentiles, shares_above
from cephfit.core.statistics.variance import Floats
from cephfit.core.units import NS_PER_S
from cephfit.core.values.baseline import LevelFigures, Pace
from cephfit.core.values.cells import LoadedCell
from cephfit.mapper.absolute_rates.fleet_load import Answer, largest_within
from cephfit.mapper.absolute_rates.load_curve import (
    MINOR_SHARE,
    P99,
    TAIL,
    Limit,
    LoadCurve,
    WorkloadMix,
    highest_rate,
    not_falling,
    plain_kind,
    with_larger_loads,
)

Figures = Mapping[LoadedCell, Mapping[int | Pace, LevelFigures]]
_SATURATED = 0.98
"""Share of the highest rate from which on a pace is full speed."""
_FULL, _FAR = 1 - 1e-6, 1 - 1e-7
"""Nearly all of the pool's time; the second is above any share of a fleet."""
_WIDEST = 1e6


@dataclass(frozen=True, slots=True)
class PacedCurve:
    """A mix of D demands on one configuration, over the share of the pool's time that is in use.

    Attributes:
        curve: of the mix at full speed.
        busy: shares of the time at which latencies are known, ascending from 0 to nearly 1, shape (G,).
        measured: the largest share at which all major kinds were measured.
        seconds: of the pool's time for an access of each demand, shape (D,).
        times: mean latency and percentiles of each demand in seconds, shape (D, G, 1 + P).
        bursts: by how much the I/Os of the own machine lengthen these, shape (D, 1 + P).
    """

    curve: LoadCurve
    busy: Floats
    measured: float
    seconds: Floats
    times: Floats
    bursts: Floats

    @classmethod
    def of(cls, mix: WorkloadMix, figures: Figures, curve: LoadCurve) -> "PacedCurve | None":
        """Return the curve of a mix; None if kinds that matter have no samples with a limited rate.

        Args:
            mix: of the workload.
            figures: of every kind, at full speed and with limited rates.
            curve: of the mix at full speed.
        """
        full = with_larger_loads(at_full_speed(figures))
        rates = np.array([_highest(figures[kind], highest_rate(full[kind])) for kind in mix.kinds])
        kinds = [_nodes_of(kind, figures, rate) for kind, rate in zip(mix.kinds, rates, strict=True)]
        parts = (mix.shares @ mix.weights) / rates
        lacking = np.array([kind is None for kind in kinds])
        if parts @ lacking > MINOR_SHARE * parts.sum():
            return None
        busy = np.unique(np.concatenate([[0.0, _FAR], *(kind.busy for kind in kinds if kind is not None)]))
        tables = [
            np.tile(_smallest(full[kind]), (len(busy), 1)) if nodes is None else nodes.at(busy)
            for kind, nodes in zip(mix.kinds, kinds, strict=True)
        ]
        own = np.array([curve.at(np.array([depth, 1.0]))[i, :, 1:] for i, depth in enumerate(curve.depths)])
        return cls(
            curve,
            busy,
            min(float(kind.busy[-1]) for kind in kinds if kind is not None),
            mix.weights @ (1 / rates),
            np.einsum("dk,kgf->dgf", mix.weights, np.stack(tables)),
            np.maximum(own[:, 0] - own[:, 1], 0.0),
        )

    @property
    def least(self) -> Floats:
        """Mean latency and percentiles of one machine alone, shape (D, 1 + P)."""
        return np.asarray(self.times[:, 0] + self.bursts)

    @property
    def least_mean_seconds(self) -> float:
        """The mean latency of the mix at the lowest rates."""
        return float(self.curve.shares @ self.times[:, 0, 0])

    @property
    def least_p99_seconds(self) -> float:
        """The 99th percentile of the mix at the lowest rates; it must have been measured."""
        curve = self.curve
        return float(mixed_percentiles(self.times[:, 0, 1:], curve.shares, curve.percentiles, (P99,))[0])

    @property
    def smallest(self) -> str:
        """The smallest measured load, for messages."""
        return "the lowest measured rate"

    @property
    def own_seconds(self) -> float:
        """Seconds of an access, on average, of one client alone: the latency over those outstanding."""
        return float(self.curve.shares @ (self.least[:, 0] / self.curve.depths))

    @property
    def share_per_s(self) -> float:
        """Share of the pool's time for one access per second."""
        return float(self.curve.shares @ self.seconds)

    def waits(self, busy: float) -> Floats:
        """Return what other machines add to mean and percentiles at a share in use below 1, shape (D, 1 + P)."""
        return np.asarray(_at(np.array([busy]), self.busy, self.times)[:, 0] - self.times[:, 0])


@dataclass(frozen=True, slots=True)
class PacedPart:
    """Machines with the same workload.

    Attributes:
        paced: curve of their workload on the pool.
        n_machines: above 0.
        per_s: accesses per second of each.
    """

    paced: PacedCurve
    n_machines: float
    per_s: float

    @property
    def busy(self) -> float:
        """Share of the pool's time that they need."""
        return self.n_machines * self.per_s * self.paced.share_per_s


class PacedFleet:
    """A fleet on one pool whose latency was measured at limited rates."""

    def __init__(self, parts: Sequence[PacedPart], limit: Limit, *, is_open: bool) -> None:
        """Args:
        parts: of the fleet, at least one.
        limit: of the latency of each class.
        is_open: whether machines begin accesses without waiting for those outstanding.
        """
        self._parts = parts
        self._limit = limit
        self._is_open = is_open
        self._busy = math.fsum(part.busy for part in parts)

    @property
    def saturated(self) -> float:
        """The multiple of the fleet that needs all of the pool's time."""
        return 1 / self._busy

    @cached_property
    def most(self) -> float:
        """The largest multiple of the fleet within the limit; 0 if one machine alone exceeds it."""
        highest = self.saturated * _FULL
        return self.most_between(highest / _WIDEST, highest)

    def most_between(self, low: float, high: float, precision: float = 2e-5) -> float:
        """As ``largest_within``."""
        return largest_within(lambda multiple: self.at(multiple).excess, low, high, precision)

    @cached_property
    def measured(self) -> float:
        """The multiple up to which accesses find no higher rates than were measured."""
        top = min(part.paced.measured for part in self._parts)
        if not top:
            return 0.0

        def excess(multiple: float) -> float:
            return max(self._found(part, multiple) for part in self._parts) / top

        return largest_within(excess, self.saturated / _WIDEST, self.saturated, 2e-5)

    def alone(self) -> Answer:
        """Return what a machine of each class experiences without any other."""
        return self.at(1 / _WIDEST / self._busy)

    def at(self, multiple: float) -> Answer:
        """Return what the fleet experiences at a multiple of its size, > 0."""
        if multiple * self._busy >= 1:
            return Answer(math.inf, self._beyond, math.inf)
        excesses, in_flight = [], 0.0
        for part in self._parts:
            curve = part.paced.curve
            times = part.paced.least + self._wait(self._found(part, multiple))
            mean = float(curve.shares @ times[:, 0])
            if self._limit.p99_seconds is not None:
                slower = shares_above(times[:, 1:], curve.percentiles, self._limit.p99_seconds)
                excesses.append(float(curve.shares @ slower) / TAIL)
            if self._limit.mean_seconds is not None:
                excesses.append(mean / self._limit.mean_seconds)
            if not self._is_open:  # a machine that always waits for its I/Os cannot keep a higher rate
                excesses.append(part.per_s * float(curve.shares @ (times[:, 0] / curve.depths)))
            in_flight += multiple * part.n_machines * part.per_s * mean
        return Answer(max(excesses), self._beyond, in_flight)

    def _found(self, part: PacedPart, multiple: float) -> float:
        """Return the share of the pool's time that the machines need for which an access of a part may wait."""
        busy = multiple * self._busy
        return busy if self._is_open else busy - multiple * part.busy / max(1.0, multiple * part.n_machines)

    def _wait(self, busy: float) -> Floats:
        """Return what an access waits for other machines, on average and by percentile, shape (1 + P,)."""
        waits = []
        for part in self._parts:
            curve = part.paced.curve
            times = part.n_machines * part.per_s * curve.shares * part.paced.seconds
            waits.append((times * curve.depths) @ part.paced.waits(busy))
        return np.asarray(sum(waits) / self._busy)

    @cached_property
    def _beyond(self) -> float:
        """The largest share of a class's accesses with more own I/Os outstanding than were measured."""
        curves = [part.paced.curve for part in self._parts]
        return max(float(c.shares @ (c.depths > c.in_flight[-1] * (1 + 1e-9))) for c in curves)


def at_full_speed(figures: Figures) -> dict[LoadedCell, dict[int, LevelFigures]]:
    """Return the figures at full speed by kind and I/Os in flight; kinds without any are omitted."""
    found = {kind: {n: f for n, f in of.items() if not isinstance(n, Pace)} for kind, of in figures.items()}
    return {kind: of for kind, of in found.items() if of}


@dataclass(frozen=True, slots=True)
class _Nodes:
    """Latencies of one kind at limited rates.

    Attributes:
        busy: shares of the time that the I/Os found in use, ascending, shape (L,).
        times: mean and percentiles in seconds, shape (L, 1 + P).
    """

    busy: Floats
    times: Floats

    def at(self, busy: Floats) -> Floats:
        """Return the times at shares below 1, shape (G, 1 + P)."""
        return np.asarray(_at(busy, self.busy, self.times[None])[0])


def _nodes_of(kind: LoadedCell, figures: Figures, rate: float) -> _Nodes | None:
    """Return the latencies of a kind at limited rates; None if it has none.

    Flushed and unaligned accesses without any have those of plain ones, by as much longer as with the fewest in
    flight.

    Args:
        rate: the highest one of the kind.
    """
    plain = plain_kind(kind)
    paced = _paced(figures[kind])
    more = np.zeros(1)
    if not paced and plain in figures:
        paced, full = _paced(figures[plain]), at_full_speed(figures)
        if not paced or plain not in full:
            return None
        rate = _highest(figures[plain], highest_rate(full[plain]))
        more = np.maximum(_smallest(full[kind]) - _smallest(full[plain]), 0.0)
    by_busy: dict[float, list[Floats]] = {}
    for pace, found in paced.items():
        if pace.per_s < _SATURATED * rate:
            by_busy.setdefault(_share_found(pace, pace.per_s / rate), []).append(_seconds(found) + more)
    if not by_busy:
        return None
    busy = sorted(by_busy)
    rows = np.array([np.mean(by_busy[share], axis=0) for share in busy])
    return _Nodes(np.array(busy), np.column_stack([not_falling(column) for column in rows.T]))


def _share_found(pace: Pace, busy: float) -> float:
    """Return the share of the time at which random arrivals have the mean latency of clients, on one server.

    Args:
        pace: of the clients.
        busy: share of the time that they need, above 0 and below 1.
    """
    if pace.iodepth > 1:
        return busy
    there = np.arange(pace.n_clients + 1)
    logs = np.concatenate([[0.0], np.cumsum(np.log(there[:0:-1]))])

    def shares(log_rate: float) -> Floats:
        own = logs + there * log_rate
        weights = np.exp(own - own.max())
        return np.asarray(weights / weights.sum())

    found = shares(float(brentq(lambda log_rate: 1 - shares(log_rate)[0] - busy, -60.0, 60.0)))
    return max(0.0, 1 - busy / float(found @ there))


def _at(busy: Floats, nodes: Floats, times: Floats) -> Floats:
    """Interpolate times linearly in u / (1 - u), as the module says.

    With a single node they grow like those of M/M/1, in proportion to 1 / (1 - u).

    Args:
        busy: shares u, >= 0 and below 1, shape (F,).
        nodes: shares at which times are known, ascending, shape (G,).
        times: shape (D, G, C).

    Returns:
        Shape (D, F, C).
    """
    x, known = busy / (1 - busy), nodes / (1 - nodes)
    last = times[:, -1]
    slope = last / (1 + known[-1])
    if len(known) > 1:
        slope = (last - times[:, -2]) / (known[-1] - known[-2])
    upper = np.clip(np.searchsorted(known, x), 1, max(1, len(known) - 1))
    lower, upper = upper - 1, np.minimum(upper, len(known) - 1)
    width = np.where(upper > lower, known[upper] - known[lower], 1.0)
    part = np.clip((x - known[lower]) / width, 0.0, 1.0)[:, None] * (upper > lower)[:, None]
    inside = times[:, lower] * (1 - part) + times[:, upper] * part
    beyond = np.maximum(x - known[-1], 0.0)[:, None]
    return np.asarray(inside + beyond * slope[:, None])


def _paced(levels: Mapping[int | Pace, LevelFigures]) -> dict[Pace, LevelFigures]:
    return {pace: found for pace, found in levels.items() if isinstance(pace, Pace)}


def _highest(levels: Mapping[int | Pace, LevelFigures], full: float) -> float:
    """Return the highest rate: that at full speed, or a higher one that limited clients reached."""
    return max([full, *(found.iops for found in _paced(levels).values())])


def _smallest(levels: Mapping[int, LevelFigures]) -> Floats:
    """Return mean and percentiles in seconds with the fewest I/Os in flight at full speed, shape (1 + P,)."""
    return _seconds(levels[min(levels)])


def _seconds(found: LevelFigures) -> Floats:
    return np.array([found.mean_ns, *found.quantiles_ns]) / NS_PER_S
