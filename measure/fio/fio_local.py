"""The engine that runs fio on this machine: one process per cell, one job per client, started together."""

import errno
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cephfit.core.child_process import end, find_guard, find_program, start
from cephfit.core.errors import ClusterError, HostError
from cephfit.core.protocols import Client
from cephfit.core.values.sample import Metrics
from cephfit.measure.block_device import DeviceWatch, in_flight_nbytes, why_uncounted
from cephfit.measure.engine import (
    CHECK_STORAGE,
    SLOWEST_NBYTES_PER_S,
    CellOutcome,
    CellRun,
    ClientOutcome,
    Engine,
)
from cephfit.measure.fio.fio_files import (
    UnusableOutputError,
    ceph_conf,
    error_of,
    flushes_of,
    jobs_by_client,
    metrics_of,
    other_direction_of,
    read_output,
    render_job,
    render_warming,
)
from cephfit.measure.osd_watch import ImageWatch, is_image
from cephfit.measure.steady_runs import Halves, halves_of_log
from cephfit.measure.telemetry.bottleneck import CPU, thread_cpu

GRACE_SECONDS = 120.0
"""Time that fio may take in addition to ramp and run time. A cluster that lost an OSD stops I/O for half a minute;
that run should become an invalid sample and not a killed program."""


class FioEngine(Engine):
    """Measures with fio. fio dies with the thread that calls ``run``."""

    def __init__(self, *, grace_seconds: float = GRACE_SECONDS) -> None:
        self._grace_seconds = grace_seconds

    def facts(self) -> Mapping[str, Any]:
        """See Engine."""
        fio = find_program("fio", package="fio")
        find_guard()
        answer = subprocess.run([fio, "--version"], capture_output=True, text=True, check=False, timeout=30)
        if answer.returncode:
            raise HostError(f"fio does not start: {answer.stderr.strip()}", where=fio)
        return {"name": "fio", "version": answer.stdout.strip()}

    def run(self, run: CellRun) -> CellOutcome:
        """See Engine."""
        _refuse_remote(run)
        uncounted = {client.name: _why_uncounted(client, direct=run.measurement.direct) for client in run.clients}
        devices = [c.device for c in run.clients if c.device is not None and not uncounted[c.name]]
        seconds = run.measurement.ramp_seconds + run.measurement.run_seconds
        op = run.cell.pattern.op
        images = ImageWatch(run.clients, op, run_seconds=run.measurement.run_seconds)
        with TemporaryDirectory(prefix="cephfit-fio-") as text:
            folder = Path(text)
            logged = [_with_log(c, run, folder) if c.device not in devices else c for c in run.clients]
            job = render_job(replace(run, clients=logged))
            with images, DeviceWatch(devices, op) as watch:
                output, errors = _run_fio(job, conf=ceph_conf(run), timeout_seconds=seconds + self._grace_seconds)
            halves = {c.name: _halves_by_log(c, run, folder) for c in run.clients if c.device not in devices}
        try:
            jobs = jobs_by_client(document := read_output(output), [c.name for c in run.clients])
        except UnusableOutputError as error:
            _refuse_full_disk(errors)
            failure = _with_fio_message(str(error), errors)
            return CellOutcome({c.name: ClientOutcome(None, failure) for c in run.clients}, None)
        outcomes = {
            c.name: _outcome(c, jobs.get(c.name), run, errors=errors, watch=watch, uncounted=uncounted[c.name])
            for c in run.clients
        }
        for name, found in halves.items():
            if found is not None and outcomes[name].metrics is not None:
                evidence = {**outcomes[name].evidence, "halves": found.to_json()}
                outcomes[name] = replace(outcomes[name], evidence=evidence)
        for client in filter(is_image, run.clients):
            outcomes[client.name] = images.counted(outcomes[client.name], client, in_flight_nbytes=_in_flight(run))
        # Omit lines before the document, such as fio's note on iodepth with ioengine=psync: readers expect JSON.
        return CellOutcome(outcomes, json.dumps(document))

    def warm(self, run: CellRun) -> None:
        """See Engine."""
        _refuse_remote(run)
        names = f"clients {', '.join(client.name for client in run.clients)}"
        nbytes = sum(client.nbytes for client in run.clients)
        timeout_seconds = self._grace_seconds + nbytes / SLOWEST_NBYTES_PER_S
        output, errors = _run_fio(render_warming(run), conf=ceph_conf(run), timeout_seconds=timeout_seconds)
        try:
            jobs = jobs_by_client(read_output(output), [c.name for c in run.clients])
            read = sum(int(job["read"]["io_bytes"]) for job in jobs.values() if not error_of(job))
        except UnusableOutputError as error:
            raise ClusterError(
                _with_fio_message(f"the volumes could not be read: {error}", errors),
                where=names,
                remedy=CHECK_STORAGE,
            ) from None
        if read < nbytes:
            raise ClusterError(
                _with_fio_message(f"only {read} of the volumes' {nbytes} bytes could be read", errors),
                where=names,
                remedy=CHECK_STORAGE,
            )


def _run_fio(job: str, *, conf: str | None, timeout_seconds: float) -> tuple[str, str]:
    """Run a job file; return fio's standard output and error.

    Job and result pass through pipes, so that a kill leaves no files.
    """
    process = start(
        (find_program("fio", package="fio"), "--output-format=json", "--eta=never", "-"),
        stdin=subprocess.PIPE,
        environment={"CEPH_CONF": conf} if conf else {},
    )
    try:
        return process.communicate(job, timeout=timeout_seconds)
    except subprocess.TimeoutExpired:
        return "", f"fio did not end within {timeout_seconds:.0f} s and was killed"
    finally:
        end(process, "fio")


