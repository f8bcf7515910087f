"""The page "What does the upgrade do to my workloads?" of `cephfit compare`, as self-contained HTML."""

from collections.abc import Sequence
from dataclasses import dataclass

from cephfit import __version__
from cephfit.core.values.prediction import Verdict
from cephfit.core.values.sample import IMPORTED, SIMULATED
from cephfit.operations.upgrade_advice import (
    UpgradeAdvice,
    WorkloadOutcome,
    answer_of,
    moved_cells,
    times,
)
from cephfit.results.report import formatting
from cephfit.results.report.formatting import Axis, relative_axis
from cephfit.results.report.render import environment
from cephfit.results.statistics.comparison import Change, TargetFigures

_VERDICTS = {
    Change.BETTER: Verdict.BETTER,
    Change.WORSE: Verdict.WORSE,
    Change.NONE: Verdict.INDISTINGUISHABLE,
}


@dataclass(frozen=True, slots=True)
class RatioRow:
    """One workload on one release, relative to the first release = 100.

    Attributes:
        workload: name.
        anchor: of its section.
        configuration: the release's label, as the figure names it.
        relative: rate of the release, the first one's = 100; None where they cannot be compared.
        low, high: interval; None without one.
        verdict: as in reports.
        text: the ratio as text.
        change: the verdict as text.
    """

    workload: str
    anchor: str
    configuration: str
    relative: float | None
    low: float | None
    high: float | None
    verdict: str
    text: str
    change: str


@dataclass(frozen=True, slots=True)
class CellRow:
    """One cell of a workload on one release: texts, and the verdict for its colour."""

    release: str
    cell: str
    share: str
    ratio: str
    effect: str
    change: str


@dataclass(frozen=True, slots=True)
class WorkloadSection:
    """One workload: its answer, rates by release, and cells by their effect."""

    name: str
    anchor: str
    answer: str
    moved: tuple[str, ...]
    rates: tuple[tuple[str, str, str], ...]
    cells: tuple[CellRow, ...]


def upgrade_html(advice: UpgradeAdvice, *, load: str, source: str, notes: Sequence[str], made_ns: int) -> str:
    """Render one self-contained HTML page: with style and figures, without scripts or external files.

    Args:
        advice: the comparison.
        load: name of the load; empty: the measurement's own.
        source: of the runs.
        notes: on the comparison.
        made_ns: wall clock, ns since the epoch.
    """
    numbered = [(f"w{number}", outcome) for number, outcome in enumerate(advice.outcomes, start=1)]
    rows = [row for anchor, outcome in numbered for row in _ratio_rows(anchor, outcome, advice.labels)]
    page = environment(autoescape=True)
    return page.get_template("upgrade.html.j2").render(
        advice=advice,
        headline=_headline(advice),
        warnings=_warnings(advice),
        axis=_axis(rows),
        rows=rows,
        sections=[_section(anchor, outcome, advice.labels) for anchor, outcome in numbered],
        explaining={default.name for default in advice.explaining()},
        real=[(one, advice.labels[one.target], times(one.ratio)) for one in advice.real],
        runs=[
            (
                label,
                run.target,
                run.run_id,
                formatting.moment(run.created_ns),
                "" if run.finished else "not finished",
            )
            for label, run in zip(advice.labels, advice.runs, strict=True)
        ],
        load=load,
        notes=notes,
        source=source,
        made_at=formatting.moment(made_ns),
        version=__version__,
    )


def _headline(advice: UpgradeAdvice) -> str:
    """Return the answer in one sentence: how many workloads each release serves better and worse."""
    n = formatting.count(len(advice.outcomes), "workload")
    clauses = []
    for target, label in list(enumerate(advice.labels))[1:]:
        changes = [outcome.served.by_target[target].change for outcome in advice.outcomes]
        counts = [f"{k} {change}" for change in Change if (k := changes.count(change)) or change is Change.WORSE]
        clauses.append(f"{label}: {', '.join(counts)}")
    return f"Of {n}, compared with {advice.labels[0]}: {'; '.join(clauses)}"


def _warnings(advice: UpgradeAdvice) -> list[str]:
    simulated = [SIMULATED] if any(run.is_simulated for run in advice.runs) else []
    return simulated + ([IMPORTED] if any(run.is_imported for run in advice.runs) else [])


def _ratio_rows(anchor: str, outcome: WorkloadOutcome, labels: Sequence[str]) -> list[RatioRow]:
    return [
        _ratio_row(outcome.served.workload, anchor, label, figures)
        for label, figures in list(zip(labels, outcome.served.by_target, strict=True))[1:]
    ]


def _ratio_row(workload: str, anchor: str, label: str, figures: TargetFigures) -> RatioRow:
    ratio = figures.ratio
    ends = ratio.interval if ratio else None
    return RatioRow(
        workload,
        anchor,
        label,
        100 * ratio.mean if ratio else None,
        100 * ends.low if ends else None,
        100 * ends.high if ends else None,
        _VERDICTS.get(figures.change, Verdict.INDISTINGUISHABLE).value,
        times(ratio) if ratio else figures.missing or "not comparable",
        figures.change.value,
    )


def _axis(rows: Sequence[RatioRow]) -> Axis | None:
    drawn = [row for row in rows if row.relative is not None]
    if not drawn:
        return None
    ends = [end for row in drawn for end in (row.low, row.high) if end is not None]
    return relative_axis([row.relative for row in drawn if row.relative is not None], ends)


def _section(anchor: str, outcome: WorkloadOutcome, labels: Sequence[str]) -> WorkloadSection:
    return WorkloadSection(
        outcome.served.workload,
        anchor,
        answer_of(outcome, labels),
        tuple(moved_cells(outcome, labels)),
        tuple(
            (label, formatting.number(figures.rate.mean) if figures.rate else "–", _ends(figures))
            for label, figures in zip(labels, outcome.served.by_target, strict=True)
        ),
        tuple(
            CellRow(
                label,
                str(part.cell),
                formatting.per_cent(part.share),
                times(part.figures.ratio),
                f"{formatting.points(100 * part.effect)} %",
                part.figures.change.value,
            )
            for label, parts in zip(labels, outcome.parts, strict=True)
            for part in parts
        ),
    )


def _ends(figures: TargetFigures) -> str:
    if figures.rate is None:
        return figures.missing
    ends = figures.rate.interval
    return f"{formatting.number(ends.low)} to {formatting.number(ends.high)}" if ends else "spread unknown"
