"""The summary of a report: the answer, its caveats, and what each configuration sets."""

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from cephfit.core.protocols import Applied
from cephfit.core.values.assessment import Assessment, AssessmentRow
from cephfit.core.values.fit import fit_of, uncertain
from cephfit.core.values.prediction import MOST_NAMED, Prediction, PredictionSet, Verdict, listed, model_called
from cephfit.core.values.sample import IMPORTED
from cephfit.results.report import formatting
from cephfit.results.report.method_facts import REJECTED_SHOWN
from cephfit.results.report.report_model import Answer, Findings
from cephfit.results.report.run_notes import Controls, rates_still_falling, stalls_note

_SHOWN = 6
"""Number of settings that one line names; the table of settings as read back has all."""


def settings_of(applied: Iterable[tuple[int, Applied]]) -> dict[str, str]:
    """Return the settings of each applied configuration as text; empty for one without settings."""
    return {one.configuration: _settings_text(one.read_back) for _, one in applied if one.ok}


def _settings_text(read_back: Mapping[str, object]) -> str:
    settings = [_setting(text) for text in sorted(read_back)]
    left = len(settings) - _SHOWN
    return ", ".join(settings[:_SHOWN]) + (f" and {left} more" if left > 0 else "")


def _setting(text: str) -> str:
    """``ceph/osd/NAME = VALUE`` as ``osd: NAME = VALUE``; settings of a pool have no prefix."""
    name, equals, value = text.partition(" = ")
    _, _, place = name.partition("/")
    scope, _, key = place.rpartition("/")
    return f"{key}{equals}{value}" if scope == "pool" else f"{scope}: {key}{equals}{value}"


STOPPED_EARLY = (
    "Measuring stopped when the sweep's question was decided. Configurations that dropped out early have fewer "
    "repeats and wider intervals. No interval here accounts for the interim analyses."
)

LOAD_LIMIT_REACHED = (
    "The load's own limit was reached in cells of this workload. It hides what the storage can do there; the "
    "section on limits below names the cells."
)


def answer_of(findings: Findings, *, is_load_limited: bool = False) -> Answer:
    """Return the first lines of the report.

    Args:
        is_load_limited: the load's own limit was reached in cells that the prediction uses.
    """
    warning = ""
    if findings.run.is_simulated:
        warning = "Simulated figures: the target was a simulated cluster. They do not apply to any real cluster."
    elif findings.run.is_imported:
        warning = "Imported figures: cephfit did not measure them, and its checks did not apply."
    predictions = findings.predictions
    if predictions is None:
        nothing_yet = (
            "No workload has been predicted from these samples yet. "
            f"Use `cephfit map PROFILE --baselines {findings.store or 'STORE'}`."
        )
        return Answer(_sweep_alone(findings), (findings.renewed or nothing_yet,), warning)
    sentences = [
        *_fit(findings),
        *_what_to_set(findings, predictions),
        *_as_good(predictions),
        *_worst(findings, predictions),
        *_indistinguishable(predictions),
        *([LOAD_LIMIT_REACHED] if is_load_limited else []),
        _verified(findings, predictions),
        *_missed(findings, predictions),
        *_how_to_apply(findings, predictions),
    ]
    return Answer(_headline(findings, predictions), tuple(sentences), warning)


def is_about(assessment: Assessment, predictions: PredictionSet) -> bool:
    """Return whether the assessment is of these predictions, not of another model or profile."""
    relatives = {p.configuration: p.relative for p in predictions.predictions}
    return assessment.model == predictions.model and all(
        math.isclose(relatives.get(row.configuration, math.nan), row.predicted_relative, rel_tol=1e-9)
        for row in assessment.rows
    )


