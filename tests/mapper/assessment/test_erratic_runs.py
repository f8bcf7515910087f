"""The interval of an erratic configuration holds the run that it has not seen, about as often as it claims."""

from pathlib import Path

import numpy as np
from scipy.stats import t

from cephfit.mapper.assessment import prediction_assessment
from cephfit.mapper.assessment.prediction_assessment import values_of
from cephfit.operations.evaluation_set import read_folder

ROOT = Path(__file__).resolve().parents[3]
SET = ROOT / "benchmarks/data/evaluation-equal-work"
"""The evaluation set with three rounds."""


def measured() -> list[dict[str, dict[int, float]]]:
    """By workload: the value of each round, of configurations that all three have."""
    values = [values_of(workload.samples) for workload in read_folder(SET).workloads]
    return [{name: v for name, v in of.items() if len(v) == 3} for of in values]


def standardised_thirds() -> list[tuple[float, int]]:
    """What the third run of each erratic configuration deviates, in standard deviations; degrees of freedom."""
    found = []
    for values in measured():
        if len(values) < 4:
            continue
        for third in range(3):
            two = {name: {r: v for r, v in of.items() if r != third} for name, of in values.items()}
            model = prediction_assessment._BlockDesign.of(two)
            steady = ~model.erratic
            thirds = np.log([of[third] for of in values.values()])
            for place in np.flatnonzero(model.erratic):
                lead = (model.logs[place] - model.logs[steady].mean(axis=0)).mean()
                deviation = thirds[place] - thirds[steady].mean() - lead
                scale = np.sqrt(model.variances[place] * (1 + 1 / 2) * (1 + 1 / np.count_nonzero(steady)))
                found.append((float(deviation / scale), int(model.dfs[place])))
    return found


def test_intervals_of_erratic_configurations_hold_unseen_runs() -> None:
    found = standardised_thirds()
    held = {
        confidence: sum(abs(deviation) < t.ppf((1 + confidence) / 2, df) for deviation, df in found)
        for confidence in (0.9, 0.95, 0.99)
    }
    # docs/mathematics.md has these numbers.
    assert (len(found), held) == (30, {0.9: 27, 0.95: 27, 0.99: 30})
    less = [sum(abs(d) < t.ppf((1 + c) / 2, df - 1) for d, df in found) for c in (0.9, 0.95, 0.99)]
    assert less == [29, 30, 30]
    assert {df for _, df in found} == {2}, "two runs, and one degree for being chosen"
