"""How the accesses of many workloads add up: ``mixture`` as products of matrices. Pure."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cephfit.core.statistics.round_effects import Booleans, Floats
from cephfit.core.values.cells import CELLS, Cell, LoadedCell, Pattern
from cephfit.core.values.prediction import Model
from cephfit.core.values.profile import Profile
from cephfit.mapper.models.access_weights import (
    BACKGROUND,
    DemandColumns,
    flushed_shares,
    less_than_alone,
    refuse_unmeasured,
    saturated_weights,
    weighed,
)
from cephfit.mapper.models.many_variances import DefaultGradients, Quantiles, RateScatter, Singles, TimeScatter
from cephfit.mapper.models.mixture import divided_in_queues, queues_of, waiting_with_flushes

Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Work:
    """What N workloads do in M cells: accesses, in which the time per access counts.

    Under a configuration with the times t, a workload takes ``constant`` + ``v`` t, unless the storage's work for
    it takes longer.

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
    demands: "QueuedDemands | None" = None

    def chosen(self, rows: Rows) -> "Work":
        """Return some of the workloads."""
        of_demands = None if self.demands is None else self.demands.chosen(rows)
        return Work(self.used[rows], self.v[rows], self.constant[rows], self.total[rows], of_demands)


@dataclass(frozen=True, slots=True)
class QueuedDemands:
    """The queues of N workloads (``queues_of``), Q of them, by their waiting times.

    Attributes:
        begins: the first queue of each workload, and the end of the last one, shape (N + 1,).
        weights: of the measured cells in the time of a queue's accesses, shape (Q, M).
        saturated: of the measured cells in the storage's work for them, shape (Q, M).
        units: waiting time over the square of the default's time for the accesses, shape (Q,).
        is_behind: queues in the background, shape (Q,).
        background: their accesses per cell, shape (N, M).
        exposed: share of the background that adds to the application's time, shape (N,).
        exposed_work: share of the background that adds to the storage's work, shape (N,).
        slopes: derivatives of ``exposed`` by the logs of the default's rates, over its time in the cell, shape
            (N, M).
        work: accesses per cell that the storage works for, the exposed ones included, shape (N, M); 0 for
            workloads without a background.
        seconds: the default's time per access in each cell, shape (M,).
    """

    begins: Rows
    weights: Floats
    saturated: Floats
    units: Floats
    is_behind: Booleans
    background: Floats
    exposed: Floats
    exposed_work: Floats
    slopes: Floats
    work: Floats
    seconds: Floats

    def chosen(self, rows: Rows) -> "QueuedDemands":
        """Return those of some of the workloads."""
        if len(rows) == len(self.exposed):
            return self
        sizes = np.diff(self.begins)[rows]
        at = np.concatenate([np.arange(self.begins[i], self.begins[i + 1]) for i in rows])
        begins = np.concatenate([[0], np.cumsum(sizes)])
        return QueuedDemands(
            begins, self.weights[at], self.saturated[at], self.units[at], self.is_behind[at],
            self.background[rows], self.exposed[rows], self.exposed_work[rows], self.slopes[rows],
            self.work[rows], self.seconds,
        )  # fmt: skip

    def gradients(
        self, cells: Rows, times: Floats, by_work: Booleans, v: Floats, work: Floats, total: Floats
    ) -> Iterator[DefaultGradients]:
        """Yield the default's gradients of each workload.

        Args:
            cells: P of them.
            times: per access under each configuration, shape (P, K).
            by_work: the storage's work takes longer than the application, shape (N, K).
            v, work: accesses per cell of each workload over ``total``, shape (N, P).
            total: seconds of the workloads under the default, shape (N,).
        """
        weights, seconds = self.weights[:, cells], self.seconds[cells]
        owners = np.repeat(np.arange(len(total)), np.diff(self.begins))
        taken = (weights @ times) * np.where(self.is_behind, self.exposed[owners], 1.0)[:, None]
        if len(at := np.flatnonzero(np.asarray(by_work.any(axis=1))[owners])):
            own = np.where(self.is_behind[at], 1 + self.exposed_work[owners[at]], 1.0)[:, None]
            its = self.saturated[np.ix_(at, cells)] @ times
            taken[at] = np.where(by_work[owners[at]], own * its, taken[at])
        parts = ((self.units / total[owners])[:, None] * weights * seconds).T
        slopes, behind = self.slopes[:, cells] * seconds / total[:, None], self.background[:, cells] @ times
        both = np.stack([v, work], axis=1)
        for i, (begin, end) in enumerate(zip(self.begins[:-1].tolist(), self.begins[1:].tolist(), strict=True)):
            left, right = parts[:, begin:end], taken[begin:end]
            if slopes[i].any():
                left, right = np.column_stack([left, slopes[i]]), np.vstack([right, behind[i]])
            yield DefaultGradients(left, right, both[i], by_work[i])


