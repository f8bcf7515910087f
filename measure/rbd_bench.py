"""``rbd bench`` as the engine: an image through librbd, by Ceph's benchmark program.

The program takes a number of bytes instead of a run time. The number follows from the cell's earlier rate; the
first rate comes from a short trial run before the caches are made cold. The program reports no latencies. With a
fixed number of I/Os in flight their mean follows from Little's law: in flight x time / I/Os. There is no ramp.
"""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Client
from cephfit.core.units import MIB
from cephfit.core.values.cells import Cell
from cephfit.core.values.measurement import RBD_BENCH, Measurement
from cephfit.core.values.sample import Metrics
from cephfit.measure.bench_process import (
    Ended,
    image_of,
    place_of,
    require_success,
    run_together,
    version_of,
)
from cephfit.measure.block_device import in_flight_nbytes
from cephfit.measure.engine import (
    CHECK_STORAGE,
    CellOutcome,
    CellRun,
    ClientOutcome,
    Engine,
    KnowsItsLimits,
    PreparesCells,
)
from cephfit.measure.fio.fio_local import GRACE_SECONDS
from cephfit.measure.osd_watch import ImageWatch, watch_osds

_SUMMARY = re.compile(
    r"^elapsed:\s+\d+\s+ops:\s+(?P<ops>\d+)\s+ops/sec:\s+(?P<rate>[0-9.e+]+)\s+bytes/sec:", re.MULTILINE
)
_HEADING = re.compile(
    r"^bench\s+type (?P<type>\w+) io_size (?P<size>\d+) io_threads (?P<threads>\d+) ", re.MULTILINE
)
_IN_NO_TIME = re.compile(r"^elapsed:\s+0\s+ops:\s+\d+\s+ops/sec:\s+(?:inf|-?nan)\b", re.MULTILINE)
"""The summary of a run with too few I/Os for the program's clock."""
_TRIAL_SECONDS = 0.5
_LEAST_PART = 0.3
"""A run that took a smaller part of the requested time is repeated with more bytes."""
_SLOWER = 20
"""Limit of a run's time, in requested times: the trial may have read everything from a cache."""


class RbdBenchEngine(Engine, PreparesCells, KnowsItsLimits):
    """Measures by ``rbd bench``.

    It keeps each client's rate in each cell, to choose the next run's number of bytes. No figure comes from it.
    """

    def __init__(self) -> None:
        self._rates: dict[tuple[str, Cell, str, str], float] = {}

    def facts(self) -> Mapping[str, Any]:
        """See Engine."""
        return {"name": RBD_BENCH, "version": version_of("rbd")}

    def cannot(self, cell: Cell, measurement: Measurement) -> str:
        """See KnowsItsLimits: all cells can be measured."""
        return ""

    def prepare(self, run: CellRun) -> None:
        """Estimate the cell's rate where it is unknown. See PreparesCells."""
        n_ios = {c.name: 4 * run.measurement.iodepth for c in run.clients if _key(run, c) not in self._rates}
        while n_ios:
            commands = {c.name: _command(run, c, n_ios[c.name]) for c in run.clients if c.name in n_ios}
            for name, ended in run_together(commands, timeout_seconds=GRACE_SECONDS).items():
                client = next(c for c in run.clients if c.name == name)
                if not ended.trouble and _IN_NO_TIME.search(ended.output):
                    n_ios[name] *= 4
                    continue
                try:
                    metrics = metrics_of(ended, run.cell, iodepth=run.measurement.iodepth)
                except ValueError as error:
                    raise ClusterError(
                        f"client {name}: {error}", where=place_of(client), remedy=CHECK_STORAGE
                    ) from None
                if metrics.runtime_ns >= _TRIAL_SECONDS * 1e9:
                    self._rates[_key(run, client)] = metrics.iops
                    del n_ios[name]
                else:
                    n_ios[name] *= 4

    def run(self, run: CellRun) -> CellOutcome:
        """See Engine."""
        seconds = run.measurement.run_seconds
        try:
            self.prepare(run)
        except ClusterError as error:
            return CellOutcome(
                {c.name: ClientOutcome(None, error.what) for c in run.clients}, None, program="rbd bench"
            )
        commands = {}
        for client in run.clients:
            n_ios = max(run.measurement.iodepth, math.ceil(self._rates[_key(run, client)] * seconds))
            commands[client.name] = _command(run, client, n_ios)
        op = run.cell.pattern.op
        images = ImageWatch(run.clients, op, run_seconds=seconds)
        with images, watch_osds(run.clients) as watch:
            ended = run_together(commands, timeout_seconds=_SLOWER * seconds + GRACE_SECONDS)
        evidence = {"osds_counted_nbytes": watch.count.nbytes(op), "osds_uncounted": watch.count.why_not}
        in_flight = in_flight_nbytes(run.measurement.iodepth, run.cell.size.benchmark_nbytes)
        outcomes = {
            c.name: images.counted(self._outcome(run, c, ended[c.name], evidence), c, in_flight_nbytes=in_flight)
            for c in run.clients
        }
        return CellOutcome(
            outcomes, json.dumps({name: end.output for name, end in ended.items()}), program="rbd bench"
        )

    def warm(self, run: CellRun) -> None:
        """See Engine."""
        how = ("--io-type", "read", "--io-pattern", "seq", "--io-size", "4M", "--io-threads", "1", "--io-total")
        commands = {c.name: (*_access(c), *how, str(c.nbytes)) for c in run.clients}
        nbytes = sum(client.nbytes for client in run.clients)
        ended = run_together(commands, timeout_seconds=GRACE_SECONDS + nbytes / MIB)
        require_success(run.clients, ended, "the volume", "read")

    def _outcome(self, run: CellRun, client: Client, ended: Ended, evidence: Mapping[str, Any]) -> ClientOutcome:
        try:
            metrics = metrics_of(ended, run.cell, iodepth=run.measurement.iodepth)
        except ValueError as error:
            return ClientOutcome(None, str(error), evidence=evidence)
        self._rates[_key(run, client)] = metrics.iops
        if metrics.runtime_ns < _LEAST_PART * run.measurement.run_seconds * 1e9:
            taken = f"{metrics.runtime_ns / 1e9:.2f} s of the {run.measurement.run_seconds:g} s to measure"
            return ClientOutcome(None, f"rbd bench ended after {taken}", evidence=evidence)
        return ClientOutcome(metrics, evidence=evidence)


