"""The predictor: ranks the configurations of a sweep for a workload, with intervals."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from cephfit.core.errors import InputError
from cephfit.core.statistics.round_effects import Floats
from cephfit.core.statistics.variance import LARGEST_LOG, Spread, Table, spread_of
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import Cell
from cephfit.core.values.prediction import (
    DEFAULT_CONFIDENCE,
    Prediction,
    PredictionSet,
    Verdict,
    model_called,
    spread_of_ratios,
)
from cephfit.core.values.profile import Profile
from cephfit.mapper.models.completed_rates import Origins
from cephfit.mapper.models.mixture import LimitBounds, Mixture
from cephfit.mapper.models.model_error import ModelError
from cephfit.mapper.models.question import Measured, Question, comparable, mean_rates

_REASONS = 2


def lost_repeats(baselines: Baselines, configurations: Sequence[str], cells: Sequence[Cell]) -> list[str]:
    """Return a note on each configuration with repeats without a figure in cells of the workload."""
    notes = []
    for name in configurations:
        lost = Counter(reason for cell in cells for reason in baselines.lost.get((name, cell), ()))
        if lost:
            gave = sum(len(baselines.of(name, cell).iops) for cell in cells)
            why = "; ".join(f"{n} x {reason}" for reason, n in lost.most_common(_REASONS))
            more = "; and others" if len(lost) > _REASONS else ""
            notes.append(
                f"{name}: {gave} of {gave + lost.total()} repeats in the workload's cells gave a figure; only "
                f"these count ({why}{more})"
            )
    return notes


@dataclass(frozen=True, slots=True)
class MixPredictor:
    """Implements ``protocols.Predictor`` for every model in which a workload is a mix of accesses.

    Attributes:
        name: name of the model; a key of ``mixture.MIXERS``.
        confidence: level of the intervals. That of the measurements' scatter is joint over the configurations
            compared with the default; that of the model's error holds for each configuration.
        error_confidence: level of the part that is the model's error; None: ``confidence``.
        spread_of: estimates the spread of the measurements; None where it cannot be estimated.
        errors: of the models by name; a model that is not in it has none.
        question_of: what a model, by its name, makes of a profile and baselines.
    """

    name: str
    confidence: float = DEFAULT_CONFIDENCE
    error_confidence: float | None = None
    spread_of: Callable[[Table], Spread | None] = spread_of
    errors: Mapping[str, ModelError] = field(default_factory=dict)
    question_of: Callable[[str, Profile, Baselines], Question] = Question.of

    def at(self, confidence: float) -> "MixPredictor":
        return replace(self, confidence=confidence, error_confidence=self.error_level)

    @property
    def error_level(self) -> float:
        """Level of the part of an interval that is the model's error."""
        return self.confidence if self.error_confidence is None else self.error_confidence

    def predict(self, profile: Profile, baselines: Baselines) -> PredictionSet:
        """Rank every configuration that has all the cells the workload uses.

        The rate of a cell is the mean IOPS over its repeats. Where not all configurations have the same rounds, it
        is the default's mean times the ratio to it within rounds. A configuration that lacks a cell, or was
        measured with another number of clients, is omitted; a note names it with the reason. Where several loads
        were measured, it is predicted from the cells that it has. docs/mathematics.md describes the intervals.

        Raises:
            InputError: the profile has no accesses, or the default lacks a cell that it uses.
        """
        question = self.question_of(self.name, profile, baselines)
        error = question.error_in(self.errors)
        mix, cells = question.mix, question.mix.cells
        compared, notes = comparable(question.measured, baselines, cells)
        default = mean_rates(question.measured, baselines.default, cells)
        notes += question.notes
        if not question.by_load:
            own = tuple(cell for cell in cells if isinstance(cell, Cell))
            notes += _of_the_load(profile, baselines, (baselines.default, *compared), own)
            notes += lost_repeats(baselines, (baselines.default, *compared), own)
        equals = mix.added(default, default)
        if question.interpolated is not None:
            notes.append(question.interpolated.note(compared, equals.weights))
        fewer, its_notes = self._of_fewer_cells(profile, baselines, compared) if question.by_load else ([], [])
        found = self._comparisons(question, baselines, compared, default, error, n_all=len(compared) + len(fewer))
        notes += found.notes
        named = tuple(f"configuration {p.configuration} is omitted" for p in fewer)
        notes = [note for note in notes if not named or not note.startswith(named)] + its_notes
        ranked = sorted(
            [
                Prediction(baselines.default, 100.0, 100.0, 100.0, Verdict.DEFAULT, mix.reasons(equals)),
                *(self._prediction(n, question, found, error) for n in compared),
                *fewer,
            ],
            key=lambda prediction: -prediction.relative,
        )
        best, worst = _best_and_worst(ranked, found.alone)
        # A configuration that changes few cells may differ by less than the floor; an open end is only a bound.
        floors = [
            abs(p.relative - 100)
            for p in ranked
            if p.verdict in (Verdict.BETTER, Verdict.WORSE)
            and (p.configuration not in found.bounds or not found.bounds[p.configuration].are_open)
        ]
        return PredictionSet(
            model=question.model,
            profile=profile.name,
            baselines=baselines.source,
            predictions=tuple(ranked),
            best=[*best, baselines.default][0],
            worst=[baselines.default, *worst][-1],
            confidence=self.confidence,
            noise_floor=min([*found.floors, *floors]),
            notes=tuple(notes),
        )

    def against(self, reference: str, profile: Profile, baselines: Baselines) -> PredictionSet:
        """Rank as ``predict``, but with the performance of ``reference`` = 100.

        Waiting times are of a trace on the default. Where they weigh demands, every configuration is therefore
        predicted relative to the default, and the interval is that of the difference of two logs.

        Raises:
            InputError: as ``predict``, or ``reference`` cannot be compared with the default.
        """
        question = self.question_of(self.name, profile, baselines)
        if reference == baselines.default or not model_called(question.model).by_waiting:
            return self.predict(profile, replace(baselines, default=reference))
        mix, cells = question.mix, question.mix.cells
        compared, _ = comparable(question.measured, baselines, cells)
        if reference not in compared:  # from what it has
            held = {key: b for key, b in baselines.loaded.items() if (reference, key[1]) in baselines.loaded}
            if len(held) == len(baselines.loaded):
                raise InputError(
                    f"configuration {reference} cannot be compared with {baselines.default}",
                    where=baselines.source,
                )
            return self.against(reference, profile, replace(baselines, cells={}, loaded=held, missing={}))
        names = (baselines.default, *compared)
        table, directly, origins = question.tables(baselines, names)
        used = np.array([table.cells.index(cell) for cell in cells])
        default = mean_rates(question.measured, baselines.default, cells)
        spread, error = self.spread_of(directly), question.error_in(self.errors)

        def placed(name: str) -> tuple[PairedRates, float, Floats]:
            means = mean_rates(question.measured, name, cells)
            paired = PairedRates.of(table, names.index(name), used, default, means, origins)
            mixture = mix.added(default, paired.rates)
            return paired, mixture.relative, paired.weights(mixture.gradient, mixture.default_gradient)

        own, own_relative, own_weights = placed(reference)
        fewer, _ = self._of_fewer_cells(profile, baselines, compared, reference)
        found = [Prediction(reference, 100.0, 100.0, 100.0, Verdict.DEFAULT), *fewer]
        for name in (name for name in names if name != reference):
            paired, relative, weights = placed(name)
            relative, width = 100 * (relative / own_relative), math.inf
            if spread is not None and not (paired.unconnected or own.unconnected):
                difference = weights - own_weights
                scatter = spread.variance_of(difference) if difference.any() else (0.0, math.inf)
                width = self._half_width(scatter, len(compared) + len(fewer))
            of_model = error.half_width(relative, self.error_level, 0.0)
            found.append(_within(name, relative, width, math.hypot(width, of_model)))
        ranked = sorted(found, key=lambda prediction: -prediction.relative)
        best, worst = _best_and_worst(ranked, {})
        return PredictionSet(
            model=question.model,
            profile=profile.name,
            baselines=baselines.source,
            predictions=tuple(ranked),
            best=[*best, reference][0],
            worst=[reference, *worst][-1],
            confidence=self.confidence,
            noise_floor=math.inf,
        )

    def _comparisons(
        self,
        question: Question,
        baselines: Baselines,
        compared: Sequence[str],
        default: Floats,
        error: ModelError,
        *,
        n_all: int,
    ) -> "_Comparisons":
        """Compare each configuration with the default, whose mean IOPS in the cells of the mix are ``default``.

        The intervals hold jointly with those of further ones, ``n_all`` in all.
        """
        mix, cells = question.mix, question.mix.cells
        table, directly, origins = question.tables(baselines, (baselines.default, *compared))
        used = np.array([table.cells.index(cell) for cell in cells])
        follows = origins is not None and bool(origins.follows[:, used].any())
        spread = self.spread_of(directly) if compared else None
        equals = mix.added(default, default)
        found = _Comparisons(widths=dict.fromkeys(compared, math.inf))
        if spread is not None:
            found.notes += spread.notes
            found.notes += _on_erratic(spread, (baselines.default, *compared))
        elif compared or not n_all:
            found.notes.append(_no_spread(bool(compared)))
        for j, name in enumerate(compared, start=1):
            means = mean_rates(question.measured, name, cells)
            paired = PairedRates.of(table, j, used, default, means, origins)
            mixture = found.mixtures[name] = mix.added(default, paired.rates)
            bounds = found.bounds[name] = question.bounds(mixture, name, baselines, self.name)
            if paired.unconnected:
                found.notes.append(_in_no_common_round(name, baselines.default, paired.unconnected))
            elif spread is not None:
                scatter = paired.scatter(spread, mixture.gradient, mixture.default_gradient)
                found.widths[name] = self._half_width(scatter, n_all)
                if follows:
                    found.alone[name] = self._half_width(scatter, 1)
                if bounds.are_open:
                    continue  # the true difference may be larger than the scatter shows
                # The interval if the configuration were no better than the default.
                floor = math.hypot(
                    self._half_width(paired.scatter(spread, equals.gradient, equals.default_gradient), n_all),
                    error.half_width(100.0, self.error_level, 0.0),
                    question.interpolation(name, equals, self.error_level),
                )
                found.floors.append(100 * -math.expm1(-floor))
        return found

    def _of_fewer_cells(
        self, profile: Profile, baselines: Baselines, compared: Sequence[str], reference: str | None = None
    ) -> tuple[list[Prediction], list[str]]:
        """Predict configurations that lack cells of the mix, each by itself, from what all that matter have.

        Args:
            compared: configurations with all cells.
            reference: which is 100; None: the default.

        Returns:
            The predictions of those that can be compared so, and a note on each.
        """
        found, notes = [], []
        known = (baselines.default, *compared)
        others = [name for name in dict.fromkeys(name for name, _ in baselines.loaded) if name not in known]
        for name in others:
            loaded = {
                key: b
                for key, b in baselines.loaded.items()
                if key[0] in (baselines.default, reference, name) and (name, key[1]) in baselines.loaded
            }
            if len(loaded) == len(baselines.loaded):
                continue  # it lacks no cell that the default has: it is omitted for another reason
            few = replace(baselines, cells={}, loaded=loaded, missing={})
            joint = self.at(1 - (1 - self.confidence) / (len(compared) + len(others)))
            try:
                answer = (
                    joint.predict(profile, few) if reference is None else joint.against(reference, profile, few)
                )
            except InputError:
                continue
            its = [p for p in answer.predictions if p.configuration == name]
            found += its
            notes += [f"{name} lacks cells of the workload: it is predicted from those that it has"] * len(its)
        return found, notes

    def _half_width(self, scatter: tuple[float, float], n_compared: int) -> float:
        """Return half the interval of the log prediction of one configuration.

        With Bonferroni's level the intervals of ``n_compared`` configurations hold jointly.

        Args:
            scatter: variance and degrees of freedom, as from ``_scatter``.
        """
        variance, df = scatter
        if not variance:
            return 0.0
        quantile = float(stdtrit(df, 1 - (1 - self.confidence) / (2 * n_compared)))
        return quantile * math.sqrt(variance)

    def _prediction(self, name: str, question: Question, found: "_Comparisons", error: ModelError) -> Prediction:
        """Return the prediction of a configuration that was compared with the default."""
        mixture, bounds, scatter_width = found.mixtures[name], found.bounds[name], found.widths[name]

        def interval(width: float) -> tuple[float, float]:
            growth = math.exp(width) if width < LARGEST_LOG else math.inf
            return bounds.widened(*question.omitted.widened(mixture.relative / growth, mixture.relative * growth))

        reasons = question.mix.reasons(mixture)
        of_model = error.half_width(mixture.relative, self.error_level, spread_of_ratios(reasons))
        of_sizes = question.interpolation(name, mixture, self.error_level)
        low, high = interval(math.hypot(scatter_width, of_model, of_sizes))
        scatter_low, scatter_high = interval(scatter_width)
        return Prediction(
            name, mixture.relative, low, high, _verdict(low, high), reasons, scatter_low, scatter_high
        )


