"""`cephfit verify`: run a real workload and compare it with the prediction."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cephfit.cli.options.common_options import (
    Finite,
    clients_option,
    cluster_options,
    keep_option,
    load_option,
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
from cephfit.cli.output import json_option, print_json, print_table, sigterm_as_interrupt
from cephfit.core.values.sample import (
    PREDICTIONS_DOCUMENT,
    PROFILE_DOCUMENT,
    VERIFICATION_DOCUMENT,
    WORKLOAD_PROFILE_DOCUMENT,
)
from cephfit.operations.measuring.cluster_options import ClusterOptions
from cephfit.operations.measuring.progress_display import progress_display

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cephfit.core.values.assessment import Assessment, AssessmentRow
    from cephfit.core.values.configuration import Configuration
    from cephfit.core.values.prediction import PredictionSet
    from cephfit.core.values.profile import Profile
    from cephfit.core.values.sample import Run
    from cephfit.operations.ranking import PredictionForClients
    from cephfit.results.store.sample_store import Store
    from cephfit.sweep.concurrent_clients import ClientRates
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
@load_option
@clients_option
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
@click.option(
    "--equal-work",
    is_flag=True,
    help="End each run after as many operations as the default does in --seconds: a prediction is for equal work. "
    "For pgbench on one volume of this machine.",
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
    load: str,
    clients: int | None,
    model: str | None,
    confidence: float | None,
    configurations: str | None,
    workload: str | None,
    scale: int | None,
    repeats: int,
    seconds: float,
    equal_work: bool,
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

    With `--clients N` the workload runs on N volumes or guests at once; values are sums. They are compared with
    the prediction from a load with N clients, or else by the scaling law (docs/scaling.md).
    """
    from cephfit.cli.options.workload_choice import trial_of
    from cephfit.mapper.assessment.prediction_assessment import assess
    from cephfit.operations.measuring.run_status import known_of
    from cephfit.operations.measuring.sweep_measurement import run_of, target_of
    from cephfit.operations.ranking import not_together, rates_of_clients
    from cephfit.operations.recommended import echo_use, if_applicable
    from cephfit.results.store.sample_store import Store, kind_of
    from cephfit.sweep.declaration.sweep_file import find_sweep, read_sweep
    from cephfit.sweep.optimiser import with_trials
    from cephfit.sweep.verification import verify

    sweep = read_sweep(find_sweep(sweep_text))
    with sigterm_as_interrupt(), Store.open(store, writing=True) as opened, progress_display() as progress:
        run = run_of(opened, sweep, run_id)
        predicted = _predict(opened, run, store, profile_file, model, confidence, load=load, clients=clients)
        predictions, profile = predicted.predictions, predicted.profile
        chosen, fewer = _choose(with_trials(sweep, known_of(opened, run).trials), predictions, configurations)
        note = "; ".join(filter(None, (predicted.note, fewer)))
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
                n_clients=clients or 1,
            )
            samples = verify(
                target,
                chosen,
                trial,
                store=opened,
                run_id=run.run_id,
                progress=progress,
                equal_work=equal_work,
            )
        assessment = replace(assess(predictions, samples, trial.workload.name), workload=trial.name)
        opened.put_document(run.run_id, kind_of(WORKLOAD_PROFILE_DOCUMENT, trial.name), profile.to_json())
        if predicted.load is not None:
            kind = kind_of(VERIFICATION_DOCUMENT, predicted.load)
            opened.put_document(run.run_id, kind, assessment.to_json())
    rates = rates_of_clients(samples)
    note = "; ".join(filter(None, (note, not_together(samples))))
    use = if_applicable(predictions.best, store, run.run_id)
    if as_json:
        of_clients = {"clients": {name: asdict(own) for name, own in rates.items()}} if rates else {}
        document = {"run": run.run_id, "note": note, **assessment.to_json(), **of_clients}
        print_json({**document, "use": use.to_json() if use else None})
        return
    _print(assessment, note, rates, trial.n_clients)
    if use is not None:
        echo_use(use, click.echo)


@dataclass(frozen=True, slots=True)
class _Predicted:
    """The prediction to verify, the profile, a note, and the load of the run that it is of; None: of none."""

    predictions: PredictionSet
    profile: Profile
    note: str
    load: str | None


