"""`cephfit assess`: how good predictions are, from workloads that were really run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cephfit.cli.options.common_options import Finite, profiles_option, runs_option
from cephfit.cli.terminal.output import json_option, print_json, print_table
from cephfit.cli.terminal.written_files import OUTPUT_FILE, refuse_lost_input, write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cephfit.core.values.profile import Profile
    from cephfit.mapper.accuracy import ModelAccuracy
    from cephfit.operations.evaluation_set import EvaluationSet
    from cephfit.operations.model_assessment import ModelAssessment

_WORST_SHOWN = 5
_COLUMNS = (
    ("median_error_pct", "median error", "%"),
    ("p90_error_pct", "p90", "%"),
    ("spearman", "Spearman", ""),
    ("mean_regret_pct", "regret", "%"),
    ("max_regret_pct", "worst regret", "%"),
    ("best_in_top_1", "top 1", "share"),
    ("best_in_top_2", "top 2", "share"),
    ("worst_named", "worst named", "share"),
    ("coverage", "coverage", "share"),
)
"""(figure, heading, unit)."""


@click.command("assess", short_help="Show how good predictions are, from workloads that were really run.")
@click.argument("location", metavar="STORE|FOLDER")
@runs_option
@profiles_option("Profile of a workload, by its name; repeatable; or a folder of them.  [default: those stored]")
@click.option(
    "--confidence",
    type=Finite(0.5, 0.9999),
    default=0.90,
    show_default=True,
    help="Level of the intervals whose coverage is assessed.",
)
@click.option(
    "--leave-out",
    "left_out",
    type=click.Choice(["workloads", "configurations"]),
    help="Estimate the models' errors without each workload (or configuration), and judge intervals on it.",
)
@click.option(
    "--export",
    "folder",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Also write what was assessed as an evaluation folder, with 5 significant digits.",
)
@click.option("-o", "--output", type=OUTPUT_FILE, help="Also write a page (HTML) with figures.")
@json_option
def command(
    location: str,
    run_ids: tuple[str, ...],
    profile_files: tuple[Path, ...],
    confidence: float,
    left_out: str | None,
    folder: Path | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Compare the predictions of every model with workloads that were really run on the configurations.

    STORE has the runs of `cephfit verify` (best with `--configurations` for all of the sweep). FOLDER has
    baselines.csv (as for `cephfit map`), measured.csv (columns workload,metric,configuration,round,volume,value; more
    is better) and profiles/NAME.json. Each workload needs its own profile, of the workload's name.

    Trivial predictors are assessed next to the models: a model that does not beat them is useless. `the other rounds`
    is the noise floor: each round predicted from the workload's other rounds.
    """
    from cephfit.mapper.model_evaluation import LeaveOut
    from cephfit.operations.evaluation_set import read_profiles
    from cephfit.operations.model_assessment import assess_models

    if output is not None:
        refuse_lost_input(output)
    evaluation = _read(location, run_ids, read_profiles(profile_files))
    assessment = assess_models(
        evaluation, confidence=confidence, leave_out=LeaveOut(left_out) if left_out is not None else None
    )
    if folder is not None:
        _export(evaluation, folder)
    if as_json:
        print_json(assessment.to_json())
        return
    _print(assessment)
    if folder is not None:
        click.echo(f"Evaluation folder: {folder}")


def _read(location: str, run_ids: Sequence[str], profiles: Sequence[Profile]) -> EvaluationSet:
    from cephfit.core.errors import InputError
    from cephfit.operations.evaluation_set import read_folder, read_store
    from cephfit.results.store.sample_store import Store

    if "://" not in location and Path(location).is_dir():
        if run_ids:
            raise InputError("a folder has no runs to choose from", where=location, remedy="leave out --run")
        return read_folder(Path(location), profiles=profiles)
    with Store.open(location) as store:
        runs = [store.find_run(run_id) for run_id in run_ids] or None
        found = read_store(store, runs, profiles)
        if not found.workloads and not found.refused:
            raise InputError(
                "no workload was run on the configurations",
                where=store.name,
                remedy="run real workloads on all configurations of the sweep with `cephfit verify "
                "--configurations`",
            )
        return found


