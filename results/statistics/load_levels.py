"""Rate and latency of each kind of access over the I/Os in flight, from the samples of a run. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from cephfit.core.latency_mixture import mixed_percentiles
from cephfit.core.values.load_level import LevelFigures, MeasuredLevels, Place
from cephfit.core.values.sample import Metrics, Sample
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
