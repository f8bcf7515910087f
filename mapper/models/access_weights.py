"""The time of any access from what was measured: interpolation over size, depth, alignment and commits.

An access of a workload has any size and any number of outstanding neighbours; a sweep measures few of them. The
time per access (the reciprocal of a rate) is taken as a weighted sum of measured times. The weights depend on the
measured kinds alone, so they are the same for every configuration: predictions are linear in the measured times.

- Size: linear between the neighbouring measured sizes (time = fixed part + bytes / bandwidth); below the smallest
  as the smallest, above the largest in proportion to the bytes.
- Depth: the residence time of an access (depth x time per access) is linear between measured depths: constant
  while servers are free, proportional to the depth when all are busy. Outside them the nearest one holds.
- Alignment: accesses that do not start at a multiple of their size use the rates measured so, where there are any.
- Commits: of writes that the application waits for, the share that a flush soon follows uses rates measured with
  flushes.

On a public set of 17 sizes this interpolation over sizes was off by a median factor of 1.008, rounding to the bins
by 1.97.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from cephfit.core.errors import InputError
from cephfit.core.statistics.round_effects import Booleans, Floats
from cephfit.core.values.cells import LoadedCell, Op, Pattern
from cephfit.core.values.demand import Commits, Demand
from cephfit.core.values.profile import Profile

_DEEPER = 2.0
"""A note names demand whose depth exceeds the measured ones by more than this factor."""
_NOTED_SHARE = 0.05
"""Smallest share of the waiting time that is worth a note, or an error."""
_ABSORBED = 32.0
"""Largest number of writes that a cache is taken to absorb before a flush."""
_LARGER = 8.0
"""Accesses that exceed the largest measured size by more than this factor have no prediction."""
FLUSHED_UP_TO = 2.0
"""Writes that exceed the largest size measured with flushes by more than this factor are taken to be unaffected by
them: the larger a write, the less a flush adds to it."""


PATTERNS = tuple(Pattern)
_PATTERN_NUMBER = {pattern: number for number, pattern in enumerate(PATTERNS)}
_IS_WRITE = np.array([pattern.op is Op.WRITE for pattern in PATTERNS])
WAITS, BACKGROUND, SYNC_UNKNOWN = 1, 0, -1
"""Whether the application waits for the accesses of a demand."""
_SYNC = {True: WAITS, False: BACKGROUND, None: SYNC_UNKNOWN}


@dataclass(frozen=True, slots=True)
class DemandColumns:
    """D demands as arrays, each of shape (D,).

    Attributes:
        pattern: index in ``PATTERNS``.
        nbytes: mean size.
        depth: NaN where unknown.
        is_unaligned: known not to start at a multiple of the own size.
        sync: ``WAITS``, ``BACKGROUND`` or ``SYNC_UNKNOWN``.
        accesses: their number.
        waiting: seconds; NaN where unknown.
    """

    pattern: NDArray[np.intp]
    nbytes: Floats
    depth: Floats
    is_unaligned: Booleans
    sync: NDArray[np.int8]
    accesses: Floats
    waiting: Floats

    @classmethod
    def of(cls, demands: Sequence[Demand]) -> "DemandColumns":
        """Return the columns of demands, in their order."""
        return cls(
            np.array([_PATTERN_NUMBER[d.pattern] for d in demands], dtype=np.intp),
            np.array([d.nbytes for d in demands], dtype=np.float64),
            np.array([d.depth for d in demands], dtype=np.float64),  # None becomes NaN
            np.array([d.is_aligned is False for d in demands], dtype=np.bool_),
            np.array([_SYNC[d.is_sync] for d in demands], dtype=np.int8),
            np.array([d.accesses for d in demands], dtype=np.float64),
            np.array([d.waiting_seconds for d in demands], dtype=np.float64),
        )

    @property
    def is_write(self) -> Booleans:
        return np.asarray(_IS_WRITE[self.pattern])


@dataclass(frozen=True, slots=True)
class AccessWeights:
    """The time of every demand's access as a weighted sum of measured times.

    Attributes:
        cells: measured kinds with a weight, P of them.
        weights: shape (demands, P), never negative.
        saturated: the same where other accesses keep the storage busy; ``weights`` without a background.
        unaligned: shape (demands,): the demand is not aligned to its size, and only aligned rates were measured.
        too_deep: shape (demands,): the demand is deeper than any measured rate of its pattern.
        other_pattern: shape (demands,): rates of the other kind of offsets stand in for an unmeasured pattern.
        too_large: shape (demands,): far above the largest measured size of their pattern.
        unflushed: shape (demands,): share that a flush follows, where no flushed writes were measured.
    """

    cells: tuple[LoadedCell, ...]
    weights: Floats
    saturated: Floats
    unaligned: Floats
    too_deep: Floats
    other_pattern: Floats
    too_large: Floats
    unflushed: Floats

    @classmethod
    def of(
        cls,
        demands: Sequence[Demand],
        measured: Sequence[LoadedCell],
        commits: Commits | None,
        *,
        where: str,
        has_background: bool = False,
    ) -> "AccessWeights":
        """Return the weights of ``demands`` over ``measured``.

        Args:
            demands: of a workload.
            measured: kinds with a rate of the default.
            commits: of the workload; None if unknown.
            where: origin of the rates, for errors.
            has_background: some of the demands run next to the application.

        Raises:
            InputError: no rate was measured for a demand's op.
        """
        columns = DemandColumns.of(demands)
        flushed = np.full(len(demands), flushed_share(demands, commits))
        weights, flags = weighed(columns, measured, flushed, where=where)
        of_workload = np.full(len(demands), has_background)
        saturated = saturated_weights(columns, measured, flushed, weights, of_workload, where=where)
        used = np.flatnonzero(weights.any(axis=0) | saturated.any(axis=0))
        return cls(tuple(measured[i] for i in used.tolist()), weights[:, used], saturated[:, used], *flags)

    def refuse_unmeasured(self, shares: Floats, *, where: str) -> None:
        """Refuse accesses that are far larger than all measured sizes.

        Raises:
            InputError: a part of the workload that matters is far larger than all measured sizes; ``shares`` as in
                ``notes``.
        """
        refuse_unmeasured(float(shares @ self.too_large), where=where)

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
                "(random or sequential) is used instead"
            )
        if (share := float(shares @ self.unflushed)) >= _NOTED_SHARE:
            notes.append(
                f"{100 * share:.0f} % of the workload is in writes that a flush follows, and only writes without "
                "one were measured, which may be much faster: add a load with `sync: fsync` to the sweep"
            )
        return notes


def refuse_unmeasured(share: float, *, where: str) -> None:
    """Refuse accesses that are far larger than all measured sizes.

    Raises:
        InputError: ``share`` of a workload, which is far larger than all measured sizes, is not negligible.
    """
    if share >= _NOTED_SHARE:
        raise InputError(
            f"{100 * share:.0f} % of the workload is in accesses more than {_LARGER:g} times larger than the "
            "largest measured size of their pattern",
            where=where,
            remedy="add larger sizes to the sweep",
        )


def flushed_share(demands: Sequence[Demand], commits: Commits | None) -> float:
    """Return which share of the writes that the application waits for is soon made durable, 0 to 1.

    A flush makes all writes since the one before durable, so a cache absorbs none of them for long.
    """
    owners = np.zeros(len(demands), dtype=np.intp)
    return float(flushed_shares(DemandColumns.of(demands), owners, [commits])[0])


def flushed_shares(demands: DemandColumns, owners: NDArray[np.intp], commits: Sequence[Commits | None]) -> Floats:
    """Return ``flushed_share`` of many workloads.

    Args:
        demands: of all workloads, D of them.
        owners: the workload of each demand, shape (D,).
        commits: of each workload.

    Returns:
        Shape (workloads,).
    """
    # A write that forces unit access often has a flush before it: the two are one commit.
    durable = np.array([0 if c is None else max(c.flushes, c.fua_writes or 0) for c in commits], dtype=np.float64)
    waited_for = np.where(demands.is_write & (demands.sync == WAITS), demands.accesses, 0.0)
    writes = np.bincount(owners, waited_for, minlength=len(commits))
    shares: Floats = np.divide(_ABSORBED * durable, writes, out=np.zeros(len(commits)), where=writes > 0)
    return np.minimum(1.0, shares)


def weighed(
    demands: DemandColumns, measured: Sequence[LoadedCell], flushed: Floats, *, where: str
) -> tuple[Floats, Floats]:
    """Return the time of every demand's access as a weighted sum of measured times.

    Args:
        demands: D of them, of one workload or of several.
        measured: kinds with a rate of the default, M of them.
        flushed: share of the writes of the demand's workload that a flush follows, shape (D,).
        where: origin of the rates, for errors.

    Returns:
        The weights, shape (D, M), and the flags ``unaligned``, ``too_deep``, ``other_pattern``, ``too_large`` and
        ``unflushed`` of ``AccessWeights``, shape (5, D).

    Raises:
        InputError: no rate was measured for a demand's op.
    """
    weights, flags = np.zeros((len(demands.nbytes), len(measured))), np.zeros((5, len(demands.nbytes)))
    for number, is_unaligned in product(np.unique(demands.pattern).tolist(), (False, True)):
        rows = np.flatnonzero((demands.pattern == number) & (demands.is_unaligned == is_unaligned))
        if not len(rows):
            continue
        cells, flags[2, rows] = _of_pattern(PATTERNS[number], measured, where)
        plain, limit = _aligned_as(is_unaligned, [c for c in cells if not c.sync])
        committed, _ = _aligned_as(is_unaligned, [c for c in cells if c.sync])
        largest = max((c.nbytes for c in committed), default=0)
        committed += [c for c in plain if committed and c.nbytes > FLUSHED_UP_TO * largest]
        flags[0, rows] = demands.nbytes[rows] > limit
        share = np.where(demands.is_write[rows] & (demands.sync[rows] == WAITS), flushed[rows], 0.0)
        if not committed:
            flags[4, rows] = share
        if not plain or not committed:
            share = np.full(len(rows), 0.0 if plain else 1.0)
        for part, factor in ((plain, 1 - share), (committed, share)):
            if part:
                _add_interpolated(weights, rows, factor, demands, part, measured)
    iodepths = np.array([cell.iodepth for cell in measured], dtype=np.float64)
    sizes = np.array([cell.nbytes for cell in measured], dtype=np.float64)
    flags[1] = demands.depth > _DEEPER * np.where(weights > 0, iodepths, 0.0).max(axis=1, initial=0.0)
    flags[3] = demands.nbytes > _LARGER * np.where(weights > 0, sizes, 0.0).max(axis=1, initial=0.0)
    return weights, flags


def saturated_weights(
    demands: DemandColumns,
    measured: Sequence[LoadedCell],
    flushed: Floats,
    weights: Floats,
    has_background: Booleans,
    *,
    where: str,
) -> Floats:
    """Return ``weights`` at the largest measured depth, for the foreground of workloads with a background.

    With few accesses outstanding, storage is partly idle while they take their time: another workload can use that
    part. The time per access at the largest depth is the work that an access is for the storage.

    Args:
        demands: D of them, of one workload or of several.
        measured, flushed: as for ``weighed``.
        weights: of the demands at their own depths, shape (D, M).
        has_background: the demand's workload also has demands in the background, shape (D,).
        where: origin of the rates, for errors.

    Returns:
        Shape (D, M); those of all other demands are ``weights``.
    """
    wanted = has_background & (demands.sync != BACKGROUND)
    if not wanted.any():
        return weights
    deepest = replace(demands, depth=np.where(np.isnan(demands.depth), math.nan, math.inf))
    found, _ = weighed(deepest, measured, flushed, where=where)
    return np.where(wanted[:, None], found, weights)


def less_than_alone(saturated: Floats, weights: Floats, seconds: Floats) -> Floats:
    """Return ``saturated``, but ``weights`` for demands that take longer saturated than at their own depth.

    Args:
        saturated, weights: shape (D, M).
        seconds: the default's time per access in each cell, shape (M,).
    """
    return np.where((saturated @ seconds < weights @ seconds)[:, None], saturated, weights)


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


def _aligned_as(is_unaligned: bool, cells: Sequence[LoadedCell]) -> tuple[list[LoadedCell], float]:
    """Return the kinds aligned like a demand, and above which bytes aligned ones stand in for others.

    A size that was measured only with the other alignment is kept with that one.
    """
    wanted = [c for c in cells if bool(c.align_nbytes) is is_unaligned]
    sizes = {(c.nbytes, c.iodepth) for c in wanted}
    rest = [c for c in cells if c not in wanted and (c.nbytes, c.iodepth) not in sizes]
    if not is_unaligned:
        # Rates of unaligned accesses only stand in where nothing else was measured.
        return (wanted or rest), math.inf
    covered = [c.nbytes for c in wanted]
    if not covered:
        return rest, min((c.align_nbytes or c.nbytes for c in cells), default=0)
    # Below the smallest unaligned size, accesses are as small as the alignment itself.
    return [*wanted, *(c for c in rest if c.nbytes < min(covered))], math.inf


def _add_interpolated(
    weights: Floats,
    rows: NDArray[np.intp],
    factor: Floats,
    demands: DemandColumns,
    cells: Sequence[LoadedCell],
    measured: Sequence[LoadedCell],
) -> None:
    """Add the weights of measured times in the time of accesses.

    Args:
        weights: shape (D, M), changed.
        rows: the demands, shape (rows,).
        factor: of their weights, shape (rows,).
        demands: all, D of them.
        cells: measured kinds that differ in size and depth alone.
        measured: all kinds, M of them.
    """
    column = {cell: i for i, cell in enumerate(measured)}
    sizes = sorted({cell.nbytes for cell in cells})
    by_size = factor[:, None] * _between(demands.nbytes[rows], np.array(sizes, dtype=np.float64))
    for nbytes, of_size in zip(sizes, by_size.T, strict=True):
        at = np.flatnonzero(of_size)
        depths = {cell.iodepth: column[cell] for cell in cells if cell.nbytes == nbytes}
        shares = _over_depth(demands.depth[rows[at]], np.array(sorted(depths), dtype=np.float64))
        for depth, share in zip(sorted(depths), shares.T, strict=True):
            weights[rows[at], depths[depth]] += of_size[at] * share


def _between(nbytes: Floats, sizes: Floats) -> Floats:
    """Return the weights of the times of measured sizes in those of accesses of ``nbytes``.

    Args:
        nbytes: shape (n,).
        sizes: ascending, shape (sizes,).

    Returns:
        Shape (n, sizes); at most two of each row are not 0.
    """
    shares = neighbours(np.clip(nbytes, sizes[0], sizes[-1]), sizes)
    shares[:, -1] *= np.maximum(nbytes / sizes[-1], 1.0)
    return shares


def interpolated_time(nbytes: float, sizes: Floats, times: Floats) -> float:
    """Return the time of an access of ``nbytes`` from the times of ascending measured sizes."""
    return float((_between(np.array([nbytes], dtype=np.float64), sizes) @ times)[0])


def _over_depth(depth: Floats, depths: Floats) -> Floats:
    """Return the weights of the times per access at measured depths in those at ``depth``.

    An unknown depth is that of the shallowest measured cell.

    Args:
        depth: NaN where unknown, shape (n,).
        depths: ascending, shape (depths,).

    Returns:
        Shape (n, depths).
    """
    held = np.clip(np.where(np.isnan(depth), depths[0], depth), depths[0], depths[-1])
    # Residence times are interpolated: depth x time = (1 - share) x low x its time + share x high x its time.
    return np.asarray(neighbours(held, depths) * depths / held[:, None])


def neighbours(values: Floats, nodes: Floats) -> Floats:
    """Return the weights of linear interpolation between ascending nodes, shape (values, nodes)."""
    found = np.zeros((len(values), len(nodes)))
    if len(nodes) == 1:
        found[:] = 1.0
        return found
    above = np.clip(np.searchsorted(nodes, values), 1, len(nodes) - 1)
    share = (values - nodes[above - 1]) / (nodes[above] - nodes[above - 1])
    at = np.arange(len(values))
    found[at, above - 1], found[at, above] = 1 - share, share
    return found


def counted_demands(profile: Profile) -> tuple[Demand, ...]:
    """Return the demands of a profile that only counts accesses: at the sizes of the bins, all else unknown."""
    return tuple(
        Demand(cell.pattern, cell.size.benchmark_nbytes, None, None, None, n, None)
        for cell, n in profile.cell_counts().items()
        if n > 0
    )
