"""`cephfit trace show`: show a workload in the terminal.

``print_summary`` is also the output of `cephfit trace profile`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.output import json_option, print_json, print_table
from cephfit.cli.trace.trace_input import TraceInput, description_option, files_argument, trace_options
from cephfit.core.units import format_nbytes, format_seconds
from cephfit.core.values.cells import RANDOM_THRESHOLD_LBN, SIZE_BINS, Op
from cephfit.core.values.profile import Profile
from cephfit.operations.measuring.progress_display import progress_display

if TYPE_CHECKING:
    from rich.console import Console

_NAMES = 6
"""Number of files or recordings that are listed; a recording may have a file for each of 256 CPUs."""


def print_summary(found: Profile) -> None:
    """Print a profile: number, sizes and randomness of the accesses."""
    about = found.description
    total = found.n_accesses
    click.echo(f"{found.name}: {total:,} accesses{_pace(found)}")
    _print_counted(about)
    _print_sources(about.get("sources", []))
    click.echo()
    rows = []
    for size in SIZE_BINS:
        row = [size.name]
        for op in Op:
            n = found.accesses[op][size.name]
            row += [
                f"{n:,}",
                f"{100 * n / total:.1f} %",
                _share((found.random_by_bin or {}).get(op, {}).get(size.name)),
            ]
        rows.append(row)
    row = ["all"]
    for op in Op:
        n = sum(found.accesses[op].values())
        row += [f"{n:,}", f"{100 * n / total:.1f} %", _share(found.random_share(op))]
    rows.append(row)
    headers = ["size bin", "reads", "of all", "random", "writes", "of all", "random"]
    print_table(headers, rows, right=range(1, 7))
    for quantity, title in (("latency_us", "latency"), ("interarrival_us", "inter-arrival")):
        row_of = about.get("percentiles", {}).get(quantity, {}).get("all")
        if row_of:
            shown = ", ".join(f"{p[1:]} % {_time(v)}" for p, v in row_of.items() if p != "n")
            if quantity == "interarrival_us" and about.get("clock_seconds"):
                shown += f" (the clock has steps of {_time(1e6 * about['clock_seconds'])}; less is not shown)"
            click.echo(f"\n{title} of {row_of['n']:,} accesses, at most: {shown}", nl=False)
    click.echo()
    _print_thresholds(found)
    _print_alignment(found)
    _print_waiting(found)
    _print_commits(found)
    print_omitted_disks(about.get("left_out", {}))
    skipped = about.get("skipped", {})
    if skipped:
        click.echo(
            "skipped, because they are not accesses: "
            + ", ".join(f"{n:,} {reason}" for reason, n in skipped.items())
        )
    _print_steps_back(found)
    for missing in about.get("lacks", []):
        click.echo(f"the trace does not contain: {missing}")
    for note in about.get("notes", []):
        click.echo(f"note: {note}")


_ACTIONS = {"Q": "Q, queued", "D": "D, issued to the disk", "C": "C, completed"}


def _print_counted(about: Mapping[str, Any]) -> None:
    """Print which action of the block layer and which disks were counted."""
    action, disks = about.get("action"), about.get("disks")
    parts = [f"action {_ACTIONS[action]}"] if isinstance(action, str) and action in _ACTIONS else []
    if parts and (why := about.get("why_action")):
        parts[0] += f": {why}"
    if parts and (of_demands := about.get("demands_action")) in _ACTIONS:
        parts.append(f"for waiting times and commits action {_ACTIONS[of_demands]}")
    if isinstance(disks, Mapping) and disks:
        more = about.get("n_disks")
        n = more if isinstance(more, int) else len(disks)
        names = [f"and {n - _NAMES} more"] if n > _NAMES else []
        parts.append(f"disk{'s' if n > 1 else ''} {', '.join([*map(str, list(disks)[:_NAMES]), *names])}")
    if parts:
        click.echo(f"counted: {'; '.join(parts)}")


def _print_sources(sources: Sequence[Mapping[str, Any]]) -> None:
    """Print the sources: the files of one recording, or several recordings."""
    # A profile may be hand-written and have sources of any form.
    files = [its for source in sources if isinstance(its := source.get("files"), list) and its]
    if len(files) > 1:
        shown = [f"{its[0]}{f' ({len(its)} files)' if len(its) > 1 else ''}" for its in files]
        click.echo(f"{len(files)} recordings, counted together: {_some_of(shown)}")
    elif files and len(files[0]) > 1:
        click.echo(f"one recording of {len(files[0])} files: {_some_of(files[0])}")


def _some_of(names: Sequence[Any]) -> str:
    more = [f"and {len(names) - _NAMES} more"] if len(names) > _NAMES else []
    return ", ".join([*map(str, names[:_NAMES]), *more])


def print_omitted_disks(disks: Mapping[str, Any]) -> None:
    """Print the disks that were not counted, and why."""
    for disk, left in disks.items():
        click.echo(f"not counted: {left['accesses']:,} accesses of disk {disk}: {left['why']}")


def _print_thresholds(found: Profile) -> None:
    """Print the random share at other thresholds: half, double ... of the one used."""
    threshold = found.description.get("random_threshold_lbn", RANDOM_THRESHOLD_LBN)
    for op, table in found.description.get("random_by_threshold", {}).items():
        near = {t: s for t, s in table.items() if 1 / 8 <= int(t) / max(threshold, 1) <= 8}
        shown = ", ".join(f"{t}: {100 * share:.1f} %" for t, share in near.items())
        click.echo(f"random {op}s by threshold in LBN ({threshold} is used): {shown}")


_ALIGNMENTS = {"4K": "4K", "8K": "8K", "64K": "64K", "own": "their own size"}
_CELLS = 6
"""Number of cells that are listed with their waiting time."""


def _print_alignment(found: Profile) -> None:
    """Print which shares of reads and writes begin at multiples of 4K, 8K, 64K and their own size."""
    for op, by_bin in (found.alignment or {}).items():
        n = {name: found.accesses[op][name] for name in by_bin}
        total = sum(n.values())
        shares = {
            label: sum(n[name] * by_bin[name][to] for name in n if to in by_bin[name])
            for to, label in _ALIGNMENTS.items()
        }
        if total:
            shown = ", ".join(f"{label}: {100 * share / total:.1f} %" for label, share in shares.items())
            click.echo(f"{op}s that begin at multiples of {shown}")


def _print_waiting(found: Profile) -> None:
    """Print the share of time with I/O outstanding, and the cells with the longest waiting time."""
    known = [d for d in found.demands or () if d.waiting_seconds is not None and d.depth is not None]
    waiting = sum(d.waiting_seconds or 0.0 for d in known)
    flushes = (found.commits.flush_waiting_seconds if found.commits else None) or 0.0
    if found.idle_seconds is None or waiting + flushes <= 0:
        return
    busy, idle = waiting + flushes, found.idle_seconds
    n_disks = found.description.get("n_disks", 1)
    if n_disks > 1:  # disks are busy at the same time: the sum is no part of the recording
        click.echo(
            f"I/O outstanding: {_time(1e6 * busy)}, added up over {n_disks} disks; about {_time(1e6 * idle)} with "
            "none on any disk"
        )
    else:
        click.echo(
            f"I/O outstanding: {_time(1e6 * busy)} of {_time(1e6 * (busy + idle))}, "
            f"{100 * busy / (busy + idle):.3g} % of the time"
        )
    cells: dict[str, tuple[float, float]] = {}
    for d in known:
        size = next(b for b in SIZE_BINS if b.upper_inclusive is None or d.nbytes <= b.upper_inclusive)
        cell, seconds = f"{size} {d.pattern}", d.waiting_seconds or 0.0
        before = cells.get(cell, (0.0, 0.0))
        cells[cell] = before[0] + seconds, before[1] + seconds * (d.depth or 1.0)
    longest = sorted(((seconds, cell) for cell, (seconds, _) in cells.items() if seconds > 0), reverse=True)
    shown = ", ".join(
        f"{cell} {100 * seconds / busy:.1f} % (depth {cells[cell][1] / seconds:.3g})"
        for seconds, cell in longest[:_CELLS]
    )
    more = f", and {len(longest) - _CELLS} more cells" if len(longest) > _CELLS else ""
    click.echo(f"of this time: {shown}{more}")


def _print_commits(found: Profile) -> None:
    """Print the flushes and the synchronous writes."""
    commits = found.commits
    if commits is None:
        return
    text = f"flushes: {commits.flushes}"
    if commits.flush_waiting_seconds:
        text += f", outstanding for {_time(1e6 * commits.flush_waiting_seconds)}"
    if commits.sync_writes is not None:
        text += f"; synchronous writes: {commits.sync_writes}"
    if commits.fua_writes is not None:
        text += f", with FUA: {commits.fua_writes}"
    click.echo(text)


def _print_steps_back(found: Profile) -> None:
    """Print how many accesses have an earlier time than the previous access on their disk."""
    n = found.description.get("clock_steps_back", 0)
    if not n:
        return
    click.echo(
        f"the clock steps back: {n:,} of {found.n_accesses:,} accesses have an earlier time than the previous "
        "access, "
        "and no inter-arrival time"
    )
    if n > found.n_accesses / 2:
        click.echo(
            "the trace runs backwards in time, and accesses are counted in file order: sort it by time first"
        )


def _pace(found: Profile) -> str:
    about = found.description
    n_disks = about.get("n_disks", 1)
    text = f" on {n_disks} disks" if n_disks > 1 else ""
    seconds = about.get("duration_seconds")
    if seconds and "iops" in about:
        text += f" in {format_seconds(seconds)}, {rate_text(about['iops'])} IOPS, "
        text += f"{rate_text(about['bytes_per_second'] / (1 << 20))} MiB/s"
    return text


def rate_text(rate: float) -> str:
    """Format a rate with at least three digits, so that 0.25 accesses per second are not 0."""
    return f"{rate:,.0f}" if rate >= 999.5 else f"{rate:.3g}"


def _time(microseconds: float) -> str:
    """Format a time with three significant digits or more, and its unit: ``565 us``, ``24.9 ms``, ``3,600 s``."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= 0.9995 * size:
            return f"{rate_text(microseconds / size)} {unit}"
    return f"{rate_text(microseconds)} us"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


