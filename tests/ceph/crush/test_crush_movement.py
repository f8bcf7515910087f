"""How much data a change moves: counted by hand, by crushtool and by osdmaptool alike."""

import shutil
import subprocess
from pathlib import Path

import pytest
from crush_maps import two_classes
from hypothesis import given
from hypothesis import strategies as st

from cephfit.ceph.crush import live_map
from cephfit.ceph.crush.map_proposal import movement

needs_tools = pytest.mark.skipif(shutil.which("osdmaptool") is None, reason="needs osdmaptool (package ceph-base)")


def test_a_copy_moves_where_an_osd_is_new_and_not_where_the_order_changes() -> None:
    before = {"1.0": (0, 1), "1.1": (2, 3), "1.2": (4, 5)}
    after = {"1.0": (1, 0), "1.1": (2, 5), "1.2": (6, 7)}
    moved = movement(before, after, {"1.0": 100, "1.1": 10, "1.2": 1})
    assert (moved.n_pgs, moved.n_copies, moved.nbytes) == (2, 3, 10 + 2 * 1)


def test_chunks_belong_to_places() -> None:
    moved = movement({"2.0": (0, 1, 2)}, {"2.0": (1, 0, 2)}, {"2.0": 7}, positional=frozenset({"2.0"}))
    assert (moved.n_pgs, moved.n_copies, moved.nbytes) == (1, 2, 14)


def test_a_size_that_grows_copies_once_per_new_place() -> None:
    moved = movement({"1.0": (0, 1)}, {"1.0": (0, 1, 2)}, {"1.0": 5})
    assert (moved.n_pgs, moved.n_copies, moved.nbytes) == (1, 1, 5)


@given(st.dictionaries(st.text(min_size=1, max_size=3), st.lists(st.integers(0, 9), unique=True, max_size=3)))
def test_nothing_moves_where_nothing_changes(places: dict[str, list[int]]) -> None:
    moved = movement(places, places, dict.fromkeys(places, 1))
    assert (moved.n_pgs, moved.n_copies, moved.nbytes) == (0, 0, 0)
    assert str(moved) == "nothing moves"


@needs_tools
def test_a_rule_tried_with_a_pools_number_gives_the_places_that_the_osd_map_gives(tmp_path: Path) -> None:
    live = two_classes()
    osd_map, crush_map = tmp_path / "osdmap", tmp_path / "crush"
    crush_map.write_bytes(live.binary)
    for argv in (
        ("--createsimple", "6", str(osd_map), "--with-default-pool", "--pg-bits", "5"),
        (str(osd_map), "--import-crush", str(crush_map)),
    ):
        subprocess.run(("osdmaptool", *argv), check=True, capture_output=True)
    argv = ("osdmaptool", str(osd_map), "--mark-up-in", "--test-map-pgs-dump")
    said = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    by_map = live_map.pgs_in(said)
    assert {len(osds) for osds in by_map.values()} == {3}
    by_rule, bad = live_map.try_rule(live.binary, 0, size=3, n_inputs=len(by_map), pool=1)
    assert not bad
    assert {f"1.{x:x}": osds for x, osds in by_rule.items()} == by_map


@needs_tools
def test_an_osd_map_is_mapped_with_another_crush_map_in_place_of_its_own(tmp_path: Path) -> None:
    osd_map = tmp_path / "osdmap"
    argv = ("osdmaptool", "--createsimple", "3", str(osd_map), "--with-default-pool", "--pg-bits", "3")
    subprocess.run(argv, check=True, capture_output=True)
    found = live_map.map_pgs(osd_map.read_bytes(), two_classes(1).binary)
    assert set(found.values()) == {()}, "all its OSDs are down"
    assert len(found) == 3 << 3
