"""Text, table and page of `cephfit capacity`."""

import math
import time
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path

import click

from cephfit.cli.output import print_table, write_whole
from cephfit.core.values.supply import Estimate
from cephfit.operations.fleets.capacity_fleet import BANDWIDTH, IOPS, SPACE, PlanInput, PoolCapacity
from cephfit.results.report.formatting import compact, level


def summary_of(judged: Sequence[PoolCapacity], asked: PlanInput, today: date) -> str:
    """Return the answer in one line: of the judged pool with the least headroom."""
    pool = min(judged, key=lambda p: p.least.value)
    n = sum(c.n_vms for c in asked.classes)
    fleet = f"{n:,} VM{'s' if n != 1 else ''}"
    limit = limit_text(asked)
    if pool.is_unknown:
        iops = pool.headroom[IOPS]
        if not iops.value:
            why = "the bursts of one VM alone are larger than any measured load, and expected to exceed the limit"
            if slow := [c.of.name for c in pool.classes if not c.is_reached]:
                why = f"{', '.join(slow)} exceeds the limit at the smallest measured load; gentler ones may not"
            return f"unknown: {fleet} on {pool.pool} at {limit}: {why}"
        least = f"at least {plain_figure(iops.value)} times{_interval(iops)} by {IOPS}"
        return f"unknown: {fleet} on {pool.pool} at {limit}: headroom {least}, so it may fit: measure larger loads"
    is_open = pool.least.low == 0 and math.isinf(pool.least.high)
    doubt = f" (not certain: the interval by {' and '.join(pool.in_doubt)} includes 1)"
    doubt = " (not certain: the interval is from 0 to no upper end)" if is_open else doubt
    doubt = "" if pool.is_certain else doubt
    if not pool.fits:
        others = [(name, e) for name, e in pool.headroom.items() if name != pool.scarcest and e.value < 1]
        if pool.is_bound and others:
            doubt = "".join(f", {plain_figure(e.value)} times{_interval(e)} by {name}" for name, e in others)
        return (
            f"does not fit: {fleet} on {pool.pool} at {limit}: headroom {_times(pool)} by {pool.scarcest}{doubt}"
        )
    full = ""
    if pool.full is not None:
        full = f"; full {_when(pool.full, today, is_bound=pool.is_least_bound)} by {pool.scarcest}"
    return f"fits: {fleet} on {pool.pool} at {limit}: headroom {_times(pool)} by {pool.scarcest}{doubt}{full}"


def limit_text(asked: PlanInput) -> str:
    limit = asked.limit
    parts = (("p99", limit.p99_seconds), ("mean", limit.mean_seconds))
    return " and ".join(f"{name} <= {1000 * value:g} ms" for name, value in parts if value is not None)


def _times(pool: PoolCapacity) -> str:
    """Format the least headroom: ``2.6 times (2.3 to 3.0)``."""
    found = pool.least
    bound = "at least " if pool.is_least_bound else ""
    return f"{bound}{plain_figure(found.value)} times{_interval(found)}"


def plain_figure(value: float) -> str:
    """Format with three significant digits, never with an exponent: ``1,040``, ``8.42``, ``0.0843``."""
    return f"{Decimal(f'{value:.3g}'):,f}" if math.isfinite(value) else "unlimited"


def _interval(found: Estimate) -> str:
    if found.low == found.high:
        return ""
    if math.isinf(found.high):
        return f" (above {plain_figure(found.low)})" if found.low > 0 else ""
    return f" ({plain_figure(found.low)} to {plain_figure(found.high)})"


def _when(months: Estimate, today: date, *, is_bound: bool) -> str:
    if months.value == 0:
        return "now"
    if math.isinf(months.value):
        return "never"
    bound = "at least " if is_bound else ""
    return f"in {bound}{plain_figure(months.value)} months ({month_after(today, months.value)}{_ends(months)})"


def _ends(months: Estimate) -> str:
    text = _interval(months).strip(" ()")
    return f"; {text}" if text else ""


def month_after(today: date, months: float) -> str:
    """Return the month in which ``months`` from today lie, as ``2027-03``."""
    days_in_month = 30.4375
    at = today.year * 12 + (today.month - 1) + (today.day - 1) / days_in_month + months
    if not at < 12 * 9999:
        return "after 9999"
    return f"{int(at) // 12}-{int(at) % 12 + 1:02}"


def pool_notes(found: Sequence[PoolCapacity]) -> list[str]:
    """Return the notes of all pools; one that all have in common has no name before it."""
    every: dict[str, list[str]] = {}
    for pool in found:
        for note in pool.notes:
            every.setdefault(note, []).append(pool.pool)
    return [note if len(pools) == len(found) else f"{', '.join(pools)}: {note}" for note, pools in every.items()]


