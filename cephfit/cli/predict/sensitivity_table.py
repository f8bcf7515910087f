"""Print how a prediction changes under other assumptions, for `cephfit map --sensitivity`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cephfit.cli.terminal.output import print_table

if TYPE_CHECKING:
    from cephfit.mapper.sensitivity import Sensitivity

_SMALL = 0.05
"""Relative changes below this one are not worth a row."""


def print_sensitivity(found: Sensitivity) -> None:
    """Print whether the best stays, and what changes most in each variation."""
    from cephfit.mapper.sensitivity import moved_most

    click.echo()
    click.echo(found.answer())
    rows, small = [], 0
    extremes = found.base.best, found.base.worst
    for variation, predictions in found.predicted:
        name, before, after = moved_most(found.base, predictions)
        if (predictions.best, predictions.worst) == extremes and abs(after / before - 1) < _SMALL:
            small += 1
            continue
        rows.append([str(variation), predictions.best, predictions.worst, f"{name} {before:.1f} -> {after:.1f}"])
    if rows:
        print_table(("variation", "best", "worst", "largest change"), rows)
    if small:
        click.echo(f"{small} {'more ' if rows else ''}variations change no prediction by {100 * _SMALL:.0f} %")
    for variation in found.variations:
        if variation.predictions is None:
            click.echo(f"Note: {variation}: cannot be predicted: {variation.why}")
    for note in found.notes:
        click.echo(f"Note: {note}")
