"""The list of a cluster's pools, also where this machine's osdmaptool cannot read the cluster's OSD map."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from crush_maps import two_classes

from cephfit.ceph.crush import live_map
from cephfit.ceph.crush.live_map import NewerMapError
from cephfit.ceph.pools import pool_readback
from cephfit.ceph.pools.pool_readback import survey
from cephfit.cli.main import cephfit
from cephfit.core.errors import ClusterError
from cephfit.operations.measuring import target_choice
from cephfit.targets.ceph.ceph_target import CephTarget

pytestmark = pytest.mark.skipif(shutil.which("osdmaptool") is None, reason="needs osdmaptool (package ceph-base)")

NEWER = b"an OSD map of a newer release"


@pytest.fixture
def osd_map(tmp_path: Path) -> bytes:
    """Pool 1 (``rbd``) with three copies on the six OSDs of ``two_classes``, all up, with one upmap entry."""
    file, crush = tmp_path / "osdmap", tmp_path / "crush"
    crush.write_bytes(two_classes().binary)
    for argv in (
        ("--createsimple", "6", str(file), "--with-default-pool", "--pg-bits", "5"),
        (str(file), "--import-crush", str(crush)),
        (str(file), "--mark-up-in", "--upmap", str(tmp_path / "moves"), "--upmap-max", "1", "--save"),
    ):
        subprocess.run(("osdmaptool", *argv), check=True, capture_output=True)
    return file.read_bytes()


class Cluster:
    """A cluster with one pool, whose manager reports the PGs as ``osd_map`` places them.

    Args:
        osd_map: readable by this machine's osdmaptool.
        sent: what the monitor answers to ``osd getmap``.
        n_unready: number of answers before the manager knows the PGs.
    """

    def __init__(self, osd_map: bytes, sent: bytes, *, n_unready: int = 0) -> None:
        self._places = live_map.map_pgs(osd_map)
        self._sent = sent
        self._n_unready = n_unready

    def command(self, prefix: str, /, **arguments: Any) -> Any:
        if prefix == "osd dump":
            pool = {"pool_name": "rbd", "pool": 1, "size": 3, "crush_rule": 0, "pg_num": len(self._places)}
            return {"pools": [pool]}
        if prefix == "df":
            return {"pools": [{"name": "rbd", "stats": {"stored": 4096}}]}
        assert prefix == "pg ls-by-pool"
        if self._n_unready > 0:
            self._n_unready -= 1
            return {"pg_ready": False, "pg_stats": []}
        pgs = [{"pgid": pg, "up": list(osds)} for pg, osds in self._places.items()]
        return {"pg_ready": True, "pg_stats": pgs}

    def tell(self, daemon: str, prefix: str, /, **arguments: Any) -> Any:
        raise AssertionError("there are no commands to daemons")

    def exchange(self, prefix: str, payload: bytes = b"", /, **arguments: Any) -> bytes:
        return {"osd getcrushmap": two_classes().binary, "osd getmap": self._sent}[prefix]

    def close(self) -> None:
        pass


def test_a_map_of_a_newer_release_is_refused_in_clean_words() -> None:
    with pytest.raises(NewerMapError) as caught:
        live_map.map_pgs(NEWER)
    assert str(caught.value.what).endswith("error decoding osdmap the map")
    assert "newer than this machine's ceph-base" in caught.value.remedy


def test_a_cluster_newer_than_osdmaptool_is_surveyed_by_what_its_manager_reports(osd_map: bytes) -> None:
    (read,) = survey(Cluster(osd_map, osd_map))
    (reported,) = survey(Cluster(osd_map, NEWER))
    assert read.n_osds == 6
    assert sum(read.classes.values()) == 3 * read.pg_num
    assert read.busiest > 1.0
    assert read.balancing_moves is not None
    assert reported.balancing_moves is None
    assert {**reported.as_json(), "balancing_moves": read.balancing_moves} == read.as_json()


def test_the_survey_waits_until_the_manager_knows_the_pgs(
    osd_map: bytes, no_waiting: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (at_once,) = survey(Cluster(osd_map, NEWER))
    assert survey(Cluster(osd_map, NEWER, n_unready=2)) == (at_once,)
    monkeypatch.setattr(pool_readback, "_COUNTING_SECONDS", 0.0)
    with pytest.raises(ClusterError, match="the manager does not know the PGs of pool rbd"):
        survey(Cluster(osd_map, NEWER, n_unready=2))


def test_show_names_the_cause_and_the_remedy_for_unknown_moves(
    osd_map: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shown(sent: bytes) -> str:
        target = CephTarget.__new__(CephTarget)
        descriptions = survey(Cluster(osd_map, sent))
        monkeypatch.setattr(CephTarget, "pool_descriptions", lambda self: descriptions)
        monkeypatch.setattr(CephTarget, "close", lambda self: None)
        monkeypatch.setattr(target_choice, "open_target", lambda *_, **__: target)
        done = CliRunner().invoke(cephfit, ["pools", "show", "--target", "ceph"])
        assert done.exit_code == 0, done.output
        return done.output

    assert "osdmaptool" not in shown(osd_map)
    newer = shown(NEWER)
    assert "this machine's osdmaptool cannot read the cluster's OSD map" in newer
    assert "install ceph-base of the cluster's release" in " ".join(newer.split())
