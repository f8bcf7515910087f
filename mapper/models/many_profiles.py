"""Predictions for many workloads at once: the same figures as ``MixPredictor``, by products of matrices. Pure.

Workloads are taken in blocks. Those of a block that are compared with the same configurations share the spread of
the measurements, and are predicted together (``many_variances`` has the formulas). Single workloads are left to
``MixPredictor``: where a configuration has one of their cells in other rounds than the others, where a load's
limit was reached in one, where one was not measured under the default or is interpolated, and where the rate of
one follows from those of others.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.core.statistics.round_effects import Booleans, Floats
from cephfit.core.statistics.variance import LARGEST_LOG, Table, spread_of
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import CELLS, Cell, LoadedCell, Pattern
from cephfit.core.values.demand import Demand
from cephfit.core.values.prediction import DEFAULT_CONFIDENCE, ManyPredictions, Model, PredictionSet, model_called
from cephfit.core.values.profile import Profile
from cephfit.mapper import MODELS, predictor
from cephfit.mapper.models.access_weights import (
    BACKGROUND,
    DemandColumns,
    counted_demands,
    flushed_shares,
    refuse_unmeasured,
    weighed,
)
from cephfit.mapper.models.completed_rates import Completed, completed, tables_of
from cephfit.mapper.models.many_variances import Quantiles, RateScatter, ScatterCoefficients, TimeScatter
from cephfit.mapper.models.mix_predictor import Kind, Kinds
from cephfit.mapper.models.mixture import divided_in_queues, queues_of, waiting_with_flushes
from cephfit.mapper.models.model_error import ERRORS, NO_ERROR, ModelError

_BLOCK = 512
"""Workloads whose demands are in memory together."""
_PLACES = 1 << 15
"""Predictions that are made together: so many that their arrays fit a processor's cache."""
_Rows = NDArray[np.intp]


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
        error = known.of_answer(by_load=kind.by_load)
        for begin in range(0, len(rows), _BLOCK):
            block = rows[begin : begin + _BLOCK]
            found = [profiles[i] for i in block]
            work = _demanded(found, sweep) if kind.by_load else _counted(found, sweep)
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
    best_of: _Rows
    models: list[str]

    @classmethod
    def empty(cls, profiles: Sequence[Profile], baselines: Baselines, model: str) -> "_Answers":
        names = baselines.configurations
        relative, low, high = (np.empty((len(profiles), len(names))) for _ in range(3))
        return cls(names, relative, low, high, np.zeros(len(profiles), dtype=np.intp), [model] * len(profiles))

    def begin(self, rows: _Rows) -> None:
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

    def put_best(self, rows: _Rows, columns: _Rows, relative: Floats, growth: Floats) -> None:
        """Write the best; the factors, shape (rows, columns), are those of the measurements' scatter alone."""
        better = np.where(relative > 100 * growth, relative, 0.0)
        found = better.argmax(axis=1)
        self.best_of[rows] = np.where(better[np.arange(len(rows)), found] > 0, columns[found], 0)

    def put(self, rows: _Rows, columns: _Rows, relative: Floats, growth: Floats) -> None:
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

    columns: _Rows
    is_usable: Booleans
    cells: _Rows
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

    def group(self, is_compared: Booleans, confidence: float) -> _Group:
        """Return the group of the configurations of a row, shape (J - 1,)."""
        key = np.packbits(is_compared).tobytes()
        if key not in self.groups:
            self.groups[key] = self._group(np.flatnonzero(is_compared) + 1, confidence)
        return self.groups[key]

    def _group(self, columns: _Rows, confidence: float) -> _Group:
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


@dataclass(frozen=True, slots=True)
class _Work:
    """What N workloads do in M cells: accesses, in which the time per access counts.

    Under a configuration with the times t, a workload takes ``constant`` + ``v`` t, unless its background outgrew
    the time that hides it.

    Attributes:
        used: cells of each workload, shape (N, M).
        v: accesses, shape (N, M).
        constant: seconds, shape (N,).
        total: seconds under the default, shape (N,).
        demands: what makes the default's gradient differ between configurations; None where it does not.
    """

    used: Booleans
    v: Floats
    constant: Floats
    total: Floats
    demands: "_Demands | None" = None

    def chosen(self, rows: _Rows) -> "_Work":
        """Return some of the workloads."""
        of_demands = None if self.demands is None else self.demands.chosen(rows)
        return _Work(self.used[rows], self.v[rows], self.constant[rows], self.total[rows], of_demands)


