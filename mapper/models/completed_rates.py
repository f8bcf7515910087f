"""Rates that were not measured: completed from measured ones, as weights of them, and the error of interpolation.

``Completed``: a sweep measures depths, alignment and commits one at a time. A workload has them together:
unaligned writes with several outstanding. Their effects are taken to multiply. The rate of a kind that was not
measured is that of the same size and pattern, shallow, aligned and without flushes, times the effect of each of
its properties. An effect is a ratio of two measured rates of the same configuration in the same round, at the
nearest size where both were measured. The effect of a depth is that at the size itself, at any alignment, up to
the largest depth measured there, and from there on that at the nearest size. Effects of depth on sequential
accesses are those on random ones where only these were measured.

``Origins``: rates that follow from the same measurements are not independent. Variances are therefore
those of the measurements alone: the weight of such a rate is handed on to the measured rates that it follows from.

Where a profile only has counts, a cell of the 20 that was not measured is interpolated (``access_weights``). How
far its ratio to the default may be off is seen at the measured sizes: without one of them, its time per access is
interpolated under the configuration and the default, and the ratio of the two is compared with the measured one.
Leaving a size out doubles the gap between neighbours, so the error is rather too large. Pure.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from cephfit.core.statistics.round_effects import Booleans, Floats
from cephfit.core.statistics.variance import Table
from cephfit.core.units import format_nbytes, format_percent
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import LoadedCell, Op, Pattern
from cephfit.core.values.demand import Demand
from cephfit.mapper.models.access_weights import FLUSHED_UP_TO, interpolated_time
from cephfit.mapper.models.mixture import Mixture
from cephfit.mapper.models.shared_rates import shared

_Effect = tuple[LoadedCell, LoadedCell]
"""Two measured kinds; the effect is the ratio of the first one's rate to the second one's."""

Sources = Mapping[LoadedCell, Mapping[LoadedCell, int]]
"""By kind: coefficients of the logs of measured rates; their sum is the log of its rate, in every round."""


@dataclass(frozen=True, slots=True)
class Completed:
    """Measured rates, and those that follow from them.

    Attributes:
        baselines: with both in ``loaded``.
        sources: of the kinds that follow from others. They are the same for all configurations; one that was
            measured in such a kind itself keeps what was measured.
    """

    baselines: Baselines
    sources: Sources


@dataclass(frozen=True, slots=True, eq=False)
class _Identity:
    """Equal to another only if both are of the same object: baselines are too large to be compared."""

    baselines: Baselines

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.baselines is self.baselines

    def __hash__(self) -> int:
        return id(self.baselines)


def completed(baselines: Baselines) -> Completed:
    """Return the baselines with all combinations of the measured properties in ``loaded``.

    A combination is added to every configuration that has all rates it follows from, in the rounds of all. The
    last results are kept, because many workloads are predicted from the same baselines.
    """
    return _completed(_Identity(baselines))


@lru_cache(maxsize=2)
def _completed(of: _Identity) -> Completed:
    baselines = shared(of.baselines)
    grid = _Grid(cell for name, cell in baselines.loaded if name == baselines.default)
    sources = [(kind, grid.sources_of(kind)) for kind in grid.missing()]
    loaded = dict(baselines.loaded)
    for name in dict.fromkeys(name for name, _ in baselines.loaded):
        for kind, its in sources:
            if its is not None and (found := _derived(baselines, name, kind, *its)) is not None:
                loaded.setdefault((name, kind), found)
    of_kinds = {kind: _coefficients(*its) for kind, its in sources if its is not None}
    return Completed(replace(baselines, loaded=loaded), of_kinds)


def _coefficients(base: LoadedCell, effects: Sequence[_Effect]) -> dict[LoadedCell, int]:
    """Return the coefficients of log rates; a kind that is multiplied and divided by has none."""
    found = Counter([base, *(with_it for with_it, _ in effects)])
    found.subtract(without for _, without in effects)
    return {cell: coefficient for cell, coefficient in found.items() if coefficient}


def _derived(
    baselines: Baselines, name: str, kind: LoadedCell, base: LoadedCell, effects: Sequence[_Effect]
) -> Baseline | None:
    """Return the baseline of a kind under one configuration; None if it lacks a rate, or they share no round."""
    cells = [base, *(cell for effect in effects for cell in effect)]
    rows = [baselines.loaded.get((name, cell)) for cell in cells]
    measured = [dict(zip(row.rounds, row.iops, strict=True)) for row in rows if row is not None]
    if len(measured) < len(cells):
        return None
    rounds = sorted(set.intersection(*map(set, measured)))
    if not rounds:
        return None
    iops = np.array([[of_round[r] for r in rounds] for of_round in measured])
    factors = iops[1::2] / iops[2::2]
    rates = iops[0] * factors.prod(axis=0)
    n_clients = baselines.loaded[name, base].n_clients
    return Baseline(name, kind.bin_cell, tuple(rates.tolist()), n_clients, tuple(rounds))


class _Grid:
    """The kinds of accesses that were measured under the default, and the effects that they show.

    Attributes:
        cells: all kinds.
        shallow: the smallest depth.
    """

    def __init__(self, cells: Iterable[LoadedCell]) -> None:
        self.cells = frozenset(cells)
        self.shallow = min((cell.iodepth for cell in self.cells), default=1)
        self._alignments: dict[tuple[Pattern, int], list[_Effect]] = {}
        self._depths: dict[tuple[Pattern, int], list[_Effect]] = {}
        self._commits: dict[tuple[Pattern, str], list[_Effect]] = {}
        for cell in self.cells:
            is_shallow = cell.iodepth == self.shallow
            if is_shallow and cell.align_nbytes and not cell.sync:
                self._keep(
                    self._alignments.setdefault((cell.pattern, cell.align_nbytes), []), cell, align_nbytes=0
                )
            if not is_shallow and not cell.sync:
                self._keep(self._depths.setdefault((cell.pattern, cell.iodepth), []), cell, iodepth=self.shallow)
            if is_shallow and cell.sync:
                self._keep(self._commits.setdefault((cell.pattern, cell.sync), []), cell, sync="")

    def _keep(self, effects: list[_Effect], cell: LoadedCell, **without: Any) -> None:
        """Add the effect of a property of a kind, if the kind without it was measured."""
        if (other := replace(cell, **without)) in self.cells:
            effects.append((cell, other))

    def missing(self) -> Iterator[LoadedCell]:
        """Yield the combinations of measured properties that were not measured."""
        sizes = sorted({(cell.nbytes, cell.pattern) for cell in self.cells})
        depths = sorted({cell.iodepth for cell in self.cells})
        alignments = sorted({cell.align_nbytes for cell in self.cells} | {0})
        syncs = sorted({cell.sync for cell in self.cells} | {""})
        for (nbytes, pattern), depth, align, sync in product(sizes, depths, alignments, syncs):
            kind = LoadedCell(nbytes, pattern, depth, align, sync)
            if kind not in self.cells and align < nbytes and not (sync and pattern.op is Op.READ):
                yield kind

    def sources_of(self, kind: LoadedCell) -> tuple[LoadedCell, tuple[_Effect, ...]] | None:
        """Return the measured kinds that a rate follows from: the plain one, and the effects; None if unknown."""
        base = LoadedCell(kind.nbytes, kind.pattern, self.shallow)
        if base not in self.cells:
            return None
        effects: list[_Effect] = []
        for is_needed, find in (
            (kind.align_nbytes > 0, self._of_alignment),
            (kind.iodepth > self.shallow, self._of_depth),
            (bool(kind.sync), self._of_commits),
        ):
            found = find(kind) if is_needed else ()
            if found is None:
                return None
            effects += found
        return base, tuple(effects)

    def _of_alignment(self, kind: LoadedCell) -> tuple[_Effect] | None:
        """Return the effect at the nearest size, where random and sequential accesses stand in for each other.

        What alignment costs depends on the size more than on the order: BlueStore defers small writes, and so an
        offset hardly matters to them. Without any effect for the kind's own pattern there is none.
        """
        own = self._alignments.get((kind.pattern, kind.align_nbytes), [])
        other = Pattern.of(kind.pattern.op, is_random=not kind.pattern.is_random)
        found = _nearest(kind, [*own, *self._alignments.get((other, kind.align_nbytes), [])]) if own else None
        return None if found is None else (found,)

    def _of_depth(self, kind: LoadedCell) -> tuple[_Effect, ...] | None:
        """Return the effect at the kind's own size as far as it was measured, and the rest at the nearest size."""
        every = (effect for of in self._depths.values() for effect in of)
        own = [effect for effect in every if _is_own(kind, effect) and effect[0].iodepth <= kind.iodepth]
        # Storage writes aligned and unaligned accesses of a large size in different ways.
        for effect in sorted(own, key=lambda e: (_differs(kind, e), -e[0].iodepth, e[0])):
            if effect[0].iodepth == kind.iodepth:
                return (effect,)
            if rest := self._from_depth(kind, effect[0].iodepth):
                return effect, rest
        whole = self._from_depth(kind, self.shallow)
        return None if whole is None else (whole,)

    def _from_depth(self, kind: LoadedCell, smaller: int) -> _Effect | None:
        """Return the effect of a kind's depth over a smaller one: at its own size, else of alike alignment."""
        for pattern in (kind.pattern, Pattern.of(kind.pattern.op, is_random=True)):
            deep = [with_it for with_it, _ in self._depths.get((pattern, kind.iodepth), [])]
            pairs = [(cell, replace(cell, iodepth=smaller)) for cell in deep]
            effects = [pair for pair in pairs if pair[1] in self.cells]
            own = [effect for effect in effects if _is_own(kind, effect)]
            alike = [effect for effect in effects if not _differs(kind, effect)]
            if found := _nearest(kind, own or alike or effects):
                return found
        return None

    def _of_commits(self, kind: LoadedCell) -> tuple[_Effect, ...] | None:
        """Return the effect of flushes; none where the writes are too large for any."""
        found = _nearest(kind, self._commits.get((kind.pattern, kind.sync), []))
        if found is None:
            return None
        return () if kind.nbytes > FLUSHED_UP_TO * found[0].nbytes else (found,)