def counted_work(profiles: Sequence[Profile], model: Model, rates: Floats) -> Work:
    """Return the work of workloads by the 20 cells.

    Args:
        rates: the default's, NaN where not measured, shape (20,).
    """
    counts = np.array([profile.counts() for profile in profiles])
    if model.all_random is not None:
        counts = _of_one_kind(counts, is_random=model.all_random)
    with np.errstate(invalid="ignore"):
        total = np.nansum(counts / rates, axis=1) if model.adds_time else counts.sum(axis=1)
    return Work(counts > 0, counts, np.zeros(len(counts)), total)


def _of_one_kind(counts: Floats, *, is_random: bool) -> Floats:
    """Return counts, shape (N, 20), with all accesses random or all sequential, as ``used_cells`` does."""
    moved = np.zeros_like(counts)
    for number, cell in enumerate(CELLS):
        moved[:, CELLS.index(Cell(cell.size, Pattern.of(cell.pattern.op, is_random=is_random)))] += counts[
            :, number
        ]
    return moved


def demanded_work(
    profiles: Sequence[Profile],
    cells: Sequence[Cell | LoadedCell],
    rates: Floats,
    *,
    by_waiting: bool,
    where: str,
) -> Work:
    """Return the work of workloads by their demands, as ``DemandMix`` does for one of them.

    Args:
        profiles: all with demands.
        cells: M of them.
        rates: the default's in each cell, shape (M,).
        by_waiting: demands weigh the time waited for them.
        where: the baselines, for errors.

    Raises:
        InputError: no rate was measured for an op of a workload, or accesses are far larger than all measured
            ones.
    """
    of_each = [p.demands or () for p in profiles]
    sizes = np.array([len(demands) for demands in of_each])
    n = len(profiles)
    columns = DemandColumns.of([d for demands in of_each for d in demands])
    owners, begins = np.repeat(np.arange(n), sizes), np.concatenate([[0], np.cumsum(sizes)])
    flushed = flushed_shares(columns, owners, [p.commits for p in profiles])[owners]
    measured = [cell for cell in cells if isinstance(cell, LoadedCell)]
    weights, flags = weighed(columns, measured, flushed, where=where)
    seconds = 1 / rates
    is_behind = (columns.sync == BACKGROUND) & by_waiting
    has_background = np.bincount(owners, is_behind, minlength=n)[owners] > 0
    saturated = saturated_weights(columns, measured, flushed, weights, has_background, where=where)
    used = np.logical_or.reduceat((weights > 0) | (saturated > 0), begins[:-1], axis=0)
    saturated = less_than_alone(saturated, weights, seconds)
    commits = (p.commits.flush_waiting_seconds if p.commits is not None else None for p in profiles)
    taken = columns.accesses * (weights @ seconds)
    waiting, queues = taken, np.arange(len(owners))
    if by_waiting:
        waited = waiting_with_flushes(columns, owners, np.array([c or 0.0 for c in commits]))
        queues = queues_of(columns, owners)
        waiting = divided_in_queues(waited, taken, queues)
    too_large = np.bincount(owners, waiting * flags[3], minlength=n) / np.bincount(owners, waiting, minlength=n)
    worst = int(too_large.argmax())
    refuse_unmeasured(float(too_large[worst]), where=f"{where}, profile {profiles[worst].name}")
    accesses = columns.accesses[:, None] * weights
    if not by_waiting:
        v = np.add.reduceat(accesses, begins[:-1], axis=0)
        return Work(used, v, np.zeros(n), v @ seconds)
    idle = np.array([p.idle_seconds or 0.0 for p in profiles])
    at_depth = columns.accesses[:, None] * saturated
    return _waiting_work(used, accesses, at_depth, waiting, queues, owners, is_behind, idle, seconds)


