"""Samples and predictions as CSV, for spreadsheets and other programs."""

import csv
import io
from collections.abc import Iterable, Sequence

from cephfit.prediction import PredictionSet
from cephfit.results.csv_origin import ORIGIN_COLUMNS, origin_of
from cephfit.results.method_facts import deviation_of
from cephfit.run import Run
from cephfit.sample import Sample

_SAMPLE_COLUMNS = (
    *("configuration", "size", "pattern", "client", "run", "attempt", "load", "state", "reason"),
    *("iops", "nbytes_per_s", "n_ios", "runtime_ns", "latency_mean_ns"),
)


def samples_csv(samples: Sequence[Sample], run: Run | None = None) -> str:
    """One row per sample with all its metrics; a column per latency percentile that any sample has.

    Columns configuration, size, pattern, client, run, load, iops, target and simulated are those of the baselines'
    CSV; the last two say what the figures were measured on and are empty where ``run`` is not given.
    """
    percentiles = sorted({p for s in samples if s.metrics is not None for p in s.metrics.latency_percentiles_ns})
    tail = ("started_ns", "finished_ns", "cross_check_deviation", *ORIGIN_COLUMNS)
    origin = origin_of(run)
    return _csv(
        (*_SAMPLE_COLUMNS, *(f"latency_p{p:g}_ns" for p in percentiles), *tail),
        ((*_sample_row(sample, percentiles), *origin) for sample in samples),
    )


def predictions_csv(predictions: PredictionSet, run: Run | None = None) -> str:
    """One row per configuration, best first; relative figures have the default = 100."""
    return _csv(
        ("model", "profile", "configuration", "relative", "low", "high", "confidence", "verdict", *ORIGIN_COLUMNS),
        (
            (
                *(predictions.model, predictions.profile, p.configuration),
                *(p.relative, p.low, p.high, predictions.confidence, p.verdict.value, *origin_of(run)),
            )
            for p in predictions.predictions
        ),
    )


def _sample_row(sample: Sample, percentiles: Sequence[float]) -> tuple[object, ...]:
    k, m = sample.key, sample.metrics
    metrics: tuple[object, ...] = ("",) * (5 + len(percentiles))
    if m is not None:
        metrics = (
            *(m.iops, m.nbytes_per_s, m.n_ios, m.runtime_ns, m.latency_mean_ns),
            *(m.latency_percentiles_ns.get(p, "") for p in percentiles),
        )
    deviation = deviation_of(sample)
    return (
        *(k.configuration, k.cell.size.name, k.cell.pattern.value, k.client, k.repeat, k.attempt, k.load),
        *(sample.state.value, sample.reason),
        *metrics,
        *(sample.started_ns, sample.finished_ns, "" if deviation is None else deviation),
    )


def _csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()
