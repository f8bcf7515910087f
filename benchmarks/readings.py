"""How long things take, read several times in turn."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of processor time, and on the wall."""

    processor: float
    wall: float

    def __add__(self, other: "Spent") -> "Spent":
        return Spent(self.processor + other.processor, self.wall + other.wall)


def spent_by(read: Callable[[], object]) -> Spent:
    processor, wall = time.process_time(), time.perf_counter()
    read()
    return Spent(time.process_time() - processor, time.perf_counter() - wall)


def best(readings: Iterable[Spent]) -> Spent:
    """The least of each time."""
    spent = list(readings)
    return Spent(min(s.processor for s in spent), min(s.wall for s in spent))


def in_turn(rounds: int, measured: Mapping[str, Callable[[], Spent]]) -> dict[str, Spent]:
    """The best of several measurements of each, taken in turn."""
    found: dict[str, list[Spent]] = {name: [] for name in measured}
    for _ in range(rounds):
        for name, measure in measured.items():
            found[name].append(measure())
    return {name: best(spent) for name, spent in found.items()}