_BAR = 32
_LEVELS = " ░▒▓█"
_SPARKS = " ▁▂▃▄▅▆▇█"


@click.command("show", short_help="Show a workload in the terminal.")
@trace_options
@files_argument
@description_option
@json_option
def command(files: tuple[Path, ...], trace: TraceInput, as_json: bool) -> None:
    """Show a workload: cells, histograms, behaviour over time, phases, heat map, hot spots.

    Several TRACEs are read together, as in `trace profile`: as simultaneous recordings of different disks, or with
    --parts as consecutive parts of one recording.
    """
    with progress_display() as progress:
        found = trace.profile(files, progress)
    if as_json:
        print_json(found.to_json())
        return
    from rich.console import Console

    from cephfit.traces.description.disk_description import MAX_DISKS

    print_summary(found)
    console = Console(highlight=False)
    for name, title, unit in (
        ("size", "Size", "bytes"),
        ("distance", "Distance to the previous access", "LBN"),
        ("distance_windowed", "Distance to the closest of the previous 16", "LBN"),
        ("outstanding", "Outstanding I/O when an access is issued", "accesses"),
        ("interarrival_us", "Inter-arrival", "us"),
        ("latency_us", "Latency", "us"),
    ):
        histogram = found.description.get("histograms", {}).get(name)
        if histogram and "all" in histogram:
            _print_histogram(console, title, unit, histogram)
    behaviour = found.description.get("behaviour")
    if behaviour is None:
        if found.description.get("n_disks", 1) <= MAX_DISKS:
            click.echo("\nFor behaviour over time and over the disk: cephfit trace profile TRACE --describe full")
        return
    _print_behaviour(console, behaviour)