@dataclass(frozen=True, slots=True)
class _Demands:
    """The queues of N workloads (``queues_of``), Q of them, by their waiting times.

    Attributes:
        begins: the first queue of each workload, and the end of the last one, shape (N + 1,).
        weights: of the measured cells in the time of a queue's accesses, shape (Q, M).
        units: waiting time over the square of the default's time for the accesses, shape (Q,).
        is_behind: queues in the background, shape (Q,).
        background: their accesses per cell, shape (N, M).
        hidden: share of the background that idle time hides, shape (N,).
        seconds: the default's time per access in each cell, shape (M,).
    """

    begins: _Rows
    weights: Floats
    units: Floats
    is_behind: Booleans
    background: Floats
    hidden: Floats
    seconds: Floats

    def chosen(self, rows: _Rows) -> "_Demands":
        """Return those of some of the workloads."""
        if len(rows) == len(self.hidden):
            return self
        sizes = np.diff(self.begins)[rows]
        at = np.concatenate([np.arange(self.begins[i], self.begins[i + 1]) for i in rows])
        begins = np.concatenate([[0], np.cumsum(sizes)])
        return _Demands(
            begins, self.weights[at], self.units[at], self.is_behind[at], self.background[rows], self.hidden[rows],
            self.seconds,
        )  # fmt: skip

    def links(self, cells: _Rows, *, outgrown: bool) -> Iterator[Floats]:
        """Yield the matrix of each workload, shape (P, P), that makes the default's gradients x T from times."""
        weights, seconds = self.weights[:, cells], self.seconds[cells]
        kept = np.ones(len(self.hidden)) if outgrown else 1 - self.hidden
        owners = np.repeat(np.arange(len(self.hidden)), np.diff(self.begins))
        units = self.units * np.where(self.is_behind, kept[owners], 1.0)
        scaled = units[:, None] * weights
        for begin, end in zip(self.begins[:-1].tolist(), self.begins[1:].tolist(), strict=True):
            yield seconds[:, None] * (scaled[begin:end].T @ weights[begin:end])


def _counted(profiles: Sequence[Profile], sweep: _Sweep) -> _Work:
    """Return the work of workloads by the 20 cells."""
    counts = np.array([profile.counts() for profile in profiles])
    if sweep.model.all_random is not None:
        counts = _of_one_kind(counts, is_random=sweep.model.all_random)
    with np.errstate(invalid="ignore"):
        total = np.nansum(counts / sweep.rates[0], axis=1) if sweep.model.adds_time else counts.sum(axis=1)
    return _Work(counts > 0, counts, np.zeros(len(counts)), total)


def _of_one_kind(counts: Floats, *, is_random: bool) -> Floats:
    """Return counts, shape (N, 20), with all accesses random or all sequential, as ``used_cells`` does."""
    moved = np.zeros_like(counts)
    for number, cell in enumerate(CELLS):
        moved[:, CELLS.index(Cell(cell.size, Pattern.of(cell.pattern.op, is_random=is_random)))] += counts[
            :, number
        ]
    return moved


