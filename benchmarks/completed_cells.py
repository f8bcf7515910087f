"""How well rates that follow from others agree with measured ones: the table of docs/evidence.md, as Markdown.

A sweep measures depths and alignment one at a time, and the mapper multiplies their effects
(mapper/models/completed_rates.py). The file further_cells.csv of the evaluation set has combinations that its
sweep lacks, measured later on another lab of the same kind. Each figure is the error of a configuration's ratio to
the default, predicted from the sweep alone; next to it that of the plain rates, without effects of depth or
alignment.

Run with: .venv/bin/python benchmarks/completed_cells.py
"""

import math
from pathlib import Path

import numpy as np

from cephfit.core.values.baseline import Baseline
from cephfit.mapper.absolute_rates.load_curve import plain_kind
from cephfit.mapper.models.completed_rates import completed
from cephfit.results import open_baselines

EVALUATION = Path(__file__).parent / "data" / "evaluation"


def main() -> None:
    sweep = open_baselines(str(EVALUATION / "baselines.csv"), None, "")
    truth = open_baselines(str(EVALUATION / "further_cells.csv"), None, "").loaded
    derived = completed(sweep).baselines.loaded
    kinds = sorted(
        {kind for _, kind in truth if ("A", kind) in derived and ("A", kind) not in sweep.loaded}, key=str
    )
    print("| accesses | ratios | median error | largest | plain: median | largest |")
    print("|---|---|---|---|---|---|")
    every: list[tuple[float, float]] = []
    for kind in kinds:
        names = sorted({name for name, of in truth if of == kind and name != "A" and (name, kind) in derived})
        errors = []
        for name in names:
            true = _log_ratio(truth[name, kind], truth["A", kind])
            plain = plain_kind(kind)
            by_rule = _log_ratio(derived[name, kind], derived["A", kind]) - true
            errors.append((by_rule, _log_ratio(sweep.loaded[name, plain], sweep.loaded["A", plain]) - true))
        print(f"| {kind} | {_row(errors)} |")
        every += errors
    print(f"| all | {_row(every)} |")


def _log_ratio(one: Baseline, default: Baseline) -> float:
    return float(np.mean(np.log(one.iops)) - np.mean(np.log(default.iops)))


def _row(errors: list[tuple[float, float]]) -> str:
    """Return the number of ratios, and the median and the largest factor of both columns, in per cent."""
    sizes = [np.abs(column) for column in np.array(errors).T]
    figures = [f"{100 * math.expm1(f(column)):.0f} %" for column in sizes for f in (np.median, np.max)]
    return " | ".join([str(len(errors)), *figures])


if __name__ == "__main__":
    main()
