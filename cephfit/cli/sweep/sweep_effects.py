"""`cephfit sweep effects`: which settings of a screening matter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.options.common_options import confidence_option, profile_options, run_option, store_option
from cephfit.cli.terminal.output import json_option, print_json, print_table
from cephfit.operations.measuring.sweep_measurement import goal_of
from cephfit.results.report.run_notes import run_notes

if TYPE_CHECKING:
    from cephfit.sweep.effects import Effects

_LABEL = 16
"""Characters of a level's label in a table."""


@click.command("effects", short_help="Show which settings of a screening matter.")
@store_option
@run_option
@confidence_option
@profile_options("Also show the predicted effects on the workload of this profile (`cephfit trace profile`).")
@json_option
def command(
    store: str, run_id: str | None, confidence: float, profile_file: Path | None, model: str | None, as_json: bool
) -> None:
    """Show the effect of each factor of a screening: the change of the rate from its first level to its second.

    Effects are given per cell, with intervals that hold jointly over all factors (shown by `--json`); with
    --profile also on the predicted performance for that workload.
    """
    from cephfit.results.store.sample_store import Store
    from cephfit.sweep.declaration.sweep_file import parse_sweep
    from cephfit.sweep.effects import effects_on_cells, effects_on_profile, screening_of

    with Store.open(store) as opened:
        run = opened.run(run_id)
        samples = opened.samples(run.run_id)
    sweep = parse_sweep(run.sweep_text, file=run.run_id, stored=True)
    design = screening_of(sweep.designs, f"run {run.run_id}")
    found = effects_on_cells(design, samples, sweep.measurement.cells, confidence=confidence)
    on_profile = None
    if profile_file is not None:
        on_profile = effects_on_profile(design, samples, goal_of(profile_file, model), confidence=confidence)
    document: dict[str, Any] = {
        "run": run.run_id,
        "simulated": run.is_simulated,
        "finished": run.finished,
        "confidence": confidence,
        "factors": {f.name: [level.label for level in f.levels] for f in design.factors},
        "cells": [_json(effects) for effects in found],
        "profile": None if on_profile is None else _json(on_profile),
    }
    if as_json:
        print_json(document)
    else:
        _print(document, asked_for_profile=profile_file is not None)


def _json(effects: Effects) -> dict[str, Any]:
    return {
        "of": effects.of,
        "effects": [
            {
                **{"factor": e.factor, "percent": e.percent, "low": e.low, "high": e.high},
                **{"matters": e.matters, "matters_over_all_cells": e.everywhere},
            }
            for e in effects.effects
        ],
        "deviation_percent": 100 * effects.deviation,
        "degrees": effects.degrees,
        "interactions": effects.lack,
        "rows": effects.rows,
    }


def _print(document: dict[str, Any], *, asked_for_profile: bool) -> None:
    click.echo(f"run {document['run']}")
    for note in run_notes({**document, "stopping": False}):
        click.echo(note)
    if not document["cells"]:
        click.echo(
            "too few of the screening's configurations were measured: finish the sweep, with 2 repeats or more"
        )
        return
    factors = document["factors"]
    sure = f"{100 * document['confidence']:g} %"
    click.echo(
        f"Change of the rate in percent from the first level to the second; distinguishable from none at {sure}: "
        "* jointly over all factors of the cell, ** over all factors and cells"
    )
    rows = []
    for i, (factor, levels) in enumerate(factors.items()):
        effects = [cell["effects"][i] for cell in document["cells"]]
        marks = [f"{e['percent']:+.0f}{_mark(e)}" for e in effects]
        rows.append((factor, " to ".join(map(_short, levels)), *marks))
    cells = [cell["of"] for cell in document["cells"]]
    print_table(("factor", "levels", *cells), rows, right=range(2, 2 + len(cells)))
    together = [c["of"] for c in document["cells"] if c["interactions"]]
    if together:
        click.echo(f"factors interact in {', '.join(together)}: the intervals are wider there")
    if document["profile"] is not None:
        _print_profile(document["profile"], sure)
    elif asked_for_profile:
        measured = ", ".join(c["of"] for c in document["cells"])
        click.echo(
            "the effects on the workload are not known: too few of the cells that it uses were measured; the run "
            f"has {measured}. Finish the sweep, or add the workload's sizes and patterns to the sweep file"
        )


def _print_profile(effects: dict[str, Any], sure: str) -> None:
    click.echo(f"\nOn the predicted performance for {effects['of']}, largest first ({sure} jointly):")
    ranked = sorted(effects["effects"], key=lambda e: -abs(e["percent"]))
    rows = [
        (e["factor"], f"{e['percent']:+.1f} %", f"{e['low']:+.1f} to {e['high']:+.1f}", _verdict(e))
        for e in ranked
    ]
    print_table(("factor", "effect", "interval", ""), rows, right=(1, 2))


def _mark(effect: dict[str, Any]) -> str:
    return "**" if effect["matters_over_all_cells"] else "* " if effect["matters"] else "  "


def _short(label: str) -> str:
    return label if len(label) <= _LABEL else label[: _LABEL - 3] + "..."


def _verdict(effect: dict[str, Any]) -> str:
    return "matters" if effect["matters"] else "not distinguishable from no effect"
