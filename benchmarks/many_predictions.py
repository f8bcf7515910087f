"""How long predictions with intervals take for many workloads at once, against one call for each workload.

Times are of one core (BLAS with one thread), on the wall and of the processor, the best of three; the single calls
are made for a few of the workloads. Rates and workloads are drawn by a fixed seed: every configuration has every
cell in every repeat. With ``--demands`` the workloads have demands with waiting times, flushes and writes in the
background, and the rates are of four sizes, four patterns and two depths.

Run with: .venv/bin/python benchmarks/many_predictions.py [--profiles 10000] [--configurations 1000] [--demands]
"""

import argparse
import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy is imported

from dataclasses import replace  # noqa: E402

import numpy as np  # noqa: E402
from readings import best, spent_by  # noqa: E402

from cephfit.core.units import KIB  # noqa: E402
from cephfit.core.values.baseline import Baseline, Baselines  # noqa: E402
from cephfit.core.values.cells import CELLS, SIZE_BINS, LoadedCell, Op, Pattern  # noqa: E402
from cephfit.core.values.demand import Commits, Demand  # noqa: E402
from cephfit.core.values.profile import Profile  # noqa: E402
from cephfit.mapper import predictor  # noqa: E402
from cephfit.mapper.models.many_profiles import predict_many  # noqa: E402

REPEATS, ROUNDS = 3, 3
SINGLE = 3
"""Workloads that are predicted one by one."""
NOISE = 0.03


def rates(n: int, draws: np.random.Generator, *, demands: bool) -> Baselines:
    """Rates of ``n`` configurations, of which the first is the default, with a scatter of 3 %."""
    names = ["A", *(f"c{i}" for i in range(1, n))]
    if not demands:
        speeds = draws.lognormal(5, 0.5, (1, len(CELLS), 1)) * draws.lognormal(0, 0.2, (n, len(CELLS), 1))
        iops = speeds * draws.lognormal(0, NOISE, (n, len(CELLS), REPEATS))
        return Baselines(
            {(a, c): Baseline(a, c, tuple(iops[i, j])) for i, a in enumerate(names) for j, c in enumerate(CELLS)},
            "drawn",
        )
    sizes = (4 * KIB, 32 * KIB, 128 * KIB, 1024 * KIB)
    cells = [LoadedCell(size, pattern, depth) for size in sizes for pattern in Pattern for depth in (1, 8)]
    own = np.array([0.002 + cell.nbytes / 1e8 for cell in cells]) / np.array([min(c.iodepth, 3) for c in cells])
    iops = draws.lognormal(0, 0.2, (n, len(cells), 1)) / own[None, :, None]
    iops = iops * draws.lognormal(0, NOISE, (n, len(cells), REPEATS))
    loaded = {
        (a, c): Baseline(a, c.bin_cell, tuple(iops[i, j]))
        for i, a in enumerate(names)
        for j, c in enumerate(cells)
    }
    return Baselines({}, "drawn", loaded=loaded)


def workloads(n: int, draws: np.random.Generator, *, demands: bool) -> list[Profile]:
    """Workloads with accesses in all 20 cells, or with 20 demands each."""
    counts = draws.integers(1, 100_000, (n, len(Op), len(SIZE_BINS)))
    shares = draws.uniform(0.05, 0.95, (n, len(Op)))
    found = []
    for i in range(n):
        accesses = {op: {b.name: int(counts[i, j, k]) for k, b in enumerate(SIZE_BINS)} for j, op in enumerate(Op)}
        found.append(Profile(f"w{i}", accesses, {op: float(shares[i, j]) for j, op in enumerate(Op)}))
    return [_with_demands(profile, draws) for profile in found] if demands else found


def _with_demands(profile: Profile, draws: np.random.Generator) -> Profile:
    n = 20
    sizes, depths, waiting = draws.uniform(512, 1 << 20, n), draws.uniform(1, 16, n), draws.uniform(0.1, 5, n)
    patterns, waits = list(Pattern) * (n // 4), draws.random(n) < 0.8
    demands = tuple(
        Demand(p, float(s), True, float(d), bool(w) or p.op is Op.READ, 1000.0, float(t))
        for p, s, d, w, t in zip(patterns, sizes, depths, waits, waiting, strict=True)
    )
    commits = Commits(int(draws.integers(0, 2000)), float(draws.uniform(0, 2)), fua_writes=0)
    return replace(profile, demands=demands, idle_seconds=float(draws.uniform(0, 30)), commits=commits)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profiles", type=int, default=10_000)
    parser.add_argument("--configurations", type=int, default=1_000)
    parser.add_argument("--model", help="default: waiting with --demands, else time")
    parser.add_argument("--demands", action="store_true", help="workloads with demands and waiting times")
    given = parser.parse_args()
    model = given.model or ("waiting" if given.demands else "time")
    draws = np.random.default_rng(1)
    baselines = rates(given.configurations, draws, demands=given.demands)
    profiles = workloads(given.profiles, draws, demands=given.demands)
    single = predictor(model, with_error=True)

    def one_by_one() -> None:
        for profile in profiles[:SINGLE]:
            single.predict(profile, baselines)

    one_by_one()  # imports and first allocations
    many = best(spent_by(lambda: predict_many(profiles, baselines, model, with_error=True)) for _ in range(ROUNDS))
    few = best(spent_by(one_by_one) for _ in range(ROUNDS))
    per_single = few.wall / min(SINGLE, len(profiles))
    n = len(profiles) * given.configurations
    print(f"model {model}: {len(profiles)} workloads x {given.configurations} configurations, {REPEATS} repeats")
    print(
        f"at once     {many.wall:9.3f} s ({many.processor:.3f} s of processor), {1e9 * many.wall / n:.1f} ns each"
    )
    print(
        f"one by one  {per_single * len(profiles):9.3f} s, from {per_single:.4f} s for each of {SINGLE} workloads"
    )
    print(f"ratio       {per_single * len(profiles) / many.wall:9.0f}")


if __name__ == "__main__":
    main()
