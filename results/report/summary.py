"""The answer in plain words: the summary of a report.

What the configurations of a run set, in few words: a name alone tells nobody what to do.

The answer in plain words, and what must be known beside it.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from cephfit.core.protocols import Applied
from cephfit.core.values.assessment import Assessment, AssessmentRow
from cephfit.core.values.prediction import Prediction, PredictionSet, Verdict
from cephfit.core.values.prediction_model import model_called
from cephfit.results.report import formatting
from cephfit.results.report.method_facts import TROUBLES_SHOWN
from cephfit.results.report.report_model import Answer, Findings
from cephfit.results.statistics.run_caveats import Controls

_SHOWN = 6
"""Settings that one line names; the table of what was read back has all."""


def settings_of(applied: Iterable[tuple[int, Applied]]) -> dict[str, str]:
    """Each configuration that was applied, and its settings; empty for one without, as the default is."""
    return {one.configuration: _words(one.read_back) for _, one in applied if one.ok}


def _words(read_back: Mapping[str, object]) -> str:
    settings = [_setting(text) for text in sorted(read_back)]
    left = len(settings) - _SHOWN
    return ", ".join(settings[:_SHOWN]) + (f" and {left} more" if left > 0 else "")


def _setting(text: str) -> str:
    """``ceph/osd/NAME = VALUE`` as ``osd: NAME = VALUE``; what a pool has stands without ``pool:``."""
    name, equals, value = text.partition(" = ")
    _, _, place = name.partition("/")
    scope, _, key = place.rpartition("/")
    return f"{key}{equals}{value}" if scope == "pool" else f"{scope}: {key}{equals}{value}"


STOPPED_EARLY = (
    "Repeats were taken only until the sweep's question was decided: configurations that dropped out early have "
    "fewer of them and wider intervals, and no interval here accounts for the interim looks."
)

HELD_BACK = (
    "The load's own limit was reached in cells of this workload, and hides what the storage can do there: what "
    "limits the answer, below, says where."
)


def answer_of(findings: Findings, *, is_held_back: bool = False) -> Answer:
    """The first lines of the report.

    Args:
        is_held_back: the load's own limit was reached in cells that the prediction is from.
    """
    warning = ""
    if findings.run.is_simulated:
        warning = (
            "Simulated figures: the target was a simulated cluster with a known truth. They say nothing about "
            "any real cluster."
        )
    predictions = findings.predictions
    if predictions is None:
        nothing_yet = (
            "No workload has been predicted from these figures yet; "
            f"`cephfit map PROFILE --baselines {findings.store or 'STORE'}` does that."
        )
        return Answer(_sweep_alone(findings), (findings.renewed or nothing_yet,), warning)
    sentences = [
        *_what_to_set(findings, predictions),
        *_as_good(predictions),
        *_worst(findings, predictions),
        *_indistinguishable(predictions),
        *([HELD_BACK] if is_held_back else []),
        _verified(findings, predictions),
        *_missed(findings, predictions),
    ]
    return Answer(_headline(findings, predictions), tuple(sentences), warning)


def is_about(assessment: Assessment, predictions: PredictionSet) -> bool:
    """Whether these are the predictions that the runs were held against, not those of another map or profile."""
    relatives = {p.configuration: p.relative for p in predictions.predictions}
    return assessment.model == predictions.model and all(
        math.isclose(relatives.get(row.configuration, math.nan), row.predicted_relative, rel_tol=1e-9)
        for row in assessment.rows
    )


def caveats_of(
    findings: Findings, troubles: int, controls: Controls | None, of_the_load: Sequence[str] = ()
) -> tuple[str, ...]:
    """What limits the answer.

    Args:
        troubles: samples that do not count.
        controls: the default under other names; None without any.
        of_the_load: what the load that was measured does to the figures (``load_notes``).
    """
    caveats: list[str] = []
    predictions, assessment = findings.predictions, findings.assessment
    if findings.run.is_simulated:
        caveats.append("All figures are simulated.")
    if predictions is not None:
        caveats.append(f"Model {predictions.model}: {model_called(predictions.model).sentence}.")
        caveats.append(
            f"Its intervals hold for all configurations jointly at {formatting.level(predictions.confidence)}. "
            "They cover the scatter of the benchmark, not what the model leaves out: phases, bursts, caches, and "
            "cells that interfere with each other."
        )
        caveats += predictions.notes
        caveats += [findings.renewed] if findings.renewed else []
    caveats += of_the_load
    caveats += findings.continuations
    if controls is None and len({sample.key.configuration for sample in findings.samples}) > 1:
        caveats.append(
            "The default was not measured a second time under another name, so the difference between two such "
            "measurements is unknown. A configuration without settings in the sweep file is such a control."
        )
    repeats = {sample.key.repeat for sample in findings.samples}
    if findings.samples and len(repeats) < 3:
        caveats.append(
            f"Each cell was measured in {formatting.count(len(repeats), 'repeat')} only. Its own spread says "
            "little, so the intervals borrow from the scatter of the same cell under the other configurations."
        )
    if assessment is not None:
        if predictions is not None and not is_about(assessment, predictions):
            caveats.append(
                "The real workload was compared with another prediction than the one above: an earlier one, or "
                "one of another model or workload. The comparison shown is that one."
            )
        fewest = min((row.n for row in assessment.rows), default=0)
        if fewest < 3:
            caveats.append(
                f"The real workload gave as few as {formatting.count(fewest, 'value')} per configuration: "
                "read the measured figures with care."
            )
        caveats += assessment.notes
    for name, sentences in findings.run.facts.get("without_effect", {}).items():
        caveats.append(f"Configuration {name} has settings without effect here: {'; '.join(sentences)}.")
    limits = findings.run.facts.get("limits", {})
    for sentence in dict.fromkeys(s for sentences in limits.values() for s in sentences):
        under = [name for name, sentences in limits.items() if sentence in sentences]
        caveats.append(f"A limit of the clients, not of the storage, under {', '.join(under)}: {sentence}.")
    if in_memory := findings.run.facts.get("in_memory"):
        caveats.append(f"{in_memory[:1].upper()}{in_memory[1:]}.")
    for name, sentences in findings.run.facts.get("left_out", {}).items():
        caveats.append(
            f"Configuration {name} was measured without options that no longer exist: {'; '.join(sentences)}."
        )
    if findings.stopping:
        caveats.append(STOPPED_EARLY)
    if troubles:
        which = "" if troubles <= TROUBLES_SHOWN else f" of the first {TROUBLES_SHOWN}"
        said = f"the list below says which and why{which}"
        caveats.append(f"{formatting.count(troubles, 'sample')} rejected; {said}.")
    if not findings.run.finished:
        caveats.append("The sweep is not finished: what is missing may change the answer.")
    return tuple(dict.fromkeys(caveats))


def _headline(findings: Findings, predictions: PredictionSet) -> str:
    best = predictions.of(predictions.best)
    if best.verdict is Verdict.DEFAULT:
        return (
            f"For the workload {predictions.profile}, no configuration is predicted to be distinguishably better "
            f"than the default, {best.configuration}."
        )
    said = f"configuration {best.configuration} is predicted {_times(best, predictions.confidence)}"
    return f"For the workload {predictions.profile}, {said}{_measured(findings, best.configuration)}."


def _what_to_set(findings: Findings, predictions: PredictionSet) -> list[str]:
    sets = settings_of(findings.applied).get(predictions.best)
    if predictions.of(predictions.best).verdict is Verdict.DEFAULT or not sets:
        return []
    return [f"Configuration {predictions.best} sets {sets}."]


def _as_good(predictions: PredictionSet) -> list[str]:
    if not predictions.as_good:
        return []
    return [
        f"Not distinguishable from {predictions.best}: {formatting.names(predictions.as_good)}; "
        "these may be as good."
    ]


def _worst(findings: Findings, predictions: PredictionSet) -> list[str]:
    worst = predictions.of(predictions.worst)
    if worst.verdict is Verdict.DEFAULT:
        return ["No configuration is predicted to be distinguishably worse than the default."]
    said = f"The worst is {worst.configuration}: predicted {_times(worst, predictions.confidence)}"
    return [f"{said}{_measured(findings, worst.configuration)}."]


def _times(prediction: Prediction, confidence: float) -> str:
    said = f"{formatting.times(prediction.relative)} times the default"
    if prediction.low > 0 and math.isfinite(prediction.high):
        ends = f"{formatting.times(prediction.low)} to {formatting.times(prediction.high)}"
        return f"{said} ({formatting.level(confidence)} interval {ends})"
    # One end is open where the load's own limit was reached: rates there are lower bounds.
    if prediction.low > 0:
        return f"at least {formatting.times(prediction.low)} times the default (at {formatting.level(confidence)})"
    if math.isfinite(prediction.high):
        return f"at most {formatting.times(prediction.high)} times the default (at {formatting.level(confidence)})"
    return f"{said} (its interval is not known)"


def _measured(findings: Findings, configuration: str) -> str:
    assessment, predictions = findings.assessment, findings.predictions
    if assessment is None or predictions is None or not is_about(assessment, predictions):
        return ""
    row = assessment.of(configuration)
    if row is None or row.measured_relative is None:
        return ""
    ran = "" if assessment.workload == predictions.profile else f" by {assessment.workload}"
    return f", and measured {formatting.times(row.measured_relative)} times{ran} ({_ends(row)})"


def _ends(row: AssessmentRow) -> str:
    runs = formatting.count(row.n, "run")
    if row.measured_low is None or row.measured_high is None:
        return runs
    return f"{formatting.times(row.measured_low)} to {formatting.times(row.measured_high)}, {runs}"


def _indistinguishable(predictions: PredictionSet) -> list[str]:
    same = [p.configuration for p in predictions.predictions if p.verdict is Verdict.INDISTINGUISHABLE]
    return [f"Not distinguishable from the default: {formatting.names(same)}."] if same else []


def _verified(findings: Findings, predictions: PredictionSet) -> str:
    assessment = findings.assessment
    if assessment is None:
        return "The real workload has not been run on these configurations yet: this is only a prediction."
    ran = f"{assessment.workload} was run on {formatting.count(len(assessment.rows), 'configuration')}"
    if not is_about(assessment, predictions):
        return f"{ran} to judge another prediction; this one has not been verified yet."
    if len(assessment.rows) < 2:
        return f"{ran} only: there was nothing to compare."
    measured = [row.measured_relative for row in assessment.rows if row.measured_relative is not None]
    if len(measured) < 2:
        return f"{ran}, but gave too few values to judge the prediction."
    if assessment.regret_pct is None:
        best = predictions.best
        why = "gave no value" if assessment.of(best) else "was not run"
        return (
            f"{ran}{_order(assessment, measured)}; the predicted best, {best}, {why}: what following the "
            "prediction costs is not known."
        )
    cost = (
        f"the cost of following the prediction, compared with the best of those run, is {assessment.regret_text()}"
    )
    return f"{ran}{_order(assessment, measured)}; {cost}."


def _missed(findings: Findings, predictions: PredictionSet) -> tuple[str, ...]:
    assessment = findings.assessment
    return assessment.missed() if assessment is not None and is_about(assessment, predictions) else ()


def _order(assessment: Assessment, measured: list[float]) -> str:
    """What the runs say of the order; ``measured`` is in the predicted one."""
    if assessment.order_held is None and sum(row.measured_low is not None for row in assessment.rows) < 2:
        return ", too few times to know their noise, and so to judge the order"
    if assessment.order_held is None and assessment.in_order:
        return ", but these runs cannot distinguish any of those that were predicted in an order"
    if assessment.order_held is None:
        return ", whose predicted intervals overlap, so that no order was predicted"
    if not assessment.order_held:
        return " and came out NOT in the order predicted"
    if all(ahead > behind for ahead, behind in pairwise(measured)):
        if assessment.ties is None:
            return " and came out in the order predicted, as far as these runs can tell"
        tied = "; ".join(f"{ahead} from {behind}" for ahead, behind in assessment.ties)
        return " and came out in the order predicted" + (
            f", though these runs cannot distinguish {tied}" if tied else ""
        )
    return (
        " and came out in an order that does not contradict the prediction: where it differs, these runs cannot "
        "distinguish the configurations, or the predicted intervals overlap"
    )


def _sweep_alone(findings: Findings) -> str:
    run = findings.run
    configurations = {sample.key.configuration for sample in findings.samples}
    cells = {sample.key.cell for sample in findings.samples}
    if not findings.samples:
        return f"The sweep {run.sweep_name} on {run.target} has no samples yet."
    return (
        f"The sweep {run.sweep_name} on {run.target} measured "
        f"{formatting.count(len(configurations), 'configuration')} in {formatting.count(len(cells), 'cell')}."
    )
