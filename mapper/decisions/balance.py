"""One configuration for several workloads: the best by weighted performance, and the best in the worst case. Pure.

The weighted performance is the geometric mean of the workloads' performances relative to the default, each to the
power of its weight. It is the only mean of ratios whose order of configurations does not depend on the reference
(Fleming and Wallace 1986, "How not to lie with statistics", Communications of the ACM 29:3, 218). An arithmetic
mean would favour whatever is fast for the workload with the largest ratios.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.protocols import Predictor
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.prediction import PredictionSet
from cephfit.core.values.profile import Profile
from cephfit.core.values.supply import Estimate
from cephfit.mapper.decisions.contrasts import against_reference


@dataclass(frozen=True, slots=True)
class Weighted:
    """A workload and its weight, > 0."""

    profile: Profile
    weight: float


@dataclass(frozen=True, slots=True)
class Share:
    """What one workload has under one configuration.

    Attributes:
        workload: name.
        relative: performance, default = 100.
        of_best: performance, the workload's own best configuration = 100.
        own_best: that configuration.
        as_good: others that are not certainly slower than ``own_best``.
    """

    workload: str
    relative: Estimate
    of_best: Estimate
    own_best: str
    as_good: tuple[str, ...] = ()

    @property
    def is_given_up(self) -> bool:
        """Whether the workload is certainly slower than on its own best configuration."""
        return self.of_best.high < 100

    def to_json(self) -> dict[str, Any]:
        return {
            "workload": self.workload,
            "relative": self.relative.to_json(),
            "of_best": self.of_best.to_json(),
            "own_best": self.own_best,
            "as_good_as_own_best": list(self.as_good),
        }


@dataclass(frozen=True, slots=True)
class Balanced:
    """One configuration for all workloads.

    Attributes:
        configuration: name.
        weighted: geometric mean of the performances by weight, default = 100.
        worst: smallest ``of_best`` of any workload.
        shares: of each workload, in the order of the workloads.
    """

    configuration: str
    weighted: Estimate
    worst: Estimate
    shares: tuple[Share, ...]

    @property
    def worst_workload(self) -> str:
        return min(self.shares, key=lambda share: share.of_best.value).workload


@dataclass(frozen=True, slots=True)
class Balance:
    """The configurations for several workloads together.

    Attributes:
        workloads: name to weight; the sum is 1.
        configurations: best by ``weighted`` first.
        best: by ``weighted``.
        as_good: others whose weighted performance is not certainly below that of ``best``, neither in a direct
            comparison nor by their intervals.
        best_worst: by ``worst``.
        as_good_worst: others whose worst case is not certainly below that of ``best_worst``.
        notes: caveats.
    """

    workloads: Mapping[str, float]
    configurations: tuple[Balanced, ...]
    best: str
    as_good: tuple[str, ...]
    best_worst: str
    as_good_worst: tuple[str, ...]
    notes: tuple[str, ...]

    def of(self, configuration: str) -> Balanced:
        return next(b for b in self.configurations if b.configuration == configuration)

    def to_json(self) -> dict[str, Any]:
        return {
            "workloads": dict(self.workloads),
            "best": self.best,
            "as_good": list(self.as_good),
            "best_in_the_worst_case": self.best_worst,
            "as_good_in_the_worst_case": list(self.as_good_worst),
            "configurations": [
                {
                    "configuration": b.configuration,
                    "weighted": b.weighted.to_json(),
                    "worst": {**b.worst.to_json(), "workload": b.worst_workload},
                    "workloads": [share.to_json() for share in b.shares],
                }
                for b in self.configurations
            ],
            "notes": list(self.notes),
        }


def balanced(
    workloads: Sequence[Weighted], baselines: Baselines, model_predictor: Predictor, confidence: float
) -> Balance:
    """Return every configuration that all workloads have, for all of them together.

    Each workload's intervals hold at a level that makes all of them hold jointly (Bonferroni). A weighted
    performance is then within the product of the ends, whatever the dependence between workloads. Two
    configurations are compared directly, workload by workload: one is certainly behind if the product of the upper
    ends of its ratios to the other is below 1.

    Args:
        workloads: at least one; names differ.
        baselines: of the sweep.
        model_predictor: predicts one workload.
        confidence: joint level of all intervals.

    Raises:
        InputError: a weight is not positive, two workloads have one name, or no configuration has all cells.
    """
    _require_weights(workloads)
    total = math.fsum(w.weight for w in workloads)
    weights = {w.profile.name: w.weight / total for w in workloads}
    chosen = model_predictor.at(1 - (1 - confidence) / len(workloads))
    predictions = {w.profile.name: chosen.predict(w.profile, baselines) for w in workloads}
    kept = [
        p.configuration
        for p in next(iter(predictions.values())).predictions
        if all(
            any(q.configuration == p.configuration for q in found.predictions) for found in predictions.values()
        )
    ]
    compared = _Compared(workloads, baselines, chosen, predictions)
    rows = [_row(name, kept, weights, compared) for name in kept]
    rows.sort(key=lambda b: -b.weighted.value)
    best, best_worst = rows[0], max(rows, key=lambda b: (b.worst.value, b.weighted.value))
    ratios = {
        b.configuration: _product(compared.ratios(b.configuration, best.configuration), weights) for b in rows
    }
    return Balance(
        weights,
        tuple(rows),
        best.configuration,
        tuple(
            b.configuration
            for b in rows
            if b is not best and ratios[b.configuration].high >= 100 and b.weighted.high >= best.weighted.low
        ),
        best_worst.configuration,
        tuple(b.configuration for b in rows if b is not best_worst and b.worst.high >= best_worst.worst.low),
        tuple(dict.fromkeys(f"{n}: {note}" for n, found in predictions.items() for note in found.notes)),
    )


class _Compared:
    """Ratios of configurations, each pair compared directly and computed once per reference."""

    def __init__(
        self,
        workloads: Sequence[Weighted],
        baselines: Baselines,
        model_predictor: Predictor,
        predictions: Mapping[str, PredictionSet],
    ) -> None:
        self.predictions = predictions
        self._workloads = {w.profile.name: w.profile for w in workloads}
        self._baselines, self._predictor = baselines, model_predictor
        self._known: dict[tuple[str, str], PredictionSet | None] = {}

    def ratio(self, workload: str, configuration: str, reference: str) -> Estimate:
        """Return the performance of a configuration for a workload, the reference = 100."""
        if configuration == reference:
            return Estimate(100.0, 100.0, 100.0)
        found = self.predictions[workload]
        if (workload, reference) not in self._known:
            self._known[workload, reference] = against_reference(
                reference, self._predictor, self._workloads[workload], self._baselines, found
            )
        compared = self._known[workload, reference]
        own, other = found.of(configuration), found.of(reference)
        rows = () if compared is None else compared.predictions
        # Two that lack different cells may have none in common.
        if (p := next((row for row in rows if row.configuration == configuration), None)) is not None:
            # Separate intervals against the default may say more: that of the default itself is exact.
            most = 100 * own.high / other.low if own.high < other.low else math.inf
            return Estimate(p.relative, max(0.0, p.low), max(p.relative, min(p.high, most)))
        # Where ratios depend on the default only the intervals against it exist.
        low = 100 * max(0.0, own.low) / other.high if math.isfinite(other.high) else 0.0
        return Estimate(
            100 * own.relative / other.relative, low, 100 * own.high / other.low if other.low > 0 else math.inf
        )

    def ratios(self, configuration: str, reference: str) -> dict[str, Estimate]:
        return {name: self.ratio(name, configuration, reference) for name in self.predictions}


def _row(name: str, kept: Sequence[str], weights: Mapping[str, float], compared: _Compared) -> Balanced:
    shares = []
    for workload, found in compared.predictions.items():
        p = found.of(name)
        own_best = max((found.of(n) for n in kept), key=lambda q: q.relative).configuration
        relative = Estimate(p.relative, max(0.0, p.low), p.high)
        alike = [n for n in kept if n != own_best and compared.ratio(workload, n, own_best).high >= 100]
        of_best = compared.ratio(workload, name, own_best)
        shares.append(Share(workload, relative, of_best, own_best, tuple(alike)))
    ends = [[getattr(s.of_best, end) for s in shares] for end in ("value", "low", "high")]
    return Balanced(
        name,
        _product({s.workload: s.relative for s in shares}, weights),
        Estimate(*(min(values) for values in ends)),
        tuple(shares),
    )


def _product(values: Mapping[str, Estimate], weights: Mapping[str, float]) -> Estimate:
    """Return the weighted geometric mean of figures, with the box that the intervals span; of 100s it is 100."""

    def mean(end: str) -> float:
        found = {name: float(getattr(value, end)) for name, value in values.items()}
        if any(v == 0 for v in found.values()):
            return 0.0
        return 100 * math.exp(math.fsum(weights[name] * math.log(v / 100) for name, v in found.items()))

    value = mean("value")
    return Estimate(value, min(value, mean("low")), max(value, mean("high")))


def _require_weights(workloads: Sequence[Weighted]) -> None:
    for w in workloads:
        if not 0 < w.weight < math.inf:
            raise InputError(
                f"{w.weight:g} is not a weight",
                where=f"workload {w.profile.name}",
                remedy="give a number above 0; leave a workload out that does not count",
            )
    names = [w.profile.name for w in workloads]
    if twice := sorted({n for n in names if names.count(n) > 1}):
        raise InputError(
            f"several workloads have the name {', '.join(twice)}",
            where="workloads",
            remedy="give each profile once, with the sum of the weights",
        )
