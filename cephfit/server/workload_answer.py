"""The answer for a workload: the same document as `cephfit map --json`, and the same as HTML."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from cephfit.core.values.fit import answer_lines, fit_of
from cephfit.core.values.prediction import DEFAULT_CONFIDENCE, MODELS, PredictionSet
from cephfit.core.values.profile import Profile
from cephfit.core.values.sample import OWN_LOAD
from cephfit.core.values.supply import SupplySet
from cephfit.mapper import predictor
from cephfit.mapper.absolute_rates.supply import supply_or_reason
from cephfit.mapper.decisions.contrasts import ranked
from cephfit.operations.ranking import Answers, Ranked, Wanted
from cephfit.operations.recommended import if_applicable
from cephfit.results import open_baselines
from cephfit.results.report.figures.report_figures import cell_weights_of, ranking_of
from cephfit.results.report.render import environment
from cephfit.results.report.report_model import Answer, ReportModel
from cephfit.results.report.run_notes import may_be_unfinished, run_document, run_notes, same_rounds
from cephfit.results.report.summary import settings_of
from cephfit.results.store.sample_store import Store
from cephfit.results.tables.baseline_csv import is_store
from cephfit.server.workloads import FOLDERS

Objective = Literal["throughput", "latency", "p99", "read", "write"]
"""Objectives that need nothing but the profile and the baselines."""
OBJECTIVES: tuple[str, ...] = get_args(Objective)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked about a workload.

    Attributes:
        location: of the store or the CSV file with the baselines.
        run_id: of the run in the store; None: the newest, and for a CSV file.
        load: of the sweep file.
        model: of throughput.
        confidence: joint level of the intervals.
        objectives: of ``OBJECTIVES``; empty: throughput only.
    """

    location: str
    run_id: str | None = None
    load: str = OWN_LOAD
    model: str = MODELS[0].name
    confidence: float = DEFAULT_CONFIDENCE
    objectives: tuple[str, ...] = ()


def answered(profile: Profile, question: Question) -> tuple[dict[str, Any], str]:
    """Return the answer as JSON values and as HTML; nothing is stored.

    Raises:
        InputError: a cell that the workload uses was not measured, or an objective cannot be judged.
        StoreError: the store cannot be used, or there is no such run.
    """
    location, confidence = question.location, question.confidence
    measured = run_document(location, question.run_id)
    run_id = measured["run"] or question.run_id
    wanted = Wanted(tuple(dict.fromkeys(question.objectives)), None, (), ())
    with may_be_unfinished(measured):
        baselines = open_baselines(location, run_id, question.load)
        predictions = ranked(predictor(question.model, confidence=confidence, with_error=True), profile, baselines)
        asked = Ranked(profile, baselines, location, run_id, question.load, question.model, confidence)
        answers = asked.answers(wanted)
    supply = supply_or_reason(profile, baselines, confidence=confidence)
    use = if_applicable(predictions.best, location, run_id)
    document = {
        **predictions.to_json(),
        "measured": measured,
        **supply.to_json(),
        "fit": fit_of(supply).to_json(),
        **answers.to_json(),
        "use": use.to_json() if use else None,
    }
    notes = [*run_notes(measured), *dict.fromkeys((*predictions.notes, *supply.notes))]
    report = _report(predictions, supply, location, run_id, same_rounds=same_rounds(baselines))
    html = _html(predictions, supply, answers, notes, report, question)
    return document, html


def _report(
    predictions: PredictionSet, supply: SupplySet, location: str, run_id: str | None, *, same_rounds: bool
) -> ReportModel:
    """Return the part of a report that an answer shows: the ranking, the weights and the supply.

    Rates of the mix need the samples of a run: they are in reports only.
    """
    settings: dict[str, str] = {}
    if is_store(location):
        with Store.open(location) as store:
            settings = settings_of(store.applied(store.run(run_id).run_id))
    headline, *sentences = answer_lines(predictions)
    return ReportModel(
        title=predictions.profile,
        answer=Answer(headline, tuple(sentences)),
        ranking=ranking_of(predictions, None, settings),
        weights=cell_weights_of(predictions),
        explains=False,
        same_rounds=same_rounds,
        supply=supply,
    )


def _html(
    predictions: PredictionSet,
    supply: SupplySet,
    answers: Answers,
    notes: list[str],
    report: ReportModel,
    question: Question,
) -> str:
    template = environment(autoescape=True, folders=FOLDERS).get_template("answer.html.j2")
    return template.render(
        predictions=predictions,
        fit=fit_of(supply),
        demand=supply.demand,
        answers=answers,
        rankings=[(judged, ranking_of(judged.predictions)) for judged in answers.judged],
        notes=notes,
        report=report,
        question=question,
    )
