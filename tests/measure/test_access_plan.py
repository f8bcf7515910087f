"""The accesses and locks of clients that share a volume."""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import pytest

from cephfit.core.errors import InputError
from cephfit.core.values.cells import Op
from cephfit.measure.sharing_client import LockWay, SharedLoad, run_load

MIB = 1 << 20


def load(way: LockWay = LockWay.NONE, **more: Any) -> SharedLoad:
    values: dict[str, Any] = {
        **{"way": way, "op": Op.WRITE, "n_clients": 3, "shared_pct": 25.0, "access_nbytes": 4096},
        **{"range_nbytes": 0, "volume_nbytes": 64 * MIB, "unit_nbytes": 4 * MIB},
        **more,
    }
    return SharedLoad(**values)


def test_a_quarter_of_the_accesses_goes_to_the_common_region_and_the_rest_to_the_clients_own() -> None:
    plan = load()
    assert plan.region_nbytes == 16 * MIB
    for client in range(3):
        offsets = list(islice(plan.offsets(client, seed=7), 4000))
        own = [o for o in offsets if o >= plan.region_nbytes]
        assert all((client + 1) * 16 * MIB <= o < (client + 2) * 16 * MIB for o in own)
        assert all(o % 4096 == 0 for o in offsets)
        # Of 4000 accesses 1000 are expected, with a standard deviation of 27.4.
        assert abs(4000 - len(own) - 1000) < 5 * 27.4


@pytest.mark.parametrize(("pct", "common"), [(0.0, 0), (100.0, 500)])
def test_nothing_or_everything_is_shared_at_the_ends(pct: float, common: int) -> None:
    plan = load(shared_pct=pct)
    found = sum(o < plan.region_nbytes for o in islice(plan.offsets(1, seed=1), 500))
    assert found == common


def test_offsets_follow_the_seed_and_the_client() -> None:
    def first(client: int, seed: int) -> list[int]:
        return list(islice(load().offsets(client, seed), 50))

    assert first(0, 1) == first(0, 1)
    assert first(0, 1) != first(0, 2)
    assert [o - 16 * MIB for o in first(1, 1)] != first(0, 1)


def test_no_lock_range_is_in_two_regions() -> None:
    plan = load(LockWay.RANGES, range_nbytes=4 * MIB, n_clients=6, volume_nbytes=100 * MIB)
    assert plan.region_nbytes == 12 * MIB
    held = [{plan.locks(o)[0] for o in islice(plan.offsets(c, 3), 2000) if o >= 12 * MIB} for c in range(6)]
    assert all(not a & b for i, a in enumerate(held) for b in held[:i])


@pytest.mark.parametrize(
    ("way", "range_nbytes", "offset", "locks"),
    [
        (LockWay.NONE, 0, 8192, ()),
        (LockWay.EXCLUSIVE, 0, 8192, ()),
        (LockWay.RANGES, 65536, 65536 - 4096, (0,)),
        (LockWay.RANGES, 65536, 65536, (1,)),
        (LockWay.RANGES, 1024, 8192, (8, 9, 10, 11)),
    ],
)
def test_an_access_needs_the_locks_of_all_ranges_that_it_touches(
    way: LockWay, range_nbytes: int, offset: int, locks: tuple[int, ...]
) -> None:
    assert load(way, range_nbytes=range_nbytes).locks(offset) == locks


def test_a_volume_that_is_too_small_is_refused() -> None:
    with pytest.raises(InputError, match="too little for 4 regions of at least 64M"):
        load(unit_nbytes=64 * MIB)


def test_a_load_survives_its_way_to_the_client() -> None:
    plan = load(LockWay.RANGES, range_nbytes=65536)
    assert SharedLoad.from_json(plan.to_json()) == plan


class CountedLocks:
    """Locks of which each is busy twice; they record what is held."""

    def __init__(self, now: list[float]) -> None:
        self.now = now
        self.held: set[int] = set()
        self.most = 0

    def acquire(self, numbers: Sequence[int]) -> int:
        self.now[0] += 0.003
        self.held |= set(numbers)
        self.most = max(self.most, len(self.held))
        return 2 * len(numbers)

    def release(self, numbers: Sequence[int]) -> None:
        self.now[0] += 0.001
        self.held -= set(numbers)


def run(access_seconds: float = 0.006, fails: bool = False) -> tuple[dict[str, Any], CountedLocks]:
    now = [100.0]
    locks = CountedLocks(now)

    def access(offset: int) -> None:
        assert offset // 4096 in locks.held, "the access happens under its lock"
        now[0] += access_seconds
        if fails:
            raise OSError("gone")

    offsets = iter(range(0, 1 << 30, 4096))
    try:
        found = run_load(
            load(LockWay.RANGES, range_nbytes=4096),
            access=access,
            locks=locks,  # type: ignore[arg-type]
            offsets=lambda: next(offsets),
            ramp_seconds=1.0,
            run_seconds=2.0,
            clock=lambda: now[0],
        )
    except OSError:
        found = {}
    return found, locks


def test_only_accesses_that_begin_in_the_measured_time_count() -> None:
    found, locks = run()
    # 10 ms each: 2 s hold 200 of them (one more or less by rounding of the clock).
    assert found["n"] == pytest.approx(200, abs=1)
    assert found["seconds"] == pytest.approx({"lock": 0.6, "access": 1.2, "unlock": 0.2}, rel=0.01)
    assert found["n_busy"] == 2 * found["n"]
    assert found["times_ms"] == pytest.approx([10.0] * found["n"])
    assert locks.most == 1 and not locks.held


def test_a_failed_access_releases_its_locks() -> None:
    _, locks = run(fails=True)
    assert not locks.held
