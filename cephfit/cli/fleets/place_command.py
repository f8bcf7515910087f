"""`cephfit place`: which pool each workload should have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.fleets.pool_options import joint_options, parse_prices, pool_spaces, refuse_unknown_costs
from cephfit.cli.options.common_options import (
    Finite,
    baselines_option,
    confidence_option,
    load_option,
    model_option,
    run_option,
)
from cephfit.cli.options.workload_choice import counted_profile
from cephfit.cli.output import json_option, print_json, print_table, range_text

if TYPE_CHECKING:
    from cephfit.ceph.pools.pool_plan import Space
    from cephfit.cli.fleets.joint_place import Candidate
    from cephfit.cli.fleets.pool_options import Capacities
    from cephfit.core.protocols import Predictor
    from cephfit.core.values.baseline import Baselines
    from cephfit.core.values.configuration import ImageChange, ImageRule
    from cephfit.core.values.profile import Profile
    from cephfit.core.values.supply import SupplySet
    from cephfit.mapper.decisions.placement import PoolChoice
    from cephfit.operations.recommended import Recommended


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

    COUNT virtual machines run the workload; without it, one. A pool that certainly serves less than they need is
    not chosen if there is another.

    With --space, --fill or --budget all workloads are placed together. The cost is minimised where --at-least is
    given without --budget, else the performance is maximised.

    The exit code is 2 if no pool certainly reaches --at-least, or if the workloads do not fit.
    """
    from cephfit.cli.fleets.pool_options import declared_types, parse_capacities, parse_types, read_rules
    from cephfit.mapper import predictor
    from cephfit.results import open_baselines
    from cephfit.results.report.run_notes import run_document

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
    request = _Request(
        location=location,
        run_id=run_id,
        model=model,
        confidence=confidence,
        at_least=at_least,
        prices=by_class,
        has_prices=bool(prices),
        measured=measured,
        baselines=baselines,
        spaces=spaces,
        types={**declared_types(location, run_id), **parse_types(type_names, pools)},
        rules=read_rules(properties_file, names) if properties_file is not None else (),
    )
    candidates = [_candidate(request, model_predictor, profile, count) for profile, count in profiles]
    if given.are_given:
        _place_together(request, candidates, given, as_json=as_json)
    else:
        _place_each(request, candidates, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Request:
    """What was asked, and what the store has for the answer.

    Attributes:
        location: of the baselines.
        run_id: of the run in a store.
        model: name of the predictor.
        confidence: of the intervals.
        at_least: required performance; None without a requirement.
        prices: of a byte by device class.
        has_prices: whether the user gave any.
        measured: document about the run.
        baselines: of the run.
        spaces: by configuration that is a pool; None if its space is unknown.
        types: volume type by pool.
        rules: which images belong to which workload.
    """

    location: str
    run_id: str | None
    model: str
    confidence: float
    at_least: float | None
    prices: Mapping[str, float]
    has_prices: bool
    measured: dict[str, Any]
    baselines: Baselines
    spaces: dict[str, Space | None]
    types: Mapping[str, str]
    rules: Sequence[ImageRule]

    def to_json(self) -> dict[str, Any]:
        """Return the part of the document that every answer has."""
        return {
            "model": self.model,
            "confidence": self.confidence,
            "at_least": self.at_least,
            "prices": self.prices,
            "measured": self.measured,
        }


def _candidate(request: _Request, predictor: Predictor, profile: Profile, count: int) -> Candidate:
    """Predict the pools for one workload."""
    from cephfit.cli.fleets.joint_place import Candidate
    from cephfit.mapper.decisions.contrasts import worse_than
    from cephfit.results.report.run_notes import may_be_unfinished

    with may_be_unfinished(request.measured):
        predictions = predictor.predict(profile, request.baselines)
    return Candidate(profile, count, predictions, worse_than(predictor, profile, request.baselines, predictions))


def _place_together(
    request: _Request, candidates: Sequence[Candidate], capacities: Capacities, *, as_json: bool
) -> None:
    """Place all workloads within the capacities of the pools, and print the answer."""
    from cephfit.cli.fleets.joint_place import named_notes, placed_jointly, print_jointly
    from cephfit.cli.fleets.pool_options import image_changes
    from cephfit.results.report.run_notes import run_notes

    answer = placed_jointly(
        candidates, request.baselines, request.spaces, request.prices, capacities, request.at_least
    )
    chosen = {name: list(its) for name, its in answer.placement.machines.items()}
    changes = image_changes(request.rules, chosen, request.types)
    if as_json:
        print_json({**request.to_json(), "joint": answer.to_json(request.types), **_changes_json(changes)})
        return
    print_jointly(answer, request.types)
    _print_changes(changes)
    for note in (*run_notes(request.measured), *named_notes(candidates)):
        click.echo(f"Note: {note}")


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The pool of one workload, and what the pools serve of it."""

    candidate: Candidate
    choice: PoolChoice
    supply: SupplySet

    @property
    def notes(self) -> tuple[str, ...]:
        """Caveats of the prediction, and of what is served: without the one on intervals, which all have."""
        from cephfit.mapper.absolute_rates.supply import INTERVALS

        of_supply = [note for note in self.supply.notes if note != INTERVALS] if self.supply.supplies else []
        return tuple(dict.fromkeys((*self.candidate.predictions.notes, *of_supply)))


def _choose(request: _Request, candidate: Candidate) -> _Chosen:
    """Choose the pool for one workload, whatever the others take.

    Raises:
        InputError: costs decide, and one of them is unknown.
    """
    from cephfit.ceph.pools.pool_plan import cost_of
    from cephfit.core.values.fit import too_small
    from cephfit.mapper.absolute_rates.supply import supply_or_reason
    from cephfit.mapper.decisions.placement import PoolStatus, choose_pool

    spaces = request.spaces
    rivals = spaces or {p.configuration: None for p in candidate.predictions.predictions}
    costs = {name: cost_of(space, request.prices) if space else None for name, space in rivals.items()}
    supply = supply_or_reason(candidate.profile, request.baselines, confidence=request.confidence)
    supply = supply.for_machines(candidate.count)
    choice = choose_pool(
        candidate.predictions,
        costs,
        candidate.slower,
        at_least=request.at_least,
        too_small=too_small(supply),
    )
    if request.has_prices or (spaces and request.at_least is not None):
        good = (PoolStatus.CHOSEN, PoolStatus.AS_GOOD)
        refuse_unknown_costs(
            [one.configuration for one in choice.candidates if one.status in good and one.cost is None], spaces
        )
    return _Chosen(candidate, choice, supply)


def _place_each(request: _Request, candidates: Sequence[Candidate], *, as_json: bool) -> None:
    """Choose a pool for each workload by itself, and print the answers.

    Raises:
        InputError: no pool certainly reaches the required performance.
    """
    from cephfit.cli.fleets.pool_options import image_changes
    from cephfit.core.errors import InputError
    from cephfit.operations.recommended import if_applicable

    answers = [_choose(request, candidate) for candidate in candidates]
    choices = [answer.choice for answer in answers]
    chosen = {choice.profile: [choice.chosen] for choice in choices if choice.chosen}
    changes = image_changes(request.rules, chosen, request.types)
    # Looked up once for each pool: every look-up opens the store.
    uses = {name: if_applicable(name, request.location, request.run_id) for name in {c.chosen for c in choices}}
    lacking = [choice.profile for choice in choices if not choice.chosen]
    if as_json:
        placements = [_chosen_json(request, answer, uses[answer.choice.chosen]) for answer in answers]
        print_json({**request.to_json(), "placements": placements, **_changes_json(changes)})
        if lacking:
            click.get_current_context().exit(2)
        return
    _print_each(request, answers, changes, uses)
    if lacking:
        raise InputError(
            f"no pool certainly reaches {request.at_least:g} for {', '.join(lacking)}",
            where="--at-least",
            remedy="lower the requirement, measure a faster pool, or measure more rounds for narrower intervals",
        )


def _chosen_json(request: _Request, chosen: _Chosen, use: Recommended | None) -> dict[str, object]:
    from cephfit.core.values.fit import fit_of

    choice, supply = chosen.choice, chosen.supply
    space = request.spaces.get(choice.chosen)
    return {
        **choice.to_json(),
        "machines": chosen.candidate.count,
        "bytes_on_disks_per_byte": dict(space) if space else None,
        **supply.to_json(),
        "fit": fit_of(supply, only=choice.chosen).to_json(),
        "volume_type": request.types.get(choice.chosen),
        "notes": list(chosen.notes),
        "use": use.to_json() if use else None,
    }


def _print_each(
    request: _Request,
    answers: Sequence[_Chosen],
    changes: Sequence[ImageChange],
    uses: Mapping[str, Recommended | None],
) -> None:
    from cephfit.operations.recommended import echo_use
    from cephfit.results.report.formatting import level
    from cephfit.results.report.run_notes import run_notes

    for warning in run_notes(request.measured):
        click.echo(warning)
    for answer in answers:
        _print(answer, request)
    _print_changes(changes)
    for name in dict.fromkeys(answer.choice.chosen for answer in answers):
        if (use := uses[name]) is not None:
            echo_use(use, click.echo)
    click.echo(
        f"{level(request.confidence)} intervals, joint over all configurations; the default pool = 100; "
        f"model {request.model}. Fast enough holds at this level, and so does slower, over all pairs of pools. "
        "The default may therefore be as good as a pool whose interval is above 100."
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


def _print(answer: _Chosen, request: _Request) -> None:
    from cephfit.core.values.fit import fit_of

    choice, supply = answer.choice, answer.supply
    click.echo(f"{choice.profile}: {choice.chosen or 'no pool'}, {choice.why}")
    click.echo(f"  {fit_of(supply, only=choice.chosen).text}")
    rows = []
    for c in choice.candidates:
        space = request.spaces.get(c.configuration)
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
    what = "price of a byte" if request.has_prices else "bytes on disks"
    indented = [(f"  {row[0]}", *row[1:]) for row in rows]
    head = ("  pool", "relative", "interval", "serves per second", "headroom", "takes", what, "")
    print_table(head, indented, right=(1, 2, 3, 4, 6))
    if choice.chosen in request.types:
        click.echo(f"  Volume type: {request.types[choice.chosen]}")
    for note in answer.notes:
        click.echo(f"  Note: {note}")
    click.echo()


def _takes(space: Space | None) -> str:
    return "unknown" if space is None else " + ".join(f"{share:g} x {name}" for name, share in space.items())


def _cost(cost: float | None) -> str:
    return "unknown" if cost is None else f"{cost:g}"
