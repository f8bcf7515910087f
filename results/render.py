"""The report as a page or as text, from the templates in ``templates/report``."""

from importlib import resources

from jinja2 import Environment, FunctionLoader, StrictUndefined

from cephfit.results import heat, words
from cephfit.results.report_model import ReportModel


def to_html(report: ReportModel) -> str:
    """One self-contained page: style and figures are in it, nothing is fetched, nothing needs a script."""
    return _environment(autoescape=True).get_template("page.html.j2").render(report=report)


def to_markdown(report: ReportModel) -> str:
    """The same facts as Markdown."""
    return _environment(autoescape=False).get_template("page.md.j2").render(report=report)


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
    )
    environment.globals.update(interval=words.interval, legend=heat.legend())
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
