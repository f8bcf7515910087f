"""The files of fio: the job file of one cell, and metrics from the JSON output. Impossible values are refused.

A job file has one section per client; one process starts them together.

fio 3 counts as follows after a ramp (found by comparison with the kernel's counters). At the end of ``ramp_time``
it sets its counters to zero. From then on ``io_bytes`` and the latencies count *completed* I/O, but ``total_ios``,
and so ``iops``, count *issued* I/O. With ``iodepth`` d there are d-1 I/Os in flight at that moment, so fio's
``iops`` is (d-1)/runtime too low. This is nothing at 30,000 IOPS, but gives 2.2 instead of 3.1 for blocks of 32M
at depth 4 over 3 s. So the rate here is ``io_bytes`` over block size over run time.

``runtime`` begins at the first completion after the ramp and ends when the last I/O in flight completes. At
depth 1 both ends are exact, and completed and issued I/O agree. At depth d the d-1 I/Os in flight at the beginning
may be partly complete: for n I/Os the rate is at most (d-1)/n too high. Where one I/O takes as long as the run,
depth 1 is the right depth.

If every completed I/O was issued before the end of the ramp, fio reports no latency. Then the mean follows from
Little's law, depth x run time / I/Os, and there are no percentiles.
"""

import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from cephfit import templates
from cephfit.core.errors import InputError
from cephfit.core.protocols import Client
from cephfit.core.units import NS_PER_MS
from cephfit.core.values.cells import Cell
from cephfit.core.values.measurement import DSYNC, RBD_OBJECT_NBYTES
from cephfit.core.values.sample import Metrics
from cephfit.measure.engine import CellRun

CONF_OPTION = "conf"
"""Path of the ceph.conf for ``ioengine=rbd``. This is not an option of fio; librados reads it from a variable."""


def render_job(run: CellRun) -> str:
    """Return the job file of a measurement.

    Sections are not grouped, so every client has separate figures. They run as threads of one process, so that all
    end with it.

    Raises:
        InputError: a client option that a job file cannot contain, or an I/O engine that cannot reach the client.
    """
    return _render("fio.j2", run)


def render_warming(run: CellRun) -> str:
    """Return the job file that reads every client's volume once.

    Raises:
        InputError: as ``render_job``.
    """
    return _render("fio_warm.j2", run)


