"""A fleet of virtual machines by class, what is asked about it, and the answer for each pool."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op
from cephfit.core.values.profile import Profile
from cephfit.core.values.supply import Estimate, WorkloadDemand
from cephfit.mapper.absolute_rates.load_curve import Limit
from cephfit.mapper.models.access_weights import counted_demands

IOPS, BANDWIDTH, SPACE = "IOPS", "bandwidth", "space"
_SAME = 1.001
"""Ratio up to which two headrooms count as those of the same measurement."""
MEAN, BUSIEST_MINUTE, BUSIEST_SECOND = "mean", "busiest-minute", "busiest-second"


@dataclass(frozen=True, slots=True)
class WorkloadClass:
    """Virtual machines with the same workload.

    Attributes:
        profile: of one of them.
        n_vms: their number.
        accesses_per_s: demand of one of them.
        nbytes_per_s: demand of one of them by op.
        outstanding: mean I/Os outstanding of one of them while any is; None if unknown.
        space_nbytes: that one of them takes of the pool; None if not given.
    """

    profile: Profile
    n_vms: int
    accesses_per_s: float
    nbytes_per_s: Mapping[Op, float]
    outstanding: float | None
    space_nbytes: int | None = None

    @property
    def name(self) -> str:
        return self.profile.name

    @property
    def demand(self) -> float:
        """Accesses per second of all of them."""
        return self.n_vms * self.accesses_per_s

    @classmethod
    def of(
        cls,
        profile: Profile,
        n_vms: int,
        *,
        rate: float | None = None,
        demand: str = MEAN,
        space_nbytes: int | None = None,
    ) -> "WorkloadClass":
        """Return the class of a profile.

        Args:
            profile: of one virtual machine.
            n_vms: at least 1.
            rate: accesses per second of one of them, in place of the profile's.
            demand: which rate of the profile counts: ``mean``, ``busiest-minute`` or ``busiest-second``.
            space_nbytes: that one of them takes.

        Raises:
            InputError: the profile does not tell its rate.
        """
        known = WorkloadDemand.of(profile)
        per_s = rate if rate is not None else _rate_of(profile, known, demand)
        demands = profile.demands or counted_demands(profile)
        n = math.fsum(d.accesses for d in demands)
        nbytes = {op: math.fsum(d.accesses * d.nbytes for d in demands if d.pattern.op is op) / n for op in Op}
        return cls(
            profile,
            n_vms,
            per_s,
            {op: per_s * mean for op, mean in nbytes.items()},
            known.outstanding if known else None,
            space_nbytes,
        )


def _rate_of(profile: Profile, known: WorkloadDemand | None, demand: str) -> float:
    remedy = f"give its accesses per second with --rate {profile.name}=N, or profile a trace with times"
    if known is None:
        raise InputError(
            "the profile has no duration, so its rate is unknown", where=f"profile {profile.name}", remedy=remedy
        )
    rates = {
        MEAN: known.accesses_per_s,
        BUSIEST_MINUTE: known.busiest_minute,
        BUSIEST_SECOND: known.busiest_second,
    }
    found = rates[demand]
    if found is None:
        raise InputError(
            f"the profile does not tell the rate of its {demand.replace('-', ' ')}",
            where=f"profile {profile.name}",
            remedy=f"{remedy}; or plan with --demand {MEAN}",
        )
    return float(found)


@dataclass(frozen=True, slots=True)
class ClassCapacity:
    """What a pool serves of one class.

    Attributes:
        of: the class.
        sustainable: accesses per second of this class alone within the latency limit; 0 if the smallest measured
            load exceeds it.
        is_bound: no larger load was measured: the pool may serve more.
        share: of the pool's time within the latency limit, with the other classes on it; infinite if nothing fits.
        more: how many more of its virtual machines fit; the others stay.
        is_reached: the smallest measured load is within the latency limit.
    """

    of: WorkloadClass
    sustainable: Estimate
    is_bound: bool
    share: float
    more: Estimate
    is_reached: bool = True

    @property
    def vms_alone(self) -> Estimate:
        """How many of its virtual machines fit by IOPS without the other classes, whole."""
        ends = (self.sustainable.value, self.sustainable.low, self.sustainable.high)
        value, low, high = (_whole(rate / self.of.accesses_per_s) for rate in ends)
        return Estimate(value, low, high)

    def to_json(self) -> dict[str, Any]:
        return {
            "class": self.of.name,
            "vms": self.of.n_vms,
            "demand_per_s": self.of.demand,
            "demand_nbytes_per_s": {op.value: self.of.n_vms * n for op, n in self.of.nbytes_per_s.items()},
            "sustainable_per_s": self.sustainable.to_json(),
            "sustainable_is_bound": self.is_bound,
            "share": self.share if math.isfinite(self.share) else None,
            "more_vms": None if math.isinf(self.more.value) else self.more.to_json(),
            "vms_alone": self.vms_alone.to_json(),
        }


def _whole(times: float) -> float:
    return times if math.isinf(times) else float(math.floor(times * (1 + 1e-9)))


@dataclass(frozen=True, slots=True)
class PoolCapacity:
    """A fleet on one pool.

    Attributes:
        pool: name of the configuration.
        classes: of the fleet.
        headroom: how many times the fleet fits, by resource; ``SPACE`` only if the space is known.
        months: until it is full, by resource; empty without growth.
        is_bound: no larger load was measured: the headroom by IOPS is a lower bound.
        notes: caveats.
    """

    pool: str
    classes: tuple[ClassCapacity, ...]
    headroom: Mapping[str, Estimate]
    months: Mapping[str, Estimate]
    is_bound: bool
    notes: tuple[str, ...]

    @property
    def scarcest(self) -> str:
        """The resource with the least headroom."""
        return min(self.headroom, key=lambda resource: self.headroom[resource].value)

    @property
    def least(self) -> Estimate:
        """The headroom of the scarcest resource."""
        return self.headroom[self.scarcest]

    @property
    def fits(self) -> bool:
        return self.least.value >= 1

    @property
    def is_unknown(self) -> bool:
        """Whether it may fit after all: only lower bounds do not suffice.

        The highest measured bandwidth leaves at least the headroom by IOPS. If it leaves no more, both are the
        rates of the same accesses at the same loads, and the bandwidth is a lower bound, too.
        """
        scarce = {name: found.value for name, found in self.headroom.items() if found.value < 1}
        if not self.is_bound or IOPS not in scarce or SPACE in scarce:
            return False
        return scarce.get(BANDWIDTH, 0.0) <= scarce[IOPS] * _SAME

    @property
    def is_certain(self) -> bool:
        """Whether the intervals agree with ``fits``: of all resources if it fits, of any one if it does not."""
        every = self.headroom.values()
        return all(h.low >= 1 for h in every) if self.fits else any(h.high < 1 for h in every)

    @property
    def in_doubt(self) -> tuple[str, ...]:
        """The resources whose interval contains 1."""
        return tuple(name for name, h in self.headroom.items() if h.low < 1 <= h.high)

    @property
    def is_least_bound(self) -> bool:
        """Whether the least headroom is a lower bound, and so the time until the pool is full."""
        return self.is_bound and self.scarcest == IOPS

    @property
    def full(self) -> Estimate | None:
        """Months until the first resource is full, whichever that is; None without growth."""
        every = self.months.values()
        if not every:
            return None
        return Estimate(min(m.value for m in every), min(m.low for m in every), min(m.high for m in every))

    def to_json(self) -> dict[str, Any]:
        return {
            "pool": self.pool,
            "fits": self.fits,
            "unknown": self.is_unknown,
            "certain": self.is_certain,
            "scarcest": self.scarcest,
            "is_bound": self.is_bound,
            "headroom": {name: found.to_json() for name, found in self.headroom.items()},
            "months_until_full": {name: found.to_json() for name, found in self.months.items()},
            "classes": [found.to_json() for found in self.classes],
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class PlanInput:
    """What is asked.

    Attributes:
        classes: of the fleet, at least one, with different names.
        limit: of the latency of every class.
        confidence: level of each interval by itself.
        growth: of the number of virtual machines per month, > 0, such as 0.05; None without growth.
        space: bytes of a pool, by name.
    """

    classes: tuple[WorkloadClass, ...]
    limit: Limit
    confidence: float
    growth: float | None = None
    space: Mapping[str, int] | None = None
