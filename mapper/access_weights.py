"""The time of any access from what was measured: interpolation over size, depth, alignment and commits.

An access of a workload has any size and any number of outstanding neighbours; a sweep measures few of them. The
time per access (the reciprocal of a rate) is taken as a weighted sum of measured times. The weights depend on the
measured kinds alone, so they are the same for every configuration: predictions are linear in the measured times.

- Size: linear between the neighbouring measured sizes (time = fixed part + bytes / bandwidth); below the smallest
  as the smallest, above the largest in proportion to the bytes.
- Depth: the residence time of an access (depth x time per access) is linear between measured depths: constant
  while servers are free, proportional to the depth when all are busy. Outside them the nearest one holds.
- Alignment: accesses that do not start at a multiple of their size use the rates measured so, where there are any.
- Commits: of writes that somebody waits for, the share that a flush follows uses the rates measured with flushes.

On a public set of 17 sizes this interpolation over sizes was off by a median factor of 1.008, rounding to the bins
by 1.97.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from cephfit.core.errors import InputError
from cephfit.core.values.cells import LoadedCell, Op, Pattern
from cephfit.core.values.demand import Commits, Demand
from cephfit.core.values.profile import Profile
from cephfit.core.variance import Floats

Weights = Mapping[LoadedCell, float]

_DEEPER = 2.0
"""A note names demand whose depth exceeds the measured ones by more than this factor."""
_NOTED_SHARE = 0.05
"""Smallest share of the waiting time that is worth a note, or an error."""
_LARGER_COMMITTED = 2.0
"""Writes that exceed the largest size measured with flushes by more than this factor use rates without flushes: the
larger a write, the less a flush adds to it."""
_LARGER = 8.0
"""Accesses that exceed the largest measured size by more than this factor have no prediction."""


@dataclass(frozen=True, slots=True)
class AccessWeights:
    """The time of every demand's access as a weighted sum of measured times.

    Attributes:
        cells: measured kinds with a weight, P of them.
        weights: shape (demands, P), never negative.
        unaligned: shape (demands,): the demand is not aligned to its size, and only aligned rates were measured.
        too_deep: shape (demands,): the demand is deeper than any measured rate of its pattern.
        other_pattern: shape (demands,): rates of the other kind of offsets stand in for an unmeasured pattern.
        too_large: shape (demands,): far above the largest measured size of their pattern.
    """

    cells: tuple[LoadedCell, ...]
    weights: Floats
    unaligned: Floats
    too_deep: Floats
    other_pattern: Floats
    too_large: Floats

    @classmethod
    def of(
        cls, demands: Sequence[Demand], measured: Sequence[LoadedCell], commits: Commits | None, *, where: str
    ) -> "AccessWeights":
        """Return the weights of ``demands`` over ``measured``.

        Args:
            demands: of a workload.
            measured: kinds with a rate of the default.
            commits: of the workload; None if unknown.
            where: origin of the rates, for errors.

        Raises:
            InputError: no rate was measured for a demand's op.
        """
        flushed = flushed_share(demands, commits)
        rows: list[dict[LoadedCell, float]] = []
        flags = np.zeros((4, len(demands)))
        for i, demand in enumerate(demands):
            cells, flags[2, i] = _of_pattern(demand.pattern, measured, where)
            plain, flags[0, i] = _aligned_as(demand, [c for c in cells if not c.sync])
            committed, _ = _aligned_as(demand, [c for c in cells if c.sync])
            if demand.nbytes > _LARGER_COMMITTED * max((c.nbytes for c in committed), default=0):
                committed = []
            share = flushed if demand.is_sync and demand.pattern.op is Op.WRITE else 0.0
            if not plain or not committed:
                share, plain, committed = (1.0, [], committed) if not plain else (0.0, plain, [])
            row: dict[LoadedCell, float] = {}
            for part, weight in ((plain, 1 - share), (committed, share)):
                if weight:
                    for cell, value in _interpolated(demand, part).items():
                        row[cell] = row.get(cell, 0.0) + weight * value
            flags[1, i] = demand.depth is not None and demand.depth > _DEEPER * max(c.iodepth for c in row)
            flags[3, i] = demand.nbytes > _LARGER * max(c.nbytes for c in row)
            rows.append(row)
        used = tuple(dict.fromkeys(cell for row in rows for cell in row))
        weights = np.array([[row.get(cell, 0.0) for cell in used] for row in rows])
        return cls(used, weights, *flags)

    def refuse_unmeasured(self, shares: Floats, *, where: str) -> None:
        """Raises:
        InputError: a part of the workload that matters is far larger than all measured sizes; ``shares`` as in
            ``notes``.
        """
        if (share := float(shares @ self.too_large)) >= _NOTED_SHARE:
            raise InputError(
                f"{100 * share:.0f} % of the workload is in accesses more than {_LARGER:g} times larger than the "
                "largest measured size of their pattern",
                where=where,
                remedy="add larger sizes to the sweep",
            )

    def notes(self, shares: Floats) -> list[str]:
        """Return what the sweep did not measure and the workload needs.

        Args:
            shares: of the waiting time (or accesses) per demand, shape (demands,); the sum is 1.
        """
        notes = []
        if (share := float(shares @ self.unaligned)) >= _NOTED_SHARE:
            notes.append(
                f"{100 * share:.0f} % of the workload is in accesses that do not start at a multiple of their "
                "size, and only aligned ones were measured, which storage may serve much faster: add a load with "
                "`align: 4K` to the sweep"
            )
        if (share := float(shares @ self.too_deep)) >= _NOTED_SHARE:
            deepest = max(cell.iodepth for cell in self.cells)
            notes.append(
                f"{100 * share:.0f} % of the workload has more I/Os outstanding than any measured cell "
                f"(at most {deepest}): add a load with a larger `iodepth` to the sweep"
            )
        if (share := float(shares @ self.other_pattern)) >= _NOTED_SHARE:
            notes.append(
                f"for {100 * share:.0f} % of the workload the pattern was not measured: the other kind of offsets "
                "(random or sequential) stands in for it"
            )
        return notes


def flushed_share(demands: Sequence[Demand], commits: Commits | None) -> float:
    """Return which share of the writes that somebody waits for a flush or forced unit access follows, 0 to 1."""
    if commits is None:
        return 0.0
    sync = sum(d.accesses for d in demands if d.is_sync and d.pattern.op is Op.WRITE)
    durable = commits.flushes + (commits.fua_writes or 0)
    return min(1.0, durable / sync) if sync else 0.0


def _of_pattern(pattern: Pattern, measured: Sequence[LoadedCell], where: str) -> tuple[list[LoadedCell], bool]:
    """Return the measured kinds of a pattern, or else of the same op, and whether they are of another pattern."""
    if own := [cell for cell in measured if cell.pattern is pattern]:
        return own, False
    if other := [cell for cell in measured if cell.pattern.op is pattern.op]:
        return other, True
    raise InputError(
        f"no rate of {pattern.op}s was measured under the default, and the workload has {pattern.op}s",
        where=where,
        remedy=f"add {pattern} to the sweep's patterns",
    )


def _aligned_as(demand: Demand, cells: Sequence[LoadedCell]) -> tuple[list[LoadedCell], bool]:
    """Return the kinds aligned like a demand, and whether aligned ones stand in for others.

    A size that was measured only with the other alignment is kept with that one.
    """
    wanted = [c for c in cells if bool(c.align_nbytes) is (demand.is_aligned is False)]
    sizes = {(c.nbytes, c.iodepth) for c in wanted}
    rest = [c for c in cells if c not in wanted and (c.nbytes, c.iodepth) not in sizes]
    if demand.is_aligned is not False:
        # Rates of unaligned accesses only stand in where nothing else was measured.
        return (wanted or rest), False
    covered = [c.nbytes for c in wanted]
    if not covered:
        smallest = min((c.align_nbytes or c.nbytes for c in cells), default=0)
        return rest, demand.nbytes > smallest
    # Below the smallest unaligned size, accesses are as small as the alignment itself.
    return [*wanted, *(c for c in rest if c.nbytes < min(covered))], False


def _interpolated(demand: Demand, cells: Sequence[LoadedCell]) -> dict[LoadedCell, float]:
    """Return the weights of measured times in the time of an access.

    Args:
        demand: the access.
        cells: measured kinds that differ in size and depth alone.
    """
    sizes = sorted({cell.nbytes for cell in cells})
    found: dict[LoadedCell, float] = {}
    for nbytes, weight in _between(demand.nbytes, sizes):
        depths = {cell.iodepth: cell for cell in cells if cell.nbytes == nbytes}
        for depth, share in _over_depth(demand.depth, sorted(depths)):
            found[depths[depth]] = found.get(depths[depth], 0.0) + weight * share
    return found


def _between(nbytes: float, sizes: Sequence[int]) -> list[tuple[int, float]]:
    """Return the neighbouring measured sizes with their weights in the time of an access of ``nbytes``."""
    if nbytes <= sizes[0]:
        return [(sizes[0], 1.0)]
    if nbytes >= sizes[-1]:
        return [(sizes[-1], nbytes / sizes[-1])]
    above = next(i for i, size in enumerate(sizes) if size >= nbytes)
    low, high = sizes[above - 1], sizes[above]
    share = (nbytes - low) / (high - low)
    return [(size, weight) for size, weight in ((low, 1 - share), (high, share)) if weight > 0]


def _over_depth(depth: float | None, depths: Sequence[int]) -> list[tuple[int, float]]:
    """Return the neighbouring measured depths with their weights in the time per access at ``depth``.

    An unknown depth is that of the shallowest measured cell.
    """
    if depth is None or depth <= depths[0]:
        return [(depths[0], 1.0)]
    if depth >= depths[-1]:
        return [(depths[-1], 1.0)]
    above = next(i for i, measured in enumerate(depths) if measured >= depth)
    low, high = depths[above - 1], depths[above]
    share = (depth - low) / (high - low)
    # Residence times are interpolated: depth x time = (1 - share) x low x its time + share x high x its time.
    parts = ((low, (1 - share) * low / depth), (high, share * high / depth))
    return [(measured, weight) for measured, weight in parts if weight > 0]


def counted_demands(profile: Profile) -> tuple[Demand, ...]:
    """Return the demands of a profile that only counts accesses: at the sizes of the bins, all else unknown."""
    return tuple(
        Demand(cell.pattern, cell.size.benchmark_nbytes, None, None, None, n, None)
        for cell, n in profile.cell_counts().items()
        if n > 0
    )
