"""`cephfit compare`: the same sweep on several targets; and the concurrent measurement of several targets.

Each target is measured in a separate process, which isolates what belongs to one cluster: librados, locks, and
started programs. Each process reports its progress to the parent through a pipe. If the parent ends, the pipe is
closed and the processes are killed at once. Everything that was measured is in the store.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.options.common_options import Finite, load_option, profiles_option, store_option
from cephfit.cli.options.completers import runs
from cephfit.cli.reports.compare_verdicts import FAILURES, failures, release_of, verdict_document, verdict_lines
from cephfit.cli.terminal.output import json_option, print_json, print_table
from cephfit.cli.terminal.written_files import OUTPUT_FILE, refuse_lost_input
from cephfit.core.errors import CephfitError
from cephfit.operations.sweep_measurement import Request

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.context import SpawnProcess

    from cephfit.core.protocols import Progress
    from cephfit.core.values.baseline import Baselines
    from cephfit.core.values.profile import Profile
    from cephfit.core.values.run import Run
    from cephfit.results.statistics.comparison import Row, Served, TargetFigures
    from cephfit.results.statistics.scaling import Level
    from cephfit.results.store.sample_store import Store

_SECONDS_TO_END = 120.0
"""After an interrupt: enough to end a run of fio and release its volume."""


@dataclass(frozen=True, slots=True)
class Finished:
    """How the measurement of one target ended.

    Attributes:
        target: the target as given.
        document: progress of its run; None if it did not finish.
        error: why it failed.
        interrupted: whether the user interrupted it.
    """

    target: str
    document: Mapping[str, Any] | None
    error: CephfitError | None = None
    interrupted: bool = False


def measure_concurrently(
    request: Request, targets: Sequence[str], shown: Mapping[str, Progress]
) -> list[Finished]:
    """Measure on all targets concurrently. A failing target does not disturb the others.

    Args:
        request: the same for all.
        targets: as for ``open_target``, without duplicates.
        shown: the progress display of each target.

    Returns:
        One entry per target, in their order.
    """
    context = multiprocessing.get_context("spawn")
    processes: dict[str, SpawnProcess] = {}
    pipes: dict[Connection, str] = {}
    ended: dict[str, Finished] = {}
    try:
        for target in targets:
            ours, theirs = context.Pipe()
            process = context.Process(target=_measure_in_process, args=(request, target, theirs), name=target)
            process.start()
            theirs.close()
            processes[target] = process
            pipes[ours] = target
        _listen(pipes, ended, shown)
    except KeyboardInterrupt:
        for process in processes.values():
            process.terminate()
        _listen(pipes, ended, shown, until=time.monotonic() + _SECONDS_TO_END)
        for target in targets:
            ended.setdefault(target, Finished(target, None, interrupted=True))
    finally:
        for target, process in processes.items():
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
            if target not in ended:
                ended[target] = Finished(target, None, _died(process))
        for pipe in pipes:
            pipe.close()
    return [ended[target] for target in targets]


def _listen(
    pipes: Mapping[Connection, str],
    ended: dict[str, Finished],
    shown: Mapping[str, Progress],
    until: float | None = None,
) -> None:
    """Show the progress of the processes, until each has reported its end or closed its pipe."""
    open_pipes = [pipe for pipe, target in pipes.items() if target not in ended]
    while open_pipes and (until is None or time.monotonic() < until):
        for pipe in wait(open_pipes, timeout=1.0):
            assert isinstance(pipe, Connection)
            target = pipes[pipe]
            try:
                word, arguments = pipe.recv()
            except (EOFError, OSError):
                open_pipes.remove(pipe)
                continue
            if word == "document":
                ended[target] = Finished(target, arguments[0])
            elif word == "error":
                ended[target] = Finished(target, None, _error_of(*arguments))
            elif word == "interrupted":
                ended[target] = Finished(target, None, interrupted=True)
            else:
                getattr(shown[target], word)(*arguments)


def _error_of(kind: str, what: str, where: str, remedy: str) -> CephfitError:
    kinds = {c.__name__: c for c in CephfitError.__subclasses__()}
    return kinds.get(kind, CephfitError)(what, where=where, remedy=remedy)


def _died(process: SpawnProcess) -> CephfitError:
    code = process.exitcode
    how = f"was ended by signal {-code}" if code is not None and code < 0 else f"ended with exit code {code}"
    return CephfitError(
        f"the process that measured this target {how}",
        where=process.name,
        remedy="run the same command again: it continues from the stored samples",
    )


class _PipeProgress:
    """Implements ``Progress`` by sending it to the process that shows it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._lock = threading.Lock()

    def send(self, word: str, *arguments: Any) -> None:
        with self._lock:
            self._pipe.send((word, arguments))

    def start(self, what: str, total: float | None = None) -> None:
        self.send("start", what, total)

    def advance(self, steps: float = 1.0, detail: str = "") -> None:
        self.send("advance", steps, detail)

    def note(self, message: str) -> None:
        self.send("note", message)

    def done(self) -> None:
        self.send("done")


