"""`cephfit report`: what was found, as a page, as text or as a table."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from cephfit.cli.output import json_option, print_json
from cephfit.cli.written_files import OUTPUT_FILE, write_whole
from cephfit.errors import InputError

if TYPE_CHECKING:
    from cephfit.baseline import Baselines
    from cephfit.prediction import PredictionSet
    from cephfit.profile import Profile
    from cephfit.results.report_model import Findings

_FORMATS = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md", ".csv": "csv"}


@click.command("report", short_help="Write what was found as HTML, Markdown or CSV.")
@click.option(
    "--store", default="results.sqlite", show_default=True, help="SQLite file or SQLAlchemy URL of the results."
)
@click.option("--run", "run_id", help="Which run; the newest unless given.")
@click.option("--load", default="", help="Which load of the sweep file.  [default: the measurement's own]")
@click.option(
    "-o",
    "--output",
    type=OUTPUT_FILE,
    required=True,
    help="File to write; - is stdout.",
)
@click.option("--format", "style", type=click.Choice(["html", "md", "csv"]), help="Instead of by the file's name.")
@click.option(
    "--what",
    type=click.Choice(["samples", "baselines", "predictions"]),
    help="CSV only: which table.  [default: samples]",
)
@json_option
def command(
    store: str, run_id: str | None, load: str, output: Path, style: str | None, what: str | None, as_json: bool
) -> None:
    """Write the report of a run under one load, and of how the run scales over its loads.

    The page needs no network and no script: mail it, print it, put it beside the samples.
    """
    to_stdout = str(output) == "-"
    if to_stdout and as_json:
        raise InputError("the report and --json cannot both go to standard output", where="-o -")
    style = style or _FORMATS.get(output.suffix.lower())
    if style is None:
        raise InputError(
            "the file's name does not tell the format",
            where=str(output),
            remedy="end it with .html, .md or .csv, or give --format",
        )
    if what is not None and style != "csv":
        raise InputError(
            f"--what {what} chooses a table of CSV, and this report is none",
            where=str(output),
            remedy="leave out --what, or let the file end with .csv",
        )
    import time

    from cephfit.results.report_build import read_findings, report_of
    from cephfit.results.store import Store

    with Store.open(store) as opened:
        findings = read_findings(opened, run_id, load, predict=_predict)
        n_runs = len(opened.runs())
    report = report_of(findings, made_ns=time.time_ns())
    if style == "csv":
        text = _csv(findings, what or "samples")
    else:
        from cephfit.results.render import to_html, to_markdown

        text = to_html(report) if style == "html" else to_markdown(report)
    if to_stdout:
        click.echo(text, nl=False)
        return
    write_whole(output, text, what="the report")
    if as_json:
        print_json(
            {
                "run": findings.run.run_id,
                "output": str(output),
                "format": style,
                "answer": report.answer.headline,
                "sentences": list(report.answer.sentences),
                "warning": report.answer.warning,
                "caveats": list(report.caveats),
            }
        )
    else:
        if report.answer.warning:
            click.echo(report.answer.warning)
        click.echo(report.answer.headline)
        click.echo(f"Report: {output}")
        if run_id is None and n_runs > 1:
            run = findings.run
            click.echo(
                f"It is about run {run.run_id} on {run.target}, the newest of {n_runs}; --run names another, and "
                "`cephfit compare` holds runs on several targets against each other"
            )


def _predict(profile: "Profile", baselines: "Baselines", told: "PredictionSet | None") -> "PredictionSet":
    """As `cephfit map` does, with the model and the confidence of the prediction that it kept."""
    from cephfit.mapper import predictor
    from cephfit.mapper.contrasts import ranked

    speaker = predictor() if told is None else predictor(told.model, confidence=told.confidence)
    return ranked(speaker, profile, baselines)


def _csv(findings: "Findings", what: str) -> str:
    from cephfit.results import baseline_csv, sample_csv
    from cephfit.results.baselines import measured_of

    if what == "samples":
        return sample_csv.samples_csv(findings.samples, findings.run)
    if what == "baselines":
        return baseline_csv.dumps(measured_of(findings.samples, load=findings.load)[0], findings.run)
    if findings.predictions is None:
        raise InputError(
            "this run has no predictions yet",
            where=findings.run.run_id,
            remedy="`cephfit map PROFILE --baselines STORE` makes them",
        )
    return sample_csv.predictions_csv(findings.predictions, findings.run)
