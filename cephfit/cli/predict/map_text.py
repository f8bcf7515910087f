"""What `cephfit map` prints: the answer, the ranking, the cells that matter, and the sensitivity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from cephfit.cli.terminal.output import print_table, range_text
from cephfit.core.values.prediction import answer_lines
from cephfit.core.values.prediction_model import model_called

if TYPE_CHECKING:
    from cephfit.core.values.prediction import Prediction, PredictionSet
    from cephfit.core.values.supply import SupplySet
    from cephfit.mapper.sensitivity import Sensitivity

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
    from cephfit.mapper.sensitivity import moved_most

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
