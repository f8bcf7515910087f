"""The largest fleet within a latency limit, on queues with a known or a simulated truth."""

import heapq
import math
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from queue_samples import PERCENTILES, sustainable
from scipy.optimize import brentq
from scipy.special import gammaincinv

from cephfit.core.values.baseline import LevelFigures
from cephfit.core.values.cells import LoadedCell, Pattern
from cephfit.core.values.profile import Profile
from cephfit.mapper.absolute_rates.fleet_load import FleetLoad, FleetPart
from cephfit.mapper.absolute_rates.load_curve import Limit, LoadCurve, WorkloadMix

READ, WRITE = LoadedCell(4096, Pattern.RANDREAD), LoadedCell(4096, Pattern.RANDWRITE)
LOADS = (1, 2, 4, 8, 16, 32, 64)


def workload(*, reads: int = 0, writes: int = 0, depth: float | None = None) -> Profile:
    """A profile of random 4K accesses, with or without a known depth."""
    counts = {"read": {"4K": reads}, "write": {"4K": writes}}
    document = {"schema_version": 1, "name": "w", "accesses": counts, "random": {"read": 1.0, "write": 1.0}}
    rows = [[p, 4096, True, depth, True, n, None] for p, n in (("randread", reads), ("randwrite", writes)) if n]
    columns = ["pattern", "nbytes", "is_aligned", "depth", "is_sync", "accesses", "waiting_seconds"]
    return Profile.from_json({**document, "demands": {"columns": columns, "rows": rows}})


def served_in_turn(rate: float) -> dict[int, LevelFigures]:
    """What fio measures on one exponential server: with n in flight, a latency of n services."""
    return {
        n: LevelFigures(rate, 1e9 * n / rate, tuple(1e9 * gammaincinv(n, p / 100) / rate for p in PERCENTILES))
        for n in LOADS
    }


def served_by(servers: int, rate: float) -> dict[int, LevelFigures]:
    """What fio measures on several servers: an own service, after those before it that find no free server."""
    dice = np.random.default_rng(1)
    found = {}
    for n in LOADS:
        waits = dice.gamma(n - servers, 1 / (servers * rate), 200_000) if n > servers else 0.0
        seconds = waits + dice.exponential(1 / rate, 200_000)
        quantiles = tuple(1e9 * float(q) for q in np.percentile(seconds, PERCENTILES))
        found[n] = LevelFigures(min(n, servers) * rate, 1e9 * float(seconds.mean()), quantiles)
    return found


def part(
    profile: Profile, levels: Mapping[LoadedCell, dict[int, LevelFigures]], n: float, per_s: float
) -> FleetPart:
    mix = WorkloadMix.of(profile, sorted(levels), where="test")
    return FleetPart(LoadCurve.of(mix, levels, PERCENTILES, where="test"), n, per_s)


@pytest.mark.parametrize("limit_ms", [8, 20, 60])
def test_random_arrivals_at_one_server_are_an_mm1_queue(limit_ms: float) -> None:
    one = part(workload(reads=1), {READ: served_in_turn(1000.0)}, 1, 1.0)
    load = FleetLoad([one], Limit(p99_seconds=limit_ms / 1000), is_open=True)
    assert load.most == pytest.approx(sustainable(1000.0, limit_ms / 1000), rel=0.02)
    assert load.at(load.most).beyond < 0.01


def test_the_mean_is_a_limit_too_and_the_stricter_one_counts() -> None:
    one = part(workload(reads=1), {READ: served_in_turn(1000.0)}, 1, 1.0)

    def most(p99: float | None, mean: float | None) -> float:
        return FleetLoad([one], Limit(p99, mean), is_open=True).most

    # The mean of an M/M/1 queue is 1 / (service rate - rate).
    assert most(None, 0.005) == pytest.approx(800, rel=1e-3)
    assert most(1.0, 0.005) == most(None, 0.005) and most(0.012, 0.005) == most(0.012, None)


