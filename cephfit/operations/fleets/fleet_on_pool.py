"""The headroom of a fleet on a pool, and its interval from the scatter of repeats."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from scipy.special import stdtrit

from cephfit.core.values.baseline import LevelFigures, MeasuredLevels
from cephfit.core.values.cells import LoadedCell, Op
from cephfit.core.values.supply import Estimate, busy_seconds
from cephfit.mapper.absolute_rates.fleet_load import FleetLoad, FleetPart
from cephfit.mapper.absolute_rates.load_curve import LoadCurve, WorkloadMix, plain_kind
from cephfit.mapper.absolute_rates.supply import FAR_FASTER
from cephfit.operations.fleets.capacity_fleet import PlanInput, WorkloadClass

_NOTED = 0.01
"""Share of a class's accesses under unmeasured loads that matters: the 99th percentile depends on them."""
_SEARCHED = 3.0
"""The headroom by other figures is searched within this factor, and to this precision."""
_PRECISION = 1e-3

Figures = Mapping[LoadedCell, Mapping[int, LevelFigures]]
_NONE: Mapping[str, float] = {}


class Snapshot:
    """A fleet on a pool by one set of figures.

    Attributes:
        pool: name.
        asked: the fleet.
        mixes: of each class by name.
        curves: of each class by name.
        figures: by kind of access and I/Os in flight.
        faster: by class whose trace shows far faster accesses than the default's samples at full speed, the share
            of the time.
    """

    def __init__(
        self,
        pool: str,
        asked: PlanInput,
        mixes: Mapping[str, WorkloadMix],
        figures: Figures,
        percentiles: Sequence[float],
        where: str,
        faster: Mapping[str, float],
    ) -> None:
        self.pool = pool
        self.asked = asked
        self.mixes = mixes
        self.figures = figures
        self.faster = faster
        self._percentiles = percentiles
        self._where = where
        self.curves = {
            c.name: LoadCurve.of(mixes[c.name], figures, percentiles, where=where) for c in asked.classes
        }

    @classmethod
    def of(
        cls, levels: MeasuredLevels, pool: str, asked: PlanInput, where: str, faster: Mapping[str, float] = _NONE
    ) -> "Snapshot":
        """Return the snapshot of the means over repeats.

        Raises:
            InputError: the run lacks what a class does.
        """
        where = f"{where}, configuration {pool}"
        figures: dict[LoadedCell, dict[int, LevelFigures]] = {}
        for (name, kind, in_flight), found in levels.figures.items():
            if name == pool:
                figures.setdefault(kind, {})[in_flight] = _mean(found.values())
        mixes = {c.name: WorkloadMix.of(c.profile, sorted(figures), where=where) for c in asked.classes}
        return cls(pool, asked, mixes, figures, levels.percentiles, where, faster)

    def replaced(self, figures: Figures) -> "Snapshot":
        """Return the same with other figures of some kinds at some loads."""
        changed = {kind: {**own, **figures.get(kind, {})} for kind, own in self.figures.items()}
        return Snapshot(self.pool, self.asked, self.mixes, changed, self._percentiles, self._where, self.faster)

    def of_class(self, c: WorkloadClass) -> "Snapshot":
        """Return the same for the virtual machines of one class alone."""
        if len(self.asked.classes) == 1:
            return self
        if c.name not in self._of_classes:
            asked = PlanInput((c,), self.asked.limit, self.asked.confidence)
            self._of_classes[c.name] = Snapshot(
                self.pool,
                asked,
                {c.name: self.mixes[c.name]},
                self.figures,
                self._percentiles,
                self._where,
                {name: share for name, share in self.faster.items() if name == c.name},
            )
        return self._of_classes[c.name]

    @cached_property
    def _of_classes(self) -> dict[str, "Snapshot"]:
        return {}

    def _load(self, *, is_open: bool) -> FleetLoad:
        parts = [FleetPart(self.curves[c.name], c.n_vms, c.accesses_per_s) for c in self.asked.classes]
        return FleetLoad(parts, self.asked.limit, is_open=is_open)

    @property
    def is_open(self) -> bool:
        """Whether the I/Os that a machine has outstanding are unknown, so that none is taken to wait for them."""
        return not all(curve.knows_depths for curve in self.curves.values())

    @cached_property
    def load(self) -> FleetLoad:
        return self._load(is_open=self.is_open)

    @cached_property
    def headroom(self) -> float:
        """How many times the fleet fits; 0 if one machine alone exceeds the limit."""
        return self.load.most

    @cached_property
    def headroom_without_waiting(self) -> float:
        """The headroom if no machine waits for its outstanding I/Os."""
        return self.headroom if self.is_open else self._load(is_open=True).most

    def headroom_near(self, value: float) -> float:
        """Return the headroom, searched only near a value above 0."""
        return max(self.load.most_between(value / _SEARCHED, value * _SEARCHED, _PRECISION), value / _SEARCHED)

    @cached_property
    def is_bound(self) -> bool:
        """Whether the pool may serve more: full speed misjudges the load, or the limit depends on larger loads."""
        return bool(self.faster) or self.is_beyond

    @cached_property
    def is_beyond(self) -> bool:
        """Whether the limit depends on loads above the largest measured one."""
        found = self.load.at(self.headroom) if self.headroom else self.load.alone()
        return found.beyond > _NOTED

    @cached_property
    def _times(self) -> dict[str, float]:
        """Return each class's demand as a share of the pool's time, at the load of the headroom."""
        found = self.load.at(self.headroom) if self.headroom else self.load.alone()
        return {c.name: c.demand / self.curves[c.name].rate_at(found.in_flight) for c in self.asked.classes}

    @property
    def shares_of_demand(self) -> dict[str, float]:
        """Return each class's share of the fleet's time; the sum is 1."""
        times = self._times
        return {name: own / math.fsum(times.values()) for name, own in times.items()}

    @cached_property
    def _most_nbytes_per_s(self) -> Mapping[Op, float]:
        """The highest measured bandwidth by op."""
        most: dict[Op, float] = {}
        for kind, by_load in self.figures.items():
            nbytes = max(f.iops for f in by_load.values()) * kind.nbytes
            most[kind.pattern.op] = max(nbytes, most.get(kind.pattern.op, 0.0))
        return most

    def bandwidth_share(self, c: WorkloadClass) -> float:
        """Return the share of the highest measured bandwidths that a class needs."""
        return math.fsum(
            c.n_vms * nbytes / self._most_nbytes_per_s[op] for op, nbytes in c.nbytes_per_s.items() if nbytes
        )

    @property
    def bandwidth_headroom(self) -> float:
        return 1 / math.fsum(self.bandwidth_share(c) for c in self.asked.classes)

    def notes(self) -> Iterable[str]:
        """Yield what limits the figures of this pool."""
        for c in self.asked.classes:
            curve, mix = self.curves[c.name], self.mixes[c.name]
            yield from (f"{c.name}: {note}" for note in mix.notes)
            if curve.extrapolated:
                kinds = ", ".join(map(str, curve.extrapolated))
                yield f"{c.name}: extrapolated beyond the largest load of {kinds}"
            if not curve.knows_depths:
                yield f"{c.name}: its outstanding I/Os are unknown: its accesses count as random arrivals"
            if not curve.is_reached(self.asked.limit):
                yield (
                    f"{c.name}: not even {curve.in_flight[0]:g} in flight, the smallest measured load, is within "
                    f"the latency limit: {_latencies(curve)}"
                )
            elif not self.of_class(c).headroom:
                deepest = float(curve.depths.max())
                yield (
                    f"{c.name}: the bursts of one virtual machine alone, with up to {deepest:.0f} I/Os "
                    "outstanding, exceed the limit"
                )
        for name, share in self.faster.items():
            yield (
                f"{name}: its accesses took {100 * share:.2g} % of the time that they need at full speed on the "
                "default, so the counts are lower bounds: `cephfit verify --clients N` shows how many run well"
            )
        if self.is_beyond:
            measured = min(float(curve.in_flight[-1]) for curve in self.curves.values())
            yield (
                f"the limit is reached with more than {measured:g} in flight, the largest measured load. Beyond "
                "it the pool is taken to serve no more, so the rates and the headroom are lower bounds: measure "
                "larger loads for more"
            )


