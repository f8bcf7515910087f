"""The cost of locks on a shared volume, over its repeats. Pure."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cephfit.results.statistics.scaling import Level
from cephfit.results.statistics.summary_statistics import CONFIDENCE, Interval, mean, student_interval
from cephfit.results.tables.csv_text import csv_text

NO_LOCK = "none"


@dataclass(frozen=True, slots=True)
class ClientFigures:
    """What one client did in one run.

    Attributes:
        n: accesses that began within the measured time.
        lock_seconds, access_seconds, unlock_seconds: their total times in each step.
        n_busy: how often a lock was busy when a client tried to get it.
        times_ms: of each access, from the first attempt for a lock to the release of the last.
    """

    n: int
    lock_seconds: float
    access_seconds: float
    unlock_seconds: float
    n_busy: int
    times_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class SharingRun:
    """One run of all clients.

    Attributes:
        way: how clients excluded each other: ``none``, ``exclusive-lock`` or ``ranges``.
        range_nbytes: bytes for which one lock is; 0 without range locks.
        shared_pct: per cent of the accesses to blocks that other clients use too.
        repeat: round; all combinations are measured in each round, in a different order.
        run_seconds: measured time.
        clients: in their order.
    """

    way: str
    range_nbytes: int
    shared_pct: float
    repeat: int
    run_seconds: float
    clients: tuple[ClientFigures, ...]

    @property
    def rate(self) -> float:
        """Accesses per second of all clients together."""
        return sum(one.n for one in self.clients) / self.run_seconds

    @property
    def n(self) -> int:
        return sum(one.n for one in self.clients)


@dataclass(frozen=True, slots=True)
class SharingCost:
    """One way of locking at one sharing degree. Intervals are of the mean over repeats, each by itself.

    Attributes:
        way, range_nbytes, shared_pct: as in ``SharingRun``.
        n_repeats: number of repeats.
        rate: accesses per second of all clients together.
        slowest_rate: of the client with the fewest accesses.
        relative: rate without locks at the same sharing degree = 100, by the ratios within rounds: their geometric
            mean. None where that was not measured.
        mean_ms: time of an access with its locks.
        p99_ms: its 99th percentile, over all clients and repeats.
        lock_share: share of that time for taking and releasing locks, 0 to 1.
        busy_per_access: how often a lock was busy.
    """

    way: str
    range_nbytes: int
    shared_pct: float
    n_repeats: int
    rate: Level
    slowest_rate: Level
    relative: Level | None
    mean_ms: Level
    p99_ms: float
    lock_share: float
    busy_per_access: float


def sharing_costs(runs: Iterable[SharingRun]) -> tuple[SharingCost, ...]:
    """Return the cost of each combination in the order of their first run, those without accesses omitted."""
    by_place: dict[tuple[str, int, float], list[SharingRun]] = {}
    for run in runs:
        if run.n:
            by_place.setdefault((run.way, run.range_nbytes, run.shared_pct), []).append(run)
    return tuple(
        _cost(own, by_place.get((NO_LOCK, 0, shared_pct), ())) for (_, _, shared_pct), own in by_place.items()
    )


def _cost(runs: Sequence[SharingRun], free: Sequence[SharingRun]) -> SharingCost:
    first = runs[0]
    clients = [client for run in runs for client in run.clients]
    locking = math.fsum(one.lock_seconds + one.unlock_seconds for one in clients)
    whole = locking + math.fsum(one.access_seconds for one in clients)
    n = sum(one.n for one in clients)
    times = np.concatenate([one.times_ms for one in clients])
    means = [mean([ms for one in run.clients for ms in one.times_ms]) for run in runs]
    return SharingCost(
        way=first.way,
        range_nbytes=first.range_nbytes,
        shared_pct=first.shared_pct,
        n_repeats=len(runs),
        rate=Level.of_repeats([run.rate for run in runs]),
        slowest_rate=Level.of_repeats([min(one.n for one in run.clients) / run.run_seconds for run in runs]),
        relative=_relative(runs, free),
        mean_ms=Level.of_repeats(means),
        p99_ms=float(np.percentile(times, 99)),
        lock_share=locking / whole,
        busy_per_access=sum(one.n_busy for one in clients) / n,
    )


def _relative(runs: Sequence[SharingRun], free: Sequence[SharingRun]) -> Level | None:
    """Return 100 · exp(mean of ln(rate / rate without locks)) over common rounds, with Student's interval."""
    rates = {run.repeat: run.rate for run in free}
    logs = [math.log(run.rate / rates[run.repeat]) for run in runs if run.repeat in rates]
    if not logs or runs[0].way == NO_LOCK:
        return None
    found = student_interval(logs)
    ends = None
    if found is not None:
        ends = Interval(100 * math.exp(found.low), 100 * math.exp(found.high), CONFIDENCE, "t")
    return Level(100 * math.exp(mean(logs)), ends)


@dataclass(frozen=True, slots=True)
class HandOver:
    """Two clients that write in turn, some blocks each time.

    Attributes:
        way: ``none`` or ``exclusive-lock``.
        first_ms: the first write of a turn, which waits for the lock.
        later_ms: the other writes of a turn.
        cost_ms: the first write minus the mean of the later ones of its turn.
        n_turns: number of turns.
    """

    way: str
    first_ms: Level
    later_ms: Level
    cost_ms: Level
    n_turns: int


def hand_over_of(way: str, turns: Sequence[Sequence[float]]) -> HandOver:
    """Return the figures of turns.

    Args:
        way: how clients exclude each other.
        turns: the times of the writes of each turn in ms, at least two writes each.
    """
    later = [mean(turn[1:]) for turn in turns]
    costs = [turn[0] - rest for turn, rest in zip(turns, later, strict=True)]
    return HandOver(
        way,
        Level.of_repeats([turn[0] for turn in turns]),
        Level.of_repeats(later),
        Level.of_repeats(costs),
        len(turns),
    )


_RUN_COLUMNS = (
    *("way", "range_nbytes", "shared_pct", "repeat", "client", "run_seconds", "accesses", "accesses_per_s"),
    *("mean_ms", "p99_ms", "lock_seconds", "access_seconds", "unlock_seconds", "busy"),
)


def runs_csv(runs: Iterable[SharingRun]) -> str:
    """Return one row for each client of each run; a client without accesses has no times."""
    lines = (_run_line(run, number, one) for run in runs for number, one in enumerate(run.clients))
    return csv_text(_RUN_COLUMNS, lines)


def _run_line(run: SharingRun, number: int, one: ClientFigures) -> tuple[object, ...]:
    times = (mean(one.times_ms), float(np.percentile(one.times_ms, 99))) if one.n else ("", "")
    return (
        *(run.way, run.range_nbytes, f"{run.shared_pct:g}", run.repeat, f"c{number}"),
        *(run.run_seconds, one.n, one.n / run.run_seconds, *times),
        *(one.lock_seconds, one.access_seconds, one.unlock_seconds, one.n_busy),
    )


def cost_document(cost: SharingCost) -> dict[str, Any]:
    """Return a row as JSON values; ``relative`` has the rate without locks = 100."""
    return {
        **{"way": cost.way, "range_nbytes": cost.range_nbytes, "shared_pct": cost.shared_pct},
        **{"repeats": cost.n_repeats, "rate": cost.rate.to_json()},
        "slowest_client_rate": cost.slowest_rate.to_json(),
        "relative": None if cost.relative is None else cost.relative.to_json(),
        "mean_ms": cost.mean_ms.to_json(),
        **{"p99_ms": cost.p99_ms, "lock_share": cost.lock_share, "busy_per_access": cost.busy_per_access},
    }
