"""Rate and latency of a workload's mix over the I/Os in flight, and the highest rate within a latency limit. Pure.

With N I/Os in flight, an access of kind k spends N / rate_k(N) seconds in the storage (Little's law). The mix adds
up as time: its access spends the mean of these. Its latency distribution is the mixture of those of its kinds.

Between measured loads, the time of an access is linear in N. That is exact while servers are free (constant), when
all are busy (proportional), and for an M/M/1 queue, where it is (1 + N) / service rate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import isotonic_regression

from cephfit.core.errors import InputError
from cephfit.core.latency_mixture import mixed_percentiles
from cephfit.core.units import NS_PER_S
from cephfit.core.values.cells import LoadedCell
from cephfit.core.values.load_level import LevelFigures
from cephfit.core.values.profile import Profile
from cephfit.core.variance import Floats
from cephfit.mapper.access_weights import AccessWeights, counted_demands

P99 = 99.0
_MINOR_SHARE = 0.05
"""Kinds that take up to this share of the time together may be extrapolated over the load."""
_FALL = 0.25
"""A rate that is lower than the highest one by up to this share, at a larger load, may be due to scatter."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The latency that a workload must have.

    Attributes:
        p99_seconds: limit of the 99th percentile; None without one.
        mean_seconds: limit of the mean; None without one.
    """

    p99_seconds: float | None = None
    mean_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class WorkloadMix:
    """A workload's accesses as a mix of measured kinds.

    Attributes:
        kinds: measured, K of them, all with a weight.
        weights: of the time of each kind in the time of each demand, shape (D, K).
        shares: of the accesses in each demand, shape (D,); the sum is 1.
        notes: what was not measured and matters.
    """

    kinds: tuple[LoadedCell, ...]
    weights: Floats
    shares: Floats
    notes: tuple[str, ...]

    @classmethod
    def of(cls, profile: Profile, measured: Sequence[LoadedCell], *, where: str) -> "WorkloadMix":
        """Return the mix of a profile.

        Args:
            profile: of the workload.
            measured: kinds with figures, each with ``iodepth`` 1.
            where: origin of the figures, for errors.

        Raises:
            InputError: no rate was measured for an op of the workload, or accesses are far larger than measured.
        """
        # The load decides how many I/Os are in flight, not the depth of one client.
        demands = [replace(demand, depth=None) for demand in profile.demands or counted_demands(profile)]
        access = AccessWeights.of(demands, measured, profile.commits, where=where)
        counts = np.array([demand.accesses for demand in demands], dtype=np.float64)
        shares = counts / counts.sum()
        access.refuse_unmeasured(shares, where=where)
        return cls(access.cells, access.weights, shares, tuple(access.notes(shares)))


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """A mix on one configuration under growing load.

    Attributes:
        in_flight: I/Os in flight, ascending, shape (G,).
        seconds: time of an access of the mix, ``in_flight`` over its rate, shape (G,); see ``_without_scatter``.
        mean_seconds: mean measured latency, not falling, shape (G,).
        p99_seconds: 99th percentile of the mixture, not falling, shape (G,); None without percentiles.
        extrapolated: kinds with a small share of the time that were measured only at smaller loads.
    """

    in_flight: Floats
    seconds: Floats
    mean_seconds: Floats
    p99_seconds: Floats | None
    extrapolated: tuple[LoadedCell, ...] = ()

    @classmethod
    def of(
        cls,
        mix: WorkloadMix,
        levels: Mapping[LoadedCell, Mapping[int, LevelFigures]],
        percentiles: Sequence[float],
        *,
        where: str,
    ) -> "LoadCurve":
        """Return the curve of a mix.

        Args:
            mix: of the workload.
            levels: figures by kind and I/Os in flight; every kind of the mix has some.
            percentiles: of the figures.
            where: configuration and origin of the figures, for errors.

        Raises:
            InputError: the kinds that matter were not measured under a common range of loads.
        """
        curves = [_Kind.of(levels[kind]) for kind in mix.kinds]
        minor = _minor(mix, curves)
        major = [curve for curve, is_minor in zip(curves, minor, strict=True) if not is_minor]
        low, high = max(curve.nodes[0] for curve in major), min(curve.nodes[-1] for curve in major)
        grid = np.array(sorted({n for curve in major for n in curve.nodes.tolist() if low <= n <= high}))
        if not len(grid):
            raise InputError(
                "the accesses of the workload were not measured under a common load",
                where=where,
                remedy="measure all cells under the same loads, as sweeps/capacity.yaml does",
            )
        figures = np.stack([curve.at(grid) for curve in curves])  # (K, G, 2 + P)
        of_demands = np.einsum("dk,kgf->dgf", mix.weights, figures)
        seconds, means = (mix.shares @ of_demands[:, :, column] for column in (0, 1))
        p99 = None
        if P99 in percentiles:
            p99 = np.array(
                [
                    mixed_percentiles(of_demands[:, g, 2:], mix.shares, percentiles, (P99,))[0]
                    for g in range(len(grid))
                ]
            )
        return cls(
            grid,
            grid / _without_scatter(grid / seconds),
            isotonic_regression(means).x,
            None if p99 is None else isotonic_regression(p99).x,
            tuple(
                k
                for k, c, is_minor in zip(mix.kinds, curves, minor, strict=True)
                if is_minor and c.nodes[-1] < high
            ),
        )

    def rate_at(self, in_flight: float) -> float:
        """Return the highest rate in accesses per second with at most this many I/Os in flight."""
        nodes = [n for n in self.in_flight.tolist() if n < in_flight] + [in_flight]
        return float(max(n / np.interp(n, self.in_flight, self.seconds) for n in nodes))

    def p99_at(self, in_flight: float) -> float | None:
        """Return the 99th percentile in seconds; that of the largest measured load beyond it."""
        return None if self.p99_seconds is None else float(np.interp(in_flight, self.in_flight, self.p99_seconds))

    def most_in_flight(self, limit: Limit) -> float:
        """Return how many I/Os may be in flight within a limit.

        Returns:
            0 if the smallest measured load exceeds the limit; at most the largest measured load.
        """
        most = float(self.in_flight[-1])
        for values, bound in ((self.p99_seconds, limit.p99_seconds), (self.mean_seconds, limit.mean_seconds)):
            if bound is not None and values is not None:
                most = min(most, _crossing(self.in_flight, values, bound))
        return most

    def is_bound(self, in_flight: float) -> bool:
        """Return whether no larger load was measured."""
        return bool(in_flight >= self.in_flight[-1])


@dataclass(frozen=True, slots=True)
class _Kind:
    """One kind of access over the load.

    Attributes:
        nodes: I/Os in flight, ascending, shape (L,).
        values: seconds of an access, mean latency and quantiles in seconds, shape (L, 2 + P).
    """

    nodes: Floats
    values: Floats

    @classmethod
    def of(cls, levels: Mapping[int, LevelFigures]) -> "_Kind":
        nodes = sorted(levels)
        rows = [
            (n / f.iops, f.mean_ns / NS_PER_S, *(q / NS_PER_S for q in f.quantiles_ns))
            for n, f in ((n, levels[n]) for n in nodes)
        ]
        return cls(np.array(nodes, dtype=np.float64), np.array(rows))

    def at(self, grid: Floats) -> Floats:
        """Return the values at each load, shape (G, 2 + P).

        Below the smallest measured load they stay. Above the largest one they grow as between the last two, and in
        proportion to the load if there is only one.
        """
        found = np.stack([np.interp(grid, self.nodes, column) for column in self.values.T], axis=1)
        beyond = grid > self.nodes[-1]
        last = self.values[-1]
        slope = last / self.nodes[-1]
        if len(self.nodes) > 1:
            slope = np.maximum(last - self.values[-2], 0.0) / (self.nodes[-1] - self.nodes[-2])
        found[beyond] = last + (grid[beyond] - self.nodes[-1])[:, None] * slope
        return found


def _without_scatter(rates: Floats) -> Floats:
    """Return the rates over the load such that they do not fall, except where the storage clearly slows down.

    The highest of several noisy rates of a saturated storage is too high on average. More I/Os in flight do not
    lower a rate up to saturation, so the isotonic regression replaces rates that fall by their mean (Barlow et
    al., Statistical Inference under Order Restrictions, 1972). Loads after the last one whose rate is within
    ``_FALL`` of the highest keep their rates.

    Args:
        rates: per second, by ascending load, shape (G,).
    """
    last = int(np.flatnonzero(rates >= (1 - _FALL) * rates.max())[-1])
    return np.concatenate([isotonic_regression(rates[: last + 1]).x, rates[last + 1 :]])


def _minor(mix: WorkloadMix, curves: Sequence[_Kind]) -> list[bool]:
    """Return whether each kind is one of those that take few per cent of the time together, at a small load."""
    common = np.array([max(curve.nodes[0] for curve in curves)])
    times = (mix.shares @ mix.weights) * np.array([curve.at(common)[0, 0] for curve in curves])
    order = np.argsort(times)
    is_minor = np.zeros(len(times), dtype=np.bool_)
    is_minor[order] = np.cumsum(times[order]) <= _MINOR_SHARE * times.sum()
    return is_minor.tolist()


def _crossing(in_flight: Floats, values: Floats, bound: float) -> float:
    """Return where values that do not fall reach a bound; 0 if the first is above it."""
    if values[0] > bound:
        return 0.0
    above = np.flatnonzero(values > bound)
    if not len(above):
        return float(in_flight[-1])
    i = int(above[0])
    share = (bound - values[i - 1]) / (values[i] - values[i - 1])
    return float(in_flight[i - 1] + share * (in_flight[i] - in_flight[i - 1]))
