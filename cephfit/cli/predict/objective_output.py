"""Objectives other than throughput: the options of `cephfit map`, and what it prints."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cephfit.cli.options.common_options import Finite
from cephfit.cli.terminal.output import print_table, range_text
from cephfit.operations.objective_answers import Answers, Ranked, Wanted

if TYPE_CHECKING:
    from cephfit.core.values.prediction import Prediction
    from cephfit.mapper.objectives import Judged

_NAMES = ("throughput", "latency", "p99", "read", "write", "cost")
_Command = TypeVar("_Command", bound=Callable[..., Any])


def objective_options(command: _Command) -> _Command:
    """Adds ``--objective``, ``--reads-matter``, ``--price`` and ``--placement``."""
    for option in (
        click.option(
            "--placement",
            "placements",
            multiple=True,
            metavar="CONFIGURATION=CLASS:COPIES",
            help="For cost: layout of a configuration that does not state it. Repeatable.",
        ),
        click.option(
            "--price",
            "prices",
            multiple=True,
            metavar="CLASS=N",
            help="For cost: relative price of a byte on a device class. Repeatable.",
        ),
        click.option(
            "--reads-matter",
            type=Finite(min=0, min_open=True),
            metavar="N",
            help="Count the time of reads N times, that of writes once.",
        ),
        click.option(
            "--objective",
            "objectives",
            multiple=True,
            type=click.Choice(_NAMES),
            help="What to rank by. Several: mark the configurations that no other one certainly beats in all of "
            "them.  [default: throughput]",
        ),
    ):
        command = option(command)
    return command


_EQUAL_PRICES = (
    "without --price, a byte costs 1 on every device class: the cost is the bytes on disks per byte of data"
)


def wanted_of(
    objectives: Sequence[str],
    reads_matter: float | None,
    prices: tuple[str, ...],
    placements: tuple[str, ...],
) -> Wanted:
    """Return the objectives that the options ask for.

    Raises:
        click.UsageError: an option has no effect on the objectives.
    """
    names = tuple(dict.fromkeys(objectives)) or (("throughput",) if reads_matter is not None else ())
    if reads_matter is not None and not {"throughput", "latency"} & set(names):
        raise click.UsageError("--reads-matter weighs times: it needs --objective throughput or latency")
    if (prices or placements) and "cost" not in names:
        raise click.UsageError("--price and --placement need --objective cost")
    return Wanted(names, reads_matter, prices, placements)


def by_cost_of_pools(ranked: Ranked, wanted: Wanted) -> Judged:
    """Judge configurations by the cost of a byte, from the layouts of their pools and ``--price``.

    Raises:
        InputError: a layout or a price is unknown.
    """
    from cephfit.ceph.pools.pool_plan import cost_of
    from cephfit.cli.predict.place_command import parse_prices, pool_spaces, refuse_unknown_costs
    from cephfit.mapper import predictor
    from cephfit.mapper.objectives import by_cost

    baselines = ranked.baselines
    spaces = pool_spaces(
        ranked.location, ranked.run_id, wanted.placements, baselines.configurations, only_pools=False
    )
    prices = parse_prices(wanted.prices, spaces)
    costs = {name: cost_of(space, prices) if space else None for name, space in spaces.items()}
    refuse_unknown_costs([name for name, cost in costs.items() if cost is None], spaces)
    predictions = predictor(ranked.model, confidence=ranked.confidence).predict(ranked.profile, baselines)
    found = by_cost({name: cost for name, cost in costs.items() if cost is not None}, predictions)
    if wanted.prices:
        return found
    return replace(found, predictions=replace(found.predictions, notes=(_EQUAL_PRICES,)))


def print_answers(answers: Answers, confidence: float) -> None:
    """Print one table for one objective, else the Pareto front and all objectives next to each other."""
    if not answers.judged:
        return
    if len(answers.judged) == 1:
        _print_one(answers.judged[0], answers.reads_matter, confidence)
    else:
        _print_several(answers, confidence)
    click.echo()


def _print_one(judged: Judged, reads_matter: float | None, confidence: float) -> None:
    from cephfit.mapper.objectives import default_of

    found = judged.predictions
    weight = f", reads counted {reads_matter:g} times" if reads_matter is not None else ""
    best, default = found.of(found.best), default_of(found)
    lead = "the default: nothing is distinguishably better" if found.best == default else _relative(best)
    click.echo(f"Best by {judged.objective.value}{weight}: {found.best}, {lead}")
    if found.as_good:
        click.echo(f"Not distinguishable from {found.best}: {', '.join(found.as_good)}")
    columns = ["configuration", "relative", f"{100 * confidence:g} % interval", "verdict"]
    rows = [
        [p.configuration, f"{p.relative:,.1f}", range_text(p.low, p.high), p.verdict.value]
        for p in found.predictions
    ]
    if judged.values:
        columns.insert(1, judged.unit)
        for row in rows:
            row.insert(1, f"{judged.values[row[0]].value:.3g}")
    print_table(columns, rows, right=range(1, len(columns) - 1))
    _print_notes([judged])


def _print_several(answers: Answers, confidence: float) -> None:
    names = ", ".join(judged.objective.value for judged in answers.judged)
    front = [n for n in answers.compared if n not in answers.dominated]
    click.echo(f"Pareto front by {names}: {', '.join(front)}")
    if answers.reads_matter is not None:
        click.echo(f"The time of reads counts {answers.reads_matter:g} times.")
    columns = ["configuration"]
    for judged in answers.judged:
        columns += [judged.objective.value, f"{100 * confidence:g} % interval"]
    rows = []
    for name in answers.compared:
        cells = [name]
        for judged in answers.judged:
            p = judged.predictions.of(name)
            cells += [f"{p.relative:,.1f}", "exact" if judged.is_exact else range_text(p.low, p.high)]
        rows.append([*cells, f"beaten by {w}" if (w := answers.dominated.get(name)) else "on the front"])
    print_table([*columns, ""], rows, right=range(1, len(columns)))
    click.echo("Each figure is relative, the default = 100, more is better: a latency or a cost of half is 200.")
    click.echo("Beaten: certainly worse in every objective, in a direct comparison with the named one.")
    lacking = {n for judged in answers.judged for n in judged.names} - set(answers.compared)
    if lacking:
        click.echo(f"Not compared, because an objective is not known: {', '.join(sorted(lacking))}")
    _print_notes(answers.judged)


def _print_notes(judged: Sequence[Judged]) -> None:
    several = len(judged) > 1
    of_notes: dict[str, list[str]] = {}
    for one in judged:
        for note in dict.fromkeys(one.predictions.notes):
            of_notes.setdefault(note, []).append(one.objective.value)
    for note, names in of_notes.items():
        click.echo(f"Note: {', '.join(names)}: {note}" if several else f"Note: {note}")


def _relative(p: Prediction) -> str:
    return f"{p.relative:,.0f} with the default = 100, more is better ({range_text(p.low, p.high)})"
