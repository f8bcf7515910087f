"""The headroom of a fleet on a pool by one set of figures."""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from cephfit.core.values.baseline import LevelFigures, MeasuredLevels, Pace
from cephfit.core.values.cells import LoadedCell, Op
from cephfit.core.values.supply import busy_seconds
from cephfit.mapper.absolute_rates.fleet_load import FleetLoad, FleetPart
from cephfit.mapper.absolute_rates.load_curve import LeastLatency, LoadCurve, WorkloadMix, is_within
from cephfit.mapper.absolute_rates.paced_load import Figures, PacedCurve, PacedFleet, PacedPart, at_full_speed
from cephfit.operations.fleets.capacity_fleet import PlanInput, WorkloadClass

_NOTED = 0.01
"""Share of a class's accesses under unmeasured loads that matters: the 99th percentile depends on them."""
_FASTER = 0.25
"""Accesses that took less than this share of the samples' time are not those that were measured: disks with a
burst, logs that write the same blocks again."""
_SEARCHED = 3.0
"""The headroom by other figures is searched within this factor, and to this precision."""
_PRECISION = 1e-3

_NONE: Mapping[str, float] = {}


class Snapshot:
    """A fleet on a pool by one set of figures.

    Attributes:
        pool: name.
        asked: the fleet.
        mixes: of each class by name.
        curves: of each class by name, at full speed.
        paced: the same at limited rates; empty unless every class has them.
        figures: by kind of access, and I/Os in flight or pace.
        faster: by class whose trace shows far faster accesses than the default's samples, the share of the time.
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
        full = at_full_speed(figures)
        self.curves = {c.name: LoadCurve.of(mixes[c.name], full, percentiles, where=where) for c in asked.classes}
        paced = {name: PacedCurve.of(mixes[name], figures, curve) for name, curve in self.curves.items()}
        found = {name: curve for name, curve in paced.items() if curve is not None}
        self.paced = found if len(found) == len(paced) else {}

    @classmethod
    def of(
        cls, levels: MeasuredLevels, pool: str, asked: PlanInput, where: str, faster: Mapping[str, float] = _NONE
    ) -> "Snapshot":
        """Return the snapshot of the means over repeats.

        Raises:
            InputError: the run lacks what a class does.
        """
        where = f"{where}, configuration {pool}"
        figures: dict[LoadedCell, dict[int | Pace, LevelFigures]] = {}
        for (name, kind, load), found in levels.figures.items():
            if name == pool:
                figures.setdefault(kind, {})[load] = _mean(found.values())
        figures = {kind: figures[kind] for kind in at_full_speed(figures)}
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

    def gentlest(self, c: WorkloadClass) -> LoadCurve | PacedCurve:
        """The curve with the smallest measured load of a class."""
        return self.paced[c.name] if self.paced else self.curves[c.name]

    def _load(self, *, is_open: bool) -> FleetLoad | PacedFleet:
        if self.paced:
            paced = [PacedPart(self.paced[c.name], c.n_vms, c.accesses_per_s) for c in self.asked.classes]
            return PacedFleet(paced, self.asked.limit, is_open=is_open)
        parts = [FleetPart(self.curves[c.name], c.n_vms, c.accesses_per_s) for c in self.asked.classes]
        return FleetLoad(parts, self.asked.limit, is_open=is_open)

    @property
    def is_open(self) -> bool:
        """Whether the I/Os that a machine has outstanding are unknown, so that none is taken to wait for them."""
        return not all(curve.knows_depths for curve in self.curves.values())

    @cached_property
    def load(self) -> FleetLoad | PacedFleet:
        return self._load(is_open=self.is_open)

    @cached_property
    def headroom(self) -> float:
        """How many times the fleet fits; 0 if one machine alone exceeds the limit."""
        return self.load.most

    @cached_property
    def headroom_without_waiting(self) -> float:
        """The headroom if no machine waits for its outstanding I/Os."""
        return self.headroom if self.is_open else self._load(is_open=True).most

    @cached_property
    def measured_range(self) -> tuple[float, float] | None:
        """The headrooms between which it is extrapolated above the highest limited rates; None if it is not."""
        load = self.load
        if not isinstance(load, PacedFleet) or self.headroom <= load.measured:
            return None
        return load.measured, load.saturated

    def headroom_near(self, value: float) -> float:
        """Return the headroom, searched only near a value above 0."""
        return max(self.load.most_between(value / _SEARCHED, value * _SEARCHED, _PRECISION), value / _SEARCHED)

    @cached_property
    def is_bound(self) -> bool:
        """Whether the pool may serve more: the samples misjudge the load, or the limit depends on larger loads."""
        return bool(self.faster) or self.is_beyond

    @cached_property
    def is_beyond(self) -> bool:
        """Whether the limit depends on loads above the largest measured one."""
        found = self.load.at(self.headroom) if self.headroom else self.load.alone()
        return found.beyond > _NOTED

    @cached_property
    def _times(self) -> dict[str, float]:
        """Return each class's demand as a share of the pool's time, at the load of the headroom."""
        if self.paced:
            return {c.name: c.demand * self.paced[c.name].share_per_s for c in self.asked.classes}
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
            gentlest = self.gentlest(c)
            if not is_within(gentlest, self.asked.limit):
                yield (
                    f"{c.name}: not even {gentlest.smallest} is within the latency limit: "
                    f" {_latencies(gentlest, with_p99=bool(curve.percentiles))}"
                )
            elif not self.of_class(c).headroom:
                deepest = float(curve.depths.max())
                yield (
                    f"{c.name}: the bursts of one virtual machine alone, with up to {deepest:.0f} I/Os "
                    "outstanding, exceed the limit"
                )
        speed = "at limited rates" if self.paced else "at full speed"
        for name, share in self.faster.items():
            yield (
                f"{name}: its accesses took {100 * share:.2g} % of the time that they need {speed} on the "
                "default, so the counts are lower bounds: `cephfit verify --clients N` shows how many run well"
            )
        if self.paced:
            yield "latencies are those of clients with a limited rate: storage at full speed is slower"
        if self.measured_range is not None:
            yield (
                f"extrapolated above the highest limited rates, from {self.measured_range[0]:.3g} times the fleet "
                f"up to {self.measured_range[1]:.3g} times at full speed: measure loads with higher limits"
            )
        if self.is_beyond:
            measured = min(float(curve.in_flight[-1]) for curve in self.curves.values())
            yield (
                f"the limit is reached with more than {measured:g} in flight, the largest measured load. Beyond "
                "it the pool is taken to serve no more, so the rates and the headroom are lower bounds: measure "
                "larger loads for more"
            )


def traced_faster(default: Snapshot) -> dict[str, float]:
    """Return the classes whose trace shows far faster accesses than the samples do, with the share of the time.

    Profiles are of traces on the default. Only waiting times show this.
    """
    found = {}
    for c in default.asked.classes:
        waited = busy_seconds(c.profile)
        if waited is not None:
            seconds = waited / math.fsum(d.accesses for d in c.profile.demands or ())
            if (share := seconds / default.gentlest(c).own_seconds) < _FASTER:
                found[c.name] = share
    return found


def _latencies(curve: LeastLatency, *, with_p99: bool) -> str:
    mean = f"the mean is {1000 * curve.least_mean_seconds:.3g} ms"
    if not with_p99:
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
