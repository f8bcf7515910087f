"""`cephfit trace`: read workload traces, and capture them."""

from pathlib import Path

import click

from cephfit.cli import (
    trace_compare,
    trace_convert,
    trace_jobs,
    trace_plot,
    trace_replay,
    trace_show,
    trace_workload,
)
from cephfit.cli.output import json_option, print_json, print_table, progress_display
from cephfit.cli.trace_place import trace_place
from cephfit.cli.trace_reading import read_options, reading_options
from cephfit.profile import Profile
from cephfit.units import format_nbytes, format_seconds


@click.group("trace")
def command() -> None:
    """Workload traces: capture, profile, show, plot, compare, convert, jobs, replay, workload."""


for _module in (
    trace_show,
    trace_plot,
    trace_compare,
    trace_convert,
    trace_jobs,
    trace_replay,
    trace_workload,
):
    command.add_command(_module.command)


@command.command("profile", short_help="What a workload does, from its trace.")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--format", "format_name", metavar="FORMAT", help="Read as this format instead of telling by content."
)
@click.option(
    "--action",
    type=click.Choice(["Q", "D"]),
    default="Q",
    show_default=True,
    help="Block layer event that counts as an access: Q as the application queued it, D as the device got it.",
)
@reading_options
@click.option("--disk", "disks", multiple=True, help="Count this disk only (several: give it again).")
@click.option("--parts", is_flag=True, help="The files are consecutive parts of one trace, in this order.")
@click.option(
    "--describe",
    type=click.Choice(["fast", "full"]),
    default="fast",
    show_default=True,
    help="full adds windowed distance, behaviour over time, phases, heat map, hot spots, footprint, busy share, "
    "burstiness and exact sizes. It reads about a million accesses a second, and works for up to 32 disks.",
)
@click.option(
    "--threshold",
    type=click.IntRange(0, 1 << 30),
    default=128,
    show_default=True,
    metavar="LBN",
    help="Distance in 512-byte blocks beyond which an access is random; another one than 128 implies "
    "--describe full. Sweeps measure random accesses anywhere, so keep 128 to map.",
)
@click.option(
    "--scheduler",
    metavar="ADDRESS",
    help="Let a Dask cluster read the files (tcp://HOST:8786; its workers see them under the same paths), or "
    "`processes`: one for each core. The profile is the same.",
)
@click.option("--name", help="Name of the profile [default: from the first file].")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write the profile here.")
@json_option
def profile(
    files: tuple[Path, ...],
    format_name: str | None,
    action: str,
    assume_op: str | None,
    columns: str | None,
    blkparse_format: str | None,
    disks: tuple[str, ...],
    parts: bool,
    describe: str,
    threshold: int,
    scheduler: str | None,
    name: str | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Read traces and count accesses per size bin, op and randomness.

    FILE is a trace (also compressed with gzip, xz, bzip2 or zstd), a URL (s3://, http:// ...: install
    cephfit[remote]), - for standard input, a folder with blktrace's files, or their base name. Files of several
    disks are counted beside each other; those of one recording (blktrace: one for each CPU) are merged.

    Formats, told by content: blktrace (raw files, blkparse -d dumps), blkparse (default text), block-events
    (perf script, trace-cmd), biosnoop, vscsi-csv and vscsi-binary (vscsiStats command traces), vscsi-histogram
    (vscsiStats -p all -c), fio-iolog, strace, qemu, rbd-replay, xperf, and those of published traces: msr, spc,
    alibaba, tencent, systor17, fiu, mqsim, disksim, blkreplay, oracle-general. What a format does not say is
    told with the profile.

    A file of another layout is read with --columns, the text of blkparse -f with --blkparse-format.
    """
    from cephfit.errors import InputError
    from cephfit.traces import profile_files
    from cephfit.traces.block_layer import Action

    with progress_display() as progress:
        found = profile_files(
            files,
            format_name=format_name,
            action=Action(action),
            name=name,
            disks=disks,
            parts=parts,
            full=describe == "full",
            threshold=threshold,
            options=read_options(assume_op, columns, blkparse_format),
            scheduler=scheduler,
            progress=progress,
        )
    if output is not None:
        try:
            output.write_text(found.dumps(), encoding="utf-8")
        except OSError as error:
            raise InputError(
                f"the profile cannot be written: {error.strerror}",
                where=str(output),
                remedy="choose another place",
            ) from None
    if as_json:
        print_json(found.to_json())
    else:
        print_summary(found)
        if output is not None:
            click.echo(f"\nProfile written to {output}; next: cephfit map {output} --baselines STORE")


def print_summary(found: Profile) -> None:
    """A profile for people: how much, how large, how random."""
    from cephfit.cells import SIZE_BINS, Op

    about = found.description
    total = found.n_accesses
    click.echo(f"{found.name}: {total} accesses{_pace(found)}\n")
    rows = []
    for size in SIZE_BINS:
        row = [size.name]
        for op in Op:
            n = found.accesses[op][size.name]
            row += [
                str(n),
                f"{100 * n / total:.1f} %",
                _share((found.random_by_bin or {}).get(op, {}).get(size.name)),
            ]
        rows.append(row)
    row = ["all"]
    for op in Op:
        n = sum(found.accesses[op].values())
        row += [str(n), f"{100 * n / total:.1f} %", _share(found.random[op] if n else None)]
    rows.append(row)
    headers = ["size bin", "reads", "of all", "random", "writes", "of all", "random"]
    print_table(headers, rows, right=range(1, 7))
    for quantity, title in (("latency_us", "latency"), ("interarrival_us", "inter-arrival")):
        row_of = about.get("percentiles", {}).get(quantity, {}).get("all")
        if row_of:
            shown = ", ".join(f"{p[1:]} % {_time(v)}" for p, v in row_of.items() if p != "n")
            click.echo(f"\n{title} of {row_of['n']} accesses, at most: {shown}", nl=False)
    click.echo()
    _print_thresholds(found)
    for disk, why in about.get("left_out", {}).items():
        click.echo(f"not counted: {why['accesses']} accesses of disk {disk}: {why['why']}")
    skipped = about.get("skipped", {})
    if skipped:
        click.echo("no accesses, skipped: " + ", ".join(f"{n} {reason}" for reason, n in skipped.items()))
    for missing in about.get("lacks", []):
        click.echo(f"the trace does not say: {missing}")
    for note in about.get("notes", []):
        click.echo(f"note: {note}")


def _print_thresholds(found: Profile) -> None:
    """How much hangs on the threshold: the random share at half, double ... of it."""
    from cephfit.cells import RANDOM_THRESHOLD_LBN

    for op, table in found.description.get("random_by_threshold", {}).items():
        near = {t: s for t, s in table.items() if 1 / 8 <= int(t) / RANDOM_THRESHOLD_LBN <= 8}
        shown = ", ".join(f"{t}: {100 * share:.1f} %" for t, share in near.items())
        click.echo(f"random {op}s by threshold in LBN ({RANDOM_THRESHOLD_LBN} counts): {shown}")


def _pace(found: Profile) -> str:
    about = found.description
    n_disks = about.get("n_disks", 1)
    text = f" on {n_disks} disks" if n_disks > 1 else ""
    seconds = about.get("duration_seconds")
    if seconds and "iops" in about:
        text += f" in {format_seconds(seconds)}, {about['iops']:.0f} IOPS, "
        text += f"{about['bytes_per_second'] / (1 << 20):.1f} MiB/s"
    return text


def _time(microseconds: float) -> str:
    """Three significant digits in the unit that suits: ``565 us``, ``24.9 ms``, ``1.99 s``."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds:.3g} us"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


@command.command("capture", short_help="Record what a block device is asked to do.")
@click.argument("device", type=click.Path(path_type=Path, readable=False))
@click.option("--seconds", type=click.FloatRange(min=0.1), required=True, help="How long to record.")
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    required=True,
    help="A folder (a new one: with / at its end), or the base name of the files (OUTPUT.blktrace.N).",
)
@json_option
def capture(device: Path, seconds: float, output: str, as_json: bool) -> None:
    """Record DEVICE's accesses as raw blktrace files. Needs root.

    By blktrace, or by the kernel's own blk tracer where blktrace cannot work (a locked-down kernel).
    """
    from cephfit.traces.capture import capture as record

    with trace_place(output) as place, progress_display() as progress:
        report = record(device, seconds, place, progress=progress)
    if as_json:
        print_json(report.to_json())
        return
    by = "blktrace" if report.method == "blktrace" else f"the kernel's blk tracer ({report.why_method})"
    amount = f"{len(report.files)} files, {format_nbytes(report.nbytes)} bytes in {format_seconds(report.seconds)}"
    click.echo(f"{amount}, by {by}")
    for file in report.files:
        click.echo(f"  {file}")
    if report.lost_events:
        click.echo(f"{report.lost_events} events were lost: the device was faster than the trace could be read")
    else:
        click.echo("no events were lost")
    if not report.files:
        click.echo(f"{device} was asked for nothing meanwhile; record it while the workload runs")
        return
    source = output if place.is_dir() or len(report.files) != 1 else report.files[0]
    click.echo(f"next: cephfit trace profile {source} -o profile.json")
