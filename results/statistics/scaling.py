"""Scaling curves: rate and latency over the number of clients, and over the I/Os in flight. Pure."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from cephfit.core.statistics.absolute_spread import Absolute
from cephfit.core.statistics.latency_mixture import mixed_percentiles
from cephfit.core.statistics.round_effects import Blocks, Floats
from cephfit.core.statistics.sample_columns import SampleColumns
from cephfit.core.statistics.variance import Table
from cephfit.core.values.baseline import LevelFigures, MeasuredLevels, Place
from cephfit.core.values.cells import CELLS, Cell
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
from cephfit.core.values.sample import Sample
from cephfit.results.statistics import summary_statistics
from cephfit.results.statistics.loads import LoadShape, Repeats, in_order, names_of, shapes_of
from cephfit.results.statistics.sample_baselines import tried_of
from cephfit.results.statistics.summary_statistics import CONFIDENCE, Interval, spread_as_of

CLIENTS = "clients"
IODEPTH = "iodepth"


@dataclass(frozen=True, slots=True)
class Level:
    """A mean over repeats.

    Attributes:
        mean: of the repeats.
        interval: of the mean; None where the scatter is not known.
    """

    mean: float
    interval: Interval | None

    @classmethod
    def of_repeats(cls, values: Sequence[float]) -> "Level":
        """Return the mean of repeats, with Student's interval from these repeats alone."""
        return cls(summary_statistics.mean(values), summary_statistics.student_interval(values))

    def to_json(self) -> dict[str, float | None]:
        """Return the mean and the ends of its interval as JSON values."""
        found = self.interval
        return {"mean": self.mean, "low": found.low if found else None, "high": found.high if found else None}


@dataclass(frozen=True, slots=True)
class Point:
    """One load on a curve.

    Attributes:
        load: name; empty for the measurement's own load.
        x: number of clients, or I/Os in flight per client.
        n_clients: number of concurrent clients.
        n_repeats: number of repeats that count.
        iops: sum over all clients.
        latency_ns: mean completion latency over all I/Os of all clients.
        p99_ns: 99th percentile of the slowest client; None without percentiles.
        gain: rate relative to the curve's first point, which is 1 and has no interval.
    """

    load: str
    x: int
    n_clients: int
    n_repeats: int
    iops: Level
    latency_ns: Level
    p99_ns: Level | None
    gain: Level


@dataclass(frozen=True, slots=True)
class Curve:
    """One configuration in one cell, from the smallest load to the largest.

    Attributes:
        configuration: name.
        cell: which of the 20.
        along: the growing quantity, ``clients`` or ``iodepth``.
        fixed: the constant part of the load, as text.
        points: with rising ``x``, at least two.
    """

    configuration: str
    cell: Cell
    along: str
    fixed: str
    points: tuple[Point, ...]


def curves_of(samples: Iterable[Sample], *, confidence: float = CONFIDENCE) -> tuple[Curve, ...]:
    """Return every curve of a run: its loads differ only in clients, or only in depth.

    Two or three repeats of one load are too few to estimate a scatter. It is moderated over the loads of the same
    configuration and cell, as predictions moderate it over configurations. The effect of rounds is estimated over
    all curves together (``Absolute``).

    Args:
        samples: of one run, in any order.
        confidence: level of each interval by itself.
    """
    columns = SampleColumns.of(samples)
    families = _families(shapes_of(columns).values())
    if not families:
        return ()
    on_curves = dict.fromkeys(shape.name for _, _, shapes in families for shape in shapes)
    names = dict.fromkeys(
        [DEFAULT_CONFIGURATION, *(columns.configurations[c] for c in in_order(columns.configuration))]
    )
    repeats = {
        (*place, load): there.whole
        for load in names_of(columns)
        if load in on_curves
        for place, there in tried_of(columns, load).items()
        if there.whole
    }
    rates = _Quantity.of(repeats, lambda whole: whole.sums(columns.iops), confidence)
    means = _Quantity.of(repeats, Repeats.latency_mean_ns, confidence)
    tails = _Quantity.of(repeats, Repeats.slowest_p99_ns, confidence)
    curves = []
    for along, fixed, shapes in families:
        for cell in CELLS:
            for name in names:
                places = [(shape, (name, cell, shape.name)) for shape in shapes]
                points = tuple(
                    Point(
                        load=shape.name,
                        x=shape.n_clients if along == CLIENTS else shape.iodepth,
                        n_clients=shape.n_clients,
                        n_repeats=len(repeats[place]),
                        iops=rates.level(place),
                        latency_ns=means.level(place),
                        p99_ns=tails.level(place) if place in tails.values else None,
                        gain=rates.gain(place, next(p for _, p in places if p in repeats)),
                    )
                    for shape, place in places
                    if place in repeats
                )
                if len(points) > 1:
                    curves.append(Curve(name, cell, along, fixed, points))
    return tuple(curves)


_Place = tuple[str, Cell, str]
"""Configuration, cell and load."""


