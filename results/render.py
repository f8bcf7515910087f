"""The report as a page or as text, from the templates in ``templates/report``."""

from collections.abc import Sequence
from importlib import resources
from itertools import groupby

from jinja2 import Environment, FunctionLoader, StrictUndefined

from cephfit import __version__
from cephfit.configuration import DEFAULT_CONFIGURATION
from cephfit.results import heat, round_notes, words
from cephfit.results.report_index import IndexRow, sorted_rows
from cephfit.results.report_model import ReportModel
from cephfit.results.statistics import CONFIDENCE


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
            made_at=words.moment(made_ns),
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
        relative=words.relative,
        points=words.points,
        per_cent=words.per_cent,
        number=words.number,
        level=words.level,
        md=_markdown_cell,
        groupby_in_order=_in_order,
    )
    environment.globals.update(
        confidence=CONFIDENCE,
        default=DEFAULT_CONFIGURATION,
        interval=words.interval,
        legend=heat.legend(),
        rounds_of_cells=round_notes.OF_CELLS,
        rounds_of_workloads=round_notes.OF_WORKLOADS,
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
