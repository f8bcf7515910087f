"""Several predictions together: their logs, the covariance of their errors, and what one more round would change.

A log prediction is, to first order, a weighted sum of all log measurements (``PairedRates.weights``). Two
predictions share the default's measurements, and shifts of rounds and applications. So their errors are
correlated: their covariance follows from the same variances as the intervals (``core/statistics/variance.py``).

``combined_gains`` estimates combined configurations, which were not measured. Two assumptions bound what is usual:

- Independent effects, the optimistic end: in every cell the ratios to the default multiply, so that their logs add
  up. This is the additive model of factorial experiments in log time (Montgomery, Design and Analysis of
  Experiments, chapter 5), and what ``completed_rates`` assumes of loads.
- The same bottleneck, the pessimistic end: one removes what the other one removes too, and the combination is as
  good as the better single one. That is Amdahl's law where nothing is left to gain.

If the settings improve some kinds of access and slow down others, the independent effects may be the smaller end.
Settings that work against each other, or together, may leave this range at either side. So it must be measured.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, stdtrit

from cephfit.core.errors import InputError
from cephfit.core.statistics.round_effects import Blocks, Floats
from cephfit.core.statistics.variance import LARGEST_LOG, Spread, Table
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import Cell, LoadedCell
from cephfit.core.values.prediction import PredictionSet, Verdict, spread_of_ratios
from cephfit.core.values.profile import Profile
from cephfit.mapper.models.mix_predictor import MixPredictor, PairedRates
from cephfit.mapper.models.mixture import Mixture
from cephfit.mapper.models.model_error import ModelError
from cephfit.mapper.models.question import Question, comparable, mean_rates

_LEAST_DF = 3.0
"""Fewest degrees of freedom with a finite variance of Student's distribution, rounded up to a whole number."""


