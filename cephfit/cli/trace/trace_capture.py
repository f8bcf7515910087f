"""`cephfit trace capture`: record the accesses to a block device."""

from pathlib import Path

import click

from cephfit.cli.options.common_options import Finite
from cephfit.cli.terminal.output import json_option, print_json
from cephfit.cli.trace.trace_input import trace_place
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
def command(device: Path, seconds: float, output: str, as_json: bool) -> None:
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
