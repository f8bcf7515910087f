"""Samples, cells, predictions and comparisons of targets as CSV, and samples as Parquet, for other programs."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from cephfit.core.optional_modules import optional_module
from cephfit.core.units import MIB, NS_PER_MS, format_nbytes
from cephfit.core.values.prediction import PredictionSet, Verdict, model_called
from cephfit.core.values.sample import OWN_LOAD, Run, Sample
from cephfit.core.values.supply import SupplySet
from cephfit.results.report.figures.cell_figures import cell_figures_of
from cephfit.results.report.figures.cpu_figures import cpu_use_of
from cephfit.results.report.method_facts import deviation_of
from cephfit.results.report.report_model import Findings
from cephfit.results.statistics.comparison import Row, Served, TargetFigures
from cephfit.results.statistics.loads import LoadShape, shapes_of
from cephfit.results.statistics.sample_baselines import tried_of
from cephfit.results.statistics.scaling import Level
from cephfit.results.statistics.workload_rate import WorkloadRate
from cephfit.results.store.schema import sample_row
from cephfit.results.tables.baseline_csv import ORIGIN_COLUMNS, load_cells, origin_of
from cephfit.results.tables.csv_text import LOAD_COLUMNS, csv_text

_SAMPLE_COLUMNS = (
    *("configuration", "size", "pattern", "client", "run", "attempt", "load", *LOAD_COLUMNS, "state", "reason"),
    *("iops", "nbytes_per_s", "n_ios", "runtime_ns", "latency_mean_ns"),
)

PREDICTION_COLUMNS = (
    *("model", "profile", "configuration", "relative", "low", "high", "confidence", "verdict"),
    *("accesses_per_s", "accesses_per_s_low", "accesses_per_s_high", "mib_per_s", "rate_without"),
    *("needs_per_s", "busiest_second", "serves_per_s", "serves_per_s_low", "serves_per_s_high", "headroom"),
)

CPU_COLUMNS = (
    *("load", "configuration", "size", "pattern", "repeats", "host_cpus", "layer"),
    *("cpus", "cpus_low", "cpus_high", "us_per_io", "us_per_io_low", "us_per_io_high", "system_share"),
)

CELL_COLUMNS = (
    *(
        "load",
        "configuration",
        "size",
        "pattern",
        "repeats",
        "clients",
        "iops",
        "iops_low",
        "iops_high",
        "mib_per_s",
    ),
    *("latency_ms", "latency_ms_low", "latency_ms_high", "p99_ms", "p99_ms_low", "p99_ms_high"),
)


def samples_csv(samples: Sequence[Sample], run: Run | None = None) -> str:
    """Return one row per sample with all its metrics, and a column per latency percentile that any sample has.

    Columns configuration, size, pattern, client, run, load, iodepth, clients, sync, align, iops, target and
    simulated are those of the baselines' CSV; the last two state the origin of the figures and are empty if
    ``run`` is not given. A load with a mix or a rate limit has no depth there: it is no baseline.
    """
    shapes = shapes_of(samples)
    percentiles = sorted({p for s in samples if s.metrics is not None for p in s.metrics.latency_percentiles_ns})
    tail = ("started_ns", "finished_ns", "cross_check_deviation", *ORIGIN_COLUMNS)
    origin = origin_of(run)
    return csv_text(
        (*_SAMPLE_COLUMNS, *(f"latency_p{p:g}_ns" for p in percentiles), *tail),
        ((*_sample_row(sample, percentiles, shapes.get(sample.key.load)), *origin) for sample in samples),
    )


def predictions_csv(
    predictions: PredictionSet,
    run: Run | None = None,
    rates: Mapping[str, WorkloadRate] | None = None,
    supply: SupplySet | None = None,
) -> str:
    """Return one row per configuration, best first; relative figures have the default = 100.

    An unknown end of an interval is empty.

    Args:
        rates: each configuration's rate for the workload; its cells are empty for the others.
        supply: what the workload needs and what each configuration serves; None: unknown.
    """
    return csv_text(
        (*PREDICTION_COLUMNS, *ORIGIN_COLUMNS),
        ((*row, *origin_of(run)) for row in prediction_rows(predictions, rates or {}, supply)),
    )


def prediction_rows(
    predictions: PredictionSet, rates: Mapping[str, WorkloadRate], supply: SupplySet | None
) -> Iterator[tuple[object, ...]]:
    """Yield the cells of ``PREDICTION_COLUMNS``; without factors of rates, only the default has one.

    ``rate_without`` names the cells of the workload that were not measured and that the rate omits.
    """
    in_time = model_called(predictions.model).adds_time
    for p in predictions.predictions:
        ends = (end if math.isfinite(end) else "" for end in (p.low, p.high))
        yield (
            *(predictions.model, predictions.profile, p.configuration),
            *(p.relative, *ends, predictions.confidence, p.verdict.value),
            *_rate_cells(rates.get(p.configuration) if in_time or p.verdict is Verdict.DEFAULT else None),
            *_supply_cells(supply, p.configuration),
        )


def _supply_cells(supply: SupplySet | None, configuration: str) -> Iterator[object]:
    demand, found = (None, None) if supply is None else (supply.demand, supply.of(configuration))
    yield from ("", "") if demand is None else (demand.accesses_per_s, demand.busiest_second or "")
    if found is None:
        yield from ("",) * 4
        return
    most = found.most
    yield from (most.value, most.low or "", most.high if math.isfinite(most.high) else "")
    yield "" if demand is None else found.headroom(demand).value


def _rate_cells(rate: WorkloadRate | None) -> tuple[object, ...]:
    if rate is None:
        return ("",) * 5
    without = " ".join(map(str, rate.omitted))
    return (*level_cells(rate.accesses_per_s, 1), rate.nbytes_per_s / MIB, without)


def cells_csv(findings: Findings) -> str:
    """Return one row per configuration and cell: rate, throughput and latency of all clients together.

    Intervals are 95 % intervals of the mean over the repeats, each by itself: Student's t, from the row's repeats.
    """
    return csv_text(
        (*CELL_COLUMNS, *ORIGIN_COLUMNS), ((*row, *origin_of(findings.run)) for row in cell_rows(findings))
    )


def cell_rows(findings: Findings) -> Iterator[tuple[object, ...]]:
    """Yield the cells of ``CELL_COLUMNS``."""
    samples = findings.samples
    tried = tried_of(samples, findings.load)
    shape = shapes_of(samples).get(findings.load)
    for (name, cell), f in cell_figures_of(tried).items():
        size = format_nbytes(shape.nbytes) if shape is not None and shape.nbytes else cell.size.name
        n_clients = f.n_clients if shape is None else shape.n_clients
        yield (
            *(findings.load, name, size, cell.pattern.value, f.n_repeats, n_clients),
            *level_cells(Level.of_repeats(tried[name, cell].whole.sums(samples.iops)), 1),
            f.nbytes_per_s.mean / MIB,
            *level_cells(f.latency_ns, NS_PER_MS),
            *level_cells(f.p99_ns, NS_PER_MS),
        )


def cpu_csv(findings: Findings) -> str:
    """Return one row per configuration, cell and layer of the storage stack: its CPU use, with intervals.

    After its layers follow ``all`` of them, and ``others``: other programs and the hypervisor. Without recorded
    CPU time there are no rows.
    """
    return csv_text(
        (*CPU_COLUMNS, *ORIGIN_COLUMNS), ((*row, *origin_of(findings.run)) for row in cpu_rows(findings))
    )


def cpu_rows(findings: Findings) -> Iterator[tuple[object, ...]]:
    """Yield the cells of ``CPU_COLUMNS``."""
    for use in cpu_use_of(tried_of(findings.samples, findings.load)):
        place = (findings.load, use.configuration, use.cell.size.name, use.cell.pattern.value)
        for layer, busy in use.busy.items():
            figures = (*level_cells(busy, 1), *level_cells(use.us_per_io[layer], 1), use.system_share[layer])
            yield (*place, use.n_repeats, use.n_cpus, layer.value, *figures)
        totals = (*level_cells(use.all_busy, 1), *level_cells(use.all_us_per_io, 1))
        yield (*place, use.n_repeats, use.n_cpus, "all", *totals, "")
        yield (*place, use.n_repeats, use.n_cpus, "others", *level_cells(use.others_busy, 1), *("",) * 4)


def level_cells(level: Level | None, unit: float) -> tuple[object, ...]:
    """Return mean and both ends, in the unit."""
    if level is None:
        return ("",) * 3
    ends = (max(level.interval.low, 0.0) / unit, level.interval.high / unit) if level.interval else ("", "")
    return (level.mean / unit, *ends)


def _sample_row(sample: Sample, percentiles: Sequence[float], shape: LoadShape | None) -> tuple[object, ...]:
    k, m = sample.key, sample.metrics
    under = shape.loaded(k.cell) if shape is not None and shape.is_plain else None
    size = k.cell.size.name if under is None else format_nbytes(under.nbytes)
    metrics: tuple[object, ...] = ("",) * (5 + len(percentiles))
    if m is not None:
        metrics = (
            *(m.iops, m.nbytes_per_s, m.n_ios, m.runtime_ns, m.latency_mean_ns),
            *(m.latency_percentiles_ns.get(p, "") for p in percentiles),
        )
    deviation = deviation_of(sample)
    return (
        *(k.configuration, size, k.cell.pattern.value, k.client, k.repeat, k.attempt, k.load),
        *(("",) * len(LOAD_COLUMNS) if shape is None or under is None else load_cells(under, shape.n_clients)),
        *(sample.state.value, sample.reason),
        *metrics,
        *(sample.started_ns, sample.finished_ns, "" if deviation is None else deviation),
    )


_COMPARISON_COLUMNS = (
    *("load", "configuration", "size", "pattern", "run", *ORIGIN_COLUMNS),
    *("repeats", "iops", "iops_low", "iops_high", "mib_per_s"),
    *("ratio", "ratio_low", "ratio_high", "differs", "missing", "workload", "rate_without"),
    *("p_value", "adjusted_p", "verdict"),
)


def rows_csv(
    rows: Sequence[Row], runs: Sequence[Run], *, load: str = OWN_LOAD, served: Sequence[Served] = ()
) -> str:
    """Return one line for each configuration, cell and target; unknown values are empty.

    Args:
        runs: of the targets, in their order.
        load: the load of the figures.
        served: workloads, which follow the cells. They have no size and pattern; their I/Os are accesses of the
            mix; ``rate_without`` names the cells that were not measured and that a rate omits.
    """
    lines = [line for row in rows for line in _of_cell(row, runs, load)]
    lines += [line for one in served for line in _of_workload(one, runs, load)]
    return csv_text(_COMPARISON_COLUMNS, lines)


def _of_cell(row: Row, runs: Sequence[Run], load: str) -> Iterator[tuple[object, ...]]:
    size = row.cell.size
    for run, figures in zip(runs, row.by_target, strict=True):
        place = (load, row.configuration, size.name, row.cell.pattern.value)
        yield (*place, *_figures(run, figures, size.benchmark_nbytes), "", "", *_verdict(figures))


def _of_workload(served: Served, runs: Sequence[Run], load: str) -> Iterator[tuple[object, ...]]:
    for run, figures, rate in zip(runs, served.by_target, served.rates, strict=True):
        nbytes = rate.nbytes_per_access if rate else 0.0
        without = " ".join(map(str, rate.omitted)) if rate else ""
        place = (load, served.configuration, "", "")
        yield (*place, *_figures(run, figures, nbytes), served.workload, without, *_verdict(figures))


def _figures(run: Run, figures: TargetFigures, nbytes_per_access: float) -> Iterator[object]:
    yield from (run.run_id, *origin_of(run), figures.n_repeats, *level_cells(figures.rate, 1))
    yield figures.rate.mean * nbytes_per_access / MIB if figures.rate else ""
    yield from level_cells(figures.ratio, 1)
    yield from ("" if figures.differs is None else str(figures.differs).lower(), figures.missing)


def _verdict(figures: TargetFigures) -> tuple[object, ...]:
    p_values = ("" if p is None else p for p in (figures.p_value, figures.adjusted_p))
    return (*p_values, figures.change.value if figures.ratio else "")


PARQUET_SCHEMA_VERSION = 1
"""Version of the Parquet columns; it grows with every change of a column that exists."""

PARQUET_METADATA_KEY = b"cephfit"
"""Key of the file's metadata: a JSON object with the schema version and the run."""

