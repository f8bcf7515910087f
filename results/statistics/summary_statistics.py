"""Statistics of few, positive, repeated measurements. Pure functions; the mathematics is in the docstrings.

Intervals of single cells have variances moderated over configurations, as in predictions. A scatter that is only
pooled over configurations finds false differences in noisy configurations and hides the effects of stable ones;
docs/evidence.md has figures.
"""

import math
import statistics as stdlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import stdtrit

from cephfit.core.statistics.absolute_spread import Absolute, for_one_cell
from cephfit.core.statistics.round_effects import Floats
from cephfit.core.statistics.variance import LARGEST_LOG, Table, spread_of
from cephfit.core.statistics.variance import Spread as TableSpread
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import Cell, LoadedCell
from cephfit.core.values.prediction import DEFAULT_CONFIDENCE

CONFIDENCE = DEFAULT_CONFIDENCE
UNSTABLE_CV = 0.10
"""Coefficient of variation above which measurements are called unstable (the limit that pyperf warns at)."""


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval that contains the true value with probability ``confidence``.

    Attributes:
        low: lower end.
        high: upper end, >= low.
        confidence: 0 to 1.
        method: ``t``, ``pooled`` or ``moderated``.
    """

    low: float
    high: float
    confidence: float
    method: str

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise ValueError(f"an interval is not {self.low} to {self.high}")

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high


def mean(values: Sequence[float]) -> float:
    """x̄ = (1/n) Σ xᵢ, without loss to rounding (n >= 1)."""
    _must_have(values, 1)
    return math.fsum(values) / len(values)


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two middle ones (n >= 1)."""
    _must_have(values, 1)
    return stdlib.median(values)


def standard_deviation(values: Sequence[float]) -> float | None:
    """s = √( Σ (xᵢ - x̄)² / (n - 1) ); None for n = 1, which has no spread."""
    _must_have(values, 1)
    if len(values) == 1:
        return None
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - 1))


def coefficient_of_variation(values: Sequence[float]) -> float | None:
    """s / x̄ of positive values; None for n = 1."""
    deviation = standard_deviation(values)
    return None if deviation is None else deviation / mean(values)


def student_interval(values: Sequence[float], *, confidence: float = CONFIDENCE) -> Interval | None:
    """x̄ ∓ t(1/2 + confidence/2; n - 1) · s / √n; None for n = 1. Right for small n if values are near normal."""
    deviation = standard_deviation(values)
    if deviation is None:
        return None
    n = len(values)
    half = _t_quantile(confidence, n - 1) * deviation / math.sqrt(n)
    return Interval(mean(values) - half, mean(values) + half, confidence, "t")


@dataclass(frozen=True, slots=True)
class Spread:
    """The scatter of repeats, pooled over groups that are assumed to scatter alike.

    Attributes:
        log_deviation: σ of the natural logarithm: about the coefficient of variation.
        degrees: its degrees of freedom, >= 1; not an integer if they come from Satterthwaite's formula.
        round_deviation: σ of the logarithm of a round's common effect on all of its measurements, where that is
            estimated separately. It has few degrees of freedom, however much was measured in each round.
        round_degrees: degrees of freedom of that.
    """

    log_deviation: float
    degrees: float
    round_deviation: float = 0.0
    round_degrees: float = 1.0


def pooled_spread(groups: Iterable[Sequence[float]]) -> Spread | None:
    """Pool the scatter within groups of positive values.

    σ² = Σ_g Σ_i (ln x_gi - mean_i ln x_gi)² / Σ_g (n_g - 1), as in the analysis of variance. Two repeats of one
    configuration give a poor estimate of its scatter; two repeats of each of six give a better one.

    Returns:
        None where no group has two values.
    """
    squares, degrees = [], 0
    for group in groups:
        if len(group) < 2:
            continue
        logs = [math.log(value) for value in group]
        centre = mean(logs)
        squares += [(value - centre) ** 2 for value in logs]
        degrees += len(logs) - 1
    return Spread(math.sqrt(math.fsum(squares) / degrees), degrees) if degrees else None


def ratio(values: Sequence[float], reference: Sequence[float]) -> float:
    """x̄ / ȳ of positive values."""
    return mean(values) / mean(reference)


def welch_ratio_interval(
    values: Sequence[float],
    reference: Sequence[float],
    spread: Spread | None,
    reference_spread: Spread | None,
    *,
    confidence: float = CONFIDENCE,
) -> Interval | None:
    """Interval of the ratio of two means of positive values that scatter differently.

    (x̄ / ȳ) · exp(∓ h), h² = (t(1/2 + confidence/2; ν) · s)² + (the same of rounds)², with s² = σx²/n + σy²/m and ν
    by Welch and Satterthwaite, s⁴ / ((σx²/n)²/νx + (σy²/m)²/νy): two clusters need not be equally noisy.

    Returns:
        None where a scatter is not known.
    """
    if spread is None or reference_spread is None:
        return None
    centre = ratio(values, reference)
    half = _log_half_width(len(values), len(reference), spread, reference_spread, confidence)
    factor = math.exp(min(half, LARGEST_LOG))
    return Interval(centre / factor, centre * factor, confidence, "pooled")


