"""`cephfit trace profile`: read traces into a workload profile."""

from pathlib import Path

import click

from cephfit.cli.options.completers import trace_formats
from cephfit.cli.terminal.output import json_option, print_json
from cephfit.cli.terminal.written_files import OUTPUT_FILE, refuse_lost_input, write_whole
from cephfit.cli.trace.trace_input import (
    TracePath,
    disks_option,
    parts_option,
    reading_options,
)
from cephfit.cli.trace.trace_show import print_summary
from cephfit.operations.progress_display import progress_display
from cephfit.traces.read_options import parts_hint, read_options


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
def command(
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
    traces),
    vscsi-histogram (vscsiStats -p all -c), fio-iolog, strace, qemu, rbd-replay, xperf, and those of published
    traces: msr, spc, alibaba, tencent, systor17, fiu, mqsim, disksim, disksim-validate, blkreplay,
    oracle-general; and parquet, as
    `trace convert` writes it. The profile lists what its format does not contain.

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
