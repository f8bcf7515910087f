"""The folders that the XDG Base Directory Specification gives a program in a person's home."""

import os
from pathlib import Path

_NAME = "cephfit"


def state_folder() -> Path:
    """``$XDG_STATE_HOME`` (else ``~/.local/state``) ``/cephfit``: journals, locks, labs."""
    return _folder("XDG_STATE_HOME", ".local/state")


def data_folder() -> Path:
    """``$XDG_DATA_HOME`` (else ``~/.local/share``) ``/cephfit``: what is worth keeping."""
    return _folder("XDG_DATA_HOME", ".local/share")


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME`` (else ``~/.cache``) ``/cephfit``: what can be had again."""
    return _folder("XDG_CACHE_HOME", ".cache")


def _folder(variable: str, otherwise: str) -> Path:
    named = os.environ.get(variable)
    return (Path(named) if named else Path.home() / otherwise) / _NAME