def _waiting_work(
    used: Booleans,
    accesses: Floats,
    saturated: Floats,
    waiting: Floats,
    queues: Rows,
    owners: Rows,
    is_behind: Booleans,
    idle: Floats,
    seconds: Floats,
) -> Work:
    """Return the work of N workloads from the waiting times of their D demands.

    Args:
        used: cells of each workload, shape (N, M).
        accesses: weights of the cells in each demand, times its accesses, shape (D, M).
        saturated: the same for the storage's work.
        waiting: time waited for each demand, shape (D,).
        queues: number of each demand's queue, shape (D,).
        owners: workload of each demand, ascending, shape (D,).
        is_behind: demands in the background, shape (D,).
        idle: time of each workload without outstanding accesses, shape (N,).
        seconds: the default's time per access in each cell, shape (M,).
    """
    n = len(idle)
    behind = np.bincount(owners, waiting * is_behind, minlength=n)
    spare = idle + behind
    hidden = np.divide(idle, spare, out=np.zeros(n), where=(behind > 0) & (spare > 0))
    total: Floats = idle + np.asarray(np.bincount(owners, waiting, minlength=n), dtype=np.float64)
    # From here on a queue is one demand.
    order = np.argsort(queues, kind="stable")
    firsts = np.flatnonzero(np.diff(queues[order], prepend=-1))
    weights, saturated = (np.add.reduceat(of[order], firsts, axis=0) for of in (accesses, saturated))
    owners, is_behind = owners[order][firsts], is_behind[order][firsts]
    begins = np.searchsorted(owners, np.arange(n + 1))
    of_queue = weights @ seconds
    times = np.bincount(queues, waiting) / of_queue

    def of_workloads(of_queues: Floats) -> Floats:
        return np.asarray(np.add.reduceat(of_queues, begins[:-1], axis=0))

    ahead = np.where(is_behind, 0.0, times)[:, None]
    background = of_workloads(np.where(is_behind, times, 0.0)[:, None] * weights)
    foreground, its_work = of_workloads(ahead * weights), of_workloads(ahead * saturated)
    constant = idle + hidden * behind
    own_time, work = constant + foreground @ seconds, its_work @ seconds + behind
    has_background = behind > 0
    exposed = np.divide(total - np.maximum(own_time, work), behind, out=np.zeros(n), where=has_background)
    # What the default exposes depends on its work, where that takes longer than the application.
    is_bound = has_background & (work > own_time)
    exposed_work = np.where(is_bound, exposed, 0.0)
    shares = (saturated @ seconds / of_queue)[:, None]
    slopes = of_workloads(ahead * (saturated - shares * weights))
    slopes *= np.divide(1.0, behind, out=np.zeros(n), where=is_bound)[:, None]
    return Work(
        used,
        foreground + exposed[:, None] * background,
        constant,
        total,
        QueuedDemands(
            begins,
            weights,
            saturated,
            times / of_queue,
            is_behind,
            background,
            exposed,
            exposed_work,
            slopes,
            (its_work + (1 + exposed_work)[:, None] * background) * has_background[:, None],
            seconds,
        ),
    )


