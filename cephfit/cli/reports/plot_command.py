"""`cephfit plot`: the pictures of a report as PNG, SVG or PDF."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from cephfit.cli.options.common_options import load_option, profiles_option, store_option
from cephfit.cli.options.completers import runs
from cephfit.cli.output import OUTPUT_FILE, json_option, print_json, refuse_lost_input, written_whole
from cephfit.core.errors import InputError

_FORMATS = ("png", "svg", "pdf")
_DPI = 120
_MOST_PX = (1 << 16) - 1
"""Greatest height of a PNG that matplotlib draws."""


@click.command("plot", short_help="Draw the pictures of a report as PNG, SVG or PDF.")
@store_option
@click.option("--run", "run_id", metavar="RUN", shell_complete=runs, help="Run to draw.  [default: the newest]")
@load_option
@profiles_option("Profile of the workload to predict for.  [default: the one last given to `cephfit map`]")
@click.option(
    "-o",
    "--output",
    required=True,
    type=OUTPUT_FILE,
    help="File to write; its suffix chooses the format: .png, .svg or .pdf.",
)
@click.option(
    "--only", multiple=True, metavar="PICTURE", help="Draw this picture only. Repeatable.  [default: all]"
)
@json_option
def command(
    store: str,
    run_id: str | None,
    load: str,
    profile_files: tuple[Path, ...],
    output: Path,
    only: tuple[str, ...],
    as_json: bool,
) -> None:
    """Draw predictions, verification, heat map, scaling, latency and workload, as `cephfit report` shows them.

    The pictures are one below the other. A picture that the run does not have is refused with the names of those
    that it has. Needs matplotlib: pip install 'cephfit[plot]'.
    """
    from cephfit.core.optional_modules import optional_module

    kind = output.suffix.lower().lstrip(".")
    if kind not in _FORMATS:
        raise InputError(
            f"there is no output format for {output.suffix or 'a file without a suffix'}",
            where=str(output),
            remedy="use a file name that ends with .png, .svg or .pdf",
        )
    if len(profile_files) > 1:
        raise click.UsageError("one file of pictures takes one --profile")
    refuse_lost_input(output)
    matplotlib = optional_module("matplotlib")
    from cephfit.cli.reports.report_command import read_report
    from cephfit.results.report.figures.report_plots import figure_of, pictures_of

    findings, report, _ = read_report(store, run_id, load, profile_files)
    known = pictures_of(report)
    for name in only:
        if name not in known:
            raise InputError(
                f"the run has no picture {name!r}",
                where="--only",
                remedy=f"choose from: {', '.join(known) or 'none, because nothing was measured'}",
            )
    names = list(dict.fromkeys(only)) or list(known)
    if not names:
        raise InputError("there is nothing to draw: no configuration was measured", where=findings.store)
    style: Any = {"svg.hashsalt": "cephfit", "svg.fonttype": "path", "font.family": "DejaVu Sans"}
    with matplotlib.rc_context(style), written_whole(output, what="the pictures") as place:
        figure = figure_of([known[name] for name in names], title=report.title, warning=report.answer.warning)
        if kind == "png" and figure.get_figheight() * _DPI > _MOST_PX:
            raise InputError(
                f"{len(names)} pictures are too high for one PNG",
                where=str(output),
                remedy="choose some with --only, or use a file name that ends with .svg or .pdf",
            )
        no_date = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": None}[kind]
        figure.savefig(place, format=kind, dpi=_DPI, metadata=no_date)
    if as_json:
        print_json({"file": str(output), "run": findings.run.run_id, "pictures": names})
    else:
        click.echo(f"{output}: {', '.join(names)}")
