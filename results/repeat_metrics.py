"""What the clients of one repeat make together. Pure."""

import math
from collections.abc import Iterable, Sequence

from cephfit.sample import Metrics, Sample

_P99 = 99.0


def metrics_of(repeat: Iterable[Sample]) -> list[Metrics]:
    """The metrics of each client of a repeat that counts."""
    return [sample.metrics for sample in repeat if sample.metrics is not None]


def mean_latency_ns(clients: Sequence[Metrics]) -> float:
    """Over all I/Os: each client's mean weighs as much as it did I/Os."""
    n_ios = sum(m.n_ios for m in clients)
    return math.fsum(m.latency_mean_ns * m.n_ios for m in clients) / n_ios


def slowest_p99_ns(clients: Sequence[Metrics]) -> float | None:
    """Percentiles of clients cannot be merged into one of all of them; that of the slowest bounds it.

    Returns:
        None where a client has none.
    """
    found = [m.latency_percentiles_ns.get(_P99) for m in clients]
    known = [p for p in found if p]
    return max(known) if len(known) == len(clients) and known else None
