"""`cephfit trace jobs`: write a fio job file that reproduces a profile."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.options.common_options import Finite
from cephfit.cli.terminal.output import json_option, print_json
from cephfit.cli.terminal.written_files import OUTPUT_FILE, refuse_lost_input, write_whole
from cephfit.cli.trace.trace_input import TraceInput, description_option, files_argument, trace_options
from cephfit.operations.progress_display import progress_display

if TYPE_CHECKING:
    from cephfit.traces.replay.workload_job import Section


@click.command("jobs", short_help="Write a fio job that reproduces a profile.")
@click.option("-o", "--output", type=OUTPUT_FILE, help="Job file to write.  [default: print it]")
@click.option(
    "--file",
    "file",
    type=click.Path(path_type=Path),
    default=Path("cephfit-fio.data"),
    show_default=True,
    help="File or device for the job. The job WRITES to it. With several disks, each gets its own file "
    "next to this one, with the disk's name in its name.",
)
@click.option(
    "--disk-file",
    "disk_files",
    metavar="DISK FILE",
    type=(str, click.Path(path_type=Path)),
    multiple=True,
    help="File or device for one of several disks. Repeatable.",
)
@click.option("--size", "size", metavar="SIZE", help="Size of each file.  [default: its disk's footprint]")
@click.option("--seconds", type=Finite(min=0.1), default=60.0, show_default=True, help="How long the job runs.")
@click.option(
    "--pace",
    type=click.Choice(["recorded", "full-speed"]),
    default="recorded",
    show_default=True,
    help="As fast as the recorded workload, or as fast as the device can.",
)
@trace_options
@files_argument
@description_option
@json_option
def command(
    files: tuple[Path, ...],
    output: Path | None,
    file: Path,
    disk_files: tuple[tuple[str, Path], ...],
    size: str | None,
    seconds: float,
    pace: str,
    trace: TraceInput,
    as_json: bool,
) -> None:
    """Write a fio job with the profile's sizes, mix, randomness, depth and pace.

    For a trace of several disks (--disk selects some), each disk becomes a section that reproduces its own
    profile; fio runs all sections at once, each on its own file. A profile file becomes one job.

    Several TRACEs are read together, as in `trace profile`: as simultaneous recordings of different disks, or with
    --parts as consecutive parts of one recording.

    fio takes whole percentages, and one share of random accesses for all reads and one for all writes. The result
    is best for a trace, or for a profile with --describe full, which has the exact sizes and the footprint.
    """
    from cephfit.core.units import parse_nbytes
    from cephfit.traces.replay.workload_job import DiskJob, job_file, job_of, sections_of, shared_notes

    nbytes = parse_nbytes(size, where="--size") if size else None
    if output is not None:
        refuse_lost_input(output)
    with progress_display() as progress:
        profiles = trace.profiles_by_disk(files, progress)
    jobs = []
    for found in profiles:
        disks = list(found.description.get("disks", {}))
        job = job_of(found, paced=pace == "recorded", nbytes=nbytes, seconds=seconds)
        jobs.append(DiskJob(disks[0] if len(disks) == 1 else None, found.n_accesses, job))
    sections = sections_of(jobs, file=file, files=dict(disk_files))
    text = job_file(sections, title=profiles[0].name, seconds=seconds)
    if output is not None:
        write_whole(output, text, what="the job")
    if as_json:
        print_json(
            {
                "file": str(output) if output else None,
                "job": text,
                "notes": shared_notes(sections),
                "sections": [_as_json(section) for section in sections],
            }
        )
    elif output is None:
        click.echo(text, nl=False)
    else:
        _print_result(output, sections, shared_notes(sections))


def _as_json(section: Section) -> dict[str, Any]:
    job = section.of.job
    return {
        "name": section.name,
        "disk": section.of.disk,
        "accesses": section.of.n_accesses,
        "file": str(section.file),
        "nbytes": job.nbytes,
        "iodepth": job.iodepth,
        "notes": list(job.notes),
    }


def _print_result(output: Path, sections: list[Section], shared: list[str]) -> None:
    if len(sections) == 1:
        click.echo(f"{output}: fio {output} runs it on {sections[0].file} (and overwrites that)")
    else:
        click.echo(f"{output}: fio {output} reproduces {len(sections)} disks at once, and overwrites:")
    for section in sections if len(sections) > 1 else []:
        click.echo(f"  {section.file}: disk {section.of.disk}, section {section.name}")
    for note in shared:
        click.echo(f"note: {note}")
    for section in sections:
        for note in section.of.job.notes:
            if note not in shared:
                click.echo(f"note: disk {section.of.disk}: {note}")
