"""`cephfit report`: write the report of a run as HTML, Markdown or CSV.

With ``--folder`` it writes a page for every run, load and workload, an index, and tables of all of them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.options.common_options import any_load_option, profiles_option, runs_option, store_option
from cephfit.cli.output import (
    OUTPUT_FILE,
    json_option,
    print_json,
    refuse_both_to_stdout,
    refuse_lost_input,
    write_whole,
)
from cephfit.core.errors import HostError, InputError
from cephfit.core.values.sample import without_collector

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cephfit.core.values.baseline import Baselines
    from cephfit.core.values.prediction import PredictionSet
    from cephfit.core.values.profile import Profile
    from cephfit.core.values.supply import SupplySet
    from cephfit.results.report.render import IndexRow, Lost
    from cephfit.results.report.report_build import Predict, Serve
    from cephfit.results.report.report_model import Findings, ReportModel
    from cephfit.results.store.sample_store import Store

INDEX = "index.html"


def write_folder(
    store: Store,
    folder: Path,
    *,
    run_ids: Sequence[str],
    load: str | None,
    profiles: Sequence[Profile],
    predict: Predict,
    serve: Serve | None = None,
) -> dict[str, Any]:
    """Write the pages, the index and the tables. They replace earlier ones; other files are not changed.

    Args:
        folder: created if it does not exist.
        run_ids: all runs if empty.
        load: all loads of each run if None.
        profiles: workloads to predict for on every run; if empty, the last mapped workload of each run.
        predict, serve: as for ``read_findings``.

    Returns:
        The index as JSON values.

    Raises:
        HostError: something cannot be written.
        InputError: there is nothing to report.
        StoreError: a run does not exist.
    """
    from cephfit.results.report.render import (
        all_cells_csv,
        all_predictions_csv,
        index_row,
        page_name,
        to_html,
        to_index_html,
    )
    from cephfit.results.report.report_build import report_of

    now = time.time_ns()
    pages, lost = _findings(store, run_ids, load, profiles, predict, serve)
    if not pages:
        why = "\n  ".join(map(str, lost)) or "measure something first: `cephfit sweep run`"
        raise InputError("there is nothing to report", where=store.name, remedy=why)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise HostError(
            f"the folder cannot be created: {error.strerror}",
            where=str(folder),
            remedy="give another with --folder",
        ) from None
    rows: list[IndexRow] = []
    for findings in pages:
        report = report_of(findings, made_ns=now)
        row = index_row(findings, report, page_name(findings, [INDEX, *(row.page for row in rows)]))
        write_whole(folder / row.page, to_html(report), what="the report")
        rows.append(row)
    write_whole(folder / "cells.csv", all_cells_csv(pages), what="the table of cells")
    if any(findings.predictions for findings in pages):
        write_whole(folder / "workloads.csv", all_predictions_csv(pages), what="the table of predictions")
    else:
        (folder / "workloads.csv").unlink(missing_ok=True)
    index = to_index_html(rows, store=store.name, made_ns=now, lost=lost)
    write_whole(folder / INDEX, index, what="the index")
    return {
        "output": str(folder / INDEX),
        "pages": [
            {
                **{"run": row.run_id, "target": row.target, "load": row.load, "workload": row.workload},
                **{"output": str(folder / row.page), "answer": row.headline, "warnings": list(row.warnings)},
            }
            for row in rows
        ],
        "lost": [str(one) for one in lost],
    }


def _findings(
    store: Store,
    run_ids: Sequence[str],
    load: str | None,
    profiles: Sequence[Profile],
    predict: Predict,
    serve: Serve | None,
) -> tuple[list[Findings], list[Lost]]:
    """Return what can be reported, and why the rest cannot."""
    from cephfit.results.report.render import Lost
    from cephfit.results.report.report_build import read_findings
    from cephfit.results.statistics.loads import names_of

    runs = [store.run(run_id) for run_id in dict.fromkeys(run_ids)] or store.runs()
    pages: list[Findings] = []
    lost: list[Lost] = []
    for run in runs:
        if store.measures_files(run.run_id):
            why = "it measured operations on files: `cephfit report --run RUN -o FILE` shows them"
            lost.append(Lost(f"run {run.run_id} on {run.target}", "", why))
            continue
        samples = store.samples(run.run_id)
        names = names_of(samples) if load is None else (load,)
        if not names:
            lost.append(Lost(f"run {run.run_id} on {run.target}", "", "no samples yet"))
        for name in names:
            under, n_before = f" under load {name}" if name else "", len(pages)
            read = partial(read_findings, store, run.run_id, name, predict=predict, serve=serve, samples=samples)
            for profile in profiles or (None,):
                try:
                    pages.append(read(profile=profile))
                except InputError as error:
                    subject = f"run {run.run_id} on {run.target}{under}"
                    lost.append(Lost(subject, profile.name if profile else "", error.what))
            if profiles and len(pages) == n_before:  # what was measured is worth a page without these workloads
                with suppress(InputError):
                    pages.append(read())
    return pages, lost


_STYLES = ("html", "md", "csv")
_FORMATS = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md", ".csv": "csv"}


@click.command("report", short_help="Write a report as HTML, Markdown or CSV.")
@store_option
@runs_option
@any_load_option
@profiles_option("Profile of the workload to predict for.  [default: the one last given to `cephfit map`]")
@click.option("-o", "--output", type=OUTPUT_FILE, help="File to write; - for standard output.")
@click.option(
    "--folder",
    metavar="FOLDER",
    type=click.Path(file_okay=False, path_type=Path),
    help="Instead of -o: write pages for all runs, all loads and every --profile into this folder, with an index "
    "and tables of all of them; --run (repeatable) and --load select some.",
)
@click.option(
    "--format",
    "style",
    type=click.Choice(_STYLES),
    help="Format of the report.  [default: by the file's suffix]",
)
@click.option(
    "--what",
    type=click.Choice(["samples", "cells", "baselines", "predictions", "cpu"]),
    help="CSV only: which table to write.  [default: samples]",
)
@json_option
def command(
    store: str,
    run_ids: tuple[str, ...],
    load: str | None,
    profile_files: tuple[Path, ...],
    output: Path | None,
    folder: Path | None,
    style: str | None,
    what: str | None,
    as_json: bool,
) -> None:
    """Write the report of a run under one load, and of how the run scales over its loads.

    The prediction is recalculated from the current samples. The page needs no network and no scripts: mail it,
    print it, or archive it with the samples.
    """
    if (output is None) == (folder is None):
        raise click.UsageError("give either -o FILE or --folder FOLDER")
    if folder is not None:
        if style is not None or what is not None:
            raise click.UsageError("--folder writes pages and all tables: omit --format and --what")
        _write_folder(store, folder, run_ids, load, profile_files, as_json=as_json)
        return
    assert output is not None, "one of the two is given"
    refuse_both_to_stdout(output, "the report", as_json=as_json)
    refuse_lost_input(output)
    style = _style(output, style, what)
    if _write_operations(store, output, run_ids, style, as_json=as_json):
        return
    for option, values in (("--run", run_ids), ("--profile", profile_files)):
        if len(values) > 1:
            raise click.UsageError(f"one page takes one {option}; use --folder for several")
    with without_collector():  # also while the page is written, when the samples are still there
        _write_one(store, output, run_ids, load or "", profile_files, style, what, as_json=as_json)


def _write_operations(location: str, output: Path, run_ids: Sequence[str], style: str, *, as_json: bool) -> bool:
    """Write the page of runs that measured operations on files; return False if the first one did not."""
    from cephfit.results.report import operations_page as pages
    from cephfit.results.store.sample_store import Store

    with Store.open(location) as opened:
        runs = [opened.run(run_id) for run_id in dict.fromkeys(run_ids)] or opened.runs()[:1]
        if not runs or not opened.measures_files(runs[0].run_id):
            return False
        page = pages.read_operations(opened, runs, made_ns=time.time_ns())
    renderers = {
        "html": pages.to_operations_html,
        "md": pages.to_operations_markdown,
        "csv": pages.to_operations_csv,
    }
    text = renderers[style](page)
    if str(output) == "-":
        click.echo(text, nl=False)
        return True
    write_whole(output, text, what="the report")
    if as_json:
        print_json({"output": str(output), **pages.operations_document(page)})
    else:
        click.echo(page.headline)
        click.echo(f"Report: {output}")
    return True


def _write_one(
    store: str,
    output: Path,
    run_ids: Sequence[str],
    load: str,
    profile_files: Sequence[Path],
    style: str,
    what: str | None,
    *,
    as_json: bool,
) -> None:
    to_stdout = str(output) == "-"
    findings, report, n_runs = read_report(store, run_ids[0] if run_ids else None, load, profile_files)
    if style == "csv":
        text = _csv(findings, what or "samples")
    else:
        from cephfit.results.report.render import to_html, to_markdown

        text = to_html(report) if style == "html" else to_markdown(report)
    if to_stdout:
        click.echo(text, nl=False)
        return
    write_whole(output, text, what="the report")
    if as_json:
        from cephfit.results.tables.sample_tables import CPU_COLUMNS, cpu_rows

        print_json(
            {
                "run": findings.run.run_id,
                "output": str(output),
                "format": style,
                "answer": report.answer.headline,
                "sentences": list(report.answer.sentences),
                "warning": report.answer.warning,
                "caveats": list(report.caveats),
                "cpu": [dict(zip(CPU_COLUMNS, row, strict=True)) for row in cpu_rows(findings)],
            }
        )
        return
    if report.answer.warning:
        click.echo(report.answer.warning)
    click.echo(report.answer.headline)
    click.echo(f"Report: {output}")
    if not run_ids and n_runs > 1:
        run = findings.run
        click.echo(
            f"It covers run {run.run_id} on {run.target}, the newest of {n_runs}; choose another with --run, "
            "write all of them with --folder, or compare runs on several targets with `cephfit compare`"
        )


def read_report(
    store: str, run_id: str | None, load: str, profile_files: Sequence[Path]
) -> tuple[Findings, ReportModel, int]:
    """Return what a store holds of a run, the report of it, and the number of runs in the store.

    Args:
        store: its location.
        run_id: of the run; None: the newest.
        load: name; empty: the measurement's own.
        profile_files: at most one: the workload to predict for instead of the stored one.
    """
    from cephfit.core.profile_files import read_profile
    from cephfit.results.report.report_build import read_findings, report_of
    from cephfit.results.store.sample_store import Store

    profile = read_profile(profile_files[0]) if profile_files else None
    with Store.open(store) as opened, without_collector():
        findings = read_findings(opened, run_id, load, predict=_predict, serve=_serve, profile=profile)
        n_runs = len(opened.runs())
        return findings, report_of(findings, made_ns=time.time_ns()), n_runs


def _style(output: Path, style: str | None, what: str | None) -> str:
    style = style or _FORMATS.get(output.suffix.lower())
    if style is None:
        raise InputError(
            "cannot infer the format from the file name",
            where=str(output),
            remedy=f"use --format with {_STYLES[0]}, {_STYLES[1]} or {_STYLES[2]}, or a name that ends with "
            f"{', '.join(_FORMATS)}",
        )
    if what is not None and style != "csv":
        raise InputError(
            f"--what {what} chooses a CSV table, and this report is not CSV",
            where=str(output),
            remedy="omit --what, or use a file name that ends with .csv",
        )
    return style


def _write_folder(
    store: str,
    folder: Path,
    run_ids: Sequence[str],
    load: str | None,
    profile_files: Sequence[Path],
    *,
    as_json: bool,
) -> None:
    from cephfit.core.profile_files import read_profile
    from cephfit.results.store.sample_store import Store

    profiles = [read_profile(path) for path in profile_files]
    with Store.open(store) as opened:
        document = write_folder(
            opened, folder, run_ids=run_ids, load=load, profiles=profiles, predict=_predict, serve=_serve
        )
    if as_json:
        print_json(document)
        return
    for page in document["pages"]:
        under = f", load {page['load']}" if page["load"] else ""
        click.echo(f"{page['target']}{under}: {page['answer']}")
    for what in document["lost"]:
        click.echo(f"Omitted: {what}")
    click.echo(f"Index: {document['output']}")


def _predict(profile: Profile, baselines: Baselines, stored: PredictionSet | None) -> PredictionSet:
    """Predict as `cephfit map`, with the model and the confidence of the stored prediction."""
    from cephfit.mapper import predictor
    from cephfit.mapper.decisions.contrasts import ranked

    model_predictor = (
        predictor(with_error=True)
        if stored is None
        else predictor(stored.model, confidence=stored.confidence, with_error=True)
    )
    return ranked(model_predictor, profile, baselines)


def _serve(profile: Profile, baselines: Baselines, confidence: float) -> SupplySet:
    from cephfit.mapper.absolute_rates.supply import supply_or_reason

    return supply_or_reason(profile, baselines, confidence=confidence)


def _must_be_plain(findings: Findings) -> None:
    """Refuse rates that would be read back as those of a load without a mix and without a limit.

    Raises:
        InputError: the load has one of them, for which the table has no column.
    """
    from cephfit.results.statistics.loads import shapes_of, title_of

    shape = shapes_of(findings.samples).get(findings.load)
    if shape is not None and not shape.is_plain:
        raise InputError(
            f"baselines of {title_of(findings.load)} cannot be written: it has {shape.rest}, which a file of "
            "baselines has no column for",
            where="--what baselines",
            remedy="use the store itself, `cephfit runs export`, or --what cells",
        )


def _csv(findings: Findings, what: str) -> str:
    from cephfit.results.report.report_build import rates_of
    from cephfit.results.statistics.sample_baselines import baselines_of, measured_of
    from cephfit.results.tables import baseline_csv, sample_tables

    if what == "samples":
        return sample_tables.samples_csv(findings.samples, findings.run)
    if what == "baselines":
        _must_be_plain(findings)
        return baseline_csv.dumps(measured_of(findings.samples, load=findings.load)[0], findings.run)
    if what == "cells":
        return sample_tables.cells_csv(findings)
    if what == "cpu":
        return sample_tables.cpu_csv(findings)
    if findings.predictions is None:
        raise InputError(
            "this run has no predictions yet",
            where=findings.run.run_id,
            remedy="use `cephfit map PROFILE --baselines STORE`",
        )
    baselines = baselines_of(findings.samples, source=findings.store, load=findings.load)
    return sample_tables.predictions_csv(
        findings.predictions, findings.run, rates_of(findings, baselines), findings.supply
    )
