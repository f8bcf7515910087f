"""Output of `cephfit sweep` about runs that early stopping saves, and about an optimiser's trials."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from cephfit.cli.terminal.output import print_table
from cephfit.results.store.sample_store import Store
from cephfit.sweep.goal import Goal
from cephfit.sweep.racing.rounds import ASSUMED_SCATTER, expected_saving, scatter_of
from cephfit.sweep.sweep_plan import Sweep


def expected_stopping(sweep: Sweep, goal: Goal, store: str | None) -> dict[str, Any] | None:
    """Return what early stopping is expected to save; None for sweeps that measure all repeats.

    Args:
        sweep: the planned sweep.
        goal: the predictor and its workload.
        store: its newest run gives the scatter of figures; None for assumed values.
    """
    if sweep.stopping is None:
        return None
    scatter = ASSUMED_SCATTER
    if store is not None:
        with Store.open(store) as opened:
            runs = opened.runs()
            scatter = (scatter_of(opened.samples(runs[0].run_id), runs[0].run_id) if runs else None) or scatter
    least, median, most = expected_saving(sweep, goal, scatter)
    profile = "every cell moving as many bytes" if goal.profile is None else goal.profile.name
    return {
        **sweep.stopping.to_json(),
        "profile": profile,
        "expected_part_saved": {"least": least, "median": median, "most": most},
        "expected_from": scatter.source,
    }


def print_expected(document: Mapping[str, Any]) -> None:
    """Print what early stopping is expected to save, for people."""
    stopping = document.get("stopping")
    if not stopping:
        return
    parts = stopping["expected_part_saved"]
    race = f"race for {stopping['profile']}" if stopping["race"] == "profile" else "race in every cell"
    terms = [race] if stopping["race"] else []
    terms += [f"cells known to {100 * stopping['within']:g} %"] if stopping["within"] else []
    least, median, most = (f"{100 * parts[word]:.0f}" for word in ("least", "median", "most"))
    click.echo(
        f"stopping early is expected to save {median} % of these ({least} to {most} %): "
        f"{' and '.join(terms)}, decided from {stopping['minimum']} repeats on at "
        f"{100 * stopping['confidence']:g} % ({stopping['expected_from']})"
    )


def print_left_out(document: Mapping[str, Any]) -> None:
    """Print the options that are omitted from configurations, for people."""
    together: dict[str, list[str]] = {}
    for name, reasons in document["left_out"].items():
        for reason in reasons:
            together.setdefault(reason, []).append(name)
    if together:
        click.echo("\nOmitted, because this cluster does not support it:")
        print_table(("configurations", "why"), [(", ".join(names), reason) for reason, names in together.items()])


def print_search(document: Mapping[str, Any]) -> None:
    """Print an optimiser's task, for people."""
    search = document.get("search")
    if not search:
        return
    goal = f"the rate of {search['cell']}" if search["cell"] else "the predicted performance for the profile"
    click.echo(
        f"an optimiser ({search['sampler']}, seed {search['seed']}) proposes {search['trials']} configurations, "
        f"{search['batch']} at a time, from the results of the earlier ones, to {search['direction']} {goal} over "
        f"{', '.join(search['factors'])}"
    )


def print_stopping(document: Mapping[str, Any]) -> None:
    """Print what early stopping has saved, for people."""
    stopping = document.get("stopping")
    if not stopping:
        return
    click.echo(
        f"saved so far: {stopping['runs_saved']} of {stopping['runs_of_full_plan']} fio runs "
        f"({100 * stopping['part_saved']:.0f} %)"
    )
    for race in stopping["races"]:
        found = [f"{end} {race[end] or 'open'}" for end in ("best", "worst") if end in race]
        click.echo(f"race for {race['for']}: {', '.join(found)}")
    together: dict[tuple[str, str, str], list[str]] = {}
    for r in stopping["stopped"]:
        together.setdefault((str(r["after"]), _cells(r["cells"]), r["reason"]), []).append(r["configuration"])
    rows = [(", ".join(names), *rest) for rest, names in together.items()]
    if rows:
        print_table(("no longer measured", "after", "cells", "why"), rows, right=(1,))


def _cells(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 2 else f"{len(names)} cells"


def print_trials(document: Mapping[str, Any]) -> None:
    """Print an optimiser's trials, for people."""
    trials = document.get("trials")
    if not trials:
        return
    rows = [
        (t["configuration"], "-" if t["relative"] is None else f"{t['relative']:.1f}", t["why"]) for t in trials
    ]
    ranked = [t for t in trials if t["relative"] is not None]
    if ranked:
        best = max(ranked, key=lambda t: float(t["relative"]))
        click.echo(
            f"highest: {best['configuration']}, {best['relative']:.1f}; selection bias inflates the highest of "
            f"{len(ranked)} trials: measure it again next to the default before you rely on it"
        )
    print_table(("trial", "default = 100", "settings"), rows, right=(1,))
