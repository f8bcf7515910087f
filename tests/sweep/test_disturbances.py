"""What happened to a cluster between two moments at which it looks well."""

from copy import deepcopy
from typing import Any

import pytest

from cephfit.sweep.validity.disturbances import changes, foreign_load

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
    assert foreign_load(stats, ours, 50) == ("others' clients did 60 I/Os per second (pools vms 60)",)
