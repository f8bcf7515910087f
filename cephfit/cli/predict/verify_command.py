"""`cephfit verify`: run a real workload and compare it with the prediction."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cephfit.cli.options.cluster_options import cluster_options
from cephfit.cli.options.common_options import (
    Finite,
    keep_option,
    mapped_confidence_option,
    mapped_model_option,
    needed_apply_option,
    run_of_sweep_option,
    scale_option,
    store_option,
    sweep_option,
    target_option,
)
from cephfit.cli.options.completers import configurations
from cephfit.cli.options.workload_choice import verified_workload_option
from cephfit.cli.terminal.output import json_option, print_json, print_table, sigterm_as_interrupt
from cephfit.core.values.run import (
    PREDICTIONS_DOCUMENT,
    PROFILE_DOCUMENT,
    VERIFICATION_DOCUMENT,
    WORKLOAD_PROFILE_DOCUMENT,
)
from cephfit.operations.cluster_options import ClusterOptions
from cephfit.operations.progress_display import progress_display

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cephfit.core.values.assessment import Assessment, AssessmentRow
    from cephfit.core.values.configuration import Configuration
    from cephfit.core.values.prediction import PredictionSet
    from cephfit.core.values.profile import Profile
    from cephfit.core.values.run import Run
    from cephfit.results.store.sample_store import Store
    from cephfit.sweep.sweep_plan import Sweep


@click.command()
@sweep_option
@store_option
@run_of_sweep_option
@target_option("lab", "lab:NAME", "ceph", "ceph:NAME", "openstack:CLOUD,...", "sim")
@click.option(
    "--profile",
    "profile_file",
    type=click.Path(path_type=Path),
    help="Profile of the workload.  [default: the one that `cephfit map` stored]",
)
@mapped_model_option
@mapped_confidence_option
@click.option(
    "--configurations",
    metavar="A,B,...",
    shell_complete=configurations,
    help="Configurations to run, in addition to the default.  [default: the predicted best and worst]",
)
@verified_workload_option
@scale_option
@click.option(
    "--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Runs per configuration."
)
@click.option(
    "--seconds", type=Finite(min=1), default=30.0, show_default=True, help="Measured seconds of each run."
)
@keep_option
@needed_apply_option
@cluster_options
@json_option
def command(
    sweep_text: str,
    store: str,
    run_id: str | None,
    target_text: str,
    profile_file: Path | None,
    model: str | None,
    confidence: float | None,
    configurations: str | None,
    workload: str | None,
    scale: int | None,
    repeats: int,
    seconds: float,
    keep: bool,
    apply: bool,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Run a real workload on the default, the predicted best and the predicted worst configuration.

    Runs are interleaved and repeated. Each is stored when it ends, and an interrupted verification continues where
    it stopped. Before every run, the caches are brought into the condition that the sweep file states. The output
    compares the measured with the predicted performance: the error, whether the order held, and the regret. The
    regret is the cost of following the prediction, compared with the best configuration that was run. A cluster
    that cephfit did not create needs `--apply`; `cephfit sweep plan --target` shows what would change. A simulated
    target (`sim`) runs the accesses of the profile at its true rates, with noise (docs/simulation.md).
    """
    from cephfit.cli.options.workload_choice import trial_of
    from cephfit.cli.sweep.sweep_stopping import known_of
    from cephfit.mapper.accuracy import assess
    from cephfit.operations.recommended import echo_use, if_applicable
    from cephfit.operations.workload_runs import run_of, target_of
    from cephfit.results.store.sample_store import Store, kind_of
    from cephfit.sweep.declaration.sweep_file import find_sweep, read_sweep
    from cephfit.sweep.optimiser import with_trials
    from cephfit.sweep.verification import verify

    sweep = read_sweep(find_sweep(sweep_text))
    with sigterm_as_interrupt(), Store.open(store, writing=True) as opened, progress_display() as progress:
        run = run_of(opened, sweep, run_id)
        predictions, profile, kept = _predict(opened, run, store, profile_file, model, confidence)
        chosen, fewer = _choose(with_trials(sweep, known_of(opened, run).trials), predictions, configurations)
        note = "; ".join(filter(None, (kept, fewer)))
        if note:
            progress.note(note)
        with target_of(
            run, target_text, store=opened, cluster=cluster, apply=apply, keep=keep, progress=progress
        ) as target:
            cache = sweep.measurement.cache
            trial = trial_of(
                target,
                workload,
                scale=scale,
                repeats=repeats,
                seconds=seconds,
                seed=run.seed,
                cache=cache,
                profile=profile,
            )
            samples = verify(target, chosen, trial, store=opened, run_id=run.run_id, progress=progress)
        assessment = assess(predictions, samples, trial.workload.name)
        kind = kind_of(WORKLOAD_PROFILE_DOCUMENT, trial.workload.name)
        opened.put_document(run.run_id, kind, profile.to_json())
        opened.put_document(run.run_id, VERIFICATION_DOCUMENT, assessment.to_json())
    use = if_applicable(predictions.best, store, run.run_id)
    if as_json:
        document = {"run": run.run_id, "note": note, **assessment.to_json()}
        print_json({**document, "use": use.to_json() if use else None})
        return
    _print(assessment, note)
    if use is not None:
        echo_use(use, click.echo)


