"""`cephfit trace`: the group, and its commands `capture`, `profile`, `plot` and `compare`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.options.common_options import Finite
from cephfit.cli.options.completers import trace_formats
from cephfit.cli.output import (
    OUTPUT_FILE,
    SentenceGroup,
    json_option,
    print_json,
    print_table,
    refuse_lost_input,
    write_whole,
    written_whole,
)
from cephfit.cli.trace import trace_replay, trace_show, trace_workload
from cephfit.cli.trace.trace_input import (
    TraceInput,
    TracePath,
    description_option,
    disks_option,
    files_argument,
    parts_option,
    reading_options,
    trace_options,
    trace_place,
)
from cephfit.cli.trace.trace_show import print_summary, rate_text
from cephfit.core.units import format_nbytes, format_seconds
from cephfit.operations.measuring.progress_display import progress_display
from cephfit.traces.compiled import announce_slow_compilation
from cephfit.traces.recordings import parts_hint, read_options

if TYPE_CHECKING:
    from cephfit.core.values.profile import Profile


@click.command("profile", short_help="What a workload does, from its trace.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=TracePath())
@click.option(
    "--format",
    "format_name",
    metavar="FORMAT",
    shell_complete=trace_formats,
    help="Format of the trace.  [default: detected from its content]",
)
@click.option(
    "--action",
    type=click.Choice(["Q", "D", "C"]),
    help="Block-layer event that counts as an access: Q (queued), D (issued to the disk) or C "
    "(completed: no latencies).  [default: Q; C for a trace of completions only]",
)
@reading_options
@disks_option
@parts_option
@click.option(
    "--describe",
    type=click.Choice(["fast", "full"]),
    default="fast",
    show_default=True,
    help="full adds windowed distance, behaviour over time, phases, heat map, hot spots, footprint, busy share, "
    "burstiness and exact sizes. It reads about a million accesses per second, and works for up to 32 disks.",
)
@click.option(
    "--threshold",
    type=click.IntRange(0, 1 << 30),
    default=128,
    show_default=True,
    metavar="LBN",
    help="Distance in 512-byte blocks beyond which an access is random; any value but 128 implies "
    "--describe full. Keep 128 for a profile that you want to map.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Read the files on a Dask cluster (tcp://HOST:8786; its workers must see them under the same paths), or "
    "in one process per core (`processes`). The profile is the same. With --parts all files of a device are one "
    "job, because each part continues the previous one.",
)
@click.option(
    "--waiting/--no-waiting",
    "demands",
    default=True,
    show_default=True,
    help="Count alignment, flushes, and waiting time by kind of access and number outstanding. The model "
    "`waiting` of `cephfit map` uses them. Without them, large files are read by all cores.",
)
@click.option("--name", help="Name of the profile.  [default: from the first file]")
@click.option("-o", "--output", type=OUTPUT_FILE, help="File to write the profile to.")
@json_option
def profile_command(
    files: tuple[Path, ...],
    format_name: str | None,
    action: str | None,
    assume_op: str | None,
    columns: str | None,
    blkparse_format: str | None,
    disks: tuple[str, ...],
    parts: bool,
    describe: str,
    threshold: int,
    scheduler: str | None,
    demands: bool,
    name: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Read traces and count accesses per size bin, op and randomness.

    FILE is a trace (also compressed with gzip, xz, bzip2 or zstd), a URL (s3://, http:// ...: install
    cephfit[remote]), - for standard input, a folder with blktrace files, or their base name. Several disks are
    counted separately and added up; the files of one recording (blktrace: one per CPU) are merged.

    Several FILEs are simultaneous recordings of different disks, or with --parts consecutive parts of one
    recording.

    Formats, detected from the content: blktrace (raw files, blkparse -d dumps), blkparse (default text),
    block-events (perf script, trace-cmd), biosnoop, iosnoop, vscsi-csv and vscsi-binary (vscsiStats command
    traces), vscsi-histogram (vscsiStats -p all -c), fio-iolog, strace, qemu, rbd-replay, xperf, and those of
    published traces: msr, spc, alibaba, tencent, systor17, fiu, mqsim, disksim, disksim-validate, blkreplay,
    oracle-general; and parquet, as `trace convert` writes it. The profile lists what its format does not contain.

    Read a file with another layout with --columns, and the output of blkparse -f with --blkparse-format.
    """
    from cephfit.traces import profile_files
    from cephfit.traces.readers.block_events.block_layer import Action

    if output is not None:
        refuse_lost_input(output)
    with progress_display() as progress, parts_hint(files, parts=parts):
        found = profile_files(
            files,
            format_name=format_name,
            action=Action(action) if action else None,
            name=name,
            disks=disks,
            parts=parts,
            full=describe == "full",
            threshold=threshold,
            options=read_options(assume_op, columns, blkparse_format),
            scheduler=scheduler,
            demands=demands,
            progress=progress,
        )
    if output is not None:
        write_whole(output, found.dumps(), what="the profile")
    if as_json:
        print_json(found.to_json())
    else:
        print_summary(found)
        if output is not None:
            click.echo(f"\nProfile written to {output}; next: cephfit map {output} --baselines STORE")


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
def plot_command(
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

    from cephfit.core.values.cells import Op
    from cephfit.traces.description.workload_figures import figure_of

    figures = []
    for number, name in enumerate(names):
        buffer = io.StringIO()
        figure_of(found, [name]).savefig(buffer, format="svg", metadata={"Date": None})
        svg = buffer.getvalue()
        figures.append(f"<figure>{_own_ids(svg[svg.index('<svg') :], f'p{number}')}</figure>")
    n_reads = sum(found.accesses[Op.READ].values())
    summary = f"{found.n_accesses:,} accesses, {100 * n_reads / found.n_accesses:.1f} % reads"
    return _PAGE.format(title=escape(found.name), summary=summary, figures="\n".join(figures))


def _own_ids(svg: str, prefix: str) -> str:
    """Make the ids of a plot unique, because the parts of each plot refer to each other by ids."""
    import re

    return re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{prefix}-", svg)


@click.command("capture", short_help="Record the accesses to a block device.")
@click.argument("device", type=click.Path(path_type=Path, readable=False))
@click.option("--seconds", type=Finite(min=0.1), required=True, help="How long to record.")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    required=True,
    help="Folder for the files (end its name with / to create it), or their base name (OUTPUT.blktrace.N).",
)
@json_option
def capture_command(device: Path, seconds: float, output: str, as_json: bool) -> None:
    """Record DEVICE's accesses as raw blktrace files. Needs root.

    Uses blktrace, or the kernel's own blk tracer where blktrace cannot work (on a locked-down kernel).
    """
    from cephfit.traces.capturing.capture import capture as record

    with trace_place(output) as place, progress_display() as progress:
        report = record(device, seconds, place, progress=progress)
    if as_json:
        print_json(report.to_json())
        return
    method = "blktrace" if report.method == "blktrace" else f"the kernel's blk tracer ({report.why_method})"
    amount = f"{len(report.files)} files, {format_nbytes(report.nbytes)} bytes in {format_seconds(report.seconds)}"
    click.echo(f"{amount}, by {method}")
    for file in report.files:
        click.echo(f"  {file}")
    if report.lost_events:
        click.echo(f"{report.lost_events} events were lost: the device was faster than the trace could be read")
    else:
        click.echo("no events were lost")
    if not report.files:
        click.echo(f"{device} was not accessed during the capture; record it while the workload runs")
        return
    source = output if place.is_dir() or len(report.files) != 1 else report.files[0]
    click.echo(f"next: cephfit trace profile {source} -o profile.json")


