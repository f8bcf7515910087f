"""The largest fleet by latencies at limited rates, on queues with a known or a simulated truth."""

import heapq
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from queue_samples import PERCENTILES, sustainable
from scipy.optimize import brentq
from scipy.special import gammaincinv

from cephfit.core.values.baseline import LevelFigures, Pace
from cephfit.core.values.cells import LoadedCell, Pattern
from cephfit.core.values.profile import Profile
from cephfit.mapper.absolute_rates.fleet_load import FleetLoad, FleetPart
from cephfit.mapper.absolute_rates.load_curve import Limit, LoadCurve, WorkloadMix
from cephfit.mapper.absolute_rates.paced_load import PacedCurve, PacedFleet, PacedPart, at_full_speed

READ, WRITE = LoadedCell(4096, Pattern.RANDREAD), LoadedCell(4096, Pattern.RANDWRITE)
FLUSHED = LoadedCell(4096, Pattern.RANDWRITE, sync="fsync")
Levels = dict[int | Pace, LevelFigures]


def workload(*, reads: int = 0, writes: int = 0, depth: float | None = None, flushes: int = 0) -> Profile:
    """A profile of random 4K accesses, with or without a known depth."""
    counts = {"read": {"4K": reads}, "write": {"4K": writes}}
    document = {"schema_version": 1, "name": "w", "accesses": counts, "random": {"read": 1.0, "write": 1.0}}
    rows = [[p, 4096, True, depth, True, n, None] for p, n in (("randread", reads), ("randwrite", writes)) if n]
    columns = ["pattern", "nbytes", "is_aligned", "depth", "is_sync", "accesses", "waiting_seconds"]
    commits = {"flushes": flushes, "flush_waiting_seconds": None, "fua_writes": 0, "sync_writes": writes}
    return Profile.from_json({**document, "demands": {"columns": columns, "rows": rows}, "commits": commits})


def of_times(rate: float, mean: float, quantiles: Sequence[float]) -> LevelFigures:
    return LevelFigures(rate, 1e9 * mean, tuple(1e9 * q for q in quantiles))


def constant(seconds: float, busy: Sequence[float]) -> Levels:
    """One server with a constant time of service: closed at full speed, M/D/1 with random arrivals."""
    found: Levels = {n: of_times(1 / seconds, n * seconds, [n * seconds] * len(PERCENTILES)) for n in (1, 4, 16)}
    if busy:
        found[Pace(1, 1, 0.1 / seconds)] = of_times(0.1 / seconds, seconds, [seconds] * len(PERCENTILES))
    for u in busy:
        mean = seconds * (1 + u / (2 * (1 - u)))
        quantiles = [seconds * (1 + _wait_of_md1(u, p / 100)) for p in PERCENTILES]
        found[Pace(4, 16, u / seconds)] = of_times(u / seconds, mean, quantiles)
    return found


def _wait_of_md1(u: float, share: float) -> float:
    """The quantile of the wait in services (A. K. Erlang, 1909)."""

    def below(t: float) -> float:
        terms = ((u * (k - t)) ** k / math.factorial(k) * math.exp(u * (t - k)) for k in range(int(t) + 1))
        return (1 - u) * math.fsum(terms)

    return 0.0 if below(0.0) >= share else float(brentq(lambda t: below(t) - share, 0.0, 25.0))


def exponential(rate: float, busy: Sequence[float]) -> Levels:
    """One server with exponential times of service: M/M/1 with random arrivals."""
    found: Levels = {
        n: of_times(rate, n / rate, [gammaincinv(n, p / 100) / rate for p in PERCENTILES]) for n in (1, 4, 16)
    }
    for u in busy:
        mean = 1 / (rate * (1 - u))
        found[Pace(4, 16, u * rate)] = of_times(
            u * rate, mean, [-math.log(1 - p / 100) * mean for p in PERCENTILES]
        )
    return found


