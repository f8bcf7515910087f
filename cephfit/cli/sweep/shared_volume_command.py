"""`cephfit shared-volume`: what it costs when several clients use one RBD image or Cinder volume."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cephfit.cli.options.common_options import Finite, connection_options, needed_apply_option, target_option
from cephfit.cli.output import (
    OUTPUT_FILE,
    json_option,
    print_json,
    print_table,
    refuse_lost_input,
    sigterm_as_interrupt,
    write_whole,
)
from cephfit.core.units import format_nbytes, parse_nbytes
from cephfit.operations.measuring.cluster_options import ClusterOptions
from cephfit.operations.measuring.progress_display import progress_display

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cephfit.operations.measuring.shared_volume import SharingPlan, SharingResults
    from cephfit.results.statistics.scaling import Level
    from cephfit.results.statistics.sharing_cost import SharingCost

_NO_LOCKS = "none"
_WAYS = (_NO_LOCKS, "exclusive-lock", "ranges")


@click.command()
@target_option("lab", "lab:NAME", "ceph", "ceph:NAME", "openstack:CLOUD,flavor=...,network=...,volume_type=...")
@click.option("--pool", default="", metavar="POOL", help="Pool for the volume.  [default: the lab's first pool]")
@click.option(
    "--way",
    "ways",
    type=click.Choice(_WAYS),
    multiple=True,
    help="How clients exclude each other; repeatable.  [default: all; in guests of OpenStack: none]",
)
@click.option(
    "--shared",
    "shared_pcts",
    type=Finite(0, 100),
    multiple=True,
    default=(0, 20, 100),
    show_default=True,
    metavar="PERCENT",
    help="Share of the accesses that go to blocks of all clients; repeatable.",
)
@click.option(
    "--range",
    "ranges",
    multiple=True,
    default=("64K", "4M"),
    show_default=True,
    metavar="SIZE",
    help="Bytes for which one range lock is; repeatable.",
)
@click.option("--clients", type=click.IntRange(min=2, max=64), default=4, show_default=True)
@click.option("--op", type=click.Choice(("write", "read")), default="write", show_default=True)
@click.option("--size", default="4K", show_default=True, metavar="SIZE", help="Size of an access.")
@click.option("--volume-size", default="256M", show_default=True, metavar="SIZE", help="Size of the volume.")
@click.option("--repeats", type=click.IntRange(min=2), default=5, show_default=True, help="Rounds.")
@click.option("--seconds", type=Finite(min=0.5), default=3.0, show_default=True, help="Measured time of each run.")
@click.option(
    "--turns",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Turns of two clients that write one after the other; 0: omit this.",
)
@click.option("--seed", type=int, default=2005, show_default=True, help="Of the offsets and of the order of runs.")
@click.option("-o", "--output", type=OUTPUT_FILE, help="Also write a CSV with a row for each client of each run.")
@needed_apply_option
@connection_options
@json_option
def command(
    target_text: str,
    pool: str,
    ways: tuple[str, ...],
    shared_pcts: tuple[float, ...],
    ranges: tuple[str, ...],
    clients: int,
    op: str,
    size: str,
    volume_size: str,
    repeats: int,
    seconds: float,
    turns: int,
    seed: int,
    output: Path | None,
    apply: bool,
    cluster: ClusterOptions,
    as_json: bool,
) -> None:
    """Measure one RBD image that several clients use: without locks, with exclusive-lock, with range locks.

    The clients open the image through librbd in processes of their own, and access random blocks of their own part
    or of a common part. `none` shares it without locks, so that a cluster-aware application must exclude
    simultaneous writes. `exclusive-lock` is RBD's image feature: the lock of the whole image goes from client to
    client. `ranges` are advisory locks of librados, one for each block range, taken and released around every
    access. In an OpenStack cloud the clients are guests that use one Cinder volume of a multi-attach type, without
    locks. Everything that was created is deleted at the end. docs/shared-volumes.md has examples.
    """
    from cephfit.core.values.cells import Op
    from cephfit.measure.sharing_client import LockWay
    from cephfit.operations.measuring.shared_volume import (
        SharingPlan,
        is_cloud,
        measure_in_guests,
        measure_shared_volume,
        shared_volume_place,
    )
    from cephfit.results.statistics.sharing_cost import runs_csv, sharing_costs

    in_guests = is_cloud(target_text)
    plan = SharingPlan(
        ways=tuple(LockWay(way) for way in dict.fromkeys(ways or ((_NO_LOCKS,) if in_guests else _WAYS))),
        op=Op(op),
        shared_pcts=tuple(dict.fromkeys(shared_pcts)),
        ranges_nbytes=tuple(dict.fromkeys(parse_nbytes(text, where="--range") for text in ranges)),
        n_clients=clients,
        access_nbytes=parse_nbytes(size, where="--size"),
        volume_nbytes=parse_nbytes(volume_size, where="--volume-size"),
        repeats=repeats,
        ramp_seconds=min(0.5, seconds / 4),
        run_seconds=seconds,
        n_turns=turns,
        seed=seed,
    )
    if output is not None:
        refuse_lost_input(output)
    with sigterm_as_interrupt(), progress_display() as progress:
        if in_guests:
            results = measure_in_guests(target_text, plan, pool=pool, cluster=cluster, progress=progress)
        else:
            opened = shared_volume_place(target_text, pool, cluster=cluster, apply=apply, progress=progress)
            with opened as place:
                results = measure_shared_volume(place, plan, progress)
    if output is not None:
        write_whole(output, runs_csv(results.runs), what="the table of runs")
    costs = sharing_costs(results.runs)
    if as_json:
        print_json(_document(plan, results, costs))
    else:
        _print(plan, results, costs)


def _document(plan: SharingPlan, results: SharingResults, costs: Sequence[SharingCost]) -> dict[str, object]:
    from cephfit.results.statistics.sharing_cost import cost_document

    return {
        "clients": plan.n_clients,
        "op": plan.op.value,
        "access_nbytes": plan.access_nbytes,
        "volume_nbytes": plan.volume_nbytes,
        "repeats": plan.repeats,
        "run_seconds": plan.run_seconds,
        "seed": plan.seed,
        "costs": [cost_document(cost) for cost in costs],
        "hand_overs": [
            {
                **{"way": one.way, "turns": one.n_turns, "first_ms": one.first_ms.to_json()},
                **{"later_ms": one.later_ms.to_json(), "cost_ms": one.cost_ms.to_json()},
            }
            for one in results.hand_overs
        ],
        "missing": list(results.missing),
    }


def _print(plan: SharingPlan, results: SharingResults, costs: Sequence[SharingCost]) -> None:
    click.echo(_answer(costs))
    accesses = f"{format_nbytes(plan.access_nbytes)} {plan.op.value}s at random, one at a time each"
    click.echo(
        f"\n{plan.n_clients} clients, {accesses}; {plan.repeats} rounds of {plan.run_seconds:g} s; "
        "intervals are 95 % intervals, each by itself\n"
    )
    rows = [
        [
            _way(cost),
            f"{cost.shared_pct:g} %",
            _text(cost.rate, ".0f"),
            "" if cost.relative is None else _text(cost.relative, ".0f"),
            _text(cost.mean_ms, ".2f"),
            f"{cost.p99_ms:.1f}",
            f"{100 * cost.lock_share:.0f} %",
            f"{cost.busy_per_access:.2f}",
        ]
        for cost in costs
    ]
    headers = ["locks", "shared", "accesses/s", "no locks = 100", "ms", "p99, ms", "time for locks", "busy/access"]
    print_table(headers, rows, right=range(1, 8))
    for one in results.hand_overs:
        click.echo(
            f"\nTwo clients write in turn, {one.way}: the first write of a turn takes "
            f"{_text(one.first_ms, '.1f')} ms, the others {_text(one.later_ms, '.1f')} ms; "
            f"difference {_text(one.cost_ms, '.1f', least=-math.inf)} ms ({one.n_turns} turns)"
        )
    for sentence in results.missing:
        click.echo(f"\n{sentence}")


def _answer(costs: Sequence[SharingCost]) -> str:
    """Return the first line: the rate under each kind of lock at the largest sharing degree, the highest first.

    Where only sharing without locks was measured, it is the rate at each sharing degree.
    """
    most = max((cost.shared_pct for cost in costs), default=0.0)
    if costs and all(cost.way == _NO_LOCKS for cost in costs):
        rates = ", ".join(f"{_text(cost.rate, '.0f')} with {cost.shared_pct:g} % shared" for cost in costs)
        return f"Without locks, accesses per second of all clients: {rates}"
    locked = [(cost, cost.relative) for cost in costs if cost.relative is not None and cost.shared_pct == most]
    if not locked:
        return "The cost of locks is unknown: nothing was measured both with and without them"
    locked.sort(key=lambda pair: -pair[1].mean)
    rates = ", ".join(f"{_way(cost)} {_text(relative, '.0f')}" for cost, relative in locked)
    return f"With {most:g} % of the accesses shared, in per cent of the rate without locks: {rates}"


def _way(cost: SharingCost) -> str:
    return f"ranges of {format_nbytes(cost.range_nbytes)}" if cost.range_nbytes else cost.way


def _text(level: Level, form: str, *, least: float = 0.0) -> str:
    """Return a mean with its interval, whose lower end is cut at the least possible value."""
    found = level.interval
    ends = f" ({max(found.low, least):{form}} to {found.high:{form}})" if found else ""
    return f"{level.mean:{form}}{ends}"