def welch_ratio_p_value(
    values: Sequence[float],
    reference: Sequence[float],
    spread: Spread | None,
    reference_spread: Spread | None,
    *,
    tolerance: float = 0.0,
) -> float | None:
    """Two-sided p value of "the true means differ by at most ``tolerance``", for means that scatter differently.

    The p value is 1 minus the confidence at which the half width h of ``welch_ratio_interval`` equals
    max(0, abs(ln(x̄ / ȳ)) + ln(1 - tolerance)). So it agrees with the intervals at every level.

    Args:
        values: positive.
        reference: positive.
        spread: of the values.
        reference_spread: of the reference.
        tolerance: 0 to 1 (exclusive): 0.05 allows a rate of 0.95 or 1 / 0.95 times the reference's.

    Returns:
        0 to 1; None where a scatter is not known.
    """
    if spread is None or reference_spread is None:
        return None
    distance = abs(math.log(ratio(values, reference))) + math.log1p(-tolerance)
    sizes = len(values), len(reference)

    def excess(log_p: float) -> float:
        return _log_half_width(*sizes, spread, reference_spread, -math.expm1(log_p)) - distance

    if excess(_LARGEST_LOG_P) >= 0:
        return 1.0
    if excess(_SMALLEST_LOG_P) <= 0:
        return math.exp(_SMALLEST_LOG_P)
    from scipy.optimize import brentq  # only comparisons need it

    return math.exp(float(brentq(excess, _SMALLEST_LOG_P, _LARGEST_LOG_P)))


_SMALLEST_LOG_P = math.log(1e-12)
"""Smaller p values are reported as 1e-12: no normal distribution describes repeats that far out."""
_LARGEST_LOG_P = -1e-12
"""Larger p values are reported as 1: means that differ by no more than rounding."""


def _log_half_width(n: int, m: int, spread: Spread, reference_spread: Spread, confidence: float) -> float:
    """Half the interval of ln(x̄ / ȳ): ``h`` of ``welch_ratio_interval``."""
    rest = _welch_half_width(
        (spread.log_deviation**2 / n, spread.degrees),
        (reference_spread.log_deviation**2 / m, reference_spread.degrees),
        confidence,
    )
    rounds = _welch_half_width(
        (spread.round_deviation**2 / n, spread.round_degrees),
        (reference_spread.round_deviation**2 / m, reference_spread.round_degrees),
        confidence,
    )
    return math.hypot(rest, rounds)