def _demanded(profiles: Sequence[Profile], sweep: _Sweep) -> _Work:
    """Return the work of workloads by their demands, as ``DemandMix`` does for one of them.

    Raises:
        InputError: no rate was measured for an op of a workload.
    """
    of_each: list[Sequence[Demand]] = [p.demands or counted_demands(p) for p in profiles]
    sizes = np.array([len(demands) for demands in of_each])
    if not sizes.all():
        empty = profiles[int(sizes.argmin())].name
        raise InputError(
            "the workload has no accesses",
            where=f"profile {empty}",
            remedy="trace it while it runs, and profile that trace",
        )
    n, by_waiting = len(profiles), sweep.kind.by_waiting
    columns = DemandColumns.of([d for demands in of_each for d in demands])
    owners, begins = np.repeat(np.arange(n), sizes), np.concatenate([[0], np.cumsum(sizes)])
    flushed = flushed_shares(columns, owners, [p.commits for p in profiles])[owners]
    measured = [cell for cell in sweep.cells if isinstance(cell, LoadedCell)]
    weights, flags = weighed(columns, measured, flushed, where=sweep.baselines.source)
    used = np.logical_or.reduceat(weights > 0, begins[:-1], axis=0)
    seconds = 1 / sweep.rates[0]
    of_access = weights @ seconds
    commits = (p.commits.flush_waiting_seconds if p.commits is not None else None for p in profiles)
    taken = columns.accesses * of_access
    waiting, queues = taken, np.arange(len(owners))
    if by_waiting:
        waited = waiting_with_flushes(columns, owners, np.array([c or 0.0 for c in commits]))
        queues = queues_of(columns, owners)
        waiting = divided_in_queues(waited, taken, queues)
    too_large = np.bincount(owners, waiting * flags[3], minlength=n) / np.bincount(owners, waiting, minlength=n)
    worst = int(too_large.argmax())
    refuse_unmeasured(float(too_large[worst]), where=f"{sweep.baselines.source}, profile {profiles[worst].name}")
    if not by_waiting:
        v = np.add.reduceat(columns.accesses[:, None] * weights, begins[:-1], axis=0)
        return _Work(used, v, np.zeros(n), v @ seconds)
    idle = np.array([p.idle_seconds or 0.0 for p in profiles])
    is_behind = columns.sync == BACKGROUND
    behind = np.bincount(owners, waiting * is_behind, minlength=n)
    spare = idle + behind
    hidden = np.divide(idle, spare, out=np.zeros(n), where=(behind > 0) & (spare > 0))
    total: Floats = idle + np.asarray(np.bincount(owners, waiting, minlength=n), dtype=np.float64)
    # From here on a queue is one demand.
    order = np.argsort(queues, kind="stable")
    firsts = np.flatnonzero(np.diff(queues[order], prepend=-1))
    weights = np.add.reduceat((columns.accesses[:, None] * weights)[order], firsts, axis=0)
    owners, is_behind = owners[order][firsts], is_behind[order][firsts]
    begins = np.searchsorted(owners, np.arange(n + 1))
    of_queue = weights @ seconds
    times = np.bincount(queues, waiting) / of_queue
    of_demands = times[:, None] * weights
    background = np.add.reduceat(of_demands * is_behind[:, None], begins[:-1], axis=0)
    foreground = np.add.reduceat(of_demands * ~is_behind[:, None], begins[:-1], axis=0)
    return _Work(
        used,
        foreground + (1 - hidden)[:, None] * background,
        idle + hidden * behind,
        total,
        _Demands(begins, weights, times / of_queue, is_behind, background, hidden, seconds),
    )


