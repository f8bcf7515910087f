"""What the index of several reports says: its first sentence, its chart, and what could not be reported. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cephfit.core.values import fit
from cephfit.results.report import formatting
from cephfit.results.report.report_model import Axis, RankingRow, relative_axis

if TYPE_CHECKING:
    from cephfit.results.report.render import IndexRow

_NAMED = 3
"""Number of workloads that the first sentence names; of more it gives the number."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Something that could not be reported.

    Attributes:
        run: the run and its load, as text.
        workload: name of the profile; empty if the reason concerns all of them.
        why: the reason.
    """

    run: str
    workload: str
    why: str

    def __str__(self) -> str:
        return f"{self.run}{f' for {self.workload}' if self.workload else ''}: {self.why}"


def reasons_of(lost: Iterable[Lost]) -> tuple[str, ...]:
    """Return one sentence per reason, which names all that it concerns."""
    by_reason: dict[str, dict[str, list[str]]] = {}
    for one in lost:
        workloads = by_reason.setdefault(one.why, {}).setdefault(one.run, [])
        workloads += [one.workload] if one.workload else []
    return tuple(
        f"{why[0].upper()}{why[1:]}: "
        + "; ".join(f"{run} for {formatting.names(of)}" if of else run for run, of in runs.items())
        + "."
        for why, runs in by_reason.items()
    )


def headline_of(rows: Sequence[IndexRow]) -> str:
    """Return the findings in one sentence: ``3 of 5 workloads gain from ssd; dbench does not fit``.

    A workload gains from a configuration if that is the best one, and distinguishably better than the default, on
    all of its pages. The number of reports, where there is no workload.
    """
    by_workload: dict[str, list[IndexRow]] = {}
    for row in rows:
        if row.workload:
            by_workload.setdefault(row.workload, []).append(row)
    if not by_workload:
        n_runs = len({row.run_id for row in rows})
        return f"{formatting.count(len(rows), 'report')} on {formatting.count(n_runs, 'run')}, without a workload"
    gains: dict[str, list[str]] = {}
    differing = []
    for name, pages in by_workload.items():
        best = {page.best if page.gains else "" for page in pages}
        if len(best) == 1:
            gains.setdefault(best.pop(), []).append(name)
        else:
            differing.append(name)
    return "; ".join([*_gains(gains, len(by_workload)), *_differing(differing), *_not_fitting(by_workload)])


def _gains(gains: dict[str, list[str]], n_workloads: int) -> list[str]:
    """Return the clauses on workloads by the configuration from which they gain; ``""`` is none."""
    none = gains.pop("", [])
    most_first = sorted(gains.items(), key=lambda one: -len(one[1]))
    clauses = []
    if most_first:
        (first, names), *others = most_first
        of = f"of {formatting.count(n_workloads, 'workload')}"
        more = "".join(f", {len(others_of)} from {name}" for name, others_of in others)
        clauses.append(f"{len(names)} {of} gain{'s' if len(names) == 1 else ''} from {first}{more}")
    if none and not most_first and len(none) == n_workloads:
        clauses.append("no workload gains distinguishably from any configuration")
    elif none:
        clauses.append(f"{_some(none)} gain{'s' if len(none) == 1 else ''} from none")
    return clauses


def _differing(names: Sequence[str]) -> list[str]:
    if not names:
        return []
    return [f"for {_some(names)}, the best configuration differs between runs or loads"]


def _not_fitting(by_workload: dict[str, list[IndexRow]]) -> list[str]:
    """Return the clauses on workloads that need more than any configuration serves."""
    nowhere: list[str] = []
    partly: list[str] = []
    for name, pages in by_workload.items():
        n = sum(page.fits is fit.Verdict.NOT for page in pages)
        if n:
            (nowhere if n == len(pages) else partly).append(name)
    clauses = [f"{_some(nowhere)} do{'es' if len(nowhere) == 1 else ''} not fit"] if nowhere else []
    if partly:
        clauses.append(f"{_some(partly)} do{'es' if len(partly) == 1 else ''} not fit in some runs or loads")
    return clauses


def _some(names: Sequence[str]) -> str:
    return formatting.names(names) if len(names) <= _NAMED else f"{len(names)} workloads"


@dataclass(frozen=True, slots=True)
class GainRow:
    """The best configuration for a workload in one run, under one load.

    Attributes:
        where: the run's target and load, where there is more than one of them; mostly empty.
        best: its figure and interval, default = 100.
        against: the same as a factor; empty if the best is the default.
    """

    workload: str
    where: str
    page: str
    best: RankingRow
    against: str


@dataclass(frozen=True, slots=True)
class GainChart:
    """The gain of the best configuration for every workload, on one scale."""

    axis: Axis
    rows: tuple[GainRow, ...]


def gain_chart_of(rows: Sequence[IndexRow]) -> GainChart | None:
    """Return the chart of the index, in the order of ``rows``; None without a prediction.

    An interval that is open at an end is drawn up to the edge.
    """
    predicted = [(row, row.best_row) for row in rows if row.best_row is not None]
    if not predicted:
        return None
    several_runs = len({row.run_id for row, _ in predicted}) > 1
    several_loads = len({row.load for row, _ in predicted}) > 1
    shown = []
    for row, best in predicted:
        where = [row.target] if several_runs else []
        where += [f"load {row.load}" if row.load else "own load"] if several_loads else []
        shown.append(GainRow(row.workload, ", ".join(where), row.page, best, row.against))
    ends = [end for _, best in predicted for end in (best.low, best.high) if math.isfinite(end)]
    return GainChart(
        relative_axis([best.relative for _, best in predicted if best.relative > 0], ends), tuple(shown)
    )
