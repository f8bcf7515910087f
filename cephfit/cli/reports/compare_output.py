"""Output of `cephfit compare`: verdicts, tables, JSON, CSV, exit code, and the page of an upgrade of Ceph."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.output import print_table
from cephfit.core.errors import InputError
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION

if TYPE_CHECKING:
    from cephfit.cli.reports.compare_command import Comparison
    from cephfit.core.values.baseline import Baselines
    from cephfit.core.values.profile import Profile
    from cephfit.core.values.sample import Run
    from cephfit.operations.upgrade_advice import UpgradeAdvice
    from cephfit.results.statistics.comparison import Row, Served, TargetFigures
    from cephfit.results.statistics.scaling import Level
    from cephfit.results.store.sample_store import Store


FAILURES = ("worse", "different", "missing")
"""Choices of --fail-on."""


def failures(fail_on: Sequence[str], compared: Sequence[Row | Served], store: str) -> list[str]:
    """Return the choices of --fail-on that apply.

    Args:
        fail_on: choices of the user.
        compared: with verdicts.
        store: its name, for the error.

    Raises:
        InputError: a choice was made, but no rate could be compared, so that the answer would be empty.
    """
    from cephfit.results.statistics.comparison import Change, count_changes

    counts = count_changes(one.by_target for one in compared)
    if fail_on and not counts.total() - counts[Change.UNKNOWN]:
        raise InputError(
            "no rate of these runs can be compared: they share no cell, or nothing was measured twice",
            where=f"{store}, --fail-on",
            remedy="measure the same sweep on both, with `repeats: 2` or more",
        )
    applies = {
        "worse": counts[Change.WORSE] > 0,
        "different": counts[Change.WORSE] + counts[Change.BETTER] > 0,
        "missing": counts[Change.UNKNOWN] > 0,
    }
    return [choice for choice in FAILURES if choice in fail_on and applies[choice]]


def verdict_lines(rows: Sequence[Row], served: Sequence[Served]) -> list[str]:
    """Return the numbers of verdicts of each target as sentences, cells before workloads."""
    from cephfit.results.statistics.comparison import Change, count_changes

    lines = []
    for what, compared in (("cells", rows), ("workloads and configurations", served)):
        for i in range(1, len(compared[0].by_target) if compared else 1):
            counts = count_changes((one.by_target[0], one.by_target[i]) for one in compared)
            parts = [f"{counts[c]} {c}" for c in Change if counts[c] or c is Change.WORSE]
            lines.append(f"Target {i + 1} against target 1, of {counts.total()} {what}: {', '.join(parts)}.")
    return lines


def verdict_document(figures: TargetFigures) -> dict[str, Any]:
    """Return the verdict on one figure; ``differs`` is that of its interval by itself."""
    return {
        "differs": figures.differs,
        "p_value": figures.p_value,
        "adjusted_p": figures.adjusted_p,
        "verdict": figures.change.value if figures.ratio else None,
    }


def release_of(run: Run) -> str:
    """Return the release of Ceph that a run measured, as the end of a sentence; empty if it is unknown."""
    from cephfit.operations.recommended import version_of

    version = version_of(run.facts)
    return f", Ceph {version}" if version else ""


def print_comparison(
    runs: Sequence[Run],
    profiles: Sequence[Profile],
    rows: Sequence[Row],
    served: Sequence[Served],
    notes: Sequence[str],
) -> None:
    """Print verdicts, runs, tables and notes, for people."""
    for line in verdict_lines(rows, served):
        click.echo(line)
    for number, run in enumerate(runs):
        click.echo(f"{number + 1}: {run.target}, run {run.run_id}{release_of(run)}")
    click.echo(f"IOPS of all clients together, means over all rounds of a target, and their ratio. {_INTERVALS}")
    click.echo()
    for profile in profiles:
        click.echo(f"Workload {profile.name}: accesses of its mix per second, the mix added up as time")
        of_it = [((one.configuration,), one.by_target) for one in served if one.workload == profile.name]
        _print_table_of(("configuration",), of_it, "accesses/s", len(runs))
        click.echo()
    places = [((row.configuration, str(row.cell)), row.by_target) for row in rows]
    _print_table_of(("configuration", "cell"), places, "IOPS", len(runs))
    for note in notes:
        click.echo(f"Note: {note}")


def write_csv(output: Path, runs: Sequence[Run], rows: Sequence[Row], served: Sequence[Served], load: str) -> bool:
    """Write the table; return whether it went to standard output, so that nothing else may be printed."""
    from cephfit.cli.output import write_whole
    from cephfit.results.tables.sample_tables import rows_csv

    text = rows_csv(rows, runs, load=load, served=served)
    if str(output) == "-":
        click.echo(text, nl=False)
        return True
    write_whole(output, text, what="the table")
    return False


_INTERVALS = (
    "Intervals are 95 % intervals, each by itself. Verdicts are corrected for the number of comparisons: if "
    "nothing differs, the chance of any false one is at most 5 %."
)


def _print_table_of(
    headers: Sequence[str],
    rows: Sequence[tuple[Sequence[str], Sequence[TargetFigures]]],
    unit: str,
    n_targets: int,
) -> None:
    """Print a table of targets by number: their names may be as wide as the terminal.

    Args:
        headers: of the columns that name a row.
        rows: names, and the figures of each target.
    """
    if n_targets == 2:
        print_table([*headers, f"1: {unit}", f"2: {unit}", "2 / 1"], [_line(*row) for row in rows])
        return
    # Columns of three targets are wider than a terminal.
    print_table([*headers, "target", unit, "target / 1"], [line for row in rows for line in _lines(*row)])


def _lines(names: Sequence[str], by_target: Sequence[TargetFigures]) -> list[list[str]]:
    """Return a line for each target; only the first has the names."""
    first, *others = by_target
    return [
        [*names, "1", _level(first.rate, first.missing), ""],
        *([*("" for _ in names), f"{number}", *_compared(other)] for number, other in enumerate(others, start=2)),
    ]


def _line(names: Sequence[str], by_target: Sequence[TargetFigures]) -> list[str]:
    first, second = by_target
    return [*names, _level(first.rate, first.missing), *_compared(second)]


def _compared(figures: TargetFigures) -> list[str]:
    """Return a target's rate, and its ratio to the first target's."""
    verdict = "" if figures.adjusted_p is None else figures.change.value
    return [_level(figures.rate, figures.missing), f"{_level(figures.ratio, '-')} {verdict}".rstrip()]


def _level(level: Level | None, missing: str) -> str:
    if level is None:
        return missing if len(missing) < 40 else f"{missing[:37]}..."
    if level.interval is None:
        return f"{_number(level.mean)} (spread unknown)"
    return f"{_number(level.mean)} ({_number(level.interval.low)} to {_number(level.interval.high)})"


def _number(value: float) -> str:
    """Format with four digits, or all before the point; never with an exponent such as ``1.234e+04``."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def document_of(
    runs: Sequence[Run], rows: Sequence[Row], served: Sequence[Served], notes: Sequence[str], load: str
) -> dict[str, Any]:
    """Return the comparison as JSON values."""
    from cephfit.operations.recommended import version_of
    from cephfit.results.statistics.summary_statistics import CONFIDENCE

    return {
        "runs": [
            {
                "run": r.run_id,
                "target": r.target,
                "ceph_version": version_of(r.facts),
                "simulated": r.is_simulated,
                "imported": r.is_imported,
                "finished": r.finished,
            }
            for r in runs
        ],
        "load": load,
        "confidence": CONFIDENCE,
        "joint": False,
        "rows": [
            {
                "configuration": row.configuration,
                "cell": str(row.cell),
                "there": [
                    {
                        "iops": figures.rate.to_json() if figures.rate else None,
                        "repeats": figures.n_repeats,
                        "ratio": figures.ratio.to_json() if figures.ratio else None,
                        **verdict_document(figures),
                        "missing": figures.missing,
                    }
                    for figures in row.by_target
                ],
            }
            for row in rows
        ],
        "workloads": [
            {
                "workload": one.workload,
                "configuration": one.configuration,
                "there": [
                    {
                        "accesses_per_s": figures.rate.to_json() if figures.rate else None,
                        "rounds": figures.n_repeats,
                        "ratio": figures.ratio.to_json() if figures.ratio else None,
                        **verdict_document(figures),
                        "missing": figures.missing,
                        "without": [str(cell) for cell in rate.omitted] if rate else [],
                    }
                    for figures, rate in zip(one.by_target, one.rates, strict=True)
                ],
            }
            for one in served
        ],
        "notes": list(notes),
    }


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
    from cephfit.operations.recommended import version_of

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
    from cephfit.operations.upgrade_advice import advise_upgrade, versions_of

    if not needed and len(versions_of(found.runs)) < 2:
        return None
    name = configuration or DEFAULT_CONFIGURATION
    return advise_upgrade(found.runs, profiles, found.rows, found.served, found.workload_samples, name)


def advice_lines(advice: UpgradeAdvice) -> list[str]:
    """Return the answer on an upgrade for people: workloads, cells that moved, real runs, new defaults."""
    from cephfit.operations.upgrade_advice import answer_of, moved_cells, times, versions_of

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
    from cephfit.cli.output import write_whole
    from cephfit.operations.upgrade_page import upgrade_html

    page = upgrade_html(advice, load=load, source=source, notes=notes, made_ns=time.time_ns())
    write_whole(output, page, what="the page")
    click.echo(f"Page: {output}", err=True)
