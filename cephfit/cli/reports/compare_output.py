"""What `cephfit compare` prints: verdicts, tables, JSON and CSV, and whether it ends a script with exit code 1."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cephfit.cli.terminal.output import print_table
from cephfit.core.errors import InputError

if TYPE_CHECKING:
    from cephfit.core.values.profile import Profile
    from cephfit.core.values.sample import Run
    from cephfit.results.statistics.comparison import Row, Served, TargetFigures
    from cephfit.results.statistics.scaling import Level

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
    from cephfit.operations.predictions.recommended import version_of

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
    from cephfit.cli.terminal.written_files import write_whole
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
    from cephfit.operations.predictions.recommended import version_of
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
