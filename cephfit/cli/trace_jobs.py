"""`cephfit trace jobs`: a fio job file that reproduces a profile."""

from __future__ import annotations

from pathlib import Path

import click

from cephfit.cli.output import json_option, print_json, progress_display
from cephfit.cli.trace_input import TraceInput, description_option, trace_options
from cephfit.cli.written_files import write_whole


@click.command("jobs", short_help="Write a fio job that does what a profile says.")
@click.argument("path", metavar="PROFILE_OR_TRACE", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="The job file [default: print]."
)
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path),
    default=Path("cephfit-fio.data"),
    show_default=True,
    help="File or device that the job works on. It WRITES to it.",
)
@click.option("--size", "size", metavar="SIZE", help="Of the file [default: the workload's footprint].")
@click.option(
    "--seconds", type=click.FloatRange(min=0.1), default=60.0, show_default=True, help="How long it runs."
)
@click.option(
    "--pace",
    type=click.Choice(["recorded", "full-speed"]),
    default="recorded",
    show_default=True,
    help="As fast as the workload was, or as the device lets it.",
)
@trace_options
@description_option
@json_option
def command(
    path: Path,
    output: Path | None,
    file: Path,
    size: str | None,
    seconds: float,
    pace: str,
    trace: TraceInput,
    as_json: bool,
) -> None:
    """Write a fio job with the profile's sizes, mix, randomness, depth and pace.

    fio takes whole percents, and one share of random accesses for all reads and one for all writes. Best from a
    profile made with --describe full, which knows exact sizes and the footprint.
    """
    from cephfit.traces.replay.fio_job import job_of
    from cephfit.units import parse_nbytes

    with progress_display() as progress:
        found = trace.profile(path, progress)
    job = job_of(found, paced=pace == "recorded", nbytes=parse_nbytes(size, where="--size") if size else None)
    text = job.text(file, seconds=seconds)
    if output is not None:
        write_whole(output, text, what="the job")
    if as_json:
        print_json({"file": str(output) if output else None, "job": text, "notes": list(job.notes)})
    elif output is None:
        click.echo(text, nl=False)
    else:
        click.echo(f"{output}: fio {output} does it on {file} (which it overwrites)")
        for note in job.notes:
            click.echo(f"note: {note}")
