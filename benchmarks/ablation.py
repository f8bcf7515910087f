"""What each part of the method earns on the evaluation set: the table of docs/evidence.md.

Each row leaves one thing out of the baselines or the profiles, and predicts every workload again. Minutes are what
fio measured in the cells that are left, for all configurations and rounds, without what is around each run.
"""

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist

from cephfit.core.profile_files import read_profile
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import LoadedCell
from cephfit.core.values.prediction import MODELS
from cephfit.core.values.profile import Profile
from cephfit.mapper.assessment.model_evaluation import EvaluatedWorkload, Residual, residuals_of
from cephfit.mapper.models.model_error import NO_ERROR, ModelError, fitted
from cephfit.operations.evaluation_set import EvaluationSet, read_folder
from cephfit.operations.model_assessment import FIGURES, assess_models, figure_text

FOLDER = Path(__file__).parent / "data" / "evaluation"
QUEUED = FOLDER / "profiles-queued"
"""Of the same recordings, with demands of queued accesses."""
RUN_SECONDS = 1.4
"""Ramp and measured time of each run of the evaluation's sweep."""
SHOWN = ("median_error_pct", "p90_error_pct", "spearman", "mean_regret_pct", "best_in_top_2", "worst_named")


def cells_where(keep: Callable[[LoadedCell], bool]) -> Callable[[Baselines], Baselines]:
    """Return what keeps some kinds of accesses of the baselines."""
    return lambda b: replace(b, loaded={key: found for key, found in b.loaded.items() if keep(key[1])})


def without_commits(profile: Profile) -> Profile:
    return replace(profile, commits=None)


def counts_only(profile: Profile) -> Profile:
    return replace(profile, demands=(), commits=None)


def own_load_only(baselines: Baselines) -> Baselines:
    return replace(baselines, loaded={})


def with_queued_demands(profile: Profile) -> Profile:
    """Return a profile with the demands of accesses before the block layer merged them."""
    queued = read_profile(QUEUED / f"{profile.name}.json")
    return replace(profile, demands=queued.demands, idle_seconds=queued.idle_seconds, commits=queued.commits)


def as_they_are(baselines: Baselines) -> Baselines:
    return baselines


ROWS: tuple[tuple[str, str, Callable[[Baselines], Baselines], Callable[[Profile], Profile] | None], ...] = (
    ("`waiting`, all", "waiting", as_they_are, None),
    ("without issued accesses: demands as queued", "waiting", as_they_are, with_queued_demands),
    ("without alignment", "waiting", cells_where(lambda cell: not cell.align_nbytes), None),
    ("without depth", "waiting", cells_where(lambda cell: cell.iodepth == 1), None),
    ("without commits", "waiting", cells_where(lambda cell: not cell.sync), without_commits),
    ("without waiting weights: `time`", "time", as_they_are, None),
    (
        "without all of these: natural alignment, depth 1, `time`",
        "time",
        cells_where(lambda cell: cell.iodepth == 1 and not cell.align_nbytes and not cell.sync),
        without_commits,
    ),
    ("counts of accesses in the 20 cells only: `time`", "waiting", own_load_only, counts_only),
)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    arguments.add_argument("--folder", type=Path, default=FOLDER)
    arguments.add_argument(
        "--errors", action="store_true", help="errors of answers from the 20 cells, in two forms"
    )
    given = arguments.parse_args()
    evaluation = read_folder(given.folder)
    if given.errors:
        print_errors(evaluation)
        return
    heads = dict(FIGURES)
    print(f"| | {' | '.join(heads[figure] for figure in SHOWN)} | minutes of fio |")
    print("|---|" + "---|" * (len(SHOWN) + 1))
    for title, model, of_baselines, of_profile in ROWS:
        if of_profile is with_queued_demands and given.folder != FOLDER:
            continue  # there are no such profiles
        changed = tuple(changed_workload(w, of_baselines, of_profile) for w in evaluation.workloads)
        (figures,) = assess_models(replace(evaluation, workloads=changed), models=[model]).accuracy
        rates = changed[0].baselines.loaded or changed[0].baselines.cells
        minutes = sum(len(b.iops) for b in rates.values()) * RUN_SECONDS / 60
        print(f"| {title} | {' | '.join(figure_text(figures, figure) for figure in SHOWN)} | {minutes:.0f} |")


def print_errors(evaluation: EvaluationSet) -> None:
    """Print what the error of answers from the 20 cells grows with, and the intervals that follow.

    Held: ratios of a workload that was left out in their 90 % intervals. Decided: predictions whose 95 % interval
    does not contain the default.
    """
    counted = tuple(changed_workload(w, own_load_only, counts_only) for w in evaluation.workloads)
    answers = {"time": counted, **dict.fromkeys((m.name for m in MODELS if not m.adds_time), evaluation.workloads)}
    print("| model | error grows with | floor | coefficient | degrees of freedom | held | decided |")
    print("|---|---|---|---|---|---|---|")
    for model, workloads in answers.items():
        found = assess_models(replace(evaluation, workloads=workloads), models=[model])
        residuals = residuals_of(found.verified)
        for form, of in FORMS.items():
            error = error_by(residuals, of)
            print(
                f"| {model} | {form} | {error.floor:.3f} | {error.slope:.3f} | {error.df:g} | "
                f"{' | '.join(f'{100 * share:.0f} %' for share in shares_left_out(residuals, of))} |"
            )


Figure = Callable[[Residual], float]
FORMS: dict[str, Figure | None] = {
    "nothing: the noise of the sweep alone": None,
    "distance from the default": lambda r: r.predicted_log,
    "spread over the cells": lambda r: r.spread,
}
"""What the error of a model may grow with."""


def error_by(residuals: Sequence[Residual], of: Figure | None) -> ModelError:
    """Fit an error that grows with what ``of`` returns; without it there is none."""
    if of is None:
        return NO_ERROR
    columns = ((r.log_error, of(r), r.scatter_sd) for r in residuals)
    return fitted(*(list(column) for column in zip(*columns, strict=True)))


def shares_left_out(residuals: Sequence[Residual], of: Figure | None) -> tuple[float, float]:
    """Return the shares of ratios that are held and of predictions that are decided, each workload left out."""
    n_compared = len({r.configuration for r in residuals})
    held, decided = [], []
    for left in dict.fromkeys(r.workload for r in residuals):
        error = error_by([r for r in residuals if r.workload != left], of)
        for r in (r for r in residuals if r.workload == left):
            at = 100 * math.exp(of(r) if of else 0.0)
            held.append(abs(r.log_error) <= half_width(r, error, at, 0.90, n_compared))
            decided.append(abs(r.predicted_log) > half_width(r, error, at, 0.95, n_compared))
    return sum(held) / len(held), sum(decided) / len(decided)


def half_width(r: Residual, error: ModelError, at: float, confidence: float, n_compared: int) -> float:
    """Return half the interval of a log prediction: scatter, joint over all compared, and the model's error."""
    scatter = r.scatter_sd * NormalDist().inv_cdf(1 - (1 - confidence) / (2 * n_compared))
    return math.hypot(scatter, error.half_width(at, confidence, 0.0))


def changed_workload(
    workload: EvaluatedWorkload,
    of_baselines: Callable[[Baselines], Baselines],
    of_profile: Callable[[Profile], Profile] | None,
) -> EvaluatedWorkload:
    profile = workload.profile if of_profile is None else of_profile(workload.profile)
    return replace(workload, profile=profile, baselines=of_baselines(workload.baselines))


if __name__ == "__main__":
    main()
