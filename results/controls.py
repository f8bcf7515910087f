"""The noise floor as it was measured: configurations that are the default under another name (A/A runs)."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cephfit.baseline import Baselines
from cephfit.configuration import DEFAULT_CONFIGURATION
from cephfit.prediction import PredictionSet
from cephfit.protocols import Applied


@dataclass(frozen=True, slots=True)
class Controls:
    """What the default differs from itself by.

    Attributes:
        names: of the controls.
        points: largest distance of a control's prediction from 100; None without a prediction.
        cell_points: per cell of the baselines the largest distance of a control's rate from the default's = 100.
    """

    names: tuple[str, ...]
    points: float | None
    cell_points: Mapping[str, float]

    @property
    def worst_cell(self) -> tuple[str, float] | None:
        """The cell in which the default differed most from itself."""
        return max(self.cell_points.items(), key=lambda item: item[1], default=None)


def names_of_controls(applied: Iterable[tuple[int, Applied]]) -> tuple[str, ...]:
    """Configurations that were applied and have no setting at all, but another name than the default's."""
    found = {a.configuration for _, a in applied if a.ok and not a.read_back}
    return tuple(sorted(found - {DEFAULT_CONFIGURATION}))


def controls_of(
    applied: Iterable[tuple[int, Applied]], baselines: Baselines, predictions: PredictionSet | None
) -> Controls | None:
    """The controls of a run; None where it has none."""
    names = names_of_controls(applied)
    if not names:
        return None
    cells: dict[str, float] = {}
    for (configuration, cell), baseline in baselines.cells.items():
        default = baselines.cells.get((DEFAULT_CONFIGURATION, cell))
        if configuration in names and default is not None:
            ratio = math.exp(_mean_log(baseline.iops) - _mean_log(default.iops))
            cells[str(cell)] = max(cells.get(str(cell), 0.0), abs(100 * ratio - 100))
    predicted = {p.configuration: p.relative for p in predictions.predictions} if predictions else {}
    distances = [abs(predicted[name] - 100) for name in names if name in predicted]
    return Controls(names, max(distances, default=None), cells)


def _mean_log(rates: Iterable[float]) -> float:
    logs = [math.log(rate) for rate in rates]
    return math.fsum(logs) / len(logs)
