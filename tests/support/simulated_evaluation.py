"""Workloads and baselines whose truth is known: to test predictions where nothing is left to argue about.

Profiles have demands with the waiting times that the simulated default gives. Baselines are measured by the
simulated engine, cell by cell and load by load. The truth compares the times of one pass through the profile.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
from simulated_truth import with_waiting_times

from cephfit.core.units import GIB, KIB, format_nbytes
from cephfit.core.values.baseline import Baseline, Baselines
from cephfit.core.values.cells import SIZE_BINS, Cell, LoadedCell, Op, Pattern, SizeBin
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION, Configuration, Partition, Setting
from cephfit.core.values.demand import Commits, Demand
from cephfit.core.values.measurement import CacheCondition, Measurement
from cephfit.core.values.profile import Profile
from cephfit.measure.engine import CellRun
from cephfit.targets.simulated import SimulatedTarget, Simulation
from cephfit.targets.simulated_workload import seconds_of


def _ceph(scope: str, **settings: str | int | bool) -> tuple[Setting, ...]:
    return tuple(Setting(Partition.CEPH, scope, key, value) for key, value in settings.items())


def _pool(scope: str, **settings: str | int) -> tuple[Setting, ...]:
    return tuple(Setting(Partition.POOL, scope, key, value) for key, value in settings.items())


CONFIGURATIONS: tuple[Configuration, ...] = (
    Configuration(DEFAULT_CONFIGURATION),
    Configuration("A-again"),
    Configuration("ssd", _pool("pool", crush_rule="ssd")),
    Configuration("hybrid", _pool("pool", crush_rule="hybrid")),
    Configuration("no-deferred", _ceph("osd", bluestore_prefer_deferred_size_hdd=0)),
    Configuration("blob-512k", _ceph("osd", bluestore_max_blob_size_hdd="512K")),
    Configuration("striped", _pool("image", stripe_unit="64K", stripe_count=8)),
    Configuration("striped-16k", _pool("image", stripe_unit="16K", stripe_count=8)),
    Configuration("journaling", _pool("image", features="layering,exclusive-lock,journaling")),
    Configuration("three-copies", _pool("pool", size=3)),
    Configuration("cached", _ceph("client", rbd_cache=True, rbd_cache_policy="writeback")),
)
"""The default first; two are equal, the others have effects of many kinds."""

SIZES_NBYTES = tuple(b.benchmark_nbytes for b in SIZE_BINS)


def simulated_evaluation(
    seed: int,
    n_workloads: int,
    configurations: Sequence[Configuration] = CONFIGURATIONS,
    *,
    baselines: Baselines | None = None,
) -> list[tuple[Profile, Baselines, dict[str, float]]]:
    """Return workloads with what a predictor needs to know, and the answer.

    Args:
        seed: of workloads and noise.
        n_workloads: length of the result.
        configurations: the default first.
        baselines: of the configurations, as ``simulated_baselines`` returns them; None: with its defaults.

    Returns:
        (profile, baselines, truth) of each workload. The baselines are the same object for all. Truth: name of
        each configuration to its performance, the default = 1.0; more is better.
    """
    baselines = baselines or simulated_baselines(configurations, seed=seed)
    dice = np.random.default_rng(seed)
    found = []
    for number in range(n_workloads):
        profile = random_profile(dice, name=f"w{number}")
        default, *_ = times = [seconds_of(profile, c) for c in configurations]
        truth = {c.name: default / t for c, t in zip(configurations, times, strict=True)}
        found.append((profile, baselines, truth))
    return found


def random_profile(dice: np.random.Generator, *, name: str) -> Profile:
    """Draw a workload of two to six demands; half of those with foreground writes have flushes."""
    demands = [_random_demand(dice) for _ in range(int(dice.integers(2, 7)))]
    foreground = sum(d.accesses for d in demands if d.pattern.op is Op.WRITE and d.is_sync)
    flushes = foreground // int(dice.integers(1, 17)) if dice.random() < 0.5 else 0
    profile = with_waiting_times(_profile(name, demands, Commits(flushes)))
    assert profile.demands is not None
    busy = sum(d.waiting_seconds or 0.0 for d in profile.demands)
    idle = busy * float(dice.choice([0.0, 0.1, 0.5, 2.0]))
    return replace(profile, idle_seconds=idle)


def _random_demand(dice: np.random.Generator) -> Demand:
    op = Op(dice.choice([Op.READ.value, Op.WRITE.value]))
    pattern = Pattern.of(op, is_random=bool(dice.random() < 0.7))
    nbytes = 4 * KIB * round(2 ** dice.uniform(0, 8))
    return Demand(
        pattern,
        nbytes,
        is_aligned=nbytes == 4 * KIB or bool(dice.random() < 0.3),
        depth=float(dice.choice([1.0, 1.0, dice.uniform(1, 32)])),
        is_sync=op is Op.READ or bool(dice.random() < 0.75),
        accesses=int(dice.integers(200, 5000)),
        waiting_seconds=None,
    )


def _profile(name: str, demands: Sequence[Demand], commits: Commits) -> Profile:
    """Return a profile with the counts of the demands."""
    counts = {op: {b.name: 0 for b in SIZE_BINS} for op in Op}
    random = {op: {b.name: 0 for b in SIZE_BINS} for op in Op}
    aligned = {op: {b.name: 0 for b in SIZE_BINS} for op in Op}
    for d in demands:
        op, size = d.pattern.op, LoadedCell(int(d.nbytes), d.pattern).bin_cell.size.name
        counts[op][size] += d.accesses
        random[op][size] += d.accesses if d.pattern.is_random else 0
        aligned[op][size] += d.accesses if d.is_aligned else 0

    def share(part: dict[str, int], op: Op, size: str) -> float:
        return part[size] / counts[op][size]

    return Profile(
        name,
        counts,
        {op: sum(random[op].values()) / max(1, sum(counts[op].values())) for op in Op},
        {op: {s: share(random[op], op, s) for s, n in counts[op].items() if n} for op in Op},
        {},
        {
            op: {
                s: {"4K": 1.0, "8K": 0.5, "64K": 1 / 16, "own": share(aligned[op], op, s)}
                for s, n in counts[op].items()
                if n
            }
            for op in Op
        },
        tuple(demands),
        0.0,
        commits,
    )


def simulated_baselines(
    configurations: Sequence[Configuration] = CONFIGURATIONS,
    *,
    seed: int = 1,
    noise: float = 0.02,
    placement: float = 0.0,
    repeats: int = 3,
    sizes: Sequence[int] = SIZES_NBYTES,
    depths: Sequence[int] = (1, 4, 16),
    alignments: Sequence[int] = (0, 4 * KIB),
    syncs: Sequence[str] = ("", "every 8"),
    ramp_seconds: float = 600.0,
    run_seconds: float = 30.0,
) -> Baselines:
    """Return what the simulated engine measures with one client.

    Args:
        configurations: to measure.
        seed: of the noise.
        noise: coefficient of variation between runs.
        placement: coefficient of variation between volumes, one per configuration.
        repeats: runs of each cell and load.
        sizes: block sizes in bytes; ``cells`` has those that the 20 cells are measured with.
        depths: I/Os in flight, each with every alignment and way of committing.
        alignments: in bytes; 0: to the own size.
        syncs: as in ``Load``; only writes are measured with one.
        ramp_seconds: before the measured time. The default is long enough to fill a client cache.
        run_seconds: measured time.
    """
    target = SimulatedTarget(Simulation(seed=seed, noise=noise, placement=placement))
    engine = target.engine()
    own: dict[tuple[str, Cell], Baseline] = {}
    loaded: dict[tuple[str, LoadedCell], Baseline] = {}
    for configuration in configurations:
        target.apply(configuration, n_clients=1, volume_nbytes=GIB)
        for nbytes, pattern, depth, align, sync in product(sizes, Pattern, depths, alignments, syncs):
            if sync and pattern.op is Op.READ:
                continue
            kind = LoadedCell(nbytes, pattern, depth, align, sync)
            rates = []
            for repeat in range(repeats):
                measurement = Measurement(
                    cells=(),
                    n_clients=1,
                    volume_nbytes=GIB,
                    repeats=repeats,
                    ramp_seconds=ramp_seconds,
                    run_seconds=run_seconds,
                    ioengine="libaio",
                    iodepth=depth,
                    direct=True,
                    cache=CacheCondition.COLD,
                    seed=seed,
                    align_nbytes=align,
                    sync=sync,
                )
                cell = Cell(SizeBin(format_nbytes(nbytes), nbytes, None), pattern)
                run = CellRun(
                    configuration.name, cell, repeat, 0, measurement, target.clients(), {"c0": 1}, str(kind)
                )
                metrics = engine.run(run).clients["c0"].metrics
                assert metrics is not None
                rates.append(metrics.iops)
            found = Baseline(configuration.name, kind.bin_cell, tuple(rates))
            loaded[configuration.name, kind] = found
            if (depth, align, sync) == (1, 0, "") and nbytes in SIZES_NBYTES:
                own[configuration.name, kind.bin_cell] = found
    return Baselines(
        own, source="the simulated cluster", default=configurations[0].name, is_finished=True, loaded=loaded
    )
