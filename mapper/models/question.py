"""What a prediction is made from: a profile and baselines, as a model uses them."""

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cephfit.core.statistics.variance import Table
from cephfit.core.values.baseline import Baseline, Baselines, OmittedCells, omitted_cells
from cephfit.core.values.cells import CELLS, Cell, LoadedCell, Op
from cephfit.core.values.demand import Demand
from cephfit.core.values.prediction import (
    Model,
    model_called,
)
from cephfit.core.values.profile import Profile
from cephfit.mapper.models.access_weights import counted_demands
from cephfit.mapper.models.completed_rates import InterpolatedSizes, Origins, Sources, completed, tables_of
from cephfit.mapper.models.mixture import MIXERS, CellMix, DemandMix, LimitBounds, Mix, Mixture, used_cells
from cephfit.mapper.models.model_error import NO_ERROR, ModelError

Measured = Cell | LoadedCell


@dataclass(frozen=True, slots=True)
class Kind:
    """What a model makes of a workload.

    Attributes:
        model: name of the model; ``time`` where ``waiting`` was asked and the workload has no waiting times.
        by_load: its demands or its counts, interpolated over all measured loads; else the 20 cells under the
            sweep's own load.
        by_waiting: demands weigh the time waited for them.
        is_interpolated: cells of the 20 are interpolated, because they were not measured.
    """

    model: str
    by_load: bool
    by_waiting: bool
    is_interpolated: bool = False


class Kinds:
    """What a model makes of workloads, given what was measured.

    Models that add time use sizes, depths, alignment and commits, where profile and baselines tell them. Of a
    profile that only has counts, a cell that was not measured is interpolated if others of its op were; a note
    names the share for which the other kind of offsets (random or sequential) stands in.
    """

    def __init__(self, model: str, baselines: Baselines) -> None:
        self._asked = model_called(model)
        loaded = {cell.pattern.op for name, cell in baselines.loaded if name == baselines.default}
        self._uses_demands = self._asked.adds_time and bool(baselines.loaded)
        self._lacking = np.array([(baselines.default, cell) not in baselines.cells for cell in CELLS])
        self._unknown = self._lacking & np.array([cell.pattern.op not in loaded for cell in CELLS])

    def of(self, profile: Profile) -> Kind:
        asked = self._asked
        if self._uses_demands and profile.demands:
            waits = asked.by_waiting and all(d.waiting_seconds is not None for d in profile.demands)
            waits = waits and any(d.waiting_seconds for d in profile.demands)
            return Kind(asked.name if waits else _without_waiting(asked), True, waits)
        by_load = False
        if self._uses_demands and self._lacking.any():
            used = np.array(profile.counts()) > 0
            by_load = bool((used & self._lacking).any() and not (used & self._unknown).any())
        return Kind(_without_waiting(asked), by_load, False, is_interpolated=by_load)


def _without_waiting(model: Model) -> str:
    """Return the name of the model that answers where the waiting times of a workload are unknown."""
    return "time" if model.by_waiting else model.name


@dataclass(frozen=True, slots=True)
class Question:
    """What a prediction is made from.

    Attributes:
        model: name of the model; ``time`` where ``waiting`` was asked and the profile has no waiting times.
        mix: the workload.
        measured: baselines by (configuration, cell), of the cells of ``mix`` and maybe others.
        omitted: cells of the workload that were not measured.
        by_load: whether ``measured`` has several loads.
        notes: caveats.
        sources: of the cells in ``measured`` whose rates follow from others.
        interpolated: cells of the workload that are interpolated; None: all were measured, or it has demands.
        by_counts: the profile only counts accesses.
    """

    model: str
    mix: Mix
    measured: Mapping[Any, Baseline]
    omitted: OmittedCells
    by_load: bool
    notes: tuple[str, ...]
    sources: Sources = field(default_factory=dict)
    interpolated: InterpolatedSizes | None = None
    by_counts: bool = False

    @classmethod
    def of(cls, model: str, profile: Profile, baselines: Baselines) -> "Question":
        """Return what ``model`` makes of a profile."""
        kind = Kinds(model, baselines).of(profile)
        if kind.by_load:
            return cls._of_demands(kind, profile, baselines)
        omitted = omitted_cells(used_cells(profile, model), baselines, model)
        weights = np.array(list(omitted.counts.values()), dtype=np.float64)
        mix = CellMix(tuple(omitted.counts), weights, MIXERS[model])
        notes = [*_unknown_randomness(profile, model), *([omitted.note] if omitted.note else [])]
        return cls(kind.model, mix, baselines.cells, omitted, False, tuple(notes))

    @classmethod
    def _of_demands(cls, kind: Kind, profile: Profile, baselines: Baselines) -> "Question":
        if not any(name == baselines.default for name, _ in baselines.loaded):
            baselines.of(baselines.default, CELLS[0])  # refused: there are no figures of the default
        demands = profile.demands or demands_of_counts(profile, baselines)
        measured_rates, its = baselines.loaded, completed(baselines)
        baselines = its.baselines
        measured = sorted(cell for name, cell in baselines.loaded if name == baselines.default)
        mix = DemandMix.of(profile, demands, measured, by_waiting=kind.by_waiting, where=baselines.source)
        default = mean_rates(baselines.loaded, baselines.default, mix.cells)
        notes = mix.notes(default, where=baselines.source)
        notes += _of_moved(measured_rates, baselines.loaded, frozenset(mix.cells))
        sizes = (
            InterpolatedSizes.of(demands, baselines.loaded, baselines.default) if kind.is_interpolated else None
        )
        return cls(
            kind.model, mix, baselines.loaded, OmittedCells({}), True, tuple(notes), its.sources, sizes,
            by_counts=kind.is_interpolated,
        )  # fmt: skip

    def error_in(self, errors: Mapping[str, ModelError]) -> ModelError:
        """Return the error of the answer, given those of the models by name."""
        return errors.get(self.model, NO_ERROR).of_answer(by_load=self.by_load and not self.by_counts)

    def interpolation(self, name: str, mixture: Mixture, confidence: float) -> float:
        """Return half the interval of the log prediction that comes from sizes that were not measured."""
        return 0.0 if self.interpolated is None else self.interpolated.half_width(name, mixture, confidence)

    def tables(self, baselines: Baselines, names: tuple[str, ...]) -> tuple[Table, Table, Origins | None]:
        """Return the tables of all rates and of the measured ones, and how they are connected."""
        if self.by_load:
            return tables_of(self.measured, self.sources, baselines, names)
        table = Table.of(baselines, names)
        return table, table, None

    def bounds(self, mixture: Mixture, name: str, baselines: Baselines, model: str) -> LimitBounds:
        """Return what the load's limit leaves open; loads with a limit are not part of ``Baselines.loaded``."""
        if self.by_load:
            return LimitBounds(1.0, 1.0)
        cells = tuple(cell for cell in self.mix.cells if isinstance(cell, Cell))
        return LimitBounds.of(mixture, name, baselines, cells, model)


