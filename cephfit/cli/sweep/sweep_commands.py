"""`cephfit sweep`: list, plan, run, status, effects."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.options.common_options import (
    Finite,
    apply_option,
    cluster_options,
    confidence_option,
    goal_options,
    keep_option,
    profile_options,
    run_option,
    store_option,
)
from cephfit.cli.options.completers import releases, stores, sweep_files, targets
from cephfit.cli.output import (
    OUTPUT_FILE,
    SentenceGroup,
    json_option,
    print_json,
    print_table,
    sigterm_as_interrupt,
)
from cephfit.operations.measuring.cluster_options import ClusterOptions
from cephfit.operations.measuring.progress_display import progress_display, progress_displays
from cephfit.operations.measuring.sweep_measurement import goal_of
from cephfit.results.report.run_notes import run_notes

if TYPE_CHECKING:
    from cephfit.operations.measuring.sweep_measurement import Request
    from cephfit.sweep.effects import Effects


@click.group(name="sweep", cls=SentenceGroup)
def command() -> None:
    """Measure configurations: list, plan, run, status, effects.

    A FILE is the path of a sweep file, or the name of one that comes with cephfit (`cephfit sweep list`).
    """


@command.command("list")
@json_option
def list_sweeps(as_json: bool) -> None:
    """List the sweep files that come with cephfit."""
    from cephfit.sweep.declaration.sweep_file import bundled_sweep, bundled_sweeps, read_sweep

    sweeps = {name: read_sweep(bundled_sweep(name)) for name in bundled_sweeps()}
    if as_json:
        print_json(
            [
                {
                    "name": name,
                    "description": sweep.description,
                    "path": str(bundled_sweep(name)),
                    "configurations": len(sweep.configurations),
                }
                for name, sweep in sweeps.items()
            ]
        )
        return
    print_table(("name", "description"), [(name, sweep.description) for name, sweep in sweeps.items()])


@command.command()
@click.argument("file", shell_complete=sweep_files)
@click.option(
    "--target",
    "target_text",
    shell_complete=targets,
    help="Also check what this target (such as `lab`) supports; changes nothing.",
)
@click.option(
    "--store", shell_complete=stores, help="Estimate the time from earlier runs on the target in this store."
)
@click.option(
    "--for",
    "for_file",
    type=click.Path(path_type=Path),
    metavar="PROFILE",
    help="Propose the cells and loads that carry the weight of this workload, as a section `measurement`.",
)
@click.option(
    "-o",
    "--output",
    type=OUTPUT_FILE,
    help="With --for: write FILE with the proposed measurement as a sweep file.",
)
@click.option(
    "--release",
    "release_names",
    multiple=True,
    metavar="RELEASE",
    shell_complete=releases,
    help="Check the settings against this release of Ceph, such as reef or 18.2, without a cluster: exit code 2 "
    "if it lacks one. Repeatable.",
)
@cluster_options
@goal_options
@json_option
def plan(
    file: str,
    target_text: str | None,
    store: str | None,
    for_file: Path | None,
    output: Path | None,
    release_names: tuple[str, ...],
    cluster: ClusterOptions,
    profile_file: Path | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Show what a sweep would do, and how long it would take; changes nothing.

    With --target it also shows what that target does not support, the current and the new value of every setting,
    what would be restarted, and which pools and data are affected.

    Without a target it names the settings that a release of Ceph lacks, and their new names. It also lists the
    defaults that differ between releases, for options that the sweep leaves unset.

    With --for it proposes what to measure for a workload instead: the sizes, patterns, depths, alignment and
    flushes in which the workload spends its time. Clients, volumes, repeats and times are those of FILE.
    """
    from cephfit.cli.sweep.sweep_planned import planned, print_planned

    if for_file is not None:
        from cephfit.cli.sweep.sweep_planned import show_proposal

        if release_names or any(given is not None for given in (target_text, store, profile_file, model)):
            raise click.UsageError(
                "--for proposes a measurement: use --target, --release, --store, --profile and --model to plan "
                "the result"
            )
        show_proposal(file, for_file, output, as_json=as_json)
        return
    if output is not None:
        raise click.UsageError("-o writes a proposal: add --for PROFILE")
    if release_names and target_text is not None:
        raise click.UsageError("a target has its own release: use either --target or --release")
    document = planned(file, target_text, store, cluster, profile_file, model, release_names)
    if as_json:
        print_json(document)
    else:
        print_planned(document)


