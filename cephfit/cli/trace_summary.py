"""A workload profile in the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from cephfit.cells import RANDOM_THRESHOLD_LBN, SIZE_BINS, Op
from cephfit.cli.output import print_table
from cephfit.profile import Profile
from cephfit.units import format_seconds

_NAMES = 6
"""Files or recordings that are named; a recording may be of a file for each of 256 CPUs."""


def print_summary(found: Profile) -> None:
    """A profile for people: how much, how large, how random."""
    about = found.description
    total = found.n_accesses
    click.echo(f"{found.name}: {total} accesses{_pace(found)}")
    _print_sources(about.get("sources", []))
    click.echo()
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
        row += [str(n), f"{100 * n / total:.1f} %", _share(found.random_share(op))]
    rows.append(row)
    headers = ["size bin", "reads", "of all", "random", "writes", "of all", "random"]
    print_table(headers, rows, right=range(1, 7))
    for quantity, title in (("latency_us", "latency"), ("interarrival_us", "inter-arrival")):
        row_of = about.get("percentiles", {}).get(quantity, {}).get("all")
        if row_of:
            shown = ", ".join(f"{p[1:]} % {_time(v)}" for p, v in row_of.items() if p != "n")
            if quantity == "interarrival_us" and about.get("clock_seconds"):
                shown += f" (the clock has steps of {_time(1e6 * about['clock_seconds'])}; less is not shown)"
            click.echo(f"\n{title} of {row_of['n']} accesses, at most: {shown}", nl=False)
    click.echo()
    _print_thresholds(found)
    print_disks_left_out(about.get("left_out", {}))
    skipped = about.get("skipped", {})
    if skipped:
        click.echo(
            "skipped, as they are not accesses: " + ", ".join(f"{n} {reason}" for reason, n in skipped.items())
        )
    _print_steps_back(found)
    for missing in about.get("lacks", []):
        click.echo(f"the trace does not say: {missing}")
    for note in about.get("notes", []):
        click.echo(f"note: {note}")


def _print_sources(sources: Sequence[Mapping[str, Any]]) -> None:
    """What was read together: the files of one recording, or several recordings."""
    # A profile may be hand-written, and have sources of any form.
    files = [its for source in sources if isinstance(its := source.get("files"), list) and its]
    if len(files) > 1:
        shown = [f"{its[0]}{f' ({len(its)} files)' if len(its) > 1 else ''}" for its in files]
        click.echo(f"{len(files)} recordings, counted together: {_some_of(shown)}")
    elif files and len(files[0]) > 1:
        click.echo(f"one recording of {len(files[0])} files: {_some_of(files[0])}")


def _some_of(names: Sequence[Any]) -> str:
    more = [f"and {len(names) - _NAMES} more"] if len(names) > _NAMES else []
    return ", ".join([*map(str, names[:_NAMES]), *more])


def print_disks_left_out(disks: Mapping[str, Any]) -> None:
    """The disks that were not counted, and why."""
    for disk, left in disks.items():
        click.echo(f"not counted: {left['accesses']} accesses of disk {disk}: {left['why']}")


def _print_thresholds(found: Profile) -> None:
    """How much hangs on the threshold: the random share at half, double ... of it."""
    threshold = found.description.get("random_threshold_lbn", RANDOM_THRESHOLD_LBN)
    for op, table in found.description.get("random_by_threshold", {}).items():
        near = {t: s for t, s in table.items() if 1 / 8 <= int(t) / max(threshold, 1) <= 8}
        shown = ", ".join(f"{t}: {100 * share:.1f} %" for t, share in near.items())
        click.echo(f"random {op}s by threshold in LBN ({threshold} is used): {shown}")


def _print_steps_back(found: Profile) -> None:
    """How often an access has a time before that of the access before it on its disk."""
    n = found.description.get("clock_steps_back", 0)
    if not n:
        return
    click.echo(
        f"the clock steps back: {n} of {found.n_accesses} accesses have an earlier time than the access before "
        "them, and no inter-arrival time"
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
    """Three digits at least: a quarter of an access in a second is not none."""
    return f"{rate:,.0f}" if rate >= 999.5 else f"{rate:.3g}"


def _time(microseconds: float) -> str:
    """Three significant digits in the unit that suits: ``565 us``, ``24.9 ms``, ``1.99 s``."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3g} {unit}"
    return f"{microseconds:.3g} us"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