def part(
    profile: Profile, levels: Mapping[LoadedCell, Levels], per_s: float = 1.0, n_machines: float = 1
) -> PacedPart:
    full = at_full_speed(levels)
    mix = WorkloadMix.of(profile, sorted(full), where="test")
    curve = PacedCurve.of(mix, levels, LoadCurve.of(mix, full, PERCENTILES, where="test"))
    assert curve is not None
    return PacedPart(curve, n_machines, per_s)


def most(parts: Sequence[PacedPart], p99: float | None = None, mean: float | None = None, **how: bool) -> float:
    return PacedFleet(parts, Limit(p99, mean), is_open=how.get("is_open", True)).most


@pytest.mark.parametrize("busy", [0.35, 0.6, 0.7, 0.95])
def test_the_mean_of_an_md1_queue_is_exact_between_and_above_the_measured_rates(busy: float) -> None:
    one = part(workload(reads=1), {READ: constant(0.004, [0.3, 0.5, 0.8])})
    limit = 0.004 * (1 + busy / (2 * (1 - busy)))
    assert most([one], mean=limit) == pytest.approx(busy * 250, rel=1e-3)


@pytest.mark.parametrize("busy", [0.3, 0.5, 0.7, 0.85])
def test_the_percentile_of_an_md1_queue_is_interpolated(busy: float) -> None:
    one = part(workload(reads=1), {READ: constant(0.004, [0.2, 0.4, 0.6, 0.8])})
    limit = 0.004 * (1 + _wait_of_md1(busy, 0.99))
    assert most([one], p99=limit) == pytest.approx(busy * 250, rel=0.03)


@pytest.mark.parametrize("limit", [0.008, 0.02, 0.06])
def test_an_mm1_queue_is_exact(limit: float) -> None:
    one = part(workload(reads=1), {READ: exponential(1000.0, [0.1, 0.6])})
    assert most([one], p99=limit) == pytest.approx(sustainable(1000.0, limit), rel=2e-3)


@pytest.mark.parametrize("reads", [0.2, 0.5, 0.9])
def test_the_mean_wait_of_two_kinds_is_that_of_one_queue(reads: float) -> None:
    """The formula of Pollaczek and Khinchine gives the wait of reads of 1 ms and writes of 4 ms."""
    levels = {READ: constant(0.001, [0.2, 0.5, 0.8]), WRITE: constant(0.004, [0.2, 0.5, 0.8])}
    service = reads * 0.001 + (1 - reads) * 0.004
    second = reads * 0.001**2 + (1 - reads) * 0.004**2
    per_s = 0.7 / service
    mean = per_s * second / (2 * (1 - 0.7)) + service
    one = part(workload(reads=round(10 * reads), writes=round(10 * (1 - reads))), levels)
    assert most([one], mean=mean) == pytest.approx(per_s, rel=2e-3)
    two = [part(workload(reads=1), levels, reads), part(workload(writes=1), levels, 1 - reads)]
    # The writes take longer, so they reach the limit first: their own time and the same wait.
    assert most(two, mean=mean - service + 0.004) == pytest.approx(per_s, rel=2e-3)


Served = Callable[[float], float]
"""Completion time of an access that begins at a time; called in the order of the beginnings."""


def paced_clients(
    n: int, per_s: float, served: Served, seed: int, count: int = 40_000
) -> tuple[float, list[float]]:
    """Return mean and percentiles of clients that begin at random times and wait for their own I/O, as fio."""
    dice = np.random.default_rng(seed)
    due = dice.exponential(1 / per_s, n).tolist()
    begins = [(time, client) for client, time in enumerate(due)]
    heapq.heapify(begins)
    times = np.empty(count)
    for i in range(count):
        begin, client = heapq.heappop(begins)
        end = served(begin)
        times[i] = end - begin
        due[client] += dice.exponential(1 / per_s)
        heapq.heappush(begins, (max(due[client], end), client))
    return float(times.mean()), np.percentile(times, PERCENTILES).tolist()


