"""`cephfit trace plot`: plot a workload."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.terminal.output import json_option, print_json
from cephfit.cli.terminal.written_files import OUTPUT_FILE, refuse_lost_input, written_whole
from cephfit.cli.trace.trace_input import TraceInput, description_option, files_argument, trace_options
from cephfit.operations.progress_display import progress_display

if TYPE_CHECKING:
    from cephfit.core.values.profile import Profile

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>body{{font:16px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1200px;padding:0 1rem;color:#222;
background:#fff}} main{{display:grid;gap:1.5rem;grid-template-columns:
repeat(auto-fit,minmax(min(100%,480px),1fr))}}
figure{{margin:0}} svg{{width:100%;height:auto}}</style></head>
<body><h1>{title}</h1><p>{summary}</p><main>
{figures}
</main></body></html>
"""


@click.command("plot", short_help="Draw a workload as PNG, SVG or HTML.")
@click.option(
    "-o",
    "--output",
    required=True,
    type=OUTPUT_FILE,
    help="File to write; its suffix chooses the format: .png, .svg, .pdf, or .html with one plot below the other.",
)
@click.option(
    "--only",
    "only",
    multiple=True,
    help="Draw this plot only; lbn:DISK and heat_map:DISK are of that disk. Repeatable.  [default: all, of the "
    "busiest disk]",
)
@trace_options
@files_argument
@description_option
@json_option
def command(
    files: tuple[Path, ...],
    output: Path,
    only: tuple[str, ...],
    trace: TraceInput,
    as_json: bool,
) -> None:
    """Draw size bins, sizes, distances, outstanding I/O, latency, inter-arrival times, and behaviour over time and
    over the disk.

    Several TRACEs are read together, as in `trace profile`: as simultaneous recordings of different disks, or with
    --parts as consecutive parts of one recording.

    Needs matplotlib: pip install 'cephfit[plot]'.
    """
    from cephfit.core.errors import InputError
    from cephfit.core.optional_modules import optional_module

    kind = output.suffix.lower().lstrip(".")
    if kind not in ("png", "svg", "pdf", "html"):
        raise InputError(
            f"there is no output format for {output.suffix or 'a file without a suffix'}",
            where=str(output),
            remedy="use a file name that ends with .png, .svg, .pdf or .html",
        )
    optional_module("matplotlib")
    import matplotlib

    from cephfit.traces.description.workload_figures import NAMES, drawings, figure_of, usually_drawn

    for name in only:
        if name.partition(":")[0] not in NAMES:  # refused before a trace is read for hours
            raise InputError(
                f"there is no plot {name!r}", where="--only", remedy=f"choose from: {', '.join(NAMES)}"
            )
    refuse_lost_input(output)
    with progress_display() as progress:
        found = trace.profile(files, progress)
    known = list(drawings(found))
    for name in only:
        if name not in known:
            raise InputError(
                f"the workload has no plot {name!r}", where="--only", remedy=f"choose from: {', '.join(known)}"
            )
    names = list(only) or usually_drawn(found)
    style: Any = {"svg.hashsalt": "cephfit", "svg.fonttype": "path", "font.family": "DejaVu Sans"}
    with matplotlib.rc_context(style), written_whole(output, what="the plots") as place:
        if kind == "html":
            place.write_text(_page(found, names), encoding="utf-8")
        else:
            metadata = {"Date": None} if kind == "svg" else None
            figure_of(found, names).savefig(place, format=kind, dpi=120, metadata=metadata)
    if as_json:
        print_json({"file": str(output), "pictures": names})
    else:
        click.echo(f"{output}: {', '.join(names)}")


def _page(found: Profile, names: list[str]) -> str:
    """Return one page with all plots; it loads nothing from the network."""
    from html import escape

    from cephfit.traces.description.workload_figures import figure_of

    figures = []
    for number, name in enumerate(names):
        buffer = io.StringIO()
        figure_of(found, [name]).savefig(buffer, format="svg", metadata={"Date": None})
        svg = buffer.getvalue()
        figures.append(f"<figure>{_own_ids(svg[svg.index('<svg') :], f'p{number}')}</figure>")
    summary = f"{found.n_accesses:,} accesses, {100 * found.description.get('read_share', 0):.1f} % reads"
    return _PAGE.format(title=escape(found.name), summary=summary, figures="\n".join(figures))


def _own_ids(svg: str, prefix: str) -> str:
    """Make the ids of a plot unique, because the parts of each plot refer to each other by ids."""
    import re

    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)
