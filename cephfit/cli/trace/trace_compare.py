"""`cephfit trace compare`: compare two workloads."""

from __future__ import annotations

from pathlib import Path

import click

from cephfit.cli.terminal.output import json_option, print_json, print_table
from cephfit.cli.trace.trace_input import TraceInput, description_option, trace_options
from cephfit.cli.trace.trace_reading import TracePath
from cephfit.cli.trace.trace_show import rate_text
from cephfit.operations.progress_display import progress_display


@click.command("compare", short_help="How two workloads differ, cell by cell.")
@click.argument("workloads", metavar="A B", nargs=-1, required=True, type=TracePath())
@trace_options
@description_option
@json_option
def command(workloads: tuple[Path, ...], trace: TraceInput, as_json: bool) -> None:
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
    click.echo(f"A {first.name}: {first.n_accesses} accesses; B {second.name}: {second.n_accesses} accesses")
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
