"""The report as a page or as text, from the templates in ``templates/report``.

Several reports at a glance: which target serves which workload, how fast, and with what. Pure.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from itertools import groupby

from jinja2 import Environment, FunctionLoader, StrictUndefined

from cephfit import __version__
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
from cephfit.core.values.prediction import Prediction, Verdict
from cephfit.core.values.prediction_model import model_called
from cephfit.results.report import formatting, heat_map
from cephfit.results.report.report_build import rates_of
from cephfit.results.report.report_model import Findings, RateText, ReportModel
from cephfit.results.statistics import run_caveats
from cephfit.results.statistics.sample_baselines import baselines_of
from cephfit.results.statistics.summary_statistics import CONFIDENCE
from cephfit.results.tables.baseline_csv import ORIGIN_COLUMNS, origin_of
from cephfit.results.tables.sample_csv import (
    CELL_COLUMNS,
    PREDICTION_COLUMNS,
    cell_rows,
    csv_text,
    prediction_rows,
)


@dataclass(frozen=True, slots=True)
class IndexRow:
    """One page.

    Attributes:
        page: its file's name.
        workload: that was predicted for; empty without one.
        load: its name; empty is the measurement's own.
        warnings: what the figures are not, such as simulated.
        default: what the default serves of the workload; None where it is not known.
        best: name of the best configuration; the default's where none is better.
        as_good: names that the samples cannot tell from the best.
        against: the best one's factor over the default's, with its interval; empty for the default itself.
        serves: what the best one serves; None where it is not known, or the model's factors are not of rates.
        same_rounds: whether all configurations were measured in the same rounds.
        headline: the page's answer.
    """

    page: str
    workload: str
    target: str
    run_id: str
    begun: str
    load: str
    warnings: tuple[str, ...]
    default: RateText | None
    best: str
    as_good: tuple[str, ...]
    against: str
    serves: RateText | None
    same_rounds: bool
    headline: str


def index_row(findings: Findings, report: ReportModel, page: str) -> IndexRow:
    """What the index says of a page."""
    run, predictions = findings.run, findings.predictions
    warnings = [word for word, so in (("simulated", run.is_simulated), ("unfinished", not run.finished)) if so]
    best = predictions.of(predictions.best) if predictions else None
    default = (
        next((p for p in predictions.predictions if p.verdict is Verdict.DEFAULT), None) if predictions else None
    )
    return IndexRow(
        page=page,
        workload=predictions.profile if predictions else "",
        target=run.target,
        run_id=run.run_id,
        begun=formatting.moment(run.created_ns),
        load=findings.load,
        warnings=tuple(warnings),
        default=report.rates.get(default.configuration) if default else None,
        best=best.configuration if best else "",
        as_good=predictions.as_good if predictions else (),
        against=_against(best) if best and best is not default else "",
        serves=report.rates.get(best.configuration)
        if best and predictions and model_called(predictions.model).adds_time
        else None,
        same_rounds=report.same_rounds,
        headline=report.answer.headline,
    )


def _against(best: Prediction) -> str:
    return f"{formatting.times(best.relative)} ({formatting.times_interval(best.low, best.high)})"


def sorted_rows(rows: Iterable[IndexRow]) -> list[IndexRow]:
    """By workload, those without one last; then as they were given."""
    rows = list(rows)
    order = {name: i for i, name in enumerate(dict.fromkeys(row.workload for row in rows if row.workload))}
    return sorted(rows, key=lambda row: order.get(row.workload, len(order)))


def page_name(findings: Findings, taken: Sequence[str]) -> str:
    """A file's name for a page, that no other page has."""
    profile = findings.predictions.profile if findings.predictions else ""
    parts = [part for part in (findings.run.run_id, findings.load, profile) if part]
    stem = re.sub(r"[^\w.-]+", "-", "_".join(parts)).strip(".-") or "run"
    names = (f"{stem}{f'_{n}' if n > 1 else ''}.html" for n in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)


def all_cells_csv(pages: Sequence[Findings]) -> str:
    """One row per run, load, configuration and cell; each run and load once, however many workloads it has."""
    once = {(f.run.run_id, f.load): f for f in pages}
    return csv_text(
        ("run", *CELL_COLUMNS, *ORIGIN_COLUMNS),
        ((f.run.run_id, *row, *origin_of(f.run)) for f in once.values() for row in cell_rows(f)),
    )


def all_predictions_csv(pages: Sequence[Findings]) -> str:
    """One row per run, load, workload and configuration, best first."""
    return csv_text(("run", "load", "finished", *PREDICTION_COLUMNS, *ORIGIN_COLUMNS), _predictions(pages))


def _predictions(pages: Sequence[Findings]) -> Iterator[tuple[object, ...]]:
    for f in pages:
        if f.predictions is None:
            continue
        baselines = baselines_of(f.samples, source=f.store, load=f.load)
        for row in prediction_rows(f.predictions, rates_of(f, baselines)):
            yield (f.run.run_id, f.load, str(f.run.finished).lower(), *row, *origin_of(f.run))


def to_html(report: ReportModel) -> str:
    """One self-contained page: style and figures are in it, nothing is fetched, nothing needs a script."""
    return _environment(autoescape=True).get_template("page.html.j2").render(report=report)


def to_markdown(report: ReportModel) -> str:
    """The same facts as Markdown."""
    return _environment(autoescape=False).get_template("page.md.j2").render(report=report)


def to_index_html(rows: Sequence[IndexRow], *, store: str, made_ns: int, lost: Sequence[str] = ()) -> str:
    """The page that leads to the others: self-contained, but for the links to them.

    Args:
        made_ns: wall clock, ns since the epoch.
        lost: what could not be reported, in sentences.
    """
    return (
        _environment(autoescape=True)
        .get_template("index.html.j2")
        .render(
            rows=sorted_rows(rows),
            n_runs=len({row.run_id for row in rows}),
            has_workloads=any(row.workload for row in rows),
            store=store,
            made_at=formatting.moment(made_ns),
            version=__version__,
            lost=lost,
        )
    )


def _in_order(rows: Sequence[IndexRow], attribute: str) -> list[tuple[str, list[IndexRow]]]:
    """As Jinja's ``groupby``, which would sort."""
    return [(name, list(group)) for name, group in groupby(rows, key=lambda row: getattr(row, attribute))]


def _environment(*, autoescape: bool) -> Environment:
    environment = Environment(
        loader=FunctionLoader(_source),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        relative=formatting.relative,
        points=formatting.points,
        per_cent=formatting.per_cent,
        number=formatting.number,
        level=formatting.level,
        md=_markdown_cell,
        groupby_in_order=_in_order,
    )
    environment.globals.update(
        confidence=CONFIDENCE,
        default=DEFAULT_CONFIGURATION,
        interval=formatting.interval,
        legend=heat_map.legend(),
        rounds_of_cells=run_caveats.ROUNDS_OF_CELLS,
        rounds_of_workloads=run_caveats.ROUNDS_OF_WORKLOADS,
    )
    return environment


def _source(name: str) -> str | None:
    path = resources.files("cephfit.templates").joinpath("report", name)
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _markdown_cell(value: object) -> str:
    """Text that stays inside its cell and means nothing to Markdown or HTML."""
    text = " ".join(str(value).split())
    for mark in ("\\", "|", "*", "_", "`", "<", ">", "[", "]"):
        text = text.replace(mark, f"\\{mark}")
    return text
