"""How a mix of accesses adds up: as relative rates (Formula 2.1) or as time.

Where clients reached the load's own limit, rates are lower bounds, and so are predictions (``LimitBounds``).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import CELLS, Cell, LoadedCell, Pattern
from cephfit.core.values.prediction import CellReason
from cephfit.core.values.prediction_model import MODELS, model_called
from cephfit.core.values.profile import Profile

Rates = NDArray[np.float64]
"""One positive number per cell that the workload uses: counts, or I/Os per second; shape (cells,)."""


@dataclass(frozen=True, slots=True)
class Mixture:
    """One configuration's performance for a mix, relative to the default.

    Attributes:
        relative: default = 100.
        ratios: the configuration's rate in each part of the mix (a cell, or a demand), default = 100. Shape
            (parts,).
        weights: each part's share of the workload in the model's own measure; the sum is 1. Shape (parts,).
        points: the change of ``relative`` by each part; the sum is ``relative`` - 100. Shape (parts,).
        gradient: derivative of log(relative) by the log of the configuration's rate in each measured cell. Shape
            (cells,).
        default_gradient: minus the derivative of log(relative) by the log of the default's rates. Both gradients
            are positive and have the same sum, at most 1: doubling all rates, with the default's, changes nothing.
    """

    relative: float
    ratios: Rates
    weights: Rates
    points: Rates
    gradient: Rates
    default_gradient: Rates


def added_as_rates(counts: Rates, default: Rates, rates: Rates) -> Mixture:
    """Formula 2.1 (Meyer 2017): sum over cells of (share of the accesses) x (rate / default's rate) x 100."""
    ratios = rates / default
    total = math.fsum(counts)
    parts = counts * ratios
    gradient = parts / math.fsum(parts)
    weights = counts / total
    points = weights * (100 * ratios - 100)
    return Mixture(100 * (math.fsum(parts) / total), 100 * ratios, weights, points, gradient, gradient)


def added_as_time(counts: Rates, default: Rates, rates: Rates) -> Mixture:
    """The mix as time: 100 x sum(n / default) / sum(n / rate), the weighted harmonic mean of the rate ratios.

    A cell's points are the time that it saves over the configuration's time for the mix. With T = sum(t),
    100 x T_default / T - 100 = sum over cells of 100 x (t_default - t) / T, exactly.
    """
    default_times, times = counts / default, counts / rates
    default_total, total = math.fsum(default_times), math.fsum(times)
    weights = default_times / default_total
    points = 100 * (default_times - times) / total
    return Mixture(100 * (default_total / total), 100 * (rates / default), weights, points, times / total, weights)


MIXERS: Mapping[str, Callable[[Rates, Rates, Rates], Mixture]] = {
    model.name: added_as_time if model.adds_time else added_as_rates for model in MODELS
}


class Mix(Protocol):
    """A workload as a mix of measured cells."""

    @property
    def cells(self) -> tuple[Cell | LoadedCell, ...]:
        """The measured cells that the mix uses, in the order of all arrays of rates."""

    def added(self, default: Rates, rates: Rates) -> Mixture:
        """Add the mix up under a configuration, given the default's rates and its own in ``cells``."""

    def reasons(self, mixture: Mixture) -> tuple[CellReason, ...]:
        """Return the cells of the 20, those that change the prediction most first; among equals, by weight."""


@dataclass(frozen=True, slots=True)
class CellMix:
    """Implements ``Mix`` for a workload whose accesses are counted in the 20 cells.

    Attributes:
        cells: with accesses.
        counts: accesses per cell, shape (cells,).
        mixer: adds them up.
    """

    cells: tuple[Cell, ...]
    counts: Rates
    mixer: Callable[[Rates, Rates, Rates], Mixture]

    def added(self, default: Rates, rates: Rates) -> Mixture:
        return self.mixer(self.counts, default, rates)

    def reasons(self, mixture: Mixture) -> tuple[CellReason, ...]:
        rows = [
            CellReason(cell, float(weight), float(ratio), float(points))
            for cell, weight, ratio, points in zip(
                self.cells, mixture.weights, mixture.ratios, mixture.points, strict=True
            )
        ]
        return tuple(sorted(rows, key=lambda reason: (-abs(reason.points), -reason.weight)))


def used_cells(profile: Profile, model: str) -> dict[Cell, float]:
    """Return the accesses per cell as ``model`` reads the profile, without empty cells.

    Raises:
        InputError: the profile has no accesses.
    """
    counts = profile.cell_counts()
    if (all_random := model_called(model).all_random) is not None:
        counts = _all_of_one_kind(counts, is_random=all_random)
    used = {cell: n for cell in CELLS if (n := counts[cell]) > 0}
    if not used:
        raise InputError(
            "the workload has no accesses",
            where=f"profile {profile.name}",
            remedy="trace it while it runs, and profile that trace",
        )
    return used


def _all_of_one_kind(counts: dict[Cell, float], *, is_random: bool) -> dict[Cell, float]:
    moved = dict.fromkeys(CELLS, 0.0)
    for cell, n in counts.items():
        moved[Cell(cell.size, Pattern.of(cell.pattern.op, is_random=is_random))] += n
    return moved


@dataclass(frozen=True, slots=True)
class LimitBounds:
    """How far the ratio to the default may be from the measured one.

    Attributes:
        down: factor of the ratio if the default were infinitely fast where it reached the limit; else 1.
        up: the same for the configuration; infinite if nothing bounds the ratio.
    """

    down: float
    up: float

    @classmethod
    def of(
        cls, mixture: Mixture, configuration: str, baselines: Baselines, cells: Sequence[Cell], model: str
    ) -> "LimitBounds":
        """Return the bounds of one configuration's ``mixture`` over ``cells``."""
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
        """Whether the limit was reached."""
        return (self.down, self.up) != (1.0, 1.0)

    def widened(self, low: float, high: float) -> tuple[float, float]:
        """Widen an interval of the ratio so that it holds for any rate of the storage without the limit."""
        return self.down * low, self.up * high
