"""What happened to a cluster between two moments at which it looks well."""

from copy import deepcopy
from typing import Any

import pytest

from cephfit.core.errors import ClusterError
from cephfit.measure.disturbances import (
    POLL_SECONDS,
    ForeignIoInPool,
    ForeignIoInPools,
    changes,
    foreign_load,
)

OSD = {"osd": 0, "up": 1, "in": 1, "weight": 1, "up_from": 7}
POOL = {"pool_name": "p", "pg_num": 32, "pg_placement_num": 32, "size": 3, "crush_rule": 0, "last_change": 5}
MAP: dict[str, Any] = {
    "osds": [OSD, {**OSD, "osd": 1}],
    "pools": [POOL],
    "crush_version": 4,
    "pg_upmap_items": [],
    "blocklist": {},
}


def changed(**parts: Any) -> dict[str, Any]:
    return {**deepcopy(MAP), **parts}


def test_an_unchanged_map_and_one_that_only_blocked_a_client_are_no_disturbance():
    assert changes(MAP, MAP) == ()
    assert changes(MAP, changed(blocklist={"127.0.0.1:0/1": "..."})) == ()


@pytest.mark.parametrize(
    ("after", "reason"),
    [
        (changed(osds=[{**OSD, "up_from": 9}, {**OSD, "osd": 1}]), "osd.0 went down and came back"),
        (
            changed(osds=[{**OSD, "in": 0, "weight": 0}, {**OSD, "osd": 1}]),
            "osd.0 changed: up and in, weight 1 before, up and out, weight 0 now",
        ),
        (changed(osds=[OSD]), "osd.1 is gone"),
        (changed(crush_version=5), "the CRUSH map changed"),
        (changed(pg_upmap_items=[{"pgid": "1.0"}]), "the balancer moved PGs (pg_upmap_items changed)"),
        (changed(pools=[{**POOL, "pg_num": 64}]), "pg_num of pool p changed from 32 to 64"),
    ],
)
def test_what_moves_data_or_stops_io_is_named(after: dict[str, Any], reason: str):
    assert changes(MAP, after) == (reason,)


def test_load_of_others_disturbs_above_a_limit_and_our_own_never():
    stats = [
        {"pool_name": "cephfit-a", "client_io_rate": {"read_op_per_sec": 900, "write_op_per_sec": 100}},
        {"pool_name": "vms", "client_io_rate": {"read_op_per_sec": 40, "write_op_per_sec": 20}},
        {"pool_name": "idle", "client_io_rate": {}},
    ]

    def ours(pool: str) -> bool:
        return pool.startswith("cephfit-")

    assert foreign_load(stats, ours, 100) == ()
    assert foreign_load(stats, ours, 50) == ("foreign clients did 60 I/Os per second (pools vms 60)",)


def test_load_on_others_images_in_our_own_pool_adds_to_that_of_other_pools():
    stats = [
        {"pool_name": "bench", "client_io_rate": {"read_op_per_sec": 900, "write_op_per_sec": 100}},
        {"pool_name": "vms", "client_io_rate": {"read_op_per_sec": 20, "write_op_per_sec": 20}},
    ]

    def reasons(theirs: float) -> tuple[str, ...]:
        return foreign_load(stats, "bench".__eq__, 50, {"bench/theirs": theirs})

    assert reasons(10) == ()
    assert reasons(20) == ("foreign clients did 60 I/Os per second (pools vms 40; images bench/theirs 20)",)
    assert foreign_load([], "bench".__eq__, 50, {"bench/theirs": 60}) == (
        "foreign clients did 60 I/Os per second (images bench/theirs 60)",
    )


class Manager:
    """Answers as ``rbd perf image counters`` does, for images of one pool, and a clock."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.n_asked = 0
        self.refuses = False
        self.ops: dict[str, int] = {}

    def tell(self, daemon: str, prefix: str, /, **arguments: Any) -> Any:
        assert (daemon, prefix, arguments) == ("mgr", "rbd perf image counters", {"pool_spec": "bench"})
        self.n_asked += 1
        if self.refuses:
            raise ClusterError("module rbd_support is not there")
        return {
            "counter_descriptors": ["write_ops", "read_ops", "write_bytes", "read_bytes"],
            "pool_descriptors": {"0": "bench"},
            "counters": [{f"0/{image}": [n - n // 3, n // 3, 0, 0]} for image, n in self.ops.items()],
        }


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def manager() -> Manager:
    return Manager()


@pytest.fixture
def foreign_io(manager: Manager, notes: list[str]) -> ForeignIoInPool:
    admin: Any = manager
    return ForeignIoInPool(admin, "bench", "ours".__eq__, note=notes.append, clock=lambda: manager.seconds)


def test_io_of_others_since_the_mark_is_counted_without_ours(manager: Manager, foreign_io: ForeignIoInPool):
    manager.ops = {"ours": 5000, "theirs": 700, "idle": 3}
    foreign_io.begin()
    manager.seconds, manager.ops = 10, {"ours": 9000, "theirs": 1200, "idle": 3}
    assert foreign_io.rates() == {"bench/theirs": 50.0}
    foreign_io.begin()
    manager.seconds, manager.ops = 20, {"ours": 9900, "theirs": 1200, "idle": 3, "new": 90}
    assert foreign_io.rates() == {"bench/new": 9.0}


def test_the_manager_is_asked_so_often_that_it_does_not_cease_to_count(
    manager: Manager, foreign_io: ForeignIoInPool
):
    foreign_io.begin()
    for second in range(120):
        manager.seconds = second
        foreign_io.poll()
    assert manager.n_asked == 1 + 119 // POLL_SECONDS


def test_a_manager_that_began_anew_meanwhile_still_reports_foreign_io(
    manager: Manager, foreign_io: ForeignIoInPool
):
    manager.ops = {"theirs": 700}
    foreign_io.begin()
    manager.seconds, manager.ops = 25, {"theirs": 900}
    foreign_io.poll()
    manager.seconds, manager.ops = 50, {"theirs": 300}
    assert foreign_io.rates() == {"bench/theirs": (200 + 300) / 50}


def test_pools_are_watched_from_the_run_on_in_which_they_are_known(manager: Manager) -> None:
    """A cloud's volumes are made one type after the other, and each type has a pool of its own."""
    admin: Any = manager
    known: list[str] = []

    def watched(pool: str) -> ForeignIoInPool:
        return ForeignIoInPool(admin, pool, "volume-1".__eq__, note=str, clock=lambda: manager.seconds)

    foreign_io = ForeignIoInPools(lambda: known, watched)
    foreign_io.begin()
    assert (foreign_io.rates(), manager.n_asked) == ({}, 0)
    known.append("bench")
    manager.ops = {"volume-1": 100, "volume-2": 100}
    foreign_io.begin()
    manager.seconds, manager.ops = 10, {"volume-1": 900, "volume-2": 1100}
    assert foreign_io.rates() == {"bench/volume-2": 100.0}


def test_foreign_io_that_cannot_be_seen_is_noted_once(
    manager: Manager, foreign_io: ForeignIoInPool, notes: list[str]
):
    manager.refuses = True
    foreign_io.begin()
    assert foreign_io.rates() == {}
    assert notes == ["foreign I/O on images in pool bench cannot be counted: module rbd_support is not there"]
