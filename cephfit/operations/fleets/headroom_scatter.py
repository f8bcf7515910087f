"""Intervals of headrooms from the scatter of repeats."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from scipy.special import stdtrit

from cephfit.core.values.baseline import LevelFigures, MeasuredLevels, Pace, Place
from cephfit.core.values.supply import Estimate
from cephfit.mapper.absolute_rates.load_curve import plain_kind
from cephfit.mapper.absolute_rates.paced_load import Figures
from cephfit.operations.fleets.capacity_fleet import WorkloadClass
from cephfit.operations.fleets.fleet_on_pool import Snapshot


class HeadroomScatter:
    """Intervals from the scatter of repeats.

    Every figure of a kind at a load scatters by itself, all of a pool alike: the headroom is computed with one
    figure slower, and faster, by its standard error, and the squared changes to either side add up. Whole repeats
    also differ in speed together; the change by the standard error of the common speed is added.
    """

    def __init__(self, means: Mapping[str, Snapshot], levels: MeasuredLevels, confidence: float) -> None:
        """Args:
        means: by pool.
        levels: all figures.
        confidence: of each interval by itself.
        """
        self._means = means
        self._levels = levels
        self._confidence = confidence
        self._found: dict[tuple[str, str], tuple[float, float]] = {}
        self._scatters = {
            pool: _Scatter.of({p: list(f.values()) for p, f in levels.figures.items() if p[0] == pool})
            for pool in means
        }

    def headroom(self, pool: str) -> Estimate:
        """Return how many times the fleet fits."""
        return self._estimate(self._means[pool])

    def alone(self, pool: str, c: WorkloadClass) -> Estimate:
        """Return the sustainable accesses per second of a class without the others.

        The interval is as wide as that of the fleet's headroom, if the fleet has any.
        """
        return self._estimate(self._means[pool].of_class(c)).scaled(c.demand)

    def bandwidth(self, pool: str) -> Estimate:
        """Return how many times the fleet fits by the highest measured bandwidths."""
        value = self._means[pool].bandwidth_headroom
        places = self._scatters[pool]
        error = _Variance(places.rate**2 / places.repeats, places.freedom)
        factor = error.plus(self._common).factor(self._confidence)
        return Estimate(value, value / factor, value * factor)

    def _estimate(self, mean: Snapshot) -> Estimate:
        """Return the headroom; the lower end is that of machines that do not wait, with its scatter.

        If it is extrapolated, the interval reaches from what was measured to the highest rates.
        """
        if not mean.headroom:
            return Estimate(0.0, 0.0, self._high_of_none(mean))
        below, above = self._factors(mean)
        least, most = mean.measured_range or (mean.headroom, mean.headroom)
        low = min(mean.headroom, mean.headroom_without_waiting, least) / below
        return Estimate(mean.headroom, low, math.inf if mean.is_bound else most * above)

    def _factors(self, mean: Snapshot) -> tuple[float, float]:
        """Return by how much the lower and the upper end may differ from a headroom on a pool."""
        whole = self._means[mean.pool]
        judged = whole if whole.headroom else mean
        key = mean.pool, "" if judged is whole else mean.asked.classes[0].name
        if key not in self._found:
            below, above = (self._variance(judged, sign).factor(self._confidence) for sign in (-1, 1))
            self._found[key] = below, above
        return self._found[key]

    def _variance(self, mean: Snapshot, sign: int) -> "_Variance":
        """Return the variance of the headroom's logarithm, from figures that are slower (-1) or faster (1)."""
        kinds = {kind for mix in mean.mixes.values() for kind in mix.kinds}
        used = kinds | {plain_kind(kind) for kind in kinds}
        places = self._scatters[mean.pool]
        total = 0.0
        for kind in sorted(used & set(mean.figures)):
            for load, figures in mean.figures[kind].items():
                root = math.sqrt(len(self._levels.figures[mean.pool, kind, load]))
                by_rate = 0.0 if isinstance(load, Pace) else sign * places.rate / root
                changed = _faster(figures, by_rate, sign * places.time / root)
                total += self._change(mean, {kind: {load: changed}}) ** 2
        error = math.sqrt(self._common.value)
        common = self._change(mean, _all_faster(mean.figures, sign * error)) ** 2 if error else 0.0
        return _Variance(total, places.freedom).plus(_Variance(common, self._common.freedom))

    def _change(self, mean: Snapshot, figures: Figures) -> float:
        return math.log(mean.replaced(figures).headroom_near(mean.headroom) / mean.headroom)

    def _high_of_none(self, mean: Snapshot) -> float:
        """Return the upper end where one machine alone exceeds the limit.

        What smaller loads than the smallest measured one give is not known, unless that is one I/O in flight.
        """
        is_smallest = bool(mean.paced) or all(curve.in_flight[0] <= 1 for curve in mean.curves.values())
        places = self._scatters[mean.pool]
        if not is_smallest or mean.is_bound or not places.freedom:
            return math.inf
        times = _Variance(places.time**2 / places.repeats, places.freedom).plus(self._common)
        error = math.log(times.factor(self._confidence))
        return mean.replaced(_all_faster(mean.figures, error)).headroom

    @cached_property
    def _common(self) -> "_Variance":
        """The variance of the mean over repeats of the log of the speed that a repeat has in common."""
        every = [found for (_, _, load), found in self._levels.figures.items() if not isinstance(load, Pace)]
        rounds = sorted({r for found in every for r in found})
        whole = [found for found in every if len(found) == len(rounds)]
        n = len(rounds)
        if n < 2 or not whole:
            return _Variance(0.0, 0)
        speeds = [math.fsum(math.log(found[r].iops) for found in whole) / len(whole) for r in rounds]
        centre = math.fsum(speeds) / n
        between = math.fsum((speed - centre) ** 2 for speed in speeds) / (n - 1)
        return _Variance(between / n, n - 1)


