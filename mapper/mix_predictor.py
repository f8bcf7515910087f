"""The predictor: ranks the configurations of a sweep for a workload and says how sure that is."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from cephfit.baseline import Baselines
from cephfit.cells import Cell, Op
from cephfit.mapper.mixture import MIXERS, OF_ONE_KIND, Mixture, used_cells
from cephfit.mapper.spread import Spread, spread_of
from cephfit.prediction import CellReason, Prediction, PredictionSet, Verdict
from cephfit.profile import Profile


@dataclass(frozen=True, slots=True)
class MixPredictor:
    """Implements ``protocols.Predictor`` for every model in which a workload is a mix of cells.

    Attributes:
        name: of the model; a key of ``mixture.MIXERS``.
        confidence: level of the intervals, jointly over the configurations compared with the default.
        spread_of: how unsteady the measurements are, from the baselines and the configurations' names, the
            default first; None where that cannot be told.
    """

    name: str
    confidence: float = 0.95
    spread_of: Callable[[Baselines, Sequence[str]], Spread | None] = spread_of

    def predict(self, profile: Profile, baselines: Baselines) -> PredictionSet:
        """Rank every configuration that has all the cells the workload uses.

        The rate of a cell is the mean IOPS over its repeats. A configuration that lacks a cell, or was measured
        with another number of clients, is left out with a note that names it and says why. The intervals are
        described in docs/method.md.

        Raises:
            InputError: the profile has no accesses, or the default lacks a cell that it uses.
        """
        counts = used_cells(profile, self.name)
        cells = tuple(counts)
        weights = np.array(list(counts.values()), dtype=np.float64)
        default = _rates(baselines, baselines.default, cells)
        compared, notes = _complete(baselines, cells)
        notes += _unjudged(profile, self.name)
        mix = MIXERS[self.name]
        equals = mix(weights, default, default)
        mixtures = {name: mix(weights, default, _rates(baselines, name, cells)) for name in compared}

        widths, floors = dict.fromkeys(compared, math.inf), [math.inf]
        spread = self.spread_of(baselines, (baselines.default, *compared)) if compared else None
        if spread is None:
            notes.append(_no_spread(bool(compared)))
        else:
            notes += spread.notes
            used = np.array([spread.cells.index(cell) for cell in cells])
            for j, (name, mixture) in enumerate(mixtures.items(), start=1):
                widths[name] = self._half_width(spread, j, used, mixture)
                # What the interval would be if the configuration were no better than the default.
                floors.append(100 * -math.expm1(-self._half_width(spread, j, used, equals)))

        ranked = sorted(
            [
                Prediction(baselines.default, 100.0, 100.0, 100.0, Verdict.DEFAULT, _reasons(equals, cells)),
                *(_judged(name, mixture, widths[name], cells) for name, mixture in mixtures.items()),
            ],
            key=lambda prediction: -prediction.relative,
        )
        better = [p.configuration for p in ranked if p.verdict is Verdict.BETTER]
        worse = [p.configuration for p in ranked if p.verdict is Verdict.WORSE]
        return PredictionSet(
            model=self.name,
            profile=profile.name,
            baselines=baselines.source,
            predictions=tuple(ranked),
            best=[*better, baselines.default][0],
            worst=[baselines.default, *worse][-1],
            confidence=self.confidence,
            noise_floor=min(floors),
            notes=tuple(notes),
        )

    def _half_width(self, spread: Spread, j: int, used: NDArray[np.intp], mixture: Mixture) -> float:
        """Half the interval of the log prediction of the spread's configuration ``j``.

        Bonferroni's level makes the intervals of all configurations hold jointly.
        """
        slopes = np.zeros((2, len(spread.cells)))
        slopes[0, used], slopes[1, used] = mixture.gradient, mixture.default_gradient
        variance, df = spread.variance_of(j, slopes[0], slopes[1])
        n_compared = len(spread.unsteadiness) - 1
        quantile = float(stdtrit(df, 1 - (1 - self.confidence) / (2 * n_compared)))
        return quantile * math.sqrt(variance)


def _unjudged(profile: Profile, model: str) -> list[str]:
    """What is said of ops of which no access has one before it on its disk."""
    if model in OF_ONE_KIND:
        return []
    unjudged = [op for op in Op if any(profile.accesses[op].values()) and profile.random_share(op) is None]
    return [f"no {op.value} could be told to be random or sequential: all count as sequential" for op in unjudged]


def _rates(baselines: Baselines, configuration: str, cells: Sequence[Cell]) -> NDArray[np.float64]:
    """Mean IOPS per cell, shape (cells,)."""
    repeats = [baselines.of(configuration, cell).iops for cell in cells]
    return np.array([math.fsum(iops) / len(iops) for iops in repeats])


def _complete(baselines: Baselines, cells: Sequence[Cell]) -> tuple[list[str], list[str]]:
    """The configurations besides the default that can be compared with it, and a note on each one that cannot.

    They have every cell, of as many clients as the default's: two clients move more than one, whatever is set.
    """
    tried = dict.fromkeys([*baselines.configurations, *(name for name, _ in baselines.missing)])
    complete: list[str] = []
    notes: list[str] = []
    for name in tried:
        if name == baselines.default:
            continue
        lacking = [cell for cell in cells if (name, cell) not in baselines.cells]
        if not lacking:
            unlike = [
                c for c in cells if _n_clients(baselines, name, c) != _n_clients(baselines, baselines.default, c)
            ]
            if unlike:
                notes.append(
                    f"configuration {name} is left out: measured with another number of clients than "
                    f"{baselines.default} in {', '.join(map(str, unlike))}"
                )
            else:
                complete.append(name)
            continue
        reasons = dict.fromkeys(baselines.missing.get((name, cell), "it was not measured") for cell in lacking)
        notes.append(
            f"configuration {name} is left out: no baseline for {', '.join(map(str, lacking))} "
            f"({'; '.join(reasons)})"
        )
    return complete, notes


def _n_clients(baselines: Baselines, configuration: str, cell: Cell) -> int:
    return baselines.of(configuration, cell).n_clients


def _no_spread(anything_compared: bool) -> str:
    if not anything_compared:
        return "no configuration could be compared with the default"
    return (
        "every cell was measured once: there is no spread, so nothing can be told from the default; "
        "sweep with at least two repeats"
    )


def _judged(name: str, mixture: Mixture, width: float, cells: Sequence[Cell]) -> Prediction:
    """The verdict from an interval of log half width ``width``; infinite where there is no spread."""
    low, high = mixture.relative * math.exp(-width), mixture.relative * math.exp(width)
    verdict = Verdict.BETTER if low > 100 else Verdict.WORSE if high < 100 else Verdict.INDISTINGUISHABLE
    return Prediction(name, mixture.relative, low, high, verdict, _reasons(mixture, cells))


def _reasons(mixture: Mixture, cells: Sequence[Cell]) -> tuple[CellReason, ...]:
    """The cells that move the prediction most first; among equals, those that carry more weight."""
    rows = [
        CellReason(cell, float(weight), float(ratio), float(points))
        for cell, weight, ratio, points in zip(cells, mixture.weights, mixture.ratios, mixture.points, strict=True)
    ]
    return tuple(sorted(rows, key=lambda r: (-abs(r.points), -r.weight)))
