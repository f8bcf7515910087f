"""`cephfit sweep plan`, also with `--for`, and the dry run of `sweep run` without `--apply`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.output import print_json, print_table
from cephfit.core.errors import InputError
from cephfit.core.protocols import Target
from cephfit.core.units import format_nbytes, format_seconds
from cephfit.sweep.sweep_plan import Sweep

if TYPE_CHECKING:
    from cephfit.core.values.measurement import Measurement
    from cephfit.operations.measuring.cluster_options import ClusterOptions
    from cephfit.sweep.proposal import Kind, Proposal


def preview_document(target: Target, sweep: Sweep) -> dict[str, Any] | None:
    """Return what a sweep would change on a target; None where the target has no preview."""
    from cephfit.targets.abilities import Previews

    return target.preview(sweep).to_json() if isinstance(target, Previews) else None


def print_preview(document: Mapping[str, Any]) -> None:
    """Print a preview for people."""
    from cephfit.targets.ceph.cluster_preview import RESTART_SECONDS

    click.echo()
    if document["differences"]:
        click.echo("Settings that would change:")
        words = ("configuration", "place", "key", "now", "then")
        print_table(words, [tuple(d[w] or "-" for w in words) for d in document["differences"]])
    else:
        click.echo("No setting would change.")
    click.echo()
    for name, osds in document["restarts"].items():
        click.echo(f"{name} needs a restart of {_osds(osds)}")
    if document["osd_restarts"]:
        click.echo(
            f"{document['osd_restarts']} OSD restarts in all, one after the other, about "
            f"{format_seconds(document['osd_restart_seconds'])} (assumed: {RESTART_SECONDS:g} s each)"
        )
    else:
        click.echo("No daemon is restarted.")
    if document["pools"]:
        click.echo("Pools that would be created, and deleted at the end:")
        rows = [
            (
                pool["name"],
                ", ".join(f"{k} = {v}" for k, v in pool["values"].items()) or "Ceph's defaults",
                ", ".join(pool["configurations"]),
                str(pool["n_pgs"]),
                f"{pool['pgs_per_osd']:g}" if pool["pgs_per_osd"] else "-",
                format_nbytes(pool["nbytes"]),
                format_nbytes(pool["raw_nbytes"]),
            )
            for pool in document["pools"]
        ]
        print_table(("pool", "values", "configurations", "PGs", "per OSD", "written", "in all copies"), rows)
    moved = document["moved_nbytes"]
    click.echo(f"Data of other pools that would move: {format_nbytes(moved) if moved else 'none'}")
    for note in document["notes"]:
        click.echo(note)
    for reason in document["unhealthy_because"]:
        click.echo(f"The cluster is not healthy, so nothing would be done: {reason}")


def _osds(osds: list[int]) -> str:
    return ", ".join(f"osd.{osd}" for osd in osds)


def planned(
    file: str,
    target_text: str | None,
    store: str | None,
    cluster: ClusterOptions,
    profile_file: Path | None,
    model: str | None,
    releases: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what a sweep would do, and how long it would take; change nothing.

    Args:
        file: path of a sweep file, or the name of a bundled one.
        target_text: target to query; None for a plan without a target.
        store: its earlier runs give the expected time.
        cluster: options for an existing cluster.
        profile_file: profile of the workload of a race.
        model: model that predicts its performance.
        releases: of Ceph that must have all settings; empty: all known ones are compared.
    """
    from cephfit.cli.sweep.sweep_text import expected_stopping, plan_document
    from cephfit.core.values.measurement import ASSUMED_TIMES
    from cephfit.operations.measuring.sweep_measurement import goal_of
    from cephfit.results.store.sample_store import Store
    from cephfit.sweep.declaration.sweep_file import find_sweep, read_sweep
    from cephfit.sweep.execution.preflight import fitted_to, without_effect_by
    from cephfit.sweep.execution.run_progress import times_on

    if target_text is None and cluster.given():
        raise click.UsageError(f"{', '.join(cluster.given())}: add --target, which names the cluster")
    sweep = read_sweep(find_sweep(file))
    unsupported = preview = None
    times = ASSUMED_TIMES
    omitted: Mapping[str, tuple[str, ...]] = {}
    if target_text is not None:
        from cephfit.operations.measuring.target_choice import open_target

        target = open_target(target_text, for_change=False, ioengine=sweep.measurement.ioengine, cluster=cluster)
        try:
            fitted = fitted_to(target, sweep)
            sweep, omitted, unsupported = fitted.sweep, fitted.omitted, fitted.unsupported
            preview = preview_document(target, sweep)
            of_releases = releases_document(sweep, releases, target)
            warnings = without_effect_by(target, sweep)
            with ExitStack() as stack:
                opened = None if store is None else stack.enter_context(Store.open(store))
                times = times_on(target, opened)
        finally:
            target.close()
    else:
        warnings = {}
        of_releases = releases_document(sweep, releases, None)
    document = plan_document(sweep, times, unsupported=unsupported, without_effect=warnings)
    document["stopping"] = expected_stopping(sweep, goal_of(profile_file, model), store)
    document["left_out"] = {name: list(reasons) for name, reasons in omitted.items()}
    document["on_releases"] = of_releases
    document["on_the_cluster"] = preview
    if preview is not None:
        document["expected_seconds"] = round(document["expected_seconds"] + preview["osd_restart_seconds"], 1)
    return document