@dataclass(frozen=True, slots=True)
class Place:
    """What the prediction of one configuration is made from.

    Attributes:
        name: of the configuration.
        row: its index in the table of measurements.
        paired: compared with the default in each of the U used cells.
        mixture: its performance for the mix.
        lacking: used cells without a measurement, by index.
    """

    name: str
    row: int
    paired: PairedRates
    mixture: Mixture
    lacking: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class JointPrediction:
    """The predictions of all comparable configurations: J configurations, C cells, R rounds, U used cells.

    Attributes:
        question: what the model makes of the workload.
        table: the measurements; its cells are those of all weights.
        spread: their variances.
        default: rates of the default in the used cells, shape (U,).
        places: the default first, then those with all cells, then those that lack some.
        error: of the model.
        cell_variance: of the log ratio to the default in a cell that a configuration lacks, around the mean of its
            other cells: the mean of such variances over the configurations. 0 if no configuration lacks a cell.
        directly: the cells that were measured. The rates of others follow from them (``completed_rates``).
        growth: root of df / (df - 2) of each prediction's scatter, shape (places,).
    """

    question: Question
    table: Table
    spread: Spread
    default: Floats
    places: tuple[Place, ...]
    error: ModelError
    cell_variance: float
    directly: frozenset[Cell | LoadedCell]
    growth: Floats

    @classmethod
    def of(cls, predictor: MixPredictor, profile: Profile, baselines: Baselines) -> "JointPrediction":
        """Return what ``predictor`` makes of a profile.

        Raises:
            InputError: as ``MixPredictor.predict``; or nothing can be compared; or nothing was measured twice, so
                that the scatter is unknown.
        """
        question = predictor.question_of(predictor.name, profile, baselines)
        cells, measured = question.mix.cells, question.measured
        names = (baselines.default, *comparable(measured, baselines, cells)[0])
        partial = [] if question.omitted.cells else _partial(question, baselines, names)
        if len(names) + len(partial) < 2:
            raise InputError(
                "no configuration can be compared with the default",
                where=baselines.source,
                remedy="measure the cells of the workload under at least one other configuration",
            )
        names = (*names, *partial)
        table, directly, origins = question.tables(baselines, names)
        spread = predictor.spread_of(directly)
        if spread is None:
            raise InputError(
                "every cell was measured once: the scatter is unknown, so nothing can be said about the next step",
                where=baselines.source,
                remedy="sweep with at least two repeats",
            )
        used = np.array([table.cells.index(cell) for cell in cells])
        default = mean_rates(measured, baselines.default, cells)
        places = []
        for j, name in enumerate(names):
            lacking = tuple(i for i, cell in enumerate(cells) if (name, cell) not in measured)
            has = [i for i in range(len(cells)) if i not in lacking]
            rates = np.empty(len(cells))
            rates[has] = mean_rates(measured, name, [cells[i] for i in has])
            rates[list(lacking)] = default[list(lacking)] * math.exp(
                float(np.log(rates[has] / default[has]).mean())
            )
            paired = PairedRates.of(table, j, used, default, rates, origins)
            if lacking:
                paired.contrasts[list(lacking)] = 0.0  # the ratio is assumed: no measurement has a part in it
            places.append(Place(name, j, paired, question.mix.added(default, paired.rates), lacking))
        error = question.error_in(predictor.errors)
        ratios = [np.delete(np.log(p.paired.rates / default), list(p.lacking)) for p in places[1:]]
        squares = sum(float(((r - r.mean()) ** 2).sum()) for r in ratios)
        degrees = sum(len(r) - 1 for r in ratios)
        variance = squares / degrees if partial and degrees else 0.0
        found = baselines.loaded if question.by_load else baselines.cells
        of_default = frozenset(cell for name, cell in found if name == baselines.default)
        growth = _growth(places, spread)
        return cls(question, directly, spread, default, tuple(places), error, variance, of_default, growth)

    @property
    def cells(self) -> tuple[Cell | LoadedCell, ...]:
        """The used cells, U of them."""
        return self.question.mix.cells

    def at(self, name: str) -> int:
        """Return the index of a configuration in ``places``.

        Raises:
            InputError: it cannot be compared with the default.
        """
        for k, place in enumerate(self.places):
            if place.name == name:
                return k
        raise InputError(f"configuration {name} cannot be compared with the default", where="the baselines")

    def logs(self) -> Floats:
        """Logs of performance relative to the default, shape (places,)."""
        return np.array([math.log(place.mixture.relative / 100) for place in self.places])

    def weights(self) -> Floats:
        """Weights of all log measurements in each log prediction, shape (places, J, C, R)."""
        return np.array([p.paired.weights(p.mixture.gradient, p.mixture.default_gradient) for p in self.places])

    def weights_after(self, cell: int, rows: Sequence[int]) -> Floats:
        """Return ``weights`` if one round of one cell is measured in addition, shape (places, J, C, R + 1).

        Args:
            cell: index of a used cell.
            rows: the configurations that are measured in this round, as rows of the table.
        """
        c = self.table.cells.index(self.cells[cell])
        added = np.zeros((self.table.present.shape[0], 1), dtype=np.bool_)
        added[list(rows)] = True
        present = np.hstack([self.table.present[:, c], added])
        logs = np.pad(self.table.logs[:, c], ((0, 0), (0, 1)))
        table = Table((self.table.cells[c],), logs[:, None], present[:, None], (Blocks.of(present),))
        one = np.array([cell])
        found = []
        for place in self.places:
            m = place.mixture
            of_used = np.pad(place.paired.of_used(m.gradient, m.default_gradient), ((0, 0), (0, 0), (0, 1)))
            if cell not in place.lacking or place.row in rows:
                rates = place.paired.rates[one]
                paired = PairedRates.of(table, place.row, np.array([0]), self.default[one], rates)
                of_used[:, one] = paired.of_used(m.gradient[one], m.default_gradient[one])
            found.append(place.paired.placed(of_used))
        return np.array(found)

    def covariance(self, weights: Floats) -> Floats:
        """Covariance of weighted sums of log measurements by their scatter, shape (places, places).

        Variances are those of a normal distribution as wide as Student's: df / (df - 2) times the estimated ones.

        Args:
            weights: shape (places, J, C, rounds).
        """
        spread = self.spread
        counted = weights.any(axis=(0, 1, 3))  # only cells that the mix uses, or follows from
        of_used = weights[:, :, counted]
        found = np.einsum("kjcr,ljcr,jc->kl", of_used, of_used, spread.moderated[:, counted], optimize=True)
        together = weights.sum(axis=2)
        shared = spread.applied + (np.zeros(len(spread.n)) if spread.alone is None else spread.alone)
        found += np.einsum("kjr,ljr,j->kl", together, together, shared, optimize=True)
        return np.asarray(found * np.outer(self.growth, self.growth))

    def measured_cells(self) -> tuple[int, ...]:
        """Indices of the used cells that were measured; another round of the others changes nothing."""
        return tuple(i for i, cell in enumerate(self.cells) if cell in self.directly)

    def model_variances(self) -> Floats:
        """Variances of the predictions by the model's own error, 0 for the default, shape (places,)."""
        df = max(self.error.df, _LEAST_DF)
        growth = 1.0 if math.isinf(df) else df / (df - 2)
        scales = [0.0, *(self._error_scale(place.mixture) for place in self.places[1:])]
        return np.asarray(growth * np.array(scales) ** 2)

    def _error_scale(self, mixture: Mixture) -> float:
        return self.error.scale(mixture.relative, spread_of_ratios(self.question.mix.reasons(mixture)))

    def total(self) -> Floats:
        """Covariance of the true logs around the predictions: scatter, lacking cells and the model's error."""
        return self._total(self.weights())

    def total_after(self, cell: int, together: Sequence[int]) -> Floats:
        """Return ``total`` once one round of one cell was measured in addition.

        Args:
            cell: index of a used cell.
            together: the configurations that are measured in this round, as indices of ``places``.
        """
        rows = [self.places[k].row for k in together]
        return self._total(self.weights_after(cell, rows), {(k, cell) for k in together})

    def _total(self, weights: Floats, found: Collection[tuple[int, int]] = ()) -> Floats:
        """Covariance for these weights; ``found``: (place, cell) that are no longer lacking."""
        lacking = [
            sum(p.mixture.gradient[i] ** 2 * self.cell_variance for i in p.lacking if (k, i) not in found)
            for k, p in enumerate(self.places)
        ]
        return self.covariance(weights) + np.diag(self.model_variances() + np.array(lacking, dtype=np.float64))


