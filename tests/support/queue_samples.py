"""Samples of a storage that is one queue with known service rates, so that the crossing of a limit is known.

One server takes accesses in turn, each for an exponential time with a mean of 1 / m, for a service rate of m. With
N I/Os always in flight its rate is m, and an access waits for the N - 1 before it: its latency is the sum of N
exponential times (an Erlang distribution).
"""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from scipy.special import gammaincinv

from cephfit.core.values.cells import Cell
from cephfit.core.values.sample import Metrics, Sample, SampleKey, State

PERCENTILES = (1.0, 5.0, 25.0, 50.0, 75.0, 90.0, 95.0, 99.0, 99.9)
LEVELS = {"": (1, 1), "c2": (2, 1), "c4": (4, 1), "c4d2": (4, 2), "c4d8": (4, 8), "c4d32": (4, 32)}
"""Clients and iodepth by load."""


def queue_samples(
    service_rates: Mapping[str, Mapping[str, float]],
    *,
    levels: Mapping[str, tuple[int, int]] = LEVELS,
    repeats: int = 3,
    noise: float = 0.0,
    drift: float = 0.0,
    seed: int = 1,
    percentiles: Sequence[float] = PERCENTILES,
) -> Iterator[Sample]:
    """Yield the samples of a sweep.

    Args:
        service_rates: per second, by configuration and cell.
        levels: clients and iodepth by load.
        repeats: of each.
        noise: standard deviation of the log of one run's speed.
        drift: of the log of a round's speed.
        seed: of both.
        percentiles: that fio gives.
    """
    dice = np.random.default_rng(seed)
    for repeat in range(repeats):
        of_round = dice.normal(0, drift)
        for name, rates in service_rates.items():
            for load, (clients, depth) in levels.items():
                n = clients * depth
                for text, rate in rates.items():
                    served = rate * math.exp(of_round + dice.normal(0, noise))
                    seconds = n / served
                    for client in range(clients):
                        iops = n / seconds / clients
                        yield Sample(
                            SampleKey(name, Cell.parse(text), f"c{client}", repeat, load=load),
                            State.OK,
                            Metrics(
                                iops,
                                iops * Cell.parse(text).size.benchmark_nbytes,
                                max(1, round(10 * iops)),
                                10_000_000_000,
                                1e9 * seconds,
                                {p: 1e9 * float(gammaincinv(n, p / 100)) / served for p in percentiles},
                            ),
                            0,
                            1,
                            evidence={"load": {"iodepth": depth, "clients": clients}},
                        )


def sustainable(service_rate: float, limit_seconds: float, quantile: float = 0.99) -> float:
    """The rate of random arrivals at which the percentile of the queue reaches a limit.

    The latency of an M/M/1 queue is exponential with a mean of 1 / (service rate - rate).
    """
    return service_rate + math.log(1 - quantile) / limit_seconds
