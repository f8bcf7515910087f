"""What several targets serve of a workload, held against the first of them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cephfit.baseline import Baselines
from cephfit.profile import Profile
from cephfit.results import statistics
from cephfit.results.scaling import Level
from cephfit.results.side_by_side import There
from cephfit.results.statistics import CONFIDENCE
from cephfit.results.workload_rate import WorkloadRate, why_no_rate, workload_rates

Rates = Mapping[str, WorkloadRate]


@dataclass(frozen=True, slots=True)
class Served:
    """A workload under one configuration on every target, in the targets' order.

    Attributes:
        workload: the profile's name.
        configuration: name.
        there: with rates in accesses of the mix per second, all clients together.
        rates: what they are made of; None where the configuration was not measured in all cells of the workload.
    """

    workload: str
    configuration: str
    there: tuple[There, ...]
    rates: tuple[WorkloadRate | None, ...]


def served_of(
    profile: Profile, targets: Sequence[Baselines], *, confidence: float = CONFIDENCE
) -> tuple[Served, ...]:
    """The workload under every configuration that any target has been measured or tried in.

    Args:
        profile: of the workload; its mix adds up as time (``workload_rates``).
        targets: of one load each; the others are held against the first.
        confidence: of each interval by itself.
    """
    of_targets = [workload_rates(profile, baselines, confidence=confidence) for baselines in targets]
    names = dict.fromkeys(name for baselines in targets for name in baselines.configurations)
    names |= dict.fromkeys(name for baselines in targets for name, _ in baselines.missing)
    found = []
    for name in names:
        rates = tuple(of_target.get(name) for of_target in of_targets)
        there = tuple(
            _there(rate, rates[0] if number else None, confidence)
            if rate
            else There(None, 0, None, _lacking(profile, baselines, name))
            for number, (rate, baselines) in enumerate(zip(rates, targets, strict=True))
        )
        found.append(Served(profile.name, name, there, rates))
    return tuple(found)


def _there(rate: WorkloadRate, first: WorkloadRate | None, confidence: float) -> There:
    if first is None:
        return There(rate.accesses_per_s, rate.n_rounds, None)
    interval = None
    if rate.n_rounds and first.n_rounds:
        interval = statistics.welch_ratio_interval(
            rate.as_rounds, first.as_rounds, rate.spread, first.spread, confidence=confidence
        )
    ratio = rate.accesses_per_s.mean / first.accesses_per_s.mean
    return There(rate.accesses_per_s, rate.n_rounds, Level(ratio, interval))


def _lacking(profile: Profile, baselines: Baselines, name: str) -> str:
    """Why there is no rate."""
    lacking = [c for c, n in profile.cell_counts().items() if n > 0 and (name, c) not in baselines.cells]
    if not lacking:
        cells = [c for c, n in profile.cell_counts().items() if n > 0]
        return why_no_rate(baselines.measured_load, name, cells) or "the workload has no accesses"
    more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
    return f"lacks {lacking[0]}{more}"