def print_planned(document: Mapping[str, Any]) -> None:
    """Print a plan for people."""
    from cephfit.cli.sweep.sweep_text import print_left_out, print_plan

    print_plan(document)
    print_left_out(document)
    print_releases(document["on_releases"])
    if document["on_the_cluster"] is not None:
        print_preview(document["on_the_cluster"])


def show_dry_run(plans: Sequence[tuple[str, Mapping[str, Any]]], others: Sequence[str], *, as_json: bool) -> None:
    """Show what `sweep run` would change on existing clusters with `--apply`.

    Args:
        plans: plans for existing clusters, by target.
        others: targets of the same command that need no `--apply`; they are not measured either.
        as_json: print one JSON document; with a single target, only its plan.
    """
    if as_json:
        documents = [{"target": text, **plan} for text, plan in plans]
        alone = len(plans) == 1 and not others
        print_json(dict(plans[0][1]) if alone else {"plans": documents, "not_measured": list(others)})
        return
    for text, plan in plans:
        if len(plans) > 1:
            click.echo(f"On {text}:")
        print_planned(plan)
        click.echo()
    without = f", and nothing was measured on {' and '.join(others)} either" if others else ""
    click.echo(f"Nothing was changed{without}. Run the same command with --apply to do it.")


_SHOWN_LEFT_OUT = 6


def show_proposal(file: str, profile_file: Path, output: Path | None, *, as_json: bool) -> None:
    """Show the measurement proposed for a workload, or write it as a sweep file.

    Args:
        file: sweep file or bundled sweep that gives the configurations.
        profile_file: of the workload.
        output: sweep file to write; None to print the section alone.
        as_json: print one JSON document.

    Raises:
        InputError: a file cannot be read, or the profile has no demands.
    """
    from cephfit.cli.output import write_whole
    from cephfit.core.profile_files import read_profile
    from cephfit.sweep.declaration.sweep_file import find_sweep, parse_sweep, read_sweep
    from cephfit.sweep.proposal import as_yaml, propose, with_measurement

    path = find_sweep(file)
    if output is not None and output.exists() and output.samefile(path):
        raise InputError(
            "this sweep file is read by the same command, and would be lost",
            where=str(output),
            remedy="give another path with -o",
        )
    sweep = read_sweep(path)
    proposal = propose(read_profile(profile_file), sweep.measurement)
    section = as_yaml(proposal.measurement)
    text = with_measurement(sweep.text, section)
    proposed = parse_sweep(text, file=str(output or path))
    document = _document(proposal, section, sweep, proposed)
    if output is not None:
        write_whole(output, text, what="the sweep file")
        document["file"] = str(output)
    if as_json:
        print_json(document)
    elif output is None:
        for line in _lines(proposal, document):
            click.echo(f"# {line}")
        click.echo(section, nl=False)
    else:
        for line in _lines(proposal, document):
            click.echo(line)
        click.echo(f"{output}: next: cephfit sweep run {shlex.quote(str(output))} --target TARGET")


def _document(proposal: Proposal, section: str, sweep: Sweep, proposed: Sweep) -> dict[str, Any]:
    everything = proposed.changed_to(proposed.configurations, proposal.everything)
    return {
        "workload": proposal.workload,
        "weighed_by": proposal.weighed_by,
        "covered": proposal.covered,
        "kinds": [_kind(kind) for kind in proposal.kinds],
        "left_out": [_kind(kind) for kind in proposal.left_out],
        "notes": list(proposal.notes),
        "measurement": section,
        "runs": _n_runs(proposed.measurement),
        "runs_of_everything": _n_runs(proposal.everything),
        "expected_seconds": _seconds(proposed),
        "expected_seconds_of_everything": _seconds(everything),
        "expected_seconds_of_the_sweep": _seconds(sweep),
        "file": None,
    }


def _kind(kind: Kind) -> dict[str, Any]:
    cell = kind.cell
    return {
        "cell": str(cell.bin_cell),
        "iodepth": cell.iodepth,
        "align_nbytes": cell.align_nbytes,
        "sync": cell.sync,
        "weight": kind.weight,
    }


