"""Supply: how many accesses of a workload's mix each configuration serves per second, with intervals. Pure.

The mix adds up as time: with w_i the weight of the measured kind i in an access of the mix, one access takes
Σ w_i / r_i seconds, and its inverse is the rate. docs/mathematics.md has the formulas.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cephfit.core.errors import InputError
from cephfit.core.statistics.absolute_spread import Absolute
from cephfit.core.statistics.round_effects import Floats
from cephfit.core.statistics.variance import Table
from cephfit.core.units import format_percent
from cephfit.core.values.baseline import Baseline, Baselines, omitted_cells
from cephfit.core.values.cells import Cell, LoadedCell
from cephfit.core.values.demand import Demand
from cephfit.core.values.prediction import DEFAULT_CONFIDENCE
from cephfit.core.values.profile import Profile
from cephfit.core.values.supply import Estimate, Supply, SupplySet, WorkloadDemand, mean_outstanding
from cephfit.mapper.models.access_weights import AccessWeights
from cephfit.mapper.models.completed_rates import Origins, completed, tables_of
from cephfit.mapper.models.mix_predictor import PairedRates
from cephfit.mapper.models.mixture import used_cells
from cephfit.mapper.models.question import demands_of_counts, mean_rates

_MODEL = "time"
_NO_RATES_IN_A_MIX = (
    "what is served is not known: each cell was measured while I/O of the other direction ran at the same time, "
    "and such rates do not add up"
)
FAR_FASTER = 0.25
"""Accesses that took less than this share of the measured time are not those that were measured: the trace is of
other storage, or of a load below a limit that full speed reaches."""
_DIFFERS = 1.05
_AT_ANOTHER_DEPTH = (
    "what is served is the most at any measured depth; predictions are for the depth of the workload, so their "
    "ratios differ"
)
INTERVALS = (
    "Intervals of what is served hold the scatter of the measurements, each by itself. They do not hold what the "
    "model omits, such as interference between reads and writes."
)


def supply_set(
    profile: Profile,
    baselines: Baselines,
    *,
    confidence: float = DEFAULT_CONFIDENCE,
    with_mix_notes: bool = True,
) -> SupplySet:
    """Return what a workload needs, and what each configuration serves of its mix.

    Args:
        profile: of the workload; its demands if it has them, else its counts.
        baselines: of the configurations.
        confidence: level of each interval by itself, 0 to 1.
        with_mix_notes: note what was not measured of the mix, as predictions do.

    Raises:
        InputError: the default lacks a rate that the mix needs, or the confidence is not between 0 and 1.
    """
    if not 0 < confidence < 1:
        raise InputError(
            f"{confidence} is not a confidence level",
            remedy="give a number between 0 and 1, such as 0.95",
            where="confidence",
        )
    demand = WorkloadDemand.of(profile)
    found = SupplySet(profile.name, baselines.source, demand, (), confidence, baselines.default)
    if baselines.measured_load.read_pct is not None:
        return replace(found, notes=(_NO_RATES_IN_A_MIX,))
    measuring, of_mix = _measuring(profile, baselines)
    notes = [*of_mix] if with_mix_notes else []
    rows = [its for name in baselines.configurations if (its := measuring.supply_of(name, confidence)) is not None]
    named = {s.configuration for s in rows}
    if lacking := [name for name in baselines.configurations if name not in named]:
        notes.append(f"no supply is known of {', '.join(lacking)}, which lack rates that the mix needs")
    notes += _of_faster_trace(demand, next((s for s in rows if s.configuration == baselines.default), None))
    if any(s.most.value > _DIFFERS * s.own_depth.value for s in rows):
        notes.append(_AT_ANOTHER_DEPTH)
    if rows and rows[0].n_clients > 1:
        notes.append(f"supply is what {rows[0].n_clients} clients got together")
    return replace(found, supplies=tuple(rows), notes=(*notes, INTERVALS))


def _of_faster_trace(demand: WorkloadDemand | None, default: Supply | None) -> list[str]:
    """Return a note if the workload waited far less than its accesses take on the default."""
    if demand is None or demand.busy_share is None or default is None or default.n_clients > 1:
        return []
    share = demand.busy_share * default.own_depth.value / demand.accesses_per_s
    if share >= FAR_FASTER:
        return []
    name = default.configuration
    return [
        f"its accesses took {format_percent(share)} of the time that they take on {name} by its cells: if the "
        f"trace is of other storage, it waits longer on {name}, and may gain more than its trace shows"
    ]


def supply_or_reason(
    profile: Profile, baselines: Baselines, *, confidence: float = DEFAULT_CONFIDENCE
) -> SupplySet:
    """Return ``supply_set``; without supplies, and with the reason as a note, where rates of the mix are lacking.

    For answers next to a prediction, which may need other rates, and which has the notes on the mix.
    """
    try:
        return supply_set(profile, baselines, confidence=confidence, with_mix_notes=False)
    except InputError as error:
        demand = WorkloadDemand.of(profile)
        return SupplySet(
            profile.name, baselines.source, demand, (), confidence, baselines.default, (f"{error.what}",)
        )


@dataclass(frozen=True, slots=True)
class _Mix:
    """An access of the mix as a weighted sum of measured times.

    Attributes:
        cells: measured kinds.
        weights: of the time of each, shape (cells,).
    """

    cells: tuple[Cell, ...] | tuple[LoadedCell, ...]
    weights: Floats


@dataclass(frozen=True, slots=True)
class _Depths:
    """The mix as it was issued, and with all demands at each measured depth.

    Attributes:
        own: with as many outstanding as the workload has.
        of_depths: by depth; empty if the depths of the measurement are unknown.
        times_deeper: how many times as much the deepest demand has outstanding as the deepest measurement; 1 if
            the workload has no more on average.
    """

    own: _Mix
    of_depths: Mapping[int, _Mix]
    times_deeper: float = 1.0


@dataclass(frozen=True, slots=True)
class _Measuring:
    """The measurements of all configurations, and the mix in terms of them.

    Attributes:
        table: all rates; ``names`` are its rows.
        names: configurations, the default first.
        absolute: spread of the measurements; None where nothing was measured twice.
        measured: baselines by (configuration, cell).
        mixes: by configuration; without those that lack rates.
        baselines: what was measured.
        origins: of the rates, where some follow from others.
    """

    table: Table
    names: tuple[str, ...]
    absolute: Absolute | None
    measured: Mapping[Any, Baseline]
    mixes: Mapping[str, _Depths]
    baselines: Baselines
    origins: Origins | None = None

    def supply_of(self, name: str, confidence: float) -> Supply | None:
        """Return the supply of a configuration; None if it lacks rates."""
        mix = self.mixes.get(name)
        if mix is None:
            return None
        own = self._estimate(name, mix.own, confidence)
        at_limit = any(
            isinstance(cell, Cell) and (name, cell) in self.baselines.measured_load.at_limit
            for cell in mix.own.cells
        )
        # At the level of all depths together, so that the best of them may be chosen.
        joint = 1 - (1 - confidence) / max(1, len(mix.of_depths))
        by_depth = {depth: self._estimate(name, its, joint) for depth, its in mix.of_depths.items()}
        most, depth = own, None
        if by_depth:
            depth = max(by_depth, key=lambda d: by_depth[d].value)
            most = Estimate(
                by_depth[depth].value,
                max(its.low for its in by_depth.values()),
                max(its.high for its in by_depth.values()),
            )
            if own.value > most.value:  # its demands have different depths, each of which suits its kind
                most = own
        n_clients = self.measured[name, mix.own.cells[0]].n_clients
        # k times as many in flight get at most k times the rate: none of them waits less than alone.
        more = math.inf if at_limit else mix.times_deeper
        if more > 1:
            own, most = (replace(its, high=its.high * more) for its in (own, most))
        return Supply(name, own, most, depth, more > 1, n_clients)

    def _estimate(self, name: str, mix: _Mix, confidence: float) -> Estimate:
        own, default = (self._means(of, mix.cells) for of in (name, self.baselines.default))
        used = np.array([self.table.cells.index(cell) for cell in mix.cells])
        paired = PairedRates.of(self.table, self.names.index(name), used, default, own, self.origins)
        seconds = mix.weights / paired.rates
        rate = 1 / float(seconds.sum())
        if self.absolute is None:
            return Estimate(rate, 0.0, math.inf)
        gradient = seconds * rate
        weights = paired.weights_of_rows(gradient, np.zeros(len(gradient)))
        factor = self.absolute.factor_of(weights, confidence, paired.rows)
        return Estimate(rate, rate / factor, rate * factor)

    def _means(self, name: str, cells: Sequence[Cell] | Sequence[LoadedCell]) -> Floats:
        """Return mean rates, NaN where there are none: such a default is not compared with."""
        known = [cell for cell in cells if (name, cell) in self.measured]
        means = dict(zip(known, mean_rates(self.measured, name, known), strict=True))
        return np.array([means.get(cell, math.nan) for cell in cells])


def _measuring(profile: Profile, baselines: Baselines) -> tuple[_Measuring, list[str]]:
    if not any(name == baselines.default for name, _ in baselines.loaded):
        return _of_cells(profile, baselines)
    its = completed(baselines)
    loaded = its.baselines.loaded
    demands = profile.demands or demands_of_counts(profile, baselines)
    n_clients = next(iter(loaded.values())).n_clients
    per_client = (mean_outstanding(profile) or 0.0) / n_clients
    deepest = max((d.depth or 0.0 for d in demands), default=0.0) / n_clients
    kinds: dict[str, list[LoadedCell]] = {}
    for name, cell in loaded:
        kinds.setdefault(name, []).append(cell)
    known: dict[tuple[LoadedCell, ...], tuple[_Depths, list[str]] | None] = {}
    mixes: dict[str, _Depths] = {}
    notes: list[str] = []
    for name, cells in kinds.items():
        measured = tuple(sorted(cells))
        if measured not in known:
            try:
                rates = dict(zip(measured, mean_rates(loaded, name, measured).tolist(), strict=True))
                known[measured] = _depths(profile, demands, rates, (per_client, deepest), baselines.source)
            except InputError:
                if name == baselines.default:
                    raise
                known[measured] = None
        if (found := known[measured]) is not None:
            mixes[name], of_kinds = found
            notes += of_kinds if name == baselines.default else []
    names = baselines.configurations
    table, directly, origins = tables_of(loaded, its.sources, baselines, names)
    return _Measuring(table, names, Absolute.of(directly), loaded, mixes, baselines, origins), notes


def _depths(
    profile: Profile,
    demands: Sequence[Demand],
    rates: Mapping[LoadedCell, float],
    outstanding: tuple[float, float],
    where: str,
) -> tuple[_Depths, list[str]]:
    """Return the mix at all depths, and what was not measured of it.

    Args:
        rates: by measured kind, sorted.
        outstanding: of the workload, on average and of its deepest demand, divided among the measured clients; 0
            if unknown.
        where: origin of the rates, for errors.

    Raises:
        InputError: no rate was measured for an op, or for accesses as large as those of a part that matters.
    """
    measured = tuple(rates)
    depths = sorted({cell.iodepth for cell in measured})
    accesses = np.array([d.accesses for d in demands])
    shares = accesses / accesses.sum()

    def weighed(of: Sequence[Demand]) -> tuple[AccessWeights, _Mix]:
        access = AccessWeights.of(of, measured, profile.commits, where=where)
        return access, _Mix(access.cells, shares @ access.weights)

    access, own = weighed(demands)
    seconds = shares * (access.weights @ np.array([1 / rates[cell] for cell in access.cells]))
    of_time = seconds / seconds.sum()
    access.refuse_unmeasured(of_time, where=where)
    of_depths = {depth: weighed(_at_depth(demands, depth))[1] for depth in depths}
    mean, deepest = outstanding
    times_deeper = deepest / depths[-1] if mean > depths[-1] else 1.0
    return _Depths(own, of_depths, times_deeper), access.notes(of_time)


def _at_depth(demands: Sequence[Demand], depth: int) -> tuple[Demand, ...]:
    return tuple(replace(d, depth=float(depth)) for d in demands)


def _of_cells(profile: Profile, baselines: Baselines) -> tuple[_Measuring, list[str]]:
    """Return the mix in the 20 cells, where nothing is known of the load that they were measured under."""
    omitted = omitted_cells(used_cells(profile, _MODEL), baselines, _MODEL)
    cells = tuple(omitted.counts)
    for cell in cells:
        baselines.of(baselines.default, cell)  # refused where the default lacks it
    counts = np.array(list(omitted.counts.values()))
    mix = _Depths(_Mix(cells, counts / counts.sum()), {})
    mixes = {
        name: mix for name in baselines.configurations if all((name, cell) in baselines.cells for cell in cells)
    }
    names = baselines.configurations
    table = Table.of(baselines, names)
    measuring = _Measuring(table, names, Absolute.of(table), baselines.cells, mixes, baselines)
    return measuring, [omitted.note] if omitted.note else []
