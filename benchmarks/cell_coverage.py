"""How sure single cells and rates are: tables of docs/evidence.md, as Markdown.

Six copies of the default are compared in 20 cells, over sweeps drawn from a known truth
(tests/support/synthetic_sweeps.py).

`significance`: how often a cell of a copy is called different. The heat map promises 99 % of each cell by itself.
`compare` compares two equal sweeps at that level, cell by cell and for the thesis's five workloads.

`rates`: how often the 95 % intervals of absolute rates contain the true value, and how often `compare` finds a
difference between two equal sweeps at that level, also where rounds drift.

Run with: .venv/bin/python benchmarks/cell_coverage.py --table significance --sweeps 60
          .venv/bin/python benchmarks/cell_coverage.py --table rates --sweeps 200
"""

import argparse
import math
import sys
from pathlib import Path

import numpy as np
from scipy.stats import t as student

from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import CELLS
from cephfit.core.values.profile import Profile
from cephfit.results.report.figures.cell_figures import HEAT_CONFIDENCE
from cephfit.results.statistics import summary_statistics
from cephfit.results.statistics.comparison import rows_of, served_of
from cephfit.results.statistics.summary_statistics import AgainstDefault, own_spreads

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
from synthetic_sweeps import TYPICAL_IOPS, Noise, baselines_of, draw  # noqa: E402

