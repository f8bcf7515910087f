"""`cephfit assess`: how good predictions are, from workloads that were really run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cephfit.cli.options.common_options import Finite, profiles_option, runs_option
from cephfit.cli.options.completers import stores
from cephfit.cli.output import OUTPUT_FILE, json_option, print_json, print_table, refuse_lost_input, write_whole

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cephfit.core.values.prediction import CellReason
    from cephfit.core.values.profile import Profile
    from cephfit.operations.evaluation_set import EvaluationSet
    from cephfit.operations.model_assessment import ModelAssessment

_WORST_SHOWN = 5
_CELLS_SHOWN = 2


@click.command("assess", short_help="Show how good predictions are, from workloads that were really run.")
@click.argument("location", metavar="STORE|FOLDER", shell_complete=stores)
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

    STORE has the runs of `cephfit verify`, best with `--configurations` for all of the sweep. FOLDER has
    baselines.csv (as for `cephfit map`), measured.csv (columns workload,metric,configuration,round,volume,value;
    more is better) and profiles/NAME.json. Each workload needs its own profile, of the workload's name.

    Trivial predictors are assessed next to the models: a model that does not beat them is useless. `the other
    rounds` is the noise floor: each round predicted from the workload's other rounds.
    """
    from cephfit.mapper.assessment.model_evaluation import LeaveOut
    from cephfit.operations.assessment_page import page_html
    from cephfit.operations.evaluation_set import read_profiles
    from cephfit.operations.model_assessment import assess_models

    if output is not None:
        refuse_lost_input(output)
    evaluation = read_evaluation(location, run_ids, read_profiles(profile_files))
    assessment = assess_models(
        evaluation, confidence=confidence, leave_out=LeaveOut(left_out) if left_out is not None else None
    )
    if folder is not None:
        _export(evaluation, folder)
    if output is not None:
        write_whole(output, page_html(assessment, location, made_ns=time.time_ns()), what="the page")
    if as_json:
        print_json(assessment.to_json())
        return
    _print(assessment)
    if output is not None:
        click.echo(f"Page: {output}")
    if folder is not None:
        click.echo(f"Evaluation folder: {folder}")


def read_evaluation(location: str, run_ids: Sequence[str] = (), profiles: Sequence[Profile] = ()) -> EvaluationSet:
    """Read a store with verified runs, or an evaluation folder.

    Raises:
        InputError: a part of the folder is missing or wrong, or runs of a folder are chosen.
        StoreError: there is no such store.
    """
    from cephfit.core.errors import InputError
    from cephfit.operations.evaluation_set import read_folder, read_store
    from cephfit.results.store.sample_store import Store

    if "://" not in location and Path(location).is_dir():
        if run_ids:
            raise InputError("a folder has no runs to choose from", where=location, remedy="leave out --run")
        return read_folder(Path(location), profiles=profiles)
    with Store.open(location) as store:
        runs = [store.find_run(run_id) for run_id in run_ids] or None
        return read_store(store, runs, profiles)


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
    from cephfit.operations.model_assessment import FIGURES, figure_text, goal_text

    rows = [[a.model, *(figure_text(a, figure) for figure, _ in FIGURES)] for a in assessment.accuracy]
    rows.append(["goal", *(goal_text(figure) for figure, _ in FIGURES)])
    others = assessment.noise_floor.other_rounds
    if others is not None:
        rows.append([others.model, *(figure_text(others, figure) for figure, _ in FIGURES)])
    print_table(("model", *(heading for _, heading in FIGURES)), rows, right=range(1, len(FIGURES) + 1))
    click.echo()
    for sentence in assessment.sentences():
        click.echo(sentence)
    closest = assessment.closest.model
    if missed := assessment.largest_errors(closest):
        click.echo(f"\nLargest errors of {closest}:")
        print_table(
            ("workload", "configuration", "predicted", "measured", "error", "cells with the largest effect"),
            [
                [
                    v.assessment.workload,
                    row.configuration,
                    f"{row.predicted_relative:,.1f}",
                    f"{row.measured_relative:,.1f}",
                    f"{error:.1f} %",
                    _cells(v.predictions.of(row.configuration).reasons),
                ]
                for error, v, row in missed[:_WORST_SHOWN]
            ],
            right=(2, 3, 4),
        )
    for note in assessment.notes:
        click.echo(f"Note: {note}")


def _cells(reasons: Sequence[CellReason]) -> str:
    return ", ".join(f"{reason.cell} {reason.points:+.1f}" for reason in reasons[:_CELLS_SHOWN])
