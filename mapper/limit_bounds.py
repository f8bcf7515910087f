"""What is known of a prediction where clients reached the load's own limit: rates there are lower bounds."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from cephfit.baseline import Baselines
from cephfit.cells import Cell
from cephfit.mapper.mixture import Mixture, Rates
from cephfit.prediction_model import model_called


@dataclass(frozen=True, slots=True)
class LimitBounds:
    """How far the ratio to the default may be from what was measured.

    Attributes:
        down: factor of the ratio if the default were infinitely fast where it reached the limit; 1 where nowhere.
        up: the same for the configuration; infinite where nothing bounds the ratio.
    """

    down: float
    up: float

    @classmethod
    def of(
        cls, mixture: Mixture, configuration: str, baselines: Baselines, cells: Sequence[Cell], model: str
    ) -> "LimitBounds":
        """Those of one configuration's ``mixture``, whose cells are ``cells``."""
        at_limit = baselines.measured_load.at_limit

        def reached(name: str) -> bool:
            return any((name, cell) in at_limit for cell in cells)

        def left(name: str, parts: Rates) -> float:
            return math.fsum(part for cell, part in zip(cells, parts, strict=True) if (name, cell) not in at_limit)

        down = left(baselines.default, mixture.default_gradient) if reached(baselines.default) else 1.0
        if not reached(configuration):
            return cls(down, 1.0)
        own = left(configuration, mixture.gradient) if model_called(model).adds_time else 0.0
        return cls(down, 1 / own if own else math.inf)

    @property
    def are_open(self) -> bool:
        """Whether the limit was reached at all."""
        return (self.down, self.up) != (1.0, 1.0)

    def widened(self, low: float, high: float) -> tuple[float, float]:
        """An interval of the ratio that holds whatever the storage could have done without the limit."""
        return self.down * low, self.up * high
