"""The rate of a workload over time, with its phases and bursts. Pure.

A profile contains it if its trace was described in full (``behaviour`` in docs/traces.md). A part that is missing
or cannot be read is omitted, because profiles may be hand-written.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cephfit.core.units import MIB, format_seconds
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
from cephfit.core.values.profile import Profile
from cephfit.core.values.supply import SupplySet, WorkloadDemand, rate_text
from cephfit.results.report import formatting
from cephfit.results.report.formatting import Axis, linear_axis, zero_axis

BURST_FACTOR = 2.0
"""A burst has at least this many times the mean rate of its phase."""
_CHANCE = 5.0
"""A burst exceeds the mean count by this many standard deviations of a Poisson count plus this many accesses."""
_SHORTEST_SECONDS = 1.0
"""Rates are compared with what is served over at least this time: shorter peaks wait in queues."""
_LINE_FACTOR = 2.5
"""A rate that is served is drawn up to this many times the highest bar: more would compress the bars."""
_BURSTS_LISTED = 12
_TIME_UNITS = ((4 * 3600.0, 3600.0, "h"), (600.0, 60.0, "min"), (0.0, 1.0, "s"))
"""Duration from which on a unit is used, its seconds, and its name."""


@dataclass(frozen=True, slots=True)
class TimeAxis:
    """Time from the beginning of the trace, in the unit ``unit`` of ``unit_seconds``."""

    axis: Axis
    unit: str
    unit_seconds: float

    @classmethod
    def of(cls, start: float, end: float) -> "TimeAxis":
        """Return the axis from ``start`` to ``end``, in seconds."""
        size, unit = next((size, unit) for least, size, unit in _TIME_UNITS if end - start >= least)
        return cls(linear_axis(start / size, end / size), unit, size)

    def at(self, seconds: float) -> float:
        """Return the position of a time in per cent of the width."""
        return self.axis.at(seconds / self.unit_seconds)


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of time without a change of behaviour; random shares are None where there are no accesses."""

    start_seconds: float
    seconds: float
    share_of_accesses: float
    accesses_per_s: float
    mib_per_s: float
    read_share: float
    random_reads: float | None
    random_writes: float | None


@dataclass(frozen=True, slots=True)
class Burst:
    """A stretch within a phase with ``BURST_FACTOR`` times its mean rate.

    Attributes:
        accesses_per_s: in its busiest bin.
        times: that over the mean of the phase.
    """

    start_seconds: float
    seconds: float
    accesses_per_s: float
    times: float


@dataclass(frozen=True, slots=True)
class RateFigure:
    """Accesses per second over time.

    Attributes:
        time: of the first bin's start to the last bin's end.
        rate: accesses per second.
        start_seconds, bin_seconds: of the bins.
        reads, writes: accesses per second in each bin.
        mean: accesses per second.
        served: (configuration, accesses per second at most) of the default and the best, as far as known.
        meaning: one sentence on what the figure means for the choice.
        mix: one sentence on what the phases mean for the choice; empty if there is one phase.
    """

    time: TimeAxis
    rate: Axis
    start_seconds: float
    bin_seconds: float
    reads: tuple[float, ...]
    writes: tuple[float, ...]
    mean: float
    phases: tuple[Phase, ...]
    bursts: tuple[Burst, ...]
    served: tuple[tuple[str, float], ...]
    meaning: str
    mix: str

    @property
    def totals(self) -> tuple[float, ...]:
        return tuple(r + w for r, w in zip(self.reads, self.writes, strict=True))

    @property
    def unit(self) -> str:
        return f"accesses per second, means of {span_text(self.bin_seconds)}"

    @property
    def drawn(self) -> tuple[tuple[str, float], ...]:
        """Those of ``served`` that are on the scale."""
        return tuple((name, rate) for name, rate in self.served if not self.rate.cuts(rate))

    @property
    def largest_bursts(self) -> tuple[Burst, ...]:
        """The bursts of a table: the ``_BURSTS_LISTED`` with the most times the mean, in order of time."""
        largest = sorted(self.bursts, key=lambda burst: -burst.times)[:_BURSTS_LISTED]
        return tuple(sorted(largest, key=lambda burst: burst.start_seconds))

    @property
    def text(self) -> str:
        """What the figure shows, for readers who do not see it."""
        end = span_text(len(self.reads) * self.bin_seconds)
        counts = f"{formatting.count(len(self.phases), 'phase')}, {formatting.count(len(self.bursts), 'burst')}"
        largest = max(self.bursts, key=lambda burst: burst.times, default=None)
        if largest is not None:
            when = span_text(largest.start_seconds)
            counts += f", the largest at {when} with {largest.times:.1f} times the mean of its phase"
        return (
            f"Rate over {end}: mean {formatting.number(self.mean)}, at most "
            f"{formatting.number(max(self.totals))} accesses per second; {counts}. {self.meaning}"
        )

    def area(self, values: Sequence[float]) -> str:
        """Return the area below values of the bins as an SVG path in a square of 100 x 100."""
        ends = (self.time.at(self.start_seconds + i * self.bin_seconds) for i in range(len(values) + 1))
        parts = ["M0 100"]
        for (left, right), value in zip(pairwise(ends), values, strict=True):
            parts.append(f"H{left:.6g}V{100 - self.rate.at(value):.6g}H{right:.6g}")
        return "".join([*parts, "V100Z"])


