"""Rate and latency of each kind of access over the I/Os in flight, from the samples of a run. Pure."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cephfit.core.absolute_spread import Absolute
from cephfit.core.latency_mixture import mixed_percentiles
from cephfit.core.values.cells import CELLS
from cephfit.core.values.load_level import LevelFigures, MeasuredLevels, Place
from cephfit.core.values.sample import Metrics, Sample
from cephfit.core.variance import Blocks, Table
from cephfit.results.statistics import summary_statistics
from cephfit.results.statistics.cell_intervals import spread_as_of
from cephfit.results.statistics.loads import by_place, names_of, shapes_of
from cephfit.results.statistics.sample_baselines import whole_repeats
from cephfit.results.statistics.scaling import mean_latency_ns, metrics_of


def levels_of(samples: Iterable[Sample]) -> MeasuredLevels:
    """Return the figures of every load without a mix and without a rate limit.

    A repeat counts if every client is ``ok``. Where several loads have the same number of I/Os in flight, the one
    with the most clients counts: virtual machines are separate clients.

    Args:
        samples: of one run, in any order.
    """
    samples = list(samples)
    shapes = shapes_of(samples)
    repeats: dict[Place, list[list[Sample]]] = {}
    for load in sorted(names_of(samples), key=lambda name: -shapes[name].n_clients if name in shapes else 0):
        shape = shapes.get(load)
        if shape is None or not shape.is_plain:
            continue
        own = [sample for sample in samples if sample.key.load == load]
        for (name, cell), of_cell in by_place(own).items():
            kind = replace(shape.loaded(cell), iodepth=1)
            if whole := whole_repeats(of_cell):
                repeats.setdefault((name, kind, shape.n_clients * shape.iodepth), whole)
    percentiles = _common_percentiles(repeats.values())
    figures = {
        place: {one[0].key.repeat: _figures(metrics_of(one), percentiles) for one in whole}
        for place, whole in repeats.items()
    }
    order = {name: i for i, name in enumerate(dict.fromkeys(sample.key.configuration for sample in samples))}
    return MeasuredLevels(percentiles, dict(sorted(figures.items(), key=lambda item: order[item[0][0]])))


def _common_percentiles(places: Iterable[Sequence[Sequence[Sample]]]) -> tuple[float, ...]:
    """Return the percentiles that all samples have, from 0 to 100 exclusively."""
    common: set[float] | None = None
    for whole in places:
        for one in whole:
            for metrics in metrics_of(one):
                own = {p for p, ns in metrics.latency_percentiles_ns.items() if ns > 0 and 0 < p < 100}
                common = own if common is None else common & own
    return tuple(sorted(common or ()))


def _figures(clients: Sequence[Metrics], percentiles: tuple[float, ...]) -> LevelFigures:
    quantiles: tuple[float, ...] = ()
    if percentiles:
        own = np.array([[m.latency_percentiles_ns[p] for p in percentiles] for m in clients])
        n_ios = np.array([m.n_ios for m in clients], dtype=np.float64)
        quantiles = tuple(mixed_percentiles(own, n_ios, percentiles, percentiles).tolist())
    return LevelFigures(math.fsum(m.iops for m in clients), mean_latency_ns(clients), quantiles)


def interval_factors(values: Mapping[str, Mapping[int, float]], confidence: float) -> Mapping[str, float]:
    """Return half the width of each configuration's interval as a factor of its figure.

    The scatter over repeats is moderated over configurations, and the effect of rounds on all of them is included.

    Args:
        values: positive figures of single repeats by configuration and repeat.
        confidence: of each interval by itself.

    Returns:
        By configuration; empty where nothing was repeated.
    """
    names = [name for name, found in values.items() if found]
    rounds = sorted({r for name in names for r in values[name]})
    if not names:
        return {}
    logs = np.zeros((len(names), 1, len(rounds)))
    present = np.zeros(logs.shape, dtype=np.bool_)
    for j, name in enumerate(names):
        for r, value in values[name].items():
            at = j, 0, rounds.index(r)
            logs[at], present[at] = math.log(value), True
    # The column's label is not used.
    table = Table(CELLS[:1], logs, present, (Blocks.of(present[:, 0]),))
    absolute = Absolute.of_one_cell(table)
    if absolute is None:
        return {}
    found = {}
    for j, name in enumerate(names):
        own = tuple(values[name].values())
        weights = np.zeros(logs.shape)
        weights[:, 0] = table.mean_of(j, 0)
        spread = spread_as_of(absolute, weights, len(own))
        interval = summary_statistics.level_interval(own, spread, confidence=confidence)
        assert interval is not None, "the spread is known"
        found[name] = interval.high / summary_statistics.mean(own)
    return found