def caveats_of(
    findings: Findings, rejected: int, controls: Controls | None, of_the_load: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return the caveats: what limits the answer.

    Args:
        rejected: number of samples that do not count.
        controls: A/A controls, which are the default under other names; None without any.
        of_the_load: notes on the load under which the samples were measured (``load_notes``).
    """
    caveats = [
        *_of_predictions(findings),
        *of_the_load,
        *findings.continuations,
        *_of_samples(findings, has_controls=controls is not None),
        *_of_assessment(findings),
        *_of_facts(findings.run.facts),
    ]
    if findings.stopping:
        caveats.append(STOPPED_EARLY)
    if rejected:
        which = "them" if rejected <= REJECTED_SHOWN else f"the first {REJECTED_SHOWN} of them"
        caveats.append(
            f"{formatting.count(rejected, 'sample')} rejected; the list below names {which} and the reasons."
        )
    if not findings.run.finished:
        caveats.append("The sweep is not finished; the missing samples may change the answer.")
    return tuple(dict.fromkeys(caveats))


def _of_predictions(findings: Findings) -> Iterator[str]:
    if findings.run.is_simulated:
        yield "All figures are simulated."
    if findings.run.is_imported:
        yield f"{IMPORTED[0]}{IMPORTED[1:8].lower()}{IMPORTED[8:]}."
    predictions = findings.predictions
    if predictions is None:
        return
    yield f"Model {predictions.model}: {model_called(predictions.model).sentence}."
    yield (
        f"The intervals hold jointly for all configurations at {formatting.level(predictions.confidence)}. "
        "They cover the scatter of the benchmark, and the error of the model where the answer says so. "
        "Phases, bursts, and interference between cells are not covered."
    )
    yield from predictions.notes
    if findings.renewed:
        yield findings.renewed
    if findings.supply:
        yield from (f"{note[0].upper()}{note[1:]}" for note in findings.supply.notes)


def _of_samples(findings: Findings, *, has_controls: bool) -> Iterator[str]:
    samples = findings.samples
    if falling := rates_still_falling(samples, samples.rows_under(findings.load)):
        yield falling
    if stalls := stalls_note(samples, samples.rows_under(findings.load)):
        yield stalls
    if not has_controls and len(np.unique(samples.configuration)) > 1:
        yield (
            "There is no A/A control, so the difference between two measurements of the default is unknown. To "
            "add a control, declare a configuration without settings in the sweep file."
        )
    n_repeats = len(np.unique(samples.repeat))
    if 0 < n_repeats < 3:
        yield (
            f"Each cell was measured in only {formatting.count(n_repeats, 'repeat')}, which is too few to "
            "estimate its spread. The intervals also use the scatter of the same cell under the other "
            "configurations."
        )


def _of_assessment(findings: Findings) -> Iterator[str]:
    predictions, assessment = findings.predictions, findings.assessment
    if assessment is None:
        return
    if predictions is not None and not is_about(assessment, predictions):
        yield (
            "The measured values of the real workload verify another prediction than the one above: an "
            "earlier one, or one of another model or workload."
        )
    fewest = min((row.n for row in assessment.rows), default=0)
    if fewest < 3:
        yield (
            f"The real workload gave as few as {formatting.count(fewest, 'value')} per configuration, so the "
            "measured figures are uncertain."
        )
    yield from assessment.notes


def _of_facts(facts: Mapping[str, Any]) -> Iterator[str]:
    for name, sentences in facts.get("without_effect", {}).items():
        yield f"Configuration {name} has settings without effect here: {'; '.join(sentences)}."
    limits = facts.get("limits", {})
    for sentence in dict.fromkeys(s for sentences in limits.values() for s in sentences):
        under = [name for name, sentences in limits.items() if sentence in sentences]
        yield f"A limit of the clients, not of the storage, under {', '.join(under)}: {sentence}."
    if in_memory := facts.get("in_memory"):
        yield f"{in_memory[:1].upper()}{in_memory[1:]}."
    for name, sentences in facts.get("left_out", {}).items():
        yield f"Configuration {name} was measured without options that no longer exist: {'; '.join(sentences)}."


def _headline(findings: Findings, predictions: PredictionSet) -> str:
    best = predictions.of(predictions.best)
    if best.verdict is Verdict.DEFAULT:
        return (
            f"For the workload {predictions.profile}, no configuration is predicted to be distinguishably better "
            f"than the default, {best.configuration}."
        )
    predicted = f"configuration {best.configuration} is predicted to be {_times(best, predictions.confidence)}"
    doubt = _doubt(best, "better")
    return f"For the workload {predictions.profile}, {predicted}{_measured(findings, best.configuration)}.{doubt}"


def _doubt(extreme: Prediction, direction: str) -> str:
    """Return a sentence on an extreme that the samples show, but that is within the error of the model."""
    if extreme.verdict is not Verdict.INDISTINGUISHABLE:
        return ""
    text = uncertain(direction)
    return f" {text[0].upper()}{text[1:]}."


def _fit(findings: Findings) -> list[str]:
    if findings.supply is None:
        return []
    text = fit_of(findings.supply).text
    return [f"{text[0].upper()}{text[1:]}."]


def _what_to_set(findings: Findings, predictions: PredictionSet) -> list[str]:
    sets = settings_of(findings.applied).get(predictions.best)
    if predictions.of(predictions.best).verdict is Verdict.DEFAULT or not sets:
        return []
    return [f"Configuration {predictions.best} sets {sets}."]


def _how_to_apply(findings: Findings, predictions: PredictionSet) -> list[str]:
    if not _what_to_set(findings, predictions):
        return []
    words = ["cephfit", "apply", predictions.best, "--baselines", findings.store or "STORE"]
    line = shlex.join([*words, "--run", findings.run.run_id])
    return [
        f"`{line}` prints the commands that apply it and those that undo it; with --target it shows what would "
        "change on a cluster."
    ]


def _as_good(predictions: PredictionSet) -> list[str]:
    if not predictions.as_good:
        return []
    return [f"Not distinguishable from {predictions.best}, and possibly as good: {_some(predictions.as_good)}."]


def _some(names: Sequence[str]) -> str:
    return formatting.names(names) if len(names) <= MOST_NAMED else listed(names)


def _worst(findings: Findings, predictions: PredictionSet) -> list[str]:
    worst = predictions.of(predictions.worst)
    if worst.verdict is Verdict.DEFAULT:
        return ["No configuration is predicted to be distinguishably worse than the default."]
    predicted = f"The worst is {worst.configuration}, predicted to be {_times(worst, predictions.confidence)}"
    return [f"{predicted}{_measured(findings, worst.configuration)}.{_doubt(worst, 'worse')}"]


def _times(prediction: Prediction, confidence: float) -> str:
    factor = f"{formatting.times(prediction.relative)} times as fast as the default"
    if prediction.low > 0 and math.isfinite(prediction.high):
        ends = f"{formatting.times(prediction.low)} to {formatting.times(prediction.high)}"
        return f"{factor} ({formatting.level(confidence)} interval {ends})"
    # One end is open where the load's own limit was reached: rates there are lower bounds.
    bound = f"times as fast as the default (at {formatting.level(confidence)})"
    if prediction.low > 0:
        return f"at least {formatting.times(prediction.low)} {bound}"
    if math.isfinite(prediction.high):
        return f"at most {formatting.times(prediction.high)} {bound}"
    return f"{factor} (its interval is not known)"


def _measured(findings: Findings, configuration: str) -> str:
    assessment, predictions = findings.assessment, findings.predictions
    if assessment is None or predictions is None or not is_about(assessment, predictions):
        return ""
    row = assessment.of(configuration)
    if row is None or row.measured_relative is None:
        return ""
    ran = "" if assessment.workload == predictions.profile else f" with {assessment.workload}"
    return f", and measured {formatting.times(row.measured_relative)} times as fast{ran} ({_ends(row)})"


def _ends(row: AssessmentRow) -> str:
    runs = formatting.count(row.n, "run")
    if row.measured_low is None or row.measured_high is None:
        return runs
    return f"{formatting.times(row.measured_low)} to {formatting.times(row.measured_high)}, {runs}"


def _indistinguishable(predictions: PredictionSet) -> list[str]:
    extremes = (predictions.best, predictions.worst)
    same = [
        p.configuration
        for p in predictions.predictions
        if p.verdict is Verdict.INDISTINGUISHABLE and p.configuration not in extremes
    ]
    return [f"Not distinguishable from the default: {_some(same)}."] if same else []


def _verified(findings: Findings, predictions: PredictionSet) -> str:
    assessment = findings.assessment
    if assessment is None:
        return (
            "This is only a prediction: cephfit verify has not run the real workload on these configurations yet."
        )
    ran = f"{assessment.workload} was run on {formatting.count(len(assessment.rows), 'configuration')}"
    if not is_about(assessment, predictions):
        return f"{ran} to verify another prediction; this one has not been verified yet."
    if len(assessment.rows) < 2:
        return f"{ran} only, so there is nothing to compare."
    measured = [row.measured_relative for row in assessment.rows if row.measured_relative is not None]
    if len(measured) < 2:
        return f"{ran}, but gave too few values to judge the prediction."
    if assessment.regret_pct is None:
        best = predictions.best
        why = "gave no value" if assessment.of(best) else "was not run"
        return (
            f"{ran}. {_order(assessment, measured)} The predicted best, {best}, {why}, so the cost of following "
            "the prediction is unknown."
        )
    return (
        f"{ran}. {_order(assessment, measured)} The cost of following the prediction, compared with the best "
        f"configuration that was run, is {assessment.regret_text()}."
    )


def _missed(findings: Findings, predictions: PredictionSet) -> tuple[str, ...]:
    assessment = findings.assessment
    return assessment.missed() if assessment is not None and is_about(assessment, predictions) else ()


def _order(assessment: Assessment, measured: list[float]) -> str:
    """Return a sentence on the measured order; ``measured`` is in the predicted order."""
    if assessment.order_held is None and sum(row.measured_low is not None for row in assessment.rows) < 2:
        return "The runs are too few to estimate their noise, so the order cannot be judged."
    if assessment.order_held is None and assessment.in_order:
        return "These runs cannot distinguish any of the configurations whose order was predicted."
    if assessment.order_held is None:
        return "Their predicted intervals overlap, so no order was predicted."
    if not assessment.order_held:
        return "The measured order is NOT the predicted one."
    if all(ahead > behind for ahead, behind in pairwise(measured)):
        if assessment.ties is None:
            return "The measured order is the predicted one, as far as these runs can show."
        tied = "; ".join(f"{ahead} from {behind}" for ahead, behind in assessment.ties)
        if tied:
            return f"The measured order is the predicted one, but these runs cannot distinguish {tied}."
        return "The measured order is the predicted one."
    return (
        "The measured order does not contradict the prediction: where it differs, these runs cannot distinguish "
        "the configurations, or the predicted intervals overlap."
    )


def _sweep_alone(findings: Findings) -> str:
    run = findings.run
    n_configurations, n_cells = (
        len(np.unique(c)) for c in (findings.samples.configuration, findings.samples.cell)
    )
    if not findings.samples:
        return f"The sweep {run.sweep_name} on {run.target} has no samples yet."
    return (
        f"The sweep {run.sweep_name} on {run.target} measured "
        f"{formatting.count(n_configurations, 'configuration')} in {formatting.count(n_cells, 'cell')}."
    )