@dataclass(frozen=True, slots=True)
class AddingRates:
    """Relative rates added up, as in ``added_as_rates``.

    Attributes:
        cells: P of them, as indices.
        ratios: of rates to the default's, shape (P, K).
        scatter, quantiles: None where the spread is unknown.
    """

    cells: Rows
    ratios: Floats
    scatter: RateScatter | None
    quantiles: Quantiles | None

    def added(self, work: Work) -> tuple[Floats, Singles]:
        """Return relative performance, default = 100, and half widths of its log, shape (n, K) each."""
        v = work.v[:, self.cells] / work.total[:, None]
        mean = v @ self.ratios
        if self.scatter is None or self.quantiles is None:
            return 100 * mean, np.full(mean.shape, math.inf, dtype=np.float32)
        return 100 * mean, self.scatter.half_widths(v, 1 / mean, self.quantiles)

    def spreads(self, work: Work) -> Floats:
        """Return the spread of the ratios over each workload's cells (``Prediction.spread``), shape (n, K)."""
        return _spreads(work.v[:, self.cells] / work.total[:, None], np.log(self.ratios))


@dataclass(frozen=True, slots=True)
class AddingTime:
    """Time added up, as in ``added_as_time`` and ``DemandMix.added``. The unit is the time under the default.

    Attributes:
        cells: P of them, as indices.
        times: per access, seconds, shape (P, K).
        default: the default's, shape (P,).
        scatter, quantiles: None where the spread is unknown.
    """

    cells: Rows
    times: Floats
    default: Floats
    scatter: TimeScatter | None
    quantiles: Quantiles | None

    def added(self, work: Work) -> tuple[Floats, Singles]:
        """Return relative performance, default = 100, and half widths of its log, shape (n, K) each."""
        v = work.v[:, self.cells] / work.total[:, None]
        if work.demands is not None:
            return self._of_demands(v, (work.constant / work.total)[:, None], work.demands, work.total)
        inverse = 1 / (v @ self.times)
        if self.scatter is None or self.quantiles is None:
            return 100 * inverse, np.full(inverse.shape, math.inf, dtype=np.float32)
        sums = self.scatter.of_default(v * self.default, inverse)
        return 100 * inverse, self.scatter.half_widths(self.scatter.sums(v), inverse, sums, self.quantiles)

    def spreads(self, work: Work) -> Floats:
        """Return the spread of the ratios over the cells of workloads that are counted, shape (n, K)."""
        assert work.demands is None, "the spread is one over the 20 cells"
        weights = work.v[:, self.cells] * self.default / work.total[:, None]
        return _spreads(weights, np.log(self.default[:, None] / self.times))

    def _of_demands(
        self, v: Floats, constant: Floats, demands: QueuedDemands, total: Floats
    ) -> tuple[Floats, Singles]:
        work = demands.work[:, self.cells] / total[:, None]
        seconds, at_work = constant + v @ self.times, work @ self.times
        by_work = at_work > seconds
        inverse = 1 / np.maximum(seconds, at_work)
        if self.scatter is None or self.quantiles is None:
            return 100 * inverse, np.full(inverse.shape, math.inf, dtype=np.float32)
        sums = self.scatter.sums(v)
        if len(rows := np.flatnonzero(by_work.any(axis=1))):
            sums.put(rows, by_work[rows], self.scatter.sums(work[rows]))
        gradients = demands.gradients(self.cells, self.times, by_work, v, work, total)
        of_default = self.scatter.of_each_default(gradients, inverse)
        return 100 * inverse, self.scatter.half_widths(sums, inverse, of_default, self.quantiles)


def _spreads(weights: Floats, logs: Floats) -> Floats:
    """Return standard deviations of ``logs``, shape (P, K), by ``weights`` with the sum 1, shape (n, P)."""
    return np.sqrt(np.maximum(weights @ logs**2 - (weights @ logs) ** 2, 0.0))
