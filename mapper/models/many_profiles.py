"""Predictions for many workloads at once: the same figures as ``MixPredictor``, by products of matrices. Pure.

Workloads are taken in blocks. Those of a block that are compared with the same configurations share the spread of
the measurements, and are predicted together (``many_variances`` has the formulas). Single workloads are left to
``MixPredictor``: where a configuration has one of their cells in other rounds than the others, where a load's
limit was reached in one, where one was not measured under the default or is interpolated, and where the rate of
one follows from those of others.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cephfit.core.statistics.round_effects import Booleans, Floats
from cephfit.core.statistics.variance import LARGEST_LOG, Table, spread_of
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, Cell, LoadedCell
from cephfit.core.values.prediction import DEFAULT_CONFIDENCE, ManyPredictions, Model, PredictionSet, model_called
from cephfit.core.values.profile import Profile
from cephfit.mapper import MODELS, predictor
from cephfit.mapper.models.completed_rates import Completed, completed, tables_of
from cephfit.mapper.models.many_mixtures import AddingRates, AddingTime, Rows, Work, counted_work, demanded_work
from cephfit.mapper.models.many_variances import Quantiles, RateScatter, ScatterCoefficients, Singles, TimeScatter
from cephfit.mapper.models.model_error import ERRORS, NO_ERROR, ModelError
from cephfit.mapper.models.question import Kind, Kinds

_BLOCK = 512
"""Workloads whose demands are in memory together."""
_PLACES = 1 << 15
"""Predictions that are made together: so many that their arrays fit a processor's cache."""


def predict_many(
    profiles: Sequence[Profile],
    baselines: Baselines,
    model: str = MODELS[0],
    confidence: float = DEFAULT_CONFIDENCE,
    *,
    with_error: bool = False,
) -> ManyPredictions:
    """Predict every configuration for every workload, as ``predictor(model).predict`` does for one of them.

    Only the figures are made, no reasons and no notes on single workloads. Predictions differ from those for one
    workload by rounding, ends of intervals by at most 1e-6 of their distance from the prediction.

    Args:
        profiles: of the workloads, N of them.
        baselines: the rates of the configurations.
        model: one of ``MODELS``.
        confidence: level of the intervals, joint over the configurations that are compared with the default.
        with_error: the intervals contain the model's own error.

    Raises:
        InputError: there is no such model, the confidence is not between 0 and 1, a profile has no accesses, or
            the default lacks a cell that one uses.
    """
    single = predictor(model, confidence=confidence, with_error=with_error)
    table = _Answers.empty(profiles, baselines, model)
    alone: list[int] = []
    for kind, rows in _by_kind(profiles, baselines, model).items():
        if kind.is_interpolated:
            alone += rows
            continue
        sweep = _Sweep.of(baselines, table.names, kind)
        known = ERRORS.get(kind.model, NO_ERROR) if with_error else NO_ERROR
        error = known.of_answer(by_load=kind.by_load)  # interpolated counts are predicted alone
        for begin in range(0, len(rows), _BLOCK):
            block = rows[begin : begin + _BLOCK]
            found = [profiles[i] for i in block]
            work = sweep.work_of(found)
            alone += _predict_block(np.array(block, dtype=np.intp), work, sweep, table, error, confidence)
        for i in rows:
            table.models[i] = kind.model
    for i in sorted(alone):
        table.put_one(i, single.predict(profiles[i], baselines))
    return ManyPredictions(
        profiles=tuple(p.name for p in profiles),
        configurations=table.names,
        relative=table.relative,
        low=table.low,
        high=table.high,
        best_of=table.best_of,
        models=tuple(table.models),
        baselines=baselines.source,
        confidence=confidence,
    )