def _export(evaluation: EvaluationSet, folder: Path) -> None:
    from cephfit.core.errors import HostError
    from cephfit.operations.evaluation_set import PROFILES_FOLDER, folder_files

    files = folder_files(evaluation)
    try:
        (folder / PROFILES_FOLDER).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(
            f"the folder cannot be created: {error.strerror}",
            where=str(folder),
            remedy="give another with --export",
        ) from None
    for name, text in files.items():
        write_whole(folder / name, text, what="the evaluation folder")


def _print(assessment: ModelAssessment) -> None:
    from cephfit.mapper.accuracy import GOALS, error_pct_of

    figures = assessment.accuracy
    floor = assessment.noise_floor
    goals = {goal.figure: goal for goal in GOALS}
    rows = [[a.model, *(_figure(a, name, unit) for name, _, unit in _COLUMNS)] for a in figures]
    rows.append(["goal", *(_goal(goals.get(name), unit) for name, _, unit in _COLUMNS)])
    if floor.other_rounds is not None:
        rows.append(["the other rounds", *(_figure(floor.other_rounds, n, unit) for n, _, unit in _COLUMNS)])
    print_table(("model", *(heading for _, heading, _ in _COLUMNS)), rows, right=range(1, len(_COLUMNS) + 1))
    click.echo()
    first = figures[0]
    click.echo(
        f"{first.n_runs} workloads, {first.n_configurations} ratios to the default, {first.n_again} of them of the "
        f"default's settings under another name; intervals at {100 * assessment.confidence:g} %"
        + (
            f", errors of the models estimated without the assessed {assessment.leave_out}"
            if assessment.leave_out is not None
            else ""
        )
    )
    if floor.half_width_pct is not None:
        click.echo(f"Noise of the measured ratios: intervals of +-{floor.half_width_pct:.1f} % (median)")
    if floor.n_again:
        click.echo(
            f"The default under another name: not distinguishable from it in {floor.again_alike} of "
            f"{floor.n_again} workloads"
        )
    closest = assessment.closest.model
    missed = sorted(
        ((error, v, row) for v in assessment.of(closest) for row in v.compared if (error := error_pct_of(row))),
        key=lambda found: -found[0],
    )
    if missed:
        click.echo(f"\nLargest errors of {closest}:")
        print_table(
            ("workload", "configuration", "predicted", "measured", "error", "cells with the largest effect"),
            [
                [
                    v.assessment.workload,
                    row.configuration,
                    f"{row.predicted_relative:.1f}",
                    f"{row.measured_relative:.1f}",
                    f"{error:.1f} %",
                    ", ".join(
                        f"{reason.cell} {reason.points:+.1f}"
                        for reason in v.predictions.of(row.configuration).reasons[:2]
                    ),
                ]
                for error, v, row in missed[:_WORST_SHOWN]
            ],
            right=(2, 3, 4),
        )
    for note in assessment.notes:
        click.echo(f"Note: {note}")


def _figure(accuracy: ModelAccuracy, name: str, unit: str) -> str:
    return _number(getattr(accuracy, name), unit)


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "share":
        return f"{100 * value:.0f} %"
    return f"{value:.1f} %" if unit else f"{value:.2f}"


def _goal(goal: object, unit: str) -> str:
    from cephfit.mapper.accuracy import Goal

    if not isinstance(goal, Goal):
        return ""
    scale, sign = (100, " %") if unit == "share" else (1, " %" if unit else "")
    if goal.low is not None and goal.high is not None:
        return f"{scale * goal.low:g} to {scale * goal.high:g}{sign}"
    end, bound = ("<=", goal.high) if goal.low is None else (">=", goal.low)
    assert bound is not None, "a goal has an end"
    return f"{end} {scale * bound:g}{sign}"