def one_server(serve: Callable[[], float]) -> Served:
    free = 0.0

    def served(begin: float) -> float:
        nonlocal free
        free = max(free, begin) + serve()
        return free

    return served


def bucket(least: float, per_io: float, tokens: float) -> Served:
    """A disk with a cap: an access takes ``least``, and waits for a token if the bucket is empty."""
    missing, last = 0.0, 0.0

    def served(begin: float) -> float:
        nonlocal missing, last
        missing, last = max(0.0, missing - (begin - last)), begin
        missing += per_io
        return begin + least + max(0.0, missing - tokens * per_io)

    return served


def measured(make: Callable[[], Served], rate: float, paces: Sequence[float], full: Mapping[int, float]) -> Levels:
    """What random arrivals measure, here those of many clients, and the constant latencies of full speed."""
    found: Levels = {n: of_times(min(rate, n / s), s, [s] * len(PERCENTILES)) for n, s in full.items()}
    for i, per_s in enumerate(paces):
        found[Pace(4, 8, per_s)] = of_times(per_s, *paced_clients(300, per_s / 300, make(), i))
    return found


def counted(make: Callable[[], Served], per_s: float, limit: float) -> int:
    """The largest number of clients within the limit when they are added one by one."""
    n = 1
    while paced_clients(n, per_s, make(), 100 + n)[1][PERCENTILES.index(99.0)] <= limit:
        n += 1
    return n - 1


def exponential_server() -> Served:
    dice = np.random.default_rng(11)
    return one_server(lambda: float(dice.exponential(0.004)))


@pytest.mark.parametrize(
    ("make", "per_s", "limit"),
    [
        (lambda: one_server(lambda: 0.004), 20.0, 0.014),
        (lambda: one_server(lambda: 0.004), 8.0, 0.022),
        (exponential_server, 12.0, 0.040),
    ],
)
def test_clients_added_one_by_one_are_as_many_as_predicted(
    make: Callable[[], Served], per_s: float, limit: float
) -> None:
    """The clients of the samples differ from those of the fleet in number and in rate."""
    levels = {READ: measured(make, 250.0, [20, 60, 120, 180, 216], {1: 0.004, 4: 0.016, 16: 0.064})}
    one = part(workload(reads=1, depth=1.0), levels, per_s)
    predicted, real = math.floor(most([one], p99=limit, is_open=False)), counted(make, per_s, limit)
    assert abs(predicted - real) <= max(1, 0.1 * real)


def test_few_clients_that_wait_for_themselves_are_counted_as_such() -> None:
    """Four clients with one I/O in flight at an exponential server measure the means of a fleet of any size."""
    levels = {READ: exponential(250.0, [])}
    for i, per_s in enumerate((20.0, 40.0, 55.0)):
        levels[READ][Pace(4, 1, 4 * per_s)] = of_times(
            4 * per_s, *paced_clients(4, per_s, exponential_server(), i)
        )
    one = part(workload(reads=1), levels)
    for busy in (0.3, 0.5):
        assert most([one], mean=0.004 / (1 - busy)) == pytest.approx(250 * busy, rel=0.06)


def test_a_disk_with_a_cap_serves_far_more_than_full_speed_shows() -> None:
    """At full speed every access waits for its token, below the cap hardly any does."""
    make = lambda: bucket(0.001, 0.005, 10)  # noqa: E731
    levels = {READ: measured(make, 200.0, [20, 100, 150, 170, 180, 190], {n: n * 0.005 for n in (1, 2, 4, 16)})}
    one, limit = part(workload(reads=1, depth=1.0), levels, 8.0), 0.010
    real = counted(make, 8.0, limit)
    predicted = math.floor(most([one], p99=limit, is_open=False))
    assert abs(predicted - real) <= max(1, 0.1 * real)
    full = FleetLoad([FleetPart(one.paced.curve, 1, 8.0)], Limit(limit), is_open=False).most
    assert full < real / 2