_NOTED_MOVE = 0.02
"""Smallest move of a rate, relative to it, that a note states."""


def _of_moved(measured: Mapping[Any, Baseline], moved: Mapping[Any, Baseline], cells: Set[Any]) -> list[str]:
    """Return a note if rates of cells were moved by much (``shared_rates``)."""
    largest = max(
        (abs(moved[key].iops[0] / found.iops[0] - 1) for key, found in measured.items() if key[1] in cells),
        default=0.0,
    )
    if largest < _NOTED_MOVE:
        return []
    return [
        "rates were moved towards those of the configurations that are alike in a cell, here by up to "
        f"{100 * largest:.0f} %: most of these differences is noise, and the default's would be in every ratio"
    ]


def _unknown_randomness(profile: Profile, model: str) -> list[str]:
    """Return notes on ops without any access that follows another one on its disk."""
    if model_called(model).all_random is not None:
        return []
    unjudged = [op for op in Op if any(profile.accesses[op].values()) and profile.random_share(op) is None]
    return [f"the trace does not show which {op.value}s are random: all count as sequential" for op in unjudged]


def demands_of_counts(profile: Profile, baselines: Baselines) -> tuple[Demand, ...]:
    """Return the demands of a profile that only counts accesses, at the depth of the load of ``Baselines.cells``.

    Where that is not known, the depth is not either.
    """
    of_load = (
        float(cell.iodepth)
        for (name, cell), found in baselines.loaded.items()
        if cell.nbytes == cell.bin_cell.size.benchmark_nbytes
        and baselines.cells.get((name, cell.bin_cell)) == found
    )
    depth = next(of_load, None)
    return tuple(replace(demand, depth=depth) for demand in counted_demands(profile))


def mean_rates(
    measured: Mapping[Any, Baseline], configuration: str, cells: Sequence[Measured]
) -> NDArray[np.float64]:
    """Return the mean IOPS per cell, shape (cells,)."""
    repeats = [measured[configuration, cell].iops for cell in cells]
    return np.array([math.fsum(iops) / len(iops) for iops in repeats])


def comparable(
    measured: Mapping[Any, Baseline], baselines: Baselines, cells: Sequence[Measured]
) -> tuple[list[str], list[str]]:
    """Return the configurations that can be compared with the default, and a note on each one that cannot.

    A comparable configuration has every cell, with the default's number of clients: the rate depends on it.

    Raises:
        InputError: the default lacks a cell.
    """
    for cell in cells:
        if isinstance(cell, Cell):
            baselines.of(baselines.default, cell)
    names = (*baselines.configurations, *(name for name, _ in (*measured, *baselines.missing)))
    tried = dict.fromkeys(names)
    complete: list[str] = []
    notes: list[str] = []
    for name in tried:
        if name == baselines.default:
            continue
        lacking = [cell for cell in cells if (name, cell) not in measured]
        if not lacking:
            unlike = [c for c in cells if measured[name, c].n_clients != measured[baselines.default, c].n_clients]
            if unlike:
                notes.append(
                    f"configuration {name} is omitted: measured with another number of clients than "
                    f"{baselines.default} in {', '.join(map(str, unlike))}"
                )
            else:
                complete.append(name)
            continue
        reasons = dict.fromkeys(_why_missing(baselines, name, cell) for cell in lacking)
        notes.append(
            f"configuration {name} is omitted: no baseline for {', '.join(map(str, lacking))} "
            f"({'; '.join(reasons)})"
        )
    return complete, notes


def _why_missing(baselines: Baselines, configuration: str, cell: Measured) -> str:
    own = cell if isinstance(cell, Cell) else cell.bin_cell
    return baselines.missing.get((configuration, own), "it was not measured")
