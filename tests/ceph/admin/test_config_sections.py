"""Sections of the config store: which daemons each applies to, and which of several wins."""

from typing import Any

import pytest

from cephfit.ceph.admin.daemons import Daemon, concerned, running_daemons, strongest

HDD = Daemon("osd", "0", "hdd", {"host": "host0", "root": "default"})
SSD = Daemon("osd", "1", "ssd", {"host": "host1", "root": "default"})
MON = Daemon("mon", "a")


def test_a_mask_by_class_speaks_to_its_class() -> None:
    assert concerned("osd/class:hdd", [HDD, SSD, MON]) == (HDD,)


def test_a_mask_by_place_speaks_to_the_osds_there() -> None:
    assert concerned("osd/host:host1", [HDD, SSD, MON]) == (SSD,)


def test_global_speaks_to_all() -> None:
    assert concerned("global", [HDD, SSD, MON]) == (HDD, SSD, MON)


def test_the_more_special_section_wins() -> None:
    sections = ["global", "osd", "osd/class:hdd", "osd.1"]
    assert strongest(sections, HDD) == "osd/class:hdd"
    assert strongest(sections, SSD) == "osd.1"
    assert strongest(sections, MON) == "global"
    assert strongest(["mon"], HDD) is None


RACKED = Daemon("osd", "2", "ssd", {"host": "host2", "rack": "r1", "row": "w", "root": "default"})


@pytest.mark.parametrize(
    ("stronger", "weaker"),
    [
        ("osd/host:host2", "osd/rack:r1"),
        ("osd/host:host2", "osd/root:default"),
        ("osd/rack:r1", "osd/row:w"),
        ("osd/rack:r1", "osd/root:default"),
        ("osd/root:default", "osd/class:ssd"),
        ("osd/host:host2", "osd/class:ssd"),
        ("osd/class:ssd", "osd"),
        ("osd/host:host2/class:ssd", "osd/rack:r1"),
        ("osd", "global/host:host2"),
    ],
)
def test_of_several_masks_the_smallest_bucket_wins_and_a_class_comes_last(stronger: str, weaker: str) -> None:
    assert strongest([weaker, stronger], RACKED) == strongest([stronger, weaker], RACKED) == stronger


def test_all_of_several_masks_must_fit() -> None:
    assert concerned("osd/host:host2/class:ssd", [HDD, SSD, RACKED]) == (RACKED,)
    assert concerned("osd/class:hdd/host:host2", [HDD, SSD, RACKED]) == ()


class Tree:
    """A cluster of one OSD under a host in a rack, and under a root created later; other answers are empty."""

    def command(self, prefix: str, /, **_: Any) -> Any:
        nodes = [
            {"id": -99, "name": "few", "type": "root", "type_id": 11, "children": [2]},
            {"id": -1, "name": "default", "type": "root", "type_id": 11, "children": [-3]},
            {"id": -3, "name": "r1", "type": "rack", "type_id": 3, "children": [-2]},
            {"id": -2, "name": "host2", "type": "host", "type_id": 1, "children": [2]},
            {"id": 2, "name": "osd.2", "type": "osd", "type_id": 0, "status": "up", "device_class": "ssd"},
        ]
        return {"osd tree": {"nodes": nodes}, "status": {"quorum_names": []}, "mgr dump": {}}[prefix]

    def tell(self, daemon: str, prefix: str, /, **_: Any) -> Any:
        raise AssertionError("no daemon is asked")

    def exchange(self, prefix: str, payload: bytes = b"", /, **_: Any) -> bytes:
        raise AssertionError("nothing but JSON is asked")

    def close(self) -> None:
        pass


def test_an_osds_location_starts_at_the_smallest_bucket_of_the_oldest_tree() -> None:
    """Not in the first bucket of `osd tree`: masks refer to the location that Ceph uses."""
    (daemon,) = running_daemons(Tree())
    assert list(daemon.location.items()) == [("host", "host2"), ("rack", "r1"), ("root", "default")]
