"""How a configuration scales: rate and latency over the number of clients, and over the I/Os in flight. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cephfit.cells import CELLS, Cell
from cephfit.configuration import DEFAULT_CONFIGURATION
from cephfit.results import statistics
from cephfit.results.baselines import whole_repeats
from cephfit.results.loads import LoadShape, shapes_of
from cephfit.results.repeat_metrics import mean_latency_ns, metrics_of, slowest_p99_ns
from cephfit.results.statistics import CONFIDENCE, Interval
from cephfit.sample import Sample

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


@dataclass(frozen=True, slots=True)
class Point:
    """One load on a curve.

    Attributes:
        load: its name; empty is the measurement's own.
        x: number of clients, or I/Os in flight per client.
        n_clients: that ran together.
        n_repeats: that count.
        iops: of all clients together.
        latency_ns: mean completion latency over all I/Os of all clients.
        p99_ns: 99th percentile of the client that was slowest; None where there are no percentiles.
        gain: rate against the curve's first point, which itself is 1 and has no interval.
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
        along: what grows, ``clients`` or ``iodepth``.
        fixed: what does not, in words.
        points: with rising ``x``, at least two.
    """

    configuration: str
    cell: Cell
    along: str
    fixed: str
    points: tuple[Point, ...]


def curves_of(samples: Iterable[Sample], *, confidence: float = CONFIDENCE) -> tuple[Curve, ...]:
    """Every curve that a run's loads make: loads that differ in nothing but clients, or nothing but depth.

    The scatter of the repeats is pooled over a curve's points (see ``statistics.pooled_spread``): two or three
    repeats of one load alone would say too little.

    Args:
        samples: of one run, in any order.
        confidence: of each interval by itself.
    """
    samples = list(samples)
    by_place: dict[tuple[str, Cell, str], list[Sample]] = {}
    for sample in samples:
        by_place.setdefault((sample.key.configuration, sample.key.cell, sample.key.load), []).append(sample)
    names = dict.fromkeys([DEFAULT_CONFIGURATION, *(configuration for configuration, _, _ in by_place)])
    curves = []
    for along, fixed, shapes in _families(shapes_of(samples).values()):
        for cell in CELLS:
            for name in names:
                measured = [
                    (shape, repeats)
                    for shape in shapes
                    if (repeats := whole_repeats(by_place.get((name, cell, shape.name), [])))
                ]
                if len(measured) > 1:
                    points = _points(along, measured, confidence)
                    curves.append(Curve(name, cell, along, fixed, points))
    return tuple(curves)


def _families(shapes: Iterable[LoadShape]) -> list[tuple[str, str, list[LoadShape]]]:
    """(what grows, what does not, the loads): only where something grows."""
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


def _points(
    along: str, measured: Sequence[tuple[LoadShape, list[list[Sample]]]], confidence: float
) -> tuple[Point, ...]:
    rates = [[math.fsum(m.iops for m in metrics_of(repeat)) for repeat in repeats] for _, repeats in measured]
    means = [[mean_latency_ns(metrics_of(repeat)) for repeat in repeats] for _, repeats in measured]
    tails = [
        [p for repeat in repeats if (p := slowest_p99_ns(metrics_of(repeat))) is not None]
        for _, repeats in measured
    ]
    rate_spread = statistics.pooled_spread(rates)
    mean_spread = statistics.pooled_spread(means)
    tail_spread = statistics.pooled_spread(tails)
    points: list[Point] = []
    for (shape, repeats), rate, mean, tail in zip(measured, rates, means, tails, strict=True):
        points.append(
            Point(
                load=shape.name,
                x=shape.n_clients if along == CLIENTS else shape.iodepth,
                n_clients=shape.n_clients,
                n_repeats=len(repeats),
                iops=_level(rate, rate_spread, confidence),
                latency_ns=_level(mean, mean_spread, confidence),
                p99_ns=_level(tail, tail_spread, confidence) if tail else None,
                gain=Level(
                    statistics.ratio(rate, rates[0]),
                    statistics.ratio_interval(rate, rates[0], rate_spread, confidence=confidence)
                    if points
                    else None,
                ),
            )
        )
    return tuple(points)


def _level(values: Sequence[float], spread: statistics.Spread | None, confidence: float) -> Level:
    return Level(statistics.mean(values), statistics.level_interval(values, spread, confidence=confidence))
