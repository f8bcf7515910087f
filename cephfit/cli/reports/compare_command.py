"""`cephfit compare`: the same sweep on several targets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cephfit.cli.options.common_options import Finite, load_option, profiles_option, store_option
from cephfit.cli.options.completers import runs
from cephfit.cli.reports.compare_output import FAILURES, document_of, failures, print_comparison, write_csv
from cephfit.cli.terminal.output import json_option, print_json
from cephfit.cli.terminal.written_files import OUTPUT_FILE, refuse_lost_input

if TYPE_CHECKING:
    from cephfit.core.values.baseline import Baselines
    from cephfit.core.values.profile import Profile
    from cephfit.core.values.run import Run
    from cephfit.results.statistics.comparison import Served
    from cephfit.results.store.sample_store import Store


@click.command("compare", short_help="Compare runs of one sweep on several targets.")
@store_option
@click.option(
    "--run",
    "run_ids",
    multiple=True,
    metavar="RUN",
    shell_complete=runs,
    help="Run to compare. Repeatable; the others are compared with the first.  [default: the newest of each "
    "target of the newest sweep, in the order in which one command measured them concurrently, else oldest first]",
)
@load_option
@profiles_option("Also compare what is served of this workload's mix (`cephfit trace profile`). Repeatable.")
@click.option(
    "--tolerance",
    default=0.0,
    show_default=True,
    type=Finite(0, 100, max_open=True),
    metavar="PERCENT",
    help="Call a rate better or worse only if it differs by more than this.",
)
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice(FAILURES),
    help="End with exit code 1 if any verdict is worse, worse or better (different), or missing. Repeatable.",
)
@click.option("-o", "--output", type=OUTPUT_FILE, help="CSV file to write; - for standard output.")
@json_option
def command(
    store: str,
    run_ids: tuple[str, ...],
    load: str,
    profile_files: tuple[Path, ...],
    tolerance: float,
    fail_on: tuple[str, ...],
    output: Path | None,
    as_json: bool,
) -> None:
    """Print every configuration in every cell on each target, and its rate relative to the first target's.

    Rates are the sum over all clients. Intervals are 95 % intervals, each by itself. Verdicts (better, worse) are
    corrected for the number of comparisons by Holm's method: if nothing differs, the chance of any false verdict
    is at most 5 %. With --profile, it also compares the rate at which each target serves that workload: the
    accesses per second of `cephfit report`.

    To compare releases of Ceph on one cluster, measure the same sweep before and after the upgrade, and name both
    runs with --run. In a script, `--fail-on worse --fail-on missing` ends with exit code 1 if a rate became worse
    or could not be compared, 0 if not, and 2 for an error.
    """
    from cephfit.core.errors import InputError
    from cephfit.core.profile_files import read_profile
    from cephfit.results.statistics.comparison import rows_of, served_of, with_verdicts
    from cephfit.results.statistics.sample_baselines import baselines_of
    from cephfit.results.store.sample_store import Store

    if output is not None and as_json and str(output) == "-":
        raise InputError(
            "the table and --json cannot both go to standard output",
            where="-o -",
            remedy="name a file with -o, or omit --json",
        )
    if output is not None:
        refuse_lost_input(output)
    profiles = [read_profile(path) for path in profile_files]
    with Store.open(store) as opened:
        runs = _runs(opened, run_ids)
        baselines = [
            baselines_of(opened.samples(run.run_id), source=f"{opened.name}, run {run.run_id}", load=load)
            for run in runs
        ]
    share = tolerance / 100
    rows, served = with_verdicts(
        rows_of(baselines, tolerance=share),
        [one for profile in profiles for one in served_of(profile, baselines, tolerance=share)],
    )
    failed = failures(fail_on, [*rows, *served], store)
    notes = [*_notes(runs), *_omitted(served), *(_of_which_rounds(baselines) if served else ())]
    notes += _of_the_loads(baselines, profiles)
    to_stdout = output is not None and write_csv(output, runs, rows, served, load)
    if as_json:
        print_json({**document_of(runs, rows, served, notes, load), "tolerance": share, "failed": failed})
    elif not to_stdout:
        print_comparison(runs, profiles, rows, served, notes)
    if failed:
        click.echo(f"compare: exit code 1, because of --fail-on {', '.join(failed)}", err=True)
        click.get_current_context().exit(1)


def _runs(store: Store, run_ids: Sequence[str]) -> list[Run]:
    """Return the named runs, or the newest of each target of the newest sweep."""
    from cephfit.core.errors import InputError

    if run_ids:
        runs = [store.run(run_id) for run_id in dict.fromkeys(run_ids)]
    else:
        newest = store.run()
        by_target: dict[str, Run] = {}
        for run in store.runs():
            if run.sweep_digest == newest.sweep_digest:
                by_target.setdefault(run.target, run)
        runs = _in_order(store, list(by_target.values()))
    if len(runs) < 2:
        raise InputError(
            f"there is only one run to compare: {runs[0].run_id} on {runs[0].target}",
            where=store.name,
            remedy="measure the sweep on another target too, or name runs with --run",
        )
    return runs


def _in_order(store: Store, runs: list[Run]) -> list[Run]:
    """Sort runs in the order of their targets if one command measured them all, else by begin.

    Concurrent runs of one command begin at nearly the same time, so their begin does not give the order.
    """
    from cephfit.core.values.run import TARGETS_DOCUMENT

    documents = [store.document(run.run_id, TARGETS_DOCUMENT) for run in runs]
    orders = [document for document in documents if document is not None]
    if len(orders) == len(runs) and all(order["targets"] == orders[0]["targets"] for order in orders):
        numbers = {run.run_id: order["number"] for run, order in zip(runs, orders, strict=True)}
        return sorted(runs, key=lambda run: int(numbers[run.run_id]))
    return sorted(runs, key=lambda run: run.created_ns)


def _notes(runs: Sequence[Run]) -> list[str]:
    """Return what the reader must know before trusting a difference."""
    from cephfit.operations.recommended import version_of

    notes = [f"run {run.run_id} on {run.target} is not finished" for run in runs if not run.finished]
    if len({run.sweep_digest for run in runs}) > 1:
        notes.append("the runs are of different sweeps, which may have measured the cells in different ways")
    versions = list(dict.fromkeys(version for run in runs if (version := version_of(run.facts))))
    if len(versions) > 1:
        notes.append(
            f"the targets run different releases of Ceph ({', '.join(versions)}): options that a configuration "
            "leaves unset have each release's default (`cephfit params changed OLDER..NEWER`)"
        )
    simulated = [run.target for run in runs if run.is_simulated]
    if simulated:
        notes.append(f"simulated figures, not from a disk: {', '.join(simulated)}")
    notes += [f"run {run.run_id} is imported: cephfit did not measure it" for run in runs if run.is_imported]
    return notes


def _omitted(served: Sequence[Served]) -> list[str]:
    """Return notes on rates that do not cover the whole workload."""
    return list(
        dict.fromkeys(
            f"{one.workload} on target {number}: without {', '.join(map(str, rate.omitted))}, which was not "
            "measured there and contributes next to nothing"
            for one in served
            for number, rate in enumerate(one.rates, start=1)
            if rate is not None and rate.omitted
        )
    )


def _of_which_rounds(targets: Sequence[Baselines]) -> list[str]:
    """Return notes on targets whose configurations were not measured in the same rounds."""
    from cephfit.results.statistics.run_caveats import ROUNDS_OF_WORKLOADS, same_rounds

    return [
        f"target {i}: {ROUNDS_OF_WORKLOADS}"
        for i, target in enumerate(targets, start=1)
        if not same_rounds(target)
    ]


def _of_the_loads(targets: Sequence[Baselines], profiles: Sequence[Profile]) -> list[str]:
    """Return notes on where the load's own limit was reached, and on workloads without rates."""
    from cephfit.core.values.cells import CELLS
    from cephfit.results.statistics.workload_rate import rate_notes

    reached = [
        f"target {number}: {sentence}"
        for number, target in enumerate(targets, start=1)
        if (sentence := target.measured_load.reached_in(target.configurations, CELLS))
    ]
    return [*reached, *dict.fromkeys(n for p in profiles for target in targets for n in rate_notes(p, target))]