@dataclass(frozen=True, slots=True)
class _Variance:
    """Of the logarithm of a figure.

    Attributes:
        value: the variance.
        freedom: degrees of freedom; 0 if the variance is unknown.
    """

    value: float
    freedom: float

    def plus(self, other: "_Variance") -> "_Variance":
        """Return the sum, with the degrees of freedom of Satterthwaite (Biometrics Bulletin 2 (6), 1946)."""
        parts = [v for v in (self, other) if v.value > 0 and v.freedom]
        total = math.fsum(v.value for v in parts)
        if not parts:
            return self if self.freedom else other
        return _Variance(total, total**2 / math.fsum(v.value**2 / v.freedom for v in parts))

    def factor(self, confidence: float) -> float:
        """Return half the width of an interval as a factor; infinite if nothing is known."""
        if not self.freedom:
            return math.inf
        return math.exp(min(700.0, float(stdtrit(self.freedom, (1 + confidence) / 2)) * math.sqrt(self.value)))


@dataclass(frozen=True, slots=True)
class _Scatter:
    """Standard deviations over repeats of the logarithms of a pool's figures.

    Attributes:
        rate: of rates at full speed.
        time: of the highest percentile, or of mean latencies without percentiles.
        repeats: of a figure, on average.
        freedom: degrees of freedom.
    """

    rate: float
    time: float
    repeats: float
    freedom: int

    @classmethod
    def of(cls, places: Mapping[Place, Sequence[LevelFigures]]) -> "_Scatter":
        every = list(places.values())
        full = [found for (_, _, load), found in places.items() if not isinstance(load, Pace)]
        n, freedom = sum(map(len, every)), sum(len(found) - 1 for found in every)
        of_full = sum(len(found) - 1 for found in full)
        if not of_full:
            return cls(0.0, 0.0, 1.0, 0)
        rates = math.fsum(_squares([f.iops for f in found]) for found in full)
        times = math.fsum(
            _squares([f.quantiles_ns[-1] if f.quantiles_ns else f.mean_ns for f in found]) for found in every
        )
        return cls(math.sqrt(rates / of_full), math.sqrt(times / freedom), n / len(every), of_full)


def _squares(values: Sequence[float]) -> float:
    """Return the sum of the squared deviations of the logarithms from their mean."""
    logs = [math.log(value) for value in values]
    centre = math.fsum(logs) / len(logs)
    return math.fsum((log - centre) ** 2 for log in logs)


def _all_faster(figures: Figures, by: float) -> Figures:
    return {kind: {n: _faster(f, by, by) for n, f in of.items()} for kind, of in figures.items()}


def _faster(figures: LevelFigures, by_rate: float, by_time: float) -> LevelFigures:
    """Return figures with a rate and latencies that are better by these logarithms."""
    time = math.exp(-by_time)
    return LevelFigures(
        figures.iops * math.exp(by_rate), figures.mean_ns * time, tuple(time * q for q in figures.quantiles_ns)
    )
