"""How a run was measured: facts to judge it or to repeat it. Rounds count from 1, as in progress output."""

import math
import statistics as stdlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from cephfit.core.statistics.round_effects import Floats
from cephfit.core.statistics.sample_columns import OK, STATES, Rows, SampleColumns
from cephfit.core.values.baseline import Baselines
from cephfit.core.values.configuration import DEFAULT_CONFIGURATION
from cephfit.core.values.sample import IMPORTED_OUTPUT, Sample, State, window_nbytes_of
from cephfit.results.report import formatting
from cephfit.results.report.report_model import AppliedRow, Findings, Method
from cephfit.results.report.run_notes import Controls
from cephfit.results.statistics import summary_statistics
from cephfit.results.statistics.loads import names_of

_SECRETS = ("keyring", "password", "token", "secret")
REJECTED_SHOWN = 200
"""Maximum number of rejected samples in a report; the CSV of samples has all."""


def method_of(findings: Findings, baselines: Baselines, controls: Controls | None) -> Method:
    """Return everything that the reader needs to judge the figures or to measure them again."""
    counts = np.bincount(findings.samples.state, minlength=len(STATES)).tolist()
    rejected = tuple(_rejected(findings))
    return Method(
        summary=(*_summary(findings, baselines), *_control(controls)),
        states=tuple((state.value, n) for state, n in zip(STATES, counts, strict=True) if n),
        rejected=rejected[:REJECTED_SHOWN],
        n_more_rejected=max(len(rejected) - REJECTED_SHOWN, 0),
        applied=tuple(_applied_rows(findings)),
        order=tuple(_order(findings)),
        workload_runs=tuple(_workload_runs(findings)),
        fio_options=tuple(_fio_options(findings.fio)),
        facts=tuple(_flat(findings.run.facts)),
        sweep_text=findings.run.sweep_text,
    )


def n_rejected(findings: Findings) -> int:
    """Return the number of samples that do not count."""
    return int(np.count_nonzero(findings.samples.state != OK))


def _summary(findings: Findings, baselines: Baselines) -> Iterator[tuple[str, str]]:
    run = findings.run
    samples, rows = findings.samples, findings.samples.rows_under(findings.load)
    yield "Sweep", run.sweep_name
    yield "Target", run.target
    yield "Run", run.run_id + ("" if run.finished else " (not finished)")
    yield "Started", formatting.moment(run.created_ns)
    if len(rows):
        first, last = int(samples.started_ns[rows].min()), int(samples.finished_ns[rows].max())
        yield (
            "Measured",
            f"{formatting.moment(first)} to {formatting.moment(last)} ({formatting.duration(last - first)})",
        )
        if len(loads := names_of(findings.samples)) > 1:
            yield "Loads", ", ".join(name or "the measurement's own" for name in loads)
        clients = [samples.clients[code] for code in np.unique(samples.client[rows])]
        yield "Concurrent clients", formatting.names(clients)
        yield "Repeats", str(len(np.unique(samples.repeat[rows])))
        yield from _early_stopping(findings.stopping)
        times = samples.runtime_ns[rows][~np.isnan(samples.iops[rows])]
        yield "Median runtime of a sample", formatting.duration(int(np.median(times))) if len(times) else "–"
    if not run.is_imported:
        yield "Random seed of the order", str(run.seed)
    caches, deviations = _from_evidence(samples, rows)
    if caches:
        yield "Caches before each run", formatting.names(caches)
    spread = summary_statistics.pooled_spread(b.iops for b in baselines.cells.values())
    if spread is not None:
        degrees = formatting.count(round(spread.degrees), "degree")
        yield "Scatter of the repeats", f"{100 * spread.log_deviation:.1f} % ({degrees} of freedom)"
    if findings.predictions is not None and math.isfinite(floor := findings.predictions.noise_floor):
        yield (
            "Noise floor",
            f"{formatting.relative(floor)} points: smaller differences from the default cannot be detected",
        )
    yield from _cross_check(deviations)
    if findings.profile is not None:
        yield (
            "Workload profile",
            f"{findings.profile.name}, {formatting.number(findings.profile.n_accesses)} accesses",
        )
    yield "Store", findings.store


