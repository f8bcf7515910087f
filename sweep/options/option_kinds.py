"""Options of releases whose monitors cannot be asked about them (before Mimic), by what later releases say."""

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources

from cephfit.sweep.options.option import Option
from cephfit.sweep.options.option_history import RELEASES, History, histories


def described(key: str, version: str) -> Option | None:
    """An option as far as it is known without asking; None where the release has none of this name.

    Of an option that was gone before later releases described theirs, neither type nor flags are known: its type
    is empty, and it is taken for one that acts only at the start of a daemon, which is right of every option.

    Args:
        key: Ceph's spelling.
        version: of the cluster, such as ``10.2.11``.
    """
    history = histories().get(key)
    if history is None or not _was_in(history, version):
        return None
    kind, flags = _kinds().get(key, ("", ()))
    return Option(
        name=key, type=kind, default="", flags=flags, services=(), can_update_at_runtime="runtime" in flags
    )


def names_of(version: str) -> tuple[str, ...]:
    """All options of a release, sorted."""
    return tuple(sorted(name for name, history in histories().items() if _was_in(history, version)))


def _was_in(history: History, version: str) -> bool:
    """Whether a release had an option; of one between two that are known, those of either may be there."""
    order = list(RELEASES)
    numbers = [_number(number) for number in RELEASES.values()]
    mine = _number(version)
    lower = max((i for i, number in enumerate(numbers) if number <= mine), default=0)
    upper = lower if numbers[lower] == mine[:2] or lower + 1 == len(order) else lower + 1
    return order.index(history.first) <= upper and order.index(history.last) >= lower


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) if part.isdigit() else 0 for part in version.split(".")[:2])


@cache
def _kinds() -> Mapping[str, tuple[str, tuple[str, ...]]]:
    text = resources.files("cephfit.sweep.options").joinpath("option_kinds.csv").read_text()
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return {row["option"]: (row["type"], tuple(row["flags"].split())) for row in rows}