def holm_adjusted(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return p values adjusted for their number, in the given order (Holm 1979, Scand. J. Statist. 6:65).

    The i-th smallest of m is multiplied by m - i + 1, then made non-decreasing and at most 1. The chance that any
    true hypothesis has an adjusted value below α is at most α, however the tests depend on each other.
    """
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[i]))
        adjusted[i] = largest
    return tuple(adjusted)


def _welch_half_width(own: tuple[float, float], other: tuple[float, float], confidence: float) -> float:
    """Half the interval of a difference, by the variance of each of the two and its degrees of freedom."""
    variance = own[0] + other[0]
    if variance == 0:
        return 0.0
    degrees = variance**2 / (own[0] ** 2 / own[1] + other[0] ** 2 / other[1])
    return _t_quantile(confidence, degrees) * math.sqrt(variance)


def level_interval(
    values: Sequence[float], spread: Spread | None, *, confidence: float = CONFIDENCE
) -> Interval | None:
    """Interval of the mean of positive values, with a pooled scatter.

    x̄ · exp(∓ h), h² = (t(1/2 + confidence/2; degrees) · σ / √n)² + (the same of rounds)². Each part has its own
    quantile, because Satterthwaite's formula underestimates a part of one or two degrees of freedom that is small
    by chance (Graybill and Wang 1980, Journal of the American Statistical Association 75:869).

    Returns:
        None where the scatter is not known.
    """
    if spread is None:
        return None
    _must_have(values, 1)
    rest, rounds = (
        _t_quantile(confidence, degrees) * deviation / math.sqrt(len(values))
        for deviation, degrees in (
            (spread.log_deviation, spread.degrees),
            (spread.round_deviation, spread.round_degrees),
        )
    )
    factor = math.exp(min(math.hypot(rest, rounds), LARGEST_LOG))
    centre = mean(values)
    return Interval(centre / factor, centre * factor, confidence, "pooled")


def stability_warning(values: Sequence[float], *, limit: float = UNSTABLE_CV) -> str | None:
    """Return why the mean of these values is unreliable, as one sentence; None if it is reliable."""
    variation = coefficient_of_variation(values)
    if variation is None:
        return "measured once: its spread is not known"
    if variation > limit:
        return f"the {len(values)} repeats scatter by {100 * variation:.0f} % (more than {100 * limit:.0f} %)"
    return None


def _t_quantile(confidence: float, degrees: float) -> float:
    """t(1/2 + confidence/2; degrees). ``scipy.stats`` gives the same, and takes most of a second to import."""
    return float(stdtrit(degrees, 0.5 + confidence / 2))


def _must_have(values: Sequence[float], n: int) -> None:
    if len(values) < n:
        raise ValueError(f"needs at least {n} value, got {len(values)}")


@dataclass(frozen=True, slots=True)
class AgainstDefault:
    """The ratio of every configuration to the default in each cell, within the rounds that both have.

    Attributes:
        baselines: the measured baselines.
        rates: those that are compared, by (configuration, cell): the baselines' ``cells`` or ``loaded``.
        names: configurations, the default first.
        table: the measurements, in the same order.
        spread: of the measurements; None where nothing was measured twice.
    """

    baselines: Baselines
    rates: Mapping[tuple[str, Any], Baseline]
    names: tuple[str, ...]
    table: Table
    spread: TableSpread | None

    @classmethod
    def of(cls, baselines: Baselines) -> "AgainstDefault":
        """Compare in the 20 cells under the sweep's own load."""
        names = baselines.configurations
        return cls._of(baselines, baselines.cells, names, Table.of(baselines, names))

    @classmethod
    def of_loaded(cls, baselines: Baselines) -> "AgainstDefault":
        """Compare in all sizes and under all loads (``Baselines.loaded``)."""
        names = tuple(dict.fromkeys([baselines.default, *(name for name, _ in baselines.loaded)]))
        return cls._of(baselines, baselines.loaded, names, Table.of_loaded(baselines, names))

    @classmethod
    def _of(
        cls, baselines: Baselines, rates: Mapping[Any, Baseline], names: tuple[str, ...], table: Table
    ) -> "AgainstDefault":
        spread = spread_of(table)
        return cls(baselines, rates, names, table, spread and for_one_cell(spread))

    def ratio(self, name: str, cell: Cell | LoadedCell) -> float | None:
        """Return the configuration's rate over the default's; None where one of the two has none.

        It is the ratio of the means where all configurations were measured in the same rounds, or where no rounds
        connect the two; else the ratio within rounds.
        """
        own, default = (self.rates.get((n, cell)) for n in (name, self.baselines.default))
        if own is None or default is None:
            return None
        contrast = self._contrast(name, cell)
        if contrast is None or self.table.blocks[self.table.cells.index(cell)].whole:
            return ratio(own.iops, default.iops)
        return math.exp(float((contrast * self.table.logs[:, self.table.cells.index(cell)]).sum()))

    def interval(self, name: str, cell: Cell | LoadedCell, confidence: float) -> Interval | None:
        """Return the interval of the ratio; None for the default, or without ratio, scatter or common rounds."""
        ratio = None if name == self.baselines.default else self.ratio(name, cell)
        contrast = None if ratio is None else self._contrast(name, cell)
        if ratio is None or contrast is None or self.spread is None:
            return None
        of_ratio, df = self.spread.variance_of(_in_cell(self.table, cell, contrast))
        factor = math.exp(min(_t_quantile(confidence, df) * math.sqrt(of_ratio), LARGEST_LOG))
        return Interval(ratio / factor, ratio * factor, confidence, "moderated")

    def weights(self, name: str, cell: Cell | LoadedCell) -> Floats:
        """Return the weights of a cell's log measurements, shape (J, R), in the log of the configuration's rate.

        The rate is the default's mean times ``ratio``; its own mean where that is the same, or without a ratio.
        """
        j, c = self.names.index(name), self.table.cells.index(cell)
        contrast = self._contrast(name, cell)
        if contrast is None or self.table.blocks[c].whole:
            return self.table.mean_of(j, c)
        return self.table.mean_of(0, c) + contrast

    def _contrast(self, name: str, cell: Cell | LoadedCell) -> Floats | None:
        blocks = self.table.blocks[self.table.cells.index(cell)]
        return blocks.contrast(self.names.index(name), 0)


def spread_as_of(absolute: Absolute, weights: Floats, n: int) -> Spread:
    """Return the scatter of ``n`` values whose mean has the variance of a weighted sum of log measurements.

    Args:
        weights: shape (J, C, R).
    """
    of_rest, df, of_rounds = absolute.parts_of(weights)
    return Spread(math.sqrt(of_rest * n), df, math.sqrt(of_rounds * n), absolute.round_df)


def own_spreads(baselines: Baselines) -> Mapping[tuple[str, Cell], Spread]:
    """Return the scatter of the absolute rate by (configuration, cell); empty where nothing was repeated."""
    names = baselines.configurations
    absolute = Absolute.of_one_cell(Table.of(baselines, names))
    if absolute is None:
        return {}
    table = absolute.table
    found = {}
    for name, cell in baselines.cells:
        j, c = names.index(name), table.cells.index(cell)
        weights = _in_cell(table, cell, table.mean_of(j, c))
        found[name, cell] = spread_as_of(absolute, weights, int(table.present[j, c].sum()))
    return found


def _in_cell(table: Table, cell: Cell | LoadedCell, weights: Floats) -> Floats:
    """Embed the weights of one cell's log measurements, shape (J, R), in those of all, shape (J, C, R)."""
    every = np.zeros(table.logs.shape)
    every[:, table.cells.index(cell)] = weights
    return every