def _measure_in_process(request: Request, target: str, pipe: Connection) -> None:
    """Measure one target in a child process. Only the parent handles a keyboard interrupt, and passes it on."""
    from cephfit.cli.sweep.sweep_text import measure

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _interrupt)
    threading.Thread(target=_exit_with_parent, args=(pipe,), daemon=True).start()
    progress = _PipeProgress(pipe)
    try:
        progress.send("document", measure(request, target, progress))
    except CephfitError as error:
        progress.send("error", type(error).__name__, error.what, error.where, error.remedy)
    except KeyboardInterrupt:
        with suppress(OSError):
            progress.send("interrupted")


def _interrupt(_number: int, _frame: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _exit_with_parent(pipe: Connection) -> None:
    """Kill this process when the parent ends: the parent sends nothing, so ``recv`` returns only then."""
    with suppress(EOFError, OSError):
        pipe.recv()
    os.kill(os.getpid(), signal.SIGKILL)


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
    to_stdout = output is not None and _write_csv(output, runs, rows, served, load)
    if as_json:
        print_json({**_document(runs, rows, served, notes, load), "tolerance": share, "failed": failed})
    elif not to_stdout:
        _print(runs, profiles, rows, served, notes)
    if failed:
        click.echo(f"compare: exit code 1, because of --fail-on {', '.join(failed)}", err=True)
        click.get_current_context().exit(1)


def _print(
    runs: Sequence[Run],
    profiles: Sequence[Profile],
    rows: Sequence[Row],
    served: Sequence[Served],
    notes: Sequence[str],
) -> None:
    for line in verdict_lines(rows, served):
        click.echo(line)
    for number, run in enumerate(runs):
        click.echo(f"{number + 1}: {run.target}, run {run.run_id}{release_of(run)}")
    click.echo(f"IOPS of all clients together, means over all rounds of a target, and their ratio. {_INTERVALS}")
    click.echo()
    for profile in profiles:
        click.echo(f"Workload {profile.name}: accesses of its mix per second, the mix added up as time")
        of_it = [((one.configuration,), one.by_target) for one in served if one.workload == profile.name]
        _print_comparison(("configuration",), of_it, "accesses/s", len(runs))
        click.echo()
    places = [((row.configuration, str(row.cell)), row.by_target) for row in rows]
    _print_comparison(("configuration", "cell"), places, "IOPS", len(runs))
    for note in notes:
        click.echo(f"Note: {note}")


def _write_csv(
    output: Path, runs: Sequence[Run], rows: Sequence[Row], served: Sequence[Served], load: str
) -> bool:
    """Write the table; return whether it went to standard output, so that nothing else may be printed."""
    from cephfit.cli.terminal.written_files import write_whole
    from cephfit.results.tables.sample_tables import rows_csv

    text = rows_csv(rows, runs, load=load, served=served)
    if str(output) == "-":
        click.echo(text, nl=False)
        return True
    write_whole(output, text, what="the table")
    return False


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


_INTERVALS = (
    "Intervals are 95 % intervals, each by itself. Verdicts are corrected for the number of comparisons: if "
    "nothing differs, the chance of any false one is at most 5 %."
)


def _print_comparison(
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
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _document(
    runs: Sequence[Run], rows: Sequence[Row], served: Sequence[Served], notes: Sequence[str], load: str
) -> dict[str, Any]:
    from cephfit.operations.recommended import version_of
    from cephfit.results.statistics.summary_statistics import CONFIDENCE

    def level(found: Level | None) -> dict[str, float | None] | None:
        if found is None:
            return None
        ends = (found.interval.low, found.interval.high) if found.interval else (None, None)
        return {"mean": found.mean, "low": ends[0], "high": ends[1]}

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
                        "iops": level(figures.rate),
                        "repeats": figures.n_repeats,
                        "ratio": level(figures.ratio),
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
                        "accesses_per_s": level(figures.rate),
                        "rounds": figures.n_repeats,
                        "ratio": level(figures.ratio),
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
