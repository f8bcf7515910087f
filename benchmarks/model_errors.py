"""The models' own errors: fitted to all evaluation sets, and judged on each set by a fit to the others.

The first table has the constants of `mapper/models/model_error.py`, the second is in docs/evidence.md. Each set
was measured on another machine or release, or in another way, so a set that is left out is what a new cluster is.
"""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ablation import changed_workload, counts_only, own_load_only

from cephfit.core.errors import InputError
from cephfit.core.values.prediction import MODELS
from cephfit.mapper.assessment.accuracy import is_inside
from cephfit.mapper.assessment.model_evaluation import (
    Residual,
    assessed_predictor,
    error_of,
    residuals_of,
    verified,
)
from cephfit.mapper.models.model_error import ERRORS, ModelError
from cephfit.operations.evaluation_set import EvaluationSet, read_folder
from cephfit.operations.model_assessment import assess_models

FOLDER = Path(__file__).parent / "data"
SETS: Mapping[str, str] = {
    "evaluation": "first machine",
    "evaluation-equal-work": "second machine, equal work",
    "evaluation-kept-volumes": "volumes kept for both rounds",
    "evaluation-reef": "Ceph 18.2",
    "evaluation-two-classes": "third machine, one lab",
}
UNSEEN = {
    "evaluation-unseen": "other programs, other configurations",
    "evaluation-direct": "a throttled lab, direct BlueFS",
    "evaluation-served": "disks that take time, first version",
    "evaluation-timed": "disks that take time",
}
"""Sets that no error is fitted to."""
COUNTS = "time, from counts"
"""The answer from the 20 cells alone that a profile of counts gets."""
LARGE = 0.4
"""Log ratio from which a configuration counts as far from the default: a factor of 1.5."""


@dataclass(frozen=True, slots=True)
class Shares:
    """How intervals of 90 % do on a set that their errors were not fitted to.

    Attributes:
        n: ratios.
        held: share of measured ratios in their intervals.
        n_large: ratios predicted at more than a factor of 1.5 from the default.
        held_large: share of these.
        decided: share of intervals that do not contain the default.
    """

    n: int
    held: float
    n_large: int
    held_large: float
    decided: float


def model_of(answer: str) -> str:
    """The model that gives an answer."""
    return "time" if answer == COUNTS else answer


def evaluation_of(folder: str, answer: str) -> EvaluationSet:
    """Return a set, for ``COUNTS`` with nothing but counts in the 20 cells."""
    found = read_folder(FOLDER / folder)
    if answer != COUNTS:
        return found
    return replace(
        found, workloads=tuple(changed_workload(w, own_load_only, counts_only) for w in found.workloads)
    )


def residuals_in(evaluation: EvaluationSet, answer: str) -> tuple[Residual, ...]:
    """Return what an answer missed by on a set."""
    found = residuals_of(assess_models(evaluation, models=[model_of(answer)]).verified)
    return tuple(replace(r, from_cells=True) for r in found) if answer == COUNTS else found


def error_from(
    residuals: Mapping[str, Sequence[Residual]], *, without: str = "", without_workload: str = ""
) -> ModelError:
    """Fit the error of an answer to the residuals of all sets, or of all but one, or also without a workload."""
    of_others = [r for folder, of in residuals.items() if folder != without for r in of]
    return error_of([r for r in of_others if r.workload != without_workload])


def shares_with(error_for: Callable[[str], ModelError], evaluation: EvaluationSet, answer: str) -> Shares:
    """Return how 90 % intervals do on a set, with the error for each of its workloads."""
    model = model_of(answer)
    held, large, decided = [], [], []
    for workload in evaluation.workloads:
        error = error_for(workload.workload)
        predictor = assessed_predictor(model, 0.9, {model: replace(error, by_cells=error)})
        try:
            predictions = predictor.predict(workload.profile, workload.baselines)
        except InputError:  # a cell that the workload needs was not measured
            continue
        for row in verified(workload, model, predictions).compared:
            inside = is_inside(row)
            if inside is None or row.predicted_low is None or row.predicted_high is None:
                continue
            held.append(inside)
            decided.append(not row.predicted_low <= 100 <= row.predicted_high)
            if abs(math.log(row.predicted_relative / 100)) > LARGE:
                large.append(inside)
    return Shares(len(held), _mean(held), len(large), _mean(large), _mean(decided))


def _for_all(error: ModelError) -> Callable[[str], ModelError]:
    return lambda _workload: error


def _without_each(residuals: Mapping[str, Sequence[Residual]], folder: str) -> Callable[[str], ModelError]:
    return lambda workload: error_from(residuals, without=folder, without_workload=workload)


def _mean(values: Sequence[bool]) -> float:
    return sum(values) / len(values) if values else math.nan


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    arguments.add_argument("--answers", nargs="*", default=[*(m.name for m in MODELS), COUNTS])
    given = arguments.parse_args()
    judged = {**SETS, **UNSEEN}
    sets = {answer: {folder: evaluation_of(folder, answer) for folder in judged} for answer in given.answers}
    missed = {a: {folder: residuals_in(of[folder], a) for folder in SETS} for a, of in sets.items()}
    print("| answer | floor | slope | by spread | degrees of freedom | now in the product |")
    print("|---|---|---|---|---|---|")
    for answer, residuals in missed.items():
        error = error_from(residuals)
        now = ERRORS[model_of(answer)]
        now = now.of_answer(by_load=False) if answer == COUNTS else now
        constants = [f"{e.floor:.4f} | {e.slope:.4f} | {e.by_spread:.4f} | {e.df:g}" for e in (error, now)]
        print(f"| {answer} | {constants[0]} | {constants[1].replace(' | ', ', ')} |")
    print()
    print("| answer | set that the error was not fitted to | ratios | held | by over 1.5 times | held", end=" | ")
    print("decided | held, workload left out too | by over 1.5 times |\n|---|---|---|---|---|---|---|---|---|")
    for answer, residuals in missed.items():
        for folder, title in judged.items():
            error = error_from(residuals, without=folder)
            s = shares_with(_for_all(error), sets[answer][folder], answer)
            both = shares_with(_without_each(residuals, folder), sets[answer][folder], answer)
            cells = [answer, title, s.n, _share(s.held), s.n_large, _share(s.held_large), _share(s.decided)]
            print("|", *(f"{cell} |" for cell in [*cells, _share(both.held), _share(both.held_large)]), flush=True)


def _share(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.0f} %"


if __name__ == "__main__":
    main()
