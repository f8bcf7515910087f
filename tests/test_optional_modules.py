"""The errors for missing modules that only some commands need."""

import configparser
import sys
from pathlib import Path

import pytest

from cephfit.core.errors import LackingError
from cephfit.core.optional_modules import _EXTRAS, optional_module

SETUP = Path(__file__).resolve().parent.parent / "setup.cfg"


def test_an_installed_module_is_returned() -> None:
    assert optional_module("rados") is pytest.importorskip("rados", reason="needs Ceph's Python bindings")


@pytest.mark.parametrize("binding", ["rados", "rbd"])
def test_cephs_bindings_come_from_the_distribution(binding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, binding, None)
    with pytest.raises(LackingError, match=f"module {binding} is not installed") as caught:
        optional_module(binding)
    assert "apt install python3-rados python3-rbd" in caught.value.remedy
    assert "--system-site-packages" in caught.value.remedy


def test_other_modules_come_from_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(LackingError, match=r"^Parquet: the Python module pyarrow is not installed") as caught:
        optional_module("pyarrow.parquet", where="Parquet")
    assert caught.value.remedy == "install it: pip install 'cephfit[parquet]'"


def test_a_module_with_a_missing_dependency_is_not_reported_as_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as Ceph's bindings without librados, or python-cephclient without requests."""
    (tmp_path / "optuna.py").write_text("import a_module_that_is_nowhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "optuna", raising=False)
    with pytest.raises(LackingError, match=r"cannot be loaded \(No module named 'a_module_that_is_nowhere'\)"):
        optional_module("optuna")


def test_every_extra_that_is_named_exists() -> None:
    setup = configparser.ConfigParser()
    setup.read(SETUP)
    assert {extra for extra, _ in _EXTRAS.values()} <= set(setup["options.extras_require"])
