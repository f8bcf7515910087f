"""`cephfit survey`: the demand of a whole fleet of images from counters, and which images deserve a trace."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.options.common_options import Finite, connection_options
from cephfit.cli.output import OUTPUT_FILE, json_option, print_json, print_table, write_whole
from cephfit.core.errors import HostError
from cephfit.core.units import KIB, MIB, format_seconds
from cephfit.core.values.cells import Op
from cephfit.core.values.image_io import LONGEST_SECONDS, SHORTEST_SECONDS, FleetLoad, ImageLoad, IoCounts
from cephfit.operations.measuring.cluster_options import ClusterOptions
from cephfit.operations.measuring.progress_display import progress_display

if TYPE_CHECKING:
    from cephfit.traces.load_classes import LoadClass

_TRACE_SECONDS = 600
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OWNERS = (
    (re.compile(rf"volume-({_UUID})"), "openstack volume show {} -c attachments"),
    (re.compile(rf"({_UUID})_disk.*"), "openstack server show {}"),
)
"""Names that Cinder and Nova give to images, and the command that finds the server which uses one."""


def _number_of_classes(context: click.Context, parameter: click.Parameter, value: Any) -> int | None:
    """Return a number from 1; None for ``auto``."""
    return None if value == "auto" else int(click.IntRange(min=1).convert(value, parameter, context))


@click.command("survey", short_help="Show what all images of a cluster ask for, and which to trace.")
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Write a profile of each class into this folder, for `cephfit map`.",
)
@click.option("--images", "each_image", is_flag=True, help="With -o: write a profile of each image, too.")
@click.option("--csv", "csv_file", type=OUTPUT_FILE, metavar="FILE", help="Write a table of all images.")
@click.option(
    "--classes",
    "n_classes",
    callback=_number_of_classes,
    default="auto",
    show_default=True,
    metavar="N|auto",
    help="Number of classes; auto: merge images of alike load.",
)
@click.option(
    "--seconds",
    type=Finite(1, LONGEST_SECONDS),
    help="How long to count on a cluster or a URL.  [default: 60]",
)
@click.option(
    "--interval",
    type=Finite(SHORTEST_SECONDS, LONGEST_SECONDS),
    help="Seconds between two readings; between two files, if they have no times.  [default: 10 on a cluster, "
    "15 on a URL, 5 between JSON documents]",
)
@click.option(
    "--random",
    "random_percent",
    type=Finite(0, 100),
    metavar="PERCENT",
    help="Random accesses to assume in the profiles; counters do not show them.  [default: unknown]",
)
@connection_options
@json_option
def command(
    sources: tuple[str, ...],
    output: Path | None,
    each_image: bool,
    csv_file: Path | None,
    n_classes: int | None,
    seconds: float | None,
    interval: float | None,
    random_percent: float | None,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Group all images of a cluster into classes of alike load, and name the few images that deserve a trace.

    SOURCE is `ceph` (a live cluster; nothing is changed), `lab`, the URL of ceph-mgr's module prometheus, two or
    more saved scrapes of it, or saved JSON of `rbd perf image iostat --format json`.

    Counters show rates, mean sizes and mean latencies, but not which accesses are random.
    """
    from cephfit.operations.fleets.fleet_survey import SurveyTimes, fleet_load
    from cephfit.traces.load_classes import classes_of, to_trace

    for option, is_given in (("--images", each_image), ("--random", random_percent is not None)):
        if is_given and output is None:
            raise click.UsageError(f"{option} needs a folder: give it with -o")
    with progress_display() as progress:
        fleet = fleet_load(sources, cluster, SurveyTimes(seconds, interval), progress)
    classes = classes_of(fleet.images, fleet.seconds, n_classes=n_classes)
    chosen = to_trace(classes)
    written = _write(output, fleet, classes, random_percent, each_image=each_image) if output else []
    if csv_file is not None:
        write_whole(csv_file, _csv(fleet, classes), what="the table of images")
    if as_json:
        print_json(_document(fleet, classes, chosen, written))
    else:
        _print(fleet, classes, chosen, written)


def _answer(fleet: FleetLoad, classes: Sequence[LoadClass], chosen: Sequence[LoadClass]) -> str:
    n = sum(len(one.images) for one in classes)
    covered = sum(one.counts.operations for one in chosen) / fleet.counts.operations
    these = "these" if len(chosen) > 1 else "this"
    return (
        f"{_n(n, 'image')} in {_n(len(classes), 'class', 'classes')}; tracing {these} {len(chosen)} covers "
        f"{100 * covered:.0f} % of the operations"
    )


