"""How long the PGs of a new pool, or of one that moves, are waited for: as long as they get on."""

from collections.abc import Callable
from typing import Any

import pytest

from cephfit.ceph.admin.answers import RefusedError
from cephfit.ceph.pools import pool_readback
from cephfit.ceph.pools.pool_readback import UnplacedPoolError, await_placed
from cephfit.core.errors import ClusterError

PATIENCE_SECONDS = 600.0
POOL = {"pool_name": "p", "pool": 1, "pg_num": 4, "pg_num_target": 4, "pg_placement_num": 4}


class Clock:
    """Time that passes only in sleeps."""

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
        states: of its PGs after so many seconds, and the copied objects of each PG.
        n_written: objects that clients have written into each PG after so many seconds, degraded as long as it is.
    """

    def __init__(
        self,
        clock: Clock,
        states: Callable[[float], tuple[list[str], int]],
        n_written: Callable[[float], int] = lambda now: 0,
    ) -> None:
        self._clock = clock
        self._states = states
        self._n_written = n_written

    def command(self, prefix: str, /, **arguments: Any) -> Any:
        if prefix == "osd dump":
            return {"epoch": 9, "pools": [POOL]}
        assert prefix == "pg ls-by-pool"
        states, n_recovered = self._states(self._clock.now)
        if not states:
            raise RefusedError("pool p does not exist", where="mgr")
        sums = {"num_objects_recovered": n_recovered, "num_objects_degraded": self._n_written(self._clock.now)}
        pgs = [
            {"pgid": f"1.{n}", "state": state, "reported_epoch": "9", "stat_sum": sums}
            for n, state in enumerate(states)
        ]
        return {"pg_ready": True, "pg_stats": pgs}

    def tell(self, daemon: str, prefix: str, /, **arguments: Any) -> Any:
        raise AssertionError("there are no commands to daemons")

    def exchange(self, prefix: str, payload: bytes = b"", /, **arguments: Any) -> bytes:
        raise AssertionError("nothing binary here")

    def close(self) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(pool_readback, "time", clock)
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
        n_moved = min(10_000, int(now))
        return ["active+remapped+backfilling" if n_moved < 10_000 else "active+clean"] * 4, n_moved

    await_placed(Placing(clock, states), "p", 9, patience_seconds=PATIENCE_SECONDS)
    assert clock.now >= 10_000


@pytest.mark.parametrize(
    ("state", "limit_seconds"), [("active+undersized+degraded", 60), ("active+remapped+backfill_wait", 660)]
)
def test_writes_of_clients_bring_no_data_to_its_place(clock: Clock, state: str, limit_seconds: float) -> None:
    """Every poll finds more degraded objects in a pool in use, and nothing copies them."""
    cluster = Placing(clock, until_clean(1e5, state), n_written=int)
    with pytest.raises(UnplacedPoolError, match="4 PGs are active"):
        await_placed(cluster, "p", 9, patience_seconds=PATIENCE_SECONDS)
    assert clock.now < limit_seconds


def test_snapshots_and_scrubs_of_a_pool_in_use_bring_nothing_about(clock: Clock) -> None:
    unrelated = ("", "+snaptrim_wait", "+snaptrim", "+scrubbing+deep", "+laggy")

    def states(now: float) -> tuple[list[str], int]:
        return ["active+clean"] * 3 + [f"active+undersized{unrelated[int(now / 7) % 5]}"] if now < 1e5 else [], 0

    with pytest.raises(UnplacedPoolError, match=r"1 PGs are active\+undersized$"):
        await_placed(Placing(clock, states), "p", 9, patience_seconds=PATIENCE_SECONDS)
    assert clock.now < 60


def test_the_manager_may_hear_of_a_pool_later(clock: Clock) -> None:
    def states(now: float) -> tuple[list[str], int]:
        return ([] if now < 100 else ["active+clean"] * 4), 0

    await_placed(Placing(clock, states), "p", 9, patience_seconds=PATIENCE_SECONDS)


def test_a_scrub_is_unrelated_to_placement(clock: Clock) -> None:
    cluster = Placing(clock, lambda now: (["active+clean+scrubbing+deep"] * 4, 0))
    await_placed(cluster, "p", 9, patience_seconds=PATIENCE_SECONDS)
    assert clock.now == 0


def test_a_pool_that_somebody_deletes_meanwhile_is_named(clock: Clock) -> None:
    cluster = Placing(clock, until_clean(500, "peering"))
    with pytest.raises(ClusterError, match=r"^pool other: the pool was deleted while cephfit used it"):
        await_placed(cluster, "other", 9, patience_seconds=PATIENCE_SECONDS)
