"""Build the report model from the contents of the store."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from cephfit import __version__
from cephfit.core.errors import InputError
from cephfit.core.statistics.sample_columns import OK, SampleColumns
from cephfit.core.units import MIB
from cephfit.core.values.assessment import Assessment
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.cells import CELLS
from cephfit.core.values.prediction import PredictionSet, Verdict, model_called
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import (
    OWN_LOAD,
    PREDICTIONS_DOCUMENT,
    PROFILE_DOCUMENT,
    STOPPING_DOCUMENT,
    VERIFICATION_DOCUMENT,
)
from cephfit.core.values.supply import Estimate, SupplySet
from cephfit.results.report import formatting
from cephfit.results.report.figures import report_figures
from cephfit.results.report.figures.cell_figures import (
    baseline_rows_of,
    cell_figures_of,
    heat_map_of,
    loaded_rates_of,
    percentile_figures,
)
from cephfit.results.report.figures.cpu_figures import cpu_section_of, cpu_use_of
from cephfit.results.report.figures.position_map import position_map
from cephfit.results.report.figures.rate_over_time import omits_behaviour, rate_figure
from cephfit.results.report.figures.report_figures import histograms_of, scaling_of, workload_figure
from cephfit.results.report.method_facts import method_of, n_rejected
from cephfit.results.report.report_model import (
    Findings,
    LatencyText,
    RateText,
    ReportModel,
)
from cephfit.results.report.run_notes import bottlenecks_of, continuations_of, controls_of, same_rounds
from cephfit.results.report.summary import answer_of, caveats_of, settings_of
from cephfit.results.statistics.loads import names_of, rows_of_load, title_of
from cephfit.results.statistics.sample_baselines import baselines_of, tried_of
from cephfit.results.statistics.scaling import curves_of
from cephfit.results.statistics.summary_statistics import CONFIDENCE
from cephfit.results.statistics.workload_rate import (
    WorkloadRate,
    mean_speeds,
    milliseconds,
    percentile_speeds,
    rate_notes,
    workload_rates,
)
from cephfit.results.store.sample_store import Store, kind_of


def latencies_of(findings: Findings, baselines: Baselines) -> dict[str, LatencyText]:
    """Return mean and 99th percentile of the mix by configuration; only what was measured in all its cells."""
    profile, samples, load = findings.profile, findings.samples, findings.load
    if profile is None or findings.predictions is None:
        return {}
    try:
        means = milliseconds(mean_speeds(profile, baselines, samples, load=load), CONFIDENCE)
    except InputError:
        return {}
    try:
        tails = milliseconds(percentile_speeds(profile, baselines, samples, 99.0, load=load), CONFIDENCE)
    except InputError:
        tails = {}
    return {name: LatencyText(_latency(mean), _latency(tails.get(name))) for name, mean in means.items()}


def _latency(found: Estimate | None) -> str:
    if found is None:
        return "–"
    low, high = (formatting.number(end) for end in (found.low, found.high))
    return formatting.number(found.value) + (f" ({low} to {high})" if found.is_known else "")


_SAME_RATIO = 0.01
"""Relative difference up to which a prediction is called the ratio of two rates."""

Serve = Callable[[Profile, Baselines, float], SupplySet]
"""Return what a workload needs and what each configuration serves, at a confidence."""
Predict = Callable[[Profile, Baselines, PredictionSet | None], PredictionSet]
"""Predict for a profile from baselines, with model and confidence of the given predictions, or the defaults."""


def read_findings(
    store: Store,
    run_id: str | None = None,
    load: str = OWN_LOAD,
    *,
    predict: Predict | None = None,
    serve: Serve | None = None,
    profile: Profile | None = None,
    samples: SampleColumns | None = None,
) -> Findings:
    """Read everything that the store holds of a run (the newest if None), to report on one of its loads.

    Args:
        predict: recalculates the prediction from the current samples, with the model and the confidence of the
            stored one. Without it the stored prediction is used, whatever was measured since.
        serve: compares what the workload needs with what is served; None: the report does not.
        profile: predict for this workload instead of the stored one; needs ``predict``.
        samples: of the run, if they were read already.

    Raises:
        StoreError: no such run.
        InputError: a document in the store cannot be read, nothing was measured under this load, or ``profile``
            uses a cell that the default was not measured in.
    """
    run = store.run(run_id)
    samples = store.samples(run.run_id) if samples is None else samples
    rows = rows_of_load(samples, load)
    kinds = (PROFILE_DOCUMENT, PREDICTIONS_DOCUMENT, VERIFICATION_DOCUMENT)
    *documents, verification = (store.document(run.run_id, kind_of(kind, load)) for kind in kinds)
    ok = rows[samples.state[rows] == OK]
    fio = store.fio_json(run.run_id, samples[int(ok[-1])].key) if len(ok) else None
    where = f"{store.name}, run {run.run_id}"

    @cache
    def baselines() -> Baselines:
        return baselines_of(samples, source=where, load=load)

    if profile is None:
        profile, predictions, renewed = _stored_prediction(documents, where, predict, baselines)
    else:
        assert predict is not None, "a profile alone predicts nothing"
        predictions, renewed = predict(profile, baselines(), None), ""
    supply = None
    if serve is not None and profile is not None and predictions is not None:
        supply = serve(profile, baselines(), predictions.confidence)
    return Findings(
        run=run,
        samples=samples,
        applied=tuple(store.applied(run.run_id)),
        workload_samples=tuple(store.workload_samples(run.run_id)),
        profile=profile,
        predictions=predictions,
        assessment=(
            None if verification is None else Assessment.from_json(verification, where=f"{where}: verification")
        ),
        fio=json.loads(fio) if fio else None,
        stopping=store.document(run.run_id, STOPPING_DOCUMENT),
        store=store.name,
        load=load,
        renewed=renewed,
        continuations=continuations_of(store, run.run_id),
        supply=supply,
    )


def _stored_prediction(
    documents: Sequence[Mapping[str, Any] | None],
    where: str,
    predict: Predict | None,
    baselines: Callable[[], Baselines],
) -> tuple[Profile | None, PredictionSet | None, str]:
    """Return the stored profile, and what ``_remade`` returns.

    Args:
        documents: profile and prediction.
        where: their origin, for errors.
    """
    of_profile, of_prediction = documents
    profile = None if of_profile is None else Profile.from_json(of_profile, where=f"{where}: profile")
    kept = None if of_prediction is None else PredictionSet.from_json(of_prediction, where=f"{where}: predictions")
    return (profile, *_remade(predict, profile, kept, baselines))


def _remade(
    predict: Predict | None,
    profile: Profile | None,
    kept: PredictionSet | None,
    baselines: Callable[[], Baselines],
) -> tuple[PredictionSet | None, str]:
    """Return the prediction from the current samples, and a sentence on the stored one if that differs."""
    if kept is None or predict is None:
        return kept, ""
    if profile is None:
        return None, (
            f"The stored prediction for {kept.profile} is not shown: the workload's profile is not stored, so the "
            "prediction cannot be recalculated from the current samples. Run `cephfit map` again."
        )
    try:
        now = predict(profile, baselines(), kept)
    except InputError as error:
        return None, (
            f"The stored prediction for {kept.profile} is not shown: it cannot be recalculated from the current "
            f"samples: {error.what}."
        )
    if _is_same_prediction(kept, now):
        return now, ""
    then = f"{kept.best} at {formatting.relative(kept.of(kept.best).relative)}"
    return now, (
        "The prediction was recalculated from the current samples. The stored prediction of `cephfit map` "
        f"(best: {then}) used fewer samples, or another version of cephfit."
    )


def _is_same_prediction(kept: PredictionSet, now: PredictionSet) -> bool:
    """Return whether both agree, except in the last digits, which depend on the build of NumPy."""
    if [p.configuration for p in kept.predictions] != [p.configuration for p in now.predictions]:
        return False
    return all(
        math.isclose(a, b, rel_tol=1e-9)
        for then, p in zip(kept.predictions, now.predictions, strict=True)
        for a, b in ((then.relative, p.relative), (then.low, p.low), (then.high, p.high))
    )


def report_of(findings: Findings, *, made_ns: int) -> ReportModel:
    """Return the report. Pure: the same findings and time give the same report.

    Args:
        made_ns: wall clock, ns since the epoch.
    """
    run, predictions, profile = findings.run, findings.predictions, findings.profile
    source = f"{findings.store}, run {run.run_id}"
    tried = tried_of(findings.samples, findings.load)
    baselines = baselines_of(findings.samples, source=source, load=findings.load, tried=tried)
    rates = rates_of(findings, baselines)
    ranked = [p.configuration for p in predictions.predictions] if predictions else []
    controls = controls_of(findings.applied, baselines, predictions)
    weights = report_figures.weights_of(predictions) if predictions else {}
    ends = list(dict.fromkeys([baselines.default, predictions.best, predictions.worst])) if predictions else []
    # These two read all percentiles and all evidence. What comes after them finds both read.
    latencies, method = latencies_of(findings, baselines), method_of(findings, baselines, controls)
    subject = predictions.profile if predictions else profile.name if profile else ""
    return ReportModel(
        title=f"{run.sweep_name} for {subject}" if subject else f"Sweep {run.sweep_name}",
        made_at=formatting.moment(made_ns),
        version=__version__,
        answer=answer_of(findings, is_load_limited=_is_load_limited(predictions, baselines)),
        ranking=(
            report_figures.ranking_of(
                predictions, controls.points if controls else None, settings_of(findings.applied)
            )
            if predictions
            else None
        ),
        verification=report_figures.verification_of(findings.assessment) if findings.assessment else None,
        weights=report_figures.cell_weights_of(predictions) if predictions else (),
        heat_map=heat_map_of(baselines, weights, ranked),
        loaded_rates=loaded_rates_of(baselines, ranked),
        baselines=baseline_rows_of(baselines, cell_figures_of(tried)),
        workload=workload_figure(profile) if profile else None,
        histograms=histograms_of(profile) if profile else (),
        caveats=caveats_of(findings, n_rejected(findings), controls, load_notes(findings, baselines)),
        method=method,
        bottlenecks=bottlenecks_of(findings.samples, load=findings.load),
        cpu=cpu_section_of(cpu_use_of(tried), weights),
        scaling=scaling_of(curves_of(findings.samples), ranked, weights),
        load=title_of(findings.load) if len(names_of(findings.samples)) > 1 else "",
        rates={name: _rate_text(rate) for name, rate in rates.items()},
        latencies=latencies,
        percentiles=percentile_figures(tried, weights, ends),
        explains=are_its_ratios(findings.predictions, rates),
        supply=findings.supply,
        same_rounds=same_rounds(baselines),
        rate_over_time=rate_figure(profile, findings.supply, predictions.best if predictions else "")
        if profile
        else None,
        positions=position_map(profile) if profile else None,
        omits_behaviour=omits_behaviour(profile) if profile else False,
    )


def rates_of(findings: Findings, baselines: Baselines) -> dict[str, WorkloadRate]:
    """Return the rate of the predicted workload under each configuration; empty without a prediction."""
    if findings.profile is None or findings.predictions is None:
        return {}
    return workload_rates(findings.profile, baselines)


def are_its_ratios(predictions: PredictionSet | None, rates: Mapping[str, WorkloadRate]) -> bool:
    """Return whether the rates in the cells of the load lead to the prediction.

    They do not where the prediction used other depths, other loads, or what the workload waited for. A model that
    does not add up time has no rates of its own: there they say only what the default serves.
    """
    if predictions is None or not model_called(predictions.model).adds_time:
        return True
    default = next(p.configuration for p in predictions.predictions if p.verdict is Verdict.DEFAULT)
    if default not in rates:
        return True
    base = rates[default].accesses_per_s.mean
    return all(
        math.isclose(p.relative, 100 * rates[p.configuration].accesses_per_s.mean / base, rel_tol=_SAME_RATIO)
        for p in predictions.predictions
        if p.configuration in rates
    )


def _is_load_limited(predictions: PredictionSet | None, baselines: Baselines) -> bool:
    at_limit = baselines.measured_load.at_limit
    rows = predictions.predictions if predictions else ()
    return any((p.configuration, reason.cell) in at_limit for p in rows for reason in p.reasons)


def load_notes(findings: Findings, baselines: Baselines) -> tuple[str, ...]:
    """Return notes on the load; where its limit was reached is in a prediction's own notes."""
    if findings.profile is not None and findings.predictions is not None:
        return rate_notes(findings.profile, baselines)
    cells = [cell for cell in CELLS if any(place[1] == cell for place in baselines.cells)]
    reached = baselines.measured_load.reached_in(baselines.configurations, cells)
    return (f"{reached[0].upper()}{reached[1:]}.",) if reached else ()


def _rate_text(rate: WorkloadRate) -> RateText:
    found = rate.accesses_per_s.interval
    ends = f"{formatting.number(found.low)} to {formatting.number(found.high)}" if found else ""
    return RateText(
        accesses_per_s=formatting.number(rate.accesses_per_s.mean),
        interval=ends,
        mib_per_s=formatting.number(rate.nbytes_per_s / MIB),
        without=formatting.names(list(map(str, rate.omitted))) if rate.omitted else "",
    )