def _key(run: CellRun, client: Client) -> tuple[str, Cell, str, str]:
    return (run.configuration, run.cell, run.load, client.name)


def _access(client: Client) -> tuple[str, ...]:
    image = image_of(client)
    return ("rbd", *image.access, "bench", "--pool", image.pool, "--image", image.name)


def _command(run: CellRun, client: Client, n_ios: int) -> tuple[str, ...]:
    size, depth = run.cell.size.benchmark_nbytes, run.measurement.iodepth
    # With several I/Os in flight, `seq` gives each a separate stream; `full-seq` is one stream for all.
    pattern = "rand" if run.cell.pattern.is_random else "full-seq" if depth > 1 else "seq"
    return (
        *_access(client),
        *("--io-type", run.cell.pattern.op.value, "--io-pattern", pattern, "--io-size", str(size)),
        *("--io-threads", str(depth), "--io-total", str(n_ios * size)),
    )


def metrics_of(ended: Ended, cell: Cell, *, iodepth: int) -> Metrics:
    """Return the metrics of one process.

    Raises:
        ValueError: the process failed, ran another cell, or reports impossible figures.
    """
    if ended.trouble:
        raise ValueError(f"rbd bench: {ended.trouble}")
    heading, summary = _HEADING.search(ended.output), _SUMMARY.search(ended.output)
    if heading is None or summary is None:
        raise ValueError(f"rbd bench wrote no result: {ended.output.strip()[-80:]!r}")
    done = (heading["type"], int(heading["size"]), int(heading["threads"]))
    asked = (cell.pattern.op.value, cell.size.benchmark_nbytes, iodepth)
    if done != asked:
        raise ValueError(f"rbd bench did {done}, not {asked}")
    n_ios, rate = int(summary["ops"]), float(summary["rate"])
    if n_ios < 1 or not (math.isfinite(rate) and rate > 0):
        raise ValueError(f"rbd bench did {n_ios} I/Os at {summary['rate']} per second")
    taken = n_ios / rate
    return Metrics(
        iops=rate,
        nbytes_per_s=rate * cell.size.benchmark_nbytes,
        n_ios=n_ios,
        runtime_ns=max(1, round(taken * 1e9)),
        latency_mean_ns=min(iodepth, n_ios) * taken / n_ios * 1e9,
    )
