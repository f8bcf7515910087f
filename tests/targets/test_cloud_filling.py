"""Capacity for filling volumes in a cloud with its Ceph: only unwritten data needs capacity."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("openstack", reason="needs the extra openstack")
pytest.importorskip("rbd", reason="needs Ceph's Python bindings")

from cephfit.cloud.stacks import Node
from cephfit.cloud.volumes import cinder_volumes
from cephfit.core.errors import ClusterError
from cephfit.core.units import GIB, MIB
from cephfit.targets.openstack_ceph import CinderImages, require_capacity_to_fill

NODES = (Node("c0", "s0", "v0", ""), Node("c1", "s1", "v1", ""))


class SmallPool:
    """A pool with limited capacity, which records each request."""

    def __init__(self, free: int) -> None:
        self._free, self.asked = free, list[int]()

    def require(self, pool: str, nbytes: int) -> None:
        assert pool == "volumes"
        self.asked.append(nbytes)
        if nbytes > self._free:
            raise ClusterError("the pool has too little capacity")


class Images:
    """Replaces librbd: the existing objects of 4 MiB of each image."""

    def __init__(self, n_objects_of: dict[str, int]) -> None:
        self._n_objects_of = n_objects_of

    def open(self, _pool: object, name: str, *, read_only: bool) -> Any:
        assert read_only, "a guest has it open"
        n_objects = self._n_objects_of[name]

        class Opened:
            def __enter__(self) -> "Opened":
                return self

            def __exit__(self, *_: object) -> None:
                """Closed."""

            def size(self) -> int:
                return 2 * GIB

            def diff_iterate(self, start: int, length: int, since: None, report: Any, whole_object: bool) -> None:
                for n in range(min(n_objects, length // (4 * MIB))):
                    report(start + n * 4 * MIB, 4 * MIB, True)

        return Opened()


class Pool:
    """The opened pool, which has every image."""

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        """Closed."""

    def stat(self, name: str) -> None:
        """It is there."""


def require_capacity(
    monkeypatch: pytest.MonkeyPatch,
    pool: SmallPool,
    notes: dict[str, dict[str, str]],
    n_objects_of: dict[str, int] | None = None,
) -> None:
    """Request capacity for a GiB in each guest's volume, in a cloud with these notes on the volumes."""
    images = Images(n_objects_of or {"volume-v0": 0, "volume-v1": 0})
    monkeypatch.setattr("rbd.Image", images.open)
    cluster: Any = SimpleNamespace(list_pools=lambda: ["volumes"], open_ioctx=lambda _: Pool())
    cinder = SimpleNamespace(get_volume=lambda volume: SimpleNamespace(metadata=notes.get(volume)))
    cloud: Any = SimpleNamespace(block_storage=cinder)
    require_capacity_to_fill(NODES, GIB, cloud=cloud, images=CinderImages(cluster, "ceph"), capacity=pool)


def test_overwriting_under_other_options_needs_no_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    """The data of the first configuration almost fills the pool."""
    pool = SmallPool(free=0)
    filled = {cinder_volumes.FILLED: str(GIB), cinder_volumes.WRITTEN_UNDER: "before"}
    require_capacity(monkeypatch, pool, {"v0": filled, "v1": filled})
    assert pool.asked == []


def test_only_unfilled_volumes_need_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = SmallPool(free=2 * GIB)
    half = {cinder_volumes.FILLED: str(GIB // 2)}
    require_capacity(monkeypatch, pool, {"v0": half})
    assert pool.asked == [GIB + GIB // 2]


def test_after_a_killed_filling_only_the_rest_needs_capacity(monkeypatch: pytest.MonkeyPatch) -> None:
    """No note has the progress of the filling; the images show it."""
    pool = SmallPool(free=GIB // 2)
    there = {"volume-v0": 256, "volume-v1": 192}
    require_capacity(monkeypatch, pool, {}, there)
    assert pool.asked == [2 * GIB, GIB // 4]


def test_data_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = SmallPool(free=GIB // 2)
    with pytest.raises(ClusterError, match="too little capacity"):
        require_capacity(monkeypatch, pool, {})
    half = {cinder_volumes.FILLED: str(GIB // 2)}
    there = {"volume-v0": 128, "volume-v1": 128}
    with pytest.raises(ClusterError, match="too little capacity"):
        require_capacity(monkeypatch, pool, {"v0": half, "v1": half}, there)
