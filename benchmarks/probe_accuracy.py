"""What `cephfit probe` adds to predictions, and the error of its clones: tables of docs/evidence.md.

The clones ran on all configurations of the evaluation set (`clone_runs.py`). A probe runs them only on the
configurations whose order the prediction leaves open: the second row is what it would have answered with these
values. Minutes are the measured ones of a probe, on average over the workloads.
"""

import argparse
import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean

from cephfit.core.values.prediction import Prediction, PredictionSet, Verdict
from cephfit.core.values.sample import State, WorkloadSample
from cephfit.mapper import predictor
from cephfit.mapper.assessment.accuracy import VerifiedPrediction, accuracy_by_model
from cephfit.mapper.assessment.model_evaluation import EvaluatedWorkload, error_parts_of, verified
from cephfit.mapper.assessment.prediction_assessment import assess
from cephfit.mapper.decisions.contrasts import ranked
from cephfit.mapper.decisions.probe import combined, probe_candidates
from cephfit.operations.evaluation_set import read_folder
from cephfit.operations.model_assessment import FIGURES, figure_text

FOLDER = Path(__file__).parent / "data" / "evaluation"
CLONES_FILE = "clones.csv"
SHOWN = ("median_error_pct", "p90_error_pct", "spearman", "mean_regret_pct", "best_in_top_2", "worst_named")
SECONDS_PER_RUN = 9.3
"""Of 8 s of phases, each at least 1 s: the median from fio's start to its end."""

Clones = Mapping[str, tuple[WorkloadSample, ...]]


def read_clones(path: Path) -> Clones:
    found: dict[str, list[WorkloadSample]] = {}
    for row in csv.DictReader(path.read_text().splitlines()):
        sample = WorkloadSample(
            row["configuration"], int(row["round"]), 0, State.OK, row["metric"], float(row["value"]), 0, 0
        )
        found.setdefault(row["workload"], []).append(sample)
    return {name: tuple(samples) for name, samples in found.items()}


def of_clone(one: EvaluatedWorkload, before: PredictionSet, samples: Sequence[WorkloadSample]) -> PredictionSet:
    """Return what the clone alone says of every configuration that it ran on."""
    rows = [row for row in assess(before, samples, one.workload).rows if row.measured_relative]
    default = one.baselines.default
    found = [
        Prediction(
            row.configuration,
            row.measured_relative or 0.0,
            row.measured_low or 0.0,
            row.measured_high or math.inf,
            Verdict.DEFAULT if row.configuration == default else before.of(row.configuration).verdict,
        )
        for row in rows
    ]
    order = sorted(found, key=lambda p: -p.relative)
    return replace(
        before,
        model="clone",
        predictions=tuple(order),
        best=order[0].configuration,
        worst=order[-1].configuration,
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--folder", type=Path, default=FOLDER)
    arguments.add_argument("--all", action="store_true", help="also print each ratio")
    given = arguments.parse_args()
    evaluation, clones = read_folder(given.folder), read_clones(given.folder / CLONES_FILE)
    rows: dict[str, list[VerifiedPrediction]] = {"`waiting`": [], "`waiting` and probe": [], "the clone alone": []}
    minutes: list[float] = []
    workloads = [one for one in evaluation.workloads if one.workload in clones]
    for one in workloads:
        before = ranked(predictor(with_error=True), one.profile, one.baselines)
        own = clones[one.workload]
        candidates = probe_candidates(before).names
        runs = [s for s in own if s.configuration in candidates]
        after = combined(before, assess(before, runs, one.workload).rows) if runs else before
        minutes.append(len(runs) * SECONDS_PER_RUN / 60)
        for name, predictions in zip(rows, (before, after, of_clone(one, before, own)), strict=True):
            rows[name].append(verified(one, name, predictions))
    print(f"{len(workloads)} workloads: {', '.join(one.workload for one in workloads)}")
    print_table(workloads, rows, mean(minutes))
    if given.all:
        print_ratios(rows)


def print_table(
    workloads: Sequence[EvaluatedWorkload], rows: Mapping[str, Sequence[VerifiedPrediction]], minutes: float
) -> None:
    heads = dict(FIGURES)
    print(f"| | {' | '.join(heads[figure] for figure in SHOWN)} | own error | minutes |")
    print("|---|" + "---|" * (len(SHOWN) + 2))
    for (name, found), its_minutes in zip(rows.items(), ("-", f"{minutes:.1f}", "-"), strict=True):
        (figures,) = accuracy_by_model(found)
        parts = error_parts_of(workloads, found)
        error = "-" if parts is None else f"{parts.model_pct:.1f} %"
        print(f"| {name} | {' | '.join(figure_text(figures, f) for f in SHOWN)} | {error} | {its_minutes} |")


def print_ratios(rows: Mapping[str, Sequence[VerifiedPrediction]]) -> None:
    for predicted, _, cloned in zip(*rows.values(), strict=True):
        by_clone = {row.configuration: row.predicted_relative for row in cloned.compared}
        for row in predicted.compared:
            clone = by_clone.get(row.configuration, math.nan)
            print(
                f"{predicted.assessment.workload:16} {row.configuration:14} "
                f"predicted {row.predicted_relative:7.1f}  clone {clone:7.1f}  "
                f"measured {row.measured_relative or 0:7.1f}"
            )


if __name__ == "__main__":
    main()
