"""Trivial predictors, with which every model is compared: one that does not beat them is useless. Pure.

They use the same measurements, and have the same intervals and verdicts as the models, but are not offered for
predictions.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cephfit.core.errors import InputError
from cephfit.core.protocols import Predictor
from cephfit.core.statistics.round_effects import Floats
from cephfit.core.values.baseline import Baselines, OmittedCells
from cephfit.core.values.cells import CELLS, Cell, LoadedCell
from cephfit.core.values.prediction import CellReason
from cephfit.core.values.profile import Profile
from cephfit.mapper.models.mix_predictor import MixPredictor
from cephfit.mapper.models.mixture import CellMix, Mixture, added_as_time, used_cells
from cephfit.mapper.models.model_error import ModelError
from cephfit.mapper.models.question import Question

ALWAYS_DEFAULT = "always the default"
AVERAGE_CELL = "best on average over cells"
NEAREST_CELL = "nearest single cell"
TRIVIAL = (ALWAYS_DEFAULT, AVERAGE_CELL, NEAREST_CELL)


@dataclass(frozen=True, slots=True)
class _Geometric:
    """Implements ``mixture.Mix``: the geometric mean of the rate ratios over cells, times ``trust``.

    Attributes:
        cells: measured ones.
        trust: exponent of the mean: 1, or 0 for a prediction that all configurations are like the default.
    """

    cells: tuple[Cell | LoadedCell, ...]
    trust: float = 1.0

    def added(self, default: Floats, rates: Floats) -> Mixture:
        logs = np.log(rates / default)
        weights = np.full(len(logs), 1 / len(logs))
        total = self.trust * math.fsum(weights * logs)
        relative = 100 * math.exp(total)
        # The logarithmic mean of 100 and the prediction divides the difference in proportion to the logs.
        per_log = 100 * math.expm1(total) / total if total else 100.0
        gradient = self.trust * weights
        return Mixture(
            relative, 100 * np.exp(logs), weights, per_log * self.trust * weights * logs, gradient, gradient
        )

    def reasons(self, mixture: Mixture) -> tuple[CellReason, ...]:
        rows = [
            CellReason(
                cell.bin_cell if isinstance(cell, LoadedCell) else cell, float(weight), float(ratio), float(points)
            )
            for cell, weight, ratio, points in zip(
                self.cells, mixture.weights, mixture.ratios, mixture.points, strict=True
            )
        ]
        return tuple(sorted(rows, key=lambda reason: (-abs(reason.points), str(reason.cell))))


def _question(name: str, profile: Profile, baselines: Baselines) -> Question:
    own = {cell for of, cell in baselines.cells if of == baselines.default}
    loaded = sorted(cell for of, cell in baselines.loaded if of == baselines.default)
    counts = used_cells(profile, name)
    if name == NEAREST_CELL:
        return _of_nearest(profile, counts, baselines, loaded)
    # The 20 cells under the sweep's own load, where there are any: each counts once.
    cells: tuple[Cell | LoadedCell, ...] = tuple(cell for cell in CELLS if cell in own) or tuple(loaded)
    if not cells:
        raise _nothing_measured(baselines)
    mix = _Geometric(cells, 0.0 if name == ALWAYS_DEFAULT else 1.0)
    measured = baselines.cells if own else baselines.loaded
    return Question(name, mix, measured, OmittedCells({}), not own, ())


def _of_nearest(
    profile: Profile, counts: Mapping[Cell, float], baselines: Baselines, loaded: list[LoadedCell]
) -> Question:
    """Return the question about the cell of the 20 with the most waiting time, or else with the most accesses."""
    shares = dict(counts)
    if profile.demands and all(d.waiting_seconds is not None for d in profile.demands):
        shares = {}
        for d in profile.demands:
            cell = LoadedCell(math.ceil(d.nbytes), d.pattern).bin_cell
            shares[cell] = shares.get(cell, 0.0) + (d.waiting_seconds or 0.0)
    nearest = max(shares, key=lambda cell: (shares[cell], -CELLS.index(cell)))
    if (baselines.default, nearest) in baselines.cells:
        mix = CellMix((nearest,), np.ones(1), added_as_time)
        return Question(NEAREST_CELL, mix, baselines.cells, OmittedCells({}), False, ())
    alike = [cell for cell in loaded if cell.bin_cell == nearest]
    if not alike:
        baselines.of(baselines.default, nearest)
        raise _nothing_measured(baselines)
    return Question(NEAREST_CELL, _Geometric((alike[0],)), baselines.loaded, OmittedCells({}), True, ())


def _nothing_measured(baselines: Baselines) -> InputError:
    return InputError(
        f"there are no rates of {baselines.default}, the default that all others are compared with",
        where=baselines.source,
        remedy=f"measure {baselines.default}",
    )


def trivial_predictor(name: str, confidence: float, errors: Mapping[str, ModelError]) -> Predictor:
    """Return the predictor of this name, one of ``TRIVIAL``.

    Args:
        name: of the predictor.
        confidence: level of the intervals, as in ``MixPredictor``.
        errors: of predictors by name.
    """
    return MixPredictor(name, confidence, errors=errors, question_of=_question)