NOISES = {
    "equal between configurations": Noise(),
    "the default 2.5x as noisy": Noise(noisy=2.5),
    "differs between configurations by x or / 2": Noise(uneven=math.log(2)),
}
DRIFTS = {
    "no drift": Noise(),
    "no drift, the default 2.5x as noisy": Noise(noisy=2.5),
    "rounds drift by 3 %": Noise(drift=0.03),
    "rounds drift by 3 %, cells 1-2 %": Noise(lowest=0.01, highest=0.02, drift=0.03),
    "rounds drift by 10 %": Noise(drift=0.10),
    "rounds drift by 10 %, cells 1-2 %": Noise(lowest=0.01, highest=0.02, drift=0.10),
}
WORKLOADS = [
    Profile.loads(path.read_text(), where=str(path))
    for path in sorted((ROOT / "docs" / "examples" / "profiles").glob("*.json"))
]
PLACES = [(f"C{j}", cell) for j in range(1, 7) for cell in CELLS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table", choices=("significance", "rates"), default="significance")
    parser.add_argument("--sweeps", type=int, default=60, help="of every figure (default 60)")
    parser.add_argument("--seed", type=int, default=2017)
    chosen = parser.parse_args()
    (significance_table if chosen.table == "significance" else rates_table)(chosen.sweeps, chosen.seed)


def significance_table(n_sweeps: int, seed: int) -> None:
    """Print the shares of cells and workloads that are called different at 99 %."""
    print("| noise | repeats | heat map | scatter pooled over configurations only | compare | its workloads |")
    print("|---|---|---|---|---|---|")
    truth = np.tile(np.log(TYPICAL_IOPS), (7, 1))
    for name, noise in NOISES.items():
        for repeats in (2, 3):
            dice = np.random.default_rng(seed)
            different = np.zeros(4)
            for _ in range(n_sweeps):
                one, other = (baselines_of(np.exp(draw(dice, truth, noise, repeats))) for _ in range(2))
                n_unlike = unlike(one, other)
                different += [coloured(one), coloured_by_pool(one), n_unlike, serving_otherwise(one, other)]
            of_workloads = 7 * len(WORKLOADS)
            shares = 100 * different / n_sweeps / [len(PLACES), len(PLACES), len(PLACES), of_workloads]
            print(f"| {name} | {repeats} | {' | '.join(f'{share:.1f} %' for share in shares)} |", flush=True)


def rates_table(n_sweeps: int, seed: int) -> None:
    """Intervals of 95 %: of a rate by itself, and of two sweeps that are alike."""
    print(
        "| noise | repeats | a cell's rate: A / C1 | half width | a workload's: A / C1 | half width "
        "| compare: cells / workloads | over half of the cells at once |"
    )
    print("|---|---|---|---|---|---|---|---|")
    truth = np.tile(np.log(TYPICAL_IOPS), (7, 1))
    workload = next(w for w in WORKLOADS if w.name == "pgbench")
    counts = {cell: n for cell, n in workload.cell_counts().items() if n > 0}
    served = sum(counts.values()) / sum(n / TYPICAL_IOPS[CELLS.index(cell)] for cell, n in counts.items())
    for name, noise in DRIFTS.items():
        for repeats in (2, 3, 5):
            dice = np.random.default_rng(seed)
            found = []
            for _ in range(n_sweeps):
                one, other = (baselines_of(np.exp(draw(dice, truth, noise, repeats))) for _ in range(2))
                found.append(held(one, other, workload, served))
            means = 100 * np.mean(found, axis=0)
            widths = 100 * np.median(found, axis=0)
            print(
                f"| {name} | {repeats} | {means[0]:.1f} / {means[1]:.1f} % | {widths[2]:.1f} % "
                f"| {means[3]:.1f} / {means[4]:.1f} % | {widths[5]:.1f} % "
                f"| {means[6]:.1f} / {means[7]:.1f} % | {100 * np.mean([f[6] > 0.5 for f in found]):.1f} % |",
                flush=True,
            )


def held(one: Baselines, other: Baselines, workload: Profile, served: float) -> list[float]:
    """What ``rates_table`` shows of one pair of sweeps that are alike.

    Returns:
        Shares of cells held under A and C1 and the median log half width under C1; the same of the workload's
        rate; shares of cells and of the workload's configurations that `compare` calls different.
    """
    rows, of_workload = rows_of((one, other)), served_of(workload, (one, other))
    truths = dict(zip(CELLS, TYPICAL_IOPS, strict=True))
    shares: list[float] = []
    for figures in (
        [(r.configuration, r.by_target[0].rate, truths[r.cell]) for r in rows],
        [(s.configuration, s.by_target[0].rate, served) for s in of_workload],
    ):
        for name in ("A", "C1"):
            known = [(r.interval, true) for n, r, true in figures if n == name and r and r.interval]
            shares.append(float(np.mean([true in interval for interval, true in known])))
        shares.append(float(np.median([math.log(interval.high / interval.low) / 2 for interval, _ in known])))
    for different in (rows, of_workload):
        shares.append(float(np.mean([r.by_target[1].differs is True for r in different])))
    return shares


def coloured(measured: Baselines) -> int:
    """Return the number of cells that the heat map calls different from the default."""
    against = AgainstDefault.of(measured)
    found = (against.interval(name, cell, HEAT_CONFIDENCE) for name, cell in PLACES)
    return sum(interval is not None and 1.0 not in interval for interval in found)


def coloured_by_pool(measured: Baselines) -> int:
    """Return that number under the assumption that all configurations scatter alike."""
    n = 0
    for cell in CELLS:
        default = measured.cells["A", cell].iops
        pooled = summary_statistics.pooled_spread(b.iops for (_, c), b in measured.cells.items() if c == cell)
        if pooled is None:
            continue
        t = student.ppf((1 + HEAT_CONFIDENCE) / 2, pooled.degrees)
        for name, _ in (place for place in PLACES if place[1] == cell):
            values = measured.cells[name, cell].iops
            half = t * pooled.log_deviation * math.sqrt(1 / len(values) + 1 / len(default))
            n += abs(math.log(summary_statistics.ratio(values, default))) > half
    return n


def unlike(one: Baselines, other: Baselines) -> int:
    """Return the number of cells in which two equal clusters are called different."""
    spreads, other_spreads = own_spreads(one), own_spreads(other)
    n = 0
    for place in PLACES:
        interval = summary_statistics.welch_ratio_interval(
            one.cells[place].iops,
            other.cells[place].iops,
            spreads[place],
            other_spreads[place],
            confidence=HEAT_CONFIDENCE,
        )
        n += interval is not None and 1.0 not in interval
    return n


def serving_otherwise(one: Baselines, other: Baselines) -> int:
    """Return the number of configurations under which two equal clusters are called different for a workload."""
    served = [row for w in WORKLOADS for row in served_of(w, (one, other), confidence=HEAT_CONFIDENCE)]
    return sum(row.by_target[1].differs is True for row in served)


if __name__ == "__main__":
    main()