def _is_own(kind: LoadedCell, effect: _Effect) -> bool:
    return (effect[0].nbytes, effect[0].pattern) == (kind.nbytes, kind.pattern)


def _differs(kind: LoadedCell, effect: _Effect) -> bool:
    """Return whether only one of a kind and the cells of an effect is aligned."""
    return bool(effect[0].align_nbytes) is not bool(kind.align_nbytes)


def _nearest(kind: LoadedCell, effects: Sequence[_Effect]) -> _Effect | None:
    """Return the effect that was measured at the nearest size, in logarithms, of the same pattern if it can be."""

    def place(effect: _Effect) -> tuple[float, bool, LoadedCell, LoadedCell]:
        cell, other = effect
        return abs(math.log(cell.nbytes / kind.nbytes)), cell.pattern is not kind.pattern, cell, other

    return min(effects, key=place, default=None)


@dataclass(frozen=True, slots=True)
class Origins:
    """Which measurements rates follow from. J configurations, C cells with a rate, M cells that were measured.

    Attributes:
        coefficients: of the log of each measured rate in the log of one that follows from them, shape (C, M).
        own: place of each cell among the measured ones, shape (C,); -1 for cells that no configuration has.
        follows: rates that were not measured themselves, shape (J, C).
    """

    coefficients: Floats
    own: NDArray[np.intp]
    follows: Booleans

    def weights(self, of_used: Floats, used: NDArray[np.intp], rows: NDArray[np.intp]) -> Floats:
        """Return the weights of all log measurements of K configurations, shape (K, M, R).

        Args:
            of_used: weights of the log rates of some cells, shape (K, U, R).
            used: these cells, shape (U,).
            rows: the configurations, shape (K,).
        """
        follows = self.follows[np.ix_(rows, used)]
        some, direct = np.flatnonzero(follows.any(axis=0)), np.flatnonzero(self.own[used] >= 0)
        found = self.coefficients[used[some]].T @ (of_used[:, some] * follows[:, some, None])
        found[:, self.own[used[direct]]] += of_used[:, direct] * ~follows[:, direct, None]
        return np.asarray(found)


