"""Render reports as HTML or Markdown from ``templates/report``, and the index and tables of several. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from itertools import groupby

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape

from cephfit import __version__
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
from cephfit.core.values.fit import Verdict as FitVerdict
from cephfit.core.values.fit import fit_of
from cephfit.core.values.prediction import Prediction, Verdict, model_called
from cephfit.core.values.supply import rate_text
from cephfit.results.report import formatting, run_notes
from cephfit.results.report.figures import cell_figures, rate_over_time
from cephfit.results.report.formatting import Axis, relative_axis
from cephfit.results.report.report_build import rates_of
from cephfit.results.report.report_model import Findings, RankingRow, RateText, ReportModel
from cephfit.results.statistics.sample_baselines import baselines_of
from cephfit.results.statistics.summary_statistics import CONFIDENCE
from cephfit.results.tables.baseline_csv import ORIGIN_COLUMNS, origin_of
from cephfit.results.tables.csv_text import csv_text
from cephfit.results.tables.sample_tables import CELL_COLUMNS, PREDICTION_COLUMNS, cell_rows, prediction_rows

_NAMED = 3
"""Number of workloads that the first sentence names; of more it gives the number."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Something that could not be reported.

    Attributes:
        run: the run and its load, as text.
        workload: name of the profile; empty if the reason concerns all of them.
        why: the reason.
    """

    run: str
    workload: str
    why: str

    def __str__(self) -> str:
        return f"{self.run}{f' for {self.workload}' if self.workload else ''}: {self.why}"


def reasons_of(lost: Iterable[Lost]) -> tuple[str, ...]:
    """Return one sentence per reason, which names all that it concerns."""
    by_reason: dict[str, dict[str, list[str]]] = {}
    for one in lost:
        workloads = by_reason.setdefault(one.why, {}).setdefault(one.run, [])
        workloads += [one.workload] if one.workload else []
    return tuple(
        f"{why[0].upper()}{why[1:]}: "
        + "; ".join(f"{run} for {formatting.names(of)}" if of else run for run, of in runs.items())
        + "."
        for why, runs in by_reason.items()
    )


def headline_of(rows: Sequence[IndexRow]) -> str:
    """Return the findings in one sentence: ``3 of 5 workloads gain from ssd; dbench does not fit``.

    A workload gains from a configuration if that is the best one, and distinguishably better than the default, on
    all of its pages. The number of reports, where there is no workload.
    """
    by_workload: dict[str, list[IndexRow]] = {}
    for row in rows:
        if row.workload:
            by_workload.setdefault(row.workload, []).append(row)
    if not by_workload:
        n_runs = len({row.run_id for row in rows})
        return f"{formatting.count(len(rows), 'report')} on {formatting.count(n_runs, 'run')}, without a workload"
    gains: dict[str, list[str]] = {}
    differing = []
    for name, pages in by_workload.items():
        best = {page.best if page.gains else "" for page in pages}
        if len(best) == 1:
            gains.setdefault(best.pop(), []).append(name)
        else:
            differing.append(name)
    return "; ".join([*_gains(gains, len(by_workload)), *_differing(differing), *_not_fitting(by_workload)])


def _gains(gains: dict[str, list[str]], n_workloads: int) -> list[str]:
    """Return the clauses on workloads by the configuration from which they gain; ``""`` is none."""
    none = gains.pop("", [])
    most_first = sorted(gains.items(), key=lambda one: -len(one[1]))
    clauses = []
    if most_first:
        (first, names), *others = most_first
        of = f"of {formatting.count(n_workloads, 'workload')}"
        more = "".join(f", {len(others_of)} from {name}" for name, others_of in others)
        clauses.append(f"{len(names)} {of} gain{'s' if len(names) == 1 else ''} from {first}{more}")
    if none and not most_first and len(none) == n_workloads:
        clauses.append("no workload gains distinguishably from any configuration")
    elif none:
        clauses.append(f"{_some(none)} gain{'s' if len(none) == 1 else ''} from none")
    return clauses


def _differing(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    return [f"for {_some(names)}, the best configuration differs between runs or loads"]


def _not_fitting(by_workload: dict[str, list[IndexRow]]) -> list[str]:
    """Return the clauses on workloads that need more than any configuration serves."""
    nowhere: list[str] = []
    partly: list[str] = []
    for name, pages in by_workload.items():
        n = sum(page.fits is FitVerdict.NOT for page in pages)
        if n:
            (nowhere if n == len(pages) else partly).append(name)
    clauses = [f"{_some(nowhere)} do{'es' if len(nowhere) == 1 else ''} not fit"] if nowhere else []
    if partly:
        clauses.append(f"{_some(partly)} do{'es' if len(partly) == 1 else ''} not fit in some runs or loads")
    return clauses


def _some(names: Sequence[str]) -> str:
    return formatting.names(names) if len(names) <= _NAMED else f"{len(names)} workloads"


@dataclass(frozen=True, slots=True)
class GainRow:
    """The best configuration for a workload in one run, under one load.

    Attributes:
        where: the run's target and load, where there is more than one of them; mostly empty.
        best: its figure and interval, default = 100.
        against: the same as a factor; empty if the best is the default.
    """

    workload: str
    where: str
    page: str
    best: RankingRow
    against: str


@dataclass(frozen=True, slots=True)
class GainChart:
    """The gain of the best configuration for every workload, on one scale."""

    axis: Axis
    rows: tuple[GainRow, ...]


def gain_chart_of(rows: Sequence[IndexRow]) -> GainChart | None:
    """Return the chart of the index, in the order of ``rows``; None without a prediction.

    An interval that is open at an end is drawn up to the edge.
    """
    predicted = [(row, row.best_row) for row in rows if row.best_row is not None]
    if not predicted:
        return None
    several_runs = len({row.run_id for row, _ in predicted}) > 1
    several_loads = len({row.load for row, _ in predicted}) > 1
    shown = []
    for row, best in predicted:
        where = [row.target] if several_runs else []
        where += [f"load {row.load}" if row.load else "own load"] if several_loads else []
        shown.append(GainRow(row.workload, ", ".join(where), row.page, best, row.against))
    ends = [end for _, best in predicted for end in (best.low, best.high) if math.isfinite(end)]
    return GainChart(
        relative_axis([best.relative for _, best in predicted if best.relative > 0], ends), tuple(shown)
    )


@dataclass(frozen=True, slots=True)
class IndexRow:
    """One report in the index.

    Attributes:
        page: file name of the report.
        workload: name of the predicted workload; empty without one.
        load: name; empty is the measurement's own load.
        warnings: caveats on all figures, such as "simulated".
        default: the default's rate for the workload; None where it is not known.
        best: name of the best configuration; the default where none is better.
        as_good: configurations that the samples cannot distinguish from the best.
        against: the best configuration's factor over the default, with its interval; empty for the default.
        serves: the best configuration's rate; None where it is not known, or the model's factors are not of rates.
        same_rounds: whether all configurations were measured in the same rounds.
        headline: the answer of the report.
        fit: whether the workload fits, as a sentence; empty if that was not asked.
        fits: the same as a verdict; None if that was not asked.
        best_row: the best configuration in the ranking of the page; None without a prediction.
        caution: a warning on all figures of the page; mostly empty.
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
    fit: str = ""
    fits: FitVerdict | None = None
    best_row: RankingRow | None = None
    caution: str = ""

    @property
    def gains(self) -> bool:
        """Whether the best configuration is distinguishably better than the default."""
        return self.best_row is not None and self.best_row.verdict == Verdict.BETTER


