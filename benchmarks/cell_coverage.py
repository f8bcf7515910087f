"""How often a single cell of a copy of the default is told different: a table of docs/method.md, as Markdown.

Six copies are compared in 20 cells, over sweeps drawn from a known truth (tests/mapper/synthetic_sweeps.py). The
heat map promises 99 % of each cell by itself; `compare` holds a sweep at that level against another that is alike,
cell by cell and for the thesis's five workloads.

Run with: .venv/bin/python benchmarks/cell_coverage.py --sweeps 60
"""

import argparse
import math
import sys
from pathlib import Path

import numpy as np

from cephfit.baseline import Baselines
from cephfit.cells import CELLS
from cephfit.profile import Profile
from cephfit.results import statistics
from cephfit.results.cell_intervals import AgainstDefault, own_spreads
from cephfit.results.heat import HEAT_CONFIDENCE
from cephfit.results.workloads_beside import served_of

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "mapper"))
from synthetic_sweeps import TYPICAL_IOPS, Noise, baselines_of, draw  # noqa: E402

NOISES = {
    "equal between configurations": Noise(),
    "the default 2.5x as noisy": Noise(noisy=2.5),
    "differs between configurations by x or / 2": Noise(uneven=math.log(2)),
}
WORKLOADS = [
    Profile.loads(path.read_text(), where=str(path))
    for path in sorted((ROOT / "docs" / "examples" / "profiles").glob("*.json"))
]
PLACES = [(f"C{j}", cell) for j in range(1, 7) for cell in CELLS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=60, help="of every figure (default 60)")
    parser.add_argument("--seed", type=int, default=2017)
    chosen = parser.parse_args()
    print("| noise | repeats | heat map | scatter pooled over configurations only | compare | its workloads |")
    print("|---|---|---|---|---|---|")
    truth = np.tile(np.log(TYPICAL_IOPS), (7, 1))
    for name, noise in NOISES.items():
        for repeats in (2, 3):
            dice = np.random.default_rng(chosen.seed)
            told = np.zeros(4)
            for _ in range(chosen.sweeps):
                one, other = (baselines_of(np.exp(draw(dice, truth, noise, repeats))) for _ in range(2))
                n_unlike = unlike(one, other)
                told += [coloured(one), coloured_by_pool(one), n_unlike, serving_otherwise(one, other)]
            of_workloads = 7 * len(WORKLOADS)
            shares = 100 * told / chosen.sweeps / [len(PLACES), len(PLACES), len(PLACES), of_workloads]
            print(f"| {name} | {repeats} | {' | '.join(f'{share:.1f} %' for share in shares)} |", flush=True)


def coloured(measured: Baselines) -> int:
    """Cells that the heat map tells from the default's."""
    against = AgainstDefault.of(measured)
    found = (against.interval(name, cell, HEAT_CONFIDENCE) for name, cell in PLACES)
    return sum(interval is not None and 1.0 not in interval for interval in found)


def coloured_by_pool(measured: Baselines) -> int:
    """Cells that it would tell, were every configuration held to scatter alike."""
    n = 0
    for cell in CELLS:
        default = measured.cells["A", cell].iops
        pooled = statistics.pooled_spread(b.iops for (_, c), b in measured.cells.items() if c == cell)
        for name, _ in (place for place in PLACES if place[1] == cell):
            values = measured.cells[name, cell].iops
            interval = statistics.ratio_interval(values, default, pooled, confidence=HEAT_CONFIDENCE)
            n += interval is not None and 1.0 not in interval
    return n


def unlike(one: Baselines, other: Baselines) -> int:
    """Cells that two clusters, which are alike, are told to differ in."""
    spreads, other_spreads = own_spreads(one), own_spreads(other)
    n = 0
    for place in PLACES:
        interval = statistics.welch_ratio_interval(
            one.cells[place].iops,
            other.cells[place].iops,
            spreads[place],
            other_spreads[place],
            confidence=HEAT_CONFIDENCE,
        )
        n += interval is not None and 1.0 not in interval
    return n


def serving_otherwise(one: Baselines, other: Baselines) -> int:
    """Configurations that two clusters, which are alike, are told to differ under for a workload."""
    served = [row for w in WORKLOADS for row in served_of(w, (one, other), confidence=HEAT_CONFIDENCE)]
    return sum(row.there[1].differs is True for row in served)


if __name__ == "__main__":
    main()