def _partial(question: Question, baselines: Baselines, names: Sequence[str]) -> list[str]:
    """Return the configurations that have some cells of the mix, with the default's number of clients."""
    found = []
    for name in dict.fromkeys(name for name, _ in question.measured if name not in names):
        its = [c for c in question.mix.cells if (name, c) in question.measured]
        clients = [question.measured[name, c].n_clients for c in its]
        if its and clients == [question.measured[baselines.default, c].n_clients for c in its]:
            found.append(name)
    return found


def _growth(places: Sequence[Place], spread: Spread) -> Floats:
    found = []
    for place in places:
        weights = place.paired.weights(place.mixture.gradient, place.mixture.default_gradient)
        df = max(spread.variance_of(weights)[1], _LEAST_DF) if weights.any() else math.inf
        found.append(1.0 if math.isinf(df) else math.sqrt(df / (df - 2)))
    return np.array(found)


LIKELY = 0.8
"""A configuration that is better than the default with this probability is worth combining."""


@dataclass(frozen=True, slots=True)
class CombinedGain:
    """The expected performance of a combination, default = 100.

    Attributes:
        names: of the single configurations.
        better_single: the one with the highest prediction.
        pessimistic: the smaller one of its prediction and the performance if all effects are independent.
        pessimistic_low: the lower end of both intervals.
        optimistic: the larger one of these two.
        optimistic_high: the upper end of both intervals; infinite where a load's own limit hides the true rates.
    """

    names: tuple[str, ...]
    better_single: str
    pessimistic: float
    pessimistic_low: float
    optimistic: float
    optimistic_high: float