def rate_figure(profile: Profile, supply: SupplySet | None = None, best: str = "") -> RateFigure | None:
    """Return the rate over time; None if the profile does not contain it.

    Args:
        supply: what each configuration serves of the workload's mix.
        best: name of the best configuration; empty if there is none.
    """
    try:
        return _rate_figure(profile, supply, best)
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError):
        return None


def omits_behaviour(profile: Profile) -> bool:
    """Return whether the profile is from a trace with times that was not described in full."""
    return "iops" in profile.description and not profile.description.get("behaviour")


def _rate_figure(profile: Profile, supply: SupplySet | None, best: str) -> RateFigure | None:
    behaviour = behaviour_of(profile)
    over = behaviour["over_time"]
    width, start = count_of(over["bin_seconds"]), float(over["start_seconds"])
    reads, writes = ([count_of(n) for n in over[key]] for key in ("reads", "writes"))
    counts = [r + w for r, w in zip(reads, writes, strict=True)]
    phases = tuple(_phase(row) for row in behaviour["phases"])
    if not sum(counts) > 0 or not width > 0 or not phases:
        return None
    mean = sum(counts) / sum(phase.seconds for phase in phases)
    demand, served = WorkloadDemand.of(profile), _served(supply, best)
    busiest_second = demand.busiest_second if demand else None
    peak = max(counts) / width
    lines = [rate for _, rate in served if rate <= _LINE_FACTOR * peak]
    return RateFigure(
        time=TimeAxis.of(start, start + len(counts) * width),
        rate=zero_axis([peak, *lines]),
        start_seconds=start,
        bin_seconds=width,
        reads=tuple(n / width for n in reads),
        writes=tuple(n / width for n in writes),
        mean=mean,
        phases=phases,
        bursts=_bursts(counts, start, width, phases),
        served=served,
        meaning=_meaning(counts, width, mean, busiest_second, served),
        mix=_mix(phases),
    )


def _phase(row: Mapping[str, Any]) -> Phase:
    n_reads, n_writes = (sum(map(count_of, row["accesses"][op].values())) for op in ("read", "write"))
    random = [count_of(row["random"][op]) if row["random_by_bin"][op] else None for op in ("read", "write")]
    return Phase(
        start_seconds=float(row["start_seconds"]),
        seconds=count_of(row["seconds"]),
        share_of_accesses=count_of(row["share_of_accesses"]),
        accesses_per_s=count_of(row["iops"]),
        mib_per_s=count_of(row["bytes_per_second"]) / MIB,
        read_share=n_reads / (n_reads + n_writes) if n_reads + n_writes else 0.0,
        random_reads=random[0],
        random_writes=random[1],
    )