@pytest.mark.parametrize("servers", [2, 4])
def test_random_arrivals_at_several_servers_are_an_mmc_queue(servers: int) -> None:
    rate, limit = 250.0, 0.03
    one = part(workload(reads=1), {READ: served_by(servers, rate)}, 1, 1.0)
    found = FleetLoad([one], Limit(p99_seconds=limit), is_open=True).most
    assert found == pytest.approx(
        brentq(lambda x: _mmc_above(x, rate, servers, limit) - 0.01, 1, servers * rate - 1), rel=0.03
    )


def _mmc_above(arrivals: float, rate: float, servers: int, seconds: float) -> float:
    """The share of an M/M/c queue's latencies above a time (Erlang's C formula)."""
    load = arrivals / rate
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    waits = last / (sum(load**k / math.factorial(k) for k in range(servers)) + last)
    slack = servers * rate - arrivals
    if slack == pytest.approx(rate):
        return math.exp(-rate * seconds) * (1 + waits * rate * seconds)
    of_waiting = (slack * math.exp(-rate * seconds) - rate * math.exp(-slack * seconds)) / (slack - rate)
    return (1 - waits) * math.exp(-rate * seconds) + waits * of_waiting


def simulated_p99(
    n: int, per_s: float, burst: int, serve: Callable[[np.random.Generator], float], seed: int
) -> float:
    """The 99th percentile of machines on one server that takes accesses in turn; each waits for its whole burst.

    The pauses are such that each machine reaches its rate.
    """
    dice = np.random.default_rng(seed)
    mean_pause = burst / per_s
    for _ in range(6):  # the pause is what the answers leave of the time
        latencies, cycle = _bursts(n, mean_pause, burst, serve, dice, 4000)
        mean_pause = max(1e-6, mean_pause + (burst / per_s - cycle))
    latencies, cycle = _bursts(n, mean_pause, burst, serve, dice, 40_000)
    return math.inf if burst / cycle < 0.97 * per_s else float(np.percentile(latencies, 99))


