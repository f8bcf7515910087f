"""`cephfit capacity`: does a fleet of virtual machines fit, how many more do, and when is a pool full."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cephfit.cli.options.common_options import Finite, baselines_option, confidence_option, run_option
from cephfit.cli.output import OUTPUT_FILE, json_option, print_json, refuse_lost_input

if TYPE_CHECKING:
    from cephfit.core.values.baseline import MeasuredLevels
    from cephfit.core.values.profile import Profile
    from cephfit.operations.fleets.capacity_fleet import PoolCapacity, WorkloadClass

_P99_MS = 20.0
_DOES_NOT_FIT = 1
_OPENSTACK = "openstack"


@click.command("capacity", short_help="Does a fleet fit, how many more VMs do, and when is a pool full.")
@click.argument("profiles", metavar="PROFILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@baselines_option
@run_option
@click.option(
    "--clients-from",
    "counts_text",
    metavar="openstack[:CLOUD]|NAME=N,...",
    help="Number of VMs of each class, by the profile's name; or count the servers of a cloud.  [default: 1 each]",
)
@click.option(
    "--p99-ms",
    type=Finite(min=0, min_open=True),
    help=f"Limit of the 99th percentile of latency.  [default: {_P99_MS:g}, if there is no --mean-ms]",
)
@click.option("--mean-ms", type=Finite(min=0, min_open=True), help="Limit of the mean latency.")
@click.option(
    "--demand",
    type=click.Choice(["mean", "busiest-minute", "busiest-second"]),
    default="mean",
    show_default=True,
    help="Which rate of a profile counts.",
)
@click.option(
    "--rate",
    "rates",
    multiple=True,
    metavar="NAME=N",
    help="Accesses per second of one VM, in place of the profile's. Repeatable.",
)
@click.option(
    "--growth",
    metavar="PCT/month",
    help="Growth of the number of VMs, such as 5%/month or 60%/year; 5% is per month.",
)
@click.option(
    "--space", "spaces", multiple=True, metavar="NAME=SIZE", help="Space that one VM of a class takes. Repeatable."
)
@click.option(
    "--pool-space", "pool_spaces", multiple=True, metavar="POOL=SIZE", help="Usable space of a pool. Repeatable."
)
@click.option(
    "--pool",
    "named",
    multiple=True,
    metavar="POOL",
    help="Judge these configurations only. Repeatable.  [default: show all, judge the default]",
)
@confidence_option
@click.option(
    "--warn-below",
    metavar="PCT",
    help="Exit with code 1 also if less than this share of a pool is free, such as 20%.",
)
@click.option(
    "--within",
    type=Finite(min=0, min_open=True),
    metavar="MONTHS",
    help="Exit with code 1 also if a pool is full within this time; needs --growth.",
)
@click.option("--csv", "csv_file", type=OUTPUT_FILE, help="Also write a table: a row per pool and class.")
@click.option("--report", "report_file", type=OUTPUT_FILE, help="Also write a page (HTML) with a chart.")
@json_option
def command(
    profiles: tuple[Path, ...],
    location: str,
    run_id: str | None,
    counts_text: str | None,
    p99_ms: float | None,
    mean_ms: float | None,
    demand: str,
    rates: tuple[str, ...],
    growth: str | None,
    spaces: tuple[str, ...],
    pool_spaces: tuple[str, ...],
    named: tuple[str, ...],
    confidence: float,
    warn_below: str | None,
    within: float | None,
    csv_file: Path | None,
    report_file: Path | None,
    as_json: bool,
) -> None:
    """Compare the demand of a fleet of VMs with what each measured pool serves within a latency limit.

    Each PROFILE is a class of VMs. STORE needs samples under several loads, as sweeps/capacity.yaml measures them.
    All classes share the pool.

    Exit code: 0 if the fleet fits, 1 if it does not (or --warn-below, --within), 2 for wrong input.
    """
    from cephfit.cli.fleets.capacity_text import (
        pool_notes,
        print_plan,
        summary_of,
        write_page,
        write_table,
    )
    from cephfit.mapper.absolute_rates.load_curve import Limit
    from cephfit.operations.fleets.capacity_fleet import PlanInput
    from cephfit.operations.fleets.capacity_plan import plan_pools
    from cephfit.results.report.run_notes import run_document, run_notes

    for output in (csv_file, report_file):
        if output is not None:
            refuse_lost_input(output)
    if within is not None and growth is None:
        raise click.UsageError("--within needs --growth")
    free = None if warn_below is None else _share(warn_below)
    per_month = None if growth is None else parse_growth(growth)
    if p99_ms is None and mean_ms is None:
        p99_ms = _P99_MS
    limit = Limit(None if p99_ms is None else p99_ms / 1000, None if mean_ms is None else mean_ms / 1000)
    read = _profiles(profiles)
    classes, counted = _classes(read, counts_text, rates, spaces, demand)
    measured = run_document(location, run_id)
    levels = _levels(location, measured["run"] or run_id)  # the newest now, even if another run begins meanwhile
    pools = _pools(levels, named, location)
    asked = PlanInput(classes, limit, confidence, per_month, _sizes(pool_spaces, pools, "--pool-space"))
    if bool(spaces) != bool(pool_spaces):
        raise click.UsageError("--space and --pool-space need each other: the space of a VM, and that of the pool")
    found = plan_pools(levels, pools, asked, where=location)
    judged = [p for p in found if p.pool in named] or found[:1]
    today = datetime.now(UTC).date()
    summary = summary_of(judged, asked, today)
    bad = any(_is_bad(pool, free, within) for pool in judged)
    if growth is not None and "/" not in growth:
        counted = [*counted, f"--growth {growth} names no period: taken as per month"]
    notes = [*counted, *run_notes(measured), *pool_notes(found)]
    if csv_file is not None:
        write_table(csv_file, found, today)
    if report_file is not None:
        write_page(report_file, found, asked, summary=summary, notes=notes, source=location)
    if as_json:
        print_json(
            {
                "summary": summary,
                "ok": not bad,
                "judged": [pool.pool for pool in judged],
                "p99_ms": p99_ms,
                "mean_ms": mean_ms,
                "confidence": confidence,
                "growth_per_month": per_month,
                "measured": measured,
                "pools": [pool.to_json() for pool in found],
                "notes": notes,
            }
        )
    else:
        print_plan(summary, found, asked, notes, today)
        for what, path in (("Table", csv_file), ("Page", report_file)):
            if path is not None:
                click.echo(f"{what}: {path}")
    if bad:
        click.get_current_context().exit(_DOES_NOT_FIT)


_GROWTH = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*%\s*(?:/\s*(month|year))?\s*")


def parse_growth(text: str) -> float:
    """Parse growth such as ``5%/month`` or ``60%/year``; return the share per month, compound.

    Raises:
        InputError: it has another form, or is not above 0.
    """
    from cephfit.core.errors import InputError

    match = _GROWTH.fullmatch(text)
    if match is None:
        raise InputError(
            f"{text!r} is not a growth", where="--growth", remedy="write it like 5%/month or 60%/year"
        )
    share = float(match[1]) / 100
    if not share > 0:
        raise InputError(
            f"a growth of {match[1]} % never fills a pool",
            where="--growth",
            remedy="give a growth above 0, or leave --growth out",
        )
    return math.expm1(math.log1p(share) / 12) if match[2] == "year" else share


def _share(text: str) -> float:
    from cephfit.core.errors import InputError

    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%?\s*", text)
    if match is None or not float(match[1]) < 100:
        raise InputError(
            f"{text!r} is not a share", where="--warn-below", remedy="write it like 20%, from 0 to below 100"
        )
    return float(match[1]) / 100


def _profiles(paths: Sequence[Path]) -> list[Profile]:
    """Read profiles.

    Raises:
        InputError: one cannot be read, or two have the same name.
    """
    from cephfit.core.errors import InputError
    from cephfit.core.profile_files import read_profile

    found: dict[str, Profile] = {}
    for path in paths:
        profile = read_profile(path)
        if profile.name in found:
            raise InputError(
                f"another profile is called {profile.name!r} too",
                where=str(path),
                remedy="give each class once; change `name` in one of the files if they differ",
            )
        found[profile.name] = profile
    return list(found.values())


def _classes(
    profiles: Sequence[Profile],
    counts_text: str | None,
    rates: Sequence[str],
    spaces: Sequence[str],
    demand: str,
) -> tuple[tuple[WorkloadClass, ...], list[str]]:
    """Return the classes of the fleet, and notes on how they were counted."""
    from cephfit.core.errors import InputError
    from cephfit.operations.fleets.capacity_fleet import WorkloadClass

    names = [profile.name for profile in profiles]
    counts, notes = _counts(counts_text, profiles)
    of_rates = {
        name: _number(value, f"--rate {name}")
        for name, value in _pairs(rates, names, "--rate", "name=120").items()
    }
    if demand != "mean" and all(name in of_rates for name in names):
        raise click.UsageError(f"--demand {demand} has no effect: --rate gives the rate of every class")
    of_spaces = _sizes(spaces, names, "--space")
    found = [
        WorkloadClass.of(
            profile,
            counts[profile.name],
            rate=of_rates.get(profile.name),
            demand=demand,
            space_nbytes=of_spaces.get(profile.name),
        )
        for profile in profiles
        if counts[profile.name]
    ]
    if not found:
        raise InputError("the fleet has no virtual machine", where="--clients-from", remedy="give counts above 0")
    return tuple(found), notes


def _counts(text: str | None, profiles: Sequence[Profile]) -> tuple[dict[str, int], list[str]]:
    from cephfit.core.errors import InputError
    from cephfit.core.units import whole_number
    from cephfit.core.values.profile import n_images

    names = [profile.name for profile in profiles]

    if text is None:
        several = ",".join(f"{p.name}={n}" for p in profiles if (n := n_images(p)) > 1)
        note = f"each class counts as one image, but profiles stand for more: give --clients-from {several}"
        return dict.fromkeys(names, 1), [note] if several else []
    first, _, cloud = text.partition(":")
    if first == _OPENSTACK and "=" not in text:
        from cephfit.cli.options.common_options import connected
        from cephfit.cloud.cloud_facts import count_servers

        counted = count_servers(connected(cloud), names)
        return dict(counted.by_class), [counted.sentence]
    pairs = _pairs(text.split(","), names, "--clients-from", "name=12")
    counts = dict.fromkeys(names, 0)
    for name, value in pairs.items():
        count = whole_number(value)
        if count is None:
            raise InputError(
                f"{value[:20]!r} is not a number of virtual machines",
                where=f"--clients-from {name}",
                remedy=f"give a whole number, such as {name}=12",
            )
        counts[name] = count
    if missing := [name for name in names if name not in pairs]:
        raise InputError(
            f"there is no number for {', '.join(missing)}",
            where="--clients-from",
            remedy=f"add {missing[0]}=N, or leave its profile out",
        )
    return counts, []


def _pairs(texts: Sequence[str], names: Sequence[str], where: str, example: str) -> dict[str, str]:
    """Parse ``NAME=VALUE``.

    Raises:
        InputError: one has another form, or names something unknown, or comes twice.
    """
    from cephfit.core.errors import InputError

    found: dict[str, str] = {}
    for text in texts:
        name, mark, value = (part.strip() for part in text.rpartition("="))
        if not mark or not name or not value:
            raise InputError(f"{text!r} is not NAME=VALUE", where=where, remedy=f"write it like {example}")
        if name not in names:
            raise InputError(f"nothing is called {name!r}", where=where, remedy=f"there are {', '.join(names)}")
        if name in found:
            raise InputError(f"{name} is given twice", where=where, remedy="give it once")
        found[name] = value
    return found


_MOST_PER_S = 1e12
"""Accesses per second of a machine: larger ones are mistyped."""


def _number(text: str, where: str) -> float:
    from cephfit.core.errors import InputError

    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= _MOST_PER_S:
        raise InputError(
            f"{text!r} is not a rate above 0 and up to {_MOST_PER_S:g}",
            where=where,
            remedy="give accesses per second",
        )
    return number


def _sizes(texts: Sequence[str], names: Sequence[str], where: str) -> dict[str, int]:
    from cephfit.core.errors import InputError
    from cephfit.core.units import parse_nbytes

    found = {
        name: parse_nbytes(value, where=f"{where} {name}")
        for name, value in _pairs(texts, names, where, "name=40G").items()
    }
    if empty := [name for name, nbytes in found.items() if not nbytes]:
        raise InputError("a space of 0 bytes is none", where=f"{where} {empty[0]}", remedy="give a size above 0")
    return found


def _levels(location: str, run_id: str | None) -> MeasuredLevels:
    """Read the figures of a run.

    Raises:
        InputError: the location is a CSV file, or the run has no figures with a known load.
    """
    from cephfit.core.errors import InputError
    from cephfit.results.statistics.scaling import levels_of
    from cephfit.results.store.sample_store import Store
    from cephfit.results.tables.baseline_csv import is_store

    if not is_store(location):
        raise InputError(
            "a CSV file of baselines has no latencies",
            where=location,
            remedy="give the store that `cephfit sweep run` wrote",
        )
    with Store.open(location) as store:
        levels = levels_of(store.samples(store.run(run_id).run_id))
    if not levels.figures:
        raise InputError(
            "no sample of this run has rates under a known load",
            where=location,
            remedy="run `cephfit sweep run capacity` first",
        )
    return levels


def _pools(levels: MeasuredLevels, named: Sequence[str], where: str) -> list[str]:
    """Return the pools to show, the default first.

    Raises:
        InputError: a named pool has no baselines.
    """
    from cephfit.core.errors import InputError
    from cephfit.core.values.configuration import DEFAULT_CONFIGURATION

    known = sorted(levels.configurations, key=lambda name: name != DEFAULT_CONFIGURATION)
    for name in named:
        if name not in known:
            raise InputError(
                f"there are no baselines of pool {name!r}",
                where=f"{where}, --pool",
                remedy=f"there are {', '.join(known)}",
            )
    return [name for name in known if not named or name in named]


def _is_bad(pool: PoolCapacity, free: float | None, within: float | None) -> bool:
    if not pool.fits or (free is not None and 1 - 1 / pool.least.value < free):
        return True
    return within is not None and pool.full is not None and pool.full.value <= within
