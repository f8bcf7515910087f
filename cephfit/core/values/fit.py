"""The answer for a workload in words: the best configuration, and whether what it serves is enough. Pure."""

import math
from dataclasses import dataclass
from enum import StrEnum

from cephfit.core.units import format_percent
from cephfit.core.values.prediction import Prediction, PredictionSet, listed
from cephfit.core.values.prediction import Verdict as PredictionVerdict
from cephfit.core.values.supply import (
    Estimate,
    Supply,
    SupplySet,
    WorkloadDemand,
    ends_text,
    rate_text,
    times_text,
)


def answer_lines(predictions: PredictionSet) -> list[str]:
    """Return the best and the worst configuration, those that are like the default, and the noise floor."""
    default = next(p.configuration for p in predictions.predictions if p.verdict is PredictionVerdict.DEFAULT)
    alike = [
        p.configuration
        for p in predictions.predictions
        if p.verdict is PredictionVerdict.INDISTINGUISHABLE
        and p.configuration not in (predictions.best, predictions.worst)
    ]
    best = f"Best: {_against(predictions, predictions.best, 'better')}"
    worst = f"Worst: {_against(predictions, predictions.worst, 'worse')}"
    lines = [
        best
        if predictions.best != default
        else f"Best: {default}, the default: nothing is distinguishably better",
        *_as_good(predictions),
        worst
        if predictions.worst != default
        else f"Worst: {default}, the default: nothing is distinguishably worse",
        f"Not distinguishable from {default}: {listed(alike) or 'none'}",
    ]
    if math.isfinite(predictions.noise_floor):
        lines.append(f"Noise floor: this sweep cannot show differences below {predictions.noise_floor:.1f} points")
    return lines


def _as_good(predictions: PredictionSet) -> list[str]:
    if not predictions.as_good:
        return []
    return [f"Not distinguishable from {predictions.best}, the best: {listed(predictions.as_good)}"]


def _against(predictions: PredictionSet, name: str, direction: str) -> str:
    p = predictions.of(name)
    may = "" if p.verdict is not PredictionVerdict.INDISTINGUISHABLE else f": {uncertain(direction)}"
    return f"{name}, {_difference(p)}{may}"


def uncertain(direction: str) -> str:
    """Say why an extreme that the samples show has no verdict; ``direction`` is ``better`` or ``worse``."""
    return (
        f"likely {direction}, not certain: the measurements show a difference, the error of the model may hide it"
    )


def _difference(p: Prediction) -> str:
    # An end is open where the load's limit was reached, or nothing was repeated.
    if not math.isfinite(p.high) and p.low > 0:
        return f"at least {p.low - 100:+,.1f} % against the default"
    if p.low <= 0 and math.isfinite(p.high):
        return f"{p.high - 100:+,.1f} % against the default, or worse"
    return f"{p.relative - 100:+,.1f} % against the default ({p.low - 100:+,.1f} to {p.high - 100:+,.1f})"


_WAITS = 0.5
"""From this share of time with I/O outstanding on, a workload is said to wait for its storage."""
_HARDLY_WAITS = 0.05
"""Below this share, storage is not what it waits for."""


class Verdict(StrEnum):
    """Whether a workload fits a configuration; the best first."""

    FITS = "fits"
    MAYBE_PEAK = "fits on average, may not in its busiest second"
    PEAK = "fits on average, not in its busiest second"
    DEEPER = "fits only with more I/O outstanding than it had"
    MAYBE = "may fit"
    NOT = "does not fit"
    UNKNOWN = "cannot tell"


def verdict_of(demand: WorkloadDemand | None, supply: Supply | None) -> Verdict:
    """Compare the mean and the busiest second with the interval of what is served.

    A rate without an interval, because nothing was measured twice, is compared as it is.
    """
    if demand is None or supply is None:
        return Verdict.UNKNOWN
    most = supply.most if supply.most.is_known else Estimate(*[supply.most.value] * 3)
    mean, peak = demand.accesses_per_s, demand.peak
    if most.low >= mean and _is_slow_at_own_depth(demand.of_machines(1), supply):
        return Verdict.DEEPER
    if most.low >= peak:
        return Verdict.FITS
    if most.high < mean:
        return Verdict.NOT
    if most.low >= mean:
        return Verdict.PEAK if most.high < peak else Verdict.MAYBE_PEAK
    return Verdict.MAYBE


def _is_slow_at_own_depth(demand: WorkloadDemand, supply: Supply) -> bool:
    """Return whether less than the mean is served with as many outstanding as the workload had.

    Several clients have more outstanding together than the workload alone. A profile without depths does not tell
    how many those were: it is compared with the best depth alone.
    """
    if demand.outstanding is None:
        return False
    own = supply.own_depth
    high = own.high if own.is_known else own.value
    return supply.n_clients == 1 and high < demand.accesses_per_s


_ORDER = tuple(Verdict)


@dataclass(frozen=True, slots=True)
class Fit:
    """The answer.

    Attributes:
        verdict: for ``configuration``.
        configuration: the default if the workload fits it, else the configuration that serves most; empty if
            nothing is known.
        text: one sentence without a full stop.
    """

    verdict: Verdict
    configuration: str
    text: str

    def to_json(self) -> dict[str, str]:
        return {"verdict": self.verdict.value, "configuration": self.configuration, "text": self.text}