def region_of(run: CellRun, client: Client) -> tuple[int, int]:
    """Return the offset and size, in bytes, of the part of a client's volume that a measurement uses.

    A short sequential run uses only one or two RBD objects, and so one or two OSDs. If every repeat began at the
    same place, the repeats would not show the effect of that choice. So each repeat begins at a different place in
    the first half of the volume, which is the same for all configurations of a round. Random runs use the whole
    volume.

    Sequential accesses that are not aligned to their own size begin one alignment later. Their region ends with a
    whole access: fio 3.33 writes beyond a region that does not.
    """
    base = int(client.fio_options.get("offset", 0))
    if run.cell.pattern.is_random:
        return base, client.nbytes
    block = run.cell.size.benchmark_nbytes
    unit = max(block, RBD_OBJECT_NBYTES)
    shift = run.measurement.run_as(run.cell).align_nbytes
    last = min(client.nbytes // 2, max(0, client.nbytes - shift - block) if shift else client.nbytes)
    start = run.seeds[client.name] % (last // unit + 1) * unit
    if not shift:
        return base + start, client.nbytes - start
    return base + start + shift, (client.nbytes - start - shift) // block * block


def ceph_conf(run: CellRun) -> str | None:
    """Return the ceph.conf of the clients that fio reaches through librbd; None where there is none.

    Raises:
        InputError: the clients have different files, but one process can use only one.
    """
    paths = {c.fio_options[CONF_OPTION] for c in run.clients if CONF_OPTION in c.fio_options}
    if len(paths) > 1:
        raise InputError(f"clients of one run need one ceph.conf, not {', '.join(sorted(paths))}")
    return next(iter(paths), None)


def escaped_filename(path: Path) -> str:
    """Escape a path for fio's ``filename``, where a colon separates files."""
    return str(path).replace(":", r"\:")


def _render(template: str, run: CellRun) -> str:
    for client in run.clients:
        _check(client, run)
    environment = Environment(
        loader=FileSystemLoader(Path(str(templates.__file__)).parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template(template).render(
        measurement=run.measurement,
        direction=_direction(run),
        rates=_rates(run),
        cell=run.cell,
        # fio's blockalign concerns random offsets only.
        align_nbytes=run.measurement.run_as(run.cell).align_nbytes if run.cell.pattern.is_random else 0,
        sync=run.measurement.run_as(run.cell).sync,
        clients=run.clients,
        seeds=run.seeds,
        own_options=(CONF_OPTION, "offset"),
        regions={client.name: region_of(run, client) for client in run.clients},
        milliseconds=lambda seconds: round(seconds * 1000),
    )


def _direction(run: CellRun) -> str:
    """Return fio's ``rw``. Of a mix, the cell determines only whether offsets are sequential or random."""
    if run.measurement.read_pct is None:
        return run.cell.pattern.value
    return "randrw" if run.cell.pattern.is_random else "rw"


def _rates(run: CellRun) -> list[tuple[str, str]]:
    """Return fio's rate limits. fio limits each direction separately, so a mix divides the limit between them."""
    measurement = run.measurement
    rates = []
    for key, limit in (("rate_iops", measurement.rate_iops), ("rate", measurement.rate_nbytes_per_s)):
        if limit is not None and measurement.read_pct is None:
            rates.append((key, str(limit)))
        elif limit is not None and measurement.read_pct is not None:
            reads = max(1, round(limit * measurement.read_pct / 100))
            rates.append((key, f"{reads},{max(1, limit - reads)}"))
    return rates


def _check(client: Client, run: CellRun) -> None:
    for key, value in client.fio_options.items():
        if "\n" in key or "\n" in value or "=" in key:
            raise InputError(f"fio option {key!r} of client {client.name} cannot be written into a job file")
    engine = client.fio_options.get("ioengine", run.measurement.ioengine)
    if engine == "rbd" and "rbdname" not in client.fio_options:
        raise InputError(
            f"client {client.name} is not an RBD image that fio can open through librbd",
            where="measurement.ioengine: rbd",
            remedy="write ioengine: libaio, or choose a target whose clients are reached through librbd",
        )
    if engine == "rbd" and run.measurement.sync == DSYNC:
        raise InputError(
            f"fio opens the image of client {client.name} through librbd, which has no writes that are durable "
            "when they end",
            where="measurement.sync: dsync",
            remedy="write sync: fsync",
        )
    shift = run.measurement.run_as(run.cell).align_nbytes
    if shift and client.nbytes < (least := run.cell.size.benchmark_nbytes + shift):
        raise InputError(
            f"the volume of client {client.name} has {client.nbytes} bytes, and one access that is not aligned to "
            f"its own size needs {least}",
            where="measurement.align",
            remedy="make the volume larger, or remove this size",
        )


class UnusableOutputError(Exception):
    """fio's output, or one job of it, contains no usable metrics; the text states why."""


def read_output(text: str, *, jobs: str = "jobs") -> dict[str, Any]:
    """Return fio's JSON document, which may follow other lines.

    Args:
        text: fio's standard output.
        jobs: key of the required list.

    Raises:
        UnusableOutputError: there is no document, it is truncated, or it is not fio's.
    """
    start = 0 if text.startswith("{") else text.find("\n{") + 1
    if not text.startswith("{", start):
        lines = text.strip().splitlines()
        raise UnusableOutputError(f"fio wrote no JSON{': ' + lines[0] if lines else ''}")
    try:
        document, _ = json.JSONDecoder(parse_constant=_no_constant).raw_decode(text, start)
    except ValueError as error:
        raise UnusableOutputError(f"fio's JSON cannot be read: {error}") from None
    if not isinstance(document.get(jobs), list):
        raise UnusableOutputError(f"fio's JSON has no {jobs}")
    return dict(document)


def jobs_by_client(document: Mapping[str, Any], clients: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Return fio's jobs by client; omits clients without a job.

    Raises:
        UnusableOutputError: two jobs with one name, or a name that is not a client's.
    """
    jobs: dict[str, Mapping[str, Any]] = {}
    for job in document["jobs"]:
        name = str(job.get("jobname")) if isinstance(job, dict) else ""
        if name not in clients or name in jobs:
            raise UnusableOutputError(f"fio reports job {name!r} twice, or it was not requested")
        jobs[name] = job
    return jobs


def error_of(job: Mapping[str, Any]) -> int:
    """Return the job's error number; 0 if it succeeded. Documents that were shortened by others lack it."""
    error = job.get("error", 0)
    if not isinstance(error, int):
        raise UnusableOutputError(f"fio's error number is {error!r}")
    return abs(error)


def metrics_of(
    job: Mapping[str, Any],
    cell: Cell,
    *,
    iodepth: int,
    run_seconds: float,
    n_threads: int = 1,
    mixed: bool = False,
    limited: bool = False,
) -> Metrics:
    """Return the metrics of one job, in the cell's direction.

    Args:
        job: an entry of fio's ``jobs``.
        cell: the requested cell.
        iodepth: per thread.
        run_seconds: the requested measured time.
        n_threads: number of threads in the entry (more than one only where fio grouped them).
        mixed: whether I/O in the other direction was requested, too.
        limited: whether a rate limit was requested, so that fewer than ``iodepth`` I/Os may be in flight.

    Raises:
        UnusableOutputError: the job failed, ended early, did other I/O, or reports impossible figures.
    """
    error = error_of(job)
    if error:
        raise UnusableOutputError(f"fio: {os.strerror(error)} (error {error})")
    side, other = _part(job, cell.pattern.op.value), _part(job, "write" if cell.pattern.op == "read" else "read")
    if _number(other, "io_bytes") and not mixed:
        raise UnusableOutputError(f"fio did I/O that does not belong to {cell}")
    nbytes, runtime_ms = _number(side, "io_bytes"), _number(side, "runtime")
    if nbytes == 0:
        raise UnusableOutputError(f"no I/O ended within the measured {run_seconds:g} s: measure longer")
    if runtime_ms < 0.95 * run_seconds * 1000 - 1:
        raise UnusableOutputError(f"fio ended after {runtime_ms / 1000:g} s of the {run_seconds:g} s to measure")
    if _number(side, "short_ios") or _number(side, "drop_ios"):
        raise UnusableOutputError("fio reports short or dropped I/Os")
    block = cell.size.benchmark_nbytes
    n_ios, rest = divmod(nbytes, block)
    if rest:
        raise UnusableOutputError(f"{nbytes:.0f} bytes are not a whole number of blocks of {block}")
    in_flight = iodepth * n_threads
    if abs(n_ios - _number(side, "total_ios")) > in_flight:
        raise UnusableOutputError(
            f"{n_ios:.0f} I/Os completed and {_number(side, 'total_ios'):.0f} issued differ by more than the "
            f"{in_flight} in flight"
        )
    clat = _part(side, "clat_ns")
    percentiles: dict[float, float] = {}
    if clat.get("N") == 0 and (mixed or limited):
        raise UnusableOutputError(
            f"no I/O both began and ended in the measured {run_seconds:g} s: no latency is known, measure longer"
        )
    if clat.get("N") == 0:
        mean_ns = in_flight * runtime_ms * NS_PER_MS / n_ios
    else:
        mean_ns, percentiles = _latency(clat)
    longest_ns = _number(clat, "max")
    # Little's law: no more I/Os can be in flight than the depth; those of the ramp may have begun before its end.
    if n_ios * mean_ns > 1.01 * in_flight * (runtime_ms * NS_PER_MS + longest_ns):
        raise UnusableOutputError(f"a mean latency of {mean_ns:.0f} ns needs more than {in_flight} I/Os in flight")
    seconds = runtime_ms / 1000
    return Metrics(
        iops=n_ios / seconds,
        nbytes_per_s=nbytes / seconds,
        n_ios=int(n_ios),
        runtime_ns=int(runtime_ms * NS_PER_MS),
        latency_mean_ns=mean_ns,
        latency_percentiles_ns=percentiles,
    )


def other_direction_of(job: Mapping[str, Any], cell: Cell) -> dict[str, Any]:
    """Return a mix's figures in the direction that is not the cell's, for a sample's evidence.

    Raises:
        UnusableOutputError: there was no I/O, or figures are impossible.
    """
    own = cell.pattern.op.value
    name = "write" if own == "read" else "read"
    side = _part(job, name)
    nbytes, runtime_ms = _number(side, "io_bytes"), _number(side, "runtime")
    if nbytes == 0 or runtime_ms == 0:
        raise UnusableOutputError(f"no {name} of the mix ended in the measured time: measure longer")
    n_ios = nbytes / cell.size.benchmark_nbytes
    reads = n_ios if name == "read" else _number(_part(job, "read"), "io_bytes") / cell.size.benchmark_nbytes
    both = n_ios + _number(_part(job, own), "io_bytes") / cell.size.benchmark_nbytes
    clat = _part(side, "clat_ns")
    mean_ns, percentiles = _latency(clat) if clat.get("N") else (None, {})
    return {
        "direction": name,
        "iops": n_ios / (runtime_ms / 1000),
        "nbytes_per_s": nbytes / (runtime_ms / 1000),
        "latency_mean_ns": mean_ns,
        "latency_percentiles_ns": {repr(percentile): ns for percentile, ns in percentiles.items()},
        "read_pct_measured": 100 * reads / both,
    }


def flushes_of(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the number of flushes in the measured time and their mean latency, for a sample's evidence.

    fio counts them apart from the writes: the latencies of writes do not contain them, the rate does.
    """
    side = _part(job, "sync")
    latency = side.get("lat_ns")
    mean_ns = latency.get("mean") if isinstance(latency, dict) and latency.get("N") else None
    return {"n": int(_number(side, "total_ios")), "latency_mean_ns": mean_ns}


def _latency(clat: Mapping[str, Any]) -> tuple[float, dict[float, float]]:
    """Return the mean and the percentiles of the completion latency in ns."""
    low, mean, high = (_number(clat, word) for word in ("min", "mean", "max"))
    if mean <= 0 or not low <= mean * 1.0001 or not mean <= high * 1.0001:
        raise UnusableOutputError(f"a mean latency of {mean} ns is not between {low} and {high}")
    found = _part(clat, "percentile") if "percentile" in clat else {}
    percentiles = {float(key): _number(found, key) for key in found}
    ordered = [percentiles[key] for key in sorted(percentiles)]
    if ordered != sorted(ordered):
        raise UnusableOutputError("latency percentiles fall")
    # fio's latency bins have a width of up to 1/64 of their value; unused percentiles are listed as 0.
    if ordered and ordered[-1] > high * (1 + 1 / 32):
        raise UnusableOutputError(f"a latency percentile of {ordered[-1]} ns is above the largest, {high}")
    return mean, {key: value for key, value in percentiles.items() if value > 0}


def _part(mapping: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = mapping.get(key)
    if not isinstance(part, dict):
        raise UnusableOutputError(f"fio's JSON has no {key}")
    return part


def _number(mapping: Mapping[str, Any], key: str) -> float:
    """Return a number that is finite and not negative."""
    value = mapping.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        raise UnusableOutputError(f"fio's {key} is {value!r}")
    return value


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a number")