def _predict_block(
    rows: _Rows, work: _Work, sweep: _Sweep, answers: _Answers, error: ModelError, confidence: float
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
            relative, widths = adding.added(work.chosen(part))
            growth = _growth(widths)
            answers.put_best(rows[part], group.columns, relative, growth)
            if error is not NO_ERROR:
                growth = _growth(np.hypot(widths, error.half_widths(relative, confidence)))
            answers.put(rows[part], group.columns, relative, growth)
    return alone


def _growth(widths: Floats) -> Floats:
    """Return the factors of log half widths; infinite where they are too large for a double."""
    with np.errstate(over="ignore"):
        growth = np.exp(widths)
    if widths.max() >= LARGEST_LOG:
        growth[widths >= LARGEST_LOG] = math.inf
    return np.asarray(growth)


def _adding(group: _Group, cells: _Rows, sweep: _Sweep) -> "_AddingTime | _AddingRates":
    """Return how the mixes of a group add up that use some of its cells."""
    coefficients, quantiles = group.coefficients, group.quantiles
    if coefficients is not None:
        coefficients = coefficients.chosen(np.searchsorted(group.cells, cells))
    rates, default = sweep.rates[np.ix_(group.columns, cells)].T, sweep.rates[0, cells]
    if sweep.model.adds_time:
        times = np.ascontiguousarray(1 / rates)
        of_time = None if coefficients is None else TimeScatter.of(coefficients, times)
        return _AddingTime(cells, times, 1 / default, of_time, quantiles)
    ratios = np.ascontiguousarray(rates / default[:, None])
    of_rates = None if coefficients is None else RateScatter.of(coefficients, ratios)
    return _AddingRates(cells, ratios, of_rates, quantiles)


@dataclass(frozen=True, slots=True)
class _AddingRates:
    """Relative rates added up, as in ``added_as_rates``.

    Attributes:
        cells: P of them, as indices.
        ratios: of rates to the default's, shape (P, K).
        scatter, quantiles: None where the spread is unknown.
    """

    cells: _Rows
    ratios: Floats
    scatter: RateScatter | None
    quantiles: Quantiles | None

    def added(self, work: _Work) -> tuple[Floats, Floats]:
        """Return relative performance, default = 100, and half widths of its log, shape (n, K) each."""
        v = work.v[:, self.cells] / work.total[:, None]
        mean = v @ self.ratios
        if self.scatter is None or self.quantiles is None:
            return 100 * mean, np.full(mean.shape, math.inf)
        return 100 * mean, self.scatter.half_widths(v, 1 / mean, self.quantiles)


@dataclass(frozen=True, slots=True)
class _AddingTime:
    """Time added up, as in ``added_as_time`` and ``DemandMix.added``. The unit is the time under the default.

    Attributes:
        cells: P of them, as indices.
        times: per access, seconds, shape (P, K).
        default: the default's, shape (P,).
        scatter, quantiles: None where the spread is unknown.
    """

    cells: _Rows
    times: Floats
    default: Floats
    scatter: TimeScatter | None
    quantiles: Quantiles | None

    def added(self, work: _Work) -> tuple[Floats, Floats]:
        """Return relative performance, default = 100, and half widths of its log, shape (n, K) each."""
        v = work.v[:, self.cells] / work.total[:, None]
        demands = work.demands
        if demands is None:
            inverse = 1 / (v @ self.times)
            if self.scatter is None or self.quantiles is None:
                return 100 * inverse, np.full(inverse.shape, math.inf)
            sums = self.scatter.of_default(v * self.default, v, inverse)
            return 100 * inverse, self.scatter.half_widths(v, inverse, None, sums, self.quantiles)
        constant = (work.constant / work.total)[:, None]
        relative, widths = self._of_demands(v, constant, demands, work.total, outgrown=False)
        background = (demands.background[:, self.cells] / work.total[:, None]) @ self.times
        is_outgrown = background > constant + (1 - demands.hidden)[:, None] * background
        rows = np.flatnonzero(is_outgrown.any(axis=1))
        if len(rows):
            v = (
                v[rows]
                + demands.hidden[rows, None] * demands.background[rows][:, self.cells] / work.total[rows, None]
            )
            of_outgrown = self._of_demands(
                v, np.zeros((1, 1)), demands.chosen(rows), work.total[rows], outgrown=True
            )
            for values, outgrown in zip((relative, widths), of_outgrown, strict=True):
                values[rows] = np.where(is_outgrown[rows], outgrown, values[rows])
        return relative, widths

    def _of_demands(
        self, v: Floats, constant: Floats, demands: _Demands, total: Floats, *, outgrown: bool
    ) -> tuple[Floats, Floats]:
        busy = v @ self.times
        inverse = 1 / (constant + busy)
        if self.scatter is None or self.quantiles is None:
            return 100 * inverse, np.full(inverse.shape, math.inf)
        links = (link / t for link, t in zip(demands.links(self.cells, outgrown=outgrown), total, strict=True))
        sums = self.scatter.of_each_default(links, v, inverse)
        return 100 * inverse, self.scatter.half_widths(v, inverse, busy * inverse, sums, self.quantiles)