@click.command("compare", short_help="How two workloads differ, cell by cell.")
@click.argument("workloads", metavar="A B", nargs=-1, required=True, type=TracePath())
@trace_options
@description_option
@json_option
def compare_command(workloads: tuple[Path, ...], trace: TraceInput, as_json: bool) -> None:
    """Compare two workloads, each a profile or a trace.

    For a workload in several files, create a profile first: cephfit trace profile --parts FILE... --describe full
    -o a.json (without --parts for simultaneous recordings). A folder of blktrace files is one recording.

    The distance is the share of accesses that would need another size bin, op or randomness to make the two
    equal (total variation): 0 % means the same, 100 % nothing in common.
    """
    from cephfit.core.errors import InputError
    from cephfit.traces import opening
    from cephfit.traces.description.stored_descriptions import compared

    if len(workloads) != 2:
        raise InputError(
            f"exactly two workloads can be compared, and {len(workloads)} are given",
            where=" ".join(map(opening.display_name, workloads)),
            remedy="for a workload in several files, create a profile first: cephfit trace profile [--parts] "
            "FILE... --describe full -o a.json",
        )
    with progress_display() as progress:
        first, second = (trace.profile([path], progress) for path in workloads)
    found = compared(first, second)
    if as_json:
        print_json({"a": first.name, "b": second.name, **found.to_json()})
        return
    click.echo(f"A {first.name}: {first.n_accesses:,} accesses; B {second.name}: {second.n_accesses:,} accesses")
    click.echo(f"distance: {100 * found.total_variation:.1f} % of the accesses are in another cell\n")
    rows = [
        [cell, f"{100 * x:.1f}", f"{100 * y:.1f}", f"{100 * (y - x):+.1f}"]
        for cell, (x, y) in found.shares.items()
        if x or y
    ]
    print_table(["cell", "A %", "B %", "B - A"], rows, right=range(1, 4))
    click.echo()
    for note in found.notes:
        click.echo(note)
    for op, (x, y) in found.random.items():
        shown = [f"{100 * s:.1f} %" if s is not None else "-" for s in (x, y)]
        click.echo(f"random {op}s: {shown[0]} in A, {shown[1]} in B")
    for name, (x, y) in found.rates.items():
        unit, scale = ("IOPS", 1.0) if name == "iops" else ("MiB/s", 1 / (1 << 20))
        click.echo(f"{unit}: {rate_text(x * scale)} in A, {rate_text(y * scale)} in B ({y / x:.2f} times)")
    if found.histograms:
        click.echo("\nHistograms: total variation, and largest difference of the cumulative shares\n")
        table = [
            [h.name, h.kind, f"{100 * h.total_variation:.1f} %", f"{100 * h.kolmogorov_smirnov:.1f} %"]
            for h in found.histograms
        ]
        print_table(["histogram", "kind", "total variation", "cumulative"], table, right=(2, 3))


@click.group("trace", cls=SentenceGroup)
def command() -> None:
    """Workload traces: capture, profile, show, plot, compare, convert, jobs, replay, workload."""
    announce_slow_compilation(
        lambda: click.echo(
            "compiling the loops that read traces; this takes up to half a minute, only once",
            err=True,
        )
    )


for _command in (
    capture_command,
    profile_command,
    trace_show.command,
    plot_command,
    compare_command,
    trace_replay.convert_command,
    trace_replay.jobs_command,
    trace_replay.replay_command,
    trace_workload.command,
):
    command.add_command(_command)