def _bursts(counts: Sequence[float], start: float, width: float, phases: Sequence[Phase]) -> tuple[Burst, ...]:
    """Return the bursts in order; consecutive bins are one burst."""
    found: list[Burst] = []
    last, phase = -2, 0
    for i, count in enumerate(counts):
        begin = start + i * width
        while phase + 1 < len(phases) and begin + width / 2 >= phases[phase + 1].start_seconds:
            phase += 1
        expected = phases[phase].accesses_per_s * width
        least = max(BURST_FACTOR * expected, expected + _CHANCE * (1 + math.sqrt(expected)))
        if not expected > 0 or count < least:
            continue
        burst = Burst(begin, width, count / width, count / expected)
        if last == i - 1:
            before = found.pop()
            larger = max(before, burst, key=lambda b: b.accesses_per_s)
            burst = Burst(before.start_seconds, before.seconds + width, larger.accesses_per_s, larger.times)
        found.append(burst)
        last = i
    return tuple(found)


def _served(supply: SupplySet | None, best: str) -> tuple[tuple[str, float], ...]:
    names = dict.fromkeys([supply.default if supply else DEFAULT_CONFIGURATION, best])
    found = [supply.of(name) for name in names if name] if supply else []
    return tuple((one.configuration, one.most.value) for one in found if one is not None)


def _meaning(
    counts: Sequence[float],
    width: float,
    mean: float,
    busiest_second: float | None,
    served: Sequence[tuple[str, float]],
) -> str:
    n_joined = min(max(math.ceil(_SHORTEST_SECONDS / width - 1e-9), 1), len(counts))
    window = n_joined * width
    rates = [sum(counts[i : i + n_joined]) / window for i in range(0, len(counts), n_joined)]
    peak, stretch = max(rates), f"the busiest stretch of {span_text(window)}"
    if not served:
        if peak >= BURST_FACTOR * mean:
            return (
                f"{stretch[0].upper()}{stretch[1:]} asks for {peak / mean:.1f} times the mean rate: storage that "
                f"serves only the mean ({rate_text(mean)}/s) falls behind then."
            )
        return f"The rate is steady: {stretch} has {peak / mean:.1f} times the mean, which describes the workload."

    def enough(rate: float) -> str:
        if rate >= peak:
            text = f"more than {stretch} asks for ({rate_text(peak)}/s)"
            short = busiest_second is not None and busiest_second > rate
            return f"{text}, less than the busiest second ({rate_text(busiest_second or 0)}/s)" if short else text
        over = sum(1 for one in rates if one > rate) / len(rates)
        return f"less than is asked for in {formatting.per_cent(over)} of the time"

    (default, its_rate), *others = served
    texts = [f"{name} serves up to {rate_text(rate)}/s of this mix, {enough(rate)}" for name, rate in others]
    texts.append(f"{default}, the default, serves up to {rate_text(its_rate)}/s, {enough(its_rate)}")
    return f"{'; '.join(texts)}."


def _mix(phases: Sequence[Phase]) -> str:
    if len(phases) < 2:
        return ""
    number, largest = max(enumerate(phases, 1), key=lambda numbered: numbered[1].share_of_accesses)
    share = formatting.per_cent(largest.share_of_accesses)
    describes = (
        f"phase {number} has {share} of the accesses, so the prediction mostly describes that phase"
        if largest.share_of_accesses > 0.5
        else f"no phase has more than {share} of the accesses, so the prediction describes a mixture of phases"
    )
    return f"{describes[0].upper()}{describes[1:]}; `cephfit map --sensitivity` predicts each phase by itself."


def span_text(seconds: float) -> str:
    """Format a duration: ``0.02 s``, ``2 s``, ``3 min 20 s``."""
    return format_seconds(seconds) if seconds >= 10 else f"{seconds:.3g} s"


def behaviour_of(profile: Profile) -> Mapping[str, Any]:
    found = profile.description["behaviour"]
    if not isinstance(found, Mapping):
        raise TypeError("not an object")
    return found


def count_of(value: Any) -> float:
    """Return a number of at least 0.

    Raises:
        ValueError: it is not.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is not a count or a duration")
    return float(value)
