"""`cephfit trace`: the group, and its commands `capture` and `compare`."""

from pathlib import Path

import click

from cephfit.cli.options.common_options import Finite
from cephfit.cli.terminal.command_groups import SentenceGroup
from cephfit.cli.terminal.output import json_option, print_json, print_table
from cephfit.cli.trace import trace_plot, trace_profile, trace_replay, trace_show, trace_workload
from cephfit.cli.trace.trace_input import TraceInput, TracePath, description_option, trace_options, trace_place
from cephfit.cli.trace.trace_show import rate_text
from cephfit.core.slow_compilation import announce_slow_compilation
from cephfit.core.units import format_nbytes, format_seconds
from cephfit.operations.progress_display import progress_display


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
    from cephfit.traces.description.profile_comparison import compared
    from cephfit.traces.files import remote

    if len(workloads) != 2:
        raise InputError(
            f"exactly two workloads can be compared, and {len(workloads)} are given",
            where=" ".join(map(remote.display_name, workloads)),
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
    trace_profile.command,
    trace_show.command,
    trace_plot.command,
    compare_command,
    trace_replay.convert_command,
    trace_replay.jobs_command,
    trace_replay.replay_command,
    trace_workload.command,
):
    command.add_command(_command)