@command.command()
@click.argument("file", shell_complete=sweep_files)
@click.option(
    "--target",
    "target_texts",
    required=True,
    multiple=True,
    shell_complete=targets,
    help="Where to measure: `lab`, `lab:NAME`, `ceph`, `ceph:NAME` (add `,settings=store|conf|injectargs` to "
    "choose how options reach daemons), `sim`, `local:/PATH`, `iscsi://HOST/IQN/LUN`, `nfs://HOST/EXPORT`, "
    "`swift://ACCOUNT:USER@HOST/CONTAINER`, `iscsi:lab`, `nfs:lab:NAME`, `swift:lab`, `openstack:CLOUD,...`. "
    "Repeatable: several targets are measured in parallel, each in its own run.",
)
@store_option
@apply_option()
@click.option("--new", is_flag=True, help="Begin a new run even if one of this sweep is unfinished.")
@keep_option
@click.option(
    "--health-limit",
    default=300.0,
    show_default=True,
    type=Finite(min=0),
    metavar="SECONDS",
    help="How long to wait for the cluster to become healthy.",
)
@cluster_options
@goal_options
@json_option
def run(
    file: str,
    target_texts: tuple[str, ...],
    store: str,
    cluster: ClusterOptions,
    apply: bool,
    new: bool,
    keep: bool,
    health_limit: float,
    profile_file: Path | None,
    model: str | None,
    as_json: bool,
) -> None:
    """Measure a sweep; an unfinished run of it on the same target continues where it stopped.

    On a cluster that cephfit did not create (`--target ceph`), nothing is changed without `--apply`: it only shows
    the plan, the current and the new value of every setting, what would be restarted, and the pools to be created.
    """
    from cephfit.cli.sweep.sweep_planned import planned, show_dry_run
    from cephfit.cli.sweep.sweep_text import measure, print_status
    from cephfit.operations.measuring.cluster_options import is_existing_cluster
    from cephfit.operations.measuring.sweep_measurement import Request

    _refuse_twins(target_texts, cluster)
    foreign = [text for text in target_texts if is_existing_cluster(text)]
    if foreign and not apply:
        plans = [(text, planned(file, text, None, cluster, profile_file, model)) for text in foreign]
        show_dry_run(plans, [text for text in target_texts if text not in foreign], as_json=as_json)
        return
    others = target_texts if len(target_texts) > 1 else ()
    request = Request(file, store, cluster, apply, new, keep, health_limit, profile_file, model, others)
    with ExitStack() as stack:
        stack.enter_context(sigterm_as_interrupt())
        stack.push(_hint_how_to_continue(target_texts, cluster))
        if len(target_texts) > 1:
            _run_in_parallel(request, target_texts, as_json=as_json)
            return
        document = measure(request, target_texts[0], stack.enter_context(progress_display()))
    if as_json:
        print_json(document)
    else:
        print_status(document)


def _refuse_twins(target_texts: Sequence[str], cluster: ClusterOptions) -> None:
    from cephfit.core.errors import InputError
    from cephfit.operations.measuring.cluster_options import is_existing_cluster

    if len(set(target_texts)) < len(target_texts):
        raise InputError("a target is given twice", where="--target", remedy="give each target once")
    confs = [cluster.for_target(text).conf for text in target_texts if is_existing_cluster(text)]
    named = [conf for conf in confs if conf is not None]
    if len(set(named)) < len(named):
        raise InputError(
            "--conf names one cluster, but several targets are Ceph clusters",
            where="--target",
            remedy="name them as ceph:NAME, each with its own /etc/ceph/NAME.conf",
        )


def _run_in_parallel(request: Request, target_texts: Sequence[str], *, as_json: bool) -> None:
    """Measure on all targets in parallel, show the progress of each, and print the finished runs.

    Raises:
        CephfitError: the error of the first target that failed.
    """
    from cephfit.cli.sweep.concurrent_targets import measure_concurrently
    from cephfit.cli.sweep.sweep_text import print_status
    from cephfit.results.store.sample_store import Store
    from cephfit.sweep.declaration.sweep_file import find_sweep, read_sweep

    read_sweep(find_sweep(request.file))  # reports an error in it once, not once per target
    with Store.open(request.store, create=True) as opened:  # likewise, and creates the store once
        place = opened.name
    with progress_displays(target_texts) as shown:
        parts = measure_concurrently(request, target_texts, shown)
    documents = [part.document for part in parts if part.document is not None]
    errors = [(part.target, part.error) for part in parts if part.error is not None]
    if as_json:
        print_json({"runs": documents, "errors": [{"target": name, "what": str(e)} for name, e in errors]})
    else:
        for document in documents:
            print_status(document)
            click.echo()
        if len(documents) > 1 and not errors:
            runs = " ".join(f"--run {document['run']}" for document in documents)
            click.echo(f"next: cephfit compare --store {shlex.quote(place)} {runs}")
    if any(part.interrupted for part in parts):
        raise KeyboardInterrupt
    for name, error in errors[1:]:
        click.echo(f"{name}: {error}", err=True)
    if errors:
        raise errors[0][1]


def _hint_how_to_continue(
    target_texts: Sequence[str], cluster: ClusterOptions
) -> Callable[[type[BaseException] | None, object, object], bool]:
    """Return a callback for an exit stack that prints how to continue after Ctrl-C or SIGTERM."""
    from cephfit.cli.cluster.restore_command import restoring
    from cephfit.operations.measuring.sweep_measurement import UndoingInterruptedError

    def hint(kind: type[BaseException] | None, _error: object, _traceback: object) -> bool:
        undoing = " and ".join(f"`{restoring(text, cluster)}`" for text in target_texts)
        if kind is not None and issubclass(kind, UndoingInterruptedError):
            click.echo(f"\nthe run is finished, but not all of its changes are undone: {undoing}", err=True)
        elif kind is not None and issubclass(kind, KeyboardInterrupt):
            click.echo(
                "\nrun the same command to continue from here; the target stays as it is now until then, or until "
                f"{undoing}",
                err=True,
            )
        return False

    return hint


@command.command()
@store_option
@run_option
@json_option
def status(store: str, run_id: str | None, as_json: bool) -> None:
    """Show the progress of a run: samples measured, failed, invalid, skipped and left per configuration."""
    from cephfit.cli.sweep.sweep_text import print_status, status_document
    from cephfit.results.store.sample_store import Store

    with Store.open(store) as results:
        document: dict[str, Any] = status_document(results, results.run(run_id))
    if as_json:
        print_json(document)
    else:
        print_status(document)


_LABEL = 16
"""Characters of a level's label in a table."""


@click.command("effects", short_help="Show which settings of a screening matter.")
@store_option
@run_option
@confidence_option
@profile_options("Also show the predicted effects on the workload of this profile (`cephfit trace profile`).")
@json_option
def effects(
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


command.add_command(effects)
