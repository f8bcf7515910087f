"""What a workload asks of the storage per second, and what a configuration serves: demand, supply, headroom."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from cephfit.core.tabular import Table, Tabular
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
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

    @property
    def is_known(self) -> bool:
        """Whether anything bounds it: False where nothing was measured twice."""
        return self.low > 0 or math.isfinite(self.high)

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
        nbytes_per_s: mean over the trace; None if unknown.
        busiest_second: accesses in the busiest second; None if unknown or if the trace is shorter.
        busiest_minute: mean accesses per second of the busiest minute; None if unknown or if the trace is shorter.
        outstanding: mean number of outstanding accesses while any was outstanding; None if unknown.
        busy_share: share of the time with I/O outstanding on any disk, 0 to 1; None if unknown.
        machines: that run the workload at the same time. Accesses and bytes per second are those of all of them,
            as if all had their busiest second and minute at once; ``outstanding`` and ``busy_share`` are of one.
    """

    seconds: float
    accesses_per_s: float
    nbytes_per_s: float | None
    busiest_second: float | None = None
    busiest_minute: float | None = None
    outstanding: float | None = None
    busy_share: float | None = None
    machines: int = 1

    @classmethod
    def of(cls, profile: Profile) -> "WorkloadDemand | None":
        """Return the demand of a profile; None if its source has no length of time.

        A profile without a duration, but with busy and idle time, lasted as long as both.
        """
        nbytes = _entries(profile.description.get("nbytes"))
        busiest = _entries(profile.description.get("busiest"))
        busy, idle = busy_seconds(profile), profile.idle_seconds
        traced = None if busy is None or idle is None else busy + idle
        seconds = _positive(profile.description.get("duration_seconds")) or traced
        if seconds is None or not profile.n_accesses:
            return None
        of_ops = [_positive(n) or 0.0 for n in nbytes.values()]
        # The storage serves what demands count, which may be fewer and larger accesses than were queued.
        n_served = math.fsum(d.accesses for d in profile.demands) if profile.demands else profile.n_accesses
        second, minute = (_positive(busiest.get(name)) for name in ("second", "minute"))
        merged = n_served / profile.n_accesses
        return cls(
            seconds=seconds,
            accesses_per_s=n_served / seconds,
            nbytes_per_s=math.fsum(of_ops) / seconds if any(of_ops) else None,
            busiest_second=None if second is None else merged * second,
            busiest_minute=None if minute is None else merged * minute,
            outstanding=mean_outstanding(profile),
            busy_share=None if busy is None or idle is None else _busy_share(profile, busy, idle, seconds),
        )

    def of_machines(self, n: int) -> "WorkloadDemand":
        """Return the demand of ``n`` machines, each with the workload."""
        factor = n / self.machines
        rates = (self.nbytes_per_s, self.busiest_second, self.busiest_minute)
        nbytes, second, minute = (None if rate is None else rate * factor for rate in rates)
        return replace(
            self,
            accesses_per_s=self.accesses_per_s * factor,
            nbytes_per_s=nbytes,
            busiest_second=second,
            busiest_minute=minute,
            machines=n,
        )

    def rate_text(self, accesses_per_s: float) -> str:
        """Format a rate of all machines: ``139/s``, ``8 x 139/s``."""
        times = f"{self.machines:,} x " if self.machines > 1 else ""
        return f"{times}{rate_text(accesses_per_s / self.machines)}/s"

    @property
    def peak(self) -> float:
        """Accesses per second in the busiest second; the mean where that is unknown."""
        return max(self.accesses_per_s, self.busiest_second or 0.0)

    def to_json(self) -> dict[str, float | int | None]:
        return asdict(self)


def mean_outstanding(profile: Profile) -> float | None:
    """Return the mean number of outstanding accesses while any was outstanding; None if unknown.

    A depth is a mean over the time that is divided among its accesses, so waiting times weigh it.
    """
    known = [(d.waiting_seconds, d.depth) for d in profile.demands or ()]
    pairs = [(waiting, depth) for waiting, depth in known if waiting is not None and depth is not None]
    waited = math.fsum(waiting for waiting, _ in pairs)
    if len(pairs) < len(known) or not waited > 0:
        return None
    return math.fsum(waiting * depth for waiting, depth in pairs) / waited


def busy_seconds(profile: Profile) -> float | None:
    """Return the time with I/O outstanding, flushes included; None if unknown."""
    waiting = [d.waiting_seconds for d in profile.demands or ()]
    waited = math.fsum(w for w in waiting if w is not None)
    if None in waiting or not waited > 0:
        return None
    flushes = 0.0 if profile.commits is None else profile.commits.flush_waiting_seconds or 0.0
    return waited + flushes


def _busy_share(profile: Profile, busy: float, idle: float, seconds: float) -> float:
    """Return the share of the time with I/O outstanding on any disk.

    The busy times of several disks overlap, and so add up to more than their time together.

    Args:
        profile: of the workload.
        busy: seconds with I/O outstanding, of all disks added up.
        idle: seconds without any.
        seconds: length of the trace.
    """
    n_disks = _positive(profile.description.get("n_disks")) or 1
    return min(max(1 - idle / seconds, 0.0), 1.0) if n_disks > 1 else busy / (busy + idle)