@dataclass(frozen=True, slots=True)
class _Answers:
    """The arrays of ``ManyPredictions``, to be filled."""

    names: tuple[str, ...]
    relative: Floats
    low: Floats
    high: Floats
    best_of: Rows
    models: list[str]

    @classmethod
    def empty(cls, profiles: Sequence[Profile], baselines: Baselines, model: str) -> "_Answers":
        names = baselines.configurations
        relative, low, high = (np.empty((len(profiles), len(names))) for _ in range(3))
        return cls(names, relative, low, high, np.zeros(len(profiles), dtype=np.intp), [model] * len(profiles))

    def begin(self, rows: Rows) -> None:
        """Begin rows: only the default is known."""
        for ends in (self.relative, self.low, self.high):
            ends[rows, 1:] = math.nan
            ends[rows, 0] = 100.0

    def put_one(self, row: int, answer: PredictionSet) -> None:
        """Write the answer for one workload."""
        self.begin(np.array([row]))
        self.models[row] = answer.model
        self.best_of[row] = self.names.index(answer.best)
        for p in answer.predictions:
            at = row, self.names.index(p.configuration)
            self.relative[at], self.low[at], self.high[at] = p.relative, p.low, p.high

    def put_best(self, rows: Rows, columns: Rows, relative: Floats, is_better: Booleans) -> None:
        """Write the best of those that the measurements show to be better, shape (rows, columns)."""
        better = np.where(is_better, relative, 0.0)
        found = better.argmax(axis=1)
        self.best_of[rows] = np.where(better[np.arange(len(rows)), found] > 0, columns[found], 0)

    def put(self, rows: Rows, columns: Rows, relative: Floats, growth: Floats) -> None:
        """Write predictions and the factors to the ends of their intervals, shape (rows, columns) each."""
        if len(columns) == len(self.names) - 1:
            self.relative[rows, 1:] = relative
            self.high[rows, 1:] = relative * growth
            self.low[rows, 1:] = np.divide(relative, growth, out=growth)
            for ends in (self.relative, self.low, self.high):
                ends[rows, 0] = 100.0
            return
        self.begin(rows)
        at = np.ix_(rows, columns)
        self.relative[at] = relative
        self.high[at], self.low[at] = relative * growth, relative / growth


def _by_kind(profiles: Sequence[Profile], baselines: Baselines, model: str) -> Mapping[Kind, list[int]]:
    """Return each kind with its workloads."""
    kinds, found = Kinds(model, baselines), dict[Kind, list[int]]()
    for i, profile in enumerate(profiles):
        found.setdefault(kinds.of(profile), []).append(i)
    return found


@dataclass(frozen=True, slots=True)
class _Group:
    """The configurations that some workloads are compared with: K of them, and P cells.

    Attributes:
        columns: in the answers, shape (K,).
        is_usable: cells with rates of all in the same rounds, shape (M,).
        cells: their indices, shape (P,).
        coefficients: None where the spread is unknown.
        quantiles: of the level of one interval.
    """

    columns: Rows
    is_usable: Booleans
    cells: Rows
    coefficients: ScatterCoefficients | None
    quantiles: Quantiles | None


@dataclass(frozen=True, slots=True)
class _Sweep:
    """The measurements as arrays: J configurations, the default first, and M cells.

    Attributes:
        baselines: what was measured.
        completed: the same with the rates that follow from others.
        names: of the configurations.
        kind: of the workloads.
        model: that was asked for.
        cells: M of them.
        rates: mean IOPS, NaN where not measured, shape (J, M).
        lacks: not measured, or with another number of clients than the default, shape (J, M).
        groups: those made so far.
    """

    baselines: Baselines
    completed: Completed
    names: tuple[str, ...]
    kind: Kind
    model: Model
    cells: tuple[Cell | LoadedCell, ...]
    rates: Floats
    lacks: Booleans
    groups: dict[bytes, _Group] = field(default_factory=dict)

    @classmethod
    def of(cls, baselines: Baselines, names: tuple[str, ...], kind: Kind) -> "_Sweep":
        its = completed(baselines) if kind.by_load else Completed(baselines, {})
        measured: Mapping[Any, Baseline] = its.baselines.loaded if kind.by_load else baselines.cells
        cells: tuple[Cell | LoadedCell, ...] = CELLS
        if kind.by_load:
            cells = tuple(sorted(cell for name, cell in measured if name == baselines.default))
        rates = np.full((len(names), len(cells)), math.nan)
        clients = np.zeros(rates.shape, dtype=np.int64)
        row = {name: i for i, name in enumerate(names)}
        column = {cell: i for i, cell in enumerate(cells)}
        for (name, cell), baseline in measured.items():
            if cell in column:
                at = row[name], column[cell]
                rates[at] = math.fsum(baseline.iops) / len(baseline.iops)
                clients[at] = baseline.n_clients
        return cls(baselines, its, names, kind, model_called(kind.model), cells, rates, clients != clients[0])

    def work_of(self, profiles: Sequence[Profile]) -> Work:
        """Return what workloads do in the cells.

        Raises:
            InputError: no rate was measured for an op of a workload, or accesses are far larger than all measured
                ones.
        """
        if not self.kind.by_load:
            return counted_work(profiles, self.model, self.rates[0])
        waiting, where = self.kind.by_waiting, self.baselines.source
        return demanded_work(profiles, self.cells, self.rates[0], by_waiting=waiting, where=where)

    def group(self, is_compared: Booleans, confidence: float) -> _Group:
        """Return the group of the configurations of a row, shape (J - 1,)."""
        key = np.packbits(is_compared).tobytes()
        if key not in self.groups:
            self.groups[key] = self._group(np.flatnonzero(is_compared) + 1, confidence)
        return self.groups[key]

    def _group(self, columns: Rows, confidence: float) -> _Group:
        compared = tuple(self.names[k] for k in (0, *columns))
        if self.kind.by_load:
            loaded = self.completed.baselines.loaded
            table, directly, origins = tables_of(loaded, self.completed.sources, self.baselines, compared)
        else:
            table, origins = Table.of(self.baselines, compared), None
            directly = table
        whole = {id(block): block.whole for block in table.blocks}
        column = {cell: c for c, cell in enumerate(table.cells)}
        follows = np.zeros(len(table.cells), dtype=np.bool_)
        if origins is not None:
            follows |= origins.follows.any(axis=0)
        # A limit bounds predictions, which only the predictor of one workload does.
        limited = {cell for _, cell in self.baselines.measured_load.at_limit} if not self.kind.by_load else set()
        complete = ~self.lacks[columns].any(axis=0) & ~np.isnan(self.rates[0])
        for m in np.flatnonzero(complete):
            c = column[self.cells[m]]
            complete[m] = whole[id(table.blocks[c])] and not follows[c] and self.cells[m] not in limited
        cells = np.flatnonzero(complete)
        spread = spread_of(directly) if len(columns) else None
        if spread is None:
            return _Group(columns, complete, cells, None, None)
        used = np.array([directly.cells.index(self.cells[m]) for m in cells], dtype=np.intp)
        level = 1 - (1 - confidence) / (2 * len(columns))
        coefficients = ScatterCoefficients.of(spread, directly, used)
        return _Group(columns, complete, cells, coefficients, Quantiles.of(level))


