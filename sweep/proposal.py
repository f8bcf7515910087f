"""Propose the cells and loads that a workload needs: what its demands spend their time in. Pure.

Every demand of a profile is a size, a pattern, a depth, an alignment, and writes that are made durable or not. Its
weight is divided between the two measured sizes around its size, linearly, and between the two depths around its
depth, linearly in the logarithm: rates between them are interpolated in the same way. The heaviest kinds of access
are kept until they carry the wanted share of the weight. The other kinds are not measured.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

import yaml

from cephfit.core.errors import InputError
from cephfit.core.units import MIB, format_nbytes
from cephfit.core.values.cells import CELLS, SIZE_BINS, Cell, LoadedCell, Op, SizeBin
from cephfit.core.values.demand import ALIGNMENTS_NBYTES, Demand
from cephfit.core.values.measurement import DSYNC, FIO, FSYNC, RBD_OBJECT_NBYTES, Load, Measurement
from cephfit.core.values.profile import Profile

COVERED = 0.95
"""Share of the weight that the measured kinds carry by default."""
_LEAST_ALIGNED = 0.9
"""Share of the accesses that must start at multiples of an alignment to count as aligned to it."""
_RAREST_FLUSH = 256
"""Writes per flush from which on flushes are not measured."""
_NEARLY_EVERY = 1.5
"""Writes per flush up to which every write counts as flushed."""


def depths_of(size: SizeBin) -> tuple[int, ...]:
    """Return the depths at which a size is measured: few large accesses use the whole bandwidth already."""
    if size.benchmark_nbytes > MIB:
        return (1,)
    if size.benchmark_nbytes == MIB:
        return (1, 4)
    return (1, 4, 16) if size.name == "128K" else (1, 4, 16, 64)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of access, and its share of the workload's weight, 0 to 1."""

    cell: LoadedCell
    weight: float


@dataclass(frozen=True, slots=True)
class Proposal:
    """What to measure for a workload.

    Attributes:
        workload: its name.
        weighed_by: ``waiting time`` or ``accesses``.
        kinds: kinds to measure, the heaviest first.
        left_out: kinds not to measure, the heaviest first.
        measurement: that measures ``kinds``, under its own load or one of its loads.
        notes: other differences from the measurement that it is based on, as text.
    """

    workload: str
    weighed_by: str
    kinds: tuple[Kind, ...]
    left_out: tuple[Kind, ...]
    measurement: Measurement
    notes: tuple[str, ...]

    @property
    def covered(self) -> float:
        """Share of the weight that ``kinds`` carry, 0 to 1."""
        return sum(kind.weight for kind in self.kinds)

    @property
    def everything(self) -> Measurement:
        """The same loads with all 20 cells, for comparison; ``sync`` only for writes."""
        writes = tuple(c for c in CELLS if c.pattern.op is Op.WRITE)
        loads = tuple(replace(load, cells=writes if load.sync else None) for load in self.measurement.loads)
        return replace(self.measurement, cells=CELLS, loads=loads)


def propose(profile: Profile, base: Measurement, *, covered: float = COVERED) -> Proposal:
    """Propose the cells, depths, alignment and flushes to measure for a workload.

    Args:
        profile: of the workload, with demands.
        base: gives clients, volumes, repeats and times. Its cells, loads, mix and rate limits are not used.
        covered: share of the weight that the proposal carries at least, 0 to 1.

    Raises:
        InputError: the profile has no demands.
    """
    if not profile.demands:
        raise InputError(
            f"profile {profile.name} has no demands: it only counts accesses, so neither depths nor waiting times "
            "are known",
            remedy="make it again from a trace with completions: `cephfit trace profile TRACE -o profile.json`",
        )
    weighed_by, weights = _weights(profile.demands)
    is_librbd = base.ioengine == "rbd"
    sync = sync_of(profile, has_dsync=not is_librbd)
    align_nbytes = alignment_of(profile)
    by_kind: dict[LoadedCell, float] = {}
    for demand, weight in zip(profile.demands, weights, strict=True):
        for cell, share in _spread(demand, align_nbytes, sync):
            by_kind[cell] = by_kind.get(cell, 0.0) + weight * share
    ordered = sorted(by_kind.items(), key=lambda entry: (-entry[1], str(entry[0])))
    kinds: list[Kind] = []
    while ordered and sum(kind.weight for kind in kinds) < covered - 1e-9:
        kinds.append(Kind(*ordered.pop(0)))
    measurement = _loads_for([kind.cell for kind in kinds], base)
    measurement, notes = _with_capacity(measurement, base)
    left_out = tuple(Kind(cell, weight) for cell, weight in ordered if weight > 0)
    return Proposal(profile.name, weighed_by, tuple(kinds), left_out, measurement, notes)


