"""fio's JSON to metrics: real outputs give their figures, impossible ones are refused."""

import copy
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cephfit.core.values.cells import Cell
from cephfit.measure.fio.fio_files import UnusableOutputError, jobs_by_client, metrics_of, read_output

CELL = Cell.parse("32M-read")

JOB: dict[str, Any] = {
    "jobname": "c0",
    "error": 0,
    "read": {
        # Measured: blocks of 32M at depth 4 on a device limited to 100 MiB/s, 0.5 s of ramp. Ten I/Os completed,
        # seven were issued after the ramp, and the kernel counted 10.0 in the window.
        "io_bytes": 335544320, "total_ios": 7, "iops": 2.17, "runtime": 3220, "short_ios": 0, "drop_ios": 0,
        "clat_ns": {
            "min": 900_000_000, "max": 1_400_000_000, "mean": 1.28e9, "stddev": 1.0, "N": 10,
            "percentile": {"50.000000": 1283457024, "99.000000": 1400000000},
        },
    },
    "write": {"io_bytes": 0, "total_ios": 0, "runtime": 0, "short_ios": 0, "drop_ios": 0},
}  # fmt: skip


def test_the_rate_counts_what_was_completed_not_what_was_issued() -> None:
    metrics = metrics_of(JOB, CELL, iodepth=4, run_seconds=2)
    assert metrics.n_ios == 10
    assert metrics.iops == pytest.approx(10 / 3.220)
    assert metrics.nbytes_per_s == pytest.approx(335544320 / 3.220)
    assert metrics.latency_percentiles_ns == {50.0: 1283457024, 99.0: 1400000000}


def test_without_any_latency_the_mean_follows_from_littles_law() -> None:
    """Seen on a lab: 4 blocks of 32M, all issued within the ramp, over 10.402 s at depth 4."""
    job = copy.deepcopy(JOB)
    none = {"min": 0, "max": 0, "mean": 0.0, "stddev": 0.0, "N": 0}
    job["read"].update(io_bytes=4 * 2**25, total_ios=0, iops=0.0, runtime=10402, clat_ns=none)
    metrics = metrics_of(job, CELL, iodepth=4, run_seconds=1.2)
    assert metrics.iops == pytest.approx(4 / 10.402)
    assert metrics.latency_mean_ns == pytest.approx(10.402e9)
    assert metrics.latency_percentiles_ns == {}


def _set(path: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(job: dict[str, Any]) -> None:
        *folders, last = path.split(".")
        for folder in folders:
            job = job[folder]
        job[last] = value

    return change


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_set("error", 5), "Input/output error"),
        (_set("read.io_bytes", 0), "measure longer"),
        (_set("read.io_bytes", -1), "io_bytes is -1"),
        (_set("read.io_bytes", 335544321), "not a whole number of blocks"),
        (_set("read.io_bytes", True), "io_bytes is True"),
        (_set("read.total_ios", 70), "more than the 4 in flight"),
        (_set("read.runtime", 900), "ended after 0.9 s"),
        (_set("read.short_ios", 1), "short or dropped"),
        (_set("read.clat_ns.mean", float("inf")), "mean is inf"),
        (_set("read.clat_ns.mean", 0), "not between"),
        (_set("read.clat_ns.mean", 1e10), "not between"),
        (_set("read.clat_ns", {"min": 1, "max": 3e9, "mean": 2.9e9}), "needs more than 4 I/Os in flight"),
        (_set("read.clat_ns.percentile", {"50": 5, "99": 4}), "percentiles fall"),
        (_set("read.clat_ns.percentile", {"99": 9e9}), "above the largest"),
        (_set("write.io_bytes", 4096), "does not belong"),
        (_set("read", None), "no read"),
    ],
)
def test_impossible_figures_are_refused(change: Callable[[dict[str, Any]], None], why: str) -> None:
    job = copy.deepcopy(JOB)
    change(job)
    with pytest.raises(UnusableOutputError, match=why):
        metrics_of(job, CELL, iodepth=4, run_seconds=2)


def test_lines_before_the_json_do_not_matter() -> None:
    text = "fio: io_u error on file /dev/x\n{braces} in a line\n" + json.dumps({"jobs": [JOB]}, indent=1)
    with pytest.raises(UnusableOutputError):
        read_output(text)
    assert read_output(text.replace("{braces} in", "in"))["jobs"][0]["jobname"] == "c0"


@pytest.mark.parametrize("text", ["", "fio: no such engine", '{"jobs": [', '{"jobs": NaN}', "{}"])
def test_half_an_output_is_none(text: str) -> None:
    with pytest.raises(UnusableOutputError):
        read_output(text)


def test_a_job_that_nobody_asked_for_is_refused() -> None:
    with pytest.raises(UnusableOutputError, match="'c0'"):
        jobs_by_client({"jobs": [JOB]}, ["c1"])
    with pytest.raises(UnusableOutputError, match="twice"):
        jobs_by_client({"jobs": [JOB, JOB]}, ["c0"])


def test_other_peoples_fio_outputs_read_as_fio_itself_says() -> None:
    """Without a ramp nothing is in flight at the start: the rate is fio's own ``iops``."""
    root = os.environ.get("CEPHFIT_SAMPLES")
    files = sorted(Path(root, "fio").rglob("*.json")) if root else []
    if not files:
        pytest.skip("no fio samples on this machine (CEPHFIT_SAMPLES)")
    for path in files:
        (job,) = read_output(path.read_text())["jobs"]
        options = job["job options"]
        metrics = metrics_of(
            job,
            Cell.parse(f"4K-{options['rw']}"),
            iodepth=int(options["iodepth"]),
            run_seconds=float(options["runtime"]),
            n_threads=int(options["numjobs"]),
        )
        op = "read" if "read" in options["rw"] else "write"
        assert metrics.iops == pytest.approx(job[op]["iops"], rel=1e-6), path
        assert metrics.nbytes_per_s == pytest.approx(job[op]["bw_bytes"], abs=1), path
