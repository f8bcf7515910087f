"""Vocabulary to table rows and back."""

from collections.abc import Mapping
from typing import Any

from cephfit.cells import Cell
from cephfit.protocols import Applied
from cephfit.run import Run
from cephfit.sample import Metrics, Sample, SampleKey, State, WorkloadSample

Row = Mapping[str, Any]


def run_row(run: Run) -> dict[str, Any]:
    """The columns of a run."""
    return {
        "run_id": run.run_id,
        "sweep_name": run.sweep_name,
        "sweep_text": run.sweep_text,
        "sweep_digest": run.sweep_digest,
        "target": run.target,
        "seed": run.seed,
        "created_ns": run.created_ns,
        "facts": dict(run.facts),
        "finished": run.finished,
    }


def run_of(row: Row) -> Run:
    """The reverse of ``run_row``."""
    return Run(**{name: row[name] for name in Run.__dataclass_fields__})


def applied_row(applied: Applied) -> dict[str, Any]:
    """The columns of an application of a configuration."""
    return {
        "configuration": applied.configuration,
        "ok": applied.ok,
        "mismatches": list(applied.mismatches),
        "read_back": dict(applied.read_back),
        "restarted": list(applied.restarted),
        "seconds": applied.seconds,
    }


def applied_of(row: Row) -> Applied:
    """The reverse of ``applied_row``."""
    return Applied(
        row["configuration"],
        row["ok"],
        tuple(row["mismatches"]),
        row["read_back"],
        tuple(row["restarted"]),
        row["seconds"],
    )


def key_row(key: SampleKey) -> dict[str, Any]:
    """The columns that tell a sample from all others of its run."""
    return {
        "configuration": key.configuration,
        "size": key.cell.size.name,
        "pattern": key.cell.pattern.value,
        "client": key.client,
        "repeat": key.repeat,
        "attempt": key.attempt,
        "load": key.load,
    }


def sample_row(sample: Sample) -> dict[str, Any]:
    """The columns of a sample; those of its metrics are None where it has none."""
    metrics = sample.metrics
    return {
        **key_row(sample.key),
        "state": sample.state.value,
        "reason": sample.reason,
        "iops": metrics and metrics.iops,
        "nbytes_per_s": metrics and metrics.nbytes_per_s,
        "n_ios": metrics and metrics.n_ios,
        "runtime_ns": metrics and metrics.runtime_ns,
        "latency_mean_ns": metrics and metrics.latency_mean_ns,
        "latency_percentiles_ns": metrics and {repr(p): ns for p, ns in metrics.latency_percentiles_ns.items()},
        "started_ns": sample.started_ns,
        "finished_ns": sample.finished_ns,
        "evidence": sample.evidence,
    }


def sample_of(row: Row) -> Sample:
    """The reverse of ``sample_row``."""
    metrics = None
    if row["iops"] is not None:
        metrics = Metrics(
            iops=row["iops"],
            nbytes_per_s=row["nbytes_per_s"],
            n_ios=row["n_ios"],
            runtime_ns=row["runtime_ns"],
            latency_mean_ns=row["latency_mean_ns"],
            latency_percentiles_ns={float(p): ns for p, ns in row["latency_percentiles_ns"].items()},
        )
    key = SampleKey(
        row["configuration"],
        Cell.parse(f"{row['size']}-{row['pattern']}", where="store of results"),
        row["client"],
        row["repeat"],
        row["attempt"],
        row["load"],
    )
    return Sample(
        key,
        State(row["state"]),
        metrics,
        row["started_ns"],
        row["finished_ns"],
        row["reason"],
        row["evidence"],
    )


def workload_row(sample: WorkloadSample) -> dict[str, Any]:
    """The columns of a run of a real workload."""
    row = {name: getattr(sample, name) for name in WorkloadSample.__dataclass_fields__}
    return {**row, "state": sample.state.value}


def workload_of(row: Row) -> WorkloadSample:
    """The reverse of ``workload_row``."""
    values = {name: row[name] for name in WorkloadSample.__dataclass_fields__}
    return WorkloadSample(**{**values, "state": State(row["state"])})