def sync_of(profile: Profile, *, has_dsync: bool) -> str:
    """Return how the workload makes writes durable, as in ``Load.sync``.

    Forced unit access is measured as ``dsync`` where it is more frequent than flushes.

    Args:
        profile: of the workload.
        has_dsync: whether the engine can write so; else ``fsync`` takes its place.
    """
    commits = profile.commits
    if commits is None:
        return ""
    fua = commits.fua_writes or 0
    if fua > commits.flushes:
        return DSYNC if has_dsync else FSYNC
    awaited = [d for d in profile.demands or () if d.pattern.op is Op.WRITE and d.is_sync is not False]
    n_writes = sum(d.accesses for d in awaited)
    if not commits.flushes or n_writes > _RAREST_FLUSH * commits.flushes:
        return ""
    per_flush = n_writes / commits.flushes
    return FSYNC if per_flush <= _NEARLY_EVERY else f"every {round(per_flush)}"


def alignment_of(profile: Profile) -> int:
    """Return the largest alignment that nearly all accesses of the workload have, in bytes; 4K if unknown."""
    least = min(ALIGNMENTS_NBYTES)
    shares = [
        (n, share)
        for op in Op
        for name, share in (profile.alignment or {}).get(op, {}).items()
        if (n := profile.accesses[op][name]) and name != SIZE_BINS[0].name
    ]
    n_accesses = sum(n for n, _ in shares)
    for nbytes in sorted(ALIGNMENTS_NBYTES, reverse=True):
        key = format_nbytes(nbytes)
        if n_accesses and sum(n * share.get(key, 0.0) for n, share in shares) >= _LEAST_ALIGNED * n_accesses:
            return nbytes
    return least


def _weights(demands: tuple[Demand, ...]) -> tuple[str, list[float]]:
    """Return what demands are weighed by, and their weights, which sum to 1; in their order."""
    waiting = [d.waiting_seconds for d in demands if d.waiting_seconds is not None]
    if len(waiting) == len(demands) and sum(waiting) > 0:
        return "waiting time", [seconds / sum(waiting) for seconds in waiting]
    total = sum(d.accesses for d in demands)
    return "accesses", [d.accesses / total for d in demands]


def _spread(demand: Demand, align_nbytes: int, sync: str) -> Iterable[tuple[LoadedCell, float]]:
    """Yield the measured kinds around a demand, and their shares of it, which sum to 1."""
    is_durable = demand.pattern.op is Op.WRITE and demand.is_sync is not False
    for size, size_share in _sizes_around(demand.nbytes):
        is_unaligned = demand.is_aligned is False and align_nbytes < size.benchmark_nbytes
        for depth, depth_share in _depths_around(demand.depth or 1.0, depths_of(size)):
            if size_share * depth_share > 0:
                yield (
                    LoadedCell(
                        size.benchmark_nbytes,
                        demand.pattern,
                        depth,
                        align_nbytes if is_unaligned else 0,
                        sync if is_durable else "",
                    ),
                    size_share * depth_share,
                )


def _sizes_around(nbytes: float) -> list[tuple[SizeBin, float]]:
    """Return the measured sizes around a size, with the weights of linear interpolation."""
    smaller = [b for b in SIZE_BINS if b.benchmark_nbytes <= nbytes]
    if not smaller or len(smaller) == len(SIZE_BINS):
        return [(SIZE_BINS[-1 if smaller else 0], 1.0)]
    low, high = smaller[-1], SIZE_BINS[len(smaller)]
    share = (nbytes - low.benchmark_nbytes) / (high.benchmark_nbytes - low.benchmark_nbytes)
    return [(low, 1 - share), (high, share)]


def _depths_around(depth: float, measured: tuple[int, ...]) -> list[tuple[int, float]]:
    """Return the measured depths around a depth, with weights linear in the logarithm."""
    smaller = [d for d in measured if d <= depth]
    if len(smaller) == len(measured):
        return [(measured[-1], 1.0)]
    low, high = smaller[-1], measured[len(smaller)]
    share = math.log(depth / low) / math.log(high / low)
    return [(low, 1 - share), (high, share)]