def _predict(
    store: Store,
    run: Run,
    location: str,
    profile_file: Path | None,
    model: str | None,
    confidence: float | None,
    *,
    load: str,
    clients: int | None,
) -> _Predicted:
    """Return the prediction to verify, calculated from all samples.

    Model and confidence are those of the run's stored prediction, which the new one then replaces. A stored
    prediction with another model or confidence is kept.
    """
    from cephfit.core.errors import InputError
    from cephfit.core.profile_files import read_profile
    from cephfit.core.values.prediction import DEFAULT_CONFIDENCE, PredictionSet
    from cephfit.core.values.profile import Profile
    from cephfit.mapper import MODELS, predictor
    from cephfit.mapper.decisions.contrasts import ranked
    from cephfit.operations.ranking import ranked_for_clients
    from cephfit.results import open_baselines
    from cephfit.results.report.formatting import level
    from cephfit.results.store.sample_store import kind_of

    document = store.document(run.run_id, kind_of(PROFILE_DOCUMENT, load)) or store.document(
        run.run_id, PROFILE_DOCUMENT
    )
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
    mapped = store.document(run.run_id, kind_of(PREDICTIONS_DOCUMENT, load))
    stored = (
        None if mapped is None else PredictionSet.from_json(mapped, where=f"run {run.run_id}: stored predictions")
    )
    model = model or (stored.model if stored else MODELS[0])
    confidence = confidence or (stored.confidence if stored else DEFAULT_CONFIDENCE)
    model_predictor = predictor(model, confidence=confidence, with_error=True)
    if clients is not None:
        answer = ranked_for_clients(
            model_predictor, profile, location, run.run_id, load, clients, or_other_number=True
        )
        if answer.load != load:
            return _Predicted(answer.predictions, profile, _note_on(answer), answer.load)
    predictions = ranked(model_predictor, profile, open_baselines(location, run.run_id, load))
    if stored is None or (stored.model, stored.confidence) == (model, confidence):
        store.put_document(run.run_id, kind_of(PROFILE_DOCUMENT, load), profile.to_json())
        store.put_document(run.run_id, kind_of(PREDICTIONS_DOCUMENT, load), predictions.to_json())
        return _Predicted(predictions, profile, "", load)
    note = (
        f"this verifies the prediction for {profile.name} by model {model} at {level(confidence)}; "
        f"`cephfit report` still shows the stored one, for {stored.profile} by {stored.model} at "
        f"{level(stored.confidence)}"
    )
    return _Predicted(predictions, profile, note, load)


def _note_on(answer: PredictionForClients) -> str:
    """Return where the prediction for a number of clients comes from."""
    if answer.scaled is not None:
        return "; ".join(answer.scaled.notes())
    return answer.note or f"the prediction is from load {answer.load or 'of the measurement itself'}"


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


def _print(assessment: Assessment, note: str, rates: Mapping[str, ClientRates], n_clients: int) -> None:
    if note:
        click.echo(f"Note: {note}")
    print_table(
        ("configuration", "predicted", "measured", "error", f"{assessment.metric} of each run"),
        [_row(row) for row in assessment.rows],
        right=(1, 2, 3),
    )
    if rates:
        _print_rates(rates, n_clients, assessment.metric)
    click.echo()
    order = {True: "held", False: "did NOT hold", None: "is not clear from these runs"}[assessment.order_held]
    click.echo(f"The predicted order {order} (model {assessment.model}, workload {assessment.workload})")
    if assessment.regret_pct is not None:
        click.echo(f"Regret of following the prediction: {assessment.regret_text()}")
    for sentence in assessment.missed():
        click.echo(sentence)
    for line in assessment.notes:
        click.echo(f"Note: {line}")


def _print_rates(rates: Mapping[str, ClientRates], n_clients: int, metric: str) -> None:
    click.echo()
    click.echo(
        f"The values are sums of {n_clients} clients at once. Each client, in {metric} (means of the runs):"
    )
    print_table(
        ("configuration", "lowest", "median", "highest", "fairness"),
        [
            [name, f"{own.lowest:.1f}", f"{own.median:.1f}", f"{own.highest:.1f}", f"{own.fairness:.3f}"]
            for name, own in rates.items()
        ],
        right=(1, 2, 3, 4),
    )
    click.echo(
        f"Fairness: Jain's index, 1 where all clients are equal, {1 / n_clients:.3g} where one has everything"
    )


def _row(row: AssessmentRow) -> list[str]:
    return [
        row.configuration,
        interval_text(row.predicted_relative, row.predicted_low, row.predicted_high),
        "no value"
        if row.measured_relative is None
        else interval_text(row.measured_relative, row.measured_low, row.measured_high),
        "" if row.error_points is None else f"{row.error_points:+,.1f}",
        ", ".join(f"{value:.1f}" for value in row.values),
    ]


def interval_text(value: float, low: float | None, high: float | None) -> str:
    """Return a relative performance and its interval; an end that is None is unknown or has no limit."""
    if high is None and low:
        return f"{value:,.1f} (above {low:,.1f})"
    return f"{value:,.1f}" if low is None or high is None else f"{value:,.1f} ({low:,.1f} to {high:,.1f})"