def _n(n: int, one: str, several: str = "") -> str:
    return f"{n} {one if n == 1 else several or f'{one}s'}"


def _print(
    fleet: FleetLoad, classes: Sequence[LoadClass], chosen: Sequence[LoadClass], written: Sequence[str]
) -> None:
    click.echo(_answer(fleet, classes, chosen))
    n_idle = len(fleet.images) - sum(len(one.images) for one in classes)
    idle = f"; {_n(n_idle, 'more image')} without I/O" if n_idle else ""
    click.echo(f"{fleet.source}, {format_seconds(fleet.seconds)}{idle}")
    click.echo()
    columns = [
        "class",
        "images",
        "ops/s",
        "busiest",
        "MiB/s",
        "read KiB",
        "write KiB",
        "reads",
        "ms",
        "of all ops",
    ]
    rows = [_row(one.name, one.images, fleet) for one in classes]
    rows.append(_row("all", [i for one in classes for i in one.images], fleet))
    print_table(columns, rows, right=range(1, len(columns)))
    click.echo()
    click.echo("Trace these:")
    traced = [(one, one.typical, "typical") for one in chosen]
    traced += [(one, image, "unlike its class") for one in classes for image in one.outliers]
    total = fleet.counts.operations
    print_table(
        ["class", "image", "of all ops", "why"],
        [
            [one.name, str(image.name), f"{100 * image.counts.operations / total:.1f} %", why]
            for one, image, why in traced
        ],
        right=(2,),
    )
    for line in _how_to_trace([image for _, image, _ in traced]):
        click.echo(line)
    if written:
        click.echo(f"{_n(len(written), 'profile')} written; next, for all images of each class:")
        click.echo(f"  {_capacity_command(classes, written)}")
        click.echo("or, for the mean image of a class:")
        click.echo(f"  cephfit map {shlex.quote(written[0])} --baselines STORE")
    for note in fleet.notes:
        click.echo(f"Note: {note}")


