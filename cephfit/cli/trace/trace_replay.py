"""`cephfit trace replay`, `convert` and `jobs`: issue the accesses of a trace again, or write them for fio."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.options.common_options import Finite
from cephfit.cli.output import OUTPUT_FILE, json_option, print_json, refuse_lost_input, write_whole, written_whole
from cephfit.cli.trace.trace_input import TraceInput, TracePath, description_option, files_argument, trace_options
from cephfit.cli.trace.trace_show import print_omitted_disks
from cephfit.core.units import format_seconds
from cephfit.operations.measuring.progress_display import progress_display

if TYPE_CHECKING:
    from cephfit.traces.readers.fio_iolog import IologWritten
    from cephfit.traces.replay.workload_job import Section


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
def replay_command(
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


_DISKS_NAMED = 15


@click.command("convert", short_help="Write a trace as Parquet or as fio's I/O log.")
@click.argument("files", metavar="TRACE...", nargs=-1, required=True, type=TracePath())
@click.option(
    "-o",
    "--output",
    required=True,
    type=OUTPUT_FILE,
    help="File to write; its suffix chooses the format: .parquet or .iolog.",
)
@click.option(
    "--iolog-version",
    type=click.Choice(["2", "3"]),
    default="3",
    show_default=True,
    help="3 has a time in every line and needs fio 3.31 or later; 2 has waits, in whole milliseconds.",
)
@click.option("--disk", help="Write this disk only.")
@trace_options
@json_option
def convert_command(
    files: tuple[Path, ...],
    output: Path,
    iolog_version: str,
    disk: str | None,
    trace: TraceInput,
    as_json: bool,
) -> None:
    """Write one recording in another format, in constant memory.

    Several TRACEs are the blktrace files of the CPUs. Join consecutive parts: cat PART... | cephfit trace
    convert - -o FILE.

    Of a disk and the disk below it (dm and its disk) only one is written, as in `trace profile`.

    Parquet (needs pip install 'cephfit[parquet]') keeps every column, and every command that reads traces reads
    it. fio's I/O log holds only times, sizes and offsets; fio replays it with read_iolog. In the log, disks have
    names that are not names of files, and sizes are whole 512-byte blocks.
    """
    from cephfit.core.errors import InputError
    from cephfit.traces.readers.fio_iolog import open_output, write_iolog
    from cephfit.traces.readers.parquet import write_parquet

    kind = output.suffix.lower()
    if kind not in (".parquet", ".iolog"):
        raise InputError(
            f"there is no output format for {output.suffix or 'a file without a suffix'}",
            where=str(output),
            remedy="use a file name that ends with .parquet or .iolog",
        )
    refuse_lost_input(output)
    with progress_display() as progress:
        source, omitted = trace.accesses(files, disk=disk, progress=progress)
    its_log: IologWritten | None = None
    with written_whole(output, what="the trace") as place:
        if kind == ".parquet":
            n = write_parquet(
                source,
                place,
                lacks=lambda: source.lacks,
                notes=lambda: source.notes,
                losses_known=lambda: source.losses_known,
                clock_ns=lambda: source.clock_ns,
            )
        else:
            with open_output(place) as log:
                its_log = write_iolog(source, log, version=int(iolog_version))
            n = its_log.accesses
    nbytes = output.stat().st_size
    if as_json:
        about: dict[str, Any] = {"file": str(output), "accesses": n, "nbytes": nbytes, "left_out": omitted}
        if its_log:
            about |= {"disks": dict(its_log.disks), "rounded": its_log.rounded}
        print_json(about)
        return
    print_omitted_disks(omitted)
    click.echo(f"{output}: {n} accesses, {nbytes} bytes ({nbytes / n:.1f} per access)")
    if its_log:
        _print_log_summary(its_log)


def _print_log_summary(log: IologWritten) -> None:
    if log.rounded:
        click.echo(
            f"{log.rounded} accesses have sizes that are not multiples of 512 bytes: "
            "the sizes are rounded up for direct I/O"
        )
    for name, disk in list(log.disks.items())[:_DISKS_NAMED]:
        click.echo(f"{name} in the log: disk {disk}")
    if len(log.disks) > _DISKS_NAMED:
        click.echo(f"and {len(log.disks) - _DISKS_NAMED} more disks")
    click.echo(
        "fio writes to files with these names in its working directory; --replay_redirect=TARGET of fio selects "
        "another file or device"
    )


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
def jobs_command(
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