def test_above_the_measured_rates_the_answer_is_extrapolated_up_to_full_speed() -> None:
    flat = [0.002] * len(PERCENTILES)
    levels: Levels = {1: of_times(200.0, 0.005, [0.005] * len(PERCENTILES))}
    levels |= {Pace(4, 16, rate): of_times(rate, 0.002, flat) for rate in (50.0, 120.0)}
    fleet = PacedFleet([part(workload(reads=1), {READ: levels})], Limit(0.003), is_open=True)
    assert fleet.most == pytest.approx(200.0, rel=1e-3) and fleet.saturated == pytest.approx(200.0)
    assert fleet.measured == pytest.approx(120.0, rel=1e-3)
    tight = PacedFleet([part(workload(reads=1), {READ: levels})], Limit(0.001), is_open=True)
    assert tight.most == 0


def test_a_machine_that_always_waits_gets_no_higher_rate() -> None:
    """Many servers of 4 ms each: one I/O in flight gets 250 per second, all together 4000."""
    flat = [0.004] * len(PERCENTILES)
    levels: Levels = {n: of_times(n / 0.004, 0.004, flat) for n in (1, 4, 16)}
    levels |= {Pace(4, 1, rate): of_times(rate, 0.004, flat) for rate in (400.0, 800.0)}
    for per_s, keeps in ((240.0, True), (260.0, False)):
        one = part(workload(reads=1, depth=1.0), {READ: levels}, per_s)
        assert (most([one], p99=1.0, is_open=False) > 0) is keeps
        assert most([one], p99=1.0) == pytest.approx(4000 / per_s, rel=1e-3)


def test_own_bursts_count_as_at_full_speed_and_lengthen_the_waits_of_others() -> None:
    levels = {READ: constant(0.004, [0.2, 0.5, 0.8])}
    calm, bursts = (part(workload(reads=1, depth=d), levels, 1.0, 20) for d in (1.0, 4.0))
    # With four in flight at full speed an access takes 12 ms longer than with one.
    assert most([bursts], mean=0.0155, is_open=False) == 0
    assert most([calm], mean=0.0155, is_open=False) > 0
    assert most([calm, bursts], mean=0.03, is_open=False) < 0.8 * most([calm, calm], mean=0.03, is_open=False)
    deep = PacedFleet([part(workload(reads=1, depth=40.0), levels)], Limit(10.0), is_open=False)
    assert deep.alone().beyond == 1, "only 16 in flight were measured"


def test_flushed_writes_without_limited_rates_have_those_of_plain_ones() -> None:
    levels = {
        WRITE: constant(0.004, [0.2, 0.5, 0.8]),
        FLUSHED: at_full_speed({FLUSHED: constant(0.006, [])})[FLUSHED],
    }
    one = part(workload(writes=100, flushes=100), levels)
    # 6 ms alone, then the waits of plain ones at the same share of the pool's time.
    assert one.paced.share_per_s == pytest.approx(0.006)
    assert one.paced.least_mean_seconds == pytest.approx(0.006)
    assert most([one], mean=0.006 + 0.004 * 0.5) == pytest.approx(0.5 / 0.006, rel=1e-3)


def test_kinds_that_matter_need_limited_rates() -> None:
    levels = {READ: constant(0.001, []), WRITE: constant(0.004, [0.2, 0.5])}
    for reads, is_known in ((10, True), (90, False)):
        mix = WorkloadMix.of(workload(reads=reads, writes=100), [READ, WRITE], where="test")
        full = at_full_speed(levels)
        curve = LoadCurve.of(mix, full, PERCENTILES, where="test")
        assert (PacedCurve.of(mix, levels, curve) is not None) is is_known


def test_a_limited_rate_at_full_speed_is_left_out() -> None:
    levels = constant(0.004, [0.3])
    saturated = {**levels, Pace(4, 1, 260.0): of_times(249.0, 0.016, [0.016] * len(PERCENTILES))}
    one, other = (part(workload(reads=1), {READ: found}) for found in (levels, saturated))
    assert most([one], mean=0.006) == most([other], mean=0.006)