def _early_stopping(stopping: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Yield what stopping early saved, and what the races decided."""
    if stopping is None or "runs_saved" not in stopping:
        return
    saved, full = stopping["runs_saved"], stopping["runs_of_full_plan"]
    yield "Runs saved", f"{saved} of {full} fio runs ({100 * stopping['part_saved']:.0f} %)"
    races = stopping.get("races", ())
    for race in races if len(races) == 1 else ():
        ends = [f"{end} {race[end] or 'not decided'}" for end in ("best", "worst") if end in race]
        yield f"Race for {race['for']}", ", ".join(ends)
    whole: dict[str, list[str]] = {}
    for row in stopping.get("stopped", ()) if len(races) < 2 else ():
        whole.setdefault(f"after {row['after']} rounds: {row['reason']}", []).append(row["configuration"])
    for reason, configurations in whole.items():
        yield f"No longer measured: {formatting.names(configurations)}", reason


def _control(controls: Controls | None) -> Iterator[tuple[str, str]]:
    """Yield the difference of the default from itself."""
    if controls is None or (worst := controls.worst_cell) is None:
        return
    middle = stdlib.median(controls.cell_points.values())
    predicted = (
        f"{formatting.points(controls.points).lstrip('+')} points for the workload, " if controls.points else ""
    )
    yield (
        "A/A control",
        f"the default under another name ({formatting.names(list(controls.names))}) differs by {predicted}"
        f"{middle:.1f} points in the median cell and {worst[1]:.1f} in the worst ({worst[0]})",
    )


def _from_evidence(samples: SampleColumns, rows: Rows) -> tuple[list[str], Floats]:
    """Return the conditions of the caches, and the deviations of an independent count (``deviation_of``)."""
    facts = samples.evidence_facts
    caches = {facts.caches[code] for code in np.unique(facts.cache[rows])}
    windows = np.full(len(samples), np.nan)
    windows[rows] = facts.window_nbytes[rows]
    by_fio = samples.nbytes_per_s * samples.runtime_ns / 1e9
    counted = (samples.state == OK) & (by_fio > 0) & ~np.isnan(windows)
    return sorted(cache for cache in caches if cache is not None), windows[counted] / by_fio[counted] - 1


def _cross_check(deviations: Floats) -> Iterator[tuple[str, str]]:
    """Yield the deviation of an independent byte count from fio's: window over fio minus 1."""
    if len(deviations):
        sizes = np.abs(deviations)
        middle, worst = float(np.median(sizes)), float(deviations[sizes.argmax()])
        yield (
            "Cross-check",
            f"{formatting.count(len(deviations), 'ok sample')}: an independent count deviates from fio's by "
            f"{100 * middle:.2f} % in the median, by {100 * worst:+.2f} % at most",
        )


def deviation_of(sample: Sample) -> float | None:
    """Return the relative difference of the independent count from fio's bytes; None without such a count."""
    if sample.state is not State.OK or sample.metrics is None:
        return None
    by_fio = sample.metrics.nbytes_per_s * sample.metrics.runtime_ns / 1e9
    window = window_nbytes_of(sample.evidence)
    return window / by_fio - 1 if window is not None and by_fio > 0 else None


def _rejected(findings: Findings) -> Iterator[tuple[str, str, str]]:
    for sample in findings.samples.take(np.flatnonzero(findings.samples.state != OK)):
        k = sample.key
        under = f" under {k.load}" if k.load else ""
        name = f"{k.configuration} {k.cell}{under}, {k.client}, repeat {k.repeat + 1}, attempt {k.attempt + 1}"
        yield name, sample.state.value, sample.reason
    for workload, run in findings.workload_samples:
        if run.state is not State.OK:
            name = f"{workload} on {run.configuration}, repeat {run.repeat + 1}, attempt {run.attempt + 1}"
            yield name, run.state.value, run.reason


def _applied_rows(findings: Findings) -> Iterator[AppliedRow]:
    latest = {applied.configuration: applied for _, applied in findings.applied}
    for name in sorted(latest, key=lambda name: (name != DEFAULT_CONFIGURATION, list(latest).index(name))):
        applied = latest[name]
        yield AppliedRow(
            name,
            tuple((setting, _value(value)) for setting, value in applied.read_back.items()),
            formatting.names(applied.restarted) if applied.restarted else "–",
            f"{applied.seconds:.1f} s",
            applied.mismatches,
        )


def _value(value: Any) -> str:
    """Return one value where all daemons agree, else the value of each daemon."""
    if isinstance(value, Mapping):
        values = {str(v) for v in value.values()}
        if len(values) == 1:
            return f"{values.pop()} ({formatting.names(list(map(str, value)))})"
        return ", ".join(f"{place}: {v}" for place, v in value.items())
    return str(value)


def _order(findings: Findings) -> Iterator[tuple[str, str]]:
    rounds: dict[int, list[str]] = {}
    for repeat, applied in findings.applied:
        rounds.setdefault(repeat, []).append(applied.configuration)
    for repeat, names in sorted(rounds.items()):
        yield str(repeat + 1), ", ".join(names)


def _workload_runs(findings: Findings) -> Iterator[tuple[str, str, str, str]]:
    several = len({workload for workload, _ in findings.workload_samples}) > 1
    for workload, run in findings.workload_samples:
        value = f"{formatting.number(run.value)} {run.metric}" if run.value is not None else "–"
        configuration = f"{workload} on {run.configuration}" if several else run.configuration
        yield configuration, str(run.repeat + 1), run.state.value, value


def _fio_options(fio: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    if not fio or IMPORTED_OUTPUT in fio:
        return
    yield "version", str(fio.get("fio version", "unknown"))
    options = dict(fio.get("global options") or {})
    for job in (fio.get("jobs") or [])[:1]:
        options.update(job.get("job options") or {})
    yield from sorted((str(key), str(value)) for key, value in options.items())


def _flat(facts: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield nested facts as lines, without any key that looks like a secret."""
    for key, value in facts.items():
        name = f"{prefix}{key}"
        if any(word in str(key).lower() for word in _SECRETS):
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        elif isinstance(value, list):
            yield from _flat_list(value, name)
        else:
            yield name, str(value)


def _flat_list(values: list[Any], name: str) -> Iterator[tuple[str, str]]:
    if all(isinstance(value, Mapping) for value in values):
        for i, value in enumerate(values):
            yield from _flat(value, f"{name}.{i}.")
    else:
        yield name, ", ".join(map(str, values))