def _within(name: str, relative: float, scatter_width: float, width: float) -> Prediction:
    """Return a prediction with these half widths of its log, by the scatter alone and in all."""

    def ends(half: float) -> tuple[float, float]:
        growth = math.exp(half) if half < LARGEST_LOG else math.inf
        return relative / growth, relative * growth

    (low, high), (scatter_low, scatter_high) = ends(width), ends(scatter_width)
    return Prediction(name, relative, low, high, _verdict(low, high), (), scatter_low, scatter_high)


def _verdict(low: float, high: float) -> Verdict:
    return Verdict.BETTER if low > 100 else Verdict.WORSE if high < 100 else Verdict.INDISTINGUISHABLE


@dataclass(slots=True)
class _Comparisons:
    """What comparisons of configurations with the default found, by name of the configuration.

    Attributes:
        mixtures: how the workload's accesses add up.
        bounds: what the load's limit leaves open.
        widths: log half width of the scatter alone, infinite without a spread.
        alone: the same at the level of a single comparison, where rates follow from others.
        floors: in per cent, the smallest loss that each comparison would have shown.
        notes: caveats.
    """

    widths: dict[str, float]
    mixtures: dict[str, Mixture] = field(default_factory=dict)
    bounds: dict[str, LimitBounds] = field(default_factory=dict)
    alone: dict[str, float] = field(default_factory=dict)
    floors: list[float] = field(default_factory=lambda: [math.inf])
    notes: list[str] = field(default_factory=list)


