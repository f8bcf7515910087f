"""`cephfit compare`: runs of the same sweep on several targets or releases of Ceph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from cephfit.cli.options.common_options import Finite, load_option, profiles_option, store_option
from cephfit.cli.options.completers import runs, targets
from cephfit.cli.output import OUTPUT_FILE, json_option, print_json, refuse_both_to_stdout, refuse_lost_input
from cephfit.cli.reports.compare_output import FAILURES, document_of, failures, print_comparison, write_csv
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION

if TYPE_CHECKING:
    from cephfit.core.values.baseline import Baselines
    from cephfit.core.values.profile import Profile
    from cephfit.core.values.sample import Run, WorkloadSample
    from cephfit.results.statistics.comparison import Row, Served
    from cephfit.results.store.sample_store import Store


@click.command("compare", short_help="Compare runs of one sweep on several targets or releases of Ceph.")
@store_option
@click.option(
    "--run",
    "run_ids",
    multiple=True,
    metavar="RUN",
    shell_complete=runs,
    help="Run to compare. Repeatable; the others are compared with the first.  [default: the newest of each "
    "target and release of the newest sweep, in the order in which one command measured them concurrently, else "
    "oldest first]",
)
@click.option(
    "--target",
    "target_texts",
    multiple=True,
    metavar="TARGET",
    shell_complete=targets,
    help="Compare the newest run of this target, of the newest sweep that all of them measured. Repeatable; the "
    "others are compared with the first.",
)
@load_option
@profiles_option(
    "Also compare what is served of this workload's mix (`cephfit trace profile`), or of all in a folder. "
    "Repeatable."
)
@click.option(
    "--configuration",
    metavar="NAME",
    help="Compare only this configuration.  [default: all; for a page: the default]",
)
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
@click.option(
    "-o",
    "--output",
    type=OUTPUT_FILE,
    help="CSV file to write; - for standard output. A name that ends with .html writes a page on an upgrade.",
)
@json_option
def command(
    store: str,
    run_ids: tuple[str, ...],
    target_texts: tuple[str, ...],
    load: str,
    profile_files: tuple[Path, ...],
    configuration: str | None,
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

    Runs of several releases of Ceph are compared as an upgrade: which release serves each workload better, which
    cells moved, and which new defaults may explain it. They may be of several targets, or of one cluster before
    and after its upgrade. `-o upgrade.html` writes the page "What does the upgrade do to my workloads?".

    In a script, `--fail-on worse --fail-on missing` ends with exit code 1 if a rate became worse or could not be
    compared, 0 if not, and 2 for an error.
    """
    from cephfit.cli.reports.compare_output import advice_lines, advice_of, is_page, page_needs, write_page
    from cephfit.operations.evaluation_set import read_profiles
    from cephfit.results.store.sample_store import Store

    if output is not None:
        refuse_both_to_stdout(output, "the table", as_json=as_json)
        refuse_lost_input(output)
    profiles = read_profiles(profile_files)
    page = output if output is not None and is_page(output) else None
    if page is not None:
        page_needs(profiles)
        configuration = configuration or DEFAULT_CONFIGURATION
    with Store.open(store) as opened:
        source = opened.name
        found = _comparison_of(opened, run_ids, target_texts, profiles, load, configuration, tolerance / 100)
    failed = failures(fail_on, [*found.rows, *found.served], store)
    notes = _notes(found, profiles)
    advice = advice_of(found, profiles, configuration, needed=page is not None)
    if page is not None and advice is not None:
        write_page(page, advice, load=load, source=source, notes=notes)
    to_stdout = (
        output is not None and page is None and write_csv(output, found.runs, found.rows, found.served, load)
    )
    if as_json:
        document = {
            **document_of(found.runs, found.rows, found.served, notes, load),
            "tolerance": tolerance / 100,
            "failed": failed,
        }
        print_json({**document, "upgrade": None if advice is None else advice.to_json()})
    elif not to_stdout:
        for line in () if advice is None else advice_lines(advice):
            click.echo(line)
        if page is None:
            print_comparison(found.runs, profiles, found.rows, found.served, notes)
    if failed:
        click.echo(f"compare: exit code 1, because of --fail-on {', '.join(failed)}", err=True)
        click.get_current_context().exit(1)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Runs of one sweep, compared with the first.

    Attributes:
        runs: the reference first.
        baselines: of each run.
        workload_samples: real workloads that ran, of each run.
        rows: cells, with verdicts.
        served: workloads, with verdicts.
    """

    runs: Sequence[Run]
    baselines: Sequence[Baselines]
    workload_samples: Sequence[Sequence[tuple[str, WorkloadSample]]]
    rows: Sequence[Row]
    served: Sequence[Served]


def _comparison_of(
    store: Store,
    run_ids: Sequence[str],
    target_texts: Sequence[str],
    profiles: Sequence[Profile],
    load: str,
    configuration: str | None,
    share: float,
) -> Comparison:
    """Compare runs; with a configuration only that one, so that fewer comparisons are corrected for.

    Raises:
        InputError: there are no two runs to compare, or none measured the configuration.
    """
    from cephfit.cli.reports.compare_output import require_configuration, runs_to_compare
    from cephfit.results.statistics.comparison import rows_of, served_of, with_verdicts
    from cephfit.results.statistics.sample_baselines import baselines_of

    runs = runs_to_compare(store, run_ids, target_texts)
    baselines = [
        baselines_of(store.samples(run.run_id), source=f"{store.name}, run {run.run_id}", load=load)
        for run in runs
    ]
    every = [one for profile in profiles for one in served_of(profile, baselines, tolerance=share)]
    rows, served = with_verdicts(
        [row for row in rows_of(baselines, tolerance=share) if configuration in (None, row.configuration)],
        [one for one in every if configuration in (None, one.configuration)],
    )
    require_configuration(configuration, rows, baselines)
    return Comparison(runs, baselines, [store.workload_samples(run.run_id) for run in runs], rows, served)


def _notes(found: Comparison, profiles: Sequence[Profile]) -> list[str]:
    """Return what the reader must know before trusting a difference."""
    rounds = _of_which_rounds(found.baselines) if found.served else []
    return [*_of_the_runs(found.runs), *_omitted(found.served), *rounds, *_of_the_loads(found.baselines, profiles)]


def _of_the_runs(runs: Sequence[Run]) -> list[str]:
    notes = [f"run {run.run_id} on {run.target} is not finished" for run in runs if not run.finished]
    if len({run.sweep_digest for run in runs}) > 1:
        notes.append("the runs are of different sweeps, which may have measured the cells in different ways")
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
    from cephfit.results.report.run_notes import ROUNDS_OF_WORKLOADS, same_rounds

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
