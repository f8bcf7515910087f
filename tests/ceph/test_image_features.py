"""Facts about RBD images that need no librbd."""

import pytest

from cephfit.ceph.volumes import _DATA_POOL, _FEATURES


def test_image_features_have_the_bits_of_librbd() -> None:
    rbd = pytest.importorskip("rbd", reason="needs Ceph's Python bindings")
    spelled = {"striping": "STRIPINGV2", **{n: n.upper().replace("-", "_") for n in _FEATURES if n != "striping"}}
    assert {n: getattr(rbd, f"RBD_FEATURE_{spelled[n]}") for n in _FEATURES} == _FEATURES
    assert rbd.RBD_FEATURE_DATA_POOL == _DATA_POOL