_PARQUET_ROWS = 1 << 16
"""Rows per row group."""

PARQUET_COLUMNS: Mapping[str, str] = {
    **dict.fromkeys(("configuration", "size", "pattern", "client"), "string"),
    **dict.fromkeys(("repeat", "attempt"), "int32"),
    **dict.fromkeys(("load", "state", "reason"), "string"),
    **dict.fromkeys(("iops", "nbytes_per_s"), "float64"),
    **dict.fromkeys(("n_ios", "runtime_ns"), "int64"),
    "latency_mean_ns": "float64",
    "latency_percentiles_ns": "map<float64, float64>",
    **dict.fromkeys(("started_ns", "finished_ns"), "int64"),
    "cross_check_deviation": "float64",
    "evidence": "string",
}
"""Names and types, in order. Metrics are null for a sample without a result."""


def write_samples(path: Path, samples: Sequence[Sample], run: Run) -> None:
    """Write one row per sample, in the order of measuring, in row groups of 65,536.

    Raises:
        LackingError: pyarrow is missing.
    """
    pa, pq = optional_module("pyarrow"), optional_module("pyarrow.parquet")
    metadata = {
        "schema_version": PARQUET_SCHEMA_VERSION,
        "run": run.run_id,
        "sweep": run.sweep_name,
        "target": run.target,
        "simulated": run.is_simulated,
        "created_ns": run.created_ns,
        "finished": run.finished,
    }
    schema = pa.schema(
        [pa.field(name, _parquet_type(pa, kind)) for name, kind in PARQUET_COLUMNS.items()],
        metadata={PARQUET_METADATA_KEY: json.dumps(metadata).encode()},
    )
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for first in range(0, len(samples), _PARQUET_ROWS):
            rows = [_parquet_row(sample) for sample in samples[first : first + _PARQUET_ROWS]]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _parquet_type(pa: Any, kind: str) -> Any:
    if kind.startswith("map"):
        return pa.map_(pa.float64(), pa.float64())
    return pa.type_for_alias(kind)


def _parquet_row(sample: Sample) -> dict[str, Any]:
    """Return the columns of the store, and two that it lacks or has in another form."""
    metrics = sample.metrics
    return {
        **sample_row(sample),
        "latency_percentiles_ns": metrics and list(metrics.latency_percentiles_ns.items()),
        "cross_check_deviation": deviation_of(sample),
        "evidence": json.dumps(sample.evidence),
    }
