"""Assess a prediction: compare it with the measured values of the real workload. Pure."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtri, stdtrit

from cephfit.core.errors import InputError
from cephfit.core.statistics.round_effects import Blocks, Booleans, Floats
from cephfit.core.values.assessment import Assessment, AssessmentRow
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
from cephfit.core.values.prediction import Prediction, PredictionSet, Verdict
from cephfit.core.values.sample import State, WorkloadSample
from cephfit.mapper.assessment.other_causes import (
    cpu_busy,
    io_per_operation,
    limited_by_cpus,
    other_amounts,
    unlike_runs,
)

_Values = Mapping[str, Mapping[int, float]]
"""The metric by configuration and repeat."""
_ERRATIC_ERROR = 0.01
"""Probability of calling a configuration erratic if all are equally noisy, for each number of them."""
_ERRATIC_FACTOR = 4.0
"""Variance of an erratic configuration, as a multiple of that of the others, at least."""
_BY_SELECTION_DF = 1
"""Degrees of freedom of an erratic configuration's variance beyond those of its runs: it was chosen because it
is large, so it is not one that chance made small. docs/mathematics.md has the coverage with it and without."""
_RESOLUTION = 1e-3
"""Lower limit of the standard deviation of log values, so that equal values do not make all others erratic."""


def assess(predictions: PredictionSet, samples: Sequence[WorkloadSample], workload: str) -> Assessment:
    """Compare the measured with the predicted values.

    The runs are interleaved, one of every configuration in each round. They are analysed as a randomised block
    design: log value = configuration + round + noise, by least squares, also where a run is missing. The effect
    of a round on all its runs cancels, as in a comparison paired by round. The noise is estimated from all
    configurations together: three configurations and three rounds leave 4 degrees of freedom for every
    comparison, where pairs would leave 2. A configuration that scatters far more than the others counts for itself
    alone. The measured ratio is the one that this design gives (of the geometric means, if no run is missing). The
    intervals hold jointly (Bonferroni): those against the default over all configurations; statements on the order
    and on ties over all pairs.

    Args:
        predictions: predictions at least for the default and the configurations that were run.
        samples: of one workload and one metric; only the ``ok`` ones count, the first of each repeat.
        workload: name.

    Raises:
        InputError: no run of the default gave a value (with the reason), or the samples are of several metrics.
    """
    metric = _metric_of(samples)
    values = values_of(samples)
    default = _default_of(predictions)
    if default not in values:
        raise InputError(
            f"there is no value under the default {default}{_why_none(samples, default)}",
            where=f"workload {workload}",
            remedy="remove the cause, then run the same command again; it repeats runs without a value",
        )
    predicted = [p for p in predictions.predictions if any(s.configuration == p.configuration for s in samples)]
    model = _BlockDesign.of(
        {p.configuration: values[p.configuration] for p in predicted if p.configuration in values}
    )
    amounts, busy = io_per_operation(samples, default), cpu_busy(samples)
    rows = tuple(
        replace(
            _row(p, values, default, model, predictions.confidence),
            io_per_operation=amounts.get(p.configuration),
            cpu_busy=busy.get(p.configuration),
        )
        for p in predicted
    )
    held, ties = _order(predicted, model, predictions.confidence)
    regret, regret_low, regret_high = _regret(rows, predictions.best, model, predictions.confidence)
    return Assessment(
        workload=workload,
        metric=metric,
        model=predictions.model,
        rows=rows,
        order_held=held,
        regret_pct=regret,
        regret_low_pct=regret_low,
        regret_high_pct=regret_high,
        ties=_ties(predicted, model, predictions.confidence),
        confidence=predictions.confidence,
        notes=(
            *_other_workload(predictions, workload),
            *_lost(samples),
            *_unconnected(model, default),
            *_erratic_notes(model),
            *_unpredicted(values, predicted),
            *other_amounts(rows),
            *unlike_runs(samples),
            *limited_by_cpus(rows),
            *ties,
        ),
    )


@dataclass(frozen=True, slots=True)
class _BlockDesign:
    """A randomised block design: log value = configuration + round + noise.

    The noise of all configurations is pooled. An erratic configuration has its own, so that it does not widen the
    intervals of the others.

    Attributes:
        names: configurations.
        logs: logarithms of the values, shape (configurations, rounds); 0 where there is none.
        present: which values exist.
        variances: of each configuration's noise; NaN where ``dfs`` is 0.
        dfs: degrees of freedom of each variance.
        erratic: which configurations have a variance of their own.
        contrasts: those made so far, by the two places.
    """

    names: tuple[str, ...]
    logs: Floats
    present: Booleans
    variances: Floats
    dfs: NDArray[np.int64]
    erratic: Booleans
    contrasts: dict[tuple[int, int], Floats | None] = field(default_factory=dict)

    @classmethod
    def of(cls, values: _Values) -> "_BlockDesign":
        rounds = sorted({r for by_round in values.values() for r in by_round})
        present = np.array([[r in by_round for r in rounds] for by_round in values.values()])
        logs = np.log([[by_round.get(r, 1.0) for r in rounds] for by_round in values.values()])
        erratic = _erratic(logs, present)
        squares, df = _squares(logs, present, ~erratic)
        variances, dfs = np.full(len(logs), squares / df if df else math.nan), np.full(len(logs), df)
        for place in np.flatnonzero(erratic):
            own, own_df = _added_by(int(place), logs, present, ~erratic)
            variances[place], dfs[place] = own / own_df, own_df + _BY_SELECTION_DF
        return cls(tuple(values), logs, present, variances, dfs, erratic)

    @property
    def df(self) -> int:
        """Degrees of freedom of the pooled variance."""
        return int(self.dfs[~self.erratic].max())

    def difference(self, one: str, other: str) -> float:
        """Return the log of ``one`` over ``other``; of their means alone where no rounds connect them."""
        weights = self._contrast(one, other)
        if weights is None:
            return self._mean(one) - self._mean(other)
        return float((weights * self.logs).sum())

    def half_width(self, one: str, other: str, confidence: float, *, n_pairs: int) -> float | None:
        """Return half the interval of ``difference``, joint for ``n_pairs`` (Bonferroni); None if unknown.

        Variances of different degrees of freedom are added with Satterthwaite's.
        """
        weights = self._contrast(one, other)
        if weights is None:
            return math.inf
        if not self.df:
            return None
        parts = (weights**2).sum(axis=1) * self.variances
        pooled = float(parts[~self.erratic].sum())
        variance = float(parts.sum())
        if not variance:
            return 0.0
        spread = pooled**2 / self.df + float((parts**2 / self.dfs)[self.erratic].sum())
        quantile = float(stdtrit(variance**2 / spread, 1 - (1 - confidence) / (2 * max(1, n_pairs))))
        return quantile * math.sqrt(variance)

    @property
    def n_against_one(self) -> int:
        """Number of comparisons of all others with one configuration."""
        return len(self.names) - 1

    @property
    def n_pairs(self) -> int:
        """Number of comparisons of all pairs."""
        return math.comb(len(self.names), 2)

    def connected(self, one: str, other: str) -> bool:
        """Return whether a chain of common rounds connects the two."""
        return self._contrast(one, other) is not None

    def scatter(self, name: str) -> tuple[float, float]:
        """Return the factors between runs, one standard deviation, of this configuration and of those pooled."""
        own, pooled = self.variances[self.names.index(name)], self.variances[~self.erratic][0]
        return math.exp(math.sqrt(own)), math.exp(math.sqrt(pooled))

    def _contrast(self, one: str, other: str) -> Floats | None:
        """Return the weights of all values; erratic configurations count only in their own comparisons."""
        pair = self.names.index(one), self.names.index(other)
        if pair not in self.contrasts:
            used = ~self.erratic
            used[list(pair)] = True
            first, second = (int(np.count_nonzero(used[:place])) for place in pair)
            found = Blocks.of(self.present[used]).contrast(first, second)
            weights = None
            if found is not None:
                weights = np.zeros(self.logs.shape)
                weights[used] = found
            self.contrasts[pair] = weights
        return self.contrasts[pair]

    def _mean(self, name: str) -> float:
        row = self.names.index(name)
        return float(self.logs[row, self.present[row]].mean())


def _squares(logs: Floats, present: Booleans, used: Booleans) -> tuple[float, int]:
    """Return the residual sum of squares of a block design of some configurations, and its degrees of freedom."""
    blocks = Blocks.of(present[used])
    return float((blocks.residuals(logs[used]) ** 2).sum()), blocks.df


def _added_by(place: int, logs: Floats, present: Booleans, others: Booleans) -> tuple[float, int]:
    """Return what a configuration adds to the residual squares of others, and to the degrees of freedom."""
    squares, df = _squares(logs, present, others)
    used = others.copy()
    used[place] = True
    all_squares, all_df = _squares(logs, present, used)
    return all_squares - squares, all_df - df


def _erratic(logs: Floats, present: Booleans) -> Booleans:
    """Find the configurations that scatter far more than the others, shape (configurations,).

    What one adds to the residual squares, over those of the others, has an F distribution if all are equally
    noisy. The one that adds most is left out, then the next, as long as more than half stay. Erratic are all up
    to the last with a significant F, so that two do not hide each other (Rosner 1983, Technometrics 25:165).
    """
    used = np.ones(len(logs), dtype=np.bool_)
    left_out: list[int] = []
    n_erratic = 0
    while 2 * (np.count_nonzero(used) - 1) > len(logs):
        worst, most = -1, 0.0
        all_squares, all_df = _squares(logs, present, used)
        for place in np.flatnonzero(used):
            others = used.copy()
            others[place] = False
            squares, df = _squares(logs, present, others)
            own_df = all_df - df
            if not df or not own_df:
                continue
            limit = max(float(fdtri(own_df, df, 1 - _ERRATIC_ERROR / len(logs))), _ERRATIC_FACTOR)
            excess = (all_squares - squares) / own_df / (max(squares / df, _RESOLUTION**2) * limit)
            if excess > most:
                worst, most = int(place), excess
        if worst < 0:
            break
        used[worst] = False
        left_out.append(worst)
        if most > 1:
            n_erratic = len(left_out)
    erratic = np.zeros(len(logs), dtype=np.bool_)
    erratic[left_out[:n_erratic]] = True
    return erratic


def _row(
    prediction: Prediction, values: _Values, default: str, model: _BlockDesign, confidence: float
) -> AssessmentRow:
    name = prediction.configuration
    own = tuple(v for _, v in sorted(values.get(name, {}).items()))
    relative = low = high = None
    if own:
        relative = 100 * math.exp(model.difference(name, default))
        width = (
            0.0 if name == default else model.half_width(name, default, confidence, n_pairs=model.n_against_one)
        )
        if width is not None and math.isfinite(width):
            low, high = relative * math.exp(-width), relative * math.exp(width)
    return AssessmentRow(
        configuration=name,
        predicted_relative=prediction.relative,
        predicted_low=prediction.low if math.isfinite(prediction.low) else None,
        predicted_high=prediction.high if math.isfinite(prediction.high) else None,
        measured_relative=relative,
        measured_low=low,
        measured_high=high,
        values=own,
    )


def _order(
    predicted: Sequence[Prediction], model: _BlockDesign, confidence: float
) -> tuple[bool | None, tuple[str, ...]]:
    """Return whether the measured order is the predicted one (None if that is unknown), and notes on ties.

    Only pairs with disjoint predicted intervals have a predicted order. Only pairs whose measured difference is
    larger than its interval, jointly over all pairs, can confirm or refute it. Runs that are only noise, or have
    no spread, have no order: the sign of their difference is meaningless.
    """
    run = [p for p in predicted if p.configuration in model.names]
    if len(run) < 2:
        return None, ()
    if not model.df:
        return None, ("too few runs to know their noise and judge the order: verify with at least two repeats",)
    agreed: list[bool] = []
    ties: list[str] = []
    for ahead, behind in itertools.combinations(run, 2):
        if ahead.low <= behind.high:
            continue
        difference = model.difference(ahead.configuration, behind.configuration)
        width = model.half_width(ahead.configuration, behind.configuration, confidence, n_pairs=model.n_pairs)
        if width is None or abs(difference) <= width:
            ties.append(
                f"{ahead.configuration} was predicted ahead of {behind.configuration}; "
                "the runs cannot distinguish the two"
            )
        else:
            agreed.append(difference > 0)
    if not agreed and not ties:
        return None, ("no order was predicted: the predicted intervals of the configurations run overlap",)
    return all(agreed) if agreed else None, tuple(ties)


def _ties(predicted: Sequence[Prediction], model: _BlockDesign, confidence: float) -> tuple[tuple[str, str], ...]:
    """Return the pairs that the runs cannot distinguish, jointly over all pairs."""
    run = [p.configuration for p in predicted if p.configuration in model.names]
    return tuple(
        (one, other)
        for one, other in itertools.combinations(run, 2)
        if (width := model.half_width(one, other, confidence, n_pairs=model.n_pairs)) is None
        or abs(model.difference(one, other)) <= width
    )


def _regret(
    rows: Sequence[AssessmentRow], best: str, model: _BlockDesign, confidence: float
) -> tuple[float | None, float | None, float | None]:
    """Return the cost of following the prediction, in per cent of the best that was run, and its interval.

    With d the log lead of another over the predicted best and w half its interval, joint over all others, the
    regret is 1 - exp(-max(0, d)) for the largest d. Its interval has the same function of the largest d - w and
    of the largest d + w as its ends. All are None if there is nothing to compare; the interval is None if one of
    the leads has none.
    """
    measured = {r.configuration: r.measured_relative for r in rows if r.measured_relative is not None}
    others = [name for name in measured if name != best]
    if best not in measured or not others:
        return None, None, None
    top = max(measured.values())
    regret = 100 * (top - measured[best]) / top
    leads = [
        (
            model.difference(name, best),
            model.half_width(name, best, confidence, n_pairs=model.n_against_one),
        )
        for name in others
    ]
    known = [(lead, width) for lead, width in leads if width is not None and math.isfinite(width)]
    if len(known) < len(leads):
        return regret, None, None
    low, high = (max(lead + sign * width for lead, width in known) for sign in (-1, 1))
    return regret, -100 * math.expm1(-max(0.0, low)), -100 * math.expm1(-max(0.0, high))


def values_of(samples: Sequence[WorkloadSample]) -> dict[str, dict[int, float]]:
    """Return the values by configuration and repeat; of several attempts at a repeat, the first with a value."""
    values: dict[str, dict[int, float]] = {}
    for sample in sorted(samples, key=lambda s: (s.repeat, s.attempt)):
        if sample.state is State.OK and sample.value is not None and sample.value > 0:
            values.setdefault(sample.configuration, {}).setdefault(sample.repeat, sample.value)
    return values


def _metric_of(samples: Sequence[WorkloadSample]) -> str:
    metrics = sorted({s.metric for s in samples if s.state is State.OK})
    if len(metrics) > 1:
        raise InputError(f"the runs have different metrics: {', '.join(metrics)}", where="workload samples")
    return metrics[0] if metrics else ""


def _default_of(predictions: PredictionSet) -> str:
    marked = (p.configuration for p in predictions.predictions if p.verdict is Verdict.DEFAULT)
    return next(marked, DEFAULT_CONFIGURATION)


def _why_none(samples: Sequence[WorkloadSample], configuration: str) -> str:
    last = max((s for s in samples if s.configuration == configuration), key=lambda s: s.started_ns, default=None)
    return f": {last.reason}" if last is not None and last.reason else ""


def _other_workload(predictions: PredictionSet, workload: str) -> list[str]:
    if predictions.profile == workload:
        return []
    return [
        f"the prediction is for the profile {predictions.profile}, but the runs were of {workload}. They verify "
        f"it only if {predictions.profile} is a trace of {workload}"
    ]


def _lost(samples: Sequence[WorkloadSample]) -> list[str]:
    """Return notes on runs without a value, and on ok runs with a value of zero."""
    good = {(s.configuration, s.repeat) for s in samples if s.state is State.OK}
    last = {(s.configuration, s.repeat): s for s in sorted(samples, key=lambda s: s.attempt)}
    nothing = [
        f"{s.configuration}, repeat {s.repeat + 1} ended with {s.value:g} {s.metric}, which is not counted"
        for s in samples
        if s.state is State.OK and s.value is not None and s.value <= 0
    ]
    return nothing + [
        f"{name}, repeat {repeat + 1} has no value: {sample.state}: {sample.reason}"
        for (name, repeat), sample in sorted(last.items())
        if (name, repeat) not in good
    ]


def _unconnected(model: _BlockDesign, default: str) -> list[str]:
    return [
        f"{name} has no value in any round in which {default}, or a configuration compared with it, has one: its "
        "measured figure includes differences between rounds and has no interval"
        for name in model.names
        if not model.connected(name, default)
    ]


def _erratic_notes(model: _BlockDesign) -> list[str]:
    notes = []
    for name in itertools.compress(model.names, model.erratic):
        own, others = model.scatter(name)
        notes.append(
            f"the runs of {name} differ by a factor of {own:.2g}, those of the others by {others:.2f} "
            "(standard deviations): only its own interval has this scatter. More --repeats show what is typical"
        )
    return notes


def _unpredicted(values: _Values, predicted: Sequence[Prediction]) -> list[str]:
    known = {p.configuration for p in predicted}
    return [f"{name} was run, but nothing was predicted for it" for name in values if name not in known]
