"""The report of operations on files: rates, latencies and amplification of runs of engine ``micro``."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cephfit import __version__
from cephfit.core.errors import InputError
from cephfit.core.protocols import Applied
from cephfit.core.units import KIB, NS_PER_MS
from cephfit.core.values.sample import Run, Sample, State
from cephfit.results.report import formatting
from cephfit.results.report.render import environment
from cephfit.results.statistics.operation_figures import (
    AMPLIFICATIONS,
    Contender,
    OperationFigures,
    OperationRow,
    contenders_of,
    load_descriptions,
    operation_figures,
    rows_of,
    window_of,
)
from cephfit.results.store.sample_store import Store
from cephfit.results.tables.csv_text import csv_text

_COLUMNS = (
    *("run", "target", "configuration", "load", "operation", "rounds", "per_second", "lowest", "highest"),
    *("latency_mean_ms", "latency_p99_ms", "moved_per", *AMPLIFICATIONS),
)
_HEADINGS = {
    "volume_read": "read from the volume",
    "volume_written": "written to the volume",
    "wire": "on the network",
    "disk_read": "read from disks",
    "disk_written": "written to disks",
}


@dataclass(frozen=True, slots=True)
class MovedRow:
    """What one contender moved for one operation; ``moved`` has the order of ``AMPLIFICATIONS``."""

    cell: str
    load: str
    contender: str
    unit: str
    moved: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OperationsPage:
    """What the page shows.

    Attributes:
        title: names of the sweeps.
        headline: the answer in one sentence.
        made_ns: wall clock, ns since the epoch.
        contenders: the columns.
        rows: rates.
        moved: amplification.
        figures: all of them.
        notes: caveats.
    """

    title: str
    headline: str
    made_ns: int
    contenders: tuple[Contender, ...]
    rows: tuple[OperationRow, ...]
    moved: tuple[MovedRow, ...]
    figures: tuple[OperationFigures, ...]
    notes: tuple[str, ...]


def read_operations(store: Store, runs: Sequence[Run], *, made_ns: int) -> OperationsPage:
    """Return the page of runs that measured operations on files.

    Raises:
        InputError: a run measured none.
    """
    samples = {run.run_id: store.file_samples(run.run_id) for run in runs}
    for run in runs:
        if not samples[run.run_id]:
            raise InputError(
                f"run {run.run_id} has no operations on files, and one page shows them of all named runs",
                where=store.name,
                remedy="name runs of one kind with --run",
            )
    applied = {run.run_id: [one for _, one in store.applied(run.run_id)] for run in runs}
    return operations_page([(run, samples[run.run_id]) for run in runs], applied, made_ns=made_ns)


def operations_page(
    measured: Sequence[tuple[Run, Sequence[Sample]]], applied: Mapping[str, Sequence[Applied]], *, made_ns: int
) -> OperationsPage:
    """Return the page of some runs and their samples. Pure.

    Args:
        measured: runs with their samples.
        applied: id of a run to its configurations as read back.
        made_ns: wall clock, ns since the epoch.
    """
    figures = tuple(f for run, samples in measured for f in operation_figures(run, samples))
    contenders = contenders_of(figures)
    rows = rows_of(figures, contenders, load_descriptions(s for _, samples in measured for s in samples))
    return OperationsPage(
        title=formatting.names(list(dict.fromkeys(run.sweep_name for run, _ in measured))),
        headline=_headline(rows, contenders),
        made_ns=made_ns,
        contenders=contenders,
        rows=rows,
        moved=tuple(_moved_rows(rows, contenders)),
        figures=figures,
        notes=(*_notes(measured, figures), *_window_notes(figures, applied)),
    )


def _headline(rows: Sequence[OperationRow], contenders: Sequence[Contender]) -> str:
    if not rows:
        return "No operation was measured: see the reasons with `cephfit sweep status`."
    if len(contenders) == 1:
        rates = [(f.rate, row) for row in rows if (f := row.figures[0]) is not None]
        (low, slowest), (high, fastest) = min(rates, key=lambda r: r[0]), max(rates, key=lambda r: r[0])
        return (
            f"{contenders[0].title}: from {formatting.number(low)} per second ({slowest.cell}, {slowest.load}) to "
            f"{formatting.number(high)} ({fastest.cell}, {fastest.load})."
        )
    wins = Counter(row.fastest for row in rows)
    won = [f"{contenders[i].title} in {n}" for i, n in wins.most_common() if i is not None]
    open_rows = f"; {wins[None]} have no clear order" if wins[None] else ""
    return f"Fastest of {formatting.count(len(rows), 'operation')}: {formatting.names(won)}{open_rows}."


def _moved_rows(rows: Sequence[OperationRow], contenders: Sequence[Contender]) -> list[MovedRow]:
    found = []
    for row in rows:
        for contender, f in zip(contenders, row.figures, strict=True):
            if f is not None and f.amplification:
                unit, divisor = ("bytes per byte", 1.0) if f.has_data else ("KiB per operation", float(KIB))
                moved = tuple(
                    formatting.number(f.amplification[name] / divisor) if name in f.amplification else ""
                    for name in AMPLIFICATIONS
                )
                found.append(MovedRow(row.cell, row.load, contender.title, unit, moved))
    return found


def _notes(measured: Sequence[tuple[Run, Sequence[Sample]]], figures: Sequence[OperationFigures]) -> list[str]:
    notes = list(dict.fromkeys(note for run, _ in measured for note in run.origin_notes))
    for run, samples in measured:
        n_bad = sum(sample.state is not State.OK for sample in samples)
        if n_bad:
            notes.append(f"{run.target}: {formatting.count(n_bad, 'sample')} failed, invalid or skipped.")
        if not run.finished:
            notes.append(f"{run.target}: the run is not finished.")
    if any(f.amplification for f in figures):
        notes.append(
            "Counters of network and disks contain everything that they moved between the begin of the operations "
            "and a flush of all files at their end, also for other users. What a server writes later is missing."
        )
    return notes


def _window_notes(figures: Sequence[OperationFigures], applied: Mapping[str, Sequence[Applied]]) -> list[str]:
    """Compare bandwidth x round trip with what was in flight, for each configuration with a clients' network."""
    notes = []
    for run_id, configurations in applied.items():
        windows = {one.configuration: window for one in configurations if (window := window_of(one))}
        for name, window in windows.items():
            own = [f for f in figures if (f.run.run_id, f.configuration) == (run_id, name) and f.has_data]
            if own:
                most = max(own, key=lambda f: f.in_flight_nbytes)
                notes.append(
                    f"{name}: bandwidth x round trip is {formatting.number(window.nbytes / KIB)} KiB "
                    f"({window.rate_mbit:g} Mbit/s, {2 * window.delay_ms:g} ms). At most "
                    f"{formatting.number(most.in_flight_nbytes / KIB)} KiB were in flight ({most.cell})."
                )
    return notes


