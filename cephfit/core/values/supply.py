"""What a workload asks of the storage per second, and what a configuration serves: demand, supply, headroom."""

import math
from dataclasses import dataclass

from cephfit.core.values.profile import Profile


@dataclass(frozen=True, slots=True)
class Estimate:
    """A positive figure with its interval.

    Attributes:
        value: the figure.
        low: lower end; 0 where nothing bounds it.
        high: upper end; infinite where nothing bounds it.
    """

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.value <= self.high:
            raise ValueError(f"{self.value} is outside {self.low}..{self.high}")

    def scaled(self, factor: float) -> "Estimate":
        return Estimate(self.value * factor, self.low * factor, self.high * factor)

    def to_json(self) -> dict[str, float | None]:
        return {"value": self.value, "low": self.low, "high": self.high if math.isfinite(self.high) else None}


@dataclass(frozen=True, slots=True)
class WorkloadDemand:
    """What a workload asked of its storage.

    Attributes:
        seconds: length of the trace.
        accesses_per_s: mean over the trace.
        nbytes_per_s: mean over the trace.
        busiest_second: accesses in the busiest second; None if unknown.
        busiest_minute: mean accesses per second of the busiest minute; None if unknown or if the trace is shorter.
        outstanding: mean number of outstanding accesses while any was outstanding; None if unknown.
        busy_share: share of the time with I/O outstanding, 0 to 1; None if unknown.
    """

    seconds: float
    accesses_per_s: float
    nbytes_per_s: float
    busiest_second: float | None = None
    busiest_minute: float | None = None
    outstanding: float | None = None
    busy_share: float | None = None

    @classmethod
    def of(cls, profile: Profile) -> "WorkloadDemand | None":
        """Return the demand of a profile; None if its source tells no length of time."""
        seconds = profile.description.get("duration_seconds")
        if not isinstance(seconds, int | float) or not seconds > 0 or not profile.n_accesses:
            return None
        nbytes = profile.description.get("nbytes") or {}
        busiest = profile.description.get("busiest") or {}
        waiting = [(d.waiting_seconds, d.depth) for d in profile.demands or ()]
        waited = math.fsum(w for w, _ in waiting if w is not None)
        known = bool(waiting) and all(w is not None for w, _ in waiting) and waited > 0
        idle = profile.idle_seconds
        # A depth is a mean over the time that is divided among its accesses, so waiting times weight it.
        deep = math.fsum(w * d for w, d in waiting if w is not None and d is not None)
        deep_known = known and all(d is not None for _, d in waiting)
        return cls(
            seconds=float(seconds),
            accesses_per_s=profile.n_accesses / seconds,
            nbytes_per_s=math.fsum(nbytes.values()) / seconds,
            busiest_second=busiest.get("second"),
            busiest_minute=busiest.get("minute"),
            outstanding=deep / waited if deep_known else None,
            busy_share=waited / (waited + idle) if known and idle is not None else None,
        )


@dataclass(frozen=True, slots=True)
class Supply:
    """What a configuration serves at a workload's mix of accesses.

    Attributes:
        configuration: name.
        own_depth: accesses per second with as many outstanding as the workload has.
        most: accesses per second at the depth, among those measured, at which it serves most.
        most_depth: that depth.
        is_bound: the workload has more outstanding than was measured, or a load's own limit was reached: it may
            serve more.
    """

    configuration: str
    own_depth: Estimate
    most: Estimate
    most_depth: int
    is_bound: bool = False

    def headroom(self, demand: WorkloadDemand) -> Estimate:
        """Return how many times the demand fits: the most that is served over the mean of the workload."""
        return self.most.scaled(1 / demand.accesses_per_s)
