"""How far selection bias inflates the best of several equal configurations: figures of docs/evidence.md.

Known truth: twelve configurations, all 10 % better than the default in every cell; every cell with a CV of 5 %,
two repeats, the many-cell workload, model `time`. Prints the mean of the best's prediction, and of the common mean
that the note on chance gives, over the sweeps that found a best.
"""

import argparse
import re
import statistics
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from synthetic_sweeps import TYPICAL_IOPS, Noise, baselines_of, draw, profiles

from cephfit.mapper import predictor
from cephfit.mapper.decisions.contrasts import ranked


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    arguments.add_argument("--sweeps", type=int, default=400)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    rng = np.random.default_rng(given.seed)
    truth = np.log(TYPICAL_IOPS) + np.vstack([np.zeros(20), np.full((12, 20), np.log(1.10))])
    said, common = [], []
    for _ in range(given.sweeps):
        measured = baselines_of(np.exp(draw(rng, truth, Noise(lowest=0.05, highest=0.05), 2)))
        found = ranked(predictor(), profiles()[0], measured)
        notes = " ".join(found.notes)
        if shared := re.search(r"lead to chance: if all were equal, each would be at ([\d.]+)", notes):
            said.append(found.of(found.best).relative)
            common.append(float(shared[1]))
    print(f"{len(said)} of {given.sweeps} sweeps found a best; the truth of all is 110.0")
    for name, figures in (("the best predicted", said), ("the mean of those not distinguishable from it", common)):
        error = statistics.stdev(figures) / len(figures) ** 0.5
        print(f"{name}: {statistics.mean(figures):.1f} on average (two standard errors {2 * error:.1f})")


if __name__ == "__main__":
    main()