def improvements(joint: JointPrediction, predictions: PredictionSet) -> dict[str, float]:
    """Return the configurations that are likely better than the default, the best first.

    Args:
        joint: of the same workload and baselines as the predictions.
        predictions: with intervals.

    Returns:
        The probability that each is really better: by the scatter and, if ``joint`` has one, the model's error.
        Configurations that the measurements distinguish from the default are included whatever it is.
    """
    logs, variances = joint.logs(), np.diag(joint.total())
    found = {}
    for p in predictions.predictions:
        if p.verdict is Verdict.DEFAULT or p.relative <= 100:
            continue
        k = next((k for k, place in enumerate(joint.places) if place.name == p.configuration), None)
        if k is None or joint.places[k].lacking:
            continue
        chance = float(ndtr(logs[k] / math.sqrt(variances[k]))) if variances[k] > 0 else 1.0
        low = p.scatter_low if p.scatter_low is not None else p.low
        if chance >= LIKELY or low > 100:
            found[p.configuration] = chance
    return found


def combined_gains(
    joint: JointPrediction, predictions: PredictionSet, sets: Sequence[tuple[str, ...]]
) -> tuple[CombinedGain, ...]:
    """Return the expected gain of each combination, in their order.

    The intervals hold jointly over the configurations of the sweep and the combinations.

    Args:
        joint: of the same workload and baselines as the predictions.
        predictions: with intervals.
        sets: names of the single configurations of each combination; all have every used cell.
    """
    n_compared = len(joint.places) - 1 + len(sets)
    level = 1 - (1 - predictions.confidence) / (2 * n_compared)
    found = []
    for names in sets:
        place = _combined(joint, names)
        m = place.mixture
        variance, df = place.paired.scatter(joint.spread, m.gradient, m.default_gradient)
        ratios = spread_of_ratios(joint.question.mix.reasons(m))
        error = joint.error.half_width(m.relative, predictions.confidence, ratios)
        width = math.hypot(float(stdtrit(df, level)) * math.sqrt(variance), error)
        singles = [predictions.of(name) for name in names]
        better = max(singles, key=lambda p: p.relative)
        is_open = width > LARGEST_LOG or any(math.isinf(p.high) for p in singles)
        high = math.inf if is_open else m.relative * math.exp(width)
        found.append(
            CombinedGain(
                names,
                better.configuration,
                min(better.relative, m.relative),
                min(better.low, m.relative * math.exp(-width)),
                max(better.relative, m.relative),
                max(better.high, high),
            )
        )
    return tuple(found)


def _combined(joint: JointPrediction, names: Sequence[str]) -> Place:
    """Return a combination whose log ratios to the default are the sums of those of its parts, in every cell."""
    parts = [joint.places[joint.at(name)].paired for name in names]
    ratios: Floats = np.prod([part.rates / joint.default for part in parts], axis=0)
    first = parts[0]
    rows = np.unique(np.concatenate([part.rows for part in parts]))

    def among_rows(part: PairedRates, of_own: Floats) -> Floats:
        found = np.zeros((of_own.shape[0], len(rows), of_own.shape[2]))
        found[:, np.searchsorted(rows, part.rows)] = of_own
        return found

    paired = PairedRates(
        joint.default * ratios,
        rows,
        np.sum([among_rows(part, part.contrasts) for part in parts], axis=0),
        among_rows(first, first.default_means),
        first.used,
        first.shape,
        tuple(dict.fromkeys(cell for part in parts for cell in part.unconnected)),
        first.origins,
    )
    return Place(".".join(names), -1, paired, joint.question.mix.added(joint.default, paired.rates))
