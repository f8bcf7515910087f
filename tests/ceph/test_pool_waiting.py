"""How long the PGs of a new pool, or of one that moves, are waited for: as long as they get on."""

from collections.abc import Callable
from typing import Any

import pytest

from cephfit.sweep.admin.answers import RefusedError
from cephfit.sweep.pools import pool_waiting
from cephfit.sweep.pools.pool_waiting import UnplacedPoolError, await_placed

PATIENCE_SECONDS = 600.0
POOL = {"pool_name": "p", "pool": 1, "pg_num": 4, "pg_num_target": 4, "pg_placement_num": 4}


class Clock:
    """Time that passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Placing:
    """A cluster with one pool.

    Args:
        clock: of the test.
        states: of its PGs after so many seconds; misplaced objects of each PG besides.
    """

    def __init__(self, clock: Clock, states: Callable[[float], tuple[list[str], int]]) -> None:
        self._clock = clock
        self._states = states

    def command(self, prefix: str, /, **arguments: Any) -> Any:
        if prefix == "osd dump":
            return {"epoch": 9, "pools": [POOL]}
        assert prefix == "pg ls-by-pool"
        states, n_misplaced = self._states(self._clock.now)
        if not states:
            raise RefusedError("pool p does not exist", where="mgr")
        sums = {"num_objects_misplaced": n_misplaced, "num_objects_degraded": 0}
        pgs = [
            {"pgid": f"1.{n}", "state": state, "reported_epoch": "9", "stat_sum": sums}
            for n, state in enumerate(states)
        ]
        return {"pg_ready": True, "pg_stats": pgs}

    def tell(self, daemon: str, prefix: str, /, **arguments: Any) -> Any:
        raise AssertionError("nobody is told anything")

    def exchange(self, prefix: str, payload: bytes = b"", /, **arguments: Any) -> bytes:
        raise AssertionError("nothing binary here")

    def close(self) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pool_waiting, "time", clock)
    return clock


def until_clean(seconds: float, before: str) -> Callable[[float], tuple[list[str], int]]:
    return lambda now: (["active+clean"] * 4 if now > seconds else [before] * 4, 0)


def test_slow_disks_get_the_targets_patience(clock: Clock) -> None:
    await_placed(Placing(clock, until_clean(500, "creating+peering")), "p", 9, patience_seconds=PATIENCE_SECONDS)
    assert clock.now > 500


def test_a_rule_that_finds_too_few_osds_is_not_waited_for_as_long(clock: Clock) -> None:
    cluster = Placing(clock, until_clean(1e9, "active+undersized"))
    with pytest.raises(UnplacedPoolError, match=r"4 PGs are active\+undersized"):
        await_placed(cluster, "p", 9, patience_seconds=PATIENCE_SECONDS)
    assert clock.now < 60


def test_pgs_that_hang_are_given_up_at_last(clock: Clock) -> None:
    cluster = Placing(clock, until_clean(1e9, "peering"))
    with pytest.raises(UnplacedPoolError, match=r"after 60. s 4 PGs are peering"):
        await_placed(cluster, "p", 9, patience_seconds=PATIENCE_SECONDS)


def test_data_that_moves_may_take_hours_as_long_as_they_move(clock: Clock) -> None:
    """As `pools apply` does that gives a pool of people a third copy."""

    def states(now: float) -> tuple[list[str], int]:
        left = max(0, 10_000 - int(now))
        return (["active+remapped+backfilling"] * 4 if left else ["active+clean"] * 4), left

    await_placed(Placing(clock, states), "p", 9, patience_seconds=PATIENCE_SECONDS)
    assert clock.now >= 10_000


def test_the_manager_may_hear_of_a_pool_later(clock: Clock) -> None:
    def states(now: float) -> tuple[list[str], int]:
        return ([] if now < 100 else ["active+clean"] * 4), 0

    await_placed(Placing(clock, states), "p", 9, patience_seconds=PATIENCE_SECONDS)


def test_a_scrub_says_nothing_of_places(clock: Clock) -> None:
    cluster = Placing(clock, lambda now: (["active+clean+scrubbing+deep"] * 4, 0))
    await_placed(cluster, "p", 9, patience_seconds=PATIENCE_SECONDS)
    assert clock.now == 0