def _n_runs(measurement: Measurement) -> int:
    """Return the number of fio runs of one configuration in one round."""
    return sum(len(measurement.under(name).cells) for name in measurement.load_names)


def _seconds(sweep: Sweep) -> float:
    from cephfit.sweep.sweep_plan import expected_seconds, plan_of

    return round(expected_seconds(sweep, plan_of(sweep)), 1)


def _lines(proposal: Proposal, document: dict[str, Any]) -> list[str]:
    m = proposal.measurement
    lines = [
        f"for {proposal.workload}: these kinds of access carry {100 * proposal.covered:.0f} % of its "
        f"{proposal.weighed_by}:",
        *(f"  {100 * kind.weight:4.1f} %  {kind.cell}" for kind in proposal.kinds),
    ]
    if proposal.left_out:
        shown = ", ".join(f"{k.cell} {100 * k.weight:.1f} %" for k in proposal.left_out[:_SHOWN_LEFT_OUT])
        more = len(proposal.left_out) - _SHOWN_LEFT_OUT
        lines.append(f"not measured: {shown}{f' and {more} more' if more > 0 else ''}")
    lines += proposal.notes
    lines.append(
        f"{document['runs']} fio runs per configuration and round, about "
        f"{format_seconds(document['expected_seconds'])} in all"
    )
    lines.append(
        f"all 20 cells under the same {len(m.load_names)} loads: {document['runs_of_everything']} runs, about "
        f"{format_seconds(document['expected_seconds_of_everything'])}; the sweep as it is: about "
        f"{format_seconds(document['expected_seconds_of_the_sweep'])}"
    )
    return lines


_WIDEST = 28
"""Longest value in the table; --json has all of it."""


def releases_document(sweep: Sweep, releases: Sequence[str], target: Target | None) -> dict[str, Any] | None:
    """Return what a sweep means on releases of Ceph; None for a target that is not a Ceph cluster.

    Args:
        sweep: to measure.
        releases: chosen by the user; all known ones if empty.
        target: that will be measured; it says itself what it lacks.

    Raises:
        InputError: a release is unknown, one of the chosen ones lacks a setting, or no release has an option.
    """
    from cephfit.sweep.release_check import (
        lacking_settings,
        release_notes,
        releases_called,
        require_settings,
        unset_defaults,
    )
    from cephfit.targets.abilities import HasCatalogue

    if target is not None and not isinstance(target, HasCatalogue):
        return None
    chosen = releases_called(releases)
    if releases:
        require_settings(sweep, chosen)
    compared = chosen if len(chosen) > 1 else releases_called(())
    own = None if target is None else target.catalogue().version()
    versions = [release.version for release in chosen]
    return {
        "releases": versions,
        "target_release": own,
        "lacking": [
            {"configuration": one.configuration, "key": one.key, "releases": list(one.versions), "why": one.why}
            for one in (lacking_settings(sweep, chosen) if target is None else ())
        ],
        "notes": [note for version in ([own] if own else versions) for note in release_notes(sweep, version)],
        "defaults": [
            {
                "option": one.default.name,
                "values": dict(zip((r.version for r in compared), one.default.values, strict=True)),
                "shown": list(one.default.shown),
                "acts_on": one.default.acts_on.value,
                "what": one.default.what,
                "at_creation": one.default.at_creation,
                "set_by": list(one.set_by),
            }
            for one in unset_defaults(sweep, compared)
        ],
    }


def print_releases(document: Mapping[str, Any] | None) -> None:
    """Print the part of a plan on releases, for people."""
    if document is None:
        return
    if document["lacking"]:
        click.echo()
        click.echo("Settings that some releases lack, or that have no effect there:")
        rows = [(d["configuration"], ", ".join(d["releases"]), d["why"]) for d in document["lacking"]]
        print_table(("configuration", "not on", "why"), rows)
    for note in document["notes"]:
        click.echo(f"Note: {note}")
    if document["defaults"]:
        versions = list(document["defaults"][0]["values"])
        here = f" (this cluster: {document['target_release']})" if document["target_release"] else ""
        click.echo()
        click.echo(f"Defaults of releases{here} that differ, for options that this sweep does not always set:")
        print_table(
            ("option", *versions, "acts on", "set by"),
            [
                (d["option"], *map(_short, d["shown"]), d["acts_on"], ", ".join(d["set_by"]) or "-")
                for d in document["defaults"]
            ],
        )


def _short(value: str) -> str:
    return value if len(value) <= _WIDEST else f"{value[: _WIDEST - 3]}..."