def _bursts(
    n: int,
    pause: float,
    burst: int,
    serve: Callable[[np.random.Generator], float],
    dice: np.random.Generator,
    count: int,
) -> tuple[list[float], float]:
    """Return the latencies, and the mean time from one burst of a machine to its next."""
    begins = [dice.exponential(pause) for _ in range(n)]
    heapq.heapify(begins)
    free, latencies, last = 0.0, [], 0.0
    for _ in range(count // burst):
        begin = heapq.heappop(begins)
        free = max(free, begin)
        for _ in range(burst):
            free += serve(dice)
            latencies.append(free - begin)
        heapq.heappush(begins, free + dice.exponential(pause))
        last = max(last, begin)
    return latencies, last * n / (count // burst)


@pytest.mark.parametrize(
    ("rate", "per_s", "limit"), [(1000.0, 60.0, 0.012), (300.0, 25.0, 0.025), (300.0, 8.0, 0.030)]
)
def test_machines_that_wait_are_counted_as_a_simulation_counts_them(
    rate: float, per_s: float, limit: float
) -> None:
    one = part(workload(reads=1, depth=1.0), {READ: served_in_turn(rate)}, 1, per_s)
    predicted = FleetLoad([one], Limit(p99_seconds=limit), is_open=False).most
    serve = lambda dice: dice.exponential(1 / rate)  # noqa: E731
    below, above = (
        simulated_p99(math.floor(predicted * f), per_s, 1, serve, 7) for f in (0.93, 1.07 + 1 / predicted)
    )
    assert below < limit < above
    assert FleetLoad([one], Limit(p99_seconds=limit), is_open=True).most < predicted


def test_one_machine_that_waits_never_queues_behind_itself() -> None:
    """At 80 % of the rate of the server, alone, its latency is one service; random arrivals would wait five."""
    one = part(workload(reads=1, depth=1.0), {READ: served_in_turn(100.0)}, 1, 80.0)
    limit = Limit(p99_seconds=1.02 * math.log(100) / 100)
    assert FleetLoad([one], limit, is_open=False).at(1.0).excess < 1
    assert FleetLoad([one], limit, is_open=True).at(1.0).excess > 1


def test_own_bursts_may_exceed_a_limit_alone() -> None:
    levels = {READ: served_in_turn(1000.0)}
    burst = part(workload(reads=1, depth=30.0), levels, 1, 1.0)
    load = FleetLoad([burst], Limit(p99_seconds=0.02), is_open=False)
    assert load.most == 0 and load.alone().beyond == 0
    # 30 services: the 99th percentile of their sum.
    enough = gammaincinv(30, 0.99) / 1000
    assert FleetLoad([burst], Limit(p99_seconds=1.05 * enough), is_open=False).most > 0
    assert (
        FleetLoad([part(workload(reads=1, depth=100.0), levels, 1, 1.0)], Limit(0.02), is_open=False)
        .alone()
        .beyond
        == 1
    )


@pytest.mark.parametrize("reads", [0.5, 0.9])
def test_kinds_on_one_server_wait_for_each_other(reads: float) -> None:
    """Lindley's recursion gives the waits: reads of 1 ms and writes of 4 ms in one queue, 85 % busy."""
    dice = np.random.default_rng(3)
    n, mean = 200_000, reads * 0.001 + (1 - reads) * 0.004
    is_read = dice.random(n) < reads
    services = dice.exponential(np.where(is_read, 0.001, 0.004))
    gaps = dice.exponential(mean / 0.85, n)
    ends, waits = 0.0, np.empty(n)
    for i, (gap, service) in enumerate(zip(gaps.tolist(), services.tolist(), strict=True)):
        ends = max(0.0, ends - gap)
        waits[i] = ends
        ends += service
    of_reads = float(np.percentile((waits + services)[is_read], 99))
    levels = {READ: served_in_turn(1000.0), WRITE: served_in_turn(250.0)}
    parts = [part(workload(reads=1), levels, 1, reads), part(workload(writes=1), levels, 1, 1 - reads)]
    alone = FleetLoad(parts, Limit(p99_seconds=of_reads), is_open=True).most * mean
    # The writes reach the limit a little earlier than the reads. A queue of unlike services is longer than one
    # with the mean service, which the measured times of single kinds do not show.
    assert 0.8 < alone < 0.95


def test_a_rate_that_falls_under_load_counts_with_its_best() -> None:
    ends = {n: 1e9 * n / rate for n, rate in {1: 100.0, 4: 300.0, 16: 200.0}.items()}
    levels = {
        READ: {
            n: LevelFigures(1e9 * n / ns, ns, tuple(ns * (1 + p / 100) for p in PERCENTILES))
            for n, ns in ends.items()
        }
    }
    load = FleetLoad([part(workload(reads=1), levels, 1, 1.0)], Limit(p99_seconds=60.0), is_open=True)
    assert load.most == pytest.approx(300.0, rel=0.02)


def test_a_limit_beyond_the_measured_loads_is_known_to_be() -> None:
    levels = {READ: {n: f for n, f in served_in_turn(1000.0).items() if n <= 4}}
    load = FleetLoad([part(workload(reads=1), levels, 1, 1.0)], Limit(p99_seconds=0.5), is_open=True)
    assert load.at(load.most).beyond > 0.01 and load.most < 1000
    tight = FleetLoad([part(workload(reads=1), levels, 1, 1.0)], Limit(p99_seconds=0.006), is_open=True)
    assert tight.at(tight.most).beyond < 0.01


def test_large_fleets_that_wait_are_those_that_do_not() -> None:
    levels = {READ: served_in_turn(1000.0)}
    many = part(workload(reads=1, depth=1.0), levels, 1, 0.05)
    limit = Limit(p99_seconds=0.02)
    waiting, not_waiting = (FleetLoad([many], limit, is_open=is_open).most for is_open in (False, True))
    assert waiting == pytest.approx(not_waiting, rel=0.01)