def fit_of(found: SupplySet, *, only: str = "") -> Fit:
    """Return the first line of an answer: whether the workload fits the default, or any other configuration.

    Args:
        found: demand and supplies.
        only: answer for this configuration alone; empty: the default, else the one that serves most.
    """
    demand = found.demand
    if demand is None:
        why = "the profile has no duration, so the rate that the workload needs is unknown"
        return Fit(Verdict.UNKNOWN, "", f"cannot tell whether it fits: {why}")
    candidates = [s for s in found.supplies if not only or s.configuration == only]
    if not candidates:
        why = "; ".join(found.notes) or "no rate of its mix was measured"
        text = (
            f"cannot tell whether it fits (it needs {demand.rate_text(demand.accesses_per_s)}): {why.rstrip('.')}"
        )
        return Fit(Verdict.UNKNOWN, "", text)
    best = max(candidates, key=lambda s: s.most.value)
    default = next((s for s in candidates if s.configuration == (only or found.default)), best)
    chosen, verdict = default, verdict_of(demand, default)
    if verdict is not Verdict.FITS and _ORDER.index(verdict_of(demand, best)) < _ORDER.index(verdict):
        chosen, verdict = best, verdict_of(demand, best)
    elif verdict is Verdict.NOT:
        chosen = best
    machines = f"{demand.machines:,} machines: " if demand.machines > 1 else ""
    best_of = "" if only else "the best "
    text = f"{machines}{_compared(demand, chosen, verdict, default, best_of)}; {_of_waiting(demand)}"
    return Fit(verdict, chosen.configuration, text)


def too_small(found: SupplySet) -> frozenset[str]:
    """Return the configurations that certainly serve less than the mean of all machines.

    One machine that waits for its storage most of the time adapts to it: nothing is too small for it.
    """
    demand = found.demand
    if demand is None or (demand.machines == 1 and (demand.busy_share or 0) > _WAITS):
        return frozenset()
    return frozenset(s.configuration for s in found.supplies if verdict_of(demand, s) is Verdict.NOT)


_TOO_SLOW = {
    Verdict.MAYBE_PEAK: "may be too slow in the busiest second",
    Verdict.PEAK: "is too slow in the busiest second",
    Verdict.DEEPER: "would need more I/O outstanding",
    Verdict.MAYBE: "may be too slow",
    Verdict.NOT: "is too slow",
}


def _compared(demand: WorkloadDemand, supply: Supply, verdict: Verdict, default: Supply, best_of: str) -> str:
    name, mean = supply.configuration, demand.rate_text(demand.accesses_per_s)
    if verdict is Verdict.NOT:
        its = f"{best_of}({name})" if best_of else name
        return f"does not fit: needs {mean}, {its} serves {_served(supply, ' (', ')')}"
    peak = ""
    if demand.busiest_second is not None:
        # A clock with steps of a second makes the trace, and so the mean, uncertain by one step.
        peak = f", busiest second {demand.rate_text(demand.peak)}"
    asks = f"mean {mean}{peak}; {name} serves {_served(supply, ', ')}"
    if verdict is Verdict.DEEPER:
        had = f"as many outstanding as it had ({demand.outstanding:.2g})"
        asks += f"; {rate_text(supply.own_depth.value)}/s with only {had}"
    other = ""
    if default is not supply:
        other = f", and {default.configuration}, the default, {_of_default(demand, default)}"
    if verdict is Verdict.FITS:
        return f"fits {name} {times_text(supply.headroom(demand).value)} times over{other} ({asks})"
    verb, _, rest = verdict.value.partition("fit" if verdict is Verdict.MAYBE else "fits")
    verb += "fit" if verdict is Verdict.MAYBE else "fits"
    return f"{verb} {name}{rest}{other}: {asks}"


def _of_default(demand: WorkloadDemand, default: Supply) -> str:
    verdict = verdict_of(demand, default)
    if verdict is Verdict.NOT and demand.machines == 1 and (demand.busy_share or 0) > _WAITS:
        # The storage that was traced served it. If that was the default, its figure is wrong.
        return (
            f"serves {rate_text(default.most.value)}/s by its cells, less than the traced storage did: if that "
            f"was {default.configuration}, figures per second are too low"
        )
    return _TOO_SLOW[verdict]


def _served(supply: Supply, opening: str, closing: str = "") -> str:
    ends = ends_text(supply.most) or "measured once, so without an interval"
    together = f" to {supply.n_clients} clients together" if supply.n_clients > 1 else ""
    bound = ""
    if supply.is_bound and math.isfinite(supply.most.high):
        bound = ", the upper end with more I/O in flight than was measured"
    elif supply.is_bound:
        bound = " and may serve more than was measured"
    return f"{rate_text(supply.most.value)}/s{together}{opening}{ends}{bound}{closing}"


def _of_waiting(demand: WorkloadDemand) -> str:
    share = demand.busy_share
    if share is None:
        return "the trace does not show whether it waits for storage: on faster storage it may ask for more"
    outstanding = f"I/O outstanding {format_percent(share)} of the time"
    if share > _WAITS:
        traced = "its rate is what the traced storage served, and it would use more"
        return f"it waits for storage ({outstanding}): {traced}"
    limit = f"no configuration can shorten its run time by more than {format_percent(share)}"
    if share < _HARDLY_WAITS:
        return f"storage is not what this workload waits for ({outstanding}): {limit}"
    return f"{outstanding}: {limit}"
