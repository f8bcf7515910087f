"""Output of `cephfit sweep`: documents for machines, and the same as text for people."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import click
import numpy as np

from cephfit.cli.output import print_table
from cephfit.core.protocols import Progress
from cephfit.core.statistics.sample_columns import OK
from cephfit.core.units import format_nbytes, format_seconds
from cephfit.core.values.cells import FileSet
from cephfit.core.values.configuration import Partition
from cephfit.core.values.measurement import MICRO, StepTimes
from cephfit.core.values.sample import SIMULATED, Run, State
from cephfit.operations.measuring.run_status import known_of
from cephfit.operations.measuring.sweep_measurement import Request, measured
from cephfit.results.statistics.loads import sync_in_words
from cephfit.results.store.sample_store import Store
from cephfit.sweep.execution.rounds import ASSUMED_SCATTER, expected_saving, full_plan, scatter_of
from cephfit.sweep.execution.run_progress import RunProgress
from cephfit.sweep.sweep_plan import Goal, Sweep, expected_seconds, n_planned_samples


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
        together.setdefault((str(r["after"]), _cell_names(r["cells"]), r["reason"]), []).append(r["configuration"])
    rows = [(", ".join(names), *rest) for rest, names in together.items()]
    if rows:
        print_table(("no longer measured", "after", "cells", "why"), rows, right=(1,))


def _cell_names(names: Sequence[str]) -> str:
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


_SHOWN_REASONS = 12
"""Maximum number of reasons to print; a broken cluster gives a new one for every fio run."""
_SHOWN_CELLS = 4


def plan_document(
    sweep: Sweep,
    times: StepTimes,
    *,
    unsupported: Mapping[str, tuple[str, ...]] | None,
    without_effect: Mapping[str, tuple[str, ...]],
) -> dict[str, Any]:
    """Return what a sweep would do. ``unsupported`` is None without a target."""
    plan = full_plan(sweep)
    m = sweep.measurement
    return {
        "name": sweep.name,
        "description": sweep.description,
        "digest": sweep.digest,
        "configurations": [
            {
                "name": c.name,
                "why": c.why,
                "settings": {
                    p.value: [{"scope": s.scope, "key": s.key, "value": s.value} for s in c.within(p)]
                    for p in Partition
                },
                "unsupported": None if unsupported is None else list(unsupported.get(c.name, ())),
                "without_effect": [] if c.name in (unsupported or ()) else list(without_effect.get(c.name, ())),
            }
            for c in sweep.configurations
        ],
        "measurement": m.to_json(),
        "accept_risk": list(sweep.accept_risk),
        "search": None if sweep.search is None else sweep.search.to_json(),
        "runs": plan.n_runs,
        "samples": n_planned_samples(sweep),
        "expected_seconds": round(expected_seconds(sweep, plan, times, skipped=unsupported or ()), 1),
        "expected_from": times.source,
        "order": [
            {
                "repeat": s.repeat,
                "configuration": s.configuration,
                **({"load": s.load} if s.load else {}),
                "cells": [str(c) for c in s.cells],
            }
            for s in plan.steps
        ],
    }


def print_plan(document: Mapping[str, Any]) -> None:
    """Print a plan for people."""
    m = document["measurement"]
    click.echo(f"{document['name']}: {document['description']}")
    click.echo()
    rows = []
    for c in document["configurations"]:
        settings = [_setting(setting) for within in c["settings"].values() for setting in within]
        rows.append((c["name"], ", ".join(settings) or "-", c["why"]))
    print_table(("configuration", "sets", "why"), rows)
    click.echo()
    _print_measurement(m)
    _print_loads(m)
    what = MICRO if m.get("engine") == MICRO else "fio"
    click.echo(
        f"{document['runs']} {what} runs, {document['samples']} samples (one per {what} run and client), about "
        f"{format_seconds(document['expected_seconds'])} ({document['expected_from']})"
    )
    if document["configurations"] and all(c["unsupported"] is None for c in document["configurations"]):
        click.echo("not checked whether a cluster supports these options and pools; add --target TARGET to check")
    print_search(document)
    print_expected(document)
    if document["accept_risk"]:
        click.echo(f"accepts the risks of: {', '.join(document['accept_risk'])}")
    _print_exceptions(document["configurations"])


def _print_measurement(m: Mapping[str, Any]) -> None:
    is_micro = m.get("engine") == MICRO
    how = (
        f"one operation in each of {m['iodepth']} threads"
        if is_micro
        else f"{m['ioengine']} at depth {m['iodepth']}"
    )
    clients = f"{m['clients']} {'client with a volume' if m['clients'] == 1 else 'clients with volumes'}"
    click.echo(
        f"{len(m['cells'])} {'operations on files' if is_micro else 'cells'}, {m['repeats']} repeats, "
        f"{clients} of {format_nbytes(m['volume_nbytes'])}; "
        f"ramp {m['ramp_seconds']:g} s, run {m['run_seconds']:g} s, {how}, "
        f"{'direct' if m['direct'] else 'through the page cache'}, "
        f"caches {m['cache']}; order by seed {m['seed']}"
    )
    if is_micro:
        click.echo(f"operations: {', '.join(m['cells'])}; on {FileSet(**m['files'])}")
    own = _alignment_and_sync(m)
    if own:
        click.echo(f"accesses: {', '.join(own)}")
    if steady := m.get("steady"):
        click.echo(
            f"a run that writes is repeated with a longer ramp while its rate falls by more than "
            f"{100 * steady['within']:g} %, for at most {steady['limit_seconds']:g} s (not in the expected time)"
        )
    if settle := m.get("settle_seconds"):
        click.echo(f"{settle:g} s of rest before each run")
    if m.get("new_volumes"):
        click.echo("each round has new volumes: the luck of where their objects lie is part of the spread")


def _print_loads(m: Mapping[str, Any]) -> None:
    for load in m.get("loads", ()):
        values = [
            f"{word.replace('n_clients', 'clients')} {value}"
            for word, value in load.items()
            if word not in ("name", "cells", "align_nbytes", "sync")
        ]
        only = f", only {', '.join(load['cells'])}" if "cells" in load else ""
        click.echo(f"also under load {load['name']}: {', '.join([*values, *_alignment_and_sync(load)])}{only}")


def _print_exceptions(configurations: Sequence[Mapping[str, Any]]) -> None:
    for word, heading in (
        ("unsupported", "This target does not support these configurations; their samples will be `skipped`:"),
        ("without_effect", "These have settings without effect on this target, but are measured:"),
    ):
        lines = [(c["name"], reason) for c in configurations for reason in c[word] or ()]
        if lines:
            click.echo()
            click.echo(heading)
            print_table(("configuration", "why"), lines)


def _alignment_and_sync(load: Mapping[str, Any]) -> list[str]:
    """Return alignment and flushes of a load, or of a measurement, as text; empty where it states neither."""
    words = []
    if "align_nbytes" in load:
        nbytes = load["align_nbytes"]
        words.append(f"aligned to {format_nbytes(nbytes)}" if nbytes else "aligned to their own size")
    if "sync" in load:
        words.append(f"writes: {sync_in_words(load['sync']) or 'no flushes'}")
    return words


def status_document(store: Store, run: Run) -> dict[str, Any]:
    """Return the progress of a run."""
    known = known_of(store, run)
    samples = store.every_sample(run.run_id)
    progresses = RunProgress(known.sweep, samples, stops=known.stops, rounds=known.rounds).all()
    reasons: dict[tuple[str, str, str], Counter[str]] = {}
    for s in samples.take(np.flatnonzero(samples.state != OK)):
        cell = f"{s.key.cell} under {s.key.load}" if s.key.load else str(s.key.cell)
        reasons.setdefault((s.key.configuration, s.state.value, s.reason), Counter())[cell] += 1
    return {
        "run": run.run_id,
        "sweep": run.sweep_name,
        "target": run.target,
        "finished": run.finished,
        "simulated": run.is_simulated,
        "configurations": [s.as_json() for s in progresses],
        "left": sum(s.left for s in progresses),
        "stopping": known.stopping_document(),
        "trials": known.trials_document(samples),
        "not_ok": [
            {"configuration": c, "state": state, "reason": reason, "samples": cells.total(), "cells": list(cells)}
            for (c, state, reason), cells in sorted(reasons.items(), key=lambda entry: -entry[1].total())
        ],
    }


def measure(request: Request, target_text: str, progress: Progress) -> dict[str, Any]:
    """Measure a sweep on one target.

    Returns:
        The status of its run, as ``status_document``.

    Raises:
        CephfitError: see ``run_sweep`` in ``sweep/execution/runner.py``. All completed samples are stored.
    """
    return measured(request, target_text, progress, status_document)


def print_status(document: Mapping[str, Any]) -> None:
    """Print the progress of a run, for people."""
    state = "finished" if document["finished"] else f"unfinished, {document['left']} samples left"
    click.echo(f"run {document['run']} of {document['sweep']} on {document['target']}: {state}")
    if document["simulated"]:
        click.echo(SIMULATED)
    planned = sum(c["planned"] for c in document["configurations"])
    click.echo(f"{planned} samples planned (one per fio run and client), of which:")
    words = ["configuration", "planned", "ok", "failed", "invalid", "skipped", "left"]
    words += ["saved"] if document["stopping"] else []
    rows = [tuple(str(c[word]) for word in words) for c in document["configurations"]]
    print_table(words, rows, right=range(1, len(words)))
    print_stopping(document)
    print_trials(document)
    for row in document["not_ok"][:_SHOWN_REASONS]:
        samples = "1 sample" if row["samples"] == 1 else f"{row['samples']} samples"
        where = "" if row["state"] == State.SKIPPED.value else f" ({_cells(row['cells'])})"
        click.echo(f"{row['configuration']}, {samples} {row['state']}{where}: {row['reason']}")
    if len(document["not_ok"]) > _SHOWN_REASONS:
        click.echo(f"{len(document['not_ok']) - _SHOWN_REASONS} more reasons; --json shows all of them")


def _cells(cells: Sequence[str]) -> str:
    """Return the first few cells by name, and the number of the others."""
    more = [f"{len(cells) - _SHOWN_CELLS} more cells"] if len(cells) > _SHOWN_CELLS else []
    return ", ".join([*cells[:_SHOWN_CELLS], *more])


def _setting(setting: Mapping[str, Any]) -> str:
    return f"{setting['scope']}: {setting['key']} = {setting['value']}"