def print_plan(
    summary: str, found: Sequence[PoolCapacity], asked: PlanInput, notes: Sequence[str], today: date
) -> None:
    click.echo(summary)
    click.echo()
    resources = list(found[0].headroom)
    resources += [name for pool in found for name in pool.headroom if name not in resources]
    rows = [[pool.pool, fits_text(pool), *(_headroom(pool, name) for name in resources)] for pool in found]
    heads = ["pool", "fits", *(f"headroom by {name}" for name in resources)]
    if asked.growth is not None:
        for row, pool in zip(rows, found, strict=True):
            row += [
                "unknown"
                if pool.is_unknown and name == IOPS
                else _month(pool.months.get(name), today, is_bound=pool.is_bound and name == IOPS)
                for name in resources
            ]
        heads += [f"full by {name}" for name in resources]
    print_table(heads, rows)
    click.echo()
    print_table(
        ("pool", "class", "VMs", "needs/s", "sustainable/s", "share", "more VMs", "fit alone"),
        [
            (
                pool.pool,
                c.of.name,
                f"{c.of.n_vms:,}",
                compact(c.of.demand),
                _rate(c.sustainable, c.is_bound),
                _share(c.share, pool.is_bound),
                _count(c.more, pool.is_bound),
                _count(c.vms_alone, c.is_bound),
            )
            for pool in found
            for c in pool.classes
        ],
        right=(2, 3),
    )
    click.echo(
        f"At {limit_text(asked)}. {level(asked.confidence)} intervals, each by itself, from the scatter over "
        "repeats; the lower end is for VMs that do not wait for their I/O. Headroom: how many times the fleet fits"
    )
    for note in notes:
        click.echo(f"Note: {note}")


def _headroom(pool: PoolCapacity, resource: str) -> str:
    found = pool.headroom.get(resource)
    if found is None:
        return "unknown"
    bound = ">= " if pool.is_bound and resource == IOPS else ""
    return f"{bound}{plain_figure(found.value)}{_interval(found)}"


def fits_text(pool: PoolCapacity) -> str:
    return "unknown" if pool.is_unknown else "yes" if pool.fits else "no"


def _share(share: float, is_bound: bool) -> str:
    """Format a share of the pool; where the pool may serve more, it is an upper bound."""
    return "none fits" if math.isinf(share) else f"{'<= ' if is_bound else ''}{plain_figure(100 * share)} %"


def _month(found: Estimate | None, today: date, *, is_bound: bool) -> str:
    if found is None:
        return "unknown"
    months = _interval(found).replace(")", " months)")
    if found.value == 0:
        return "now"
    return f"{'>= ' if is_bound else ''}{month_after(today, found.value)}{months}"


def _rate(found: Estimate, is_bound: bool) -> str:
    if found.value == 0:
        return "unknown" if is_bound else "none"
    ends = "" if math.isinf(found.high) else f" ({compact(found.low)} to {compact(found.high)})"
    return f"{'>= ' if is_bound else ''}{compact(found.value)}{ends}"


def _count(found: Estimate, is_bound: bool) -> str:
    ends = "" if found.low == found.high else f" ({found.low:,.0f} to {found.high:,.0f})"
    if math.isinf(found.high):
        ends = f" ({found.low:,.0f} or more)" if found.low < found.value else ""
    return f"{'>= ' if is_bound else ''}{found.value:,.0f}{ends}"


CSV_COLUMNS = (
    *("pool", "class", "vms", "needs_per_s", "sustainable_per_s", "sustainable_low", "sustainable_high"),
    *(
        "sustainable_is_bound",
        "share",
        "share_is_bound",
        "more_vms",
        "more_vms_low",
        "more_vms_high",
        "fit_alone",
        "fit_alone_low",
        "fit_alone_high",
        "fits",
        "scarcest",
    ),
    *("headroom", "headroom_low", "headroom_high", "months_until_full", "full_in", "full_is_bound"),
    *(f"months_by_{name.lower()}" for name in (IOPS, BANDWIDTH, SPACE)),
)


def csv_rows(found: Sequence[PoolCapacity], today: date) -> list[tuple[object, ...]]:
    def ends(e: Estimate) -> tuple[object, ...]:
        return tuple("" if math.isinf(value) else value for value in (e.value, e.low, e.high))

    rows: list[tuple[object, ...]] = []
    for pool in found:
        full = pool.full
        fits = "unknown" if pool.is_unknown else str(pool.fits).lower()
        is_bound = str(pool.is_least_bound).lower()
        found_in = [pool.months.get(name) for name in (IOPS, BANDWIDTH, SPACE)]
        months: tuple[object, ...] = (
            *(("", "", "") if full is None else (full.value, month_after(today, full.value), is_bound)),
            *("" if its is None or math.isinf(its.value) else its.value for its in found_in),
        )
        for c in pool.classes:
            share = "" if math.isinf(c.share) else c.share
            own = (pool.pool, c.of.name, c.of.n_vms, c.of.demand, *ends(c.sustainable), str(c.is_bound).lower())
            of_pool = (fits, pool.scarcest, *ends(pool.least), *months)
            rows.append((*own, share, str(pool.is_bound).lower(), *ends(c.more), *ends(c.vms_alone), *of_pool))
    return rows


def write_table(file: Path, found: Sequence[PoolCapacity], today: date) -> None:
    """Write the figures of all pools as CSV."""
    from cephfit.results.tables.csv_text import csv_text

    write_whole(file, csv_text(CSV_COLUMNS, csv_rows(found, today)), what="the table")


def write_page(
    file: Path,
    found: Sequence[PoolCapacity],
    asked: PlanInput,
    *,
    summary: str,
    notes: Sequence[str],
    source: str,
) -> None:
    """Write the answer and the figures of all pools as HTML."""
    from cephfit.operations.fleets.capacity_page import capacity_html

    page = capacity_html(
        found,
        asked,
        summary=summary,
        limit=limit_text(asked),
        notes=notes,
        source=source,
        made_ns=time.time_ns(),
    )
    write_whole(file, page, what="the page")
