"""How the accesses of a workload add up: as relative rates (Formula 2.1), as time, or by demand with idle time.

Where clients reached the load's own limit, rates are lower bounds, and so are predictions (``LimitBounds``).

Demands (``core/values/demand.py``) add up as idle time + foreground + the rest of the background. On the default A
the trace has the waiting time of every demand. Under configuration X it is waiting x (time per access under X) /
(time per access under A). Accesses that were outstanding together waited for each other, so their waiting time is
first divided by what each of them takes (``queues_of``). Writes that the application does not wait for run in the
background, next to the application. The run ends when both are done: the application with its own time, and the
storage with its work. docs/mathematics.md has the formulas.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.core.statistics.round_effects import Booleans, Floats
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import CELLS, Cell, LoadedCell, Pattern
from cephfit.core.values.demand import Demand
from cephfit.core.values.prediction import MODELS, CellReason, model_called
from cephfit.core.values.profile import Profile
from cephfit.mapper.models.access_weights import (
    BACKGROUND,
    AccessWeights,
    DemandColumns,
    less_than_alone,
)

STORAGE_SHARE = "I/O was outstanding"
_WAITS_ALL_THE_TIME = 0.995
"""From this share of time with I/O outstanding on, it limits no gain that is worth a note."""
_MOST_LEVELS = 32
"""More classes of depth, each twice as deep as the one before, than any device has."""

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


@dataclass(frozen=True, slots=True, eq=False)
class DemandMix:
    """Implements ``mixture.Mix`` for the demands of a workload. D demands, P measured kinds of accesses.

    Attributes:
        demands: of the workload.
        access: their time per access in measured times.
        accesses: their numbers, shape (D,).
        queues: the queue of each demand, see ``queues_of``, shape (D,).
        waiting: their waiting times in the trace in seconds, those of flushes included, shape (D,); None: demands
            weigh their accesses x the default's time.
        background: the demands that are written back while the application goes on, shape (D,).
        idle_seconds: time of the trace without I/O outstanding; 0 where waiting times are unknown.
    """

    demands: tuple[Demand, ...]
    access: AccessWeights
    accesses: Floats
    queues: NDArray[np.intp]
    waiting: Floats | None
    background: Booleans
    idle_seconds: float

    @classmethod
    def of(
        cls,
        profile: Profile,
        demands: Sequence[Demand],
        measured: Sequence[LoadedCell],
        *,
        by_waiting: bool,
        where: str,
    ) -> "DemandMix":
        """Return the mix of a profile.

        Args:
            profile: of the workload.
            demands: its demands, or those that its counts give.
            measured: kinds of accesses with a rate of the default.
            by_waiting: weigh demands by the trace's waiting times, which all demands then need.
            where: origin of the rates, for errors.

        Raises:
            InputError: no rate was measured for an op of the workload.
        """
        commits, columns = profile.commits, DemandColumns.of(demands)
        background = columns.sync == BACKGROUND if by_waiting else np.zeros(len(demands), dtype=np.bool_)
        has_background = bool(background.any())
        access = AccessWeights.of(demands, measured, commits, where=where, has_background=has_background)
        if not by_waiting:
            own = np.arange(len(demands))
            return cls(tuple(demands), access, columns.accesses, own, None, background, 0.0)
        flushes = (commits.flush_waiting_seconds or 0.0) if commits is not None else 0.0
        owners = np.zeros(len(demands), dtype=np.intp)
        waiting = waiting_with_flushes(columns, owners, np.array([flushes]))
        return cls(
            tuple(demands),
            access,
            columns.accesses,
            queues_of(columns, owners),
            waiting,
            background,
            profile.idle_seconds or 0.0,
        )

    @property
    def cells(self) -> tuple[LoadedCell, ...]:
        return self.access.cells

    @property
    def storage_share(self) -> float | None:
        """Share of the workload's time with I/O outstanding, 0 to 1: no configuration can save more than that."""
        if self.waiting is None:
            return None
        busy = math.fsum(self.waiting)
        return busy / (busy + self.idle_seconds)

    def added(self, default: Floats, rates: Floats) -> Mixture:
        """Add the demands up under a configuration, given the rates of both in ``cells``, shape (P,)."""
        a, background = self._on_default(default), self.background
        growth = (self.access.weights @ (1 / rates)) / a.seconds
        # The application's own time, and what of the background adds to it.
        parts, weights = np.where(background, a.exposed, 1.0) * a.waiting * growth, self.access.weights
        seconds = a.computing + math.fsum(parts)
        saved = np.where(background, 1 - a.hidden, 1.0) * a.waiting - parts
        if a.behind:
            share = a.exposed if a.is_bound else 0.0
            work = np.where(background, 1 + share, 1.0) * a.waiting * (a.saturated @ (1 / rates)) / a.seconds
            if math.fsum(work) > seconds:
                parts, weights, seconds = work, a.saturated, math.fsum(work)
                # What idle time hid on the default, it hides no longer.
                saved = a.waiting - parts + np.where(background, a.waiting / a.behind, 0.0) * self.idle_seconds
        return Mixture(
            relative=100 * (a.total / seconds),
            ratios=100 / growth,
            weights=a.waiting / math.fsum(a.waiting),
            points=100 * saved / seconds,
            gradient=(parts / (weights @ (1 / rates))) @ (weights / rates) / seconds,
            default_gradient=self._default_gradient(default, a, parts, growth) / seconds,
        )

    def _default_gradient(self, default: Floats, a: "_OnDefault", parts: Floats, growth: Floats) -> Floats:
        """Return the derivative of a configuration's seconds by the logs of the default's rates, shape (P,)."""
        inverse = self.access.weights / default
        if self.waiting is None:
            return np.asarray((a.waiting / a.seconds) @ inverse * (math.fsum(parts) / a.total))
        # The time of a whole queue depends on the default's time for each of its accesses.
        of_all = np.bincount(self.queues, self.accesses * a.seconds)
        of_queue = np.bincount(self.queues, parts) / of_all
        found: Floats = (self.accesses * of_queue[self.queues]) @ inverse
        if a.behind and a.is_bound:  # then what the default exposes depends on its work
            units, of_service = (
                (np.bincount(self.queues, of) / of_all)[self.queues] for of in (a.waiting, a.service)
            )
            ahead = np.where(self.background, 0.0, self.accesses)
            slope = (ahead * units) @ (a.saturated / default) - (ahead * of_service) @ inverse
            found += math.fsum((a.waiting * growth)[self.background]) / a.behind * slope
        return found

    def _on_default(self, default: Floats) -> "_OnDefault":
        """Return what the demands take under the default, given its rates in ``cells``."""
        seconds = self.access.weights @ (1 / default)
        saturated = less_than_alone(self.access.saturated, self.access.weights, 1 / default)
        waiting, idle = self._waiting(seconds), self.idle_seconds
        service = waiting * (saturated @ (1 / default)) / seconds
        behind, total = math.fsum(waiting[self.background]), idle + math.fsum(waiting)
        hidden = idle / (idle + behind) if behind else 0.0
        own, work = idle + hidden * behind + math.fsum(waiting[~self.background]), math.fsum(service)
        return _OnDefault(
            seconds=seconds,
            saturated=saturated,
            waiting=waiting,
            service=service,
            behind=behind,
            total=total,
            hidden=hidden,
            computing=idle + hidden * behind,
            exposed=(total - max(own, work)) / behind if behind else 0.0,
            is_bound=work > own,
        )

    def reasons(self, mixture: Mixture) -> tuple[CellReason, ...]:
        """Return the cells of the 20 that the demands fall into, those that change the prediction most first."""
        rows: dict[Cell, list[float]] = {}
        for demand, weight, ratio, points in zip(
            self.demands, mixture.weights, mixture.ratios, mixture.points, strict=True
        ):
            cell = LoadedCell(math.ceil(demand.nbytes), demand.pattern).bin_cell
            sums = rows.setdefault(cell, [0.0, 0.0, 0.0])
            for i, value in enumerate((weight, weight / ratio, points)):
                sums[i] += float(value)
        return tuple(
            sorted(
                (
                    CellReason(cell, weight, weight / slowed if slowed else 100.0, points)
                    for cell, (weight, slowed, points) in rows.items()
                ),
                key=lambda reason: (-abs(reason.points), -reason.weight, str(reason.cell)),
            )
        )

    def notes(self, default: Floats, *, where: str) -> list[str]:
        """Return what the sweep did not measure.

        Args:
            default: the default's rates in ``cells``.
            where: their origin, for errors.

        Raises:
            InputError: it measured too little for any prediction.
        """
        waiting = self._waiting(self.access.weights @ (1 / default))
        shares = waiting / math.fsum(waiting)
        self.access.refuse_unmeasured(shares, where=where)
        notes = self.access.notes(shares)
        share = self.storage_share
        if share is not None and share < _WAITS_ALL_THE_TIME:
            notes.insert(
                0,
                f"{STORAGE_SHARE} {100 * share:.3g} % of the workload's time: no configuration can "
                f"shorten its run time by more than {100 * share:.3g} %",
            )
        return notes

    def waiting_under(self, default: Floats, rates: Floats) -> Floats:
        """Return the waiting times in seconds where ``default``'s rates were ``rates``, shape (D,).

        Those of flushes are part of them.
        """
        here, there = (self.access.weights @ (1 / its) for its in (default, rates))
        return np.asarray(self._waiting(here) * there / here)

    def _waiting(self, seconds_a: Floats) -> Floats:
        """Return the waiting time per demand under the default, in seconds, shape (D,)."""
        seconds = self.accesses * seconds_a
        return seconds if self.waiting is None else divided_in_queues(self.waiting, seconds, self.queues)