@dataclass(frozen=True, slots=True)
class _Quantity:
    """One positive figure of every repeat on any curve, and the spread of its means.

    Attributes:
        values: by place and round.
        absolute: of a table of all loads in every configuration's cells; None where nothing was repeated.
        rows: of the table, by load.
        columns: of the table, by configuration and cell.
        confidence: of each interval by itself.
    """

    values: Mapping[_Place, Mapping[int, float]]
    absolute: Absolute | None
    rows: Mapping[str, int]
    columns: Mapping[tuple[str, Cell], int]
    confidence: float

    @classmethod
    def of(
        cls,
        repeats: Mapping[_Place, Repeats],
        figures_of: Callable[[Repeats], Sequence[float | None]],
        confidence: float,
    ) -> "_Quantity":
        values = {
            place: found
            for place, whole in repeats.items()
            if (found := {r: v for r, v in zip(whole.numbers, figures_of(whole), strict=True) if v is not None})
        }
        rows = {load: j for j, load in enumerate(dict.fromkeys(load for _, _, load in values))}
        columns = {of: c for c, of in enumerate(dict.fromkeys((name, cell) for name, cell, _ in values))}
        rounds = {r: i for i, r in enumerate(sorted({r for found in values.values() for r in found}))}
        figures = np.ones((len(rows), len(columns), len(rounds)))
        present = np.zeros(figures.shape, dtype=np.bool_)
        for (name, cell, load), found in values.items():
            for r, value in found.items():
                at = rows[load], columns[name, cell], rounds[r]
                figures[at], present[at] = value, True
        blocks = tuple(Blocks.of(present[:, c]) for c in range(len(columns)))
        table = Table(tuple(cell for _, cell in columns), np.log(figures), present, blocks)
        return cls(values, Absolute.of_one_cell(table) if values else None, rows, columns, confidence)

    def level(self, place: _Place) -> Level:
        """Return the mean of one load."""
        own = tuple(self.values[place].values())
        spread = None if self.absolute is None else spread_as_of(self.absolute, self._mean(place), len(own))
        return Level(
            summary_statistics.mean(own),
            summary_statistics.level_interval(own, spread, confidence=self.confidence),
        )

    def gain(self, place: _Place, first: _Place) -> Level:
        """Return the ratio to the first load of the curve; the effect of rounds on both cancels."""
        ratio = summary_statistics.ratio(tuple(self.values[place].values()), tuple(self.values[first].values()))
        if self.absolute is None or place == first:
            return Level(ratio, None)
        spread = spread_as_of(self.absolute, self._mean(place) - self._mean(first), 1)
        return Level(ratio, summary_statistics.level_interval((ratio,), spread, confidence=self.confidence))

    def _mean(self, place: _Place) -> Floats:
        """Return the weights of all log figures in the mean of a place."""
        assert self.absolute is not None
        table = self.absolute.table
        name, cell, load = place
        weights = np.zeros(table.logs.shape)
        weights[:, self.columns[name, cell]] = table.mean_of(self.rows[load], self.columns[name, cell])
        return weights


def _families(shapes: Iterable[LoadShape]) -> list[tuple[str, str, list[LoadShape]]]:
    """Return (growing quantity, constant part, loads) of the curves with more than one load."""
    found: dict[tuple[str, str], dict[int, LoadShape]] = {}
    for shape in shapes:
        rest = f", {shape.rest}" if shape.rest else ""
        depth = "1 I/O" if shape.iodepth == 1 else f"{shape.iodepth} I/Os"
        together = "1 client" if shape.n_clients == 1 else f"{shape.n_clients} clients"
        found.setdefault((CLIENTS, f"{depth} in flight per client{rest}"), {})[shape.n_clients] = shape
        found.setdefault((IODEPTH, f"{together}{rest}"), {})[shape.iodepth] = shape
    return [
        (along, fixed, [shapes_at[x] for x in sorted(shapes_at)])
        for (along, fixed), shapes_at in sorted(found.items())
        if len(shapes_at) > 1
    ]


def levels_of(samples: Iterable[Sample]) -> MeasuredLevels:
    """Return the figures of every load without a mix and without a rate limit.

    A repeat counts if every client is ``ok``. Where several loads have the same number of I/Os in flight, the one
    with the most clients counts: virtual machines are separate clients.

    Args:
        samples: of one run, in any order.
    """
    columns = SampleColumns.of(samples)
    shapes = shapes_of(columns)
    repeats: dict[Place, Repeats] = {}
    for load in sorted(names_of(columns), key=lambda name: -shapes[name].n_clients if name in shapes else 0):
        shape = shapes.get(load)
        if shape is None or not shape.is_plain:
            continue
        for (name, cell), there in tried_of(columns, load).items():
            kind = replace(shape.loaded(cell), iodepth=1)
            if there.whole:
                repeats.setdefault((name, kind, shape.n_clients * shape.iodepth), there.whole)
    used = (
        np.concatenate([whole.rows.ravel() for whole in repeats.values()]) if repeats else np.array([], np.int64)
    )
    tails = columns.tails
    common = [i for i, p in enumerate(tails.percentiles) if 0 < p < 100 and (tails.ns[used, i] > 0).all()]
    percentiles = tuple(tails.percentiles[i] for i in common) if len(used) else ()
    figures = {place: _figures(whole, percentiles, tails.ns[:, common]) for place, whole in repeats.items()}
    order = {columns.configurations[c]: i for i, c in enumerate(in_order(columns.configuration))}
    return MeasuredLevels(percentiles, dict(sorted(figures.items(), key=lambda item: order[item[0][0]])))


def _figures(repeats: Repeats, percentiles: tuple[float, ...], quantiles: Floats) -> dict[int, LevelFigures]:
    """Return the figures by repeat.

    Args:
        quantiles: of all samples of the run at the percentiles, shape (N, P).
    """
    rates, means = repeats.sums(repeats.samples.iops), repeats.latency_mean_ns()
    n_ios = repeats.samples.n_ios[repeats.rows].astype(np.float64)
    mixed = (
        mixed_percentiles(quantiles[repeats.rows], n_ios, percentiles, percentiles)
        if percentiles
        else n_ios[:, :0]
    )
    return {
        number: LevelFigures(rate, mean_ns, tuple(of_mix))
        for number, rate, mean_ns, of_mix in zip(repeats.numbers, rates, means, mixed.tolist(), strict=True)
    }
