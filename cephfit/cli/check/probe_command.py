"""`cephfit probe`: run a clone of the workload on the configurations whose order the prediction leaves open."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.check.verify_command import interval_text
from cephfit.cli.options.common_options import (
    Finite,
    cluster_options,
    confidence_option,
    keep_option,
    model_option,
    needed_apply_option,
    run_of_sweep_option,
    store_option,
    sweep_option,
    target_option,
)
from cephfit.cli.output import json_option, print_json, print_table, sigterm_as_interrupt
from cephfit.core.values.demand import CLONE_ERROR, MOST_CANDIDATES
from cephfit.core.values.sample import PROBE_DOCUMENT
from cephfit.operations.measuring.cluster_options import ClusterOptions
from cephfit.operations.measuring.progress_display import progress_display

if TYPE_CHECKING:
    from cephfit.core.values.assessment import Assessment, AssessmentRow
    from cephfit.core.values.prediction import Prediction, PredictionSet
    from cephfit.core.values.sample import Run
    from cephfit.mapper.decisions.probe import Candidates


@click.command()
@click.argument("profile_file", metavar="PROFILE", type=click.Path(path_type=Path))
@sweep_option
@store_option
@run_of_sweep_option
@target_option("lab", "lab:NAME", "ceph", "ceph:NAME", "sim")
@model_option
@confidence_option
@click.option(
    "--candidates",
    type=click.IntRange(min=2),
    default=MOST_CANDIDATES,
    show_default=True,
    help="Most configurations to run, with the default; the predicted worst may be one more.",
)
@click.option(
    "--repeats", type=click.IntRange(min=2), default=3, show_default=True, help="Runs per configuration."
)
@click.option(
    "--seconds", type=Finite(min=1), default=20.0, show_default=True, help="Measured seconds of each run."
)
@click.option("--size", metavar="SIZE", help="Used part of the volume.  [default: the footprint, at most 1G]")
@click.option(
    "--clone-error",
    type=Finite(0.0, 2.0),
    default=CLONE_ERROR,
    show_default=True,
    help="Standard deviation of the log of the clone's relative performance over the workload's.",
)
@keep_option
@needed_apply_option
@cluster_options
@json_option
def command(
    profile_file: Path,
    sweep_text: str,
    store: str,
    run_id: str | None,
    target_text: str,
    model: str,
    confidence: float,
    candidates: int,
    repeats: int,
    seconds: float,
    size: str | None,
    clone_error: float,
    keep: bool,
    apply: bool,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Run a clone of the workload in PROFILE where the prediction is close, and combine both.

    The clone is a fio job with the sizes, alignment, mix, randomness, depths, flushes and pauses of the profile.
    It runs on the default, the highest prediction and those that may be as good, and on the lowest prediction if
    it may be no worse than the default. If the prediction is clear, nothing runs. Runs are interleaved, repeated
    and stored like those of `cephfit verify`, and an interrupted probe continues where it stopped. The combined
    prediction is the mean of both, weighted by their precision. docs/evaluation.md has an example. A cluster that
    cephfit did not create needs `--apply`. A simulated target (`sim`) runs the accesses of the profile at its true
    rates, with noise.
    """
    from cephfit.core.profile_files import read_profile
    from cephfit.core.units import NS_PER_S, parse_nbytes
    from cephfit.mapper import predictor
    from cephfit.mapper.assessment.prediction_assessment import assess
    from cephfit.mapper.decisions.contrasts import ranked
    from cephfit.mapper.decisions.probe import combined, probe_candidates
    from cephfit.operations.measuring.run_status import known_of
    from cephfit.operations.measuring.sweep_measurement import clone_trial, run_of, target_of
    from cephfit.results import open_baselines
    from cephfit.results.store.sample_store import Store, kind_of
    from cephfit.sweep.declaration.sweep_file import find_sweep, read_sweep
    from cephfit.sweep.optimiser import with_trials
    from cephfit.sweep.verification import verify

    nbytes = None if size is None else parse_nbytes(size, where="--size")
    profile, sweep = read_profile(profile_file), read_sweep(find_sweep(sweep_text))
    with sigterm_as_interrupt(), Store.open(store, writing=True) as opened, progress_display() as progress:
        run = run_of(opened, sweep, run_id)
        before = ranked(
            predictor(model, confidence=confidence, with_error=True), profile, open_baselines(store, run.run_id)
        )
        chosen = probe_candidates(before, candidates)
        if not chosen.names:
            _print_unneeded(run, before, chosen, as_json=as_json)
            return
        known = {c.name: c for c in with_trials(sweep, known_of(opened, run).trials).configurations}
        progress.note(f"{chosen.reason}: the clone runs on {', '.join(chosen.names)}")
        with target_of(
            run, target_text, store=opened, cluster=cluster, apply=apply, keep=keep, progress=progress
        ) as target:
            trial = clone_trial(
                target,
                profile,
                nbytes=nbytes,
                repeats=repeats,
                seconds=seconds,
                seed=run.seed,
                cache=sweep.measurement.cache,
            )
            samples = verify(
                target,
                [known[name] for name in chosen.names],
                trial,
                store=opened,
                run_id=run.run_id,
                progress=progress,
            )
        name = trial.workload.name
        probe = assess(replace(before, profile=name), samples, name)
        after = combined(before, probe.rows, clone_error=clone_error)
        document: dict[str, Any] = {
            "run": run.run_id,
            "workload": name,
            "candidates": list(chosen.names),
            "reason": chosen.reason,
            "minutes": sum(s.finished_ns - s.started_ns for s in samples) / NS_PER_S / 60,
            "clone_error": clone_error,
            "before": before.to_json(),
            "probe": probe.to_json(),
            "after": after.to_json(),
        }
        opened.put_document(run.run_id, kind_of(PROBE_DOCUMENT, profile.name), document)
    if as_json:
        print_json(document)
    else:
        _print(before, probe, after, repeats=repeats, minutes=document["minutes"])


