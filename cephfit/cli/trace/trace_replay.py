"""`cephfit trace replay`: replay a trace on a device, and report the timing error."""

from __future__ import annotations

from pathlib import Path

import click

from cephfit.cli.terminal.output import json_option, print_json
from cephfit.cli.trace.trace_input import TraceInput, trace_options
from cephfit.cli.trace.trace_reading import TracePath
from cephfit.cli.trace.trace_show import print_omitted_disks
from cephfit.core.units import format_seconds
from cephfit.operations.progress_display import progress_display


@click.command("replay", short_help="Replay a trace on a device or file; it WRITES there.")
@click.argument("files", metavar="TRACE...", nargs=-1, required=True, type=TracePath())
@click.option("--device", type=click.Path(path_type=Path, readable=False), help="Block device to replay on.")
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path, readable=False),
    help="File to replay on, as large as the trace needs.",
)
@click.option("--i-know-it-writes", "consent", is_flag=True, help="Allow the target's content to be overwritten.")
@click.option(
    "--iodepth", type=click.IntRange(1, 4096), default=256, show_default=True, help="Maximum I/Os in flight."
)
@click.option("--wrap", is_flag=True, help="Wrap offsets beyond the end of the target around to its start.")
@click.option("--full-speed", is_flag=True, help="Ignore the recorded times and go as fast as the target can.")
@click.option("--disk", help="Replay this disk of the trace only.")
@trace_options
@json_option
def command(
    files: tuple[Path, ...],
    device: Path | None,
    file: Path | None,
    consent: bool,
    iodepth: int,
    wrap: bool,
    full_speed: bool,
    disk: str | None,
    trace: TraceInput,
    as_json: bool,
) -> None:
    """Issue a trace's reads and WRITES at their recorded times, through fio.

    A trace of several disks needs --disk, because each disk has its own offsets. Of a disk and the disk below it
    (dm and its disk) only one is replayed, as in `trace profile`.

    Several TRACEs are the blktrace files of the CPUs. Join consecutive parts: cat PART... | cephfit trace replay -
    --file FILE.

    A device that is mounted or otherwise in use is refused. Lateness is how much later than in the trace an access
    was issued, both counted from the first access; fio's log shows it to within 1 ms.
    """
    from cephfit.core.errors import InputError
    from cephfit.traces.replay.fio_replay import replay

    if (device is None) == (file is None):
        raise InputError(
            "no target to replay on" if device is None else "--device and --file exclude each other",
            remedy="give either --device DEVICE or --file FILE",
        )
    target = device or file
    assert target is not None
    if target.is_block_device() != (device is not None) and target.exists():
        raise InputError(
            f"this is {'a' if file else 'not a'} block device",
            where=str(target),
            remedy="give block devices with --device, and files with --file",
        )
    if not consent:
        raise InputError(
            "replaying a trace overwrites the target's content",
            where=str(target),
            remedy="if that is intended, add --i-know-it-writes",
        )
    with progress_display() as progress:
        source, omitted = trace.accesses(files, disk=disk, progress=progress)
        progress.note(f"replaying on {target}")
        report = replay(source, target, iodepth=iodepth, wrap=wrap, paced=not full_speed)
    if as_json:
        print_json({**report.to_json(), "left_out": omitted})
        return
    print_omitted_disks(omitted)
    click.echo(
        f"{report.replayed} of {report.accesses} accesses replayed by {report.fio} in "
        f"{format_seconds(report.actual_seconds)}, recorded in {format_seconds(report.planned_seconds)}"
    )
    if report.rounded:
        click.echo(f"{report.rounded} sizes were rounded up to whole blocks of 512 bytes")
    if report.late_ms and report.gap_error_ms and report.late_share is not None:
        click.echo(
            f"issued late, by at most: {_shown(report.late_ms)}; {100 * report.late_share:.1f} % by more than 2 ms"
        )
        click.echo(f"error of single gaps, at most: {_shown(report.gap_error_ms)} (both known to 1 ms)")
    click.echo("latency, at most: " + ", ".join(f"{p[1:]} % {v:.0f} us" for p, v in report.latency_us.items()))


def _shown(percentiles: dict[str, float]) -> str:
    return ", ".join(f"{p[1:]} % {v:.1f} ms" for p, v in percentiles.items())
