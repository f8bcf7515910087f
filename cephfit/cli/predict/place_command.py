"""`cephfit place`: which pool each workload should have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cephfit.cli.options.common_options import (
    Finite,
    baselines_option,
    confidence_option,
    load_option,
    model_option,
    run_option,
)
from cephfit.cli.options.workload_choice import counted_profile
from cephfit.cli.predict.pool_options import joint_options, once
from cephfit.cli.terminal.output import json_option, print_json, print_table, range_text

if TYPE_CHECKING:
    from cephfit.ceph.pools.pool_plan import Space
    from cephfit.cli.predict.joint_place import Candidate
    from cephfit.core.values.image_types import ImageChange
    from cephfit.core.values.supply import SupplySet
    from cephfit.mapper.decisions.placement import PoolChoice


@click.command("place", short_help="Recommend a pool for each workload.")
@click.argument("workloads", metavar="PROFILE[:COUNT]...", nargs=-1, required=True)
@baselines_option
@run_option
@load_option
@model_option
@confidence_option
@click.option(
    "--at-least", type=Finite(min=0), metavar="PERCENT", help="Required performance, with the default pool = 100."
)
@click.option(
    "--price",
    "prices",
    multiple=True,
    metavar="CLASS=N",
    help="Relative price of a byte on a device class. Repeatable.",
)
@click.option(
    "--placement",
    "placements",
    multiple=True,
    metavar="CONFIGURATION=CLASS:COPIES",
    help="Device class and number of copies for a configuration that does not state them. Repeatable.",
)
@click.option("--lies", "former_placements", multiple=True, hidden=True, help="Former name of --placement.")
@joint_options
@click.option(
    "--type", "type_names", multiple=True, metavar="POOL=NAME", help="Volume type of a pool. Repeatable."
)
@click.option(
    "--properties",
    "properties_file",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="YAML file that maps image properties and tags to workloads: print the commands that set volume types.",
)
@json_option
def command(
    workloads: tuple[str, ...],
    location: str,
    run_id: str | None,
    load: str,
    model: str,
    confidence: float,
    at_least: float | None,
    prices: tuple[str, ...],
    placements: tuple[str, ...],
    former_placements: tuple[str, ...],
    capacities: tuple[str, ...],
    volumes: tuple[str, ...],
    fill: str | None,
    budget: float | None,
    split: bool,
    type_names: tuple[str, ...],
    properties_file: Path | None,
    as_json: bool,
) -> None:
    """Recommend one of the measured pools for the workload in each PROFILE.

    If the samples cannot distinguish pools from the fastest one (or, with --at-least, if several are certainly
    fast enough), the cheapest is chosen; without --price, the one that takes the fewest bytes on disks. A cache
    tier counts with the share of the measured data that it had capacity for.

    COUNT virtual machines run the workload; without it, one.

    With --space, --fill or --budget all workloads are placed together. The cost is minimised where --at-least is
    given without --budget, else the performance is maximised.

    The exit code is 2 if no pool certainly reaches --at-least, or if the workloads do not fit.
    """
    from cephfit.ceph.pools.pool_plan import cost_of
    from cephfit.cli.predict.joint_place import Candidate, named_notes, placed_jointly, print_jointly
    from cephfit.cli.predict.pool_options import (
        declared_types,
        image_changes,
        parse_capacities,
        parse_types,
        read_rules,
    )
    from cephfit.core.errors import InputError
    from cephfit.core.values.fit import fit_of
    from cephfit.mapper import predictor
    from cephfit.mapper.absolute_rates.supply import supply_or_reason
    from cephfit.mapper.decisions.contrasts import worse_than
    from cephfit.mapper.decisions.placement import PoolStatus, choose_pool
    from cephfit.operations.recommended import echo_use, if_applicable
    from cephfit.results import open_baselines
    from cephfit.results.report.formatting import level
    from cephfit.results.report.run_notes import may_be_unfinished, run_document, run_notes

    model_predictor = predictor(model, confidence=confidence, with_error=True)
    measured = run_document(location, run_id)
    run_id = measured["run"] or run_id  # the newest now, even if another run begins meanwhile
    baselines = open_baselines(location, run_id, load)
    spaces = pool_spaces(location, run_id, (*former_placements, *placements), baselines.configurations)
    by_class = parse_prices(prices, spaces)
    profiles = [counted_profile(text) for text in workloads]
    names = [profile.name for profile, _ in profiles]
    pools = list(spaces or baselines.configurations)
    given = parse_capacities(capacities, fill, budget, volumes, split=split, pools=pools, workloads=names)
    types = {**declared_types(location, run_id), **parse_types(type_names, pools)}
    rules = read_rules(properties_file, names) if properties_file is not None else ()
    candidates = []
    for profile, count in profiles:
        with may_be_unfinished(measured):
            predictions = model_predictor.predict(profile, baselines)
        behind = worse_than(model_predictor, profile, baselines, predictions)
        candidates.append(Candidate(profile, count, predictions, behind))
    document = {
        "model": model,
        "confidence": confidence,
        "at_least": at_least,
        "prices": by_class,
        "measured": measured,
    }
    if given.are_given:
        answer = placed_jointly(candidates, baselines, spaces, by_class, given, at_least)
        chosen = {name: list(its) for name, its in answer.placement.machines.items()}
        changes = image_changes(rules, chosen, types)
        if as_json:
            print_json({**document, "joint": answer.to_json(types), **_changes_json(changes)})
            return
        print_jointly(answer, types)
        _print_changes(changes)
        for note in (*run_notes(measured), *named_notes(candidates)):
            click.echo(f"Note: {note}")
        return
    choices: list[tuple[Candidate, PoolChoice, SupplySet]] = []
    for c in candidates:
        rivals = spaces or {p.configuration: None for p in c.predictions.predictions}
        costs = {name: cost_of(space, by_class) if space else None for name, space in rivals.items()}
        choice = choose_pool(c.predictions, costs, c.slower, at_least=at_least)
        if prices or (spaces and at_least is not None):
            good = (PoolStatus.CHOSEN, PoolStatus.AS_GOOD)
            refuse_unknown_costs(
                [one.configuration for one in choice.candidates if one.status in good and one.cost is None], spaces
            )
        supply = supply_or_reason(c.profile, baselines, confidence=confidence).for_machines(c.count)
        choices.append((c, choice, supply))
    changes = image_changes(
        rules, {choice.profile: [choice.chosen] for _, choice, _ in choices if choice.chosen}, types
    )
    # Looked up once for each pool: every look-up opens the store.
    uses = {name: if_applicable(name, location, run_id) for name in {choice.chosen for _, choice, _ in choices}}
    if as_json:
        print_json(
            {
                **document,
                "placements": [
                    {
                        **choice.to_json(),
                        "machines": c.count,
                        **_space_json(choice, spaces),
                        **supply.to_json(),
                        "fit": fit_of(supply, only=choice.chosen).to_json(),
                        "volume_type": types.get(choice.chosen),
                        "notes": list(c.predictions.notes),
                        "use": use.to_json() if (use := uses[choice.chosen]) else None,
                    }
                    for c, choice, supply in choices
                ],
                **_changes_json(changes),
            }
        )
        if any(not choice.chosen for _, choice, _ in choices):
            click.get_current_context().exit(2)
        return
    for warning in run_notes(measured):
        click.echo(warning)
    for c, choice, supply in choices:
        _print(choice, spaces, c.predictions.notes, supply, types, priced=bool(prices))
    _print_changes(changes)
    for name in dict.fromkeys(choice.chosen for _, choice, _ in choices):
        if (use := uses[name]) is not None:
            echo_use(use, click.echo)
    click.echo(
        f"{level(confidence)} intervals, joint over all configurations; the default pool = 100; "
        f"model {model}. Fast enough holds at this level, and so does slower, over all pairs of pools. The "
        "default may therefore be as good as a pool whose interval is above 100."
    )
    if lacking := [choice.profile for _, choice, _ in choices if not choice.chosen]:
        raise InputError(
            f"no pool certainly reaches {at_least:g} for {', '.join(lacking)}",
            where="--at-least",
            remedy="lower the requirement, measure a faster pool, or measure more rounds for narrower intervals",
        )


def _changes_json(changes: Sequence[ImageChange]) -> dict[str, object]:
    return {"images": [change.to_json() for change in changes]} if changes else {}


def _print_changes(changes: Sequence[ImageChange]) -> None:
    """Print the commands for images, and those that undo them."""
    if not changes:
        return
    click.echo("Set the volume type of the images; Cinder uses it for new volumes from them:")
    for change in changes:
        click.echo(f"  {change.command}   # {change.rule.workload}")
    click.echo("Undo:")
    for undo in dict.fromkeys(change.undo for change in changes):
        click.echo(f"  {undo}")
    click.echo()


def pool_spaces(
    location: str,
    run_id: str | None,
    placements: tuple[str, ...],
    measured: Sequence[str],
    *,
    only_pools: bool = True,
) -> dict[str, Space | None]:
    """Return the configurations and the space that data takes in the pool of each; None where it is not known.

    The space comes from ``--placement``, else from the sweep, else from the layout of the cluster in the facts of
    the run.

    Args:
        location: of a store or a CSV file; the latter has no settings.
        run_id: of the run in a store.
        placements: values of ``--placement``.
        measured: names of the configurations that were measured.
        only_pools: only those that differ by pool and images; empty for a CSV file without ``placements``.
    """
    from cephfit.results.tables.baseline_csv import is_store

    if not is_store(location):
        named = once("--placement", [parse_placement(text, set(measured)) for text in placements])
        return {name: named.get(name) for name in measured} if named or not only_pools else {}
    from cephfit.ceph.pools.pool_plan import only_pool_settings, same_pool, space_of
    from cephfit.ceph.pools.rule_layout import RuleLayout
    from cephfit.operations.run_status import known_of
    from cephfit.results.store.sample_store import Store

    with Store.open(location) as store:
        run = store.run(run_id)
        sweep = known_of(store, run).sweep
    if run.is_imported:  # as for a CSV file: its configurations have no settings
        named = once("--placement", [parse_placement(text, set(measured)) for text in placements])
        return {name: named.get(name) for name in measured}
    first = same_pool(sweep.configurations)
    rivals = [
        c for c in sweep.configurations if not only_pools or (only_pool_settings(c) and first[c.name] == c.name)
    ]
    given = once("--placement", [parse_placement(text, {c.name for c in rivals}) for text in placements])
    measured_nbytes = sweep.measurement.most_clients * sweep.measurement.volume_nbytes
    layout = RuleLayout.from_facts(run.facts)
    return {c.name: given.get(c.name) or space_of(c, measured_nbytes, layout) for c in rivals}


def refuse_unknown_costs(names: Sequence[str], spaces: Mapping[str, Space | None]) -> None:
    """Refuse pools without a cost, because one of unknown cost is neither cheaper nor dearer than another.

    Args:
        names: pools without a cost; nothing happens without any.
        spaces: of all pools.

    Raises:
        InputError: asks for the layout of a pool, or for the price of a device class.
    """
    from cephfit.core.errors import InputError

    unknown = [name for name in names if spaces.get(name) is None]
    if unknown:
        which = " ".join(f"--placement {name}=CLASS:COPIES" for name in unknown)
        raise InputError(
            f"the device class and copies of {', '.join(unknown)} are not known, so costs cannot be compared",
            where="cost",
            remedy=f"give {which}, such as {unknown[0]}=hdd:3",
        )
    if names:
        every = {name: space for name in names if (space := spaces.get(name))}
        raise InputError(
            f"the costs of {', '.join(every)} are not known: a device class has no price",
            where="--price",
            remedy=f"give a price for each of {', '.join(sorted({c for space in every.values() for c in space}))}",
        )


def parse_placement(text: str, known: set[str]) -> tuple[str, Space]:
    """Parse ``--placement``: the configuration, and the bytes on disks per byte of data.

    Args:
        text: ``CONFIGURATION=CLASS:COPIES``.
        known: configurations with a pool.

    Raises:
        InputError: it has another form, or names an unknown configuration.
    """
    from cephfit.core.errors import InputError

    name, _, rest = text.partition("=")
    device_class, _, copies = rest.partition(":")
    try:
        share = float(copies)
    except ValueError:
        share = math.nan
    if name not in known and 0 < share < math.inf:
        raise InputError(
            f"there is no configuration {name!r} with a pool",
            where="--placement",
            remedy=f"there are {', '.join(sorted(known))}",
        )
    if name not in known or not device_class or not 0 < share < math.inf:
        raise InputError(
            f"{text!r} is not CONFIGURATION=CLASS:COPIES",
            where="--placement",
            remedy=f"write it like {min(known)}=hdd:3",
        )
    return name, {device_class: share}


def parse_prices(prices: tuple[str, ...], spaces: dict[str, Space | None]) -> dict[str, float]:
    """Return the price of a byte by device class; 1 for each if no price is given.

    Args:
        prices: each ``CLASS=NUMBER``.
        spaces: by configuration; None if unknown.

    Raises:
        InputError: one has another form, or names a class without a pool.
    """
    from cephfit.core.errors import InputError

    if not prices:
        return {name: 1.0 for space in spaces.values() if space for name in space}
    found: list[tuple[str, float]] = []
    classes = sorted({name for space in spaces.values() if space for name in space})
    for text in prices:
        name, _, number = text.partition("=")
        try:
            price = float(number)
        except ValueError:
            price = math.nan
        if not name or not 0 <= price < math.inf:
            raise InputError(
                f"{text!r} is not CLASS=NUMBER with a number of zero or more",
                where="--price",
                remedy="write it like ssd=4",
            )
        if classes and name not in classes:
            raise InputError(
                f"no pool is on device class {name!r}",
                where="--price",
                remedy=f"there are {', '.join(classes)}",
            )
        found.append((name, price))
    return once("--price", found)


def _space_json(choice: PoolChoice, spaces: dict[str, Space | None]) -> dict[str, object]:
    space = spaces.get(choice.chosen)
    return {"bytes_on_disks_per_byte": dict(space) if space else None}


def _print(
    choice: PoolChoice,
    spaces: dict[str, Space | None],
    notes: Sequence[str],
    supply: SupplySet,
    types: Mapping[str, str],
    *,
    priced: bool,
) -> None:
    from cephfit.core.values.fit import fit_of

    click.echo(f"{choice.profile}: {choice.chosen or 'no pool'}, {choice.why}")
    click.echo(f"  {fit_of(supply, only=choice.chosen).text}")
    rows = []
    for c in choice.candidates:
        space = spaces.get(c.configuration)
        rows.append(
            (
                c.configuration,
                f"{c.relative:,.0f}",
                range_text(c.low, c.high, digits=0),
                *supply.texts_of(c.configuration),
                _takes(space),
                _cost(c.cost),
                c.status.value,
            )
        )
    what = "price of a byte" if priced else "bytes on disks"
    indented = [(f"  {row[0]}", *row[1:]) for row in rows]
    head = ("  pool", "relative", "interval", "serves per second", "headroom", "takes", what, "")
    print_table(head, indented, right=(1, 2, 3, 4, 6))
    if choice.chosen in types:
        click.echo(f"  Volume type: {types[choice.chosen]}")
    for note in notes:
        click.echo(f"  Note: {note}")
    click.echo()


def _takes(space: Space | None) -> str:
    return "unknown" if space is None else " + ".join(f"{share:g} x {name}" for name, share in space.items())


def _cost(cost: float | None) -> str:
    return "unknown" if cost is None else f"{cost:g}"