def _print_unneeded(run: Run, before: PredictionSet, chosen: Candidates, *, as_json: bool) -> None:
    if as_json:
        print_json({"run": run.run_id, "candidates": [], "reason": chosen.reason, "before": before.to_json()})
    else:
        click.echo(f"No probe is needed: {chosen.reason}")


def _print(
    before: PredictionSet, probe: Assessment, after: PredictionSet, *, repeats: int, minutes: float
) -> None:
    measured = {row.configuration: row for row in probe.rows}
    print_table(
        ("configuration", "predicted", "clone", "combined", "verdict"),
        [
            [
                p.configuration,
                interval_text(*_of(before.of(p.configuration))),
                _measured(measured.get(p.configuration)),
                interval_text(*_of(p)) if p.configuration in measured else "as predicted",
                p.verdict.value,
            ]
            for p in after.predictions
        ],
        right=(1, 2, 3),
    )
    click.echo()
    click.echo(f"Model {before.model}, clone {probe.workload}: {minutes:.1f} minutes")
    click.echo(f"Best before the probe: {_best(before)}; after it: {_best(after)}")
    for row in probe.rows:
        if row.n < repeats:
            click.echo(f"Note: {row.configuration}: {row.n} of {repeats} runs gave a value")


def _best(predictions: PredictionSet) -> str:
    """Return the best configuration, and those that may be as good."""
    if predictions.as_good:
        return f"{predictions.best} (not distinguishable from it: {', '.join(predictions.as_good)})"
    return predictions.best


def _of(prediction: Prediction) -> tuple[float, float | None, float | None]:
    return prediction.relative, prediction.low, prediction.high if math.isfinite(prediction.high) else None


def _measured(row: AssessmentRow | None) -> str:
    if row is None:
        return ""
    if row.measured_relative is None:
        return "no value"
    return interval_text(row.measured_relative, row.measured_low, row.measured_high)