def tables_of(
    rates: Mapping[Any, Baseline], sources: Sources, baselines: Baselines, names: tuple[str, ...]
) -> tuple[Table, Table, Origins | None]:
    """Return the table of all rates, that of the measured ones alone, and how they are connected.

    Both tables have the same rounds. They are the same one, without origins, if nothing follows from others.

    Args:
        rates: by (configuration, kind of access), those that follow from others included.
        sources: as ``Completed.sources``.
        baselines: what was measured.
        names: configurations, the default first.
    """
    measured = Table.of_loaded(baselines, names)
    table = Table.of_loaded(replace(baselines, loaded=rates), names)
    if not sources:
        return table, measured, None
    column = {cell: m for m, cell in enumerate(measured.cells)}
    coefficients = np.zeros((len(table.cells), len(measured.cells)))
    for c, cell in enumerate(table.cells):
        of_cell = sources.get(cell, {}) if isinstance(cell, LoadedCell) else {}
        for source, coefficient in of_cell.items():
            coefficients[c, column[source]] = coefficient
    own = np.array([column.get(cell, -1) for cell in table.cells], dtype=np.intp)
    follows, was_measured = (np.asarray(of.present.any(axis=2)) for of in (table, measured))
    follows[:, own >= 0] &= ~was_measured[:, own[own >= 0]]
    return table, measured, Origins(coefficients, own, follows)


_FACTOR = 10.0
"""A configuration is taken to be at most this many times faster or slower than interpolated where too few sizes
were measured to know: as for omitted cells (``omitted_cells``)."""

Rates = Mapping[tuple[str, LoadedCell], Baseline]


