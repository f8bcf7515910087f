"""Samples of a run as Parquet. Needs pyarrow (extra ``parquet``); docs/runs.md describes the columns."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cephfit.core.optional_modules import optional_module
from cephfit.core.values.run import Run
from cephfit.core.values.sample import Sample
from cephfit.results.report.method_facts import deviation_of
from cephfit.results.store.schema import sample_row

SCHEMA_VERSION = 1
"""Version of the columns; it grows with every change of a column that exists."""

METADATA_KEY = b"cephfit"
"""Key of the file's metadata: a JSON object with the schema version and the run."""

_ROWS = 1 << 16
"""Rows per row group."""

COLUMNS: Mapping[str, str] = {
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
        "schema_version": SCHEMA_VERSION,
        "run": run.run_id,
        "sweep": run.sweep_name,
        "target": run.target,
        "simulated": run.is_simulated,
        "created_ns": run.created_ns,
        "finished": run.finished,
    }
    schema = pa.schema(
        [pa.field(name, _type(pa, kind)) for name, kind in COLUMNS.items()],
        metadata={METADATA_KEY: json.dumps(metadata).encode()},
    )
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for first in range(0, len(samples), _ROWS):
            rows = [_row(sample) for sample in samples[first : first + _ROWS]]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))


def _type(pa: Any, kind: str) -> Any:
    if kind.startswith("map"):
        return pa.map_(pa.float64(), pa.float64())
    return pa.type_for_alias(kind)


def _row(sample: Sample) -> dict[str, Any]:
    """Return the columns of the store, and two that it lacks or has in another form."""
    metrics = sample.metrics
    return {
        **sample_row(sample),
        "latency_percentiles_ns": metrics and list(metrics.latency_percentiles_ns.items()),
        "cross_check_deviation": deviation_of(sample),
        "evidence": json.dumps(sample.evidence),
    }
