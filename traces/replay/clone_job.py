"""Create a clone of a workload from the demands of its profile: phases of fio, one per depth and alignment.

fio has one depth and one alignment per section. So the accesses are divided by these, and by whether the workload
waits for them; each part is a phase in which reads, writes and sizes are mixed as in the profile. Phases run one
after the other. Small parts join the most similar phase.

- Sizes are the mean sizes of the demands, in whole blocks of the alignment.
- Accesses that are aligned to their own size start at multiples of it, up to 64K, the largest alignment that
  matters to BlueStore on hard disks. All others start at multiples of 4K, or of 512 where most do not start at 4K.
- A flush follows every N writes that the workload waits for. These writes have their own phases: among reads, fio
  repeats the flush after every read until the next write.
- Idle time is pauses within the phases, at most as long as the time with accesses outstanding. Longer idle time
  would leave too few accesses in a short run; it is added to the result instead.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from cephfit.core.errors import InputError
from cephfit.core.units import GIB, MIB
from cephfit.core.values.cells import Op
from cephfit.core.values.demand import ALIGNMENTS_NBYTES, ClonePhase, Demand, WorkloadClone
from cephfit.core.values.profile import Profile
from cephfit.traces.replay.workload_job import SMALLEST_FILE_NBYTES, FioJob, whole_percents

_PAGE, _BLOCK = ALIGNMENTS_NBYTES[0], 512
_LARGEST_ALIGN_NBYTES = ALIGNMENTS_NBYTES[-1]

LEAST_SHARE = 0.05
"""Phases with a smaller share of the time join another one: a run of 20 s gives this one second."""

MOST_PHASES = 8

LARGEST_NBYTES = GIB
"""Largest used part of a volume that is chosen from the footprint: it is filled once per configuration."""

_LEAST_PAUSE_US = 1000
"""fio sleeps about 0.1 ms longer than asked; pauses of fewer accesses are joined."""
_DRAINED_SHARE = 16
"""Accesses before a pause, in depths: fio completes all accesses before a pause, and so loses the depth."""

_SEEK_SECONDS, _BYTES_PER_SECOND = 0.01, 100e6
"""Time of accesses of unknown waiting time, of a hard disk; it only divides the run time among phases."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Accesses of one size, op, depth and alignment.

    Attributes:
        demand: its accesses.
        nbytes: their size in fio.
        align_nbytes: multiple of their offsets.
        seconds: time of one pass.
        is_flushed: whether flushes follow these writes.
    """

    demand: Demand
    nbytes: int
    align_nbytes: int
    seconds: float
    is_flushed: bool = False

    @property
    def in_background(self) -> bool:
        return self.demand.pattern.op is Op.WRITE and self.demand.is_sync is False

    @property
    def depth(self) -> float:
        return self.demand.depth or 1.0

    @property
    def key(self) -> tuple[bool, bool, int, int]:
        return self.in_background, self.is_flushed, round(math.log2(self.depth)), self.align_nbytes


@dataclass(frozen=True, slots=True)
class _Group:
    """Parts of one phase, with the depth class and the alignment of those that take most of its time."""

    in_background: bool
    is_flushed: bool
    depth_class: int
    align_nbytes: int
    parts: tuple[_Part, ...]

    @property
    def seconds(self) -> float:
        return math.fsum(part.seconds for part in self.parts)

    @property
    def accesses(self) -> float:
        return math.fsum(part.demand.accesses for part in self.parts)

    def may_join(self, other: "_Group") -> bool:
        return (self.in_background, self.is_flushed) == (other.in_background, other.is_flushed)

    def distance(self, other: "_Group") -> float:
        """Return how unlike two phases are: the log of the ratio of their depths and of their alignments."""
        return abs(self.depth_class - other.depth_class) + abs(math.log2(self.align_nbytes / other.align_nbytes))

    def joined(self, smaller: "_Group") -> "_Group":
        return replace(self, parts=(*self.parts, *smaller.parts))


def clone_of(profile: Profile, demands: Sequence[Demand], *, nbytes: int | None = None) -> WorkloadClone:
    """Return the clone of a workload.

    Args:
        profile: of the workload; its commits, idle time, alignment and footprint are used.
        demands: its accesses by kind: those of the profile, or those that its counts give.
        nbytes: size of the used part of the volume; None: the footprint if it is known, 64M to 1G.

    Raises:
        InputError: there are no accesses, or one is larger than the volume.
    """
    if not demands:
        raise InputError("the profile has no accesses", where=profile.name)
    notes: list[str] = []
    if any(d.waiting_seconds is None for d in demands):
        notes.append(
            "the profile has no waiting times: the time of each phase is a guess, and idle time is omitted"
        )
    if any(d.depth is None for d in demands):
        notes.append("the profile has no depths: accesses are issued one at a time")
    is_timed = all(d.waiting_seconds is not None for d in demands)
    parts = [_part(profile, demand, is_timed=is_timed) for demand in demands]
    largest = max(part.nbytes for part in parts)
    nbytes = _nbytes(profile, largest) if nbytes is None else nbytes
    if largest > nbytes:
        raise InputError(
            f"an access of {largest} bytes does not fit on a volume of {nbytes}",
            where=profile.name,
            remedy="use a larger part of the volume: --size",
        )
    fsync_every = _fsync_every(profile, parts, notes)
    groups = _merged(_flushed(parts) if fsync_every is not None else parts)
    foreground = math.fsum(group.seconds for group in groups if not group.in_background)
    idle = (profile.idle_seconds or 0.0) if is_timed else 0.0
    paused = min(idle, foreground)
    phases = [
        _phase(
            f"phase{number}",
            group,
            nbytes,
            pause_seconds=paused * group.seconds / foreground if paused and not group.in_background else 0.0,
            fsync_every=fsync_every if group.is_flushed else None,
            notes=notes,
        )
        for number, group in enumerate(groups, start=1)
    ]
    behind = math.fsum(group.seconds for group in groups if group.in_background) if is_timed else 0.0
    return WorkloadClone(profile.name, tuple(phases), idle, behind, nbytes, tuple(dict.fromkeys(notes)))


def _part(profile: Profile, demand: Demand, *, is_timed: bool) -> _Part:
    granularity = _granularity(profile, demand.pattern.op)
    block = granularity if demand.nbytes >= granularity / 2 else _BLOCK
    nbytes = max(round(demand.nbytes / block), 1) * block
    # The largest power of two in the size; for unaligned accesses what files and pages are aligned to.
    align = min(nbytes & -nbytes, _LARGEST_ALIGN_NBYTES) if demand.is_aligned is not False else block
    seconds = demand.waiting_seconds if is_timed else None
    if seconds is None:
        seconds = demand.accesses * (_SEEK_SECONDS + nbytes / _BYTES_PER_SECOND)
    return _Part(demand, nbytes, align, seconds)


def _granularity(profile: Profile, op: Op) -> int:
    """Return the alignment that most accesses of an op have at least: 4K, where it is unknown, or 512."""
    if profile.alignment is None:
        return _PAGE
    counts = profile.accesses[op]
    shares = profile.alignment[op]
    aligned = sum(counts[name] * of.get("4K", 0.0) for name, of in shares.items())
    total = sum(counts[name] for name in shares)
    return _PAGE if not total or aligned >= total / 2 else _BLOCK


def _merged(parts: Sequence[_Part]) -> list[_Group]:
    """Return the phases, those of the background last, each with at least ``LEAST_SHARE`` of the time."""
    by_key: dict[tuple[bool, bool, int, int], list[_Part]] = {}
    for part in parts:
        by_key.setdefault(part.key, []).append(part)
    groups = [_Group(*key, tuple(own)) for key, own in sorted(by_key.items())]
    total = math.fsum(group.seconds for group in groups)
    while True:
        mergeable = [g for g in groups if sum(map(g.may_join, groups)) > 1]
        smallest = min(mergeable, key=lambda g: g.seconds, default=None)
        if smallest is None or (smallest.seconds >= LEAST_SHARE * total and len(groups) <= MOST_PHASES):
            return groups
        others = [g for g in groups if g is not smallest and g.may_join(smallest)]
        nearest = min(others, key=lambda g: (smallest.distance(g), -g.seconds))
        groups = [g.joined(smallest) if g is nearest else g for g in groups if g is not smallest]


def _phase(
    name: str, group: _Group, nbytes: int, *, pause_seconds: float, fsync_every: int | None, notes: list[str]
) -> ClonePhase:
    """Return one phase; ``pause_seconds``: its pauses in one pass."""
    by_op = {op: [part for part in group.parts if part.demand.pattern.op is op] for op in Op}
    counts = {op: math.fsum(part.demand.accesses for part in own) for op, own in by_op.items()}
    read_percent = round(100 * counts[Op.READ] / group.accesses)
    if all(counts.values()) and read_percent in (0, 100):
        read_percent = min(max(read_percent, 1), 99)
        notes.append("fio takes whole percents of reads: a rare op has 1 % of a phase's accesses")
    weights = [part.seconds or part.demand.accesses for part in group.parts]
    depth = sum(p.depth * w for p, w in zip(group.parts, weights, strict=True)) / sum(weights)
    iodepth = max(round(depth), 1)
    think_us, think_blocks, paused = _pauses(pause_seconds, group.accesses, iodepth)
    job = FioJob(
        sizes={op: whole_percents(_sizes(own)) if own else [] for op, own in by_op.items()},
        read_percent=read_percent,
        random_percent={op: _random_percent(own) for op, own in by_op.items()},
        iodepth=iodepth,
        think_us=think_us,
        rates=None,
        nbytes=nbytes,
        notes=(),
        align_nbytes=group.align_nbytes,
        fsync_every=fsync_every,
        think_blocks=think_blocks,
    )
    return ClonePhase(
        name,
        tuple(job.access_options()),
        group.accesses,
        group.seconds + paused,
        paused,
        group.in_background,
    )


def _pauses(seconds: float, accesses: float, iodepth: int) -> tuple[int | None, int | None, float]:
    """Return the length of a pause in us, the accesses before each, and the pauses of a pass in seconds."""
    if 1e6 * seconds < _LEAST_PAUSE_US:  # of a whole pass
        return None, None, 0.0
    each_us = 1e6 * seconds / accesses
    blocks = 1 if iodepth == 1 else _DRAINED_SHARE * iodepth
    if each_us * blocks < _LEAST_PAUSE_US and each_us > 0:
        blocks = math.ceil(_LEAST_PAUSE_US / each_us)
    pause_us = round(each_us * blocks)
    if not pause_us or blocks > accesses:
        return None, None, 0.0
    return pause_us, blocks, accesses / blocks * pause_us / 1e6


def _sizes(parts: Sequence[_Part]) -> dict[int, int]:
    """Return accesses by size, in thousandths: counts may not be whole."""
    sizes: dict[int, int] = {}
    for part in parts:
        sizes[part.nbytes] = sizes.get(part.nbytes, 0) + max(round(1000 * part.demand.accesses), 1)
    return sizes


def _random_percent(parts: Sequence[_Part]) -> int:
    total = math.fsum(part.demand.accesses for part in parts)
    random = math.fsum(part.demand.accesses for part in parts if part.demand.pattern.is_random)
    return round(100 * random / total) if total else 0


def _flushed(parts: Sequence[_Part]) -> list[_Part]:
    """Return the parts, with the writes marked that the workload waits for, or all if it waits for none."""
    writes = [part for part in parts if part.demand.pattern.op is Op.WRITE]
    waited = [part for part in writes if not part.in_background] or writes
    return [replace(part, is_flushed=part in waited) for part in parts]


def _fsync_every(profile: Profile, parts: Sequence[_Part], notes: list[str]) -> int | None:
    """Return the number of writes per flush, of those that the workload waits for if there are any.

    A write with forced unit access is durable at its end, as a write with a flush is.
    """
    commits = profile.commits
    durable = commits.flushes + (commits.fua_writes or 0) if commits is not None else 0
    n = math.fsum(part.demand.accesses for part in _flushed(parts) if part.is_flushed)
    if not durable or not n:
        return None
    if durable > n:
        notes.append(f"the workload has {durable / n:.2g} flushes per write, the clone one")
    return max(round(n / durable), 1)


def _nbytes(profile: Profile, largest: int) -> int:
    footprint = profile.description.get("behaviour", {}).get("footprint", {}).get("nbytes") or LARGEST_NBYTES
    wanted = max(min(footprint, LARGEST_NBYTES), SMALLEST_FILE_NBYTES, 16 * largest)
    return -(-int(wanted) // MIB) * MIB