def _best_and_worst(ranked: Sequence[Prediction], alone: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """Return what the measurements show to be better and worse than the default, in the order of ``ranked``.

    The model's error does not count: it would leave every close choice to the default.

    Args:
        alone: as in ``_Comparisons``.
    """
    better = [p.configuration for p in ranked if p.scatter_low is not None and p.scatter_low > 100]
    worse = [p.configuration for p in ranked if p.scatter_high is not None and p.scatter_high < 100]
    # Rates that follow from others have few degrees of freedom: there the joint level, too, would leave close
    # choices to the default, so the best and the worst are chosen at the level of a single comparison.
    gains = {p.configuration: math.log(p.relative / 100) for p in ranked if p.relative > 0}
    chosen = {name for name, width in alone.items() if abs(gains[name]) > width}
    best = [n for n in gains if n in better or (n in chosen and gains[n] > 0)]
    worst = [n for n in gains if n in worse or (n in chosen and gains[n] < 0)]
    return best, worst


@dataclass(frozen=True, slots=True)
class PairedRates:
    """One configuration compared with the default within rounds, for U used cells.

    Measurements of K configurations have a part in it: the two, and others where some share few rounds.

    Attributes:
        rates: IOPS in each used cell, shape (U,).
        rows: the K configurations, by their index in the table, ascending, shape (K,).
        contrasts: weights of the log measurements in the log ratio of each used cell, shape (U, K, R).
        default_means: weights in the default's mean, shape (U, K, R).
        used: indices of the used cells in the table.
        shape: numbers of configurations and cells in the table.
        unconnected: the cells in which no rounds connect the two; there the means are compared directly.
        origins: of the rates in the table, where some follow from others; None: all were measured.
    """

    rates: Floats
    rows: NDArray[np.intp]
    contrasts: Floats
    default_means: Floats
    used: NDArray[np.intp]
    shape: tuple[int, int]
    unconnected: tuple[Measured, ...]
    origins: Origins | None = None

    @classmethod
    def of(
        cls,
        table: Table,
        j: int,
        used: NDArray[np.intp],
        default: Floats,
        means: Floats,
        origins: Origins | None = None,
    ) -> "PairedRates":
        """Compare configuration ``j``, with these mean IOPS, with the default."""
        like = {id(table.blocks[c]): c for c in used}  # most cells have the same rounds
        compared = {block: _compared(table, j, c) for block, c in like.items()}
        has_part = np.any([of.any(axis=1) for row in compared.values() for of in row[:2]], axis=0)
        rows = np.flatnonzero(has_part)
        of_rows = {block: (contrast[rows], mean[rows], ok) for block, (contrast, mean, ok) in compared.items()}
        contrasts, default_means, within = zip(*(of_rows[id(table.blocks[c])] for c in used), strict=True)
        rates = means.copy()
        for i, c in enumerate(used):
            if within[i] and not table.blocks[c].whole:
                rates[i] = default[i] * math.exp(float((contrasts[i] * table.logs[rows, c]).sum()))
        unconnected = tuple(table.cells[c] for i, c in enumerate(used) if not within[i])
        shape = table.present.shape[:2]
        return cls(rates, rows, np.array(contrasts), np.array(default_means), used, shape, unconnected, origins)

    def weights(self, gradient: Floats, default_gradient: Floats) -> Floats:
        """Return the weights of all log measurements in a log prediction, to first order; shape (J, C, R).

        C are the cells of the table; with ``origins``, those that were measured.

        Args:
            gradient, default_gradient: as for ``of_used``.
        """
        of_rows = self.weights_of_rows(gradient, default_gradient)
        found = np.zeros((self.shape[0], *of_rows.shape[1:]))
        found[self.rows] = of_rows
        return found

    def of_used(self, gradient: Floats, default_gradient: Floats) -> Floats:
        """Return the weights of the logs of all rates in the used cells, shape (J, U, R).

        Args:
            gradient: derivatives by the configuration's log rates, shape (U,).
            default_gradient: minus the derivatives by the default's.
        """
        of_rows = self._of_rows(gradient, default_gradient)
        found = np.zeros((self.shape[0], *of_rows.shape[1:]))
        found[self.rows] = of_rows
        return found

    def placed(self, of_used: Floats) -> Floats:
        """Return the weights of all log measurements, shape (J, C, R), from those in the used cells, (J, U, R)."""
        return self._placed(of_used, np.arange(len(of_used)))

    def scatter(self, spread: Spread, gradient: Floats, default_gradient: Floats) -> tuple[float, float]:
        """Return the variance of a log prediction by the scatter of the measurements, and its degrees of freedom.

        Args:
            spread: of the measurements.
            gradient, default_gradient: as for ``of_used``.
        """
        if not (gradient.any() or default_gradient.any()):
            return 0.0, math.inf  # the prediction does not depend on the measurements
        return spread.variance_of(self.weights_of_rows(gradient, default_gradient), self.rows)

    def weights_of_rows(self, gradient: Floats, default_gradient: Floats) -> Floats:
        """Return ``weights`` of the K configurations alone, shape (K, C, R): all others are 0."""
        return self._placed(self._of_rows(gradient, default_gradient), self.rows)

    def _of_rows(self, gradient: Floats, default_gradient: Floats) -> Floats:
        """Return ``of_used`` for the K configurations alone, shape (K, U, R)."""
        # A rate is the default's own mean times the ratio to it.
        found = gradient[:, None, None] * self.contrasts
        found += (gradient - default_gradient)[:, None, None] * self.default_means
        return np.swapaxes(found, 0, 1)

    def _placed(self, of_used: Floats, rows: NDArray[np.intp]) -> Floats:
        """Return ``placed`` for some configurations alone."""
        if self.origins is not None:
            return self.origins.weights(of_used, self.used, rows)
        weights = np.zeros((len(of_used), self.shape[1], of_used.shape[2]))
        weights[:, self.used] = of_used
        return weights


def _compared(table: Table, j: int, c: int) -> tuple[Floats, Floats, bool]:
    """Return the weights, shape (J, R), of a cell's log ratio to the default and of the default's mean.

    The third value is whether the ratio is one within rounds.
    """
    default_mean = table.mean_of(0, c)
    contrast = table.blocks[c].contrast(j, 0)
    if contrast is None:
        return table.mean_of(j, c) - default_mean, default_mean, False
    return contrast, default_mean, True


def _in_no_common_round(name: str, default: str, cells: Sequence[Measured]) -> str:
    return (
        f"{name} has no round (repeat) in common with {default}, or with a configuration compared with it, in "
        f"{', '.join(map(str, cells))}: its prediction includes differences between rounds and has no interval"
    )


def _of_the_load(profile: Profile, baselines: Baselines, names: Sequence[str], cells: Sequence[Cell]) -> list[str]:
    """Return notes on how the measured load affects the prediction."""
    load = baselines.measured_load
    return [note for note in (load.mixed_for(profile), load.reached_in(names, cells)) if note]


def _on_erratic(spread: Spread, names: Sequence[str]) -> list[str]:
    """Return a note on each configuration that scatters far more than the others; the default is the first."""
    if spread.erratic is None:
        return []
    return [
        f"{name} repeats far worse than the other configurations: "
        + ("all intervals contain its scatter" if name == names[0] else "its interval has its own scatter alone")
        for name, is_erratic in zip(names, spread.erratic, strict=True)
        if is_erratic
    ]


def _no_spread(anything_compared: bool) -> str:
    if not anything_compared:
        return "no configuration could be compared with the default"
    return (
        "every cell was measured once: the spread is unknown, so nothing can be distinguished from the default; "
        "sweep with at least two repeats"
    )
