"""``rados bench`` as the engine: whole objects of a pool, below RBD.

A cell's block is an object: ``write`` creates new objects, ``read`` reads them in the order of their creation,
``randread`` picks among them. Each client is one process with separate objects in a separate RADOS namespace.
There is no ramp, and the only latency is a mean.

The namespace makes deletion safe. Where `rados cleanup --run-name` finds no run of that name, it deletes all
``benchmark_data_HOST*`` that it sees (Ceph's obj_bencher.cc). Outside the namespace these may belong to another
user's `rados bench --no-cleanup`.

Only sound figures of ``rados bench`` are used: the number of operations, their total time and their mean latency.
Its ``average_iops`` is truncated to a whole number. Its minima and deviations are not set after a short run (16.2
prints 1.8e308 and 902210480).
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cephfit.core.errors import InputError
from cephfit.core.protocols import Client
from cephfit.core.units import KIB
from cephfit.core.values.cells import Cell, Op, Pattern
from cephfit.core.values.measurement import RADOS_BENCH, Measurement
from cephfit.core.values.sample import Metrics
from cephfit.measure.bench_process import Ended, image_of, require_success, run_together, version_of
from cephfit.measure.engine import (
    CellOutcome,
    CellRun,
    ClientOutcome,
    Engine,
    IndependentCount,
    KnowsItsLimits,
    PreparesCells,
)
from cephfit.measure.fio.fio_local import GRACE_SECONDS
from cephfit.measure.osd_watch import OsdCount, watch_osds

_MODES = {Pattern.WRITE: "write", Pattern.READ: "seq", Pattern.RANDREAD: "rand"}
_PREPARING_IOS = 16
_LEAST_IOS = 30
"""Lowest number of operations that gives a rate."""
_METADATA_NBYTES = 64 * KIB
"""Bytes that a run moves in addition to its objects: a list of them."""


class RadosBenchEngine(Engine, PreparesCells, KnowsItsLimits):
    """Measures by ``rados bench``."""

    def facts(self) -> Mapping[str, Any]:
        """See Engine."""
        return {"name": RADOS_BENCH, "version": version_of("rados")}

    def cannot(self, cell: Cell, measurement: Measurement) -> str:
        """See KnowsItsLimits."""
        if cell.pattern not in _MODES:
            return "rados bench writes new objects sequentially; it has no random writes"
        return ""

    def prepare(self, run: CellRun) -> None:
        """Write the objects to read, and delete those of an interrupted run. See PreparesCells.

        The number is what the volume would hold, or what can be written in ten times the run's time.
        """
        self._clean(run)
        if run.cell.pattern.op is Op.WRITE:
            return
        size = run.cell.size.benchmark_nbytes
        seconds = max(5, math.ceil(10 * run.measurement.run_seconds))
        commands = {
            client.name: (
                *_command(run, client, "write", seconds, _PREPARING_IOS),
                *("-b", str(size), "-O", str(size), "--max-objects", str(client.nbytes // size), "--no-cleanup"),
            )
            for client in run.clients
        }
        ended = run_together(commands, timeout_seconds=seconds + GRACE_SECONDS)
        require_success(run.clients, ended, "the objects", "written")

    def run(self, run: CellRun) -> CellOutcome:
        """See Engine."""
        mode = _MODES[run.cell.pattern]
        seconds = max(1, math.ceil(run.measurement.run_seconds))
        size = str(run.cell.size.benchmark_nbytes)
        sizes = ("-b", size, "-O", size, "--no-cleanup") if mode == "write" else ()
        commands = {
            client.name: _command(run, client, mode, seconds, run.measurement.iodepth) + sizes
            for client in run.clients
        }
        try:
            with watch_osds(run.clients) as watch:
                ended = run_together(commands, timeout_seconds=seconds + GRACE_SECONDS)
        finally:
            self._clean(run)
        found = {name: _figures(end, run, seconds) for name, end in ended.items()}
        outcomes = _with_counts(found, watch.count, run)
        return CellOutcome(
            outcomes, json.dumps({name: end.output for name, end in ended.items()}), program="rados bench"
        )

    def warm(self, run: CellRun) -> None:
        """See Engine: reads the objects that ``prepare`` has just written."""
        if run.cell.pattern.op is Op.WRITE:
            return
        commands = {c.name: _command(run, c, "seq", 3600, _PREPARING_IOS) for c in run.clients}
        ended = run_together(commands, timeout_seconds=3600)
        require_success(run.clients, ended, "the objects", "read")

    def _clean(self, run: CellRun) -> None:
        commands = {c.name: (*_access(c), "cleanup", "--run-name", _run_name(c)) for c in run.clients}
        # Where no run had this name, its namespace is empty.
        run_together(commands, timeout_seconds=600)


@dataclass(frozen=True, slots=True)
class _Figures:
    metrics: Metrics | None
    failure: str
    evidence: Mapping[str, Any]


def _access(client: Client) -> tuple[str, ...]:
    image = image_of(client)
    return ("rados", *image.access, "--pool", image.pool, "--namespace", _run_name(client))


def refuse_among_images(pool: str) -> None:
    """Refuse the engine where only images may be changed.

    Raises:
        InputError: always.
    """
    raise InputError(
        f"{RADOS_BENCH} writes objects other than images, and only images may be touched in pool {pool}",
        where="measurement.engine with --only-pool",
        remedy="use engine: fio or rbd-bench, or omit --only-pool to use pools that cephfit creates",
    )


def _run_name(client: Client) -> str:
    """Return the name of a client's run and namespace; its image's name is unique within the pool."""
    return f"cephfit-{image_of(client).name}"


def _command(run: CellRun, client: Client, mode: str, seconds: int, n_ios: int) -> tuple[str, ...]:
    name = ("--run-name", _run_name(client))
    return (*_access(client), "bench", str(seconds), mode, "-t", str(n_ios), *name, "--format", "json")


def parse(output: str) -> dict[str, Any]:
    """Return the JSON document of ``rados bench``, which follows lines of other kinds.

    Raises:
        ValueError: there is no document, or it is truncated.
    """
    start = output.find("{")
    if start < 0:
        raise ValueError(f"rados bench wrote no JSON: {output.strip()[:80]!r}")
    document = json.loads(output[start:])
    if not isinstance(document, dict):
        raise ValueError("rados bench's JSON is not an object")
    return document


def metrics_of(document: Mapping[str, Any], cell: Cell, *, iodepth: int, seconds: float) -> Metrics:
    """Return the metrics of one process.

    Raises:
        ValueError: a figure is missing, impossible, or of another cell.
    """
    word = "writes" if cell.pattern.op is Op.WRITE else "reads"
    n_ios = int(_number(document, f"total_{word}_made"))
    taken = _number(document, "total_time_run")
    size = _number(document, "write_size" if word == "writes" else "read_size")
    latency = _number(document, "average_latency")
    if size != cell.size.benchmark_nbytes:
        raise ValueError(f"rados bench moved blocks of {size:.0f} bytes, not {cell.size.benchmark_nbytes}")
    if n_ios < _LEAST_IOS and taken < 0.95 * seconds:
        raise ValueError(f"only {n_ios} objects could be read, in {taken:.2f} s: use larger volumes")
    if n_ios < 1 or taken <= 0 or latency <= 0:
        raise ValueError(f"no operation ended within {seconds:g} s: measure longer")
    # Little's law: no more operations can be in flight than requested.
    if n_ios * latency > 1.05 * iodepth * taken:
        raise ValueError(f"a mean latency of {latency} s needs more than {iodepth} operations in flight")
    return Metrics(
        iops=n_ios / taken,
        nbytes_per_s=n_ios * size / taken,
        n_ios=n_ios,
        runtime_ns=round(taken * 1e9),
        latency_mean_ns=latency * 1e9,
    )


def _figures(ended: Ended, run: CellRun, seconds: int) -> _Figures:
    if ended.trouble:
        return _Figures(None, f"rados bench: {ended.trouble}", {})
    try:
        metrics = metrics_of(parse(ended.output), run.cell, iodepth=run.measurement.iodepth, seconds=seconds)
    except ValueError as error:
        return _Figures(None, str(error), {})
    early = metrics.runtime_ns < 0.95e9 * seconds
    return _Figures(metrics, "", {"ended_early": "all objects were read"} if early else {})


def _with_counts(found: Mapping[str, _Figures], count: OsdCount, run: CellRun) -> dict[str, ClientOutcome]:
    """Divide the OSDs' count, which is of all clients together, among the clients."""
    op = run.cell.pattern.op
    moved = {n: f.metrics.n_ios * run.cell.size.benchmark_nbytes for n, f in found.items() if f.metrics}
    total = count.nbytes(op)
    outcomes = {}
    for name, figures in found.items():
        if figures.metrics is None or len(moved) < len(found) or total is None:
            why = count.why_not or "another client of this run gave no figures"
            outcomes[name] = ClientOutcome(
                figures.metrics, figures.failure, uncounted=why, evidence=figures.evidence
            )
            continue
        share = moved[name] / sum(moved.values())
        independent = IndependentCount(
            source=f"the OSDs, for {len(found)} clients together",
            window_nbytes=total * share,
            total_nbytes=round(total * share),
            allowed_nbytes=_METADATA_NBYTES,
        )
        outcomes[name] = ClientOutcome(figures.metrics, count=independent, evidence=figures.evidence)
    return outcomes


def _number(document: Mapping[str, Any], key: str) -> float:
    """Return a number that rados bench wrote as text; finite and not negative."""
    try:
        value = float(document[key])
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"rados bench's {key} is {document.get(key)!r}") from None
    if not math.isfinite(value) or value < 0:
        raise ValueError(f"rados bench's {key} is {document[key]!r}")
    return value
