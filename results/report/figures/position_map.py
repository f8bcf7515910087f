"""A map of the positions of a workload's accesses over time. Pure.

A profile contains it if its trace was described in full. A map that cannot be read is omitted, because profiles
may be hand-written.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from cephfit.core.units import GIB, LBN_NBYTES, MIB
from cephfit.core.values.profile import Profile
from cephfit.results.report import formatting
from cephfit.results.report.figures.rate_over_time import TimeAxis, behaviour_of, count_of, span_text
from cephfit.results.report.formatting import Axis, linear_axis

LEVELS = 4
"""Shades of the map."""
_MOST_TIMES, _MOST_REGIONS, _BANDS = 128, 32, 8
_HOT, _CONCENTRATED, _SELDOM = "80%", 0.2, 0.1


@dataclass(frozen=True, slots=True)
class PositionMap:
    """Accesses of a disk over time and position.

    Attributes:
        n_disks: disks of the workload; the map is of the busiest one.
        place: position on the disk in ``unit``.
        levels: per region, the lowest first, the shade of each time bin, 0 (no access) to ``LEVELS``.
        legend: accesses of each shade from 1 on.
        cell: time and size of one field.
        bands: (position, share of the accesses), the lowest first.
        meaning: one sentence on what the map means for the choice; empty if it is unknown.
    """

    disk: str
    n_disks: int
    time: TimeAxis
    place: Axis
    unit: str
    levels: tuple[tuple[int, ...], ...]
    legend: tuple[str, ...]
    cell: str
    bands: tuple[tuple[str, float], ...]
    meaning: str

    @property
    def title(self) -> str:
        which = f"the busiest of {self.n_disks} disks, " if self.n_disks > 1 else "disk "
        return f"Positions over time, {which}{self.disk}"

    @property
    def text(self) -> str:
        """What the map shows, for readers who do not see it."""
        band, share = max(self.bands, key=lambda band: band[1])
        most = f"{band} has the most accesses, {formatting.per_cent(share)}"
        return f"{self.title}: of {len(self.bands)} bands of positions, {most}. {self.meaning}".strip()

    def squares(self, level: int) -> str:
        """Return the fields of a shade as an SVG path; a field is 1 x 1, the lowest region is at the bottom."""
        parts = []
        for y, row in enumerate(reversed(self.levels)):
            x = 0
            while x < len(row):
                end = x
                while end < len(row) and row[end] == level:
                    end += 1
                if end > x:
                    parts.append(f"M{x} {y}h{end - x}v1H{x}z")
                x = max(end, x + 1)
        return "".join(parts)


def position_map(profile: Profile) -> PositionMap | None:
    """Return the map of the busiest disk; None if the profile does not contain it."""
    try:
        return _position_map(behaviour_of(profile), profile.description.get("n_disks", 1))
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError, IndexError):
        return None


def _position_map(behaviour: Mapping[str, Any], n_disks: Any) -> PositionMap | None:
    name, disk = list(behaviour["disks"].items())[0]  # noqa: RUF015 - its error is that of other missing parts
    heat = disk["heat_map"]
    rows = [[count_of(int(n)) for n in row.split()] for row in heat["rows"]]
    per_time, per_region = -(-len(rows) // _MOST_TIMES), -(-len(rows[0]) // _MOST_REGIONS)
    counts = [
        [
            sum(n for row in rows[t : t + per_time] for n in row[r : r + per_region])
            for t in range(0, len(rows), per_time)
        ]
        for r in range(0, len(rows[0]), per_region)
    ]
    most = max(map(max, counts))
    if most < 1 or any(len(row) != len(rows[0]) for row in rows):
        return None
    seconds, nbytes = count_of(heat["bin_seconds"]) * per_time, count_of(heat["region_nbytes"]) * per_region
    start, low = float(heat["start_seconds"]), count_of(heat["first_lbn"]) * LBN_NBYTES
    high = low + nbytes * len(counts)
    size, unit = (GIB, "GiB") if high >= GIB else (MIB, "MiB")
    return PositionMap(
        disk=str(name),
        n_disks=n_disks if isinstance(n_disks, int) else 1,
        time=TimeAxis.of(start, start + seconds * len(counts[0])),
        place=linear_axis(low / size, high / size),
        unit=unit,
        levels=tuple(tuple(_level(n, most) for n in row) for row in counts),
        legend=_legend(most),
        cell=f"{span_text(seconds)} and {_size(nbytes)}",
        bands=_bands(counts, low, nbytes),
        meaning=_hot_spots(disk),
    )


def _level(n: float, most: float) -> int:
    return math.ceil(LEVELS * math.log1p(n) / math.log1p(most) - 1e-9)


def _legend(most: float) -> tuple[str, ...]:
    """Return the counts of each shade; a shade that no whole number has is empty."""
    ends = [math.floor(math.expm1(math.log1p(most) * level / LEVELS) + 1e-6) for level in range(LEVELS + 1)]
    return tuple(
        "" if high <= low else f"{high:,}" if high == low + 1 else f"{low + 1:,} to {high:,}"
        for low, high in pairwise(ends)
    )


def _bands(counts: Sequence[Sequence[float]], low: float, nbytes: float) -> tuple[tuple[str, float], ...]:
    total, per_band = sum(map(sum, counts)), -(-len(counts) // _BANDS)
    bands = []
    for first in range(0, len(counts), per_band):
        part = counts[first : first + per_band]
        begin, end = low + first * nbytes, low + (first + len(part)) * nbytes
        bands.append((f"{_size(begin)} to {_size(end)}", sum(map(sum, part)) / total))
    return tuple(bands)


def _hot_spots(disk: Mapping[str, Any]) -> str:
    hot, again = disk["hot_spots"], disk["footprint"]["reaccess_share"]
    share = count_of(hot["share_of_regions"]["accesses"][_HOT])
    touched = count_of(hot["regions_touched"]) * count_of(hot["region_nbytes"])
    of_touched = f"{_size(share * touched)} of the {_size(touched)} that were touched"
    if again is not None and count_of(again) < _SELDOM:
        return (
            f"{formatting.per_cent(again)} of the block accesses go to blocks that were accessed before: "
            "caches gain little here."
        )
    if share <= _CONCENTRATED:
        return f"80 % of the accesses go to {of_touched}: a cache or fast tier of this size takes most of them."
    return f"80 % of the accesses spread over {of_touched}: only a cache or fast tier as large takes most of them."


def _size(nbytes: float) -> str:
    """Format bytes with three digits: ``64 MiB``, ``1.5 GiB``."""
    for factor, unit in ((1 << 40, "TiB"), (GIB, "GiB"), (MIB, "MiB")):
        if nbytes >= factor:
            return f"{nbytes / factor:.3g} {unit}" if nbytes < 999.5 * factor else f"{nbytes / factor:.0f} {unit}"
    return f"{nbytes / 1024:.3g} KiB" if nbytes else "0"