@dataclass(frozen=True, slots=True)
class _Shape:
    """What the loads of a proposal differ in."""

    iodepth: int
    align_nbytes: int
    sync: str

    def measures(self, kind: LoadedCell, own: "_Shape | None" = None) -> bool:
        """Whether a cell under this shape is of a kind. ``own``: of the measurement, where this is another load's.

        A load with a ``sync`` of its own measures only writes.
        """
        if own is not None and self.sync not in ("", own.sync) and kind.pattern.op is Op.READ:
            return False
        return kind == LoadedCell(
            kind.nbytes,
            kind.pattern,
            self.iodepth,
            self.align_nbytes if self.align_nbytes < kind.nbytes else 0,
            self.sync if kind.pattern.op is Op.WRITE else "",
        )


def _loads_for(kinds: list[LoadedCell], base: Measurement) -> Measurement:
    """Return the measurement with the fewest runs that measures all kinds; all cells under its own load."""
    shapes = [
        _Shape(depth, align_nbytes, sync)
        for depth in sorted({kind.iodepth for kind in kinds})
        for align_nbytes in sorted({kind.align_nbytes for kind in kinds})
        for sync in sorted({kind.sync for kind in kinds})
    ]
    plans = [(own, _further(kinds, own, shapes)) for own in shapes]
    own, further = min(plans, key=lambda plan: sum(len(served) for served in plan[1].values()))
    cells = _cells_of(kinds)
    return replace(
        base,
        cells=cells,
        engine=FIO,
        iodepth=own.iodepth,
        align_nbytes=own.align_nbytes,
        sync=own.sync,
        read_pct=None,
        rate_iops=None,
        rate_nbytes_per_s=None,
        loads=tuple(_load(shape, own, _cells_of(served)) for shape, served in further.items()),
    )


def _further(
    kinds: list[LoadedCell], own: _Shape, shapes: list[_Shape]
) -> Mapping[_Shape, tuple[LoadedCell, ...]]:
    """Return the other shapes that are needed, each with the kinds that it measures; the most useful first."""
    left = [kind for kind in kinds if not own.measures(kind)]
    found: dict[_Shape, tuple[LoadedCell, ...]] = {}
    while left:
        served = {shape: tuple(k for k in left if shape.measures(k, own)) for shape in shapes if shape != own}
        best = max(served, key=lambda shape: len(served[shape]))
        found[best] = served[best]
        left = [kind for kind in left if kind not in served[best]]
    return found


def _cells_of(kinds: Iterable[LoadedCell]) -> tuple[Cell, ...]:
    """Return the cells of kinds, in the order of ``CELLS``."""
    named = {kind.bin_cell for kind in kinds}
    return tuple(cell for cell in CELLS if cell in named)


def _load(shape: _Shape, own: _Shape, cells: tuple[Cell, ...]) -> Load:
    """Return a load with only its differences from the measurement, named after them."""
    words = [f"depth-{shape.iodepth}"] if shape.iodepth != own.iodepth else []
    if shape.align_nbytes != own.align_nbytes:
        words.append(f"align-{format_nbytes(shape.align_nbytes) if shape.align_nbytes else 'own'}")
    if shape.sync != own.sync:
        words.append(shape.sync.replace(" ", "-") or "no-sync")
    return Load(
        "-".join(words),
        iodepth=shape.iodepth if shape.iodepth != own.iodepth else None,
        cells=cells,
        align_nbytes=shape.align_nbytes if shape.align_nbytes != own.align_nbytes else None,
        sync=shape.sync if shape.sync != own.sync else None,
    )


def _with_capacity(measurement: Measurement, base: Measurement) -> tuple[Measurement, tuple[str, ...]]:
    """Return the measurement with volumes and an engine that its cells need, and what that changed."""
    notes = []
    if base.engine != FIO:
        notes.append(f"engine: {base.engine} cannot measure alignment and flushes; fio measures instead")
    if base.read_pct is not None or base.is_limited:
        notes.append("the mix or the rate limit of the sweep is omitted")
    deepest = max([measurement.iodepth, *(load.iodepth or 1 for load in measurement.loads)])
    if deepest > 1 and measurement.ioengine not in _ASYNCHRONOUS:
        notes.append(
            f"ioengine: libaio instead of {measurement.ioengine}, which cannot have {deepest} I/Os in flight"
        )
        measurement = replace(measurement, ioengine="libaio")
    block = max(cell.size.benchmark_nbytes for cell in measurement.cells)
    unaligned = any(measurement.under(name).align_nbytes for name in measurement.load_names)
    unit = max(block, RBD_OBJECT_NBYTES)
    nbytes = max(math.ceil(measurement.volume_nbytes / unit), 2 if unaligned else 1) * unit
    if nbytes != measurement.volume_nbytes:
        notes.append(f"volumes of {format_nbytes(nbytes)}, which hold whole accesses of {format_nbytes(block)}")
        measurement = replace(measurement, volume_nbytes=nbytes)
    return measurement, tuple(notes)