def index_row(findings: Findings, report: ReportModel, page: str) -> IndexRow:
    """Return the row of the index for a report."""
    run, predictions = findings.run, findings.predictions
    states = (("simulated", run.is_simulated), ("imported", run.is_imported), ("unfinished", not run.finished))
    warnings = [word for word, so in states if so]
    best = predictions.of(predictions.best) if predictions else None
    default = (
        next((p for p in predictions.predictions if p.verdict is Verdict.DEFAULT), None) if predictions else None
    )
    found = fit_of(report.supply) if report.supply else None
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
        if best and predictions and model_called(predictions.model).adds_time and report.explains
        else None,
        same_rounds=report.same_rounds,
        headline=report.answer.headline,
        fit=found.text if found else "",
        fits=found.verdict if found else None,
        best_row=next((r for r in report.ranking.rows if best and r.configuration == best.configuration), None)
        if report.ranking
        else None,
        caution=report.answer.warning,
    )


def _against(best: Prediction) -> str:
    return f"{formatting.times(best.relative)} ({formatting.times_interval(best.low, best.high)})"


def sorted_rows(rows: Iterable[IndexRow]) -> list[IndexRow]:
    """Sort rows by workload, those without one last; otherwise the order is kept."""
    rows = list(rows)
    order = {name: i for i, name in enumerate(dict.fromkeys(row.workload for row in rows if row.workload))}
    return sorted(rows, key=lambda row: order.get(row.workload, len(order)))


