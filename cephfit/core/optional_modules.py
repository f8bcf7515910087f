"""Optional modules: imported where they are needed, with an error that says how to install them."""

from importlib import import_module
from typing import Any

from cephfit.core.errors import LackingError

_BINDINGS = {
    "rados": "to connect to a Ceph cluster",
    "rbd": "to work with RBD images",
}
"""Ceph's Python bindings and their purposes. They are not on PyPI: distributions build them together with librados
and librbd. Debian, Ubuntu and the RPM distributions call the packages ``python3-rados`` and ``python3-rbd``."""

_EXTRAS = {
    "asyncssh": ("ssh", "to reach other hosts by SSH"),
    "cephclient": ("rest", "for ceph-rest-api; the package is python-cephclient"),
    "distributed": ("dask", "to count traces on a Dask cluster"),
    "fastapi": ("serve", "to serve its web page"),
    "fsspec": ("remote", "to read traces from a URL"),
    "matplotlib": ("plot", "to draw plots"),
    "openstack": ("openstack", "to reach an OpenStack cloud; the package is openstacksdk"),
    "optuna": ("optimise", "for designs of kind optimise"),
    "python_multipart": ("serve", "to receive uploads; the package is python-multipart"),
    "uvicorn": ("serve", "to serve its web page"),
    "pyarrow": ("parquet", "to read and write Parquet"),
}
"""Module to (extra of setup.cfg, purpose)."""


def optional_module(name: str, *, where: str = "") -> Any:
    """Import a module that may be missing.

    Args:
        name: the module, which may be a submodule such as ``pyarrow.parquet``.
        where: the option, file or host that asks for it, for the message.

    Raises:
        LackingError: it is not installed or cannot be loaded; names the package to install.
    """
    top = name.partition(".")[0]
    try:
        return import_module(name)
    except ImportError as error:
        is_missing = isinstance(error, ModuleNotFoundError) and (error.name or "").partition(".")[0] == top
        fault = "is not installed" if is_missing else f"cannot be loaded ({error})"
    purpose = _BINDINGS[top] if top in _BINDINGS else _EXTRAS[top][1]
    raise LackingError(
        f"the Python module {top} {fault}; cephfit needs it {purpose}", where=where, remedy=_remedy(top)
    )


def _remedy(module: str) -> str:
    if module not in _BINDINGS:
        return f"install it: {install_command(_EXTRAS[module][0])}"
    return (
        "install the distribution's packages: `apt install python3-rados python3-rbd`, or the same with dnf; in a "
        "virtual environment they are visible if /usr/bin/python3 created it with --system-site-packages"
    )


def install_command(extra: str) -> str:
    """Return the command that adds an extra of setup.cfg to an installation."""
    return f"pip install 'cephfit[{extra}]'"
