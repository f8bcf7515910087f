"""RBD images without a cluster: bits of features, and a pool that was deleted."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from cephfit.ceph.volumes import _DATA_POOL, _FEATURES, Volume, Volumes
from cephfit.core.errors import ClusterError
from cephfit.core.journal import Journal
from cephfit.core.values.configuration import Configuration
from cephfit.targets.ceph.change_scopes import OnlyPool


def test_image_features_have_the_bits_of_librbd() -> None:
    rbd = pytest.importorskip("rbd", reason="needs Ceph's Python bindings")
    spelled = {"striping": "STRIPINGV2", **{n: n.upper().replace("-", "_") for n in _FEATURES if n != "striping"}}
    assert {n: getattr(rbd, f"RBD_FEATURE_{spelled[n]}") for n in _FEATURES} == _FEATURES
    assert rbd.RBD_FEATURE_DATA_POOL == _DATA_POOL


def volumes_of(error: str) -> Volumes:
    """Return the volumes of a cluster whose pools cannot be opened."""
    rados = pytest.importorskip("rados", reason="needs Ceph's Python bindings")
    pytest.importorskip("rbd", reason="needs Ceph's Python bindings")
    refuse = Mock(side_effect=getattr(rados, error)("error opening pool 'bench'"))
    cluster: Any = SimpleNamespace(wait_for_latest_osdmap=lambda: None, open_ioctx=refuse)
    return Volumes(SimpleNamespace(cluster=cluster))  # type: ignore[arg-type]


def test_images_of_a_deleted_pool_are_undone(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.note("image", "bench/A.c0", None)
    admin: Any = None
    OnlyPool("bench", admin, journal, volumes_of("ObjectNotFound")).take_back(pools=True)
    assert journal.entries() == ()


@pytest.mark.parametrize("error", ["ObjectNotFound", "TimedOut"])
def test_a_pool_that_cannot_be_opened_is_an_error_of_the_cluster(error: str) -> None:
    volumes = volumes_of(error)
    with pytest.raises(ClusterError, match="pool bench"):
        volumes.exists(Volume("bench", "A.c0", 0))


def test_an_image_stays_in_the_journal_while_its_pool_cannot_be_opened(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.note("image", "bench/A.c0", None)
    admin: Any = None
    with pytest.raises(ClusterError, match="pool bench"):
        OnlyPool("bench", admin, journal, volumes_of("TimedOut")).take_back(pools=True)
    assert [e.place for e in journal.entries()] == ["bench/A.c0"]


def test_an_image_that_a_killed_process_created_in_part_is_created_again() -> None:
    """It is in the pool's list and has no header."""
    rbd = pytest.importorskip("rbd", reason="needs Ceph's Python bindings")
    cluster: Any = Mock()
    volumes = Volumes(SimpleNamespace(cluster=cluster))  # type: ignore[arg-type]
    calls = Mock()
    calls.list.return_value = ["A.c0"]
    missing = Mock(side_effect=rbd.ImageNotFound("error opening image"))
    errors = {"Error": rbd.Error, "ImageNotFound": rbd.ImageNotFound}
    volumes._rbd = SimpleNamespace(RBD=lambda: calls, Image=missing, **errors)
    volumes.ensure(Configuration("A"), Volume("bench", "A.c0", 4096))
    assert [name for name, _, _ in calls.method_calls] == ["list", "remove", "create"]
    volumes._rbd.Image = Mock()
    volumes.ensure(Configuration("A"), Volume("bench", "A.c0", 4096))
    assert calls.create.call_count == 1