@dataclass(frozen=True, slots=True)
class SizeErrors:
    """Errors of the log ratio of a configuration to the default at sizes that were left out.

    Attributes:
        between: at sizes with a measured neighbour on both sides.
        beyond: at the smallest and the largest size.
    """

    between: tuple[float, ...]
    beyond: tuple[float, ...]

    @classmethod
    def of(cls, loaded: Rates, default: str, name: str) -> "SizeErrors":
        """Leave out each size of each pattern that both configurations have."""
        between: list[float] = []
        beyond: list[float] = []
        for pattern in Pattern:
            times = [
                (size, 1 / _mean(loaded[default, cell]), 1 / _mean(loaded[name, cell]))
                for size, cell in _plain(loaded, default, pattern)
                if (name, cell) in loaded
            ]
            for i, (size, of_default, own) in enumerate(times):
                rest = times[:i] + times[i + 1 :]
                if len(rest) < 2:
                    continue
                sizes = np.array([row[0] for row in rest], dtype=np.float64)
                found = [interpolated_time(size, sizes, np.array([row[k] for row in rest])) for k in (1, 2)]
                error = math.log(found[1] / found[0]) - math.log(own / of_default)
                (between if 0 < i < len(times) - 1 else beyond).append(error)
        return cls(tuple(between), tuple(beyond))

    def factor(self, confidence: float, *, is_between: bool) -> float:
        """Return how many times faster or slower than interpolated a configuration may be, at least 1."""
        errors = self.between if is_between else self.beyond
        if not errors:
            return _FACTOR
        scale = math.sqrt(math.fsum(e * e for e in errors) / len(errors))
        return min(_FACTOR, math.exp(float(stdtrit(len(errors), (1 + confidence) / 2)) * scale))


@dataclass(frozen=True, slots=True, eq=False)
class InterpolatedSizes:
    """The demands of a workload whose size was not measured. D demands.

    Attributes:
        loaded: the rates.
        default: name of the default.
        between: the size is between measured ones, shape (D,).
        beyond: it is outside them, shape (D,).
        names: what they are, for readers.
    """

    loaded: Rates
    default: str
    between: Booleans
    beyond: Booleans
    names: tuple[str, ...]

    @classmethod
    def of(cls, demands: Sequence[Demand], loaded: Rates, default: str) -> "InterpolatedSizes | None":
        """Return them; None if every size was measured. Patterns without any measured size do not count."""
        between, beyond = (np.zeros(len(demands), dtype=np.bool_) for _ in range(2))
        names = []
        for i, demand in enumerate(demands):
            sizes = [size for size, _ in _plain(loaded, default, demand.pattern)]
            if sizes and demand.nbytes not in sizes:
                is_between = sizes[0] < demand.nbytes < sizes[-1]
                (between if is_between else beyond)[i] = True
                names.append(f"{format_nbytes(math.ceil(demand.nbytes))}-{demand.pattern}")
        return cls(loaded, default, between, beyond, tuple(names)) if names else None

    def half_width(self, name: str, mixture: Mixture, confidence: float) -> float:
        """Return half the interval of the log prediction that comes from interpolation alone."""
        errors = SizeErrors.of(self.loaded, self.default, name)
        shares = mixture.weights / mixture.ratios
        shares = shares / shares.sum()
        inside, outside = float(shares[self.between].sum()), float(shares[self.beyond].sum())
        slower = 1 - inside - outside
        slower += inside * errors.factor(confidence, is_between=True)
        slower += outside * errors.factor(confidence, is_between=False)
        return math.log(slower)

    def note(self, compared: Sequence[str], weights: Floats) -> str:
        """Return what was interpolated, and how well that works here."""
        share = float(weights[self.between | self.beyond].sum())
        found = [SizeErrors.of(self.loaded, self.default, name) for name in compared]
        factors = sorted(math.exp(abs(e)) for errors in found for e in (*errors.between, *errors.beyond))
        of_time = format_percent(share)
        text = f"interpolated: {', '.join(self.names)} with {of_time} of the default's time, not measured"
        if not factors:
            return (
                f"{text}; too few sizes were measured to know the error, so the intervals cover configurations "
                f"that are up to {_FACTOR:g} times faster or slower there"
            )
        return (
            f"{text}; without each measured size in turn, ratios to the default were off by a factor of "
            f"{factors[len(factors) // 2]:.3f} in the median and {factors[-1]:.2f} at most, and the intervals "
            "contain this error"
        )


def _plain(loaded: Rates, default: str, pattern: Pattern) -> Iterator[tuple[int, LoadedCell]]:
    """Yield the sizes of a pattern under the default, ascending: shallow, aligned and without commits."""
    cells = [
        cell
        for name, cell in loaded
        if name == default and cell.pattern is pattern and not cell.align_nbytes and not cell.sync
    ]
    shallow = min((cell.iodepth for cell in cells), default=0)
    yield from sorted((cell.nbytes, cell) for cell in cells if cell.iodepth == shallow)


def _mean(baseline: Baseline) -> float:
    return math.fsum(baseline.iops) / len(baseline.iops)
