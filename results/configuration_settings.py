"""What the configurations of a run set, in few words: a name alone tells nobody what to do."""

from collections.abc import Iterable, Mapping

from cephfit.protocols import Applied

_SHOWN = 6
"""Settings that one line names; the table of what was read back has all."""


def settings_of(applied: Iterable[tuple[int, Applied]]) -> dict[str, str]:
    """Each configuration that was applied, and its settings; empty for one without, as the default is."""
    return {one.configuration: _words(one.read_back) for _, one in applied if one.ok}


def _words(read_back: Mapping[str, object]) -> str:
    settings = [_setting(text) for text in sorted(read_back)]
    left = len(settings) - _SHOWN
    return ", ".join(settings[:_SHOWN]) + (f" and {left} more" if left > 0 else "")


def _setting(text: str) -> str:
    """``ceph/osd/NAME = VALUE`` as ``osd: NAME = VALUE``; what a pool has stands without ``pool:``."""
    name, equals, value = text.partition(" = ")
    _, _, place = name.partition("/")
    scope, _, key = place.rpartition("/")
    return f"{key}{equals}{value}" if scope == "pool" else f"{scope}: {key}{equals}{value}"
