"""`cephfit map`: predict every configuration for a workload profile."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cephfit.cli.options.common_options import (
    baselines_option,
    confidence_option,
    load_option,
    model_option,
    run_option,
)
from cephfit.cli.options.completers import stores
from cephfit.cli.terminal.output import json_option, print_json, print_table
from cephfit.core.values.prediction_model import model_called
from cephfit.core.values.run import PREDICTIONS_DOCUMENT, PROFILE_DOCUMENT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cephfit.core.errors import InputError
    from cephfit.core.protocols import Predictor
    from cephfit.core.values.prediction import Prediction, PredictionSet
    from cephfit.core.values.profile import Profile

_SHOWN_CELLS = 6
_SHOWN_MOVES = 3
_MOVED_POINTS = 0.5


@click.command("map", short_help="Predict every configuration for a workload profile.")
@click.argument("profile_file", metavar="PROFILE", type=click.Path(path_type=Path))
@baselines_option
@run_option
@load_option
@model_option
@confidence_option
@click.option(
    "--learn-from",
    "lessons",
    metavar="STORE|FOLDER",
    shell_complete=stores,
    help="Correct the model by what it missed on workloads that were run on several configurations: a store with "
    "verified runs, or an evaluation folder.",
)
@click.option(
    "--sensitivity",
    "is_varied",
    is_flag=True,
    help="Also predict with other randomness thresholds, each phase alone, and without each kind of access.",
)
@click.option(
    "--save/--no-save", default=None, help="Store the profile and the predictions with the run.  [default: save]"
)
@json_option
def command(
    profile_file: Path,
    location: str,
    run_id: str | None,
    load: str,
    model: str,
    confidence: float,
    lessons: str | None,
    is_varied: bool,
    save: bool | None,
    as_json: bool,
) -> None:
    """Rank the configurations of a sweep for the workload in PROFILE, best to worst, the default = 100.

    PROFILE comes from `cephfit trace profile`, or is a bundled example, such as
    `example:pgbench`; STORE comes from `cephfit sweep run`. A CSV has the columns configuration, size, pattern,
    client, run, iops, and may have iodepth, clients, sync, align, load.
    """
    from cephfit.cli.predict.sensitivity_table import print_sensitivity
    from cephfit.core.profile_files import read_profile
    from cephfit.mapper import predictor
    from cephfit.mapper.contrasts import ranked
    from cephfit.mapper.sensitivity import sensitivity_of
    from cephfit.results import open_baselines
    from cephfit.results.report.run_notes import may_be_unfinished, run_document, run_notes
    from cephfit.results.tables.baseline_csv import is_store

    model_predictor = predictor(model, confidence=confidence, with_error=True)
    profile = read_profile(profile_file)
    if lessons is not None:
        if save:
            raise click.UsageError("--save stores what the model alone predicts; leave out --learn-from")
        model_predictor, save = _learned(lessons, model, confidence), False
    stored = is_store(location)
    if save and not stored:
        raise click.UsageError("--save needs a store; predictions cannot be saved in a CSV file")
    if save:
        _refuse_read_only(location)
    measured = run_document(location, run_id)
    run_id = measured["run"] or run_id  # the newest now, even if another run begins meanwhile
    with may_be_unfinished(measured):
        baselines = open_baselines(location, run_id, load)
        predictions = ranked(model_predictor, profile, baselines)
    varied = sensitivity_of(model_predictor, profile, baselines, predictions) if is_varied else None
    if stored and save is not False and (not_saved := _save(location, run_id, load, profile, predictions)):
        click.echo(
            f"the prediction is not saved: {not_saved}; give `cephfit report` the profile with --profile", err=True
        )
    if as_json:
        of_variations = {} if varied is None else {"sensitivity": varied.to_json()}
        print_json({**predictions.to_json(), "measured": measured, **of_variations})
        return
    _print(predictions, run_notes(measured))
    if varied is not None:
        print_sensitivity(varied)


def _learned(location: str, model: str, confidence: float) -> Predictor:
    """Raises:
    UsageError: the model cannot be corrected.
    """
    from cephfit.cli.predict.assess_command import read_evaluation
    from cephfit.core.values.prediction_model import model_called
    from cephfit.mapper.learned_correction import LearnedPredictor, lessons_from

    if not model_called(model).adds_time:
        raise click.UsageError(f"--learn-from corrects models that add up time, not {model}")
    evaluation = read_evaluation(location)
    if not evaluation.workloads:
        raise _nothing_to_learn(location, evaluation.refused)
    # Where a profile lacks waiting times, the other model answers.
    asked = dict.fromkeys((model, "time"))
    return LearnedPredictor.of(
        {kind: lesson for name in asked for kind, lesson in lessons_from(evaluation.workloads, name).items()},
        confidence,
        model,
    )


def _nothing_to_learn(location: str, refused: Sequence[InputError]) -> InputError:
    from cephfit.core.errors import InputError

    return InputError(
        f"there is no workload to learn from{f': {refused[0].what}' if refused else ''}",
        where=location,
        remedy="run real workloads on all configurations with `cephfit verify --configurations`",
    )


def _refuse_read_only(location: str) -> None:
    """Raises:
    StoreError: the store is read-only, so nothing can be saved in it.
    """
    from cephfit.results.store.sample_store import Store

    Store.open(location, writing=True).close()


def _save(location: str, run_id: str | None, load: str, profile: Profile, predictions: PredictionSet) -> str:
    """Save profile and predictions; return why not if the store is read-only, else an empty text."""
    from cephfit.results.store.sample_store import Store, kind_of

    with Store.open(location) as store:
        if reason := store.why_read_only():
            return reason
        run = store.run(run_id)
        store.put_document(run.run_id, kind_of(PROFILE_DOCUMENT, load), profile.to_json())
        store.put_document(run.run_id, kind_of(PREDICTIONS_DOCUMENT, load), predictions.to_json())
    return ""


def _print(predictions: PredictionSet, warnings: list[str]) -> None:
    click.echo(f"Workload {predictions.profile}, baselines from {predictions.baselines}")
    for warning in warnings:
        click.echo(warning)
    click.echo(f"Model {predictions.model}: {model_called(predictions.model).sentence}")
    click.echo()
    click.echo(_answer(predictions))
    click.echo()
    errs = any(p.error_share is not None for p in predictions.predictions)
    columns = ["configuration", "relative", f"{predictions.confidence * 100:g} % interval", "verdict", "moved by"]
    rows = [_row(p) for p in predictions.predictions]
    if errs:
        columns.insert(3, "by the model")
        for row, p in zip(rows, predictions.predictions, strict=True):
            row.insert(3, "" if p.error_share is None else f"{100 * p.error_share:.0f} %")
    print_table(columns, rows, right=(1, 2, 3) if errs else (1, 2))
    if errs:
        click.echo(
            "By the model: the part of the squared width that is the model's own error; the rest is scatter"
        )
    click.echo()
    _print_weights(predictions)
    for note in predictions.notes:
        click.echo(f"Note: {note}")


def _answer(predictions: PredictionSet) -> str:
    from cephfit.core.values.prediction import Verdict

    default = next(p.configuration for p in predictions.predictions if p.verdict is Verdict.DEFAULT)
    alike = [p.configuration for p in predictions.predictions if p.verdict is Verdict.INDISTINGUISHABLE]
    best = f"Best: {predictions.best}, {_against(predictions, predictions.best)}"
    worst = f"Worst: {predictions.worst}, {_against(predictions, predictions.worst)}"
    lines = [
        best
        if predictions.best != default
        else f"Best: {default}, the default: nothing is distinguishably better",
        *_as_good(predictions),
        worst
        if predictions.worst != default
        else f"Worst: {default}, the default: nothing is distinguishably worse",
        f"Not distinguishable from {default}: {', '.join(alike) or 'none'}",
    ]
    if math.isfinite(predictions.noise_floor):
        lines.append(f"Noise floor: this sweep cannot show differences below {predictions.noise_floor:.1f} points")
    return "\n".join(lines)


def _as_good(predictions: PredictionSet) -> list[str]:
    if not predictions.as_good:
        return []
    return [f"Not distinguishable from {predictions.best}, the best: {', '.join(predictions.as_good)}"]


def _against(predictions: PredictionSet, name: str) -> str:
    p = predictions.of(name)
    # An end is open where the load's limit was reached, or nothing was repeated.
    if not math.isfinite(p.high) and p.low > 0:
        return f"at least {p.low - 100:+.1f} % against the default"
    if p.low <= 0 and math.isfinite(p.high):
        return f"{p.high - 100:+.1f} % against the default, or worse"
    return f"{p.relative - 100:+.1f} % against the default ({p.low - 100:+.1f} to {p.high - 100:+.1f})"


def _row(p: Prediction) -> list[str]:
    interval = f"{p.low:.1f} to {p.high:.1f}"
    if not math.isfinite(p.high):
        interval = f"above {p.low:.1f}" if p.low > 0 else "unknown"
    moved = [f"{r.cell} {r.points:+.1f}" for r in p.reasons[:_SHOWN_MOVES] if abs(r.points) >= _MOVED_POINTS]
    return [p.configuration, f"{p.relative:.1f}", interval, p.verdict.value, ", ".join(moved)]


def _print_weights(predictions: PredictionSet) -> None:
    """Print the cells that carry the workload, and each configuration's rate in them."""
    from cephfit.core.values.prediction import Verdict

    default = next(p for p in predictions.predictions if p.verdict is Verdict.DEFAULT)
    heaviest = sorted(default.reasons, key=lambda r: -r.weight)[:_SHOWN_CELLS]
    measure = "the default's time" if model_called(predictions.model).adds_time else "the accesses"
    click.echo(f"The cells that matter most (share of {measure}), and the rate in each, default = 100:")
    # Size above pattern: six full cell names are wider than most terminals.
    rows = [["", *(r.cell.pattern.value for r in heaviest)]]
    rows.append(["weight", *(f"{100 * r.weight:.1f} %" for r in heaviest)])
    for p in predictions.predictions:
        rates = {r.cell: r.relative for r in p.reasons}
        rows.append([p.configuration, *(f"{rates[r.cell]:.0f}" for r in heaviest)])
    print_table(["", *(r.cell.size.name for r in heaviest)], rows, right=range(1, len(heaviest) + 1))
    left = len(default.reasons) - len(heaviest)
    if left:
        share = 100 * (1 - math.fsum(r.weight for r in heaviest))
        click.echo(f"{left} more cells account for {share:.1f} % together")