def _print_histogram(console: Console, title: str, unit: str, histogram: dict[str, Any]) -> None:
    """Print a histogram without the rows that are empty in every kind."""
    kinds = [k for k in ("all", "read", "write") if k in histogram]
    limits = histogram["all"]["limits"]
    labels = [f"≤ {_number(v)}" for v in limits] + [f"> {_number(limits[-1])}"]
    totals = [max(sum(histogram[k]["counts"]), 1) for k in kinds]
    shares = [
        [histogram[k]["counts"][i] / total for k, total in zip(kinds, totals, strict=True)]
        for i in range(len(labels))
    ]
    table = _table(f"{title} [{unit}]", ["up to", *(f"{k} %" for k in kinds)], "")
    for label, row in zip(labels, shares, strict=True):
        if any(row):
            table.add_row(label, *(f"{100 * s:.1f}" for s in row), "█" * round(row[0] * _BAR) or "▏")
    console.print(table)


def _table(title: str, headers: Sequence[str], last: str) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title), title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for header in headers:
        table.add_column(Text(header), justify="right")
    table.add_column(last)
    return table


def _number(value: float) -> str:
    return f"{value:,}"


def _print_behaviour(console: Console, behaviour: dict[str, Any]) -> None:
    if behaviour.get("over_time") is None:
        console.print("\nOver time: not available, because all accesses have the same time", style="bold")
    else:
        _print_over_time(console, behaviour["over_time"])
        _print_phases(console, behaviour["phases"])
    _print_threshold_table(console, behaviour["sensitivity"])
    _print_facts(behaviour)
    for name, disk in behaviour["disks"].items():
        _print_map(console, name, disk["heat_map"])