def page_name(findings: Findings, taken: Sequence[str]) -> str:
    """Return a file name for a page that is not in ``taken``."""
    profile = findings.predictions.profile if findings.predictions else ""
    parts = [part for part in (findings.run.run_id, findings.load, profile) if part]
    stem = re.sub(r"[^\w.-]+", "-", "_".join(parts)).strip(".-") or "run"
    names = (f"{stem}{f'_{n}' if n > 1 else ''}.html" for n in range(1, len(taken) + 2))
    return next(name for name in names if name not in taken)


def all_cells_csv(pages: Sequence[Findings]) -> str:
    """Return CSV with one row per run, load, configuration and cell, whatever the number of workloads."""
    once = {(f.run.run_id, f.load): f for f in pages}
    return csv_text(
        ("run", *CELL_COLUMNS, *ORIGIN_COLUMNS),
        ((f.run.run_id, *row, *origin_of(f.run)) for f in once.values() for row in cell_rows(f)),
    )


def all_predictions_csv(pages: Sequence[Findings]) -> str:
    """Return CSV with one row per run, load, workload and configuration, best first."""
    return csv_text(("run", "load", "finished", *PREDICTION_COLUMNS, *ORIGIN_COLUMNS), _predictions(pages))


def _predictions(pages: Sequence[Findings]) -> Iterator[tuple[object, ...]]:
    for f in pages:
        if f.predictions is None:
            continue
        baselines = baselines_of(f.samples, source=f.store, load=f.load)
        for row in prediction_rows(f.predictions, rates_of(f, baselines), f.supply):
            yield (f.run.run_id, f.load, str(f.run.finished).lower(), *row, *origin_of(f.run))


def to_html(report: ReportModel) -> str:
    """Render one self-contained HTML page: with style and figures, without scripts or external files."""
    return environment(autoescape=True).get_template("page.html.j2").render(report=report)


def to_markdown(report: ReportModel) -> str:
    """Render the same facts as Markdown."""
    return environment(autoescape=False).get_template("page.md.j2").render(report=report)


def to_index_html(rows: Sequence[IndexRow], *, store: str, made_ns: int, lost: Sequence[Lost] = ()) -> str:
    """Render the index page: self-contained, except for the links to the reports.

    Args:
        made_ns: wall clock, ns since the epoch.
        lost: what could not be reported.
    """
    rows = sorted_rows(rows)
    cautions = {row.caution for row in rows}
    return (
        environment(autoescape=True)
        .get_template("index.html.j2")
        .render(
            rows=rows,
            headline=headline_of(rows),
            caution=cautions.pop() if len(cautions) == 1 else "",
            chart=gain_chart_of(rows),
            has_workloads=any(row.workload for row in rows),
            store=store,
            made_at=formatting.moment(made_ns),
            version=__version__,
            reasons=reasons_of(lost),
        )
    )


def _in_order(rows: Sequence[IndexRow], attribute: str) -> list[tuple[str, list[IndexRow]]]:
    """Group rows in their order; Jinja's ``groupby`` would sort them."""
    return [(name, list(group)) for name, group in groupby(rows, key=lambda row: getattr(row, attribute))]


@cache
def environment(*, autoescape: bool, folders: tuple[str, ...] = ("report",)) -> Environment:
    """Return the environment of the templates in folders of ``templates/``, the first one that has a name.

    There is one for all pages: it compiles each template once, which takes longer than to fill it in.
    """
    environment = Environment(
        loader=FunctionLoader(partial(_source, folders)),
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
        with_code=_with_code,
        rate=rate_text,
        compact=formatting.compact,
        span=rate_over_time.span_text,
        groupby_in_order=_in_order,
    )
    environment.globals.update(
        confidence=CONFIDENCE,
        default=DEFAULT_CONFIGURATION,
        interval=formatting.interval,
        latency_of_mix=run_notes.LATENCY_OF_MIX,
        legend=cell_figures.legend(),
        rounds_of_cells=run_notes.ROUNDS_OF_CELLS,
        rounds_of_workloads=run_notes.ROUNDS_OF_WORKLOADS,
    )
    return environment


def _source(folders: Sequence[str], name: str) -> str | None:
    paths = (resources.files("cephfit.templates").joinpath(folder, name) for folder in folders)
    return next((path.read_text(encoding="utf-8") for path in paths if path.is_file()), None)


def _with_code(text: str) -> Markup:
    """Escape text for HTML, with commands between backticks as code."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text))))


def _markdown_cell(value: object) -> str:
    """Escape text for a cell of a Markdown table."""
    text = " ".join(str(value).split())
    for mark in ("\\", "|", "*", "_", "`", "<", ">", "[", "]"):
        text = text.replace(mark, f"\\{mark}")
    return text