_ASYNCHRONOUS = ("libaio", "io_uring", "posixaio", "rbd")


def as_yaml(measurement: Measurement) -> str:
    """Return a measurement as the section of a sweep file, with a line feed at the end.

    Mix, rates and clients of further loads are not written: a proposal has none.
    """
    lines = [
        "measurement:",
        f"  cells: {_flow(str(cell) for cell in measurement.cells)}",
        f"  clients: {measurement.n_clients}",
        f"  volume_size: {format_nbytes(measurement.volume_nbytes)}",
        f"  repeats: {measurement.repeats}",
        f"  ramp_seconds: {measurement.ramp_seconds:.12g}",
        f"  run_seconds: {measurement.run_seconds:.12g}",
        *([] if measurement.engine == FIO else [f"  engine: {measurement.engine}"]),
        f"  ioengine: {measurement.ioengine}",
        *([] if measurement.read_pct is None else [f"  read_pct: {measurement.read_pct}"]),
        *([] if measurement.rate_iops is None else [f"  rate_iops: {measurement.rate_iops}"]),
        *([] if measurement.rate_nbytes_per_s is None else [f"  rate: {measurement.rate_nbytes_per_s}"]),
        *_shape_lines("  ", measurement.iodepth, measurement.align_nbytes or None, measurement.sync or None),
        f"  direct: {str(measurement.direct).lower()}",
        f"  cache: {measurement.cache.value}",
        f"  seed: {measurement.seed}",
        f"  max_attempts: {measurement.max_attempts}",
    ]
    if measurement.steady is not None:
        steady = measurement.steady
        lines.append(
            f"  steady: {{within: {100 * steady.within:.12g}%, limit_seconds: {steady.limit_seconds:.12g}}}"
        )
    lines += [f"  settle_seconds: {measurement.settle_seconds:.12g}"] if measurement.settle_seconds else []
    lines += ["  new_volumes: true"] if measurement.new_volumes else []
    lines += ["  loads:"] if measurement.loads else []
    for load in measurement.loads:
        lines += [f"    {load.name}:", *_shape_lines("      ", load.iodepth, load.align_nbytes, load.sync)]
        if load.cells is not None:
            lines.append(f"      cells: {_flow(str(cell) for cell in load.cells)}")
    return "\n".join(lines) + "\n"


def with_measurement(text: str, section: str) -> str:
    """Return the text of a sweep file with another section ``measurement``; all other text stays.

    Args:
        text: of a sweep file that was read without an error.
        section: the new section, with its key and a line feed at the end.
    """
    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode), "a sweep file is a mapping"
    key, value = next((key, value) for key, value in root.value if key.value == "measurement")
    lines = text[key.start_mark.index : value.end_mark.index].split("\n")
    # The parser counts comments and empty lines after a section as its part; those in the first column are not.
    n_after = 0
    while not lines[-1 - n_after].strip() or lines[-1 - n_after].startswith("#"):
        n_after += 1
    after = text[value.end_mark.index :]
    # Without lines after it, the section ends within a line, where only a comment may follow.
    rest = "\n".join(lines[len(lines) - n_after :]) + after if n_after else after.partition("\n")[2]
    return text[: key.start_mark.index] + section + rest


def _shape_lines(indent: str, iodepth: int | None, align_nbytes: int | None, sync: str | None) -> list[str]:
    lines = [f"{indent}iodepth: {iodepth}"] if iodepth is not None else []
    if align_nbytes is not None:
        lines.append(f"{indent}align: {format_nbytes(align_nbytes) if align_nbytes else 'own'}")
    if sync is not None:
        lines.append(f"{indent}sync: {sync or 'none'}")
    return lines


def _flow(words: Iterable[str]) -> str:
    return f"[{', '.join(words)}]"
