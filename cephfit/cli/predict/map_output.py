"""Output of `cephfit map`: the answer, the ranking, the cells that matter, the sensitivity, other objectives."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from cephfit.cli.options.common_options import Finite
from cephfit.cli.output import print_table, range_text
from cephfit.core.values.fit import answer_lines
from cephfit.core.values.prediction import model_called
from cephfit.operations.ranking import Answers, Ranked, Wanted

if TYPE_CHECKING:
    from cephfit.core.values.prediction import Prediction, PredictionSet
    from cephfit.core.values.supply import SupplySet
    from cephfit.mapper.decisions.objectives import Judged
    from cephfit.mapper.decisions.sensitivity import Sensitivity

_SHOWN_CELLS = 6
_SHOWN_MOVES = 3
_MOVED_POINTS = 0.5
_SMALL_CHANGE = 0.05
"""Smaller relative changes of a variation are not worth a row."""


def print_predictions(predictions: PredictionSet, warnings: Sequence[str], supply: SupplySet) -> None:
    """Print whether the workload fits, the ranking, and the rates in the cells that matter most."""
    from cephfit.core.values.fit import fit_of

    click.echo(f"{predictions.profile}: {fit_of(supply).text}")
    click.echo(f"Workload {predictions.profile}, baselines from {predictions.baselines}")
    for warning in warnings:
        click.echo(warning)
    click.echo(f"Model {predictions.model}: {model_called(predictions.model).sentence}")
    click.echo()
    click.echo("\n".join(answer_lines(predictions)))
    click.echo()
    errs = any(p.error_share is not None for p in predictions.predictions)
    columns = ["configuration", "relative", f"{predictions.confidence * 100:g} % interval", "verdict", "moved by"]
    rows = [_row(p) for p in predictions.predictions]
    right = [1, 2]
    if supply.supplies:
        columns[3:3] = ["serves per second", "headroom"] if supply.demand else ["serves per second"]
        right = list(range(1, 3 + len(columns) - 5))
        for row, p in zip(rows, predictions.predictions, strict=True):
            row[3:3] = supply.texts_of(p.configuration)[: len(columns) - 5]
    if errs:
        columns.insert(3, "by the model")
        for row, p in zip(rows, predictions.predictions, strict=True):
            row.insert(3, "" if p.error_share is None else f"{100 * p.error_share:.0f} %")
        right.append(right[-1] + 1)
    print_table(columns, rows, right=right)
    if errs:
        click.echo(
            "By the model: the part of the squared width that is the model's own error; the rest is scatter"
        )
    click.echo()
    _print_weights(predictions)
    for note in dict.fromkeys((*predictions.notes, *supply.notes)):
        click.echo(f"Note: {note}")


def _row(p: Prediction) -> list[str]:
    moved = [f"{r.cell} {r.points:+,.1f}" for r in p.reasons[:_SHOWN_MOVES] if abs(r.points) >= _MOVED_POINTS]
    return [p.configuration, f"{p.relative:,.1f}", range_text(p.low, p.high), p.verdict.value, ", ".join(moved)]


def _print_weights(predictions: PredictionSet) -> None:
    """Print the cells that carry the workload, and each configuration's rate in them."""
    from cephfit.core.values.prediction import Verdict

    default = next(p for p in predictions.predictions if p.verdict is Verdict.DEFAULT)
    heaviest = sorted(default.reasons, key=lambda r: -r.weight)[:_SHOWN_CELLS]
    measure = "the default's time" if model_called(predictions.model).adds_time else "the accesses"
    click.echo(f"The cells that matter most (share of {measure}), and the rate in each, default = 100:")
    # Size above pattern: six full cell names are wider than most terminals.
    rows = [["", *(r.cell.pattern.value for r in heaviest)]]
    rows.append(["weight", *(f"{100 * r.weight:.1f} %" for r in heaviest)])
    for p in predictions.predictions:
        rates = {r.cell: r.relative for r in p.reasons}
        rows.append([p.configuration, *(f"{rates[r.cell]:,.0f}" for r in heaviest)])
    print_table(["", *(r.cell.size.name for r in heaviest)], rows, right=range(1, len(heaviest) + 1))
    left = len(default.reasons) - len(heaviest)
    if left:
        share = 100 * (1 - math.fsum(r.weight for r in heaviest))
        click.echo(f"{left} more cells account for {share:.1f} % together")


def print_sensitivity(found: Sensitivity) -> None:
    """Print whether the best stays, and what changes most in each variation."""
    from cephfit.mapper.decisions.sensitivity import moved_most

    click.echo()
    click.echo(found.answer())
    rows, small = [], 0
    extremes = found.base.best, found.base.worst
    for variation, predictions in found.predicted:
        name, before, after = moved_most(found.base, predictions)
        if (predictions.best, predictions.worst) == extremes and abs(after / before - 1) < _SMALL_CHANGE:
            small += 1
            continue
        rows.append([str(variation), predictions.best, predictions.worst, f"{name} {before:.1f} -> {after:.1f}"])
    if rows:
        print_table(("variation", "best", "worst", "largest change"), rows)
    if small:
        click.echo(
            f"{small} {'more ' if rows else ''}variations change no prediction by {100 * _SMALL_CHANGE:.0f} %"
        )
    for variation in found.variations:
        if variation.predictions is None:
            click.echo(f"Note: {variation}: cannot be predicted: {variation.why}")
    for note in found.notes:
        click.echo(f"Note: {note}")


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
    from cephfit.cli.fleets.pool_options import parse_prices, pool_spaces, refuse_unknown_costs
    from cephfit.mapper import predictor
    from cephfit.mapper.decisions.objectives import by_cost

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
    from cephfit.mapper.decisions.objectives import default_of

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
