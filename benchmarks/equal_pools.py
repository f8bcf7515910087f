"""How often one of several equal pools is called slower than the fastest: a table of docs/evidence.md.

Known truth: seven configurations that are alike, `time`, the many-cell workload. The one that came out fastest is
chosen by the same samples that they are compared with, so that the level of comparisons with a given
configuration is not enough; the second share is at that level.

Run with: .venv/bin/python benchmarks/equal_pools.py --sweeps 400
"""

import argparse
import math
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from synthetic_sweeps import TYPICAL_IOPS, Noise, baselines_of, draw, profiles

from cephfit.core.values.prediction import Verdict
from cephfit.mapper import predictor
from cephfit.mapper.decisions.contrasts import worse_than

NOISES = {
    "equal between configurations": Noise(),
    "differs between configurations by x or / 1.5": Noise(uneven=math.log(1.5)),
    "differs by x or / 2": Noise(uneven=math.log(2)),
    "every application shifts all cells by 2 %": Noise(applied=0.02),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sweeps", type=int, default=400, help="of every figure (default 400)")
    parser.add_argument("--seed", type=int, default=5)
    chosen = parser.parse_args()
    print('| noise | repeats | any false "slower" verdict | at the level for one given configuration |')
    print("|---|---|---|---|")
    truth = np.tile(np.log(TYPICAL_IOPS), (7, 1))
    model_predictor, workload = predictor("time"), profiles()[0]
    for name, noise in NOISES.items():
        for repeats in (2, 3):
            dice = np.random.default_rng(chosen.seed)
            slower = np.zeros(2)
            for _ in range(chosen.sweeps):
                measured = baselines_of(np.exp(draw(dice, truth, noise, repeats)))
                predictions = model_predictor.predict(workload, measured)
                fastest = predictions.predictions[0].configuration
                given = model_predictor.predict(workload, replace(measured, default=fastest))
                slower += [
                    bool(worse_than(model_predictor, workload, measured, predictions)(fastest)),
                    any(p.verdict is Verdict.WORSE for p in given.predictions),
                ]
            shares = 100 * slower / chosen.sweeps
            print(f"| {name} | {repeats} | {shares[0]:.1f} % | {shares[1]:.1f} % |", flush=True)


if __name__ == "__main__":
    main()