def traced_faster(default: Snapshot) -> dict[str, float]:
    """Return the classes whose trace shows far faster accesses than full speed does, with the share of the time.

    Profiles are of traces on the default. Only waiting times show this.
    """
    found = {}
    for c in default.asked.classes:
        waited = busy_seconds(c.profile)
        if waited is not None:
            seconds = waited / math.fsum(d.accesses for d in c.profile.demands or ())
            if (share := seconds / default.curves[c.name].own_seconds) < FAR_FASTER:
                found[c.name] = share
    return found


def _latencies(curve: LoadCurve) -> str:
    mean = f"the mean is {1000 * curve.least_mean_seconds:.3g} ms"
    if not curve.percentiles:
        return mean
    return f"the 99th percentile is {1000 * curve.least_p99_seconds:.3g} ms, {mean}"


def _mean(figures: Iterable[LevelFigures]) -> LevelFigures:
    """Return the mean of repeats: arithmetic of rates and means, geometric of percentiles."""
    every = list(figures)
    n = len(every)
    return LevelFigures(
        math.fsum(f.iops for f in every) / n,
        math.fsum(f.mean_ns for f in every) / n,
        tuple(
            math.exp(math.fsum(map(math.log, of)) / n) for of in zip(*(f.quantiles_ns for f in every), strict=True)
        ),
    )


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
            pool: _Scatter.of([list(f.values()) for (name, _, _), f in levels.figures.items() if name == pool])
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
        """Return the headroom; the lower end is that of machines that do not wait, with its scatter."""
        if not mean.headroom:
            return Estimate(0.0, 0.0, self._high_of_none(mean))
        below, above = self._factors(mean)
        high = math.inf if mean.is_bound else mean.headroom * above
        return Estimate(mean.headroom, min(mean.headroom, mean.headroom_without_waiting) / below, high)

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
            for in_flight, figures in mean.figures[kind].items():
                root = math.sqrt(len(self._levels.figures[mean.pool, kind, in_flight]))
                changed = _faster(figures, sign * places.rate / root, sign * places.time / root)
                total += self._change(mean, {kind: {in_flight: changed}}) ** 2
        error = math.sqrt(self._common.value)
        common = self._change(mean, _all_faster(mean.figures, sign * error)) ** 2 if error else 0.0
        return _Variance(total, places.freedom).plus(_Variance(common, self._common.freedom))

    def _change(self, mean: Snapshot, figures: Figures) -> float:
        return math.log(mean.replaced(figures).headroom_near(mean.headroom) / mean.headroom)

    def _high_of_none(self, mean: Snapshot) -> float:
        """Return the upper end where one machine alone exceeds the limit.

        What smaller loads than the smallest measured one give is not known, unless that is one I/O in flight.
        """
        is_smallest = all(curve.in_flight[0] <= 1 for curve in mean.curves.values())
        places = self._scatters[mean.pool]
        if not is_smallest or mean.is_bound or not places.freedom:
            return math.inf
        times = _Variance(places.time**2 / places.repeats, places.freedom).plus(self._common)
        error = math.log(times.factor(self._confidence))
        return mean.replaced(_all_faster(mean.figures, error)).headroom

    @cached_property
    def _common(self) -> "_Variance":
        """The variance of the mean over repeats of the log of the speed that a repeat has in common."""
        every = list(self._levels.figures.values())
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
        rate: of rates.
        time: of the highest percentile, or of mean latencies without percentiles.
        repeats: of a figure, on average.
        freedom: degrees of freedom.
    """

    rate: float
    time: float
    repeats: float
    freedom: int

    @classmethod
    def of(cls, places: Sequence[Sequence[LevelFigures]]) -> "_Scatter":
        n = sum(map(len, places))
        freedom = n - len(places)
        if not freedom:
            return cls(0.0, 0.0, 1.0, 0)
        rates = math.fsum(_squares([f.iops for f in found]) for found in places)
        times = math.fsum(
            _squares([f.quantiles_ns[-1] if f.quantiles_ns else f.mean_ns for f in found]) for found in places
        )
        return cls(math.sqrt(rates / freedom), math.sqrt(times / freedom), n / len(places), freedom)


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