def _positive(value: object) -> float | None:
    """Descriptions may be written by hand: return a positive number, else None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        return None
    return float(value)


def _entries(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


@dataclass(frozen=True, slots=True)
class Supply:
    """What a configuration serves at a workload's mix of accesses, all clients together.

    Attributes:
        configuration: name.
        own_depth: accesses per second with as many outstanding as the workload has, per client.
        most: accesses per second at the depth, among those measured, at which it serves most.
        most_depth: that depth, per client; None if the depth of the measurement is unknown.
        is_bound: the workload has more outstanding than all measured clients together, or a load's own limit was
            reached: it may serve more. With k times as many outstanding, the upper ends are k times those that
            were measured; at a load's own limit they are infinite.
        n_clients: clients that were measured together.
    """

    configuration: str
    own_depth: Estimate
    most: Estimate
    most_depth: int | None
    is_bound: bool = False
    n_clients: int = 1

    def headroom(self, demand: WorkloadDemand) -> Estimate:
        """Return how many times the demand fits: the most that is served over the mean of the workload."""
        return self.most.scaled(1 / demand.accesses_per_s)

    def to_json(self, demand: WorkloadDemand | None = None) -> dict[str, Any]:
        return {
            "configuration": self.configuration,
            "own_depth": self.own_depth.to_json(),
            "most": self.most.to_json(),
            "most_depth": self.most_depth,
            "is_bound": self.is_bound,
            "clients": self.n_clients,
            "headroom": None if demand is None else self.headroom(demand).to_json(),
        }


@dataclass(frozen=True, slots=True)
class SupplySet(Tabular):
    """What each configuration serves at the mix of a workload, next to what the workload asks for.

    Attributes:
        profile: name of the workload.
        baselines: source of the rates.
        demand: of the workload; None if its profile has no length of time.
        supplies: by configuration, the default first; empty if the measured loads give no rates of the mix.
        confidence: level of each interval by itself.
        default: name of the default configuration.
        notes: caveats for the reader.
    """

    profile: str
    baselines: str
    demand: WorkloadDemand | None
    supplies: tuple[Supply, ...]
    confidence: float
    default: str = DEFAULT_CONFIGURATION
    notes: tuple[str, ...] = ()

    def for_machines(self, n: int) -> "SupplySet":
        """Return the same supplies next to the demand of ``n`` machines, each with the workload."""
        return self if self.demand is None else replace(self, demand=self.demand.of_machines(n))

    def of(self, configuration: str) -> Supply | None:
        """Return the supply of a configuration; None if its rates are not known."""
        return next((s for s in self.supplies if s.configuration == configuration), None)

    def headroom_of(self, configuration: str) -> Estimate | None:
        """Return how many times the workload fits on a configuration; None if demand or supply are not known."""
        found = self.of(configuration)
        return None if found is None or self.demand is None else found.headroom(self.demand)

    def fit(self) -> str:
        """Return the answer to "does it fit?" in words."""
        from cephfit.core.values.fit import fit_of

        return fit_of(self).text

    def texts_of(self, configuration: str) -> tuple[str, str]:
        """Return what a configuration serves and its headroom as text, with intervals; empty where unknown."""
        found, headroom = self.of(configuration), self.headroom_of(configuration)
        if found is None:
            return "", ""
        ends = ends_text(found.most)
        serves = f"{rate_text(found.most.value)} ({ends})" if ends else rate_text(found.most.value)
        return serves, "" if headroom is None else f"{times_text(headroom.value)} x"

    def to_json(self) -> dict[str, Any]:
        """Return the keys ``demand`` and ``supply`` of `cephfit map --json`."""
        return {
            "demand": None if self.demand is None else self.demand.to_json(),
            "supply": [supply.to_json(self.demand) for supply in self.supplies],
        }

    def _table(self) -> Table:
        needs = "unknown" if self.demand is None else self.demand.rate_text(self.demand.accesses_per_s)
        columns = ("own_depth", "own_depth_low", "own_depth_high", "most", "most_low", "most_high")
        return Table(
            f"Workload {self.profile} needs {needs}; accesses of its mix per second that are served",
            ("configuration", *columns, "most_depth", "headroom", "is_bound"),
            tuple(
                (
                    s.configuration,
                    *(s.own_depth.value, s.own_depth.low, s.own_depth.high),
                    *(s.most.value, s.most.low, s.most.high, s.most_depth),
                    None if self.demand is None else s.headroom(self.demand).value,
                    s.is_bound,
                )
                for s in self.supplies
            ),
            self.notes,
            ("configuration", "own_depth", "most", "most_low", "most_high", "most_depth", "headroom"),
        )


def rate_text(value: float) -> str:
    """Format accesses per second: ``51,279``, ``380``, ``15.8``, ``1.25``."""
    if value >= 99.95:
        return f"{value:,.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 0.0995 else f"{value:.2g}"


def times_text(value: float) -> str:
    """Format a headroom: ``24``, ``3.2``, ``0.14``, ``0.0028``; never rounded to 1 from either side."""
    if value >= 9.95:
        return f"{value:,.0f}"
    if value < 0.0995:
        return f"{value:.2g}"
    for digits in (1, 2, 3) if value >= 0.995 else (2, 3, 4):
        text = f"{value:.{digits}f}"
        if float(text) != 1:
            return text
    return "1"


def ends_text(estimate: Estimate) -> str:
    """Format an interval of a rate: ``350 to 410``, ``at least 350``; empty if nothing is known."""
    if not estimate.is_known:
        return ""
    if not math.isfinite(estimate.high):
        return f"at least {rate_text(estimate.low)}"
    return f"{rate_text(estimate.low)} to {rate_text(estimate.high)}"
