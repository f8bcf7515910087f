"""`cephfit trace convert`: write a trace as Parquet or as fio's I/O log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.terminal.output import json_option, print_json
from cephfit.cli.terminal.written_files import OUTPUT_FILE, refuse_lost_input, written_whole
from cephfit.cli.trace.trace_input import TraceInput, trace_options
from cephfit.cli.trace.trace_reading import TracePath
from cephfit.cli.trace.trace_show import print_omitted_disks
from cephfit.operations.progress_display import progress_display

if TYPE_CHECKING:
    from cephfit.traces.replay.iolog_writer import IologWritten

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
    help="3 has a time in every line and needs fio 3.31 or later; 2 has waits between the accesses.",
)
@click.option("--disk", help="Write this disk only.")
@trace_options
@json_option
def command(
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
    from cephfit.traces.readers.parquet import write_parquet
    from cephfit.traces.replay.iolog_writer import open_output, write_iolog

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
