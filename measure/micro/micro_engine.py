"""The engine ``micro``: operations on files, one process per client, started together.

fio measures blocks, and files that stay open. It lists and renames nothing, and has no flush of names after a
number of operations. Its clock of jobs counts whole milliseconds, in which a file system creates several files.
Debian's fio has no NFS client either. So one program measures all operations on all targets, in ns.
"""

import json
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from cephfit import __version__
from cephfit.core.child_process import end, find_guard, find_program, start
from cephfit.core.errors import ClusterError
from cephfit.core.protocols import Client
from cephfit.core.units import NS_PER_S
from cephfit.core.values.cells import ASKED, MOVED, VOLUME_MOVED, Cell, FileCell, FileSet, Op, require_file_cell
from cephfit.core.values.measurement import MICRO, CacheCondition, Measurement
from cephfit.core.values.sample import Metrics
from cephfit.measure.engine import (
    CHECK_STORAGE,
    CellOutcome,
    CellRun,
    ClientOutcome,
    Engine,
    KnowsItsLimits,
    PreparesCells,
)
from cephfit.measure.micro.file_places import MOUNTED, FilePlace, Traffic, TrafficCounter, volume_of
from cephfit.measure.micro.file_program import PREPARE, READY, RUN, WARM, FileRequest

_GRACE_SECONDS = 300.0
_UNCOUNTED = "the file system between program and device moves blocks of its own, and caches others"


class MicroEngine(Engine, PreparesCells, KnowsItsLimits):
    """Measures operations on files.

    Args:
        place_of: returns where a client's files lie.
        traffic: reads the counters of network and disks; None where there are none.
    """

    def __init__(
        self, *, place_of: Callable[[Client], FilePlace] = volume_of, traffic: TrafficCounter | None = None
    ) -> None:
        self._place_of = place_of
        self._traffic = traffic

    def facts(self) -> Mapping[str, Any]:
        """See Engine."""
        find_guard()
        find_program("unshare", package="util-linux")
        return {"name": MICRO, "version": __version__, "python_version": platform.python_version()}

    def cannot(self, cell: Cell, measurement: Measurement) -> str:
        """See KnowsItsLimits."""
        return "" if isinstance(cell, FileCell) else "this engine measures operations on files, not blocks"

    def prepare(self, run: CellRun) -> None:
        """Restore the files of each client. See PreparesCells."""
        self._step(run, PREPARE, "written")

    def warm(self, run: CellRun) -> None:
        """Read all files once. The run reads them again after it has mounted the volume. See Engine."""
        self._step(run, WARM, "read")

    def run(self, run: CellRun) -> CellOutcome:
        """See Engine."""
        requests = {c.name: self._request(run, c, RUN) for c in run.clients}
        with _programs(requests, timeout_seconds=run.measurement.run_seconds + _GRACE_SECONDS) as programs:
            said = {name: _read(program) for name, program in programs.items()}
            moved = Traffic()
            # If one is not ready, the end of their input ends the others.
            if all(answer == READY for answer in said.values()):
                before = self._read_traffic()
                for program in programs.values():
                    _go_on(program)
                said = {name: _read(program) for name, program in programs.items()}
                moved = self._read_traffic().since(before)
        outcomes = {c.name: _outcome(said[c.name], run, c, requests[c.name]) for c in run.clients}
        return CellOutcome(_with_traffic(outcomes, moved), json.dumps(said), program=MICRO)

    def _read_traffic(self) -> Traffic:
        return Traffic() if self._traffic is None else self._traffic()

    def _request(self, run: CellRun, client: Client, step: str) -> FileRequest:
        cell, m = require_file_cell(run.cell), run.measurement
        return FileRequest(
            step=step,
            place=self._place_of(client),
            files=_files_of(m),
            operation=cell.operation.value,
            nbytes=cell.size.benchmark_nbytes,
            n_threads=m.iodepth,
            seconds=m.run_seconds,
            every=m.flush_interval,
            direct=m.direct,
            seed=run.seeds[client.name],
            warm=m.cache is CacheCondition.WARM,
        )

    def _step(self, run: CellRun, step: str, done: str) -> None:
        """Do a step on all clients at once.

        Raises:
            ClusterError: it failed on one.
        """
        requests = {c.name: self._request(run, c, step) for c in run.clients}
        with _programs(requests, timeout_seconds=_GRACE_SECONDS) as programs:
            said = {name: _read(program) for name, program in programs.items()}
        for name, answer in said.items():
            if "result" not in answer:
                raise ClusterError(
                    f"the files of client {name} could not be {done}: {answer['failure']}",
                    where=requests[name].place.path,
                    remedy=CHECK_STORAGE,
                )


