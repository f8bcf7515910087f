"""Plugins that a machine's librbd may lack, and a client that is started to read its values."""

from pathlib import Path
from typing import Any

import pytest

from cephfit.ceph.delivery.client_conf import read_back_new_client, why_no_plugins
from cephfit.core.errors import ClusterError
from cephfit.core.values.configuration import Configuration, Partition, Setting
from cephfit.sweep.declaration.sweep_file import bundled_sweep, read_sweep


def with_plugins(value: str) -> Configuration:
    return Configuration("B", (Setting(Partition.CEPH, "client", "rbd_plugins", value),))


def test_a_plugin_that_librbd_does_not_have_is_named_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "librbd").mkdir()
    (tmp_path / "librbd" / "libceph_librbd_parent_cache.so").touch()
    assert why_no_plugins(with_plugins("parent_cache"), tmp_path) == ()
    (why,) = why_no_plugins(with_plugins("parent_cache, pwl_cache"), tmp_path)
    assert "no plugin pwl_cache" in why and str(tmp_path / "librbd/libceph_librbd_pwl_cache.so") in why


def test_configurations_without_plugins_need_none(tmp_path: Path) -> None:
    sweep = read_sweep(bundled_sweep("write-back-cache"))
    lacking = {c.name for c in sweep.configurations if why_no_plugins(c, tmp_path)}
    assert lacking == {"persistent"}


def test_the_folder_is_where_this_machines_librados_looks() -> None:
    """Debian's librbd is built without the persistent write-back cache."""
    pytest.importorskip("rados")
    for why in why_no_plugins(with_plugins("no_such_plugin")):
        assert "/ceph/librbd/libceph_librbd_no_such_plugin.so" in why
    assert why_no_plugins(with_plugins("no_such_plugin"))


def test_a_client_that_cannot_be_started_is_an_error_of_the_cluster(tmp_path: Path) -> None:
    pytest.importorskip("rados", reason="needs Ceph's Python bindings")
    catalogue: Any = None
    with pytest.raises(ClusterError, match="a new client cannot connect"):
        read_back_new_client(with_plugins("x"), catalogue, tmp_path / "missing.conf", "admin")
