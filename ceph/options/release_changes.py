"""What changed between two releases of Ceph: options that were removed, replaced or added, and new defaults."""

from collections.abc import Mapping
from dataclasses import dataclass

from cephfit.ceph.options.option import Option, same_value
from cephfit.ceph.options.option_archive import KnownOptions, known
from cephfit.ceph.options.option_history import REPLACED
from cephfit.core.errors import InputError


@dataclass(frozen=True, slots=True)
class Change:
    """One change of an option.

    Attributes:
        name: of the option.
        kind: ``removed``, ``replaced``, ``added`` or ``default``.
        before: default of the older release; None for an added option.
        after: default of the newer release; None for a removed one.
        instead: options that replace it; empty where none is known.
        description: Ceph's line on the option.
        level: ``basic``, ``advanced`` or ``dev``: the audience that Ceph's developers intended.
    """

    name: str
    kind: str
    before: object
    after: object
    instead: tuple[str, ...]
    description: str
    level: str


def releases_of(text: str) -> tuple[KnownOptions, KnownOptions]:
    """Read ``pacific..reef`` or ``16.2..20.2``.

    Raises:
        InputError: it has another form, or a release is unknown.
    """
    older, dots, newer = text.partition("..")
    if not (older and dots and newer):
        raise InputError(f"{text!r} is not a pair of releases", remedy="write OLDER..NEWER, such as pacific..reef")
    return known(older), known(newer)


def changes_between(older: KnownOptions, newer: KnownOptions) -> tuple[Change, ...]:
    """Return all changes, by kind and name. Equal values in other spellings (0, ``0``; 2M, 2097152) are none."""
    before = {option.name: option for option in older.options}
    after = {option.name: option for option in newer.options}
    removed = [_removed(before[name], after) for name in sorted(before.keys() - after.keys())]
    added = [
        _change(after[name], "added", None, after[name].default) for name in sorted(after.keys() - before.keys())
    ]
    defaults = [
        _change(after[name], "default", before[name].default, after[name].default)
        for name in sorted(before.keys() & after.keys())
        if not same_value(after[name].type, before[name].default, after[name].default)
    ]
    order = ("removed", "replaced", "added", "default")
    return tuple(sorted([*removed, *added, *defaults], key=lambda change: (order.index(change.kind), change.name)))


def _removed(option: Option, after: Mapping[str, Option]) -> Change:
    instead = tuple(name for name in REPLACED.get(option.name, ()) if name in after)
    return _change(option, "replaced" if instead else "removed", option.default, None, instead)


def _change(option: Option, kind: str, before: object, after: object, instead: tuple[str, ...] = ()) -> Change:
    return Change(option.name, kind, before, after, instead, option.description, option.level)
