"""Workloads as arguments: ``PROFILE`` or ``PROFILE:NUMBER``."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cephfit.core.values.profile import Profile


_MOST_MACHINES = 1_000_000
"""Largest number of virtual machines of a workload: larger ones are taken for errors."""


def split_argument(text: str) -> tuple[Path, str]:
    """Split ``PROFILE:NUMBER``; the second part is empty without a number.

    A colon belongs to the name if a file of the whole name exists, or if no number follows (``example:pgbench``).
    """
    name, colon, rest = text.rpartition(":")
    if not colon or Path(text).exists() or not rest or not (rest[0].isdigit() or rest[0] in "+-."):
        return Path(text), ""
    return Path(name), rest


def weighted_profile(text: str) -> tuple[Profile, float]:
    """Read ``PROFILE:WEIGHT``; the weight is 1 if missing.

    Raises:
        InputError: the profile cannot be read, or the weight is not a number above 0.
    """
    from cephfit.core.errors import InputError
    from cephfit.core.profile_files import read_profile

    path, number = split_argument(text)
    try:
        weight = float(number or 1)
    except ValueError:
        weight = math.nan
    if not 0 < weight < math.inf:
        raise InputError(
            f"{number!r} is not a weight",
            where=text,
            remedy=f"write a number above 0, such as {path}:3; leave a workload out that does not count",
        )
    return read_profile(path), weight


def counted_profile(text: str) -> tuple[Profile, int]:
    """Read ``PROFILE:COUNT``; the count is 1 if missing.

    Raises:
        InputError: the profile cannot be read, or the count is not a whole number above 0.
    """
    from cephfit.core.errors import InputError
    from cephfit.core.profile_files import read_profile

    path, number = split_argument(text)
    if number.isdecimal() and int(number) > _MOST_MACHINES:
        raise InputError(
            f"{number} virtual machines are too many", where=text, remedy=f"give at most {_MOST_MACHINES:,}"
        )
    if number and not (number.isdecimal() and int(number) > 0):
        raise InputError(
            f"{number!r} is not a number of virtual machines",
            where=text,
            remedy=f"write a whole number above 0, such as {path}:40",
        )
    return read_profile(path), int(number or 1)