def _print_over_time(console: Console, over: dict[str, Any]) -> None:
    console.print("\nOver time", style="bold")
    width = max(console.width - 34, 20)
    n_bins = len(over["reads"])
    for label, series, scale in (
        ("read IOPS", over["reads"], 1.0),
        ("write IOPS", over["writes"], 1.0),
        ("read MiB/s", over["read_nbytes"], 1 / (1 << 20)),
        ("write MiB/s", over["write_nbytes"], 1 / (1 << 20)),
    ):
        line, peak = _spark(series, width, over["bin_seconds"])
        console.print(f"{label:>11} │{line}│ at most {rate_text(peak * scale)}", markup=False, soft_wrap=True)
    console.print(f"{'':>11}  {format_seconds(n_bins * over['bin_seconds'])} in total", markup=False)


def _spark(counts: Sequence[int], width: int, bin_seconds: float) -> tuple[str, float]:
    """Return a line of at most ``width`` blocks, with bins joined as needed, and the largest rate per second."""
    per = -(-len(counts) // width)
    joined = [sum(counts[i : i + per]) for i in range(0, len(counts), per)]
    peak = max(joined)
    line = "".join(_SPARKS[-(-n * (len(_SPARKS) - 1) // peak) if peak else 0] for n in joined)
    return line, peak / (per * bin_seconds)


def _print_phases(console: Console, phases: Sequence[dict[str, Any]]) -> None:
    headers = ["from s", "seconds", "accesses %", "IOPS", "MiB/s", "reads %", "random reads %", "random writes %"]
    table = _table("Phases", headers, "")
    for p in phases:
        n_reads, n_writes = (sum(p["accesses"][op].values()) for op in ("read", "write"))
        table.add_row(
            f"{p['start_seconds']:.1f}",
            f"{p['seconds']:.1f}",
            f"{100 * p['share_of_accesses']:.1f}",
            rate_text(p["iops"]),
            rate_text(p["bytes_per_second"] / (1 << 20)),
            f"{100 * n_reads / max(n_reads + n_writes, 1):.1f}",
            *(f"{100 * p['random'][op]:.1f}" if p["random_by_bin"][op] else "-" for op in ("read", "write")),
            "",
        )
    console.print(table)


def _print_threshold_table(console: Console, table: dict[str, Any]) -> None:
    thresholds = table["thresholds_lbn"]
    shown = _table("Random accesses in %, by threshold in LBN", ["", *map(str, thresholds)], "")
    for op in ("read", "write"):
        for measure, label in (("previous", "from the previous"), ("closest_of_16", "from the closest of 16")):
            if table[op][measure] is not None:
                shown.add_row(f"{op}s {label}", *(f"{100 * s:.1f}" for s in table[op][measure]), "")
    console.print(shown)


def _print_facts(behaviour: dict[str, Any]) -> None:
    footprint, hot = behaviour["footprint"], behaviour["hot_spots"]
    error = footprint["relative_standard_error"]
    kind = f" (estimate, ±{200 * error:.1f} %)" if error else ""
    click.echo(
        f"footprint: {footprint['nbytes'] / (1 << 30):.2f} GiB in {footprint['blocks_of_4k']} blocks of 4K{kind}; "
        f"{100 * footprint['reaccess_share']:.1f} % of block accesses go to blocks accessed before"
    )
    shares = ", ".join(f"{k} in {100 * v:.1f} %" for k, v in hot["share_of_regions"]["accesses"].items())
    click.echo(
        f"hot spots: of the accesses, {shares} of the {hot['regions_touched']} regions of "
        f"{format_nbytes(hot['region_nbytes'])}iB that were accessed"
    )
    sizes = ", ".join(
        f"{r['op']} {r['nbytes']} B {100 * r['share']:.1f} %" for r in behaviour["sizes"]["dominant"][:6]
    )
    click.echo(f"most common sizes: {sizes}")
    for row in behaviour["burstiness"]:
        click.echo(
            f"burstiness at {row['window_seconds']:g} s: peak {row['peak_to_mean']:.1f} x mean, "
            f"index of dispersion {row['index_of_dispersion']:.1f} (Poisson: 1)"
        )
    for name, disk in behaviour["disks"].items():
        if disk["busy_share"] is not None:
            click.echo(
                f"disk {name}: accesses outstanding {100 * disk['busy_share']:.1f} % of the time, "
                f"{disk['mean_outstanding']:.2f} on average"
            )


def _print_map(console: Console, name: str, heat_map: dict[str, Any]) -> None:
    """Print a heat map: LBN upwards, time to the right; the shade is the logarithm of the count."""
    from math import ceil, log1p

    rows = [[int(n) for n in row.split()] for row in heat_map["rows"]]
    per_time = -(-len(rows) // max(console.width - 16, 20))
    per_place = -(-len(rows[0]) // 16)
    cells = [
        [sum(sum(row[y : y + per_place]) for row in rows[x : x + per_time]) for x in range(0, len(rows), per_time)]
        for y in range(0, len(rows[0]), per_place)
    ]
    peak = max(max(row) for row in cells)
    console.print(f"\nHeat map of disk {name}", style="bold", markup=False)
    place_gib = heat_map["region_nbytes"] * per_place / (1 << 30)
    base_gib = heat_map["first_lbn"] * 512 / (1 << 30)
    for y in reversed(range(len(cells))):
        line = "".join(_LEVELS[ceil((len(_LEVELS) - 1) * log1p(n) / log1p(peak))] for n in cells[y])
        console.print(f"{base_gib + y * place_gib:9.2f} GiB│{line}│", markup=False, soft_wrap=True)
    seconds = per_time * heat_map["bin_seconds"]
    legend = f"one column is {seconds:g} s; █ is {peak} accesses, shades are logarithmic"
    console.print(f"{'':14}{legend}", markup=False)