def _predict(
    store: Store, run: Run, location: str, profile_file: Path | None, model: str | None, confidence: float | None
) -> tuple[PredictionSet, Profile, str]:
    """Return the prediction to verify, calculated from all samples; the profile; and a note on the prediction.

    Model and confidence are those of the run's stored prediction, which the new one then replaces. A stored
    prediction with another model or confidence is kept.
    """
    from cephfit.core.errors import InputError
    from cephfit.core.profile_files import read_profile
    from cephfit.core.values.prediction import PredictionSet
    from cephfit.core.values.prediction_model import DEFAULT_CONFIDENCE
    from cephfit.core.values.profile import Profile
    from cephfit.mapper import MODELS, predictor
    from cephfit.mapper.contrasts import ranked
    from cephfit.results import open_baselines
    from cephfit.results.report.formatting import level

    document = store.document(run.run_id, PROFILE_DOCUMENT)
    if profile_file is not None:
        profile = read_profile(profile_file)
    else:
        if document is None:
            raise InputError(
                "the profile of the workload is missing",
                where=f"run {run.run_id}",
                remedy="give one with --profile, or map one first with `cephfit map`",
            )
        profile = Profile.from_json(document, where=f"profile of run {run.run_id}")
    mapped = store.document(run.run_id, PREDICTIONS_DOCUMENT)
    stored = (
        None if mapped is None else PredictionSet.from_json(mapped, where=f"run {run.run_id}: stored predictions")
    )
    model = model or (stored.model if stored else MODELS[0])
    confidence = confidence or (stored.confidence if stored else DEFAULT_CONFIDENCE)
    model_predictor = predictor(model, confidence=confidence, with_error=True)
    predictions = ranked(model_predictor, profile, open_baselines(location, run.run_id))
    if stored is None or (stored.model, stored.confidence) == (model, confidence):
        store.put_document(run.run_id, PROFILE_DOCUMENT, profile.to_json())
        store.put_document(run.run_id, PREDICTIONS_DOCUMENT, predictions.to_json())
        return predictions, profile, ""
    note = (
        f"this verifies the prediction for {profile.name} by model {model} at {level(confidence)}; "
        f"`cephfit report` still shows the stored one, for {stored.profile} by {stored.model} at "
        f"{level(stored.confidence)}"
    )
    return predictions, profile, note


def _choose(sweep: Sweep, predictions: PredictionSet, named: str | None) -> tuple[Sequence[Configuration], str]:
    """Return the configurations to run, the default first, and a note on the choice."""
    from cephfit.core.errors import InputError
    from cephfit.core.values.configuration import DEFAULT_CONFIGURATION

    note = ""
    if named is None:
        names = [DEFAULT_CONFIGURATION, predictions.best, predictions.worst]
        alike = [
            word
            for word, name in (("better", predictions.best), ("worse", predictions.worst))
            if name == DEFAULT_CONFIGURATION
        ]
        if alike:
            note = f"no configuration is distinguishably {' or '.join(alike)} than the default, so fewer are run"
    else:
        names = [DEFAULT_CONFIGURATION, *filter(None, (n.strip() for n in named.split(",")))]
    known = {c.name: c for c in sweep.configurations}
    predicted = {p.configuration for p in predictions.predictions}
    for name in names:
        if name not in known or name not in predicted:
            raise InputError(
                f"there is no configuration {name!r} with a prediction",
                where=f"sweep {sweep.name}",
                remedy=f"there are {', '.join(n for n in known if n in predicted)}",
            )
    return [known[name] for name in dict.fromkeys(names)], note


def _print(assessment: Assessment, note: str) -> None:
    if note:
        click.echo(f"Note: {note}")
    print_table(
        ("configuration", "predicted", "measured", "error", f"{assessment.metric} of each run"),
        [_row(row) for row in assessment.rows],
        right=(1, 2, 3),
    )
    click.echo()
    order = {True: "held", False: "did NOT hold", None: "is not clear from these runs"}[assessment.order_held]
    click.echo(f"The predicted order {order} (model {assessment.model}, workload {assessment.workload})")
    if assessment.regret_pct is not None:
        click.echo(f"Regret of following the prediction: {assessment.regret_text()}")
    for sentence in assessment.missed():
        click.echo(sentence)
    for line in assessment.notes:
        click.echo(f"Note: {line}")


def _row(row: AssessmentRow) -> list[str]:
    return [
        row.configuration,
        interval_text(row.predicted_relative, row.predicted_low, row.predicted_high),
        "no value"
        if row.measured_relative is None
        else interval_text(row.measured_relative, row.measured_low, row.measured_high),
        "" if row.error_points is None else f"{row.error_points:+.1f}",
        ", ".join(f"{value:.1f}" for value in row.values),
    ]


def interval_text(value: float, low: float | None, high: float | None) -> str:
    """Return a relative performance and its interval; an end that is None is unknown or has no limit."""
    if high is None and low:
        return f"{value:.1f} (above {low:.1f})"
    return f"{value:.1f}" if low is None or high is None else f"{value:.1f} ({low:.1f} to {high:.1f})"