def _files_of(measurement: Measurement) -> FileSet:
    assert measurement.files is not None, "a measurement by this engine has files"
    return measurement.files


@contextmanager
def _programs(
    requests: Mapping[str, FileRequest], *, timeout_seconds: float
) -> Iterator[dict[str, subprocess.Popen[str]]]:
    """Start one program per client; at the end of the block, wait until all have ended, within a time."""
    programs: dict[str, subprocess.Popen[str]] = {}

    def kill() -> None:
        for program in programs.values():
            program.kill()

    timer = threading.Timer(timeout_seconds, kill)
    timer.daemon = True
    try:
        for name, request in requests.items():
            programs[name] = start(
                _command(request),
                stdin=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                environment=dict(request.place.secrets),
            )
        timer.start()
        yield programs
        for program in programs.values():
            program.communicate()
    finally:
        timer.cancel()
        for name, program in programs.items():
            end(program, f"the file operations of client {name}")
            for pipe in (program.stdin, program.stdout):
                if pipe is not None:
                    pipe.close()
        if timer.ident is not None:
            timer.join()


def _command(request: FileRequest) -> Sequence[str]:
    own = (find_program("unshare", package="util-linux"), "--mount", "--propagation", "private", "--")
    words = (sys.executable, "-m", "cephfit.measure.micro.file_program", request.to_text())
    return (*request.place.enter, *(own if request.place.kind in MOUNTED else ()), *words)


def _read(program: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the next line of a program as JSON; the reason of a failure where there is none."""
    assert program.stdout is not None, "it was started with a pipe"
    lines = []
    for line in program.stdout:
        try:
            answer = json.loads(line)
        except ValueError:
            lines.append(line.strip())
            continue
        if isinstance(answer, dict):
            return answer
    return {"failure": f"the program ended without a result{': ' + lines[-1] if lines else ''}"}


def _go_on(program: subprocess.Popen[str]) -> None:
    assert program.stdin is not None, "it was started with a pipe"
    try:
        program.stdin.write("\n")
        program.stdin.flush()
    except BrokenPipeError:
        pass  # it has ended; its output says why


def _outcome(said: Mapping[str, Any], run: CellRun, client: Client, request: FileRequest) -> ClientOutcome:
    if "result" not in said:
        return ClientOutcome(None, str(said.get("failure", "another client of this run failed before it began")))
    result = said["result"]
    if not result["n"]:
        return ClientOutcome(None, f"no operation ended within {run.measurement.run_seconds:g} s: measure longer")
    seconds = result["elapsed_ns"] / NS_PER_S
    metrics = Metrics(
        iops=result["n"] / seconds,
        nbytes_per_s=result["nbytes"] / seconds,
        n_ios=result["n"],
        runtime_ns=result["elapsed_ns"],
        latency_mean_ns=result["latency_mean_ns"],
        latency_percentiles_ns={float(p): float(ns) for p, ns in result["percentiles_ns"].items()},
    )
    evidence: dict[str, Any] = {
        ASKED: {"operations": result["n"], "nbytes": result["nbytes"], "place": request.place.kind}
    }
    if result["volume"]:
        evidence[VOLUME_MOVED] = result["volume"]
    if result["flushes"]:
        evidence["flushes"] = {"n": result["flushes"], "latency_mean_ns": result["flush_mean_ns"]}
    return ClientOutcome(metrics, uncounted=_UNCOUNTED, doubt=_doubt(result, run), evidence=evidence)


def _doubt(result: Mapping[str, Any], run: CellRun) -> str:
    """Return why the bytes that the program reports cannot be right; empty if they can."""
    if not result["volume"] or not run.measurement.direct:
        return ""
    moved = result["volume"]["read_nbytes" if run.cell.pattern.op is Op.READ else "written_nbytes"]
    if moved >= result["nbytes"]:
        return ""
    return f"the program reports {result['nbytes']} bytes without the page cache, the volume moved only {moved}"


def _with_traffic(outcomes: Mapping[str, ClientOutcome], moved: Traffic) -> dict[str, ClientOutcome]:
    """Keep the traffic of all clients with the first one, if all of them have a result."""
    if any(outcome.metrics is None for outcome in outcomes.values()):
        return dict(outcomes)
    first, *_ = outcomes
    evidence = {**outcomes[first].evidence, MOVED: moved.to_json()}
    return {**outcomes, first: replace(outcomes[first], evidence=evidence)}
