"""The noise floor as it was measured: configurations that are the default under another name (A/A runs)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cephfit.baseline import Baselines
from cephfit.configuration import DEFAULT_CONFIGURATION
from cephfit.prediction import PredictionSet
from cephfit.protocols import Applied
from cephfit.results.cell_intervals import AgainstDefault


@dataclass(frozen=True, slots=True)
class Controls:
    """What the default differs from itself by.

    Attributes:
        names: of the controls.
        points: largest distance of a control's prediction from 100; None without a prediction.
        cell_points: per cell of the baselines the largest distance of a control's rate from the default's = 100,
            as in the heat map: within the rounds that both have.
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
    against, cells = AgainstDefault.of(baselines), dict[str, float]()
    for configuration, cell in baselines.cells:
        if configuration in names and (ratio := against.ratio(configuration, cell)) is not None:
            cells[str(cell)] = max(cells.get(str(cell), 0.0), abs(100 * ratio - 100))
    predicted = {p.configuration: p.relative for p in predictions.predictions} if predictions else {}
    distances = [abs(predicted[name] - 100) for name in names if name in predicted]
    return Controls(names, max(distances, default=None), cells)