@dataclass(frozen=True, slots=True, eq=False)
class _OnDefault:
    """What the demands of a workload take under the default; seconds, arrays of shape (D,).

    Attributes:
        seconds: per access.
        saturated: weights of the storage's work, shape (D, P).
        waiting: of the workload, as in the trace.
        service: the storage's work.
        behind: waiting for the background.
        total: of the workload.
        hidden: share of the background in which the application computes.
        computing: of the application, in idle time and in the background.
        exposed: share of the background that adds to the longer one of the application's own time and the work.
        is_bound: the storage's work takes longer than the application's own time.
    """

    seconds: Floats
    saturated: Floats
    waiting: Floats
    service: Floats
    behind: float
    total: float
    hidden: float
    computing: float
    exposed: float
    is_bound: bool


def queues_of(demands: DemandColumns, owners: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return which demands were outstanding together: numbers from 0, rising with the workload, shape (D,).

    A queue has the demands of one workload with two or more accesses outstanding, by depth (2, 3 to 4, 5 to 8, and
    so on, as in profiles) and by whether the application waits for them. Any other demand is a queue of its own:
    an access that is outstanding alone waits for itself only.

    Args:
        demands: of one or several workloads, D of them.
        owners: the workload of each demand, rising, shape (D,).
    """
    levels = np.ceil(np.log2(np.maximum(np.round(demands.depth), 1)))
    shared = levels > 0  # false where the depth is unknown
    numbers = np.arange(len(owners)) + 2 * _MOST_LEVELS
    joint = 2 * np.where(shared, np.minimum(levels, _MOST_LEVELS - 1), 0).astype(np.intp)
    keys = np.where(shared, joint + (demands.sync == BACKGROUND), numbers)
    _, queues = np.unique(owners * (numbers[-1] + 1) + keys, return_inverse=True)
    return np.asarray(queues.reshape(-1), dtype=np.intp)


def divided_in_queues(waiting: Floats, seconds: Floats, queues: NDArray[np.intp]) -> Floats:
    """Divide the waiting time of each queue by the time that its demands take, shape (D,).

    A trace divides every instant evenly among the accesses that are outstanding. So 4K and 128K that are
    outstanding together have the same waiting time each, though the large access occupies the storage for longer.

    Args:
        waiting: in the trace, seconds, shape (D,).
        seconds: accesses x time per access on the storage of the trace, shape (D,).
        queues: see ``queues_of``, shape (D,).
    """
    return np.asarray(seconds * (np.bincount(queues, waiting) / np.bincount(queues, seconds))[queues])


def waiting_with_flushes(demands: DemandColumns, owners: NDArray[np.intp], flush_seconds: Floats) -> Floats:
    """Return the waiting time of demands, with that of flushes for the writes that they follow, shape (D,).

    Args:
        demands: of one or several workloads, D of them, with waiting times.
        owners: the workload of each demand, shape (D,).
        flush_seconds: waiting for flushes of each workload, shape (workloads,).
    """
    n = len(flush_seconds)
    writes = demands.accesses * demands.is_write
    synced = writes * (demands.sync != BACKGROUND)
    has_synced, has_writes = (np.bincount(owners, part, minlength=n)[owners] > 0 for part in (synced, writes))
    followed = np.where(has_synced, synced, np.where(has_writes, writes, 1.0))
    shares = followed / np.bincount(owners, followed, minlength=n)[owners]
    return np.asarray(demands.waiting + flush_seconds[owners] * shares)
