"""`cephfit compare` across releases of Ceph: which runs, the answer as lines, and the page."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cephfit.core.errors import InputError
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION

if TYPE_CHECKING:
    from cephfit.cli.reports.compare_command import Comparison
    from cephfit.core.values.baseline import Baselines
    from cephfit.core.values.profile import Profile
    from cephfit.core.values.sample import Run
    from cephfit.operations.upgrades.upgrade_advice import UpgradeAdvice
    from cephfit.results.statistics.comparison import Row
    from cephfit.results.store.sample_store import Store

_SHOWN_DEFAULTS = 4


def is_page(output: Path) -> bool:
    """Return whether an output is the page on an upgrade, by its name."""
    return output.suffix.lower() in (".html", ".htm")


def page_needs(profiles: Sequence[Profile]) -> None:
    """Check that there are workloads for a page.

    Raises:
        InputError: there are none.
    """
    if not profiles:
        raise InputError(
            "the page on an upgrade is about workloads, and none is given",
            where="-o",
            remedy="add --profile with profiles or a folder of them (`cephfit trace profile`)",
        )


def require_configuration(name: str | None, rows: Sequence[Row], baselines: Sequence[Baselines]) -> None:
    """Check that a chosen configuration was measured.

    Raises:
        InputError: no target measured it; names those that were.
    """
    if name is not None and not rows:
        known = dict.fromkeys(other for target in baselines for other in target.configurations)
        raise InputError(
            f"no run measured configuration {name}",
            where="--configuration",
            remedy=f"choose from {', '.join(known)}",
        )


def runs_to_compare(store: Store, run_ids: Sequence[str], targets: Sequence[str]) -> list[Run]:
    """Return the runs to compare, the reference first.

    These are the named runs; or the newest run of each named target; or of each target and release of the newest
    sweep: a cluster that was upgraded has one run before and one after.

    Raises:
        InputError: there is only one, or no sweep was measured on all targets.
        StoreError: there is no such run.
    """
    if run_ids and targets:
        raise click.UsageError("give either --run or --target")
    if run_ids:
        runs = [store.run(run_id) for run_id in dict.fromkeys(run_ids)]
    elif targets:
        runs = _of_targets(store, list(dict.fromkeys(targets)))
    else:
        newest = store.run()
        runs = _in_order(store, _newest(run for run in store.runs() if run.sweep_digest == newest.sweep_digest))
    if len(runs) < 2:
        raise InputError(
            f"there is only one run to compare: {runs[0].run_id} on {runs[0].target}",
            where=store.name,
            remedy="measure the sweep on another target or release too, or name runs with --run",
        )
    return runs


def _newest(runs: Iterable[Run]) -> list[Run]:
    """Return the newest run of each target and release; runs come newest first."""
    from cephfit.operations.predictions.recommended import version_of

    found: dict[tuple[str, str], Run] = {}
    for run in runs:
        found.setdefault((run.target, version_of(run.facts)), run)
    return list(found.values())


def _of_targets(store: Store, targets: Sequence[str]) -> list[Run]:
    """Return the runs of the newest sweep that all targets measured, in their order; releases oldest run first."""
    runs = store.runs()
    for digest in dict.fromkeys(run.sweep_digest for run in runs):
        of_sweep = _newest(run for run in runs if run.sweep_digest == digest)
        by_target = [[run for run in of_sweep if run.target in _names_of(target)] for target in targets]
        if all(by_target):
            return [run for group in by_target for run in sorted(group, key=lambda run: run.created_ns)]
    known = list(dict.fromkeys(run.target for run in runs))
    missing = [target for target in targets if not {*_names_of(target)} & {*known}]
    raise InputError(
        f"no run on {', '.join(missing)}" if missing else f"no sweep was measured on all of {', '.join(targets)}",
        where=f"{store.name}, --target",
        remedy=f"there are runs on {', '.join(known) or 'no target'}",
    )


def _names_of(target: str) -> tuple[str, ...]:
    """Return the names under which runs of a target may be stored: ``lab`` is ``lab:default``."""
    return (target, f"{target}:default")


def _in_order(store: Store, runs: list[Run]) -> list[Run]:
    """Sort runs in the order of their targets if one command measured them all, else by begin.

    Concurrent runs of one command begin at nearly the same time, so their begin does not give the order.
    """
    from cephfit.core.values.sample import TARGETS_DOCUMENT

    documents = [store.document(run.run_id, TARGETS_DOCUMENT) for run in runs]
    orders = [document for document in documents if document is not None]
    if len(orders) == len(runs) and all(order["targets"] == orders[0]["targets"] for order in orders):
        numbers = {run.run_id: order["number"] for run, order in zip(runs, orders, strict=True)}
        return sorted(runs, key=lambda run: int(numbers[run.run_id]))
    return sorted(runs, key=lambda run: run.created_ns)


def advice_of(
    found: Comparison, profiles: Sequence[Profile], configuration: str | None, *, needed: bool
) -> UpgradeAdvice | None:
    """Return the advice on an upgrade; None if the runs are of one release.

    Args:
        found: the comparison.
        profiles: of its workloads.
        configuration: to advise on; None: the default.
        needed: refuse runs of one release.

    Raises:
        InputError: advice is needed, and the runs are of one release.
    """
    from cephfit.operations.upgrades.upgrade_advice import advise_upgrade, versions_of

    if not needed and len(versions_of(found.runs)) < 2:
        return None
    name = configuration or DEFAULT_CONFIGURATION
    return advise_upgrade(found.runs, profiles, found.rows, found.served, found.workload_samples, name)


def advice_lines(advice: UpgradeAdvice) -> list[str]:
    """Return the answer on an upgrade for people: workloads, cells that moved, real runs, new defaults."""
    from cephfit.operations.upgrades.upgrade_advice import answer_of, moved_cells, times, versions_of

    lines = []
    for outcome in advice.outcomes:
        lines.append(answer_of(outcome, advice.labels))
        lines += [f"  cells that moved on {sentence}" for sentence in moved_cells(outcome, advice.labels)]
    lines += [
        f"{one.workload}, really run: {advice.labels[one.target]} {times(one.ratio)} the {one.metric} of "
        f"{advice.labels[0]}"
        for one in advice.real
    ]
    if explaining := advice.explaining():
        named = [f"{default.name} ({' → '.join(default.shown)})" for default in explaining]
        short = [name for name in named if len(name) < 80][:_SHOWN_DEFAULTS]
        more = f" and {len(named) - len(short)} more" if len(named) > len(short) else ""
        lines.append(f"New defaults that may explain it: {', '.join(short)}{more}")
    older, *_, newer = versions_of(advice.runs)
    lines.append(f"Unset options have each release's default: `cephfit params changed {older}..{newer}`")
    return lines


def write_page(output: Path, advice: UpgradeAdvice, *, load: str, source: str, notes: Sequence[str]) -> None:
    """Write the page, and print where it is. Raises ``HostError`` if it cannot be written."""
    from cephfit.cli.terminal.written_files import write_whole
    from cephfit.operations.upgrades.upgrade_page import upgrade_html

    page = upgrade_html(advice, load=load, source=source, notes=notes, made_ns=time.time_ns())
    write_whole(output, page, what="the page")
    click.echo(f"Page: {output}", err=True)