def _row(name: str, images: Sequence[ImageLoad], fleet: FleetLoad) -> list[str]:
    figures = _figures(images, fleet)

    def text(key: str, unit: float = 1.0) -> str:
        value = figures[key]
        return "-" if value is None else _number(value / unit)

    return [
        name,
        str(len(images)),
        text("operations_per_s"),
        text("busiest_per_s"),
        text("nbytes_per_s", MIB),
        text("read_nbytes", KIB),
        text("write_nbytes", KIB),
        f"{100 * figures['read_share']:.0f} %",
        text("latency_us", 1000),
        f"{100 * figures['share_of_operations']:.1f} %",
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 999.5 else f"{value:.3g}"


def _figures(images: Sequence[ImageLoad], fleet: FleetLoad) -> dict[str, Any]:
    """Return the figures of images together; sizes and latencies are means of an operation."""
    counts = IoCounts()
    for image in images:
        counts = counts.plus(image.counts)
    total = fleet.counts
    latency_ns = counts.read_latency_ns + counts.write_latency_ns
    return {
        "operations_per_s": counts.operations / fleet.seconds,
        "busiest_per_s": fleet.busiest_rate(images),
        "busiest_minute_per_s": fleet.busiest_minute(images),
        "nbytes_per_s": counts.nbytes / fleet.seconds,
        "read_nbytes": counts.mean_nbytes(Op.READ),
        "write_nbytes": counts.mean_nbytes(Op.WRITE),
        "read_share": counts.read_share,
        "read_latency_us": counts.mean_latency_us(Op.READ),
        "write_latency_us": counts.mean_latency_us(Op.WRITE),
        "latency_us": latency_ns / counts.operations / 1000 if counts.operations and latency_ns > 0 else None,
        "share_of_operations": counts.operations / total.operations,
        "share_of_nbytes": counts.nbytes / total.nbytes if total.nbytes else 0.0,
    }


def _capacity_command(classes: Sequence[LoadClass], written: Sequence[str]) -> str:
    """Return the command that judges the whole fleet; the first profiles are those of the classes."""
    files = [shlex.quote(file) for file in written[: len(classes)]]
    counts = ",".join(f"{one.name}={len(one.images)}" for one in classes)
    return f"cephfit capacity {' '.join(files)} --baselines STORE --clients-from {counts}"


def _how_to_trace(images: Sequence[ImageLoad]) -> list[str]:
    """Return the commands that trace an image; the device's name depends on who uses it."""
    lines = [
        "In the guest that uses it (as /dev/vdb, say), or on a host that maps it (as /dev/rbd/POOL/IMAGE):",
        f"  cephfit trace capture /dev/vdb --seconds {_TRACE_SECONDS} -o trace/",
        "  cephfit trace profile trace/ -o profile.json",
    ]
    owners = [command for image in images if (command := _owner(image))]
    if owners:
        lines.append("The servers that use them:")
        lines += [f"  {command}" for command in owners]
    return lines


def _owner(image: ImageLoad) -> str:
    """Return the command that finds the server of an image of OpenStack; empty for other images."""
    for pattern, command in _OWNERS:
        if match := pattern.fullmatch(image.name.image):
            return command.format(match[1])
    return ""


def _document(
    fleet: FleetLoad, classes: Sequence[LoadClass], chosen: Sequence[LoadClass], written: Sequence[str]
) -> dict[str, Any]:
    def of_image(image: ImageLoad) -> dict[str, Any]:
        name = image.name
        return {
            "pool": name.pool,
            "namespace": name.namespace,
            "image": name.image,
            **_figures([image], fleet),
            "find_server": _owner(image) or None,
        }

    active = sum(len(one.images) for one in classes)
    return {
        "answer": _answer(fleet, classes, chosen),
        "source": fleet.source,
        "seconds": fleet.seconds,
        "images": active,
        "idle_images": [str(image.name) for image in fleet.images if image.counts.operations <= 0],
        "covered_share": sum(one.counts.operations for one in chosen) / fleet.counts.operations,
        "classes": [
            {
                "name": one.name,
                **_figures(one.images, fleet),
                "trace": one in chosen,
                "typical": str(one.typical.name),
                "outliers": [str(image.name) for image in one.outliers],
                "images": [of_image(image) for image in one.images],
            }
            for one in classes
        ],
        "written": list(written),
        "next": _capacity_command(classes, written) if written else None,
        "notes": list(fleet.notes),
    }


_COLUMNS = (
    *("operations_per_s", "busiest_per_s", "nbytes_per_s", "read_nbytes", "write_nbytes", "read_share"),
    *("read_latency_us", "write_latency_us", "share_of_operations", "share_of_nbytes"),
)


def _csv(fleet: FleetLoad, classes: Sequence[LoadClass]) -> str:
    """Return the table of all images, those without I/O last, in the class ``idle``."""
    from cephfit.results.tables.csv_text import csv_text

    rows = [(one.name, image, image is one.typical) for one in classes for image in one.images]
    rows += [("idle", image, False) for image in fleet.images if image.counts.operations <= 0]

    def line(name: str, image: ImageLoad, is_typical: bool) -> Sequence[object]:
        figures = _figures([image], fleet)
        shown = ("" if figures[c] is None else f"{figures[c]:.6g}" for c in _COLUMNS)
        return image.name.pool, image.name.namespace, image.name.image, name, "yes" if is_typical else "", *shown

    columns = ("pool", "namespace", "image", "class", "typical", *_COLUMNS)
    return csv_text(columns, (line(*row) for row in rows))


def _write(
    folder: Path,
    fleet: FleetLoad,
    classes: Sequence[LoadClass],
    random_percent: float | None,
    *,
    each_image: bool,
) -> list[str]:
    """Write the profiles; return their paths.

    Raises:
        HostError: the folder or a file cannot be written.
    """
    from cephfit.traces.load_classes import coarse_profile

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise HostError(
            f"the folder cannot be created: {error.strerror}", where=str(folder), remedy="choose another with -o"
        ) from None
    parts: list[tuple[str, Sequence[ImageLoad]]] = [(one.name, one.images) for one in classes]
    if each_image:
        parts += [(_file_name(image), [image]) for one in classes for image in one.images]
    share = None if random_percent is None else random_percent / 100
    written = []
    for name, images in parts:
        file = folder / f"{name}.json"
        profile = coarse_profile(name, images, fleet, random_share=share)
        write_whole(file, profile.dumps(), what="the profile")
        written.append(str(file))
    return written


def _file_name(image: ImageLoad) -> str:
    """Return a name for the file of an image; characters that files cannot have become hexadecimal."""
    return "image-" + re.sub(r"[^\w.@-]", lambda m: f"%{ord(m[0]):02x}", str(image.name))