def _predict_block(
    rows: Rows, work: Work, sweep: _Sweep, answers: _Answers, error: ModelError, confidence: float
) -> list[int]:
    """Predict some workloads, and return those that must be predicted one by one.

    Args:
        rows: of the workloads in the answers, shape (N,).
        work: of the same workloads.
    """
    used = work.used.astype(np.float64)
    is_compared = used @ sweep.lacks[1:].T == 0
    groups: dict[bytes, list[int]] = {}
    for i, key in enumerate(np.packbits(is_compared, axis=1)):
        groups.setdefault(key.tobytes(), []).append(i)
    alone: list[int] = []
    for members in groups.values():
        at = np.array(members, dtype=np.intp)
        group = sweep.group(is_compared[at[0]], confidence)
        # By load, configurations that lack cells are predicted one by one, from those that they have.
        is_whole = not sweep.kind.by_load or bool(is_compared[at[0]].all())
        fits = work.used[at].any(axis=1) & ~(work.used[at] & ~group.is_usable).any(axis=1) & is_whole
        alone += rows[at[~fits]].tolist()
        at = at[fits]
        n_together = max(1, _PLACES // max(1, len(group.columns)))
        if not len(group.columns) or not len(at):
            answers.begin(rows[at])
            continue
        adding = _adding(group, np.flatnonzero(work.used[at].any(axis=0)), sweep)
        for begin in range(0, len(at), n_together):
            part = at[begin : begin + n_together]
            chosen = work.chosen(part)
            relative, widths = adding.added(chosen)
            logs = np.log((relative / 100).astype(np.float32))
            answers.put_best(rows[part], group.columns, relative, logs > widths)
            if error is not NO_ERROR:
                spreads = adding.spreads(chosen).astype(np.float32) if error.by_spread else 0.0
                squares = error.squared_half_widths(logs, confidence, spreads)
                squares += widths**2
                widths = np.sqrt(squares, out=squares)
            answers.put(rows[part], group.columns, relative, _growth(widths))
    return alone


def _growth(widths: Singles) -> Floats:
    """Return the factors of log half widths; infinite where they are too large for a double."""
    with np.errstate(over="ignore"):
        growth = np.exp(widths, dtype=np.float64)
    if widths.max() >= LARGEST_LOG:
        growth[widths >= LARGEST_LOG] = math.inf
    return np.asarray(growth)


def _adding(group: _Group, cells: Rows, sweep: _Sweep) -> "AddingTime | AddingRates":
    """Return how the mixes of a group add up that use some of its cells."""
    coefficients, quantiles = group.coefficients, group.quantiles
    if coefficients is not None:
        coefficients = coefficients.chosen(np.searchsorted(group.cells, cells))
    rates, default = sweep.rates[np.ix_(group.columns, cells)].T, sweep.rates[0, cells]
    if sweep.model.adds_time:
        times = np.ascontiguousarray(1 / rates)
        of_time = None if coefficients is None else TimeScatter.of(coefficients, times, 1 / default)
        return AddingTime(cells, times, 1 / default, of_time, quantiles)
    ratios = np.ascontiguousarray(rates / default[:, None])
    of_rates = None if coefficients is None else RateScatter.of(coefficients, ratios)
    return AddingRates(cells, ratios, of_rates, quantiles)
