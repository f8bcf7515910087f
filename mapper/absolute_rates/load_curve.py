"""Rate and latency of each demand of a workload over the I/Os in flight. Pure.

With N I/Os in flight, an access of kind k spends N / rate_k(N) seconds in the storage (Little's law). The mix adds
up as time: its access spends the mean of these. ``fleet_load`` says what a number of machines experiences.

Between measured loads, the time of an access is linear in N. That is exact while servers are free (constant), when
all are busy (proportional), and for an M/M/1 queue, where it is (1 + N) / service rate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import isotonic_regression

from cephfit.core.errors import InputError
from cephfit.core.statistics.latency_mixture import mixed_percentiles
from cephfit.core.statistics.round_effects import Floats
from cephfit.core.units import NS_PER_S
from cephfit.core.values.baseline import LevelFigures
from cephfit.core.values.cells import LoadedCell
from cephfit.core.values.profile import Profile
from cephfit.mapper.models.access_weights import AccessWeights, counted_demands, neighbours

P99 = 99.0
Levels = Mapping[int, LevelFigures]
"""Figures by I/Os in flight."""
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
        depths: I/Os outstanding of one client while those of a demand are, shape (D,); 1 where unknown.
        knows_depths: whether the profile has the depth of every demand.
        notes: what was not measured and matters.
    """

    kinds: tuple[LoadedCell, ...]
    weights: Floats
    shares: Floats
    depths: Floats
    knows_depths: bool
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
        known = profile.demands or counted_demands(profile)
        demands = [replace(demand, depth=None) for demand in known]
        access = AccessWeights.of(demands, measured, profile.commits, where=where)
        counts = np.array([demand.accesses for demand in demands], dtype=np.float64)
        shares = counts / counts.sum()
        access.refuse_unmeasured(shares, where=where)
        return cls(
            access.cells,
            access.weights,
            shares,
            np.array([demand.depth or 1.0 for demand in known]),
            all(demand.depth is not None for demand in known),
            tuple(access.notes(shares)),
        )


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """A mix of D demands on one configuration, each by itself, under growing load.

    Attributes:
        in_flight: I/Os in flight at which all major kinds were measured, ascending, shape (G,).
        shares: of the accesses in each demand, shape (D,); the sum is 1.
        depths: I/Os outstanding of one client while those of a demand are, shape (D,); 1 where unknown.
        knows_depths: whether the profile has them.
        percentiles: of the latency, P of them.
        times: seconds of an access of each demand (``in_flight`` over its rate), its mean latency, and its
            percentiles, all in seconds and not falling with the load, shape (D, G, 2 + P).
        extrapolated: kinds that were measured only at smaller loads: with a small share of the time, or taken to
            grow like plain accesses of their size.
    """

    in_flight: Floats
    shares: Floats
    depths: Floats
    knows_depths: bool
    percentiles: tuple[float, ...]
    times: Floats
    extrapolated: tuple[LoadedCell, ...] = ()

    @classmethod
    def of(
        cls,
        mix: WorkloadMix,
        levels: Mapping[LoadedCell, Levels],
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
        grown = with_larger_loads(levels)
        curves = [_Kind.of(grown[kind]) for kind in mix.kinds]
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
        return cls(
            grid,
            mix.shares,
            mix.depths,
            mix.knows_depths,
            tuple(percentiles),
            np.einsum("dk,kgf->dgf", mix.weights, figures),
            tuple(
                k
                for k, c, is_minor in zip(mix.kinds, curves, minor, strict=True)
                if max(levels[k]) < high and (is_minor or c.nodes[-1] >= high)
            ),
        )

    @property
    def least_mean_seconds(self) -> float:
        """The mean latency of the mix at the smallest measured load."""
        return float(self.shares @ self.times[:, 0, 1])

    @property
    def least_p99_seconds(self) -> float:
        """The 99th percentile of the mix at the smallest measured load; it must have been measured."""
        return float(mixed_percentiles(self.times[:, 0, 2:], self.shares, self.percentiles, (P99,))[0])

    @property
    def own_seconds(self) -> float:
        """Seconds of an access, on average, of one client alone at full speed: the time over those outstanding."""
        own = np.diagonal(self.at(self.depths)[:, :, 0])
        return float(self.shares @ (own / self.depths))

    def is_reached(self, limit: Limit) -> bool:
        """Return whether the smallest measured load is within a limit."""
        p99, mean = limit.p99_seconds, limit.mean_seconds
        return (p99 is None or self.least_p99_seconds <= p99) and (mean is None or self.least_mean_seconds <= mean)

    def rate_at(self, in_flight: float) -> float:
        """Return the highest accesses per second with at most this many I/Os in flight."""
        loads = np.append(self.in_flight[self.in_flight < in_flight], in_flight)
        return float((loads / (self.shares @ self.at(loads)[:, :, 0])).max())

    def at(self, in_flight: Floats) -> Floats:
        """Return ``times`` at any loads, shape (D, F, 2 + P).

        Below the smallest measured load they stay, above the largest one they grow in proportion to the load: the
        storage serves no more.
        """
        held = np.clip(in_flight, self.in_flight[0], self.in_flight[-1])
        shares = neighbours(held, self.in_flight) * np.maximum(in_flight / self.in_flight[-1], 1.0)[:, None]
        return np.asarray(np.einsum("fg,dgc->dfc", shares, self.times))


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
    def of(cls, levels: Levels) -> "_Kind":
        nodes = sorted(levels)
        rows = [
            (n / f.iops, f.mean_ns / NS_PER_S, *(q / NS_PER_S for q in f.quantiles_ns))
            for n, f in ((n, levels[n]) for n in nodes)
        ]
        of_loads = np.array(nodes, dtype=np.float64)
        values = np.array(rows)
        values[:, 0] = of_loads / _without_scatter(of_loads / values[:, 0])
        return cls(of_loads, np.column_stack([_not_falling(column) for column in values.T]))

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


def plain_kind(kind: LoadedCell) -> LoadedCell:
    """Return the kind of the same size and pattern, aligned to its size and without flushes."""
    return LoadedCell(kind.nbytes, kind.pattern)


def with_larger_loads(levels: Mapping[LoadedCell, Levels]) -> dict[LoadedCell, Levels]:
    """Return levels in which unaligned and flushed accesses have the loads of the plain ones of the same kind.

    Sweeps measure them under few loads. Above their largest one, they grow as the plain ones do from there.
    """
    found = dict(levels)
    for kind, own in levels.items():
        plain, last = levels.get(plain_kind(kind), {}), max(own)
        if last in plain:
            more = {n: _grown(own[last], plain[last], of, n / last) for n, of in plain.items() if n > last}
            found[kind] = {**own, **more}
    return found


def _grown(own: LevelFigures, plain: LevelFigures, larger: LevelFigures, times: float) -> LevelFigures:
    """Return figures at a load that is larger by a factor: the time grows by as much as that of plain accesses."""
    per_io = 1 / own.iops + times / larger.iops - 1 / plain.iops
    return LevelFigures(
        times / per_io,
        own.mean_ns + max(0.0, larger.mean_ns - plain.mean_ns),
        tuple(
            q + max(0.0, more - less)
            for q, less, more in zip(own.quantiles_ns, plain.quantiles_ns, larger.quantiles_ns, strict=True)
        ),
    )


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
    return np.concatenate([_not_falling(rates[: last + 1]), rates[last + 1 :]])


def _not_falling(values: Floats) -> Floats:
    """Return the isotonic regression; values that do not fall are their own."""
    return values if np.all(values[1:] >= values[:-1]) else np.asarray(isotonic_regression(values).x)


def _minor(mix: WorkloadMix, curves: Sequence[_Kind]) -> list[bool]:
    """Return whether each kind is one of those that take few per cent of the time together, at a small load."""
    common = np.array([max(curve.nodes[0] for curve in curves)])
    times = (mix.shares @ mix.weights) * np.array([curve.at(common)[0, 0] for curve in curves])
    order = np.argsort(times)
    is_minor = np.zeros(len(times), dtype=np.bool_)
    is_minor[order] = np.cumsum(times[order]) <= _MINOR_SHARE * times.sum()
    return is_minor.tolist()