def _outcome(
    client: Client,
    job: Mapping[str, Any] | None,
    run: CellRun,
    *,
    errors: str,
    watch: DeviceWatch,
    uncounted: str,
) -> ClientOutcome:
    """Return the metrics and the independent count of one client."""
    if job is None:
        return ClientOutcome(None, _with_fio_message("fio did not run this client", errors))
    try:
        if error_of(job) == errno.ENOSPC:
            raise _full_disk(client.name, errors)
        metrics, evidence = figures_of(job, run)
    except UnusableOutputError as error:
        return ClientOutcome(None, _with_fio_message(str(error), errors))
    if uncounted or client.device is None:
        return ClientOutcome(metrics, uncounted=uncounted, evidence=evidence)
    count = watch.count(client.device, runtime_ns=metrics.runtime_ns, in_flight_nbytes=_in_flight(run))
    steadiness = watch.steadiness(client.device, runtime_ns=metrics.runtime_ns)
    if steadiness is not None:
        evidence["steadiness"] = steadiness.to_json()
    block = run.cell.size.benchmark_nbytes
    halves = watch.halves(client.device, runtime_ns=metrics.runtime_ns, block_nbytes=block)
    if halves is not None:
        evidence["halves"] = halves.to_json()
    return ClientOutcome(metrics, count=count, evidence=evidence)


def _log_window_seconds(run: CellRun) -> float:
    """Return the window of fio's log of rates: a twentieth of the run, but not so short that fio skips some."""
    return max(0.05, round(run.measurement.run_seconds / 20, 3))


def _with_log(client: Client, run: CellRun, folder: Path) -> Client:
    """Return a client whose job writes a log of its rates, where no counter of the kernel shows them."""
    number = [c.name for c in run.clients].index(client.name)
    options = {
        "write_iops_log": str(folder / f"{number}"),
        "log_avg_msec": str(round(1000 * _log_window_seconds(run))),
    }
    return replace(client, fio_options={**client.fio_options, **options})


def _halves_by_log(client: Client, run: CellRun, folder: Path) -> Halves | None:
    number = [c.name for c in run.clients].index(client.name)
    for log in folder.glob(f"{number}_iops.*.log"):
        window_seconds = _log_window_seconds(run)
        lines = log.read_text().splitlines()
        return halves_of_log(lines, run.cell.pattern.op, window_seconds=window_seconds, ios_per_unit=1.0)
    return None


def _in_flight(run: CellRun) -> int:
    """Return the bytes that may be in flight at the begin of fio's measured time, or complete before its end."""
    block = run.cell.size.benchmark_nbytes
    # Under a rate limit fio's last I/O completes up to one interval before fio's end, which a counter cannot show.
    return in_flight_nbytes(run.measurement.iodepth, block) + (block if run.measurement.is_limited else 0)


def figures_of(job: Mapping[str, Any], run: CellRun) -> tuple[Metrics, dict[str, Any]]:
    """Return the metrics of one job, and its other figures for the sample's evidence.

    Raises:
        UnusableOutputError: see ``metrics_of``.
    """
    measurement = run.measurement
    mixed = measurement.read_pct is not None
    metrics = metrics_of(
        job,
        run.cell,
        iodepth=measurement.iodepth,
        run_seconds=measurement.run_seconds,
        mixed=mixed,
        limited=measurement.is_limited,
    )
    by_fio = job[run.cell.pattern.op.value]
    evidence: dict[str, Any] = {
        "fio_says": {
            "iops": by_fio["iops"],
            "total_ios": by_fio["total_ios"],
            # With blocks that the kernel must split, submission takes long; completion latency alone hides it.
            "latency_with_submission_mean_ns": by_fio.get("lat_ns", {}).get("mean"),
        }
    }
    if measurement.flush_interval:
        evidence["flushes"] = flushes_of(job)
    if cpu := thread_cpu(job):
        evidence[CPU] = cpu
    if mixed:
        evidence["other_direction"] = other_direction_of(job, run.cell)
    return metrics, evidence


def _refuse_remote(run: CellRun) -> None:
    """Refuse clients of other hosts: their path may be an unrelated disk on this machine."""
    for client in run.clients:
        if client.address is not None:
            raise HostError(
                f"client {client.name} is on another host, but this engine runs fio on this machine",
                where=client.address,
                remedy="the target must bring the engine for its clients (measure/fio/fio_remote.py)",
            )


def _why_uncounted(client: Client, *, direct: bool) -> str:
    if client.device is None:
        return "the client has no block device on this machine, so there is no independent count"
    if not direct:
        return "I/O went through the page cache, so the device's counters differ"
    return why_uncounted(client.device)


def _full_disk(client: str, errors: str) -> HostError:
    return HostError(
        f"no space left for client {client}: {_first_line(errors)}",
        remedy="free space, then run the same command again: it continues where it stopped",
    )


def _refuse_full_disk(errors: str) -> None:
    if os.strerror(errno.ENOSPC) in errors:
        raise _full_disk("(all)", errors)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _with_fio_message(failure: str, errors: str) -> str:
    message = _first_line(errors)
    return f"{failure}; its message: {message}" if message and message not in failure else failure