def to_operations_html(page: OperationsPage) -> str:
    """Render one self-contained HTML page, without scripts or external files."""
    return _rendered(page, "operations.html.j2", autoescape=True)


def to_operations_markdown(page: OperationsPage) -> str:
    """Render the same facts as Markdown."""
    return _rendered(page, "operations.md.j2", autoescape=False)


def _rendered(page: OperationsPage, template: str, *, autoescape: bool) -> str:
    headings = [_HEADINGS[name] for name in AMPLIFICATIONS]
    return (
        environment(autoescape=autoescape)
        .get_template(template)
        .render(
            page=page,
            made_at=formatting.moment(page.made_ns),
            version=__version__,
            headings=headings,
            ms=NS_PER_MS,
        )
    )


def to_operations_csv(page: OperationsPage) -> str:
    """Return CSV with one row per run, configuration, load and operation; what was moved in bytes."""
    return csv_text(_COLUMNS, (_csv_row(f) for f in page.figures))


def _csv_row(f: OperationFigures) -> tuple[object, ...]:
    return (
        *(f.run.run_id, f.run.target, f.configuration, f.load, str(f.cell), len(f.rates)),
        *(f.rate, min(f.rates), max(f.rates), f.latency_mean_ns / NS_PER_MS),
        "" if f.p99_ns is None else f.p99_ns / NS_PER_MS,
        "byte" if f.has_data else "operation",
        *(f.amplification.get(name, "") for name in AMPLIFICATIONS),
    )


def operations_document(page: OperationsPage) -> Mapping[str, Any]:
    """Return the page as JSON values."""
    return {
        "answer": page.headline,
        "operations": [dict(zip(_COLUMNS, _csv_row(f), strict=True)) for f in page.figures],
        "notes": list(page.notes),
    }
